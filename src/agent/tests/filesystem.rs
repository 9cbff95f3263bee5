//! Writing files, preparing and wiping, on a directory.

use super::*;
use crate::model::target::FileSet;
use crate::protocol::{FilePut, Leftovers, ObserveAsk, OpErrorKind, Preparation, WipeAsk};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn put(path: &str, content: &str) -> FilePut {
    FilePut { path: path.to_owned(), mode: 0o640, owner: me(), content: content.to_owned(), check: None }
}

fn write(files: Vec<FilePut>) -> Op {
    Op::WriteFiles { files, remove: vec![], keep: None }
}

/// Wipes nothing.
fn nothing() -> WipeAsk {
    WipeAsk { units: vec![], remove: vec![], data: vec![], delete: false, vip: None, hand_over: false, stays: false }
}

fn changed(place: &Place, path: &str) -> (i64, i64, u64) {
    let meta = std::fs::metadata(place.at(path)).unwrap();
    (meta.ctime(), meta.ctime_nsec(), meta.ino())
}

#[tokio::test]
async fn a_file_is_written_with_mode_and_its_folders_and_others_are_removed() {
    let place = Place::new();
    place.write("/etc/old", "x");
    let mut client = place.locked().await;
    let op = Op::WriteFiles {
        files: vec![put("/etc/a/b.conf", "one\n")],
        remove: vec!["/etc/old".to_owned(), "/etc/never".to_owned()],
        keep: None,
    };
    client.ask(op).await.unwrap();
    assert_eq!(place.read("/etc/a/b.conf"), "one\n");
    assert_eq!(std::fs::metadata(place.at("/etc/a/b.conf")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(place.list("/etc"), ["a/b.conf"]);
    let ask = ObserveAsk { files: vec!["/etc/a/b.conf".to_owned(), "/etc/never".to_owned()], ..ObserveAsk::default() };
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::new(ask))).await.unwrap() else { panic!() };
    let fact = &facts.files["/etc/a/b.conf"];
    assert_eq!((facts.files.len(), fact.mode, fact.owner.as_str()), (1, 0o640, me().as_str()));
    assert_eq!(fact.digest.hex(), "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806");
    assert!((facts.now_ms - fact.changed_ms).abs() < 60_000);
}

#[tokio::test]
async fn only_files_written_by_hactl_are_reported_from_a_folder() {
    let place = Place::new();
    place.write("/etc/containerd/certs.d/old.example/hosts.toml", "# Written by hactl: where images are\n");
    place.write("/etc/containerd/certs.d/by-hand.example/hosts.toml", "server = \"https://by-hand.example\"\n");
    let mut client = place.locked().await;
    let folders = vec!["/etc/containerd/certs.d".to_owned(), "/etc/not/there".to_owned()];
    let ask = ObserveAsk { folders, ..ObserveAsk::default() };
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::new(ask))).await.unwrap() else { panic!() };
    let stated: Vec<&str> = facts.files.keys().map(String::as_str).collect();
    assert_eq!(stated, ["/etc/containerd/certs.d/old.example/hosts.toml"]);
}

#[tokio::test]
async fn files_of_flannel_are_removed_and_files_of_others_stay() {
    let place = Place::new();
    place.write("/etc/cni/net.d/10-flannel.conflist", "{}");
    place.write("/etc/cni/net.d/05-cilium.conflist", "{}");
    place.write("/etc/tmpfiles.d/hactl.conf", "r /etc/cni/net.d/10-flannel.conflist\n");
    let mut client = place.locked().await;
    for _ in 0..2 {
        client.ask(Op::Sweep(Leftovers::Flannel)).await.unwrap();
        client.ask(Op::Sweep(Leftovers::KubeProxy)).await.unwrap();
        assert_eq!(place.list("/etc"), ["cni/net.d/05-cilium.conflist"]);
    }
}

