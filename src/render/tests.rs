//! Every row of the tables against the directories, and against inventories of many shapes.

mod foreign;
mod former;
mod hardened;
mod lifecycle;
mod name_servers;
mod settings;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;
use crate::model::attached::Attached;
use crate::model::bucket::SCHEME;
use crate::model::desired::{Cni, Desired, EndpointKind, Host, KubeProxy, Role, Security, SshTarget, sample};
use crate::model::facts::{HostFacts, InterfaceAddress};
use crate::model::healing::Mode;
use crate::model::names::{Digest, UnitName};
use crate::model::secret::EncryptionKey;
use crate::model::secret::Secret;
use crate::model::target::{Part, Place};

pub(super) fn host(name: &str, last: u8, roles: &[Role]) -> Host {
    Host {
        name: name.parse().unwrap(),
        address: [10, 88, 0, last].into(),
        ssh: SshTarget::new(name.to_owned(), "ops"),
        roles: roles.to_vec(),
        ..sample(1).hosts.remove(0)
    }
}

pub(super) fn desired() -> Desired {
    let all = [Role::ControlPlane, Role::Etcd, Role::LoadBalancer];
    let hosts =
        vec![host("cp1", 11, &all), host("cp2", 12, &all), host("cp3", 13, &all), host("w1", 21, &[Role::Worker])];
    Desired { hosts, ..sample(0) }
}

/// Inventories that differ in everything a template branches on.
fn shapes() -> Vec<(String, Desired)> {
    let plain = desired();
    let mut full = desired();
    full.mirrors.insert("registry.k8s.io".to_owned(), vec!["https://mirror.example/v2\"x".to_owned()]);
    full.mirrors.insert("docker.io".to_owned(), vec!["https://mirror.example/v2/hub".to_owned()]);
    full.named.registry_authorities.insert("mirror.example".to_owned(), "/keys/mirror.pem".into());
    for at in ["mirror.example", "private.example:5000"] {
        full.named.registry_logins.insert(at.to_owned(), "/keys/login".into());
    }
    full.extra.mounts.insert("kube-apiserver".to_owned(), vec!["/etc/kubernetes/extra".to_owned()]);
    full.extra.containerd_config.insert("debug".to_owned(), json!({"level": "warn"}));
    full.extra.args.insert("kube-proxy".to_owned(), BTreeMap::from([("v".to_owned(), "4".to_owned())]));
    full.proxy.https = "http://proxy.example:3128".to_owned();
    full.jwt = vec![json!({"issuer": {"url": "https://id.example", "audiences": ["k8s"]}, "claimMappings": {}})];
    full.extra.kubelet_config.insert("cgroupDriver".to_owned(), json!("cgroupfs"));
    full.extra.kubelet_config.insert("failCgroupV1".to_owned(), json!(false));
    full.extra.kube_proxy_config.insert("conntrack".to_owned(), json!({"maxPerCore": 0}));
    full.extra.restrict_oom_score_adj = true;
    full.extra.args.insert("kube-apiserver".to_owned(), BTreeMap::from([("v".to_owned(), "2".to_owned())]));
    full.extra.args.insert("etcd".to_owned(), BTreeMap::from([("heartbeat-interval".to_owned(), "200".to_owned())]));
    full.extra.args.insert("kubelet".to_owned(), BTreeMap::from([("v".to_owned(), "3".to_owned())]));
    full.control_plane.security = Security::Cis;
    full.unattended_days = Some(1095);
    full.snapshots.drill = Some(crate::model::drill::Period::Daily);
    full.healing.mode = Mode::On;
    full.metrics = true;
    full.hosting = crate::model::hosting::Hosting::SelfHosted;
    full.network.mtu = Some(1400);
    full.hosts[0].zone = Some("rack-a".to_owned());
    full.hosts[2].zone = Some("rack-a".to_owned());
    full.hosts[3].labels.insert("disk".to_owned(), "nvme".to_owned());
    full.hosts[3].taints.push("gpu=yes:NoSchedule".to_owned());
    let mut external = desired();
    external.endpoint.kind = EndpointKind::External("api.example.org".to_owned());
    external.network.cni = Cni::None;
    external.network.kube_proxy = KubeProxy::None;
    let mut apart = desired();
    apart.hosts = vec![
        host("cp1", 11, &[Role::ControlPlane]),
        host("e1", 12, &[Role::Etcd]),
        host("lb1", 13, &[Role::LoadBalancer]),
        host("s1", 14, &[Role::Spare]),
    ];
    apart.healing.mode = Mode::Watch;
    let mut lone = desired();
    lone.hosts.truncate(1);
    lone.hosts[0].roles.push(Role::Worker);
    let mut older = desired();
    older.versions.kubernetes = "1.34.4".to_owned();
    let own =
        [("plain", plain), ("full", full), ("external", external), ("apart", apart), ("lone", lone), ("older", older)];
    own.into_iter().map(|(name, desired)| (name.to_owned(), desired)).chain(examples()).collect()
}

