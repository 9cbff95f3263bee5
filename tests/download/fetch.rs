//! Downloads that succeed, and downloads that are repeated.

use crate::shelf::{VERSION, World, archive, build, download, program, sha256};
use hactl::component::{self, Arch, Bundle, Kind, Lock, Order, Standing, prospect, verify};
use serde_json::json;
use std::fs;

fn content(world: &World, lock: &Lock, name: &str, kind: Kind) -> Vec<u8> {
    let component = lock.components.iter().find(|c| c.name == name && c.kind == kind).unwrap();
    let path = Bundle::open(&world.store(), VERSION).unwrap().blob(&component.digest).unwrap();
    zstd::decode_all(fs::File::open(path).unwrap()).unwrap()
}

#[test]
fn a_bundle_from_the_publishers_has_all_components_and_verifies() {
    let world = World::new();
    let got = world.build();
    assert_eq!(got.lock.components.len(), 22);
    assert!(got.lock.components.iter().all(|c| c.architecture == "amd64"));
    let verified = verify(&world.store(), std::slice::from_ref(&got.lock)).unwrap();
    assert_eq!((verified.files, verified.problems.len()), (22, 0));
    for (name, from) in [
        ("kubelet", "kubelet amd64"),
        ("etcdutl", "etcdutl amd64"),
        ("ctr", "ctr amd64"),
        ("runc", "runc amd64"),
        ("cni-host-local", "host-local amd64"),
        ("cni-flannel", "flannel amd64"),
    ] {
        assert_eq!(content(&world, &got.lock, name, Kind::Program), program(from), "{name}");
    }
    let reference = |name: &str| got.lock.components.iter().find(|c| c.name == name).unwrap().reference.clone();
    assert_eq!(reference("coredns").unwrap(), "registry.k8s.io/coredns/coredns:v1.14.6");
    assert_eq!(
        reference("flannel")
            .and(
                got.lock
                    .components
                    .iter()
                    .find(|c| c.name == "flannel" && c.kind == Kind::Image)
                    .unwrap()
                    .reference
                    .clone()
            )
            .unwrap(),
        "ghcr.io/flannel-io/flannel:v0.28.4"
    );
    assert!(
        fs::read_dir(world.store().join("downloads")).unwrap().next().is_none(),
        "content in the store is not kept twice"
    );
}

#[test]
fn the_same_components_from_a_directory_make_the_same_lock() {
    let world = World::new();
    let got = world.build();
    let dist = world.root().join("dist");
    fs::create_dir_all(dist.join("bin")).unwrap();
    let mut rows = Vec::new();
    for c in &got.lock.components {
        fs::write(
            dist.join("bin").join(&c.name).with_extension(format!("{:?}", c.kind)),
            content(&world, &got.lock, &c.name, c.kind),
        )
        .unwrap();
        let kind = if c.kind == Kind::Image { "image" } else { "binary" };
        rows.push(
            json!({"name": c.name, "version": c.version, "kind": kind, "path": format!("bin/{}.{:?}", c.name, c.kind),
            "reference": c.reference, "architecture": c.architecture, "use": "host"}),
        );
    }
    fs::write(dist.join("components.json"), json!({"schema": 1, "components": rows}).to_string()).unwrap();
    let built = component::build(&world.root().join("other"), &dist, &|_| {}).unwrap().locks.remove(0);
    assert_eq!(built, got.lock, "compressed bytes and all");
}

#[test]
fn a_second_build_sends_no_request_and_changes_nothing() {
    let world = World::new();
    let first = world.build();
    assert!(first.sources.iter().all(|s| s.fetched) && first.sources.len() == 14, "{:?}", first.sources);
    world.server.asked();
    let second = world.build();
    assert_eq!(world.server.asked(), []);
    assert_eq!(second.lock, first.lock);
    assert!(second.sources.iter().all(|s| !s.fetched) && second.sources.len() == first.sources.len());
}

#[test]
fn only_a_lost_blob_is_fetched_again() {
    let world = World::new();
    let first = world.build();
    let runc = first.lock.components.iter().find(|c| c.name == "runc").unwrap();
    let path = Bundle::open(&world.store(), VERSION).unwrap().blob(&runc.digest).unwrap();
    fs::remove_file(path).unwrap();
    world.server.asked();
    assert_eq!(world.build().lock, first.lock);
    let asked: Vec<String> = world.server.asked().into_iter().map(|a| a.path).collect();
    assert!(asked.len() == 2 && asked.iter().all(|p| p.contains("/runc.")), "{asked:?}");
}

#[test]
fn layers_that_images_share_are_fetched_once() {
    let world = World::new();
    world.build();
    let asked = world.server.asked();
    let blobs: Vec<&str> = asked.iter().filter_map(|a| a.path.split_once("/blobs/").map(|(_, d)| d)).collect();
    let distinct: std::collections::BTreeSet<&&str> = blobs.iter().collect();
    // Seven images of two layers, one of them shared, and one config that they all have.
    assert_eq!((blobs.len(), distinct.len()), (9, 9), "{blobs:?}");
}