#[tokio::test]
async fn a_file_that_is_as_it_should_be_is_not_touched() {
    let place = Place::new();
    let mut client = place.locked().await;
    client.ask(write(vec![put("/etc/a", "same")])).await.unwrap();
    let before = changed(&place, "/etc/a");
    client.ask(write(vec![put("/etc/a", "same"), put("/etc/b", "new")])).await.unwrap();
    assert_eq!(changed(&place, "/etc/a"), before);
    client.ask(write(vec![FilePut { mode: 0o600, ..put("/etc/a", "same") }])).await.unwrap();
    assert_ne!(changed(&place, "/etc/a"), before);
}

#[tokio::test]
async fn one_rejected_file_leaves_all_of_them_as_they_were() {
    let place = Place::new();
    let mut client = place.locked().await;
    client.ask(write(vec![put("/etc/a", "old"), put("/etc/b", "old")])).await.unwrap();
    let check =
        ["sh", "-c", "grep -q new \"$0\" && echo \"$0: bad word\" && exit 1", "{}"].map(ToOwned::to_owned).to_vec();
    let files = vec![put("/etc/a", "new"), FilePut { check: Some(check.clone()), ..put("/etc/b", "new") }];
    let fault = client.ask(write(files)).await.unwrap_err();
    assert_eq!(fault.kind, OpErrorKind::Rejected);
    // The output names the file, not its temporary name.
    assert_eq!(fault.tail, [format!("{}: bad word", place.at("/etc/b").display())]);
    assert_eq!((place.read("/etc/a"), place.read("/etc/b")), ("old".to_owned(), "old".to_owned()));
    assert_eq!(place.list("/etc"), ["a", "b"]);
    let check = ["grep", "-q", "fine", "{}"].map(ToOwned::to_owned).to_vec();
    client.ask(write(vec![FilePut { check: Some(check), ..put("/etc/b", "fine") }])).await.unwrap();
    assert_eq!(place.read("/etc/b"), "fine");
}

#[tokio::test]
async fn temporary_files_of_a_killed_run_do_not_matter() {
    let place = Place::new();
    place.write("/etc/.a.hactl-new", "half");
    let mut client = place.locked().await;
    client.ask(write(vec![put("/etc/a", "whole")])).await.unwrap();
    assert_eq!((place.read("/etc/a").as_str(), place.list("/etc").len()), ("whole", 1));
}

#[tokio::test]
async fn paths_that_climb_and_users_that_are_not_there_are_refused() {
    let place = Place::new();
    let mut client = place.locked().await;
    for path in ["etc/a", "/etc/../../a", "", "/", "/a\0b"] {
        assert_eq!(
            client.ask(write(vec![put(path, "x")])).await.unwrap_err().kind,
            OpErrorKind::BadRequest,
            "{path:?}"
        );
    }
    let nobody = FilePut { owner: "nobody-here".to_owned(), ..put("/etc/a", "x") };
    assert!(client.ask(write(vec![put("/etc/b", "x"), nobody])).await.unwrap_err().what.contains("nobody-here"));
    assert_eq!(
        client.ask(write(vec![put("/etc/b", "x"), put("/etc/b", "y")])).await.unwrap_err().kind,
        OpErrorKind::BadRequest
    );
    assert_eq!(place.list("/etc"), Vec::<String>::new());
}

fn preparation() -> Preparation {
    Preparation {
        users: vec![],
        directories: vec![],
        modules: vec![],
        sysctls: BTreeMap::new(),
        swap_off: false,
        openings: None,
    }
}

