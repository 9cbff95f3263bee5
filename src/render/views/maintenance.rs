//! The views of the kind NodeMaintenance, the limits of time that a drain may have, and of the rights of the guards that
//! act on its objects.
//!
//! In: the desired state. Out: views.

use crate::model::desired::{Desired, Host, Role};
use crate::model::healing;
use crate::model::maintenance::{CONTROLLERS_LEASE, node_lease};
use crate::model::rollout::ZONE;
use serde::Serialize;

/// For `manifests/lifecycle/controllers.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Controllers {
    users: Vec<String>,
    leases: Vec<String>,
}

impl Controllers {
    /// `None`: the inventory asks for no guards.
    pub fn of(desired: &Desired) -> Option<Self> {
        let acts = |host: &&Host| host.is(Role::ControlPlane) && healing::is_guarded(desired, host);
        let users: Vec<_> = desired.hosts.iter().filter(acts).map(|host| healing::user(&host.name)).collect();
        let nodes = desired.hosts.iter().filter(|host| host.is_node()).map(|host| node_lease(&host.name));
        let leases = [CONTROLLERS_LEASE.to_owned()].into_iter().chain(nodes).collect();
        (!users.is_empty()).then_some(Self { users, leases })
    }
}

/// For `manifests/lifecycle/node-maintenances.yaml` and `manifests/lifecycle/node-maintenance-rollouts.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Maintenances {
    zone: &'static str,
    limits: [Limit; 3],
}

#[derive(Debug, Serialize)]
struct Limit {
    name: &'static str,
    description: &'static str,
    rule: String,
    message: String,
}

/// A limit from a minute to so many hours.
fn limit(name: &'static str, most_h: u32, description: &'static str) -> Limit {
    let rule = format!("duration(self) >= duration('1m') && duration(self) <= duration('{most_h}h')");
    Limit { name, description, rule, message: format!("{name} is 1m to {most_h}h") }
}

impl Maintenances {
    pub fn new() -> Self {
        Self {
            zone: ZONE,
            limits: [
                limit(
                    "forceAfter",
                    168,
                    "A pod whose eviction was refused for so long is deleted with its own grace period. Unset: never.",
                ),
                limit(
                    "waitCompletedFor",
                    720,
                    "For so long the drain waits for pods with the behavior WaitCompleted; then it evicts them. Unset: \
                     without a limit.",
                ),
                limit(
                    "giveUpAfter",
                    720,
                    "A drain that has lasted for so long is given up, and the Node is restored. The time in which no process \
                     acts on it does not count. Unset: never.",
                ),
            ],
        }
    }
}
