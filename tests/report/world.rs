//! A small handmade world: three or five hosts, their targets and their facts.

use hactl::model::desired::*;
use hactl::model::facts::*;
use hactl::model::firewall::Firewall;
use hactl::model::names::{Digest, HostName, PeerUrl};
use hactl::model::node::NodeFact;
use hactl::model::target::*;
use hactl::plan::Intent;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A writer whose text can be read afterwards.
#[derive(Clone, Default)]
pub struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Paper {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
    pub fn boxed(&self) -> Box<dyn Write + Send> {
        Box::new(self.clone())
    }
}

pub fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

pub fn digest(n: u8) -> Digest {
    Digest::new([n; 32])
}

pub fn peer(n: u8) -> PeerUrl {
    format!("https://10.0.0.1{n}:2380").parse().unwrap()
}

pub fn desired(hosts: u8) -> Desired {
    let host = |n: u8| Host {
        name: name(&format!("cp{n}")),
        address: format!("10.0.0.1{n}").parse().unwrap(),
        ssh: SshTarget::new(format!("10.0.0.1{n}"), "ops"),
        roles: vec![Role::ControlPlane, Role::Etcd, Role::LoadBalancer],
        zone: None,
        labels: BTreeMap::new(),
        taints: vec![],
        standby: false,
        power: None,
    };
    let cidr = |base: &str, prefix| Cidr { base: base.parse().unwrap(), prefix };
    Desired {
        cluster: "lab".parse().unwrap(),
        versions: Versions { kubernetes: "1.36.3".into(), etcd: None, containerd: None, is_default: false },
        endpoint: Endpoint {
            kind: EndpointKind::Vip { address: "10.0.0.100".parse().unwrap(), interface: None, vrid: 51 },
            port: 6443,
            sans: vec![],
        },
        api_port: 6443,
        leaving: vec![],
        hosts: (1..=hosts).map(host).collect(),
        network: Network {
            pods: cidr("10.244.0.0", 16),
            services: cidr("10.96.0.0", 12),
            cni: Cni::Flannel,
            mtu: None,
            kube_proxy: KubeProxy::Nftables,
        },
        control_plane: ControlPlane { schedulable: false, security: Security::Baseline },
        etcd: EtcdSettings { data_dir: PathBuf::from("/var/lib/etcd"), quota_gib: 8 },
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
        firewall: Firewall::Report,
        hosting: hactl::model::hosting::Hosting::default(),
        manifests: vec![],
        extra: Extra::default(),
        ignored_checks: std::collections::BTreeSet::default(),
    }
}

fn part(n: u8, name: &str, image: bool) -> Part {
    let place =
        if image { Place::Image { reference: format!("registry.k8s.io/{name}:v1.36.3") } } else { Place::Program };
    Part {
        name: name.into(),
        version: match name {
            "etcd" => "3.6.16",
            "containerd" => "2.3.7",
            _ => "1.36.3",
        }
        .into(),
        digest: digest(n),
        size: 9,
        sent_digest: digest(n),
        sent_size: 4,
        place,
    }
}

fn set(unit: Option<&str>, reload: bool, files: &[&str]) -> SetTarget {
    let file =
        |path: &&str| FileTarget { path: (*path).into(), mode: 0o644, owner: "root".into(), digest: digest(200) };
    SetTarget {
        files: files.iter().map(file).collect(),
        unit: unit.map(|u| u.parse().unwrap()),
        reload,
        reads: vec![],
        folders: vec![],
        own: vec![],
        told_by: vec![],
    }
}

