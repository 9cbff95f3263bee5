//! The seam between what decides and what reaches hosts.
//!
//! In: an operation for one host. Out: its reply. SSH and a child process implement it ([`Machine`](super::Machine)), and so does the
//! simulated world of the tests, which thereby drives the real executor.

use super::{Forward, HostError, Payload, Traffic, Watch};
use crate::model::names::HostName;
use crate::protocol::{Op, Reply};
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A reply on its way.
pub type Asking<'a> = BoxFuture<'a, Result<Reply, HostError>>;
/// A forwarded port on its way.
pub type Forwarding<'a> = BoxFuture<'a, Result<Forward, HostError>>;
/// The agents of the hosts that answer.
pub type Agents = BTreeMap<HostName, Arc<dyn Agent>>;

/// The agent of one host, whatever carries the words to it.
pub trait Agent: Send + Sync {
    /// The host's name.
    fn name(&self) -> &HostName;
    /// Where hactl itself is stored on the host.
    fn hactl_path(&self) -> String;
    /// Asks for one operation and waits for its reply, at most for `timeout`. Dropping the future ends the operation.
    fn call<'a>(&'a self, op: Op, feed: Payload, timeout: Duration, watch: Watch<'a>) -> Asking<'a>;
    /// A local port whose connections the host makes to a port at this address.
    fn forward(&self, to: IpAddr, port: u16) -> Forwarding<'_>;
    /// What talking to the host has cost so far.
    fn counters(&self) -> Traffic;
    /// Whether the process that took the run's lock on the host still runs, as far as is known here.
    fn holds_lock(&self) -> bool;
    /// Gives back the lock and ends the connection, in order. Calls still under way end as lost.
    fn close(&self) -> BoxFuture<'_, ()>;
}
