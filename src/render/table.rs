//! The table of host files: one literal row each. Files without a row are not written.
//!
//! A test compares it with `templates/` and `manifests/static/`, and renders every row for many inventories.

use serde::Serialize;
use std::collections::BTreeSet;

use super::views::{
    Nothing, balancer, control_plane, drills, etcd, guard, hosting, kubelet, node_agent, os, program, registries,
    renewal, runtime, snapshots,
};
use super::{Input, RenderError, text, yaml};
use crate::model::boot::NODE_AGENT;
use crate::model::desired::{Cni, Desired, EndpointKind, Host, KubeProxy, Role, Security};
use crate::model::drill;
use crate::model::healing::{self, Policy};
use crate::model::hosting as model_hosting;
use crate::model::metrics;
use crate::model::names::UnitName;
use crate::model::renewal::{Reader, SETTINGS, TIMER};
use crate::model::target::{CertId, FileSet};
use crate::model::units::{APPROVER_UNIT, POSITIONS_UNIT};

/// One host file.
pub(super) struct Row {
    /// The template's path in the repository; empty for files without a template.
    pub template: &'static str,
    /// The template.
    pub text: &'static str,
    /// Its path on the host; `*` stands for the item of [`What::Each`].
    pub path: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Its set.
    pub set: FileSet,
    /// The hosts that have it.
    pub on: fn(&Desired, &Host) -> bool,
    /// How it is rendered.
    pub what: What,
    /// The command that must accept it before it replaces the previous file.
    pub check: &'static [&'static str],
}

