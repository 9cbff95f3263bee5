//! The balancers in front of etcd, told what to do while a member is disturbed.
//!
//! In: which member. Out: nobody is with it any more, or may come again. etcd that is told to stop answers what it is still at in ways that its
//! clients take for answers ("missing HTTP content-type"), which the API server passes on as an error; and who connects to it in that moment
//! is let in and cut off, after which gRPC rests for a second and longer. Who is cut off by a balancer instead asks another member at once.

use super::act::{Actuator, failed};
use super::walk::StepError;
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::names::HostName;
use crate::model::plan::Action;
use crate::plan::etcd_balancer_unit;
use crate::protocol::{Balancing, Op};
use futures::future::join_all;
use std::time::Duration;

/// How long a balancer may take to pass a member over, or to send people there again. It waits for a second for its last reload.
const TOLD: Duration = Duration::from_secs(6);

impl Actuator {
    /// Nobody asks the member on a host any more.
    pub(super) async fn pass_over(&self, index: usize, host: &HostName, action: &Action) {
        // For as long as the step may take: whoever is killed in it leaves it to the timer.
        let most_s = u32::try_from(action.profile().timeout.as_secs()).unwrap_or(u32::MAX);
        let how = Balancing::PassOver { member: host.clone(), most_s };
        for (balancer, why) in self.balancers(index, TOLD, &how).await {
            let text = format!(
                "the balancer on {balancer} still sends clients to etcd on {host}: {why}. Those who ask as it stops may be failed"
            );
            self.sink.emit(Event::Warning { text });
        }
    }

    /// Whoever comes may ask it again. Who does not hear of it now hears of it by the timer.
    pub(super) async fn pass_to(&self, index: usize, host: &HostName) {
        self.balancers(index, TOLD, &Balancing::PassTo { member: host.clone() }).await;
    }

    /// Asks the same of every host that has an API server, leaving ones too. Gives who could not do it, and why.
    pub(super) async fn balancers(
        &self,
        index: usize,
        within: Duration,
        how: &Balancing,
    ) -> Vec<(HostName, StepError)> {
        let serve = |name: &HostName| self.machines.contains_key(name);
        let hosts = self.desired.entered().filter(|host| host.is(Role::ControlPlane) && serve(&host.name));
        let told = hosts.map(async |host| {
            let op = Op::Balance { unit: etcd_balancer_unit(), how: how.clone() };
            let late = |_| Err(failed(format!("it did not do so within {within:?}")));
            let done =
                tokio::time::timeout(within, self.call(index, &host.name, op, within)).await.unwrap_or_else(late);
            done.err().map(|why| (host.name.clone(), why))
        });
        join_all(told).await.into_iter().flatten().collect()
    }
}