/// Every inventory of `inventories/`.
fn examples() -> Vec<(String, Desired)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("inventories");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<(String, Desired)> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .map(|path| {
            let loaded = crate::inventory::load(&crate::inventory::Source::Path(path.clone()));
            (path.display().to_string(), loaded.unwrap_or_else(|e| panic!("{}:\n{e}", path.display())).desired)
        })
        .collect();
    assert!(found.len() >= 12, "the examples are there: {}", found.len());
    found
}

pub(super) fn parts() -> Vec<Part> {
    let part = |name: &str, place| Part {
        name: name.to_owned(),
        version: "1".to_owned(),
        digest: Digest::new([7; 32]),
        size: 1,
        sent_digest: Digest::new([0; 32]),
        sent_size: 1,
        place,
    };
    let programs = ["etcd", "containerd", "containerd-shim-runc-v2", "runc", "kubelet"];
    let images =
        ["pause", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "flannel", "coredns"];
    let program = programs.into_iter().map(|name| part(name, Place::Program));
    let image =
        images.into_iter().map(|name| part(name, Place::Image { reference: format!("registry.k8s.io/{name}:v1") }));
    program.chain(image).collect()
}

pub(super) fn facts(host: &Host) -> HostFacts {
    HostFacts {
        os: "debian 12".to_owned(),
        addresses: vec![InterfaceAddress { interface: "eth0".to_owned(), address: host.address, prefix: 24 }],
        ..HostFacts::default()
    }
}

const TRUST: Trust<'static> = Trust {
    cluster_ca: "CLUSTER CA\n",
    etcd_ca: "ETCD CA\n",
    front_proxy_ca: "FRONT PROXY CA\n",
    signing_ca: "SIGNING\n",
    signing_cert: "SIGNING\n",
    kubelet_serving_ca: "KUBELET SERVING CA\n",
    kubelet_serving_cert: "KUBELET SERVING\n",
    sa_public: "SA PUBLIC\n",
    signers: ["c1", "51"],
};

pub(super) fn sealed(recipients: &[String]) -> Sealed<'_> {
    Sealed { text: "-----BEGIN AGE ENCRYPTED FILE-----\n", recipients, authority: Digest::new([7; 32]) }
}

pub(super) fn rendered(desired: &Desired, host: &Host, facts: &HostFacts) -> Result<Vec<RenderedSet>, RenderError> {
    let [signing_key, kubelet_serving_key, sa_key] =
        ["SIGNING KEY", "KUBELET SERVING KEY", "SA KEY"].map(|key| Secret::new(key.to_owned()));
    let encryption_key = Secret::new("c2VjcmV0".to_owned());
    let encryption = [EncryptionKey { name: "key1".to_owned(), key: &encryption_key }];
    let keys = Keys {
        signing_key: &signing_key,
        kubelet_serving_key: &kubelet_serving_key,
        sa_key: &sa_key,
        encryption: &encryption,
    };
    let parts = parts();
    host_sets(&Input {
        desired,
        host,
        facts,
        parts: &parts,
        leaves: &[],
        trust: &TRUST,
        keys: host.is(Role::ControlPlane).then_some(&keys),
        sealed: &sealed(&["age1owner".to_owned()]),
        attached: &attached(),
        hactl_path: "/var/lib/hactl/bin/abc/hactl",
    })
}

