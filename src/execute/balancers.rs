//! Controls the load balancers in front of etcd while a member is disrupted.
//!
//! In: the member. Out: balancers that bypass it, or use it again. While etcd shuts down, its clients mistake the end
//! of a request for a reply ("missing HTTP content-type"), which the API server returns as an error. It also accepts
//! new connections and closes them, after which gRPC backs off for a second or longer. A client that the balancer
//! disconnects instead uses another member at once.

use super::act::{Doing, failed};
use super::walk::StepError;
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::names::HostName;
use crate::plan::etcd_balancer_unit;
use crate::protocol::{Balancing, Op};
use futures::future::join_all;
use std::time::Duration;

/// Timeout of a balancer that bypasses a member or uses it again; it waits a second for its previous reload.
const TOLD: Duration = Duration::from_secs(6);

impl Doing<'_> {
    /// Makes all balancers bypass the member on a host.
    pub(super) async fn pass_over(&self, host: &HostName) {
        // At most for the timeout of the step: if hactl is killed in it, a timer ends the bypass.
        let most_s = u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX);
        let how = Balancing::PassOver { member: host.clone(), most_s };
        for (balancer, why) in self.balancers(TOLD, &how).await {
            let text = format!(
                "the balancer on {balancer} still sends clients to etcd on {host}: {why}. Requests may fail as it stops"
            );
            self.sink.emit(Event::Warning { text });
        }
    }

    /// Makes all balancers use it again. On a balancer that cannot be reached, a timer does this.
    pub(super) async fn pass_to(&self, host: &HostName) {
        self.balancers(TOLD, &Balancing::PassTo { member: host.clone() }).await;
    }

    /// Sends the same request to every host with an API server, including hosts that are being removed. Returns the
    /// hosts that failed, and why.
    pub(super) async fn balancers(&self, within: Duration, how: &Balancing) -> Vec<(HostName, StepError)> {
        let serve = |name: &HostName| self.machines.contains_key(name);
        let hosts = self.desired.entered().filter(|host| host.is(Role::ControlPlane) && serve(&host.name));
        let stated = hosts.map(async |host| {
            let op = Op::Balance { unit: etcd_balancer_unit(), how: how.clone() };
            let late = |_| Err(failed(format!("no reply within {within:?}")));
            let stated = self.within(within);
            let done = tokio::time::timeout(within, stated.call(&host.name, op)).await.unwrap_or_else(late);
            done.err().map(|why| (host.name.clone(), why))
        });
        join_all(stated).await.into_iter().flatten().collect()
    }
}
