//! The state on the disk of a member, and what it forbids.

use super::*;
use crate::model::facts::EtcdFact;
use crate::protocol::{EtcdAsk, FirstBoot, MemberStart, ObserveAsk, OpErrorKind, RestoreAsk, RestoreFrom};

const DATA: &str = "/var/lib/etcd";

fn start(token: Option<&str>) -> Op {
    let members = vec![("cp1".to_owned(), "https://10.0.0.1:2380".parse().unwrap())];
    let first = Some(FirstBoot { token: token.map(ToOwned::to_owned), members });
    let unit = "hactl-test-that-does-not-exist.service".parse().unwrap();
    Op::StartMember(MemberStart {
        unit,
        data_dir: DATA.to_owned(),
        first_boot: "/etc/etcd/first-boot".to_owned(),
        first,
    })
}

fn seal(cluster: &str) -> Op {
    Op::Seal { data_dir: DATA.to_owned(), cluster: cluster.to_owned() }
}

/// A member that does not exist.
fn member() -> EtcdAsk {
    let nowhere = "/nowhere".to_owned();
    EtcdAsk {
        url: "https://127.0.0.1:1".to_owned(),
        data_dir: DATA.to_owned(),
        ca: nowhere.clone(),
        cert: nowhere.clone(),
        key: nowhere,
    }
}

async fn look(client: &mut Client) -> EtcdFact {
    let ask = ObserveAsk { etcd: Some(member()), ..ObserveAsk::default() };
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::new(ask))).await.unwrap() else { panic!() };
    facts.etcd.unwrap()
}

/// A host with etcd's user.
fn host() -> Place {
    let place = Place::new();
    place.write("/etc/passwd", format!("etcd:x:{}:{}::/:/bin/false\n", me(), rustix::process::getegid().as_raw()));
    place
}

#[tokio::test]
async fn data_in_the_directory_of_the_settings_is_reported_if_another_one_is_requested() {
    let place = host();
    place.write("/etc/etcd/etcd.env", "# Written by hactl.\nETCD_NAME=cp1\nETCD_DATA_DIR=/srv/etcd\n");
    let mut client = place.locked().await;
    assert_eq!(look(&mut client).await.elsewhere, None, "there is no data yet");
    place.write("/srv/etcd/member/wal/0", "x");
    let fact = look(&mut client).await;
    assert_eq!((fact.data, fact.elsewhere.as_deref()), (false, Some("/srv/etcd")));
    // Moved manually to the requested directory.
    std::fs::create_dir_all(place.at(DATA)).unwrap();
    std::fs::rename(place.at("/srv/etcd/member"), place.at("/var/lib/etcd/member")).unwrap();
    let fact = look(&mut client).await;
    assert_eq!((fact.data, fact.elsewhere), (true, None));
}

#[tokio::test]
async fn a_marked_disk_never_bootstraps_again_whatever_is_requested() {
    let place = host();
    place.write("/var/lib/etcd/member/wal/0", "x");
    let mut client = place.locked().await;
    client.ask(seal("cafe")).await.unwrap();
    let fact = look(&mut client).await;
    assert_eq!((fact.data, fact.bootstrapped.as_deref(), fact.token), (true, Some("cafe"), None));
    std::fs::remove_dir_all(place.at("/var/lib/etcd/member")).unwrap();
    let fault = client.ask(start(Some("token-1"))).await.unwrap_err();
    assert!(
        fault.kind == OpErrorKind::BadRequest && fault.what.contains("bootstrapped by etcd cluster cafe"),
        "{fault:?}"
    );
    assert!(!place.at("/etc/etcd/first-boot").exists());
    assert_eq!(client.ask(seal("beef")).await.unwrap_err().kind, OpErrorKind::BadRequest);
}

#[tokio::test]
async fn data_of_another_cluster_is_neither_overwritten_by_a_bootstrap_nor_used_to_join() {
    let place = host();
    place.write("/var/lib/etcd/member/wal/0", "x");
    let mut client = place.locked().await;
    for token in [Some("token-1"), None] {
        let fault = client.ask(start(token)).await.unwrap_err();
        assert!(fault.kind == OpErrorKind::BadRequest && fault.what.contains("move it aside"), "{fault:?}");
    }
    place.write("/var/lib/etcd/hactl-genesis", "token-2");
    assert_eq!(client.ask(start(Some("token-1"))).await.unwrap_err().kind, OpErrorKind::BadRequest);
    assert_eq!(look(&mut client).await.token.as_deref(), Some("token-2"));
}

#[tokio::test]
async fn the_token_is_on_the_disk_before_the_member_starts_and_removed_once_it_is_marked_as_bootstrapped() {
    let place = host();
    let mut client = place.locked().await;
    // The unit does not exist, so the start fails; the files written before it stay.
    client.ask(start(Some("token-1"))).await.unwrap_err();
    assert_eq!(place.read("/var/lib/etcd/hactl-genesis"), "token-1");
    let settings = "ETCD_INITIAL_CLUSTER=cp1=https://10.0.0.1:2380\nETCD_INITIAL_CLUSTER_STATE=new\nETCD_INITIAL_CLUSTER_TOKEN=token-1\n";
    assert_eq!(place.read("/etc/etcd/first-boot"), settings);
    assert_eq!(client.ask(seal("cafe")).await.unwrap_err().kind, OpErrorKind::BadRequest, "nothing to mark yet");
    place.write("/var/lib/etcd/member/wal/0", "x");
    client.ask(seal("cafe")).await.unwrap();
    client.ask(seal("cafe")).await.unwrap();
    let fact = look(&mut client).await;
    assert_eq!((fact.token, fact.bootstrapped.as_deref()), (None, Some("cafe")));
    let settings = "ETCD_INITIAL_CLUSTER=cp1=https://10.0.0.1:2380\nETCD_INITIAL_CLUSTER_STATE=existing\n";
    assert_eq!(place.read("/etc/etcd/first-boot"), settings);
}

