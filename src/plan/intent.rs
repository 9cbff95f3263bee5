//! What a plan depends on that cannot be observed: choices of a person, random values and what the journal remembers.

use crate::model::desired::{Cidr, Host};
use crate::model::facts::{ClusterId, EtcdFact};
use crate::model::leaf::Renewal;
use crate::model::names::HostName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Input that cannot be observed: choices, random values and what the journal remembers.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The identity of this cluster.
    pub cluster_id: ClusterId,
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
    pub(super) fn gave_up(&self, etcd: &EtcdFact) -> bool {
        etcd.data && etcd.token.as_ref().is_some_and(|token| self.dropped.contains(token))
    }
}
