//! The views of the kind NodeMaintenance, the limits of time that a drain may have, and of the rights of the guards that
//! act on its objects.
//!
//! In: the desired state. Out: views.

use crate::model::desired::{Desired, Host, Role};
use crate::model::healing;
use crate::model::maintenance::{CONTROLLERS_CONFIG_MAP, CONTROLLERS_LEASE, node_lease};
use crate::model::rollout::ZONE;
use crate::model::window::{LONGEST_SCHEDULE, LONGEST_ZONE, MOST, OPEN_MIN, UTC};
use serde::Serialize;
use serde_json::{Value, json};

/// For `manifests/lifecycle/controllers.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Controllers {
    users: Vec<String>,
    leases: Vec<String>,
    config_map: &'static str,
}

impl Controllers {
    /// `None`: the inventory asks for no guards.
    pub fn of(desired: &Desired) -> Option<Self> {
        let acts = |host: &&Host| host.is(Role::ControlPlane) && healing::is_guarded(desired, host);
        let users: Vec<_> = desired.hosts.iter().filter(acts).map(|host| healing::user(&host.name)).collect();
        let nodes = desired.hosts.iter().filter(|host| host.is_node()).map(|host| node_lease(&host.name));
        let leases = [CONTROLLERS_LEASE.to_owned()].into_iter().chain(nodes).collect();
        (!users.is_empty()).then_some(Self { users, leases, config_map: CONTROLLERS_CONFIG_MAP })
    }
}

/// For `manifests/lifecycle/node-maintenances.yaml` and `manifests/lifecycle/node-maintenance-rollouts.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Maintenances {
    zone: &'static str,
    limits: [Limit; 3],
    windows: Value,
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

/// The schema of windows.
fn windows() -> Value {
    let (least, most) = (OPEN_MIN.start(), OPEN_MIN.end());
    json!({
        "description": "When work may begin; none: at any time. A window opens at each time of its schedule. What has begun \
            goes on after its end, except a drain that is not complete: then the Node is restored, and its drain begins \
            again in the next window.",
        "type": "array",
        "maxItems": MOST,
        "default": [],
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["schedule", "duration"],
            "properties": {
                "schedule": {
                    "description": "The five fields of a crontab, or @daily and similar names, in the timeZone.",
                    "type": "string",
                    "maxLength": LONGEST_SCHEDULE,
                    "pattern": "^(@(annually|yearly|monthly|weekly|daily|hourly)|[0-9A-Za-z*,/?#-]+( [0-9A-Za-z*,/?#-]+){4})$",
                },
                "timeZone": {
                    "description": "A name of the time zone database of the IANA.",
                    "type": "string",
                    "maxLength": LONGEST_ZONE,
                    "pattern": "^[A-Za-z0-9_+/-]+$",
                    "default": UTC,
                },
                "duration": {
                    "description": "For how long the window is open.",
                    "type": "string",
                    "minLength": 2,
                    "maxLength": 16,
                    "pattern": "^([0-9]+h)?([0-9]+m)?$",
                    "x-kubernetes-validations": [{
                        "rule": format!("duration(self) >= duration('{least}m') && duration(self) <= duration('{most}m')"),
                        "message": format!("a window is open for {least}m to {}h", most / 60),
                    }],
                },
            },
        },
    })
}

impl Maintenances {
    pub fn new() -> Self {
        Self {
            zone: ZONE,
            windows: windows(),
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
