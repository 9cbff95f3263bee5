//! The planner: compares what should be with what is, and answers with a plan or a refusal.
//!
//! Pure: imports `model/` only. No I/O, no clock, no randomness; what needs them (a genesis token, the time) comes in
//! with the [`Intent`] or the facts. The same question always gets the same answer.

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

/// What cannot be observed: choices and random values made outside.
#[derive(Debug, Clone)]
pub struct Intent {
    /// This cluster's stamp.
    pub stamp: ClusterId,
    /// The token for a genesis, should one be needed; written to the journal before any host hears of it.
    pub bootstrap_token: String,
    /// Whether the journal knows that this cluster's etcd was born: then empty disks are a loss, never a beginning.
    pub bootstrapped: bool,
    /// The revision that the last recovery began at, as the journal knows it: data from far below it is of the past.
    pub recovered: Option<i64>,
    /// The highest revision that any recovery was to begin at, as the journal knows it: the next one begins above it, whatever is left to see.
    pub leapt: i64,
    /// The ranges of pods and of Services that the cluster lives with, as far as a run noted them.
    pub ranges: Option<(Cidr, Cidr)>,
    /// Hosts that may leave the cluster.
    pub prune: Vec<HostName>,
    /// Hosts that were taken in, are in the inventory no more, and that nobody let go.
    pub removed_hosts: Vec<Host>,
    /// Hosts that stay and had the endpoint's address to share when they were seen last, and are no balancers any more.
    pub balanced: BTreeSet<HostName>,
    /// The hosts that may be changed; `None`: all.
    pub limit: Option<BTreeSet<HostName>>,
    /// Recoveries that were given up, by their ids: what they restored counts for nothing.
    pub dropped: BTreeSet<String>,
    /// The ids of all clusters that ever answered, as far as the journal goes.
    pub lived: BTreeSet<String>,
    /// When a cluster under this authority was taken down last, milliseconds since 1970: bundles from before are of another life.
    pub taken_down_ms: Option<i64>,
    /// Members that are to leave and join anew though they run, each by the id that it has now.
    pub replace: BTreeMap<HostName, u64>,
    /// Hosts that are another machine on purpose, or were another host of the cluster.
    pub reassign: BTreeSet<HostName>,
    /// The addresses that hosts had when they were taken in last, by name: what tells a host that does not carry its name yet.
    pub remembered: BTreeMap<HostName, IpAddr>,
    /// Whether Nodes of hosts that the inventory does not name any more leave: a recovery from a bundle is not whole yet.
    pub abandons: bool,
    /// Leaves that are wanted anew although they are good.
    pub renew: Renewal,
}

impl Intent {
    /// Whether the data in its place is what a recovery restored that was given up.
    fn gave_up(&self, etcd: &EtcdFact) -> bool {
        etcd.data && etcd.token.as_ref().is_some_and(|token| self.dropped.contains(token))
    }
}

/// What `hactl up` has to do.
///
/// # Errors
/// A [`Refusal`] when going on would not be safe.
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
    // Whoever does not serve yet comes first: it may have to stand in while the others restart.
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
