//! The plan of `hactl up`: joins the steps of all subjects in the order in which they may be taken.

use super::conditions::Observed;
use super::configure::{
    accept, api_server, balancer_after, balancers, control_plane, drills, guard, kubelet, kubelet_after, metrics,
    node_agent, positions, renewal, runtime, snapshots, trust,
};
use super::draft::{Draft, maintained, quorate};
use super::intent::Intent;
use super::prepare::{cluster_id, deliver_first, deliver_rest, judge_packages, prepare};
use super::{cluster, etcd, hosted, identity, ranges, remove_hosts, remove_roles, upgrade, versions};
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
    maintained(&plan, Observed { desired, target, facts, intent })?;
    Ok(plan)
}

fn drafted(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<Plan, Refusal> {
    let mut plan = Draft::new(desired, target, facts, intent)?;
    identity::judge(&plan)?;
    upgrade::judge_default(desired, target, facts)?;
    upgrade::judge(desired, facts)?;
    versions::judge(desired, target, facts)?;
    judge_packages(&plan)?;
    etcd::room(&plan)?;
    ranges::judge(desired, target, facts, intent)?;
    hosted::judge(&plan)?;
    plan.join(remove_hosts::judge(&plan)?);
    remove_roles::judge(&plan)?;
    plan.join(remove_hosts::addresses(&plan));
    plan.join(remove_roles::addresses(&plan));
    let hosts = plan.changing();
    plan.join_each(&hosts, &[cluster_id, prepare, deliver_first, trust, runtime, balancers]);
    plan.join_each(&hosts, &[etcd::files]);
    plan.join(etcd::members(&plan)?);
    plan.join(remove_hosts::left_behind(&plan)?);
    if plan.horizon.is_none() {
        plan.join(upgrade::start_stopped(&plan));
    }
    if plan.horizon.is_some() {
        return Ok(plan.finish());
    }
    plan.join_each(&hosts, &[kubelet]);
    plan.join(upgrade::save(&plan));
    // API servers that do not serve yet come first: they may have to serve while the others restart.
    let mut order = hosts.clone();
    order.sort_by_key(|host| plan.serves_now(&host.name));
    plan.join_each(&order, &[hosted::hold_first, api_server]);
    plan.join_each(&order, &[hosted::hold, control_plane]);
    plan.join_each(&hosts, &[balancer_after]);
    plan.join_each(&hosts, &[kubelet_after]);
    plan.join(upgrade::roll_kubelets(&plan));
    plan.join(cluster::endpoint(&plan));
    plan.join_each(
        &hosts,
        &[deliver_rest, renewal, positions, snapshots, drills, hosted::keeper, guard, node_agent, metrics, accept],
    );
    for subject in [cluster::objects, cluster::prune, cluster::unknown_nodes, cluster::nodes, upgrade::open] {
        plan.join(subject(&plan));
    }
    plan.join_each(&hosts, &[hosted::hand_over, hosted::reserve]);
    if plan.limited() {
        let left = [remove_roles::left(&plan), remove_hosts::left(&plan)];
        plan.warnings.extend(left.into_iter().flatten());
        return Ok(plan.finish());
    }
    for host in remove_roles::former(&plan) {
        plan.join(remove_roles::remove_roles(&plan, &host)?);
    }
    for host in remove_hosts::leaving(&plan) {
        plan.join(remove_hosts::remove_host(&plan, &host)?);
    }
    Ok(plan.finish())
}
