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

#[tokio::test]
async fn a_wipe_that_fails_to_remove_the_cluster_id_keeps_the_record_for_the_next_one() {
    let place = Place::new();
    let theirs = "/etc/containerd/certs.d/own.example/hosts.toml";
    place.write(theirs, "server = \"https://own.example\"\n");
    let mut client = place.locked().await;
    client.ask(cluster_id()).await.unwrap();
    let wiping = || deleting(&["/etc/containerd"], &[], false);
    // A directory cannot be removed like a file.
    let id = place.at("/var/lib/hactl/cluster.json");
    std::fs::remove_file(&id).unwrap();
    std::fs::create_dir(&id).unwrap();
    client.ask(wiping()).await.unwrap_err();
    std::fs::remove_dir(&id).unwrap();
    client.ask(wiping()).await.unwrap();
    assert!(place.at(theirs).exists());
}

#[tokio::test]
async fn what_is_in_a_data_directory_after_that_of_others_was_moved_aside_is_deleted() {
    let place = Place::new();
    place.write("/var/lib/containerd/io/theirs", "data");
    place.write("/var/lib/kubelet/pods/theirs", "data");
    let mut client = place.locked().await;
    client.ask(cluster_id()).await.unwrap();
    client.ask(deleting(&[], &["/var/lib/containerd"], true)).await.unwrap();
    place.write("/var/lib/containerd/io/ours", "data");
    client.ask(deleting(&[], &["/var/lib/containerd", "/var/lib/kubelet"], false)).await.unwrap();
    let left: Vec<String> = place.list("/var/lib").into_iter().filter(|path| !path.starts_with("hactl/")).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].starts_with("containerd.wiped-") && left[0].ends_with("/io/theirs"), "{left:?}");
    assert!(left[1].starts_with("kubelet.wiped-") && left[1].ends_with("/pods/theirs"), "{left:?}");
}

#[tokio::test]
async fn of_a_directory_of_others_a_wipe_also_takes_new_content_that_a_loss_of_power_left_beside_a_file() {
    let place = Place::new();
    place.write("/etc/kubernetes/theirs.yaml", "pod");
    let mut client = place.locked().await;
    client.ask(cluster_id()).await.unwrap();
    let key = "/etc/kubernetes/pki/sa.key";
    place.write(key, "key");
    place.write("/etc/kubernetes/pki/.sa.key.hactl-new", "half of a key");
    client.ask(deleting(&[key, "/etc/kubernetes"], &[], false)).await.unwrap();
    assert_eq!(place.list("/etc/kubernetes"), ["theirs.yaml"]);
}
