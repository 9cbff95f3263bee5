//! How an administrator's machine, or another host, reaches the agent of a host: SSH, or a child process.
//!
//! In: operations of the [`protocol`](crate::protocol). Out: their replies, or a [`HostError`]. [`Agent`] is the
//! seam: all code above reaches hosts only through it. A [`Machine`] is the real implementation: a connection to one
//! host.

mod access;
mod agent;
mod agent_session;
mod counters;
mod error;
mod local;
mod machine;
pub mod mtls;
mod peers;
mod pieces;
mod ssh;
mod transfer;
mod wire;

pub use access::{AT_ONCE, Access, Binary};
#[cfg(test)]
pub use agent::Stub;
pub use agent::{Agent, Agents, Asking, Connect, Forwarding};
pub use agent_session::{Payload, Progress, Watch};
pub use counters::Traffic;
pub use error::{Barrier, Expired, HostError, SudoTrouble};
pub use machine::Machine;
pub use peers::Peers;
pub use pieces::{PiecesError, receive};
pub use ssh::{Forward, usable_password};
pub use transfer::transfer_within;