/// How a file is rendered.
pub(super) enum What {
    /// A template and its view.
    One(fn(&Input<'_>, &Row) -> Result<String, RenderError>),
    /// The same, if the inventory asks for it.
    If(fn(&Desired) -> bool, fn(&Input<'_>, &Row) -> Result<String, RenderError>),
    /// The same for each of several items.
    Each(fn(&Desired) -> Vec<String>, fn(&Input<'_>, &Row, &str) -> Result<String, RenderError>),
    /// A static pod, with a hash of the files before it.
    Pod(&'static str),
}

/// Files that CIS allows only root to read: units with the settings that they read, and the certificates of Kubernetes.
/// Other users read all other files.
const ROOTS_ALONE: [&str; 4] =
    ["/etc/systemd/system/", "/etc/etcd/etcd.env", "/etc/hactl/kubelet-registration.env", "/etc/kubernetes/pki/"];

impl Row {
    /// Permission bits, by the set of hardening defaults.
    pub(super) fn mode(&self, desired: &Desired) -> u32 {
        let strict = desired.control_plane.security == Security::Cis;
        let closed = strict && ROOTS_ALONE.iter().any(|folder| self.path.starts_with(folder));
        if closed { 0o600 } else { self.mode }
    }
    pub(super) fn fill<V: Serialize>(&self, view: &V) -> Result<String, RenderError> {
        text::fill(self.template, self.text, view)
    }
    /// The paths of this row on a host that has it.
    pub(super) fn paths(&self, desired: &Desired) -> Vec<String> {
        match self.what {
            What::Each(items, _) => items(desired).iter().map(|item| self.path.replace('*', item)).collect(),
            What::If(asked, _) if !asked(desired) => vec![],
            What::One(_) | What::If(..) | What::Pod(_) => vec![self.path.to_owned()],
        }
    }
}

/// The unit of a set, and whether it takes new files by a reload.
pub(super) fn unit(set: FileSet) -> Option<(UnitName, bool)> {
    let (name, reload) = match set {
        FileSet::Etcd => ("etcd.service", false),
        FileSet::Fence => (POSITIONS_UNIT, false),
        FileSet::EtcdBalancer => ("hactl-etcd-balancer.service", true),
        FileSet::Runtime => ("containerd.service", false),
        FileSet::Kubelet => ("kubelet.service", false),
        FileSet::LoadBalancer => ("haproxy.service", true),
        FileSet::VrrpFilter => ("hactl-vrrp-filter.service", true),
        FileSet::Keepalived => ("keepalived.service", true),
        FileSet::Approver => (APPROVER_UNIT, false),
        FileSet::Snapshots => ("hactl-snapshot.timer", false),
        FileSet::Renewal => (TIMER, false),
        FileSet::Drills => (drill::TIMER, false),
        FileSet::Guard => (healing::UNIT, false),
        FileSet::Hosting => (model_hosting::UNIT, false),
        FileSet::NodeAgent => (NODE_AGENT, false),
        FileSet::Metrics => (metrics::UNIT, false),
        FileSet::Os
        | FileSet::Trust
        | FileSet::Registries
        | FileSet::ControlPlaneConfig
        | FileSet::ControlPlane
        | FileSet::State
        | FileSet::FormerBalancer
        | FileSet::FormerControlPlane
        | FileSet::FormerEtcd
        | FileSet::FormerNode => {
            return None;
        }
    };
    Some((name.parse().expect("unit names of this table are valid; a test parses them"), reload))
}

/// Certificates that the unit of a set reads only when it starts or reloads.
pub(super) fn reads(set: FileSet) -> Vec<CertId> {
    match set {
        // haproxy checks etcd's members and API servers with the first two, and is with the last what a kubelet reaches
        // while no API server is there.
        FileSet::EtcdBalancer => vec![CertId::ApiserverEtcdClient, CertId::Observer, CertId::Apiserver],
        // systemd passes it to the unit at the start.
        FileSet::Approver => vec![CertId::Approver],
        FileSet::Guard => vec![CertId::Guard],
        FileSet::Metrics => vec![CertId::Metrics],
        _ => vec![],
    }
}

/// The units of a host that read certificates only then, with those certificates.
fn readers(desired: &Desired, host: &Host) -> Vec<Reader> {
    let has = |row: &&Row| (row.on)(desired, host) && !row.paths(desired).is_empty();
    let sets: BTreeSet<FileSet> = FILES.iter().filter(has).map(|row| row.set).collect();
    let reading = sets.into_iter().map(|set| (unit(set), reads(set))).filter(|(_, reads)| !reads.is_empty());
    reading.filter_map(|(unit, reads)| Some(Reader { unit: unit?.0, reads })).collect()
}

fn node(_: &Desired, host: &Host) -> bool {
    host.is_node()
}
fn flannel_node(desired: &Desired, host: &Host) -> bool {
    host.is_node() && flannel(desired)
}
/// All hosts with components.
pub(super) fn any(_: &Desired, host: &Host) -> bool {
    host.has_components()
}
fn control_plane_host(_: &Desired, host: &Host) -> bool {
    host.is(Role::ControlPlane)
}
fn etcd_host(_: &Desired, host: &Host) -> bool {
    host.may_vote()
}
/// Hosts with certificates that hactl renews, or with the encrypted state.
pub(super) fn keeps_state(_: &Desired, host: &Host) -> bool {
    host.may_vote() || host.is(Role::ControlPlane)
}
/// Hosts that have a guard, if the inventory asks for guards.
pub(super) fn guarded(_: &Desired, host: &Host) -> bool {
    healing::may_be_guarded(host)
}
/// Hosts on which keepalived runs.
pub(super) fn moves_vip(desired: &Desired, host: &Host) -> bool {
    host.is(Role::LoadBalancer) && matches!(desired.endpoint.kind, EndpointKind::Vip { .. })
}
fn keyed(_: &Desired, host: &Host) -> bool {
    host.is_node() || host.is(Role::LoadBalancer)
}

macro_rules! row {
    ($set:ident, $on:path, $mode:literal, $path:literal, $template:literal, $what:expr) => {
        row!($set, $on, $mode, $path, $template, $what, &[])
    };
    ($set:ident, $on:path, $mode:literal, $path:literal, $template:literal, $what:expr, $check:expr) => {
        Row {
            template: $template,
            text: include_str!(concat!("../../", $template)),
            path: $path,
            mode: $mode,
            set: FileSet::$set,
            on: $on,
            what: $what,
            check: $check,
        }
    };
}

/// A file without a template.
macro_rules! plain {
    ($set:ident, $on:path, $mode:literal, $path:literal, $text:expr) => {
        Row {
            template: "",
            text: "",
            path: $path,
            mode: $mode,
            set: FileSet::$set,
            on: $on,
            what: What::One($text),
            check: &[],
        }
    };
}

/// All host files, by set, in the order they are written.
#[rustfmt::skip]
pub(super) static FILES: &[Row] = &[
    row!(Os, any, 0o644, "/etc/modules-load.d/hactl.conf", "templates/os/modules.conf", What::One(bare)),
    // The file whose name sorts last wins at boot. Debian has /etc/sysctl.conf as 99-sysctl.conf.
    row!(Os, any, 0o644, "/etc/sysctl.d/zz-hactl.conf", "templates/os/sysctl.conf", What::One(|i, r| r.fill(&os::settings(i)))),
    row!(Os, node, 0o644, "/etc/NetworkManager/conf.d/hactl.conf", "templates/os/networkmanager.conf", What::One(bare)),
    row!(Os, node, 0o644, "/etc/systemd/network/10-hactl.network", "templates/os/networkd.network", What::One(bare)),
    row!(Os, node, 0o644, "/etc/systemd/network/10-hactl.link", "templates/os/networkd.link", What::One(bare)),
    row!(Os, node, 0o644, "/etc/hactl/kubelet-registration.env", "templates/kubelet/registration.env", What::One(|i, r| r.fill(&kubelet::registration(i)))),
    row!(Os, flannel_node, 0o644, "/etc/tmpfiles.d/hactl.conf", "templates/os/tmpfiles.conf", What::One(bare)),

    plain!(Trust, keyed, 0o644, "/etc/kubernetes/pki/ca.crt", |i, _| Ok(ended(i.trust.cluster_ca))),
    // The cluster CA and the intermediate CA of the controller manager, which signs certificates without a chain.
    plain!(Trust, node, 0o644, "/etc/kubernetes/pki/client-ca.crt", |i, _| Ok(ended(i.trust.cluster_ca) + &ended(i.trust.signing_ca))),
    plain!(Trust, control_plane_host, 0o644, "/etc/kubernetes/pki/etcd-ca.crt", |i, _| Ok(ended(i.trust.etcd_ca))),
    plain!(Trust, control_plane_host, 0o644, "/etc/kubernetes/pki/front-proxy-ca.crt", |i, _| Ok(ended(i.trust.front_proxy_ca))),
    plain!(Trust, control_plane_host, 0o644, "/etc/kubernetes/pki/signing.crt", |i, _| Ok(ended(i.trust.signing_cert))),
    plain!(Trust, control_plane_host, 0o600, "/etc/kubernetes/pki/signing.key", |i, r| i.keys(r.path).map(|k| ended(k.signing_key.reveal()))),
    // Kubelet serving certificates: the CA that signs them, and the CAs that API servers trust for them, and for
    // nothing else.
    plain!(Trust, control_plane_host, 0o644, "/etc/kubernetes/pki/kubelet-serving-ca.crt", |i, _| Ok(ended(i.trust.kubelet_serving_ca))),
    plain!(Trust, control_plane_host, 0o644, "/etc/kubernetes/pki/kubelet-serving.crt", |i, _| Ok(ended(i.trust.kubelet_serving_cert))),
    plain!(Trust, control_plane_host, 0o600, "/etc/kubernetes/pki/kubelet-serving.key", |i, r| i.keys(r.path).map(|k| ended(k.kubelet_serving_key.reveal()))),
    plain!(Trust, control_plane_host, 0o644, "/etc/kubernetes/pki/sa.pub", |i, _| Ok(ended(i.trust.sa_public))),
    plain!(Trust, control_plane_host, 0o600, "/etc/kubernetes/pki/sa.key", |i, r| i.keys(r.path).map(|k| ended(k.sa_key.reveal()))),
    plain!(Trust, etcd_host, 0o644, "/etc/etcd/pki/ca.crt", |i, _| Ok(ended(i.trust.etcd_ca))),

    row!(Etcd, etcd_host, 0o644, "/etc/etcd/etcd.env", "templates/etcd/etcd.env", What::One(|i, r| r.fill(&etcd::env(i)))),
    row!(Etcd, etcd_host, 0o644, "/etc/systemd/system/etcd.service", "templates/etcd/etcd.service", What::One(|i, r| r.fill(&etcd::unit(i)?))),

    row!(Fence, etcd_host, 0o644, "/etc/systemd/system/etcd.service.d/10-fence.conf", "templates/etcd/10-fence.conf", What::One(|i, r| r.fill(&etcd::fence(i)))),
    row!(Fence, etcd_host, 0o644, "/etc/systemd/system/hactl-positions.service", "templates/etcd/hactl-positions.service", What::One(|i, r| r.fill(&program(i)))),

    row!(EtcdBalancer, control_plane_host, 0o644, "/etc/hactl/etcd-balancer.cfg", "templates/etcd-balancer/haproxy.cfg", What::One(|i, r| r.fill(&etcd::balancer(i))), HAPROXY),
    row!(EtcdBalancer, control_plane_host, 0o644, "/etc/systemd/system/hactl-etcd-balancer.service", "templates/etcd-balancer/hactl-etcd-balancer.service", What::One(bare)),

    row!(Runtime, node, 0o644, "/etc/containerd/config.toml", "templates/runtime/config.toml", What::One(containerd_config)),
    row!(Runtime, node, 0o644, "/etc/systemd/system/containerd.service", "templates/runtime/containerd.service", What::One(|i, r| r.fill(&runtime::unit(i)?))),

    row!(Registries, node, 0o644, "/etc/containerd/certs.d/*", "templates/runtime/authority.pem", What::Each(registries::authority_files, |i, r, item| r.fill(&registries::authority(i, item)?))),
    row!(Registries, node, 0o600, "/etc/containerd/certs.d/*/hosts.toml", "templates/runtime/hosts.toml", What::Each(registries::all, |i, r, registry| r.fill(&registries::hosts(i, registry)?))),

    row!(Kubelet, node, 0o600, "/etc/kubernetes/kubelet.conf", "templates/kubelet/kubeconfig.yaml", What::One(|i, r| r.fill(&kubelet::kubeconfig(i)))),
    row!(Kubelet, node, 0o600, "/var/lib/kubelet/config.yaml", "templates/kubelet/config.yaml", What::One(kubelet_config)),
    row!(Kubelet, node, 0o644, "/etc/systemd/system/kubelet.service", "templates/kubelet/kubelet.service", What::One(|i, r| r.fill(&kubelet::unit(i)?))),

    row!(ControlPlaneConfig, control_plane_host, 0o600, "/etc/kubernetes/config/encryption.yaml", "templates/control-plane/encryption.yaml", What::One(|i, r| r.fill(&control_plane::encryption(i, r.path)?))),
    row!(ControlPlaneConfig, control_plane_host, 0o600, "/etc/kubernetes/config/audit-policy.yaml", "templates/control-plane/audit-policy.yaml", What::One(bare)),
    row!(ControlPlaneConfig, control_plane_host, 0o600, "/etc/kubernetes/config/admission.yaml", "templates/control-plane/admission.yaml", What::One(bare)),
    row!(ControlPlaneConfig, control_plane_host, 0o600, "/etc/kubernetes/config/event-rate-limit.yaml", "templates/control-plane/event-rate-limit.yaml", What::One(bare)),
    row!(ControlPlaneConfig, control_plane_host, 0o600, "/etc/kubernetes/config/pod-security.yaml", "templates/control-plane/pod-security.yaml", What::One(|i, r| r.fill(&control_plane::pod_security(i)))),
    row!(ControlPlaneConfig, control_plane_host, 0o600, "/etc/kubernetes/config/authentication.yaml", "templates/control-plane/authentication.yaml", What::One(|i, r| r.fill(&control_plane::authentication(i)))),
    row!(ControlPlaneConfig, control_plane_host, 0o600, "/etc/kubernetes/*.conf", "templates/control-plane/kubeconfig.yaml", What::Each(|_| vec!["controller-manager".to_owned(), "scheduler".to_owned()], |i, r, who| r.fill(&control_plane::kubeconfig(i, who)))),

    row!(ControlPlane, control_plane_host, 0o600, "/etc/kubernetes/manifests/kube-apiserver.yaml", "manifests/static/kube-apiserver.yaml", What::Pod("kube-apiserver")),
    row!(ControlPlane, control_plane_host, 0o600, "/etc/kubernetes/manifests/kube-controller-manager.yaml", "manifests/static/kube-controller-manager.yaml", What::Pod("kube-controller-manager")),
    row!(ControlPlane, control_plane_host, 0o600, "/etc/kubernetes/manifests/kube-scheduler.yaml", "manifests/static/kube-scheduler.yaml", What::Pod("kube-scheduler")),

    row!(LoadBalancer, Desired::balances, 0o644, "/etc/systemd/system/haproxy.service.d/50-hactl.conf", "templates/load-balancer/50-hactl.conf", What::One(bare)),
    row!(LoadBalancer, Desired::balances, 0o644, "/etc/haproxy/haproxy.cfg", "templates/load-balancer/haproxy.cfg", What::One(|i, r| r.fill(&balancer::load_balancer(i))), HAPROXY),

    row!(VrrpFilter, moves_vip, 0o644, "/etc/hactl/vrrp.nft", "templates/vrrp-filter/vrrp.nft", What::One(|i, r| r.fill(&balancer::vrrp_filter(i)?)), &["/usr/sbin/nft", "--check", "--file", "{}"]),
    row!(VrrpFilter, moves_vip, 0o644, "/etc/systemd/system/hactl-vrrp-filter.service", "templates/vrrp-filter/hactl-vrrp-filter.service", What::One(bare)),

    row!(Keepalived, moves_vip, 0o644, "/etc/hactl/endpoint-usable.sh", "templates/keepalived/endpoint-usable.sh", What::One(bare)),
    row!(Keepalived, moves_vip, 0o644, "/etc/systemd/system/keepalived.service.d/50-hactl.conf", "templates/keepalived/50-hactl.conf", What::One(|i, r| r.fill(&balancer::hand_over(i)?))),
    row!(Keepalived, moves_vip, 0o644, "/etc/keepalived/keepalived.conf", "templates/keepalived/keepalived.conf", What::One(|i, r| r.fill(&balancer::keepalived(i)?)), &["/usr/sbin/keepalived", "--config-test", "--use-file", "{}"]),

    row!(Approver, control_plane_host, 0o644, "/etc/hactl/approver.json", "templates/approver/approver.json", What::One(|i, r| r.fill(&control_plane::approver_nodes(i)))),
    row!(Approver, control_plane_host, 0o644, "/etc/systemd/system/hactl-approver.service", "templates/approver/hactl-approver.service", What::One(|i, r| r.fill(&control_plane::approver_unit(i)))),

    Row { template: "", text: "", path: SETTINGS, mode: 0o644, set: FileSet::Renewal, on: keeps_state, what: What::If(|d| d.unattended_days.is_some(), |i, _| Ok(renewal::settings(i, readers(i.desired, i.host)))), check: &[] },
    row!(Renewal, keeps_state, 0o644, "/etc/systemd/system/hactl-renew.service", "templates/renewal/hactl-renew.service", What::If(|d| d.unattended_days.is_some(), |i, r| r.fill(&program(i)))),
    row!(Renewal, keeps_state, 0o644, "/etc/systemd/system/hactl-renew.timer", "templates/renewal/hactl-renew.timer", What::If(|d| d.unattended_days.is_some(), |i, r| r.fill(&renewal::timer(i)))),

    row!(Drills, etcd_host, 0o644, "/etc/systemd/system/hactl-drill.service", "templates/snapshots/hactl-drill.service", What::If(|d| d.snapshots.drill.is_some(), |i, r| r.fill(&snapshots::of_member(i)))),
    row!(Drills, etcd_host, 0o644, "/etc/systemd/system/hactl-drill.timer", "templates/snapshots/hactl-drill.timer", What::If(|d| d.snapshots.drill.is_some(), |i, r| r.fill(&drills::timer(i)))),

    // Encrypted: only the owners of the cluster can decrypt it. It is part of every snapshot, and restores the state
    // directory.
    plain!(State, keeps_state, 0o600, "/var/lib/hactl/state.age", |i, _| Ok(i.sealed.text.to_owned())),
    plain!(Snapshots, etcd_host, 0o600, "/etc/hactl/snapshots.json", |i, _| Ok(snapshots::settings(i))),
    Row { template: "", text: "", path: "/etc/hactl/object-storage/*", mode: 0o600, set: FileSet::Snapshots, on: etcd_host, what: What::Each(snapshots::storages, |i, _, _| snapshots::storage(i)), check: &[] },
    row!(Snapshots, etcd_host, 0o644, "/etc/systemd/system/hactl-snapshot.service", "templates/snapshots/hactl-snapshot.service", What::One(|i, r| r.fill(&snapshots::of_member(i)))),
    row!(Snapshots, etcd_host, 0o644, "/etc/systemd/system/hactl-snapshot.timer", "templates/snapshots/hactl-snapshot.timer", What::One(|i, r| r.fill(&snapshots::timer(i)))),

    Row { template: "", text: "", path: healing::POLICY, mode: 0o600, set: FileSet::Guard, on: guarded, what: What::If(guard::wanted, |i, _| Ok(Policy::of(i.desired).to_text())), check: &[] },
    Row { template: "", text: "", path: healing::CA, mode: 0o644, set: FileSet::Guard, on: guarded, what: What::If(guard::wanted, |i, _| Ok(ended(i.trust.cluster_ca))), check: &[] },
    row!(Guard, guarded, 0o644, "/etc/systemd/system/hactl-guard.service", "templates/guard/hactl-guard.service", What::If(guard::wanted, |i, r| r.fill(&guard::unit(i)))),
    row!(Guard, etcd_host, 0o644, "/etc/systemd/system/hactl-guard-peer.socket", "templates/guard/hactl-guard-peer.socket", What::If(guard::repairing, |i, r| r.fill(&guard::peer(i)))),
    row!(Guard, etcd_host, 0o644, "/etc/systemd/system/hactl-guard-peer@.service", "templates/guard/hactl-guard-peer@.service", What::If(guard::repairing, |i, r| r.fill(&guard::peer(i)))),
    row!(Guard, etcd_host, 0o644, "/etc/systemd/system/hactl-heal.service", "templates/guard/hactl-heal.service", What::If(guard::repairing, |i, r| r.fill(&guard::peer(i)))),
    row!(Guard, etcd_host, 0o644, "/etc/systemd/system/hactl-peer-snapshots.service", "templates/guard/hactl-peer-snapshots.service", What::If(guard::copying, |i, r| r.fill(&guard::peer(i)))),
    row!(Guard, etcd_host, 0o644, "/etc/systemd/system/hactl-peer-snapshots.timer", "templates/guard/hactl-peer-snapshots.timer", What::If(guard::copying, |i, r| r.fill(&guard::copies(i)))),
    row!(Hosting, control_plane_host, 0o644, "/etc/systemd/system/hactl-hosting.service", "templates/hosting/hactl-hosting.service", What::If(hosting::wanted, |i, r| r.fill(&hosting::unit(i)))),

    row!(NodeAgent, node, 0o644, "/etc/systemd/system/hactl-node-agent.service", "templates/node-agent/hactl-node-agent.service", What::If(guard::wanted, |i, r| r.fill(&node_agent::unit(i)))),

    Row { template: "", text: "", path: metrics::SETTINGS, mode: 0o644, set: FileSet::Metrics, on: any, what: What::If(|d| d.metrics, |i, _| Ok(metrics::Settings::of(i.desired, i.host).to_text())), check: &[] },
    Row { template: "", text: "", path: metrics::CA, mode: 0o644, set: FileSet::Metrics, on: any, what: What::If(|d| d.metrics, |i, _| Ok(ended(i.trust.cluster_ca))), check: &[] },
    row!(Metrics, any, 0o644, "/etc/systemd/system/hactl-metrics.service", "templates/metrics/hactl-metrics.service", What::If(|d| d.metrics, |i, r| r.fill(&program(i)))),

    // It is made from the files of all hosts, so its content comes last.
    Row { template: "", text: "", path: healing::SPEC, mode: 0o600, set: FileSet::Guard, on: etcd_host, what: What::If(guard::repairing, |_, _| Ok("{}\n".to_owned())), check: &[] },
];

const HAPROXY: &[&str] = &["/usr/sbin/haproxy", "-c", "-f", "{}"];

/// PEM text with exactly one line break at its end, so that two texts can be concatenated.
fn ended(pem: &str) -> String {
    format!("{}\n", pem.trim_end())
}

fn bare(_: &Input<'_>, row: &Row) -> Result<String, RenderError> {
    row.fill(&Nothing {})
}

fn kubelet_config(input: &Input<'_>, row: &Row) -> Result<String, RenderError> {
    yaml::with(row.template, row.fill(&kubelet::config(input))?, &input.desired.extra.kubelet_config)
}

fn containerd_config(input: &Input<'_>, row: &Row) -> Result<String, RenderError> {
    let text = row.fill(&runtime::config(input)?)?;
    let extra = &input.desired.extra.containerd_config;
    if extra.is_empty() {
        return Ok(text);
    }
    let bad = |why: String| RenderError::NotToml { template: row.template.to_owned(), why };
    let mut config: serde_json::Value = toml::from_str(&text).map_err(|e| bad(e.to_string()))?;
    yaml::merge(&mut config, extra);
    let merged = toml::to_string(&config).map_err(|e| bad(e.to_string()))?;
    Ok(format!("# Written by hactl, with the inventory's `extra`.\n{merged}"))
}

/// The units of a host, in the order they are started.
pub fn units(desired: &Desired, host: &Host) -> Vec<UnitName> {
    let mut units: Vec<UnitName> = Vec::new();
    for row in FILES.iter().filter(|row| (row.on)(desired, host)) {
        if let Some((name, _)) = unit(row.set)
            && !units.contains(&name)
        {
            units.push(name);
        }
    }
    units
}

/// The files to observe on a host; needs no facts.
pub fn paths(desired: &Desired, host: &Host) -> Vec<String> {
    FILES.iter().filter(|row| (row.on)(desired, host)).flat_map(|row| row.paths(desired)).collect()
}

/// Whether hactl installs flannel.
pub(super) fn flannel(desired: &Desired) -> bool {
    desired.network.cni == Cni::Flannel
}
/// Whether hactl installs kube-proxy.
pub(super) fn kube_proxy(desired: &Desired) -> bool {
    desired.network.kube_proxy == KubeProxy::Nftables
}
