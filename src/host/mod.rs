//! The vocabulary and its carriers.
pub mod op;
