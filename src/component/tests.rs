//! Recipes, locks and bundles, on components small enough to read.

use super::store::blob_path;
use super::*;
use crate::model::desired::{Cni, Desired, Endpoint, EndpointKind, Host, KubeProxy, Role, SshTarget, sample};
use crate::model::names::Digest;
use crate::model::target::{Part, Place};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

struct World {
    _root: tempfile::TempDir,
    from: PathBuf,
    store: PathBuf,
}

const IMAGES: [&str; 7] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns", "pause", "flannel"];
const PROGRAMS: [&str; 15] = [
    "kubelet",
    "kubectl",
    "etcd",
    "etcdctl",
    "etcdutl",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "cni-bridge",
    "cni-loopback",
    "cni-ptp",
    "cni-host-local",
    "cni-portmap",
    "cni-flannel",
];

fn version(name: &str, kubernetes: &str) -> String {
    if name.starts_with("kube") { kubernetes.to_owned() } else { "1.0.0".to_owned() }
}

/// A directory with every component, of one Kubernetes version.
fn components(from: &Path, kubernetes: &str) {
    fs::create_dir_all(from.join("bin")).unwrap();
    fs::create_dir_all(from.join("images")).unwrap();
    let mut rows = vec![];
    for name in PROGRAMS {
        let version = version(name, kubernetes);
        fs::write(from.join("bin").join(name), format!("program {name} {version}").repeat(5000)).unwrap();
        rows.push(
            serde_json::json!({"name": name, "version": version, "kind": "binary", "path": format!("bin/{name}"),
            "architecture": "amd64", "use": "host"}),
        );
    }
    for name in IMAGES {
        let version = version(name, kubernetes);
        fs::write(from.join("images").join(format!("{name}.tar")), format!("image {name} {version}").repeat(5000))
            .unwrap();
        rows.push(
            serde_json::json!({"name": name, "version": version, "kind": "image", "path": format!("images/{name}.tar"),
            "reference": format!("registry.k8s.io/{name}:v{version}"), "architecture": "amd64", "use": "host"}),
        );
    }
    rows.push(serde_json::json!({"name": "kubeadm", "version": kubernetes, "kind": "binary", "path": "bin/kubeadm",
        "architecture": "amd64", "use": "bench"}));
    let manifest = serde_json::json!({"schema": 1, "components": rows});
    fs::write(from.join("components.json"), manifest.to_string()).unwrap();
}

fn world() -> World {
    let root = tempfile::tempdir().unwrap();
    let (from, store) = (root.path().join("dist"), root.path().join("bundles"));
    components(&from, "1.36.3");
    World { _root: root, from, store }
}

fn quietly(w: &World) -> Built {
    build(&w.store, &w.from, &|_| {}).unwrap()
}

fn desired(hosts: &[(&str, &[Role])]) -> Desired {
    let host = |(name, roles): &(&str, &[Role])| Host {
        name: name.parse().unwrap(),
        address: "10.88.0.11".parse().unwrap(),
        ssh: SshTarget::new(*name, "root"),
        roles: roles.to_vec(),
        ..sample(1).hosts.remove(0)
    };
    Desired {
        endpoint: Endpoint { kind: EndpointKind::External("lb".into()), port: 6443, sans: vec![] },
        hosts: hosts.iter().map(host).collect(),
        ..sample(0)
    }
}

fn names(parts: &[Part]) -> Vec<&str> {
    parts.iter().map(|p| p.name.as_str()).collect()
}