#[test]
fn a_bundle_can_contain_both_architectures() {
    let world = World::new();
    let order = Order { architectures: vec![Arch::Amd64, Arch::Arm64], ..world.order() };
    let lock = build(&world.store(), &order).unwrap().lock;
    assert_eq!(lock.components.len(), 44);
    let digest =
        |arch: &str| lock.components.iter().find(|c| c.name == "kubelet" && c.architecture == arch).unwrap().digest;
    assert_eq!(digest("amd64").hex(), sha256(&program("kubelet amd64")));
    assert_eq!(digest("arm64").hex(), sha256(&program("kubelet arm64")));
    assert!(verify(&world.store(), &[lock]).unwrap().problems.is_empty());
}

#[test]
fn another_component_version_can_be_chosen_and_invalid_ones_are_refused_without_a_request() {
    let world = World::new();
    let release = "/github/etcd-io/etcd/releases/download/v3.6.15";
    let content = archive(
        &["etcd", "etcdctl", "etcdutl"]
            .map(|n| (["etcd-v3.6.15-linux-amd64/", n].concat(), program(n)))
            .each_ref()
            .map(|(p, c)| (p.as_str(), c.clone())),
    );
    world
        .server
        .put(&format!("{release}/SHA256SUMS"), format!("{}  etcd-v3.6.15-linux-amd64.tar.gz\n", sha256(&content)));
    world.server.put(&format!("{release}/etcd-v3.6.15-linux-amd64.tar.gz"), content);
    let with =
        |name: &str, version: &str| Order { with: [(name.to_owned(), version.to_owned())].into(), ..world.order() };
    let lock = build(&world.store(), &with("etcd", "3.6.15")).unwrap().lock;
    assert_eq!(lock.versions()["etcd"], "3.6.15");
    world.server.asked();
    for (order, says) in [
        (with("etcd", "3.6"), "is not a version of etcd"),
        (with("etcd", "../../x"), "is not a version of etcd"),
        (with("docker", "1.2.3"), "no version can be chosen for docker; it can for"),
        (Order { kubernetes: "1.30.1".into(), ..world.order() }, "it has those for 1.34, 1.35, 1.36, 1.37"),
        (Order { kubernetes: "v1.36.3".into(), ..world.order() }, "is not a version of Kubernetes"),
    ] {
        let error = build(&world.store(), &order).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(world.server.asked(), []);
}

#[test]
fn the_prospect_names_every_source_and_its_state() {
    let world = World::new();
    let before = prospect(&world.store(), &world.order()).unwrap();
    assert_eq!(before.len(), 14);
    assert!(before.iter().all(|p| p.standing == Standing::Missing && p.size.is_none()));
    let etcd = before.iter().find(|p| p.source.contains("etcd-io")).unwrap();
    assert_eq!(etcd.components, ["etcd 3.6.16", "etcdctl 3.6.16", "etcdutl 3.6.16"]);
    assert!(etcd.asked.starts_with(&world.server.url()) && etcd.source.starts_with("https://github.com/"));
    assert_eq!(world.server.asked(), [], "no request is sent");
    world.build();
    let after = prospect(&world.store(), &world.order()).unwrap();
    assert!(after.iter().all(|p| p.standing == Standing::Packed && p.size.is_some() && p.locked.is_some()));
}

#[test]
fn a_second_download_into_the_same_store_is_refused_while_the_first_one_runs() {
    let world = World::new();
    let (first, _) = download(&world.store(), &world.order());
    let first = first.unwrap();
    let second = build(&world.store(), &world.order()).map(|_| ()).unwrap_err().to_string();
    assert!(second.contains("another hactl"), "{second}");
    drop(first);
    world.build();
}

#[test]
fn the_default_versions_are_those_that_the_components_are_built_from() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("components");
    let pinned = |folder: &str, module: &str| {
        let text = fs::read_to_string(root.join(folder).join("go.mod")).unwrap();
        let line = text.lines().find_map(|l| {
            l.trim().trim_start_matches("require ").strip_prefix(&format!("{module} v")).map(ToOwned::to_owned)
        });
        line.unwrap_or_else(|| panic!("{folder} does not require {module}"))
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    let world = World::new();
    let versions: std::collections::BTreeMap<String, String> = prospect(&world.store(), &world.order())
        .unwrap()
        .iter()
        .flat_map(|p| p.components.clone())
        .map(|c| {
            let (n, v) = c.split_once(' ').unwrap();
            (n.to_owned(), v.to_owned())
        })
        .collect();
    for (name, folder, module) in [
        ("kubelet", "kubernetes-1.36", "k8s.io/kubernetes"),
        ("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
        ("containerd", "containerd", "github.com/containerd/containerd/v2"),
        ("runc", "runc", "github.com/opencontainers/runc"),
        ("cni-bridge", "cni", "github.com/containernetworking/plugins"),
        ("coredns", "coredns", "github.com/coredns/coredns"),
        ("flannel", "flannel", "github.com/flannel-io/flannel"),
    ] {
        assert_eq!(versions[name], pinned(folder, module), "{name}");
    }
    let pause = fs::read_to_string(root.join("pause/recipe.sh")).unwrap();
    assert!(pause.contains(&format!("binary pause {} ", versions["pause"])));
}