pub fn target(desired: &Desired) -> Target {
    let parts = vec![
        part(1, "etcd", false),
        part(2, "containerd", false),
        part(3, "containerd-shim-runc-v2", false),
        part(4, "runc", false),
        part(5, "ctr", false),
        part(6, "kubelet", false),
        part(7, "kubectl", false),
        part(8, "pause", true),
        part(9, "kube-apiserver", true),
        part(10, "kube-controller-manager", true),
        part(11, "kube-scheduler", true),
    ];
    let sets = BTreeMap::from([
        (FileSet::Os, set(None, false, &["/etc/sysctl.d/zz-hactl.conf"])),
        (FileSet::Trust, set(None, false, &["/etc/hactl/pki/ca.crt", "/etc/hactl/pki/etcd-ca.crt"])),
        (FileSet::Etcd, set(Some("etcd.service"), false, &["/etc/systemd/system/etcd.service"])),
        (FileSet::EtcdBalancer, set(Some("hactl-etcd-balancer.service"), true, &["/etc/hactl/etcd-balancer.cfg"])),
        (FileSet::Runtime, set(Some("containerd.service"), false, &["/etc/containerd/config.toml"])),
        (FileSet::Kubelet, set(Some("kubelet.service"), false, &["/etc/hactl/kubelet.yaml"])),
        (FileSet::ControlPlaneConfig, set(None, false, &["/etc/hactl/audit.yaml", "/etc/hactl/encryption.yaml"])),
        (
            FileSet::ControlPlane,
            set(
                None,
                false,
                &[
                    "/etc/kubernetes/manifests/kube-apiserver.yaml",
                    "/etc/kubernetes/manifests/kube-controller-manager.yaml",
                    "/etc/kubernetes/manifests/kube-scheduler.yaml",
                ],
            ),
        ),
        (FileSet::LoadBalancer, set(Some("haproxy.service"), true, &["/etc/haproxy/haproxy.cfg"])),
        (FileSet::Keepalived, set(Some("keepalived.service"), true, &["/etc/keepalived/keepalived.conf"])),
    ]);
    let host = HostTarget {
        parts,
        sets,
        leaves: vec![],
        sysctls: BTreeMap::from([("net.ipv4.ip_forward".to_owned(), "1".to_owned())]),
        paths: vec!["/var/lib/etcd".into(), "/var/lib/hactl".into()],
        bundled: None,
        openings: None,
        packages: BTreeMap::from([
            ("/usr/sbin/haproxy".to_owned(), "haproxy".to_owned()),
            ("/usr/sbin/keepalived".to_owned(), "keepalived".to_owned()),
        ]),
    };
    let object = |name: &str| serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let addon = |name: &str, needed| Addon { name: name.into(), objects: vec![object(name)], needed_for_ready: needed };
    Target {
        hosts: desired.hosts.iter().map(|h| (h.name.clone(), host.clone())).collect(),
        addons: vec![addon("rbac", false), addon("flannel", true), addon("coredns", false)],
    }
}

pub fn intent() -> Intent {
    let bootstrap_token = "a-random-token".into();
    Intent {
        removed_hosts: vec![],
        balanced: [].into(),
        cluster_id: cluster_id(),
        bootstrap_token,
        prune: vec![],
        limit: None,
        bootstrapped: false,
        recovered: None,
        leapt: 0,
        ranges: None,
        replace: [].into(),
        reassign: [].into(),
        remembered: [].into(),
        dropped: [].into(),
        lived: [].into(),
        taken_down_ms: None,
        abandons: false,
        renew: hactl::model::leaf::Renewal::default(),
    }
}

/// For a cluster whose bootstrap is in the journal.
pub fn bootstrapped() -> Intent {
    Intent { bootstrapped: true, ..intent() }
}

pub fn cluster_id() -> ClusterId {
    ClusterId { cluster: "lab".parse().unwrap(), ca: digest(99), stages: 0, host: None, machine: None }
}

/// A host with a fresh operating system and nothing of hactl.
pub fn bare() -> HostFacts {
    HostFacts {
        os: "debian 12".into(),
        kernel: "6.1.0-28-amd64".into(),
        architecture: "x86_64".into(),
        sysctls: BTreeMap::from([("net.ipv4.ip_forward".to_owned(), "0".to_owned())]),
        etcd: Some(EtcdFact::default()),
        ..HostFacts::default()
    }
}

