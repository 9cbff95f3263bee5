//! The vocabulary and its carriers.
pub mod frame;
pub mod op;
pub mod serve;