/// The contents of the files that the inventories of [`shapes`] name.
fn attached() -> Attached {
    let mut attached = Attached::default();
    for at in ["mirror.example", "mirror.example.org", SCHEME] {
        attached.authorities.insert(at.to_owned(), "AUTHORITY\n".to_owned());
    }
    for at in ["mirror.example", "mirror.example.org", "private.example:5000"] {
        attached.logins.insert(at.to_owned(), Secret::new("bWU6UEFTU1dPUkQ=".to_owned()));
    }
    attached.logins.insert(SCHEME.to_owned(), Secret::new("QUtJQTpTM0NSM1Q=".to_owned()));
    attached
}

fn all(desired: &Desired, name: &str) -> BTreeMap<String, FilePut> {
    let host = desired.hosts.iter().find(|h| h.name.as_str() == name).unwrap();
    let sets = rendered(desired, host, &facts(host)).unwrap();
    sets.into_iter().flat_map(|set| set.files).map(|file| (file.path.clone(), file)).collect()
}

fn files_below(root: &Path, folder: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files_below(root, &path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn every_template_and_manifest_is_in_a_table_and_every_row_has_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut there = BTreeSet::new();
    files_below(root, "templates", &mut there);
    files_below(root, "manifests", &mut there);
    // Files of other tables: the bootstrap script is sent by `transport/`, the lab's files are read by `lab/`, the
    // runbook by `report/`, and the README is part of a support bundle.
    there.retain(|path| {
        path != "templates/bootstrap.sh"
            && !path.starts_with("templates/lab/")
            && !path.starts_with("templates/support/")
            && !path.starts_with("templates/runbook")
    });
    let rows = FILES.iter().map(|row| row.template.to_owned()).filter(|template| !template.is_empty());
    let listed: BTreeSet<String> =
        rows.chain(super::addons::MANIFESTS.iter().map(|manifest| manifest.template.to_owned())).collect();
    assert_eq!(there, listed);
}

#[test]
fn every_value_in_a_template_passes_a_quoting_filter() {
    let texts = FILES.iter().map(|row| (row.template, row.text));
    let manifests = super::addons::MANIFESTS.iter().map(|manifest| (manifest.template, manifest.text));
    for (template, text) in texts.chain(manifests) {
        for value in text.split("{{").skip(1) {
            let value = value.split("}}").next().unwrap().trim();
            let filter = value.rsplit('|').next().unwrap().trim();
            let yaml = template.ends_with(".yaml") || template.ends_with(".json") || template.ends_with(".toml");
            let fine = if yaml { matches!(filter, "y" | "word") } else { matches!(filter, "word" | "line" | "unit") };
            assert!(fine, "{template}: {{{{ {value} }}}} ends in {filter}");
        }
    }
}

#[test]
fn every_row_renders_for_every_shape_of_inventory_and_yaml_files_parse() {
    let mut seen = BTreeSet::new();
    for (shape, desired) in shapes() {
        for host in &desired.hosts {
            let sets = rendered(&desired, host, &facts(host)).unwrap_or_else(|e| panic!("{shape} {}: {e}", host.name));
            let files: Vec<&FilePut> = sets.iter().flat_map(|set| &set.files).collect();
            let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
            assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len(), "{shape} {}: a path twice", host.name);
            let known: BTreeSet<String> = super::paths(&desired, host).into_iter().collect();
            assert_eq!(known, paths.iter().map(|p| (*p).to_owned()).collect(), "{shape} {}", host.name);
            for file in files {
                assert!(!file.content.contains("{{") && !file.content.contains("{%"), "{}", file.path);
                assert!(file.content.ends_with('\n'), "{} has no line break at its end", file.path);
                let yaml = Path::new(&file.path).extension().is_some_and(|e| e == "yaml" || e == "json")
                    || (file.path.starts_with("/etc/kubernetes/") && file.path.ends_with(".conf"));
                if yaml {
                    let value: Value = serde_saphyr::from_str(&file.content)
                        .unwrap_or_else(|e| panic!("{shape} {}: {e}\n{}", file.path, file.content));
                    assert!(value.is_object(), "{}", file.path);
                }
            }
            seen.extend(sets.iter().map(|set| set.set));
        }
        addons(&desired, &parts()).unwrap_or_else(|e| panic!("{shape}: {e}"));
    }
    assert_eq!(seen.len(), 22, "some set was never rendered: {seen:?}");
}

