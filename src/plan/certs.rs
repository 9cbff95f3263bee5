//! The plan of `certs renew`: new leaf certificates, and nothing else.
//!
//! In: the input of `up`, with a renewal in the [`Intent`]. Out: a plan of certificates and of the units that must read
//! them. Everything else is left to `up`: a person who renews after a suspected leak must not have to install a new
//! version as well.

use super::configure::{certify, run};
use super::draft::Draft;
use super::intent::Intent;
use crate::model::desired::Desired;
use crate::model::facts::Facts;
use crate::model::names::UnitName;
use crate::model::plan::{Condition, Plan};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, Target};

/// One host after the other, so that a certificate that is not accepted shows on the first. On these hosts,
/// certificates that are due anyway are renewed as well.
///
/// # Errors
/// A [`Refusal`] when it would not be safe to proceed.
pub fn certs(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<Plan, Refusal> {
    let mut draft = Draft::new(desired, target, facts, intent)?;
    let mut last: Option<Condition> = None;
    for host in draft.changing().into_iter().filter(|host| intent.renew.leaves.contains_key(&host.name)) {
        let name = &host.name;
        let mut requires = vec![Condition::ClusterIdWritten(name.clone()), Condition::Prepared(name.clone())];
        let ready = requires.iter().all(|need| draft.holds(need));
        requires.extend(last.clone());
        let renewed = certify(&draft, name, requires);
        let certified = renewed.last();
        draft.join(renewed);
        if !ready {
            // It is reported as waiting for `up`; the other hosts do not wait for it.
            continue;
        }
        last = certified.or(last);
        let sets = draft.host_target(name).sets.iter().filter(|(_, set)| !set.reads.is_empty());
        let readers: Vec<(FileSet, UnitName)> = sets.filter_map(|(set, of)| Some((*set, of.unit.clone()?))).collect();
        for (set, unit) in readers {
            // A stopped unit reads them when `up` starts it.
            if draft.is_active(name, &unit) {
                draft.join(run(&draft, name, set, vec![]));
                last = Some(Condition::Running(name.clone(), unit)).filter(|running| draft.plans(running)).or(last);
            }
        }
    }
    Ok(draft.finish())
}