#[test]
fn a_blob_unpacks_to_its_source_and_is_named_by_the_digest_of_its_content() {
    let w = world();
    quietly(&w);
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    let kubelet = bundle.parts().into_iter().find(|p| p.name == "kubelet").unwrap();
    let path = bundle.blob(&kubelet.digest).unwrap();
    let content = zstd::decode_all(fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(content, fs::read(w.from.join("bin/kubelet")).unwrap());
    assert_eq!((kubelet.size, kubelet.sent_size), (content.len() as u64, fs::metadata(&path).unwrap().len()));
    assert_eq!(Digest::of(&content), kubelet.digest);
    assert_eq!(kubelet.place, Place::Program);
}

#[test]
fn progress_ends_at_the_total_and_a_second_build_reads_nothing() {
    let w = world();
    let (most, total) = (AtomicU64::new(0), AtomicU64::new(0));
    let built = build(&w.store, &w.from, &|p| {
        most.fetch_max(p.done, Ordering::Relaxed);
        total.store(p.total, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(built.fresh, PROGRAMS.len() + IMAGES.len());
    assert_eq!(most.into_inner(), total.into_inner());
    let again = build(&w.store, &w.from, &|p| panic!("read {}", p.component)).unwrap();
    assert_eq!((again.fresh, again.locks), (0, built.locks));
}

#[test]
fn changed_files_are_built_again_even_with_the_same_size_and_date() {
    let w = world();
    quietly(&w);
    let path = w.from.join("bin/runc");
    let (meta, mut content) = (fs::metadata(&path).unwrap(), fs::read(&path).unwrap());
    content[7] ^= 1;
    fs::write(&path, &content).unwrap();
    fs::File::open(&path).unwrap().set_modified(meta.modified().unwrap()).unwrap();
    assert_eq!(quietly(&w).fresh, 1);
}

#[test]
fn versions_of_kubernetes_are_stored_side_by_side_and_share_equal_files() {
    let w = world();
    quietly(&w);
    let blobs = || fs::read_dir(w.store.join("blobs/sha256")).unwrap().count();
    let before = blobs();
    components(&w.from, "1.35.4");
    let built = quietly(&w);
    assert_eq!(built.locks.len(), 1);
    assert_eq!(blobs(), before + 6, "six components are Kubernetes' own");
    let all: Vec<_> = list(&w.store).unwrap().iter().map(Lock::name).collect();
    assert_eq!(all, ["k8s-1.35.4", "k8s-1.36.3"]);
    assert!(verify(&w.store, &list(&w.store).unwrap()).unwrap().problems.is_empty());
}

#[test]
fn a_version_that_is_not_there_is_refused_with_those_that_are() {
    let w = world();
    let none = Bundle::open(&w.store, "1.36.3").map(|_| ()).unwrap_err().to_string();
    assert!(none.contains("there is none") && none.contains("hactl bundle build --from DIR"), "{none}");
    quietly(&w);
    let other = Bundle::open(&w.store, "1.40.0").map(|_| ()).unwrap_err().to_string();
    assert!(other.contains("1.40.0") && other.contains("are: 1.36.3"), "{other}");
}

#[test]
fn each_host_gets_the_parts_of_its_roles_in_the_order_of_use() {
    let w = world();
    quietly(&w);
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    let desired = desired(&[
        ("cp1", &[Role::ControlPlane, Role::Etcd, Role::LoadBalancer]),
        ("e1", &[Role::Etcd]),
        ("w1", &[Role::Worker]),
        ("lb1", &[Role::LoadBalancer]),
        ("s1", &[Role::Spare]),
    ]);
    let parts = |i: usize| bundle.parts_for(&desired, &desired.hosts[i], "x86_64").unwrap();
    let all = parts(0);
    assert_eq!(all.len(), PROGRAMS.len() + IMAGES.len());
    let at = |name: &str| all.iter().position(|p| p.name == name).unwrap();
    for pair in ["etcd", "containerd", "runc", "kubelet", "pause", "kube-apiserver", "kube-proxy", "coredns", "kubectl"]
        .windows(2)
    {
        assert!(at(pair[0]) < at(pair[1]), "{} before {}", pair[0], pair[1]);
    }
    assert_eq!(names(&parts(1)), ["etcd", "etcdctl", "etcdutl"]);
    let worker = parts(2);
    assert!(
        ["etcd", "etcdctl", "kube-apiserver", "kube-scheduler", "kubectl"].iter().all(|n| !names(&worker).contains(n))
    );
    assert!(
        ["kubelet", "containerd", "runc", "ctr", "pause", "flannel", "kube-proxy", "coredns"]
            .iter()
            .all(|n| names(&worker).contains(n))
    );
    assert!(parts(3).is_empty() && parts(4).is_empty());
    assert_eq!(bundle.parts_of_any(&desired, &desired.hosts[0]).unwrap(), all);
}

#[test]
fn parts_that_the_inventory_does_not_use_are_not_sent() {
    let w = world();
    quietly(&w);
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    let mut desired = desired(&[("w1", &[Role::Worker])]);
    desired.network.cni = Cni::None;
    desired.network.kube_proxy = KubeProxy::None;
    let parts = bundle.parts_for(&desired, &desired.hosts[0], "amd64").unwrap();
    assert!(["flannel", "cni-flannel", "kube-proxy"].iter().all(|n| !names(&parts).contains(n)));
    assert!(names(&parts).contains(&"cni-bridge"));
}

#[test]
fn packages_are_known_by_their_distribution_and_only_hosts_that_install_them_from_the_bundle_are_asked_for_them() {
    let w = world();
    let path = w.from.join("components.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fs::create_dir_all(w.from.join("packages")).unwrap();
    for distribution in ["debian-12", "debian-13"] {
        let file = format!("packages/{distribution}.tar");
        fs::write(w.from.join(&file), format!("packages for {distribution}").repeat(5000)).unwrap();
        let row = serde_json::json!({"name": "packages", "version": distribution, "kind": "packages", "path": file,
            "architecture": "amd64", "use": "host"});
        manifest["components"].as_array_mut().unwrap().push(row);
    }
    fs::write(&path, manifest.to_string()).unwrap();
    quietly(&w);
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    let packages = bundle.packages("x86_64");
    assert_eq!(packages.keys().collect::<Vec<_>>(), ["debian-12", "debian-13"]);
    let part = &packages["debian-13"];
    let content = zstd::decode_all(fs::File::open(bundle.blob(&part.digest).unwrap()).unwrap()).unwrap();
    assert_eq!(content, fs::read(w.from.join("packages/debian-13.tar")).unwrap());
    assert!(part.place == Place::Packages && bundle.packages("aarch64").is_empty());

    let mut desired = desired(&[("cp1", &[Role::ControlPlane]), ("w1", &[Role::Worker])]);
    for (bundled, asked) in [(false, [0, 0]), (true, [2, 0])] {
        desired.bundled_packages = bundled;
        let count = |parts: Vec<Part>| parts.iter().filter(|part| part.place == Place::Packages).count();
        let of_any = |host: usize| count(bundle.parts_of_any(&desired, &desired.hosts[host]).unwrap());
        assert_eq!([0, 1].map(of_any), asked, "bundled: {bundled}");
        assert_eq!(count(bundle.parts_for(&desired, &desired.hosts[0], "x86_64").unwrap()), 0);
    }
    let rows = manifest["components"].as_array_mut().unwrap();
    rows.push(rows.last().unwrap().clone());
    fs::write(&path, manifest.to_string()).unwrap();
    assert!(build(&w.store, &w.from, &|_| {}).unwrap_err().to_string().contains("packages is listed twice"));
}

#[test]
fn a_component_of_another_version_or_architecture_than_asked_for_is_refused_by_name() {
    let w = world();
    quietly(&w);
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    let mut desired = desired(&[("cp1", &[Role::ControlPlane, Role::Etcd])]);
    let host = desired.hosts[0].clone();
    let arm = bundle.parts_for(&desired, &host, "aarch64").unwrap_err().to_string();
    assert!(arm.contains("no etcd for arm64"), "{arm}");
    desired.versions.etcd = Some("1.0.0".into());
    assert!(bundle.parts_for(&desired, &host, "x86_64").is_ok());
    desired.versions.etcd = Some("3.5.0".into());
    let other = bundle.parts_for(&desired, &host, "x86_64").unwrap_err().to_string();
    assert!(other.contains("etcd 3.5.0") && other.contains("has 1.0.0"), "{other}");
}

fn flip(path: &Path, at: usize) {
    let mut content = fs::read(path).unwrap();
    content[at] ^= 0x10;
    fs::write(path, content).unwrap();
}

#[test]
fn one_flipped_bit_anywhere_is_named_by_verify_and_never_handed_out() {
    let w = world();
    let lock = quietly(&w).locks.remove(0);
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    let etcd = lock.components.iter().find(|c| c.name == "etcd").unwrap();
    let path = bundle.blob(&etcd.digest).unwrap();
    for at in 0..usize::try_from(etcd.sent_size).unwrap() {
        flip(&path, at);
        let problems = verify(&w.store, std::slice::from_ref(&lock)).unwrap().problems;
        assert_eq!(problems.len(), 1, "bit in byte {at}");
        assert!(problems[0].component == "etcd 1.0.0" && problems[0].path == path);
        let refused = bundle.blob(&etcd.digest).unwrap_err().to_string();
        assert!(refused.contains("etcd 1.0.0") && refused.contains("damaged"), "{refused}");
        flip(&path, at);
    }
    assert!(verify(&w.store, std::slice::from_ref(&lock)).unwrap().problems.is_empty());
    assert!(bundle.blob(&etcd.digest).is_ok());
}

#[test]
fn a_file_that_is_too_short_too_long_or_missing_is_named_and_the_next_build_repairs_it() {
    let w = world();
    let lock = quietly(&w).locks.remove(0);
    let digest = lock.components[0].digest;
    let path = blob_path(&w.store, &digest);
    let good = fs::read(&path).unwrap();
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    for bad in [Some(good[..good.len() - 1].to_vec()), Some([&good[..], b"x"].concat()), None] {
        match bad {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        assert_eq!(verify(&w.store, std::slice::from_ref(&lock)).unwrap().problems.len(), 1);
        assert!(matches!(bundle.blob(&digest), Err(BundleError::Damaged { .. })));
        assert_eq!(quietly(&w).fresh, 1);
        assert!(bundle.blob(&digest).is_ok());
    }
}

#[test]
fn a_store_that_forgot_everything_still_serves() {
    let w = world();
    let lock = quietly(&w).locks.remove(0);
    fs::write(w.store.join("seen.json"), "{").unwrap();
    let bundle = Bundle::open(&w.store, "1.36.3").unwrap();
    for component in &lock.components {
        bundle.blob(&component.digest).unwrap();
    }
}

#[test]
fn a_directory_that_cannot_be_a_bundle_is_refused() {
    let w = world();
    let path = w.from.join("components.json");
    let good = fs::read_to_string(&path).unwrap();
    let refused = |text: String| {
        fs::write(&path, text).unwrap();
        build(&w.store, &w.from, &|_| {}).unwrap_err().to_string()
    };
    assert!(refused("{".into()).contains("components.json"));
    assert!(refused(good.replacen("\"schema\":1", "\"schema\":2", 1)).contains("schema 2"));
    assert!(refused(good.replace("bin/etcdctl", "../etcdctl")).contains("outside"));
    assert!(refused(good.replace("\"kubelet\"", "\"etcd\"")).contains("twice"));
    assert!(refused(good.replace("\"kubelet\"", "\"other\"")).contains("no kubelet"));
    assert!(refused(good.replace("bin/etcdctl", "bin/nowhere")).contains("bin/nowhere"));
}

#[test]
fn a_lock_file_with_unknown_content_is_refused() {
    let w = world();
    quietly(&w);
    let path = w.store.join("bundles/k8s-1.36.3.lock.json");
    let good = fs::read_to_string(&path).unwrap();
    for (from, to) in [("\"kubectl\"", "\"telnetd\""), ("\"schema\": 1", "\"schema\": 9"), ("\"digest\"", "\"hash\"")] {
        fs::write(&path, good.replace(from, to)).unwrap();
        assert!(matches!(Bundle::open(&w.store, "1.36.3"), Err(BundleError::Malformed { .. })), "{to}");
    }
}

#[test]
fn a_lock_file_identifies_a_program_and_never_contains_its_address() {
    let w = world();
    quietly(&w);
    let path = w.store.join("bundles/k8s-1.36.3.lock.json");
    let good = fs::read_to_string(&path).unwrap();
    let right = "\"link\": \"/usr/local/bin/kubectl\"";
    assert!(good.contains(right));
    for link in ["\"/usr/local/sbin/systemctl\"", "\"/usr/local/bin/kubelet\"", "null"] {
        fs::write(&path, good.replace(right, &format!("\"link\": {link}"))).unwrap();
        let refused = Bundle::open(&w.store, "1.36.3").err().expect("it is refused").to_string();
        let words = ["kubectl is linked at", "but belongs at \"/usr/local/bin/kubectl\""];
        assert!(words.iter().all(|words| refused.contains(words)), "{refused}");
    }
}

#[test]
fn leftovers_of_a_build_that_was_killed_are_cleared() {
    let w = world();
    quietly(&w);
    let left = w.store.join("blobs/sha256/0.tmp");
    fs::write(&left, "half").unwrap();
    quietly(&w);
    assert!(!left.exists());
}
