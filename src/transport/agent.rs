//! The seam between the code that decides and the code that reaches hosts.
//!
//! In: an operation for one host. Out: its reply. SSH and a child process implement it ([`Machine`](super::Machine)).
//! So does the simulated world of the tests, which thereby drives the real executor.

use super::{Forward, HostError, Payload, Traffic, Watch};
use crate::model::desired::SshTarget;
use crate::model::names::HostName;
use crate::protocol::{Op, Reply};
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A pending reply.
pub type Asking<'a> = BoxFuture<'a, Result<Reply, HostError>>;
/// A forwarded port that is being opened.
pub type Forwarding<'a> = BoxFuture<'a, Result<Forward, HostError>>;
/// The agents of the reachable hosts.
pub type Agents = BTreeMap<HostName, Arc<dyn Agent>>;

/// The agent of one host, over any transport.
pub trait Agent: Send + Sync {
    /// The host's name.
    fn name(&self) -> &HostName;
    /// Where hactl is stored on the host.
    fn hactl_path(&self) -> String;
    /// Requests one operation and waits for its reply, at most for `timeout`. Dropping the future ends the operation.
    fn call<'a>(&'a self, op: Op, payload: Payload, timeout: Duration, watch: Watch<'a>) -> Asking<'a>;
    /// A local port. The host connects each of its connections to a port at this address.
    fn forward(&self, to: IpAddr, port: u16) -> Forwarding<'_>;
    /// The traffic to the host so far.
    fn counters(&self) -> Traffic;
    /// Whether the process that holds the lock of the run on the host still runs, as far as is known here.
    fn holds_lock(&self) -> bool;
    /// Releases the lock and closes the connection in order. Pending calls end as lost.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Reaches hosts: by SSH in the real world.
pub trait Connect: Send + Sync {
    /// Enters a host, and starts the agent there.
    fn connect<'a>(
        &'a self,
        host: &'a HostName,
        target: &'a SshTarget,
    ) -> BoxFuture<'a, Result<Arc<dyn Agent>, HostError>>;
}

/// For tests: a host that answers each operation by a function, and can do nothing else.
#[cfg(test)]
pub struct Stub<F>(pub HostName, pub F);

#[cfg(test)]
impl<F: Fn(Op) -> Result<Reply, HostError> + Send + Sync> Agent for Stub<F> {
    fn name(&self) -> &HostName {
        &self.0
    }
    fn hactl_path(&self) -> String {
        String::new()
    }
    fn call<'a>(&'a self, op: Op, _: Payload, _: Duration, _: Watch<'a>) -> Asking<'a> {
        Box::pin(std::future::ready((self.1)(op)))
    }
    fn forward(&self, _: IpAddr, _: u16) -> Forwarding<'_> {
        Box::pin(async { Err(HostError::NoMoreSessions) })
    }
    fn counters(&self) -> Traffic {
        Traffic::default()
    }
    fn holds_lock(&self) -> bool {
        false
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
