//! The target of a host besides its files: users, directories, kernel settings, packages, ports, and how to query it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::addons;
use super::former::former_on_demand;
use super::table::{FILES, keeps_state, kube_proxy, moves_vip, paths, units};
use super::views::etcd::own_etcd;
use super::views::os::sysctls;
use super::views::{drills, runtime};
use crate::model::boot::NODE_AGENT;
use crate::model::control_plane::ELECTED_PORTS;
use crate::model::desired::{Desired, EndpointKind, Host, Role};
use crate::model::drill;
use crate::model::firewall::Firewall;
use crate::model::healing::{self, keeps_peer_snapshots};
use crate::model::hosting::Hosting;
use crate::model::metrics;
use crate::model::ports;
use crate::model::renewal::{ISSUERS, SERVICE, TIMER};
use crate::model::target::{Addon, INSTALLED, object_key};
use crate::model::units::{PEER_SNAPSHOTS_UNIT, containerd_unit, kubelet_unit, unit};
use crate::protocol::{ApiAsk, ETCD_BALANCER_SOCKET, EtcdAsk, Preparation, WipeAsk};

/// Data directories of the kubelet and containerd.
const NODES_DATA: [&str; 3] = ["/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni"];

/// The directories of keys and certificates, and of the encryption of Secrets.
const KEYS: [&str; 3] = ["/etc/etcd/pki/", "/etc/kubernetes/config/", "/etc/kubernetes/pki/"];

/// The files of [`KEYS`] that a host may have of any role: roles may have been edited since the last `up`.
fn keys(desired: &Desired, host: &Host) -> Vec<String> {
    let files = FILES.iter().flat_map(|row| row.paths(desired));
    let former = crate::pki::former_files(host).into_iter().map(|(_, path)| path);
    let all = files.chain(former).chain(crate::pki::current_files(host));
    all.filter(|path| KEYS.iter().any(|folder| path.starts_with(folder))).collect()
}

/// Users, directories, modules, kernel settings and swap.
pub fn preparation(desired: &Desired, host: &Host) -> Preparation {
    let root = |path: &str, mode| (path.to_owned(), "root".to_owned(), mode);
    let mut directories = vec![root("/etc/hactl", 0o755)];
    if keeps_state(desired, host) && desired.unattended_days.is_some() {
        directories.push(root(ISSUERS, 0o700));
    }
    if healing::is_guarded(desired, host) {
        directories.push(root(healing::FOLDER, 0o700));
    }
    if metrics::serves(desired, host) {
        directories.push(root(metrics::FOLDER, 0o700));
    }
    let mut users = Vec::new();
    let mut modules = Vec::new();
    if host.may_vote() {
        users.push("etcd".to_owned());
        directories.push(root("/etc/etcd", 0o755));
        directories.push(root("/etc/etcd/pki", 0o755));
        directories.push((desired.etcd.data_dir.display().to_string(), "etcd".to_owned(), 0o700));
    }
    if host.is_node() || host.is(Role::LoadBalancer) {
        directories.push(root("/etc/kubernetes", 0o755));
        directories.push(root("/etc/kubernetes/pki", 0o755));
    }
    if host.is_node() {
        modules.extend(["overlay", "br_netfilter", "nf_conntrack", "vxlan"].map(str::to_owned));
        directories.push(root("/etc/kubernetes/manifests", 0o700));
        directories.push(root("/etc/cni/net.d", 0o755));
        directories.push(root("/opt/cni/bin", 0o755));
        directories.push(root("/etc/containerd", 0o755));
        directories.push(root("/var/lib/kubelet", 0o700));
        directories.push(root("/var/lib/kubelet/pki", 0o700));
    }
    if host.is(Role::ControlPlane) {
        directories.push(root("/etc/kubernetes/config", 0o700));
        directories.push(root("/var/log/kubernetes/audit", 0o700));
    }
    let openings = (desired.firewall == Firewall::Manage).then(|| ports::openings(desired, host));
    Preparation { users, directories, modules, sysctls: sysctls(desired, host), swap_off: host.is_node(), openings }
}

