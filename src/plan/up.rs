//! The plan of `hactl up`: joins the steps of all subjects in the order in which they may be taken.

use super::draft::{Draft, quorate};
use super::intent::Intent;
use super::{cluster, configure, etcd, identity, prepare, ranges, remove_hosts, remove_roles, upgrade, versions};
use crate::model::desired::Desired;
use crate::model::facts::Facts;
use crate::model::plan::Plan;
use crate::model::refusal::Refusal;
use crate::model::target::Target;

/// The plan of `hactl up`.
///
/// # Errors
/// A [`Refusal`] when it would not be safe to proceed.
pub fn up(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<Plan, Refusal> {
    let plan = drafted(desired, target, facts, intent)?;
    quorate(&plan)?;
    Ok(plan)
}

fn drafted(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<Plan, Refusal> {
    let mut draft = Draft::new(desired, target, facts, intent)?;
    identity::judge(&draft)?;
    upgrade::judge(desired, facts)?;
    versions::judge(desired, target, facts)?;
    etcd::room(&draft)?;
    ranges::judge(desired, target, facts, intent)?;
    remove_hosts::judge(&mut draft)?;
    remove_roles::judge(&draft)?;
    remove_hosts::addresses(&mut draft);
    remove_roles::addresses(&mut draft);
    for host in draft.changing() {
        prepare::cluster_id(&mut draft, &host);
        prepare::prepare(&mut draft, &host);
        prepare::deliver_first(&mut draft, &host);
        configure::trust(&mut draft, &host);
        configure::runtime(&mut draft, &host);
        configure::balancers(&mut draft, &host);
    }
    etcd::converge(&mut draft)?;
    remove_hosts::left_behind(&mut draft)?;
    if draft.ends_here() {
        return Ok(draft.finish());
    }
    let hosts = draft.changing();
    if upgrade::start_stopped(&mut draft) {
        return Ok(draft.finish());
    }
    for host in &hosts {
        configure::kubelet(&mut draft, host);
    }
    upgrade::save(&mut draft);
    // API servers that do not serve yet come first: they may have to serve while the others restart.
    let (serving, rising): (Vec<_>, Vec<_>) = hosts.iter().partition(|h| draft.serves_now(&h.name));
    let order: Vec<_> = rising.into_iter().chain(serving).collect();
    if draft.rollout.api_first {
        for host in &order {
            configure::api_server(&mut draft, host);
        }
    }
    for host in &order {
        configure::control_plane(&mut draft, host);
    }
    configure::balancers_after(&mut draft, &hosts);
    configure::kubelets_after(&mut draft, &hosts);
    upgrade::roll_kubelets(&mut draft);
    cluster::endpoint(&mut draft);
    for host in &hosts {
        prepare::deliver_rest(&mut draft, host);
        configure::renewal(&mut draft, host);
        configure::positions(&mut draft, host);
        configure::snapshots(&mut draft, host);
        configure::drills(&mut draft, host);
        configure::guard(&mut draft, host);
        configure::accept(&mut draft, host);
    }
    cluster::objects(&mut draft);
    cluster::prune(&mut draft);
    cluster::unknown_nodes(&mut draft);
    cluster::nodes(&mut draft);
    upgrade::open(&mut draft);
    remove_roles::remove_roles(&mut draft)?;
    remove_hosts::remove_hosts(&mut draft)?;
    Ok(draft.finish())
}