#[tokio::test]
async fn preparing_makes_directories_and_settings_and_comments_swap_out_once() {
    let place = Place::new();
    let table = "# disks\nUUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n";
    place.write("/etc/fstab", table);
    place.write("/proc/sys/net/ipv4/ip_forward", "0\n");
    std::fs::create_dir_all(place.at("/sys/module/br_netfilter")).unwrap();
    let mut client = place.locked().await;
    let op = || {
        Op::Prepare(Preparation {
            directories: vec![("/var/lib/x".to_owned(), me(), 0o700)],
            modules: vec!["br_netfilter".to_owned()],
            sysctls: BTreeMap::from([("net.ipv4.ip_forward".to_owned(), "1".to_owned())]),
            swap_off: true,
            ..preparation()
        })
    };
    client.ask(op()).await.unwrap();
    client.ask(op()).await.unwrap();
    assert_eq!(std::fs::metadata(place.at("/var/lib/x")).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(place.read("/proc/sys/net/ipv4/ip_forward"), "1");
    let expected =
        "# disks\nUUID=1 / ext4 defaults 0 1\n# hactl: kubelet needs swap to be off\n#UUID=2 none swap sw 0 0\n";
    assert_eq!(place.read("/etc/fstab"), expected);
}

#[tokio::test]
async fn every_kernel_setting_that_cannot_be_set_is_named() {
    let place = Place::new();
    place.write("/proc/sys/vm/another", "0");
    let mut client = place.locked().await;
    let sysctls = BTreeMap::from([("net.a".to_owned(), "1".to_owned()), ("vm.b".to_owned(), "1".to_owned())]);
    let fault = client.ask(Op::Prepare(Preparation { sysctls, ..preparation() })).await.unwrap_err();
    assert!(fault.tail.len() == 2 && fault.what.contains("net.a") && fault.what.contains("vm.b"), "{fault:?}");
    assert_eq!(place.list("/proc/sys"), ["vm/another"]);
    let sysctls = BTreeMap::from([("net/../../etc".to_owned(), "1".to_owned())]);
    assert_eq!(
        client
            .ask(Op::Prepare(Preparation { sysctls, ..preparation() }))
            .await
            .unwrap_err()
            .what
            .matches("not the name")
            .count(),
        1
    );
}

#[tokio::test]
async fn a_wipe_moves_data_aside_and_spares_the_lock_and_can_be_repeated() {
    let place = Place::new();
    place.write("/var/lib/etcd/member/wal", "data");
    place.write("/var/lib/hactl/parts/x/y", "part");
    place.write("/etc/kubernetes/pki/ca.crt", "ca");
    let mut client = place.locked().await;
    let op = |delete| {
        let remove = vec!["/etc/kubernetes".to_owned(), "/var/lib/hactl".to_owned()];
        Op::Wipe(WipeAsk { remove, data: vec!["/var/lib/etcd".to_owned()], delete, ..nothing() })
    };
    client.ask(op(false)).await.unwrap();
    let aside = place.list("/var/lib");
    assert!(aside.iter().any(|p| p.starts_with("etcd.wiped-") && p.ends_with("/member/wal")), "{aside:?}");
    assert!(!place.at("/var/lib/etcd").exists() && !place.at("/etc/kubernetes").exists());
    assert_eq!(place.list("/var/lib/hactl"), ["busy", "lock"]);
    client.ask(op(false)).await.unwrap();
    place.write("/var/lib/etcd/member/wal", "data");
    client.ask(op(true)).await.unwrap();
    assert!(!place.at("/var/lib/etcd").exists());
    assert_eq!(place.list("/var/lib").len(), 3, "archived data stays");
}

#[tokio::test]
async fn the_folder_of_a_units_changes_goes_with_the_last_of_them() {
    let place = Place::new();
    let ours = "/etc/systemd/system/etcd.service.d/10-fence.conf";
    let mut client = place.locked().await;
    for theirs in [true, false] {
        place.write(ours, "[Service]\n");
        let other = "/etc/systemd/system/etcd.service.d/limits.conf";
        if theirs {
            place.write(other, "[Service]\n");
        } else {
            std::fs::remove_file(place.at(other)).unwrap();
        }
        client.ask(Op::Wipe(WipeAsk { remove: vec![ours.to_owned()], ..nothing() })).await.unwrap();
        let left = place.list("/etc/systemd/system");
        assert_eq!(left, if theirs { vec!["etcd.service.d/limits.conf"] } else { vec![] });
        assert_eq!(place.at("/etc/systemd/system/etcd.service.d").exists(), theirs);
    }
}

#[tokio::test]
async fn a_wiped_host_belongs_to_no_cluster_any_more_and_may_be_of_another_one() {
    let place = Place::new();
    place.write("/var/lib/hactl/parts/x/y", "part");
    let mut client = place.locked().await;
    let cluster_id = |name: &str| {
        let ca = crate::model::names::Digest::new([7; 32]);
        Op::WriteClusterId(crate::model::facts::ClusterId {
            cluster: name.parse().unwrap(),
            ca,
            stages: 0,
            host: None,
            machine: None,
        })
    };
    client.ask(cluster_id("lab")).await.unwrap();
    client.ask(Op::Wipe(nothing())).await.unwrap();
    assert_eq!(place.list("/var/lib/hactl"), ["busy", "lock", "parts/x/y"]);
    client.ask(cluster_id("other")).await.unwrap();
}

#[tokio::test]
async fn a_host_that_is_no_longer_a_node_stays_in_its_cluster_and_its_archived_files_hold_no_key() {
    let place = Place::new();
    place.write("/var/lib/kubelet/pki/kubelet-client-current.pem", "key");
    place.write("/var/lib/kubelet/pods/x/data", "data");
    let mut client = place.locked().await;
    let ca = crate::model::names::Digest::new([7; 32]);
    let cluster_id =
        crate::model::facts::ClusterId { cluster: "lab".parse().unwrap(), ca, stages: 0, host: None, machine: None };
    client.ask(Op::WriteClusterId(cluster_id.clone())).await.unwrap();
    for _ in 0..2 {
        let (remove, data) = (vec!["/var/lib/kubelet/pki".to_owned()], vec!["/var/lib/kubelet".to_owned()]);
        let ask = WipeAsk { remove, data, stays: true, ..nothing() };
        client.ask(Op::Wipe(ask)).await.unwrap();
    }
    let left: Vec<String> = place.list("/var/lib").into_iter().filter(|path| path.starts_with("kubelet")).collect();
    assert!(left.len() == 1 && left[0].ends_with("/pods/x/data") && left[0].contains(".wiped-"), "{left:?}");
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::default())).await.unwrap() else { panic!() };
    assert_eq!(facts.cluster_id, Some(cluster_id));
}

