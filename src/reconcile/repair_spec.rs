//! What a repair of an etcd member is planned from on a host, where there is no inventory, no bundle and no journal.
//!
//! In: the spec of a run of `hactl up`, and what its journal records about etcd. Out: JSON in a file of every etcd
//! host, without any secret, and the same value read back. It names etcd hosts only, and only what their members are
//! started from. A file that differs anywhere else does not change it.

use super::Spec;
use crate::model::desired::{Agent, Desired, Extra, Host, Named, Proxy, SshTarget, Versions};
use crate::model::healing::SPEC;
use crate::model::leaf::Renewal;
use crate::model::names::HostName;
use crate::model::target::{CaId, FileSet, HostTarget, Target};
use crate::model::units::etcd_unit;
use crate::plan::Intent;
use crate::protocol::ObserveAsk;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The sets of files that a member is started from.
const SETS: [FileSet; 3] = [FileSet::Trust, FileSet::Etcd, FileSet::Fence];
/// The program.
const PROGRAM: &str = "etcd";

/// What the journal records about etcd, as in an [`Intent`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdPast {
    /// Whether etcd was bootstrapped.
    pub bootstrapped: bool,
    /// The first revision after the last recovery.
    pub recovered: Option<i64>,
    /// The highest first revision of any recovery.
    pub leapt: i64,
    /// Abandoned recoveries, by id.
    pub dropped: BTreeSet<String>,
    /// The ids of all clusters that ever answered.
    pub lived: BTreeSet<String>,
    /// When a cluster of this CA was last taken down, milliseconds since 1970.
    pub taken_down_ms: Option<i64>,
}

impl EtcdPast {
    /// The part of an intent that concerns etcd.
    pub fn of(intent: &Intent) -> Self {
        Self {
            bootstrapped: intent.bootstrapped,
            recovered: intent.recovered,
            leapt: intent.leapt,
            dropped: intent.dropped.clone(),
            lived: intent.lived.clone(),
            taken_down_ms: intent.taken_down_ms,
        }
    }
}

/// What repairs of etcd members are planned from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairSpec {
    /// The etcd hosts, and what their members are started from.
    pub spec: Spec,
    /// The past of etcd.
    pub past: EtcdPast,
}

impl RepairSpec {
    /// The part of a spec that concerns etcd members.
    pub fn of(spec: Spec, past: EtcdPast) -> Self {
        let Spec { desired, target, cluster, known, asks, generation } = spec;
        let is_member = |name: &HostName| desired.host(name).is_some_and(Host::may_vote);
        let hosts = target.hosts.into_iter().filter(|(name, _)| is_member(name));
        let target = Target { hosts: hosts.map(|(name, of)| (name, of_member(of))).collect(), ..Target::default() };
        let asks = asks.into_iter().filter(|(name, _)| is_member(name));
        let asks = asks.map(|(name, ask)| asked_of_member(&target, name, ask)).collect();
        Self { spec: Spec { desired: of_members(desired), target, cluster, known, asks, generation }, past }
    }

    /// As a file.
    pub fn to_text(&self) -> String {
        // Plain data of an inventory, which is text: it always has a JSON form.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Nothing is bootstrapped, pruned or renewed, and no host may be changed: `plan/rejoin` names the one.
    pub fn intent(&self) -> Intent {
        let EtcdPast { bootstrapped, recovered, leapt, dropped, lived, taken_down_ms } = self.past.clone();
        Intent {
            cluster_id: self.spec.cluster.clone(),
            bootstrap_token: String::new(),
            bootstrapped,
            recovered,
            leapt,
            ranges: None,
            prune: vec![],
            removed_hosts: vec![],
            balanced: BTreeSet::new(),
            limit: Some(BTreeSet::new()),
            dropped,
            lived,
            taken_down_ms,
            replace: BTreeMap::new(),
            reassign: BTreeSet::new(),
            remembered: BTreeMap::new(),
            abandons: false,
            renew: Renewal::default(),
        }
    }
}

/// The etcd hosts alone, without what only an administrator's machine uses.
fn of_members(desired: Desired) -> Desired {
    let desired = desired.with_first_votes();
    let host = |host: Host| Host { ssh: nowhere(&host), power: None, ..host };
    Desired {
        versions: Versions { is_default: false, ..desired.versions },
        hosts: desired.hosts.into_iter().filter(Host::may_vote).map(host).collect(),
        leaving: vec![],
        jwt: vec![],
        mirrors: BTreeMap::new(),
        named: Named::default(),
        proxy: Proxy::default(),
        bundled_packages: false,
        manifests: vec![],
        extra: Extra::default(),
        ignored_checks: BTreeSet::new(),
        ..desired
    }
}

/// Guards use no SSH.
fn nowhere(host: &Host) -> SshTarget {
    SshTarget {
        host: host.address.to_string(),
        port: 0,
        user: String::new(),
        identity: None,
        identities: vec![],
        certificates: vec![],
        agent: Agent::None,
        identities_only: true,
        known_hosts: vec![],
        key_alias: None,
        fingerprint: None,
        host_ca: None,
        jump: vec![],
        sudo_password: None,
    }
}

fn of_member(target: HostTarget) -> HostTarget {
    HostTarget {
        parts: target.parts.into_iter().filter(|part| part.name == PROGRAM).collect(),
        sets: target.sets.into_iter().filter(|(set, _)| SETS.contains(set)).collect(),
        leaves: target.leaves.into_iter().filter(|leaf| leaf.ca == CaId::Etcd).collect(),
        ..HostTarget::default()
    }
}

fn asked_of_member(target: &Target, name: HostName, ask: ObserveAsk) -> (HostName, ObserveAsk) {
    let sets = target.hosts.get(&name).into_iter().flat_map(|host| host.sets.values());
    let files = sets.flat_map(|set| set.files.iter().map(|file| file.path.clone()));
    let ask = ObserveAsk {
        // Also this file itself: hosts repair only while they agree on it.
        files: files.chain([SPEC.to_owned()]).collect(),
        parts: ask.parts.into_iter().filter(|part| part.name == PROGRAM).collect(),
        units: vec![etcd_unit()],
        leaves: ask.leaves.into_iter().filter(|leaf| leaf.ca == CaId::Etcd).collect(),
        etcd: ask.etcd,
        ..ObserveAsk::default()
    };
    (name, ask)
}
