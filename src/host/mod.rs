//! The vocabulary and its carriers.
pub mod frame;
pub mod op;