#[test]
fn every_owner_only_file_is_in_a_directory_that_hosts_search_for_secrets() {
    let below = |path: &str| {
        let is = |place: &str| path == place || path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
        crate::model::support::SECRETS.iter().any(|place| is(place))
    };
    for (shape, desired) in shapes() {
        for host in &desired.hosts {
            let sets = rendered(&desired, host, &facts(host)).unwrap_or_else(|e| panic!("{shape} {}: {e}", host.name));
            let files = sets.iter().flat_map(|set| &set.files).filter(|file| file.mode & 0o004 == 0);
            // The first is encrypted, and units contain no secret, even if all users may read them.
            let open = |path: &str| path == "/var/lib/hactl/state.age" || path.starts_with("/etc/systemd/system/");
            for file in files.filter(|file| !open(&file.path)) {
                assert!(below(&file.path), "{shape} {}: {} ({:o})", host.name, file.path, file.mode);
            }
        }
    }
    let (_, full) = shapes().remove(1);
    let brought = crate::pki::brought::Brought::default();
    let keys = crate::pki::found(&full.cluster, brought, time::OffsetDateTime::now_utc()).unwrap();
    for leaf in crate::pki::leaves(&full, &full.hosts[0], &keys.publics()) {
        assert!(below(&leaf.key_path), "{}", leaf.key_path);
    }
}

#[test]
fn the_same_input_renders_the_same_text() {
    for (_, desired) in shapes() {
        let host = &desired.hosts[0];
        let one = rendered(&desired, host, &facts(host)).unwrap();
        let two = rendered(&desired, host, &facts(host)).unwrap();
        let targets = |sets: &[RenderedSet]| sets.iter().map(RenderedSet::target).collect::<Vec<_>>();
        assert_eq!(targets(&one), targets(&two));
    }
}

#[test]
fn a_host_without_the_control_plane_gets_no_key() {
    let desired = desired();
    for file in all(&desired, "w1").into_values() {
        assert!(!file.content.contains(" KEY\n") && !file.content.contains("c2VjcmV0"), "{}", file.path);
    }
    let keys: Vec<(String, u32)> = all(&desired, "cp1")
        .into_values()
        .filter(|file| file.content.contains(" KEY\n") || file.content.contains("c2VjcmV0"))
        .map(|file| (file.path, file.mode))
        .collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert!(keys.iter().all(|(_, mode)| *mode == 0o600), "{keys:?}");
}

#[test]
fn files_read_at_the_start_of_an_api_server_restart_it_through_its_manifest() {
    let desired = desired();
    let mut other = desired.clone();
    other.jwt = vec![json!({"issuer": {"url": "https://id.example"}})];
    let manifest =
        |d: &Desired, pod: &str| all(d, "cp1")[&format!("/etc/kubernetes/manifests/{pod}.yaml")].content.clone();
    assert_ne!(manifest(&desired, "kube-apiserver"), manifest(&other, "kube-apiserver"));
    assert_eq!(manifest(&desired, "kube-scheduler"), manifest(&other, "kube-scheduler"));
}