/// A host that matches its target.
pub fn converged(desired: &Desired, target: &Target, n: u8) -> HostFacts {
    let wanted = &target.hosts[&name(&format!("cp{n}"))];
    let files = wanted.sets.values().flat_map(|s| &s.files).map(|f| {
        (f.path.clone(), FileFact { digest: f.digest, mode: f.mode, owner: f.owner.clone(), changed_ms: 1_000 })
    });
    let units = wanted
        .sets
        .values()
        .filter_map(|s| s.unit.clone())
        .map(|u| (u, UnitFact { active: "active".into(), enabled: true, started_ms: 2_000, reloaded_ms: 0 }));
    let images = wanted.parts.iter().filter_map(|p| match &p.place {
        Place::Image { reference } => Some((reference.clone(), p.digest.hex())),
        Place::Program | Place::Packages => None,
    });
    let count = u8::try_from(desired.hosts.len()).unwrap();
    let view = EtcdView {
        cluster: "cdf818194e3a8c32".into(),
        member: u64::from(n) + 0xa0,
        leader: 0xa2,
        term: 4,
        applied: 10_240,
        revision: 8_812,
        db_bytes: 24_100_000,
        in_use_bytes: 4_000_000,
        quota_bytes: 8 << 30,
        version: "3.6.16".into(),
        learner: false,
        linearizable: true,
        members: (1..=count).map(|m| (u64::from(m) + 0xa0, format!("cp{m}"), peer(m), false)).collect(),
        alarms: vec![],
    };
    HostFacts {
        cluster_id: Some(cluster_id().of(&name(&format!("cp{n}")))),
        files: files.collect(),
        blobs: wanted.parts.iter().map(|p| p.digest).collect(),
        units: units.collect(),
        images: images.collect(),
        processes: ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
            .map(|p| (p.to_owned(), 3_000))
            .into(),
        programs: wanted.paths.iter().chain(wanted.packages.keys()).cloned().collect(),
        sysctls: wanted.sysctls.clone(),
        etcd: Some(EtcdFact {
            closed: false,
            aside: [].into(),
            data: true,
            elsewhere: None,
            token: None,
            bootstrapped: Some("cdf818194e3a8c32".into()),
            view: Some(view),
            trouble: None,
            slow: false,
            high_water: None,
            positions: vec![],
            stuck: None,
            peers: Some((1..=count).map(|m| u64::from(m) + 0xa0).collect()),
            disk: None,
            secret_is_ciphertext: Some(true),
        }),
        api: Some(ApiFact {
            leases: vec![LeaseFact {
                name: "kube-scheduler".into(),
                holder: "cp2_7c1f".into(),
                age_ms: 1_300,
                duration_s: 15,
            }],
            nodes: (1..=count)
                .map(|m| NodeFact {
                    holds_static_pods: false,
                    name: format!("cp{m}"),
                    ready: true,
                    message: "kubelet is posting ready status".into(),
                    heard_ms: 4_000,
                    version: "v1.36.3".into(),
                    runtime: "containerd://2.3.7".into(),
                    unschedulable: false,
                    drained: false,
                    maintenances: Vec::new(),
                    unreachable: false,
                    ours: true,
                    address: None,
                    pods: Some(hactl::model::desired::Cidr { base: [10, 244, m, 0].into(), prefix: 24 }),
                    tunnel: (String::new(), String::new()),
                })
                .collect(),
            ..ApiFact::default()
        }),
        ..bare()
    }
}

/// Members 1 to `count`, of which those in `dead` do not answer.
pub fn members(count: u8, dead: &[u8]) -> Members {
    let member = |n: u8| {
        let (id, name, healthy) = (u64::from(n) + 0xa0, format!("cp{n}"), !dead.contains(&n));
        Member { id, name, healthy, ..Member::default() }
    };
    Members((1..=count).map(|n| (peer(n), member(n))).collect())
}

pub fn facts(hosts: Vec<Result<HostFacts, Unreachable>>, etcd: Etcd, converged: bool) -> Facts {
    let named = hosts.into_iter().zip(1..).map(|(facts, n): (_, u8)| (name(&format!("cp{n}")), facts));
    let drift = ["rbac", "flannel", "coredns"].map(|a| (a.to_owned(), vec![]));
    Facts {
        leaving: BTreeMap::new(),
        hosts: named.collect(),
        etcd,
        drift: if converged { drift.into() } else { BTreeMap::new() },
        stale: BTreeMap::new(),
        noted: Vec::new(),
    }
}

/// Three hosts of a healthy cluster.
pub fn healthy(desired: &Desired, target: &Target) -> Facts {
    let count = u8::try_from(desired.hosts.len()).unwrap();
    facts((1..=count).map(|n| Ok(converged(desired, target, n))).collect(), Etcd::HasQuorum(members(count, &[])), true)
}

pub fn unreachable(why: &str) -> Result<HostFacts, Unreachable> {
    Err(Unreachable { why: why.into(), hint: Some("see that the host is up".into()) })
}
