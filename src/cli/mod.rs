//! (being written)

pub mod inventory;