#[tokio::test]
async fn a_member_that_is_started_once_more_has_nothing_written_for_it() {
    use std::os::unix::fs::MetadataExt as _;
    let place = host();
    let mut client = place.locked().await;
    client.ask(start(Some("token-1"))).await.unwrap_err();
    let files = ["/var/lib/hactl/first-boot", "/etc/etcd/first-boot", "/var/lib/etcd/hactl-genesis"];
    let written = || files.map(|path| std::fs::metadata(place.at(path)).unwrap().ino());
    let before = written();
    client.ask(start(Some("token-1"))).await.unwrap_err();
    assert_eq!(written(), before, "a full disk has no space for another one");
}

#[tokio::test]
async fn a_member_that_joins_on_a_disk_whose_data_is_gone_is_marked_again_only_with_its_new_data() {
    let place = host();
    let mut client = place.locked().await;
    place.write("/var/lib/etcd/hactl-born", "cafe");
    client.ask(start(None)).await.unwrap_err();
    assert_eq!(
        (place.list("/var/lib/etcd"), look(&mut client).await.bootstrapped),
        (vec!["hactl-join".to_owned()], None)
    );
    place.write("/var/lib/etcd/member/wal/0", "x");
    client.ask(seal("cafe")).await.unwrap();
    // It lost its data again: nothing permits a start on the empty disk.
    std::fs::remove_dir_all(place.at("/var/lib/etcd/member")).unwrap();
    assert_eq!(place.list("/var/lib/etcd"), ["hactl-born"]);
}

#[tokio::test]
async fn an_initial_member_that_never_started_and_then_joins_is_no_longer_an_initial_member() {
    let place = host();
    let mut client = place.locked().await;
    client.ask(start(Some("token-1"))).await.unwrap_err();
    client.ask(start(None)).await.unwrap_err();
    assert_eq!(place.list("/var/lib/etcd"), ["hactl-join"]);
    assert_eq!(look(&mut client).await.token, None);
}

#[tokio::test]
async fn words_that_systemd_would_interpret_never_reach_the_settings() {
    let place = host();
    let mut client = place.locked().await;
    for token in ["a b", "a\nETCD_X=1", "$HOME", "", "a\"b"] {
        assert_eq!(client.ask(start(Some(token))).await.unwrap_err().kind, OpErrorKind::BadRequest, "{token:?}");
    }
    assert_eq!(place.list("/var/lib/etcd"), Vec::<String>::new());
}

#[tokio::test]
async fn data_is_moved_aside_whole_and_only_once_and_never_under_a_running_etcd() {
    let place = host();
    place.write("/var/lib/etcd/member/snap/db", "db");
    place.write("/var/lib/etcd/hactl-born", "cafe");
    let mut client = place.locked().await;
    let op = || Op::ArchiveData(member());
    let running = std::fs::File::open(place.at("/var/lib/etcd/member/snap/db")).unwrap();
    rustix::fs::flock(&running, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(client.ask(op()).await.unwrap_err().what.contains("stop it first"));
    drop(running);
    client.ask(op()).await.unwrap();
    client.ask(op()).await.unwrap();
    let left = place.list(DATA);
    assert!(
        left.len() == 2
            && left[0].starts_with("hactl-born.moved-")
            && left[1].strip_suffix("/snap/db").is_some_and(crate::model::recovery::is_aside),
        "{left:?}"
    );
    let fact = look(&mut client).await;
    assert_eq!((fact.data, fact.bootstrapped, fact.view), (false, None, None));
    assert!(fact.trouble.unwrap().contains("/nowhere"));
}

#[tokio::test]
async fn nothing_is_restored_at_an_implausible_revision_and_an_implausible_high_water_mark_is_ignored() {
    use crate::model::blob::SnapshotBlob;
    use crate::model::names::Digest;
    let place = host();
    place.write("/var/lib/etcd/member/wal/0", "x");
    place.write("/var/lib/hactl/high-water", "9223372036854775807\n");
    let mut client = place.locked().await;
    assert_eq!(look(&mut client).await.high_water, None);
    let digest = Digest::of(b"snapshot");
    let snapshot = SnapshotBlob { digest, size: 8, sent_digest: digest, sent_size: 8 };
    let ask = |base| RestoreAsk {
        data_dir: DATA.to_owned(),
        from: RestoreFrom::Snapshot(snapshot),
        token: "recovery1".to_owned(),
        name: "cp1".to_owned(),
        members: vec![("cp1".to_owned(), "https://10.0.0.1:2380".parse().unwrap())],
        base,
    };
    for base in [i64::MAX, -1, 1 << 60] {
        let fault = client.ask(Op::Restore(Box::new(ask(base)))).await.unwrap_err();
        assert!(fault.kind == OpErrorKind::BadRequest && fault.what.contains("no cluster reaches it"), "{fault:?}");
    }
    let missing = client.ask(Op::Restore(Box::new(ask(1_000_000_000)))).await.unwrap_err();
    assert!(!missing.what.contains("no cluster reaches it"), "{missing:?}");
    assert!(place.at("/var/lib/etcd/member/wal/0").exists());
}
