//! What others put on a host before hactl: no operation loses it.

use super::*;
use crate::model::names::Digest;
use crate::protocol::{FilePut, WipeAsk};

const CONFIG: &str = "/etc/haproxy/haproxy.cfg";

fn cluster_id() -> Op {
    let cluster = "lab".parse().unwrap();
    let ca = Digest::new([7; 32]);
    Op::WriteClusterId(crate::model::facts::ClusterId { cluster, ca, stages: 0, host: None, machine: None })
}

fn written(path: &str, content: &str) -> Op {
    let file = FilePut { path: path.to_owned(), mode: 0o644, owner: me(), content: content.to_owned(), check: None };
    Op::WriteFiles { files: vec![file], remove: vec![], keep: None }
}

fn deleting(remove: &[&str], data: &[&str], stays: bool) -> Op {
    let all = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let (remove, data) = (all(remove), all(data));
    Op::Wipe(WipeAsk { units: vec![], remove, data, delete: true, vip: None, hand_over: false, stays })
}

#[tokio::test]
async fn a_file_of_others_is_kept_when_it_is_replaced_and_when_it_is_removed_and_files_of_hactl_are_not() {
    let place = Place::new();
    let keepalived = "/etc/keepalived/keepalived.conf";
    place.write(CONFIG, "frontend shop\n");
    place.write(keepalived, "vrrp_instance shop\n");
    let mut client = place.locked().await;
    for content in ["# Written by hactl.\n", "# Written by hactl.\n", "# Written by hactl: another one.\n"] {
        client.ask(written(CONFIG, content)).await.unwrap();
    }
    assert_eq!(place.read(CONFIG), "# Written by hactl: another one.\n");
    assert_eq!(place.list("/etc/haproxy"), ["haproxy.cfg", "haproxy.cfg.before-hactl"]);
    assert_eq!(place.read("/etc/haproxy/haproxy.cfg.before-hactl"), "frontend shop\n");
    client.ask(deleting(&[keepalived, CONFIG], &[], false)).await.unwrap();
    assert_eq!(place.list("/etc/haproxy"), ["haproxy.cfg.before-hactl"]);
    assert_eq!(place.list("/etc/keepalived"), ["keepalived.conf.before-hactl"]);
    assert_eq!(place.read("/etc/keepalived/keepalived.conf.before-hactl"), "vrrp_instance shop\n");
}

#[tokio::test]
async fn a_wipe_deletes_nothing_from_directories_that_were_in_use_before_the_first_cluster() {
    let place = Place::new();
    let hosts_toml = "/etc/containerd/certs.d/own.example/hosts.toml";
    place.write(hosts_toml, "server = \"https://own.example\"\n");
    place.write("/var/lib/containerd/io/theirs", "data");
    place.write("/opt/cni/bin/theirs", "program");
    let mut client = place.locked().await;
    client.ask(cluster_id()).await.unwrap();
    let config = "/etc/containerd/config.toml";
    client.ask(written(config, "# Written by hactl.\n")).await.unwrap();
    place.write("/var/lib/containerd/io/ours", "data");
    std::os::unix::fs::symlink("/var/lib/hactl/parts/0/bridge", place.at("/opt/cni/bin/bridge")).unwrap();
    place.write("/var/lib/kubelet/pods/x", "data");
    place.write("/etc/kubernetes/pki/sa.key", "key");
    // An identity of a later stage is written on a host that hactl uses already.
    client.ask(cluster_id()).await.unwrap();
    let remove = [config, "/etc/containerd", "/etc/kubernetes", "/opt/cni/bin"];
    let data = ["/var/lib/containerd", "/var/lib/kubelet"];
    for stays in [true, false] {
        client.ask(deleting(&remove, &data, stays)).await.unwrap();
        assert_eq!(place.list("/etc"), ["containerd/certs.d/own.example/hosts.toml"], "stays: {stays}");
        assert_eq!(place.list("/opt"), ["cni/bin/theirs"], "stays: {stays}");
        let left = place.list("/var/lib");
        let aside: Vec<&String> = left.iter().filter(|path| !path.starts_with("hactl/")).collect();
        assert!(aside.len() == 2 && aside[1].ends_with("/io/theirs"), "{left:?}");
        assert!(aside.iter().all(|path| path.starts_with("containerd.wiped-")), "{left:?}");
    }
    assert_eq!(place.list("/var/lib/hactl"), ["busy", "lock"], "the record goes with the cluster");
    std::fs::remove_dir_all(place.at("/etc/containerd")).unwrap();
    client.ask(cluster_id()).await.unwrap();
    place.write(config, "# Written by hactl.\n");
    client.ask(deleting(&["/etc/containerd"], &[], false)).await.unwrap();
    assert!(!place.at("/etc/containerd").exists(), "the next cluster found nothing there");
}
