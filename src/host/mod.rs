//! Hosts: the vocabulary, its carriers (SSH, a child process), and the host's own side.
//!
//! In: operations ([`op::Op`]). Out: replies ([`op::Reply`]) or a [`HostError`]. A [`Machine`] is one host, entered;
//! `serve` is what it talks to at the other end.

pub mod frame;
pub mod op;
pub mod serve;

mod access;
mod counters;
mod error;
mod line;
mod local;
mod machine;
mod pace;
mod ssh;
mod wire;

pub use access::{AT_ONCE, Access, Binary};
pub use counters::Traffic;
pub use error::{Barrier, HostError, SudoTrouble};
pub use line::{Feed, Progress, Watch};
pub use machine::Machine;
pub use pace::transfer_within;
pub use ssh::{Forward, usable_password};
