//! What a host may have of roles that it has no more: the paths, and which of them tell that it had the role.
//!
//! In: the desired state and a host of it. Out: a set for each role that it has not, of which nothing is wanted and everything is removed
//! where it is. Paths that may be somebody else's (a host may have a haproxy or an etcd of its own) count only beside others that nobody
//! but hactl writes; those go last, so that a removal that was cut off is seen.

use super::table::{FILES, REGISTRIES, Row, keeps_state, unit};
use super::views;
use crate::model::desired::{Desired, EndpointKind, Host, Role};
use crate::model::drill;
use crate::model::names::UnitName;
use crate::model::renewal::{ISSUERS, SERVICE};
use crate::model::target::{CertId, FileSet, SetTarget};
use std::collections::BTreeMap;

/// What every host but a spare one has.
const OF_ALL: [&str; 2] = ["/etc/modules-load.d/hactl.conf", "/etc/sysctl.d/90-hactl.conf"];
/// A member's settings for its first start, which no table has: they are never compared.
const FIRST_BOOT: &str = "/etc/etcd/first-boot.env";
/// The file that tells of a Node: that it is hactl's is in its name.
const NODES: &str = "/etc/hactl/kubelet-registration.env";

/// The roles, by what is left of them, that a host has not. A balancer counts as long as there is an address that moves: without one, who
/// else uses haproxy is not known.
fn lost(desired: &Desired, host: &Host) -> impl Iterator<Item = FileSet> {
    let vip = matches!(desired.endpoint.kind, EndpointKind::Vip { .. });
    let lost = [
        (FileSet::FormerBalancer, vip && !host.is(Role::LoadBalancer)),
        (FileSet::FormerControlPlane, !host.is(Role::ControlPlane)),
        (FileSet::FormerEtcd, !host.is(Role::Etcd)),
        (FileSet::FormerNode, !host.is_node()),
    ];
    lost.into_iter().filter(|(_, lost)| *lost).map(|(set, _)| set)
}

/// Whose file this is when nobody asks for it any more.
fn of_row(desired: &Desired, row: &Row) -> &'static [FileSet] {
    use FileSet::{FormerBalancer, FormerControlPlane, FormerEtcd, FormerNode};
    match (row.set, row.path) {
        (FileSet::Os, path) if OF_ALL.contains(&path) => &FileSet::FORMER,
        (FileSet::Trust, "/etc/etcd/pki/ca.crt") => &[FormerEtcd],
        (FileSet::Trust, "/etc/kubernetes/pki/client-ca.crt") => &[FormerNode],
        (FileSet::Trust, "/etc/kubernetes/pki/ca.crt") => &[FormerBalancer, FormerNode],
        (FileSet::Trust | FileSet::EtcdBalancer | FileSet::Approver, _) => &[FormerControlPlane],
        (FileSet::ControlPlaneConfig | FileSet::ControlPlane, _) => &[FormerControlPlane],
        (FileSet::Etcd | FileSet::Fence | FileSet::Snapshots | FileSet::Drills, _) => &[FormerEtcd],
        (FileSet::Os | FileSet::Runtime | FileSet::Registries | FileSet::Kubelet, _) => &[FormerNode],
        (FileSet::LoadBalancer, _) if matches!(desired.endpoint.kind, EndpointKind::Local { .. }) => &[FormerNode],
        (FileSet::LoadBalancer | FileSet::VrrpFilter | FileSet::Keepalived, _) => &[FormerBalancer],
        (FileSet::State | FileSet::Renewal, _) => &[FormerControlPlane, FormerEtcd],
        (FormerBalancer | FormerControlPlane | FormerEtcd | FormerNode, _) => &[],
    }
}

/// Whose leaf this is.
fn of_leaf(id: CertId) -> &'static [FileSet] {
    match id {
        CertId::EtcdServer | CertId::EtcdPeer | CertId::EtcdObserver | CertId::SnapshotSigner => &[FileSet::FormerEtcd],
        CertId::EtcdIssuer => &[FileSet::FormerControlPlane, FileSet::FormerEtcd],
        CertId::Kubelet => &[FileSet::FormerNode],
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

/// Whether nobody but hactl has a file here, and nobody but this role does.
fn tells(of: FileSet, set: FileSet, path: &str) -> bool {
    match of {
        FileSet::FormerBalancer => {
            set == FileSet::VrrpFilter || (set == FileSet::Keepalived && !path.starts_with("/etc/keepalived/"))
        }
        FileSet::FormerControlPlane => !matches!(set, FileSet::Os | FileSet::State | FileSet::Renewal),
        FileSet::FormerEtcd => matches!(set, FileSet::Fence | FileSet::Snapshots),
        _ => path == NODES,
    }
}

/// The rows of the table that a host has no more, each with what it is left of.
fn rows<'a>(desired: &'a Desired, host: &'a Host) -> impl Iterator<Item = (&'static Row, FileSet)> + use<'a> {
    let lost: Vec<FileSet> = lost(desired, host).collect();
    let off = FILES.iter().filter(|row| !(row.on)(desired, host));
    off.flat_map(move |row| {
        let of: Vec<FileSet> = of_row(desired, row).iter().copied().filter(|set| lost.contains(set)).collect();
        of.into_iter().map(move |set| (row, set))
    })
}

/// What a host may have of each role that it has not.
pub fn former_sets(desired: &Desired, host: &Host) -> BTreeMap<FileSet, SetTarget> {
    let empty = |set| {
        let folders = match set {
            FileSet::FormerNode => vec![REGISTRIES.to_owned()],
            FileSet::FormerEtcd => vec![views::snapshots::STORAGE.to_owned()],
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
                FileSet::FormerControlPlane => id != CertId::EtcdIssuer,
                _ => id == CertId::EtcdObserver,
            };
            add(*of, path.clone(), tells);
        }
    }
    if !keeps_state(desired, host) {
        for path in views::renewal::own() {
            // The other issuers are a control plane's alone, and told as such.
            let shared = !path.starts_with(ISSUERS);
            [FileSet::FormerControlPlane, FileSet::FormerEtcd]
                .into_iter()
                .filter(|_| shared)
                .for_each(|of| add(of, path.clone(), false));
        }
    }
    add(FileSet::FormerEtcd, FIRST_BOOT.to_owned(), false);
    for path in views::drills::own() {
        add(FileSet::FormerEtcd, path, false);
    }
    for set in sets.values_mut() {
        set.own.extend(set.told_by.iter().cloned());
    }
    sets
}

/// The units of roles that a host has not.
pub fn former_units(desired: &Desired, host: &Host) -> Vec<UnitName> {
    let has = super::units(desired, host);
    let mut units: Vec<UnitName> = Vec::new();
    let services = ["hactl-snapshot.service", SERVICE, drill::SERVICE]
        .map(|name| name.parse().expect("a constant that is a valid unit name"));
    let [snapshot, renewal, drills]: [UnitName; 3] = services;
    for (row, _) in rows(desired, host) {
        let with = match row.set {
            FileSet::Snapshots => Some(snapshot.clone()),
            FileSet::Renewal => Some(renewal.clone()),
            FileSet::Drills => Some(drills.clone()),
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