#[test]
fn only_api_servers_trust_the_kubelet_serving_ca_and_only_for_kubelets() {
    let files = all(&desired(), "cp1");
    let trusting: Vec<&str> = files
        .iter()
        .filter(|(_, file)| {
            file.content.contains("KUBELET SERVING CA") || file.content.contains("kubelet-serving-ca.crt")
        })
        .map(|(path, _)| path.as_str())
        .collect();
    let (bundle, manifest) =
        ("/etc/kubernetes/pki/kubelet-serving-ca.crt", "/etc/kubernetes/manifests/kube-apiserver.yaml");
    assert_eq!(trusting, [manifest, bundle]);
    let named: Vec<&str> = files[manifest].content.lines().filter(|line| line.contains("kubelet-serving")).collect();
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].contains(&format!("--kubelet-certificate-authority={bundle}")), "{named:?}");

    let signers = &files["/etc/kubernetes/manifests/kube-controller-manager.yaml"].content;
    for (signer, pair) in
        [("kubelet-serving", "kubelet-serving"), ("kubelet-client", "signing"), ("kube-apiserver-client", "signing")]
    {
        assert!(signers.contains(&format!("--cluster-signing-{signer}-cert-file=/etc/kubernetes/pki/{pair}.crt\n")));
        assert!(signers.contains(&format!("--cluster-signing-{signer}-key-file=/etc/kubernetes/pki/{pair}.key\n")));
    }
    // The controller manager does not start with these flags besides the others.
    assert!(!signers.contains("--cluster-signing-cert-file") && !signers.contains("--cluster-signing-legacy-unknown"));
}

#[test]
fn everything_a_static_pod_is_said_to_read_is_written_on_the_host() {
    let files = all(&desired(), "cp1");
    for pod in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        for path in super::views::control_plane::reads(pod) {
            assert!(files.contains_key(*path), "{pod} reads {path}, which no row writes");
        }
    }
}

#[test]
fn an_api_server_keeps_to_its_own_member_and_a_kubelet_to_its_own_api_server_and_each_has_another_first_in_reserve() {
    let desired = desired();
    let expect = |names: [&str; 3]| names.iter().enumerate().map(|(i, n)| ((*n).to_owned(), i > 0)).collect::<Vec<_>>();
    for backend in ["members", "api-servers"] {
        let order = |name: &str| {
            let lines = servers(&desired, name, backend).into_iter();
            lines.map(|l| (l.split(' ').nth(1).unwrap().to_owned(), l.contains(" backup"))).collect::<Vec<_>>()
        };
        assert_eq!(order("cp1"), expect(["cp1", "cp2", "cp3"]));
        assert_eq!(order("cp2"), expect(["cp2", "cp3", "cp1"]));
        assert_eq!(order("cp3"), expect(["cp3", "cp1", "cp2"]));
    }
}

/// The servers of a backend in the balancer of a control-plane host.
fn servers(desired: &Desired, name: &str, backend: &str) -> Vec<String> {
    let text = all(desired, name)["/etc/hactl/etcd-balancer.cfg"].content.clone();
    let after = text.split_once(&format!("\nbackend {backend}\n")).unwrap().1;
    let section = after.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
    section.map(str::trim).filter(|line| line.starts_with("server ")).map(ToOwned::to_owned).collect()
}

#[test]
fn a_server_of_the_same_zone_is_preferred_over_a_nearer_one_of_another() {
    let (_, desired) = shapes().remove(1);
    for backend in ["members", "api-servers"] {
        let lines = servers(&desired, "cp1", backend);
        assert!(lines[1].starts_with("server cp3 ") && lines[2].starts_with("server cp2 "), "{lines:?}");
    }
}

