//! The view of the kind NodeMaintenance: the limits of time that a drain may have.
//!
//! In: nothing. Out: the same for every cluster.

use serde::Serialize;

/// For `manifests/lifecycle/node-maintenances.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Maintenances {
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