#[tokio::test]
async fn pods_that_are_to_end_lose_their_manifests_and_the_folder_of_a_removed_change_goes() {
    let place = Place::new();
    let manifests = ["scheduler", "apiserver"].map(|name| format!("/etc/kubernetes/manifests/kube-{name}.yaml"));
    let change = "/etc/systemd/system/keepalived.service.d/50-hactl.conf";
    for path in manifests.iter().map(String::as_str).chain(["/etc/kubernetes/manifests/theirs.yaml"]) {
        place.write(path, "pod");
    }
    place.write(change, "[Service]\n");
    let mut client = place.locked().await;
    for _ in 0..2 {
        client.ask(Op::EndPods { manifests: manifests.to_vec() }).await.unwrap();
        let remove = vec![change.to_owned()];
        client.ask(Op::WriteFiles { files: vec![], remove, keep: None }).await.unwrap();
    }
    assert_eq!(place.list("/etc/kubernetes"), ["manifests/theirs.yaml"], "pods of others stay");
    assert!(!place.at("/etc/systemd/system/keepalived.service.d").exists());
    let outside = client.ask(Op::EndPods { manifests: vec!["../x".to_owned()] }).await.unwrap_err();
    assert_eq!(outside.kind, OpErrorKind::BadRequest);
}

#[tokio::test]
async fn a_wipe_refuses_system_directories() {
    let place = Place::new();
    place.write("/etc/passwd", "");
    let mut client = place.locked().await;
    for path in ["/etc", "/usr", "/var", "/var/lib", "/etc/../usr"] {
        let ask = WipeAsk { remove: vec![path.to_owned()], delete: true, ..nothing() };
        assert_eq!(client.ask(Op::Wipe(ask)).await.unwrap_err().kind, OpErrorKind::BadRequest, "{path}");
    }
    assert!(place.at("/etc/passwd").exists());
}

fn kept(place: &Place) -> Vec<String> {
    place.list("/var/lib/hactl/kept")
}