#[test]
fn a_kubelet_returns_to_its_own_api_server_and_what_leads_uses_no_other() {
    for (name, desired) in shapes() {
        let host = desired.with(Role::ControlPlane).next().unwrap();
        let files = all(&desired, host.name.as_str());
        let server = |path: &str| {
            let config: Value = serde_saphyr::from_str(&files[path].content).unwrap();
            config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
        };
        assert_eq!(server("/etc/kubernetes/kubelet.conf"), "https://127.0.0.1:6481", "{name}");
        let own = format!("{}:{}", super::views::in_url(host.address), desired.api_port);
        for of in ["controller-manager", "scheduler"] {
            assert_eq!(server(&format!("/etc/kubernetes/{of}.conf")), format!("https://{own}"), "{name}");
        }
        let lines = servers(&desired, host.name.as_str(), "api-servers");
        assert_eq!(lines.len(), desired.with(Role::ControlPlane).count());
        assert!(
            lines[0].starts_with(&format!("server {} {own} check check-ssl verify required ", host.name)),
            "{name}"
        );
        // The kubelet would be newer than an earlier one.
        let reserve = servers(&desired, host.name.as_str(), "reserve");
        for (line, checked) in lines[1..].iter().zip(&reserve) {
            let server = checked.split(' ').nth(1).unwrap();
            assert_eq!(*line, format!("{checked} backup track reserve/{server}"), "{name}");
        }
        assert_eq!(reserve.len(), lines.len() - 1, "{name}");
        let config = &files["/etc/hactl/etcd-balancer.cfg"].content;
        let minor: u16 = desired.versions.kubernetes.split('.').nth(1).unwrap().parse().unwrap();
        let minors = (minor..minor + 4).map(|minor| minor.to_string()).collect::<Vec<_>>().join("|");
        assert!(config.contains(&format!("expect rstring \\\"minor\\\":\\ \\\"({minors})\\\"\n")), "{name}");
        let last = ["server none abns@hactl-no-api-server".to_owned()];
        let own_first = [&[format!("server {} {own}", host.name)][..], &last[..]].concat();
        assert_eq!(servers(&desired, host.name.as_str(), "own-api-server"), own_first, "{name}");
        // haproxy would not close a connection of HTTP/2, on which a kubelet would stay.
        let bind = "bind abns@hactl-no-api-server ssl crt /etc/kubernetes/pki/apiserver.crt alpn http/1.1\n";
        assert!(config.contains(bind), "{name}");
        assert!(ports(&desired, host).contains(&6481), "a new host is refused if another process listens there");
    }
}

#[test]
fn a_lone_balancer_has_another_host_as_its_unicast_peer() {
    let peers = |desired: &Desired, name: &str| -> Vec<String> {
        let text = all(desired, name)["/etc/keepalived/keepalived.conf"].content.clone();
        let block = text.split_once("unicast_peer {").map(|(_, rest)| rest.split('}').next().unwrap_or_default());
        block.unwrap_or_default().split_whitespace().map(ToOwned::to_owned).collect()
    };
    let mut desired = desired();
    assert_eq!(peers(&desired, "cp2"), ["10.88.0.11", "10.88.0.13"]);
    for host in desired.hosts.iter_mut().filter(|h| h.name.as_str() != "cp2") {
        host.roles.retain(|role| *role != Role::LoadBalancer);
    }
    assert_eq!(peers(&desired, "cp2"), ["10.88.0.11"]);
    desired.hosts.retain(|h| h.name.as_str() == "cp2");
    assert_eq!(peers(&desired, "cp2"), Vec::<String>::new(), "there is no other host");
}

#[test]
fn keepalived_starts_bash_from_usr_bin() {
    let text = all(&desired(), "cp1")["/etc/keepalived/keepalived.conf"].content.clone();
    assert!(text.contains("    script \"/usr/bin/bash /etc/hactl/endpoint-usable.sh "), "{text}");
}

#[test]
fn a_start_of_etcd_on_an_empty_disk_needs_a_permission_on_that_disk() {
    let unit = all(&desired(), "cp1")["/etc/systemd/system/etcd.service"].content.clone();
    let asserted: Vec<&str> = unit.lines().filter_map(|l| l.strip_prefix("AssertPathExists=|")).collect();
    assert_eq!(asserted, ["/var/lib/etcd/member", "/var/lib/etcd/hactl-genesis", "/var/lib/etcd/hactl-join"]);
    let env = all(&desired(), "cp1")["/etc/etcd/etcd.env"].content.clone();
    assert!(
        !env.contains("ETCD_INITIAL_CLUSTER"),
        "the first boot's settings must not be in the file that is compared"
    );
}

#[test]
fn a_host_whose_address_is_on_no_interface_is_a_clear_error() {
    let desired = desired();
    let error = rendered(&desired, &desired.hosts[0], &HostFacts::default()).err().unwrap().to_string();
    assert!(error.contains("cp1") && error.contains("10.88.0.11") && error.contains("endpoint.interface"), "{error}");
}

