//! Leaf certificates anew, and nothing else: what `certs renew` has to do.
//!
//! In: what `up` plans by, with a renewal in the [`Intent`]. Out: a plan of certificates, and of what has to read them. What else the
//! inventory asks for is left to `up`: whoever renews after a suspicion must not have to take a new version along.

use super::Intent;
use super::configure::{certify, run_as_it_is};
use super::draft::Draft;
use crate::model::desired::Desired;
use crate::model::facts::Facts;
use crate::model::names::UnitName;
use crate::model::plan::{Condition, Plan};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, Target};

/// One host after the other, so that a certificate that is not accepted is noticed on the first. On a host that is asked for, what is
/// due by itself goes along.
///
/// # Errors
/// A [`Refusal`] when going on would not be safe.
pub fn certs(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<Plan, Refusal> {
    let mut draft = Draft::new(desired, target, facts, intent)?;
    let mut last: Option<Condition> = None;
    for host in draft.changing().into_iter().filter(|host| intent.renew.leaves.contains_key(&host.name)) {
        let name = &host.name;
        let mut requires = vec![Condition::ClusterIdWritten(name.clone()), Condition::Prepared(name.clone())];
        let ready = requires.iter().all(|need| draft.holds(need));
        requires.extend(last.clone());
        let due = certify(&mut draft, name, requires);
        if !ready {
            // It is told as waiting for `up`; the others do not wait for it.
            continue;
        }
        if due {
            last = Some(Condition::Certified(name.clone()));
        }
        let sets = draft.host_target(name).sets.iter().filter(|(_, set)| !set.reads.is_empty());
        let readers: Vec<(FileSet, UnitName)> = sets.filter_map(|(set, of)| Some((*set, of.unit.clone()?))).collect();
        for (set, unit) in readers {
            // What lies still reads them when `up` starts it.
            if draft.look().is_active(name, &unit) {
                run_as_it_is(&mut draft, name, set, vec![]);
                last = Some(Condition::Running(name.clone(), unit)).filter(|running| draft.plans(running)).or(last);
            }
        }
    }
    Ok(draft.finish())
}