async fn on_trial(client: &mut Client) -> Vec<FileSet> {
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::default())).await.unwrap() else { panic!() };
    facts.on_trial.into_iter().collect()
}

#[tokio::test]
async fn a_rollback_restores_replaced_files_and_removes_new_ones() {
    let place = Place::new();
    place.write("/etc/a.conf", "first\n");
    std::fs::set_permissions(place.at("/etc/a.conf"), std::fs::Permissions::from_mode(0o600)).unwrap();
    place.write("/etc/stray.conf", "stray\n");
    let mut client = place.locked().await;
    let keep = Some(FileSet::Kubelet);
    let files = vec![put("/etc/a.conf", "second\n"), put("/etc/new.conf", "new\n")];
    client.ask(Op::WriteFiles { files, remove: vec!["/etc/stray.conf".to_owned()], keep }).await.unwrap();
    assert_eq!(place.list("/etc"), ["a.conf", "new.conf"]);
    assert_eq!(on_trial(&mut client).await, [FileSet::Kubelet]);
    let mode = std::fs::metadata(place.at("/var/lib/hactl/kept/kubelet.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it may hold keys");
    // The file in between has not passed its trial.
    let files = vec![put("/etc/a.conf", "third\n")];
    client.ask(Op::WriteFiles { files, remove: vec![], keep }).await.unwrap();
    client.ask(Op::RollBack { sets: vec![FileSet::Kubelet, FileSet::Etcd] }).await.unwrap();
    assert_eq!(
        (place.list("/etc"), place.read("/etc/a.conf").as_str()),
        (vec!["a.conf".to_owned(), "stray.conf".to_owned()], "first\n")
    );
    assert_eq!(std::fs::metadata(place.at("/etc/a.conf")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(kept(&place).is_empty() && on_trial(&mut client).await.is_empty());
    let again = client.ask(Op::RollBack { sets: vec![FileSet::Kubelet] }).await.unwrap_err();
    assert_eq!(again.kind, OpErrorKind::BadRequest, "{}", again.what);
}

#[tokio::test]
async fn accepted_files_are_the_next_rollback_target_and_unchanged_files_are_not_kept() {
    let place = Place::new();
    place.write("/etc/a.conf", "first\n");
    let mut client = place.locked().await;
    let keep = Some(FileSet::ControlPlane);
    client.ask(Op::WriteFiles { files: vec![put("/etc/a.conf", "second\n")], remove: vec![], keep }).await.unwrap();
    client.ask(Op::Accept { sets: vec![FileSet::ControlPlane, FileSet::Runtime] }).await.unwrap();
    assert!(kept(&place).is_empty());
    client.ask(Op::WriteFiles { files: vec![put("/etc/a.conf", "third\n")], remove: vec![], keep }).await.unwrap();
    client.ask(Op::RollBack { sets: vec![FileSet::ControlPlane] }).await.unwrap();
    assert_eq!(place.read("/etc/a.conf"), "second\n");
}

#[tokio::test]
async fn texts_of_existing_text_files_are_reported() {
    let place = Place::new();
    place.write("/etc/a.conf", "one\n");
    std::fs::write(place.at("/etc/b.bin"), [0xff, 0xfe]).unwrap();
    place.write("/etc/c.conf", "x".repeat(300 << 10));
    std::os::unix::fs::symlink(place.at("/etc/a.conf"), place.at("/etc/d.conf")).unwrap();
    let mut client = place.locked().await;
    let paths = ["/etc/a.conf", "/etc/b.bin", "/etc/c.conf", "/etc/d.conf", "/etc/none"].map(str::to_owned).to_vec();
    let Reply::Texts(texts) = client.ask(Op::ReadFiles { paths }).await.unwrap() else { panic!("texts") };
    assert_eq!(texts, [("/etc/a.conf".to_owned(), "one\n".to_owned())].into());
    let refused = client.ask(Op::ReadFiles { paths: vec!["/etc/../etc/a.conf".to_owned()] }).await.unwrap_err();
    assert_eq!(refused.kind, OpErrorKind::BadRequest);
}
