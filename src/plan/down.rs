//! The plan of `hactl down`: every reachable host is wiped, and no step depends on another.

use super::draft::Draft;
use crate::model::plan::{Action, Plan};
use crate::model::refusal::Refusal;

/// The plan of `hactl down`. With `delete` the data is deleted, otherwise it is moved aside.
///
/// # Errors
/// A host that belongs to another cluster.
pub fn down(
    desired: &crate::model::desired::Desired,
    target: &crate::model::target::Target,
    facts: &crate::model::facts::Facts,
    intent: &super::intent::Intent,
    delete: bool,
) -> Result<Plan, Refusal> {
    let mut draft = Draft::new(desired, target, facts, intent)?;
    for host in draft.reachable() {
        let stamped = draft.facts.host(&host.name).is_some_and(|f| f.cluster_id.is_some());
        if !stamped {
            continue;
        }
        let action = Action::Wipe { host: host.name.clone(), delete };
        draft.must(action, "you asked for it", vec![]);
    }
    Ok(draft.finish())
}
