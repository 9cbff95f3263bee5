//! Inventories of other tools: what is read, what is refused, and what is named as lost.

mod cli;
mod losses;
mod properties;
mod refusals;
mod samples;