/// Files and directories of the host that its static pods may read besides hactl's.
pub fn mounts(desired: &Desired, host: &Host) -> Vec<String> {
    let all = desired.extra.mounts.values().filter(|_| host.is(Role::ControlPlane)).flatten();
    all.cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// The proxy as environment variables, in both spellings; none without a proxy.
pub fn proxy_variables(desired: &Desired) -> Vec<(String, String)> {
    runtime::proxy_in_both_spellings(desired).into_iter().map(|s| (s.name, s.value)).collect()
}

/// Programs from packages of the host's distribution: path to package name.
pub fn packages(desired: &Desired, host: &Host) -> BTreeMap<String, String> {
    let mut packages = BTreeMap::new();
    if host.is(Role::ControlPlane) || desired.balances(host) {
        packages.insert("/usr/sbin/haproxy".to_owned(), "haproxy".to_owned());
    }
    if moves_vip(desired, host) {
        packages.insert("/usr/sbin/keepalived".to_owned(), "keepalived".to_owned());
    }
    // The program alone may be from an interrupted installation; the agent on the host records finished ones.
    let finished: Vec<String> = packages.values().cloned().collect();
    packages.extend(finished.into_iter().map(|package| (format!("{INSTALLED}/{package}"), package)));
    if moves_vip(desired, host) {
        // Most hosts have it already: the program is enough, whatever installed it.
        packages.insert("/usr/sbin/nft".to_owned(), "nftables".to_owned());
    }
    packages
}

/// The TCP ports that must be free before the first run, and are in use afterwards.
pub fn ports(desired: &Desired, host: &Host) -> Vec<u16> {
    let mut ports = Vec::new();
    if host.may_vote() {
        ports.extend([2379, 2380, 2384]);
    }
    if host.is_node() {
        ports.extend([10250, 10248]);
        if kube_proxy(desired) {
            ports.extend([10249, 10256]);
        }
    }
    if host.is(Role::ControlPlane) {
        ports.extend([2381, ports::KUBELETS_API, desired.api_port].into_iter().chain(ELECTED_PORTS));
    }
    if desired.balances(host) {
        ports.extend([desired.endpoint.port, ports::USABLE]);
    }
    if healing::is_guarded(desired, host) {
        ports.extend([healing::HEARTBEAT_PORT, healing::METRICS_PORT]);
    }
    if healing::heals(desired, host) {
        ports.push(healing::PEER_PORT);
    }
    if metrics::serves(desired, host) {
        ports.push(metrics::PORT);
        ports.extend(host.is_node().then_some(metrics::CONTAINERD));
        ports.extend(host.is(Role::ControlPlane).then_some(metrics::ETCD_BALANCER));
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// How the agent queries the local etcd member; `None` if there is none.
pub fn etcd_ask(desired: &Desired, host: &Host) -> Option<EtcdAsk> {
    host.may_vote().then(|| own_etcd(desired))
}

/// How the agent queries the local API server, and for which objects; `None` if there is none.
pub fn api_ask(desired: &Desired, host: &Host, addons: &[Addon]) -> Option<ApiAsk> {
    host.is(Role::ControlPlane).then(|| ApiAsk {
        own: (host.address, desired.api_port),
        endpoint: Some((desired.endpoint.host(), desired.endpoint.port)),
        ca: "/etc/kubernetes/pki/ca.crt".to_owned(),
        cert: "/etc/kubernetes/pki/observer.crt".to_owned(),
        key: "/etc/kubernetes/pki/observer.key".to_owned(),
        objects: addons
            .iter()
            .flat_map(|addon| &addon.objects)
            .map(object_key)
            .chain([crate::model::target::RECORD.to_owned()])
            .collect(),
        may_deny: desired.hosting == Hosting::SelfHosted,
    })
}

/// The address of cluster DNS for the pods of a Node; `None` if there are no pods, or no cluster DNS.
pub fn dns_ask(desired: &Desired, host: &Host, addons: &[Addon]) -> Option<IpAddr> {
    let answers = addons.iter().any(|addon| addon.name == addons::COREDNS);
    (host.is_node() && answers).then(|| desired.dns_address())
}

/// The units, files and directories that `down` stops and removes.
pub fn wipe(desired: &Desired, host: &Host, delete: bool) -> WipeAsk {
    let mut units = units(desired, host);
    // Units that restart others go first: keepalived restores the VIP, the kubelet its pods.
    units.reverse();
    // A service that a timer started keeps running without the timer.
    let timers = [("hactl-snapshot.timer", "hactl-snapshot.service"), (TIMER, SERVICE), (drill::TIMER, drill::SERVICE)];
    let copies = keeps_peer_snapshots(desired, host).then_some((healing::UNIT, PEER_SNAPSHOTS_UNIT));
    for (timer, service) in timers.into_iter().chain(copies) {
        if let Some(timer) = units.iter().position(|unit| unit.as_str() == timer) {
            units.insert(timer + 1, unit(service));
        }
    }
    // Also files below directories that are removed as a whole: a directory that others used before hactl stays.
    let mut files = [paths(desired, host), former_on_demand(desired, host), crate::pki::current_files(host)].concat();
    let mut keys = keys(desired, host);
    keys.retain(|path| !files.contains(path));
    files.extend(keys);
    let own = [
        "/etc/hactl",
        "/etc/etcd",
        "/etc/kubernetes",
        "/etc/containerd",
        "/etc/cni/net.d/10-flannel.conflist",
        "/opt/cni/bin",
        "/run/flannel",
        ETCD_BALANCER_SOCKET,
        // Previous files of sets on trial.
        "/var/lib/hactl/kept",
        crate::model::hosting::PROGRAM_FOLDER,
        crate::model::positions::POSITIONS,
    ];
    let mut remove: Vec<String> = files.into_iter().filter(|path| !path.starts_with("/etc/haproxy/")).collect();
    // The files that a host created for drills, if it still has them.
    if desired.snapshots.drill.is_some() {
        remove.extend(drills::MADE.map(str::to_owned));
    }
    remove.extend(own.map(str::to_owned));
    let mut data = Vec::new();
    if host.may_vote() {
        data.push(desired.etcd.data_dir.display().to_string());
        data.push(crate::model::snapshot::FOLDER.to_owned());
    }
    if host.is_node() {
        data.extend(NODES_DATA.map(str::to_owned));
    }
    if host.is(Role::ControlPlane) {
        data.push("/var/log/kubernetes".to_owned());
    }
    let vip = match desired.endpoint.kind {
        EndpointKind::Vip { address, .. } => Some(address),
        EndpointKind::External(_) | EndpointKind::Local { .. } => None,
    };
    let hand_over = host.is(Role::ControlPlane) && desired.host(&host.name).is_none();
    WipeAsk { units, remove, data, delete, vip, hand_over, stays: false }
}

/// What is removed from a host that is no longer a Node, besides files by path: the kubelet and containerd, the pods,
/// and their data. The rest of the host keeps running. Keys of the kubelet are not moved aside with its data, so that
/// they cannot be used again.
pub fn clear_node(desired: &Desired, host: &Host) -> WipeAsk {
    let mut units = vec![unit(NODE_AGENT), kubelet_unit(), containerd_unit()];
    if matches!(desired.endpoint.kind, EndpointKind::Local { .. }) && !desired.balances(host) {
        units.push(unit("haproxy.service"));
    }
    let remove = ["/var/lib/kubelet/pki", "/etc/cni/net.d/10-flannel.conflist", "/opt/cni/bin", "/run/flannel"];
    WipeAsk {
        units,
        remove: remove.map(str::to_owned).into(),
        data: NODES_DATA.map(str::to_owned).into(),
        delete: false,
        vip: None,
        hand_over: false,
        stays: true,
    }
}
