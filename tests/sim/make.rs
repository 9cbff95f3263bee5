//! Inventories and targets for the simulated world: every kind of part, file set, unit and certificate that the planner
//! knows, in small numbers. In: the numbers of hosts and the versions. Out: a `Desired` and the `Target` for it.

use hactl::model::components::PACKAGES;
use hactl::model::desired::{
    Cidr, Cni, ControlPlane, Desired, Endpoint, EndpointKind, EtcdSettings, Extra, Host, KubeProxy, Network, Proxy,
    Role, Security, Snapshots, SshTarget, Upgrade, Versions,
};
use hactl::model::healing::may_be_guarded;
use hactl::model::names::{Digest, HostName, UnitName};
use hactl::model::target::{
    Addon, CaId, CertId, CertSpec, FileSet, FileTarget, HostTarget, Part, Place, SetTarget, Target,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What may change between two runs: raising a number is a change of that kind in the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Release {
    pub etcd: u8,
    pub manifests: u8,
    /// Manifests alone, without what their components read.
    pub flags: u8,
    pub runtime: u8,
    pub balancer: u8,
    pub approver: u8,
    pub addons: u8,
    pub leaves: u8,
    /// Which registries have settings.
    pub registries: u8,
    /// Which objects of the user exist.
    pub users: u8,
    /// Whether hosts renew their own certificates: odd numbers mean yes.
    pub renewal: u8,
    /// Whether hosts hold restore drills automatically: odd numbers mean yes.
    pub drills: u8,
    /// Whether hosts of the control plane have guards: odd numbers mean yes.
    pub guards: u8,
    /// Whether the control plane is self-hosted: odd numbers mean yes.
    pub hosting: u8,
    /// Which CAs hosts trust, and with them which state is encrypted for them.
    pub trust: u8,
}

pub fn host_name(text: &str) -> HostName {
    text.parse().expect("a literal of the tests that is a valid host name")
}

pub fn unit(text: &str) -> UnitName {
    text.parse().expect("a literal of the tests that is a valid unit name")
}

/// A digest that depends on the text alone (FNV-1a, spread over the 32 bytes).
pub fn digest(text: &str) -> Digest {
    let mut bytes = [0; 32];
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for (lane, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        for byte in text.bytes().chain([u8::try_from(lane).unwrap_or(0)]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        chunk.copy_from_slice(&state.to_be_bytes());
    }
    Digest::new(bytes)
}

fn host(name: &str, last: u8, roles: Vec<Role>) -> Host {
    Host {
        name: host_name(name),
        address: IpAddr::from([10, 88, 0, last]),
        ssh: SshTarget::new(name.to_owned(), "ops"),
        roles,
        zone: None,
        labels: BTreeMap::new(),
        taints: vec![],
        standby: false,
        power: None,
    }
}

/// The `n`-th control-plane host, `cp1` first.
pub fn control_host(n: u8) -> Host {
    host(&format!("cp{n}"), 10 + n, vec![Role::ControlPlane, Role::Etcd, Role::LoadBalancer])
}

/// The `n`-th worker, `w1` first.
pub fn worker(n: u8) -> Host {
    host(&format!("w{n}"), 50 + n, vec![Role::Worker])
}

/// An inventory of so many hosts of each kind.
pub fn desired(control: u8, workers: u8) -> Desired {
    let hosts = (1..=control).map(control_host).chain((1..=workers).map(worker)).collect();
    let network = Network {
        pods: Cidr { base: IpAddr::from([10, 244, 0, 0]), prefix: 16 },
        services: Cidr { base: IpAddr::from([10, 96, 0, 0]), prefix: 12 },
        cni: Cni::Flannel,
        mtu: None,
        kube_proxy: KubeProxy::Nftables,
    };
    Desired {
        cluster: "lab".parse().expect("a valid cluster name"),
        versions: Versions { kubernetes: KUBERNETES.to_owned(), etcd: None, containerd: None, is_default: false },
        endpoint: Endpoint {
            kind: EndpointKind::Vip { address: IpAddr::from([10, 88, 0, 100]), interface: None, vrid: 51 },
            port: 6443,
            sans: vec![],
        },
        api_port: 6443,
        hosts,
        leaving: vec![],
        network,
        control_plane: ControlPlane { schedulable: false, security: Security::Baseline },
        etcd: EtcdSettings { data_dir: "/var/lib/etcd".into(), quota_gib: 8 },
        snapshots: Snapshots::default(),
        healing: hactl::model::healing::Healing::default(),
        metrics: false,
        upgrade: Upgrade::default(),
        unattended_days: None,
        jwt: vec![],
        mirrors: BTreeMap::new(),
        named: hactl::model::desired::Named::default(),
        proxy: Proxy::default(),
        bundled_packages: false,
        firewall: hactl::model::firewall::Firewall::Report,
        hosting: hactl::model::hosting::Hosting::default(),
        manifests: vec![],
        extra: Extra::default(),
        ignored_checks: std::collections::BTreeSet::default(),
    }
}

/// Every role on hosts of its own: three members, two API servers, two load balancers and a worker.
pub fn apart() -> Desired {
    let of = |name: &str, from: u8, role: Role, n: u8| -> Vec<Host> {
        (1..=n).map(|i| host(&format!("{name}{i}"), from + i, vec![role])).collect()
    };
    let mut hosts = of("etcd", 10, Role::Etcd, 3);
    hosts.extend(of("cp", 20, Role::ControlPlane, 2));
    hosts.extend(of("lb", 30, Role::LoadBalancer, 2));
    hosts.push(worker(1));
    Desired { hosts, ..desired(0, 0) }
}

/// No virtual address: every node has a balancer of its own.
pub fn local(control: u8, workers: u8) -> Desired {
    let mut desired = desired(control, workers);
    for host in &mut desired.hosts {
        host.roles.retain(|role| *role != Role::LoadBalancer);
    }
    desired.endpoint.kind = EndpointKind::Local { name: None };
    desired
}

fn program(name: &str, release: u8) -> Part {
    part(name, release, Place::Program)
}

fn image(name: &str, release: u8) -> Part {
    part(name, release, Place::Image { reference: format!("registry.k8s.io/{name}:v{release}") })
}

/// The Kubernetes version of worlds that do not set one.
pub const KUBERNETES: &str = "1.36.3";

/// The distribution whose packages the bundle has.
pub const DISTRIBUTION: &str = "debian-12";

/// A part of Kubernetes itself.
fn of_kubernetes(desired: &Desired, part: Part) -> Part {
    let version = desired.versions.kubernetes.clone();
    if version == KUBERNETES {
        return part;
    }
    let digest = digest(&format!("{} {version} {}", part.name, part.version));
    Part { version, digest, ..part }
}

fn part(name: &str, release: u8, place: Place) -> Part {
    let version = format!("1.{release}");
    Part {
        name: name.to_owned(),
        digest: digest(&format!("{name} {version}")),
        version,
        size: 9,
        sent_digest: digest(name),
        sent_size: 3,
        place,
    }
}

fn set(unit_name: Option<&str>, reload: bool, paths: &[&str], content: &str) -> SetTarget {
    let file = |path: &&str| FileTarget {
        path: (*path).to_owned(),
        mode: 0o644,
        owner: "root".to_owned(),
        digest: digest(&format!("{path} {content}")),
    };
    SetTarget {
        files: paths.iter().map(file).collect(),
        unit: unit_name.map(unit),
        reload,
        reads: vec![],
        folders: vec![],
        own: vec![],
        told_by: vec![],
    }
}

fn leaf(id: CertId, host: &Host, release: u8) -> CertSpec {
    CertSpec {
        id,
        ca: CaId::Cluster,
        authority: "ca".to_owned(),
        common_name: format!("{id}:{}", host.name),
        organizations: vec![],
        sans: vec![format!("DNS:v{release}")],
        server: true,
        client: true,
        days: 365,
        cert_path: format!("/etc/kubernetes/pki/{id}.crt"),
        key_path: format!("/etc/kubernetes/pki/{id}.key"),
        owner: "root".to_owned(),
        self_renewing: id == CertId::Kubelet,
        serves_by: (id == CertId::Kubelet).then(|| "ca".to_owned()),
    }
}

/// The manifests of the static pods.
pub const MANIFESTS: [&str; 3] = [
    "/etc/kubernetes/manifests/kube-apiserver.yaml",
    "/etc/kubernetes/manifests/kube-controller-manager.yaml",
    "/etc/kubernetes/manifests/kube-scheduler.yaml",
];

/// The kubelet's file, which names its binary.
pub const KUBELET: &str = "/etc/kubernetes/kubelet.yaml";

/// Files of an etcd host.
const ETCD: [&str; 2] = ["/etc/systemd/system/etcd.service", "/etc/etcd/etcd.conf"];
const SNAPSHOTS: [&str; 2] = ["/etc/hactl/snapshots.json", "/etc/systemd/system/hactl-snapshot.timer"];
const STATE: &str = "/var/lib/hactl/state.age";
/// Files of a Node besides the kubelet's.
const RUNTIME: [&str; 2] = ["/etc/containerd/config.toml", "/etc/systemd/system/containerd.service"];
/// Files of a control plane besides manifests.
const CONTROL_CONFIG: &str = "/etc/kubernetes/audit.yaml";
/// The balancer's file: the members, the API servers, and the minor version of the kubelet, which uses none that is older.
pub const ETCD_BALANCER: &str = "/etc/hactl/etcd-balancer.cfg";
const APPROVER: &str = "/etc/systemd/system/hactl-approver.service";

/// The drop-in that asks the other members before etcd starts.
pub const FENCE: &str = "/etc/systemd/system/etcd.service.d/10-fence.conf";
/// The unit that records the positions of members.
const POSITIONS: &str = "/etc/systemd/system/hactl-positions.service";

fn host_target(desired: &Desired, host: &Host, release: Release) -> HostTarget {
    // Files name every etcd host where the real ones do, so that a new host changes them.
    let peers: Vec<&str> = desired.may_vote().map(|h| h.name.as_str()).collect();
    let everyone = format!("{} r{}", peers.join(","), release.balancer);
    let plain = |n: u8| format!("r{n}");
    let version = desired.versions.kubernetes.clone();
    let mut target = HostTarget::default();
    let mut sets = Vec::new();
    sets.push((FileSet::Os, set(None, false, &["/etc/sysctl.d/zz-hactl.conf"], "r0")));
    sets.push((FileSet::Trust, set(None, false, &["/etc/kubernetes/pki/ca.crt"], &plain(release.trust))));
    if host.is_node() {
        sets.push((FileSet::Runtime, set(Some("containerd.service"), false, &RUNTIME, &plain(release.runtime))));
        let registry = format!("{CERTS}/registry-{}/hosts.toml", release.registries % 3);
        let files: &[&str] = if release.registries == 0 { &[] } else { &[registry.as_str()] };
        let mut registries = set(None, false, files, &plain(release.registries));
        registries.folders = vec![CERTS.to_owned()];
        sets.push((FileSet::Registries, registries));
        // The unit names the kubelet's binary by its content.
        let named = format!("{version} {}", plain(release.runtime));
        sets.push((FileSet::Kubelet, set(Some("kubelet.service"), false, &[KUBELET], &named)));
        target.parts.push(program("containerd", release.runtime));
        target.parts.push(of_kubernetes(desired, program("kubelet", release.runtime)));
        target.parts.push(image("pause", 0));
        target.leaves.push(leaf(CertId::Kubelet, host, 0));
    }
    if host.may_vote() {
        sets.push((FileSet::Etcd, set(Some("etcd.service"), false, &ETCD, &plain(release.etcd))));
        // It contains the path of hactl, as the approver's unit does.
        let fence = set(Some("hactl-positions.service"), false, &[FENCE, POSITIONS], &plain(release.approver));
        sets.push((FileSet::Fence, fence));
        target.parts.push(program("etcd", release.etcd));
        target.leaves.push(leaf(CertId::EtcdPeer, host, release.leaves));
        sets.push((FileSet::State, set(None, false, &[STATE], &plain(release.trust))));
        sets.push((FileSet::Snapshots, set(Some("hactl-snapshot.timer"), false, &SNAPSHOTS, &plain(release.approver))));
    }
    if host.may_vote() {
        sets.push((FileSet::Drills, on_demand(release.drills, DRILLS, &DRILL)));
    }
    if host.may_vote() || host.is(Role::ControlPlane) {
        sets.push((FileSet::Renewal, on_demand(release.renewal, RENEWS, &RENEWAL)));
        if release.renewal % 2 == 1 {
            target.leaves.push(leaf(CertId::EtcdIssuer, host, release.leaves));
        }
    }
    if host.is_node() {
        sets.push((FileSet::NodeAgent, on_demand(release.guards, NODE_AGENTS, &[NODE_AGENT])));
    }
    if may_be_guarded(host) {
        let guard = SetTarget { reads: vec![CertId::Guard], ..on_demand(release.guards, GUARDS, &GUARD) };
        sets.push((FileSet::Guard, guard));
        if release.guards % 2 == 1 {
            target.leaves.push(leaf(CertId::Guard, host, release.leaves));
        }
    }
    if host.is(Role::ControlPlane) {
        target.leaves.push(leaf(CertId::ApiserverEtcdClient, host, release.leaves));
        let servers: Vec<&str> = desired.with(Role::ControlPlane).map(|h| h.name.as_str()).collect();
        let minor = version.rsplit_once('.').map_or("", |(minor, _)| minor);
        let all = format!("{everyone} {} {minor}", servers.join(","));
        let mut balancer = set(Some(BALANCES), true, &[ETCD_BALANCER], &all);
        balancer.reads = vec![CertId::ApiserverEtcdClient, CertId::Apiserver];
        sets.push((FileSet::EtcdBalancer, balancer));
        sets.push((FileSet::ControlPlaneConfig, set(None, false, &[CONTROL_CONFIG], &plain(release.manifests))));
        let content = format!("{version} {}{}", plain(release.manifests), flags(release));
        sets.push((FileSet::ControlPlane, set(None, false, &MANIFESTS, &content)));
        sets.push((
            FileSet::Approver,
            set(Some("hactl-approver.service"), false, &[APPROVER], &plain(release.approver)),
        ));
        sets.push((FileSet::Hosting, on_demand(release.hosting, KEEPS, &[KEEPER])));
        let images = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        target.parts.extend(images.map(|n| of_kubernetes(desired, image(n, release.manifests))));
        target.leaves.push(leaf(CertId::Apiserver, host, release.leaves));
    }
    let naming = |role: Role| {
        let named: Vec<&str> = desired.with(role).map(|h| h.name.as_str()).collect();
        format!("{} r{}", named.join(","), release.balancer)
    };
    if desired.balances(host) {
        let content = naming(Role::ControlPlane);
        sets.push((FileSet::LoadBalancer, set(Some("haproxy.service"), true, &["/etc/haproxy/haproxy.cfg"], &content)));
    }
    if desired.balances(host) || host.is(Role::ControlPlane) {
        target.packages.insert("/usr/sbin/haproxy".to_owned(), "haproxy".to_owned());
    }
    if host.is(Role::LoadBalancer) {
        let filter = &["/etc/hactl/vrrp.nft"];
        let peers = naming(Role::LoadBalancer);
        sets.push((FileSet::VrrpFilter, set(Some("hactl-vrrp-filter.service"), true, filter, &peers)));
        sets.push((
            FileSet::Keepalived,
            set(Some("keepalived.service"), true, &["/etc/keepalived/keepalived.conf"], &naming(Role::LoadBalancer)),
        ));
        target.packages.insert("/usr/sbin/keepalived".to_owned(), "keepalived".to_owned());
        target.packages.insert("/usr/sbin/nft".to_owned(), "nftables".to_owned());
    }
    if desired.bundled_packages {
        target.bundled = Some([DISTRIBUTION.to_owned()].into());
        if !target.packages.is_empty() {
            target.parts.push(part(PACKAGES, 0, Place::Packages));
        }
    }
    target.sets = sets.into_iter().collect();
    target.sets.extend(former(desired, host));
    target.sysctls.insert("net.ipv4.ip_forward".to_owned(), "1".to_owned());
    target.paths = vec!["/etc/kubernetes".to_owned(), "/var/lib/hactl".to_owned()];
    target
}

/// Files of roles that a host does not have. In this world all files are hactl's.
fn former(desired: &Desired, host: &Host) -> BTreeMap<FileSet, SetTarget> {
    let of =
        |paths: &[&str]| SetTarget { own: paths.iter().map(|p| (*p).to_owned()).collect(), ..SetTarget::default() };
    let vip = matches!(desired.endpoint.kind, EndpointKind::Vip { .. });
    let mut balancer = of(&["/etc/haproxy/haproxy.cfg", "/etc/hactl/vrrp.nft", "/etc/keepalived/keepalived.conf"]);
    let mut control = of(&MANIFESTS);
    control.own.extend([CONTROL_CONFIG, ETCD_BALANCER, APPROVER].map(str::to_owned));
    let mut etcd = of(&ETCD);
    etcd.own.extend(SNAPSHOTS.into_iter().chain([FENCE, POSITIONS]).chain(DRILL).map(str::to_owned));
    let mut node = of(&RUNTIME);
    node.own.push(NODE_AGENT.to_owned());
    node.own.push(KUBELET.to_owned());
    node.folders.push(CERTS.to_owned());
    if !host.may_vote() && !host.is(Role::ControlPlane) {
        etcd.own.extend(RENEWAL.map(str::to_owned));
        control.own.extend(RENEWAL.map(str::to_owned));
        control.told_by = control.own[..6].to_vec();
    }
    if !may_be_guarded(host) {
        for former in [&mut balancer, &mut etcd, &mut control] {
            former.own.extend(GUARD.map(str::to_owned));
        }
        balancer.told_by = balancer.own[..3].to_vec();
    }
    control.own.push(KEEPER.to_owned());
    if !host.may_vote() {
        etcd.own.push(STATE.to_owned());
    }
    if matches!(desired.endpoint.kind, EndpointKind::Local { .. }) {
        node.own.push("/etc/haproxy/haproxy.cfg".to_owned());
    }
    let all = [
        (FileSet::FormerBalancer, balancer, vip && !host.is(Role::LoadBalancer)),
        (FileSet::FormerControlPlane, control, !host.is(Role::ControlPlane)),
        (FileSet::FormerEtcd, etcd, !host.may_vote()),
        (FileSet::FormerNode, node, !host.is_node()),
    ];
    all.into_iter().filter(|(.., lost)| *lost).map(|(set, target, _)| (set, target)).collect()
}

/// A unit and its files, or the removal of a former one.
fn on_demand(release: u8, unit: &str, files: &[&str]) -> SetTarget {
    let wanted = release % 2 == 1;
    SetTarget {
        own: if wanted { vec![] } else { files.iter().map(|path| (*path).to_owned()).collect() },
        ..set(wanted.then_some(unit), false, if wanted { files } else { &[] }, &format!("r{release}"))
    }
}

/// The unit of the balancer on loopback.
pub const BALANCES: &str = "hactl-etcd-balancer.service";

/// The unit that asks for it every day.
pub const RENEWS: &str = "hactl-renew.timer";
/// Its settings.
pub const RENEWAL: [&str; 2] = ["/etc/hactl/renewal.json", "/etc/systemd/system/hactl-renew.timer"];

/// The unit with which a host holds restore drills.
pub const DRILLS: &str = "hactl-drill.timer";
/// Its settings.
pub const DRILL: [&str; 2] = ["/etc/systemd/system/hactl-drill.service", "/etc/systemd/system/hactl-drill.timer"];

/// The unit of guards.
pub const GUARDS: &str = "hactl-guard.service";
/// Its settings.
pub const GUARD: [&str; 3] =
    ["/etc/hactl/guard.json", "/etc/hactl/guard/ca.crt", "/etc/systemd/system/hactl-guard.service"];

/// The unit that reboots a host for maintenances of its Node.
pub const NODE_AGENTS: &str = "hactl-node-agent.service";
/// Its file.
pub const NODE_AGENT: &str = "/etc/systemd/system/hactl-node-agent.service";

/// The unit that keeps a self-hosted control plane on its host.
pub const KEEPS: &str = "hactl-hosting.service";
/// Its file.
pub const KEEPER: &str = "/etc/systemd/system/hactl-hosting.service";

/// The objects whose pods run a self-hosted control plane: one stands for all of them. Pods change with flags and with
/// the version.
fn hosting(desired: &Desired, release: Release) -> Option<Addon> {
    let version = desired.versions.kubernetes.replace('.', "-");
    let revision = format!("{version}-{}{}", release.manifests, flags(release));
    let template = serde_json::json!({"metadata": {"annotations": {"hactl.dev/revision": revision}}});
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hosting", "namespace": "kube-system"},
        "spec": {"template": template},
    });
    let name = hactl::model::hosting::ADDON.to_owned();
    (release.hosting % 2 == 1).then(|| Addon { name, objects: vec![object], needed_for_ready: false })
}

