//! Files of former roles of a host: the paths, and which of them prove that it had the role.
//!
//! In: the desired state and one of its hosts. Out: a set for each role that the host does not have; all files of such
//! a set are removed. Paths that may not be hactl's (a host may have its own haproxy or etcd) count only together with
//! paths that only hactl writes; those are removed last, so that an interrupted removal is detected.

use super::table::{FILES, Row, any, guarded, keeps_state, unit, units};
use super::views::{drills, guard, hosting, metrics, node_agent, os, registries, renewal, snapshots};
use crate::model::desired::{Desired, EndpointKind, Host, Role};
use crate::model::drill;
use crate::model::names::UnitName;
use crate::model::renewal::{ISSUERS, SERVICE};
use crate::model::target::{CertId, FileSet, SetTarget};
use std::collections::BTreeMap;

/// Files of every host except spare ones.
const OF_ALL: [&str; 2] = ["/etc/modules-load.d/hactl.conf", "/etc/sysctl.d/zz-hactl.conf"];
/// The former roles of a host that had a guard.
const OF_GUARDS: [FileSet; 3] = [FileSet::FormerBalancer, FileSet::FormerControlPlane, FileSet::FormerEtcd];
/// The settings of a member's first start, which are in no table because they are never compared.
const FIRST_BOOT: &str = "/etc/etcd/first-boot.env";
/// The file that proves a Node: its name shows that it is hactl's.
const NODES: &str = "/etc/hactl/kubelet-registration.env";

/// The sets of roles that a host does not have. The load balancer counts only with a VIP: without one, it is not known
/// whether other services use haproxy.
fn lost(desired: &Desired, host: &Host) -> impl Iterator<Item = FileSet> {
    let vip = matches!(desired.endpoint.kind, EndpointKind::Vip { .. });
    let lost = [
        (FileSet::FormerBalancer, vip && !host.is(Role::LoadBalancer)),
        (FileSet::FormerControlPlane, !host.is(Role::ControlPlane)),
        (FileSet::FormerEtcd, !host.may_vote()),
        (FileSet::FormerNode, !host.is_node()),
    ];
    lost.into_iter().filter(|(_, lost)| *lost).map(|(set, _)| set)
}

/// The former roles of a file that is no longer wanted.
fn of_row(desired: &Desired, row: &Row) -> &'static [FileSet] {
    use FileSet::{FormerBalancer, FormerControlPlane, FormerEtcd, FormerNode};
    match (row.set, row.path) {
        (FileSet::Os, path) if OF_ALL.contains(&path) => &FileSet::FORMER,
        (FileSet::Trust, "/etc/etcd/pki/ca.crt") => &[FormerEtcd],
        (FileSet::Trust, "/etc/kubernetes/pki/client-ca.crt") => &[FormerNode],
        (FileSet::Trust, "/etc/kubernetes/pki/ca.crt") => &[FormerBalancer, FormerNode],
        (FileSet::Trust | FileSet::EtcdBalancer | FileSet::Approver, _) => &[FormerControlPlane],
        (FileSet::ControlPlaneConfig | FileSet::ControlPlane | FileSet::Hosting, _) => &[FormerControlPlane],
        (FileSet::Etcd | FileSet::Fence | FileSet::Snapshots | FileSet::Drills, _) => &[FormerEtcd],
        (FileSet::Os | FileSet::Runtime | FileSet::Registries | FileSet::Kubelet | FileSet::NodeAgent, _) => {
            &[FormerNode]
        }
        (FileSet::LoadBalancer, _) if matches!(desired.endpoint.kind, EndpointKind::Local { .. }) => &[FormerNode],
        (FileSet::LoadBalancer | FileSet::VrrpFilter | FileSet::Keepalived, _) => &[FormerBalancer],
        (FileSet::State | FileSet::Renewal, _) => &[FormerControlPlane, FormerEtcd],
        (FileSet::Guard, _) => &OF_GUARDS,
        (FileSet::Metrics, _) => &FileSet::FORMER,
        (FormerBalancer | FormerControlPlane | FormerEtcd | FormerNode, _) => &[],
    }
}

/// The former roles of a certificate.
fn of_leaf(id: CertId) -> &'static [FileSet] {
    match id {
        CertId::EtcdServer | CertId::EtcdPeer | CertId::EtcdObserver | CertId::SnapshotSigner => &[FileSet::FormerEtcd],
        CertId::EtcdIssuer => &[FileSet::FormerControlPlane, FileSet::FormerEtcd],
        CertId::Kubelet => &[FileSet::FormerNode],
        CertId::Guard => &OF_GUARDS,
        CertId::Metrics => &FileSet::FORMER,
        CertId::ApiserverEtcdClient
        | CertId::Apiserver
        | CertId::ApiserverKubeletClient
        | CertId::FrontProxyClient
        | CertId::ControllerManager
        | CertId::Scheduler
        | CertId::Observer
        | CertId::Approver
        | CertId::ClusterIssuer
        | CertId::FrontProxyIssuer => &[FileSet::FormerControlPlane],
    }
}

/// Whether only hactl has a file at this path, and only for this role.
fn tells(of: FileSet, set: FileSet, path: &str) -> bool {
    match of {
        FileSet::FormerBalancer => {
            set == FileSet::VrrpFilter || (set == FileSet::Keepalived && !path.starts_with("/etc/keepalived/"))
        }
        FileSet::FormerControlPlane => {
            !matches!(set, FileSet::Os | FileSet::State | FileSet::Renewal | FileSet::Guard | FileSet::Metrics)
        }
        FileSet::FormerEtcd => matches!(set, FileSet::Fence | FileSet::Snapshots),
        _ => path == NODES,
    }
}

