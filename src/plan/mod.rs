//! The planner: compares the target with the facts and returns a plan or a refusal.
//!
//! Pure: imports `model/` only. No I/O, no clock, no randomness; values that need them (an initial cluster token, the
//! time) are part of the [`Intent`] or the facts. The same input always returns the same plan.

mod certs;
mod cluster;
mod conditions;
mod configure;
mod down;
mod draft;
mod etcd;
mod identity;
mod move_member;
mod prepare;
mod ranges;
mod reconcile_members;
mod recover;
mod remove_hosts;
mod remove_roles;
mod sources;
mod upgrade;
mod versions;

use crate::model::desired::{Cidr, Desired, Host};
use crate::model::facts::ClusterId;
use crate::model::facts::{EtcdFact, Facts};
use crate::model::leaf::Renewal;
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::model::refusal::Refusal;
use crate::model::target::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use certs::certs;
pub use conditions::{etcd_balancer_unit, etcd_unit, kubelet_unit};
pub use down::down;
pub use ranges::seen as ranges_seen;
pub use recover::{Away, RecoveryRequest, alarmed, diagnose, recover};

/// Input that cannot be observed: choices, random values and what the journal remembers.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The identity of this cluster.
    pub stamp: ClusterId,
    /// The initial cluster token, should a bootstrap be needed; written to the journal before any host gets it.
    pub bootstrap_token: String,
    /// Whether the journal records that etcd was bootstrapped: then empty disks are lost data, never a new cluster.
    pub bootstrapped: bool,
    /// The first revision after the last recovery, as the journal records it: data far below it is older than the
    /// recovery.
    pub recovered: Option<i64>,
    /// The highest first revision of any recovery, as the journal records it: the next one starts above it, whatever
    /// data is left.
    pub leapt: i64,
    /// The Pod CIDR and the Service CIDR of the cluster, if a run recorded them.
    pub ranges: Option<(Cidr, Cidr)>,
    /// Hosts that may be removed from the cluster.
    pub prune: Vec<HostName>,
    /// Hosts that joined, are no longer in the inventory, and were not removed.
    pub removed_hosts: Vec<Host>,
    /// Hosts that stay, could hold the endpoint's VIP when they were last seen, and are no longer load balancers.
    pub balanced: BTreeSet<HostName>,
    /// The hosts that may be changed; `None`: all.
    pub limit: Option<BTreeSet<HostName>>,
    /// Abandoned recoveries, by id: the data that they restored does not count.
    pub dropped: BTreeSet<String>,
    /// The ids of all clusters that ever answered, as the journal records them.
    pub lived: BTreeSet<String>,
    /// When a cluster of this CA was last taken down, milliseconds since 1970: older snapshots are of a previous
    /// cluster.
    pub taken_down_ms: Option<i64>,
    /// Running members to be removed and added again, each with its current id.
    pub replace: BTreeMap<HostName, u64>,
    /// Hosts that a person reassigned: they are another machine, or were another host of the cluster.
    pub reassign: BTreeSet<HostName>,
    /// The last known addresses of hosts, by name: they identify a host whose identity does not include its name yet.
    pub remembered: BTreeMap<HostName, IpAddr>,
    /// Whether Nodes of hosts that are no longer in the inventory are deleted: a recovery from a snapshot is not
    /// complete yet.
    pub abandons: bool,
    /// Certificates to be renewed although they are valid.
    pub renew: Renewal,
}

impl Intent {
    /// Whether the data of the member was restored by an abandoned recovery.
    fn gave_up(&self, etcd: &EtcdFact) -> bool {
        etcd.data && etcd.token.as_ref().is_some_and(|token| self.dropped.contains(token))
    }
}

/// The plan of `hactl up`.
///
/// # Errors
/// A [`Refusal`] when it would not be safe to proceed.
pub fn up(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<Plan, Refusal> {
    let plan = drafted(desired, target, facts, intent)?;
    draft::quorate(&plan)?;
    Ok(plan)
}

fn drafted(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<Plan, Refusal> {
    let mut draft = draft::Draft::new(desired, target, facts, intent)?;
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
        prepare::stamp(&mut draft, &host);
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