/// The flags of a release, as a part of manifests.
fn flags(release: Release) -> String {
    if release.flags == 0 { String::new() } else { format!("-f{}", release.flags) }
}

/// The directory of the registry settings.
const CERTS: &str = "/etc/containerd/certs.d";

/// The user's objects: two of five, which change with every release.
fn users(release: u8) -> Option<Addon> {
    let object = |n: u8| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("user-{}", n % 5), "namespace": "shop"},
        })
    };
    let objects = vec![object(release), object(release + 1)];
    (release > 0).then(|| Addon { name: hactl::model::target::MANIFESTS.to_owned(), objects, needed_for_ready: false })
}

fn addon(name: &str, release: u8, needed_for_ready: bool) -> Addon {
    let object = |kind: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "kube-system"}, "data": release
        })
    };
    Addon { name: name.to_owned(), objects: vec![object("ConfigMap"), object("Service")], needed_for_ready }
}

/// What every host of an inventory should hold.
pub fn target(desired: &Desired, release: Release) -> Target {
    let hosts = desired.hosts.iter().map(|h| (h.name.clone(), host_target(desired, h, release))).collect();
    let mut addons = vec![addon("rbac", 0, false), addon("flannel", 0, true), addon("coredns", release.addons, false)];
    addons.extend(hosting(desired, release));
    addons.extend(users(release.users));
    addons.iter_mut().for_each(hactl::reconcile::manifests::mark);
    Target { hosts, addons }
}