/// The rows of the table for roles that a host does not have, each with its set.
fn rows<'a>(desired: &'a Desired, host: &'a Host) -> impl Iterator<Item = (&'static Row, FileSet)> + use<'a> {
    let lost: Vec<FileSet> = lost(desired, host).collect();
    let off = FILES.iter().filter(|row| !(row.on)(desired, host));
    off.flat_map(move |row| {
        let of: Vec<FileSet> = of_row(desired, row).iter().copied().filter(|set| lost.contains(set)).collect();
        of.into_iter().map(move |set| (row, set))
    })
}

/// Files that may be on a host from an earlier inventory or a former role: to be removed, and never to be shown,
/// because some are keys.
pub fn former(desired: &Desired, host: &Host) -> Vec<String> {
    let mut all = former_on_demand(desired, host);
    all.extend(former_sets(desired, host).into_values().flat_map(|set| set.own));
    all.sort_unstable();
    all.dedup();
    all
}

/// The files of what the inventory no longer asks for, on a host whose roles allow it, and former names of files.
pub(super) fn former_on_demand(desired: &Desired, host: &Host) -> Vec<String> {
    let mut files = Vec::new();
    if any(desired, host) {
        files.extend(os::own());
        if !desired.metrics {
            files.extend(metrics::own());
        }
    }
    if keeps_state(desired, host) && desired.unattended_days.is_none() {
        files.extend(renewal::own());
    }
    if host.may_vote() && desired.snapshots.drill.is_none() {
        files.extend(drills::own());
    }
    if guarded(desired, host) && !guard::wanted(desired) {
        files.extend(guard::own());
    } else if guarded(desired, host) {
        files.extend(guard::own_of_repairs());
    }
    if host.is(Role::ControlPlane) && !hosting::wanted(desired) {
        files.extend(hosting::own());
    }
    if host.is_node() && !guard::wanted(desired) {
        files.extend(node_agent::own());
    }
    files
}

/// The files that a host may have of each role that it does not have.
pub fn former_sets(desired: &Desired, host: &Host) -> BTreeMap<FileSet, SetTarget> {
    let empty = |set| {
        let folders = match set {
            FileSet::FormerNode => vec![registries::FOLDER.to_owned()],
            FileSet::FormerEtcd => vec![snapshots::STORAGE.to_owned()],
            _ => vec![],
        };
        (set, SetTarget { folders, ..SetTarget::default() })
    };
    let mut sets: BTreeMap<FileSet, SetTarget> = lost(desired, host).map(empty).collect();
    let mut add = |of: FileSet, path: String, tells: bool| {
        let Some(set) = sets.get_mut(&of) else { return };
        let list = if tells { &mut set.told_by } else { &mut set.own };
        if !list.contains(&path) {
            list.push(path);
        }
    };
    for (row, of) in rows(desired, host) {
        for path in row.paths(desired) {
            let tells = tells(of, row.set, &path);
            add(of, path, tells);
        }
    }
    for (id, path) in crate::pki::former_files(host) {
        for of in of_leaf(id) {
            let tells = match of {
                FileSet::FormerControlPlane => !matches!(id, CertId::EtcdIssuer | CertId::Guard | CertId::Metrics),
                _ => id == CertId::EtcdObserver,
            };
            add(*of, path.clone(), tells);
        }
    }
    if !keeps_state(desired, host) {
        for path in renewal::own() {
            // The other issuing CAs belong only to a control plane, and are handled with it.
            let shared = !path.starts_with(ISSUERS);
            [FileSet::FormerControlPlane, FileSet::FormerEtcd]
                .into_iter()
                .filter(|_| shared)
                .for_each(|of| add(of, path.clone(), false));
        }
    }
    if !any(desired, host) {
        for path in os::own().into_iter().chain(metrics::own()) {
            for of in FileSet::FORMER {
                add(of, path.clone(), false);
            }
        }
    }
    if !guarded(desired, host) {
        for (of, path) in OF_GUARDS.into_iter().flat_map(|of| guard::own().into_iter().map(move |path| (of, path))) {
            add(of, path, false);
        }
    }
    for path in crate::model::hosting::files() {
        add(FileSet::FormerControlPlane, path, false);
    }
    add(FileSet::FormerEtcd, FIRST_BOOT.to_owned(), false);
    for path in drills::own() {
        add(FileSet::FormerEtcd, path, false);
    }
    for set in sets.values_mut() {
        set.own.extend(set.told_by.iter().cloned());
    }
    sets
}

/// The units of roles that a host does not have.
pub fn former_units(desired: &Desired, host: &Host) -> Vec<UnitName> {
    let has = units(desired, host);
    let mut units: Vec<UnitName> = Vec::new();
    let [snapshot, renewal, drill] = ["hactl-snapshot.service", SERVICE, drill::SERVICE].map(crate::model::units::unit);
    for (row, _) in rows(desired, host) {
        let with = match row.set {
            FileSet::Snapshots => Some(snapshot.clone()),
            FileSet::Renewal => Some(renewal.clone()),
            FileSet::Drills => Some(drill.clone()),
            _ => None,
        };
        for name in unit(row.set).map(|(name, _)| name).into_iter().chain(with) {
            if !has.contains(&name) && !units.contains(&name) {
                units.push(name);
            }
        }
    }
    units
}