#[test]
fn a_label_of_a_worker_and_its_taint_reach_the_kubelet_and_the_role_only_the_api() {
    let (_, desired) = shapes().remove(1);
    let unit = all(&desired, "w1")["/etc/systemd/system/kubelet.service"].content.clone();
    let registration = all(&desired, "w1")["/etc/hactl/kubelet-registration.env"].content.clone();
    assert!(registration.contains("--node-labels=disk=nvme"), "{registration}");
    assert!(registration.contains("--register-with-taints=gpu=yes:NoSchedule"), "{registration}");
    assert!(unit.ends_with("CPUWeight=500\n\n[Install]\nWantedBy=multi-user.target\n"), "{unit}");
    assert!(unit.contains(" \\\n    $KUBELET_REGISTRATION\n"), "{unit}");
    assert!(unit.contains("\"--v=3\""), "{unit}");
    let addons = addons(&desired, &parts()).unwrap();
    let labels = &addons.last().unwrap().objects[3];
    assert_eq!(labels.pointer("/metadata/labels/node-role.kubernetes.io~1worker"), Some(&json!("")));
}

#[test]
fn the_inventorys_own_word_on_the_kubelet_wins_and_containerd_follows_it() {
    let (_, desired) = shapes().remove(1);
    let files = all(&desired, "cp1");
    let config: Value = serde_saphyr::from_str(&files["/var/lib/kubelet/config.yaml"].content).unwrap();
    assert_eq!(config["cgroupDriver"], "cgroupfs");
    assert_eq!(config["failCgroupV1"], false);
    assert_eq!(config["authentication"]["anonymous"]["enabled"], false);
    assert!(files["/etc/containerd/config.toml"].content.contains("SystemdCgroup = false"));
}

#[test]
fn objects_are_named_once_and_flannel_alone_is_needed_for_nodes_to_be_ready() {
    let addons = addons(&desired(), &parts()).unwrap();
    let mut keys = BTreeSet::new();
    for object in addons.iter().flat_map(|addon| &addon.objects) {
        assert!(keys.insert(crate::model::target::object_key(object)), "twice: {object}");
    }
    let needed: Vec<&str> = addons.iter().filter(|a| a.needed_for_ready).map(|a| a.name.as_str()).collect();
    assert_eq!(needed, ["flannel"]);
}

#[test]
fn a_wipe_stops_first_what_starts_others_and_removes_every_written_file_but_those_below_etc_haproxy() {
    let desired = desired();
    let ask = wipe(&desired, &desired.hosts[0], false);
    let first: Vec<&str> = ask.units.iter().take(4).map(UnitName::as_str).collect();
    let residents =
        ["hactl-metrics.service", "hactl-node-agent.service", "hactl-hosting.service", "hactl-guard.service"];
    assert_eq!(first, residents, "nothing starts again what is stopped");
    for path in super::paths(&desired, &desired.hosts[0]) {
        let mut gone = ask.remove.iter().chain(&ask.data);
        let goes = gone.any(|gone| path == *gone || path.starts_with(&format!("{gone}/")));
        assert_eq!(goes, !path.starts_with("/etc/haproxy/"), "{path}");
    }
    assert!(!ask.remove.iter().any(|path| path == "/etc" || path == "/var/lib" || path == "/"));
    assert_eq!(ask.data[0], "/var/lib/etcd");
}

#[test]
fn the_listed_ca_files_are_the_written_ones() {
    for (shape, desired) in shapes() {
        for host in &desired.hosts {
            let trusted = |row: &&table::Row| {
                matches!(row.set, FileSet::Trust | FileSet::Guard | FileSet::Metrics) && (row.on)(&desired, host)
            };
            let written = FILES.iter().filter(trusted).flat_map(|row| row.paths(&desired));
            let mut written: Vec<String> = written.filter(|path| path.ends_with(".crt")).collect();
            written.sort_unstable();
            assert_eq!(crate::pki::authority_paths(&desired, host), written, "{shape}: {}", host.name);
        }
    }
}
