//! Parts and snapshots that arrive complete, in two deliveries, damaged, too large, or on a full disk.

use super::*;
use crate::model::blob::SnapshotBlob;
use crate::model::names::Digest;
use crate::model::target::{Part, Place as Becomes};
use crate::protocol::{ObserveAsk, OpErrorKind, SnapshotUse};
use std::os::unix::fs::PermissionsExt;

/// Content that compresses a little and is not the same everywhere.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|i| u8::try_from((i * i / 7 + i / 255) % 251).unwrap()).collect()
}

fn part(content: &[u8]) -> (Part, Vec<u8>) {
    let sent = zstd::encode_all(content, 3).unwrap();
    let part = Part {
        name: "etcd".to_owned(),
        version: "3.6.0".to_owned(),
        digest: Digest::of(content),
        size: content.len() as u64,
        sent_digest: Digest::of(&sent),
        sent_size: sent.len() as u64,
        place: Becomes::Program,
    };
    (part, sent)
}

async fn wanted(client: &mut Client, part: &Part) -> (u64, u64) {
    offered(client, Op::Deliver(part.clone())).await
}

async fn offered(client: &mut Client, delivery: Op) -> (u64, u64) {
    let id = client.send(delivery).await;
    match client.answer(id).await.unwrap() {
        Reply::Wanted { from } => (id, from),
        other => panic!("{other:?}"),
    }
}

async fn deliver(client: &mut Client, part: &Part, sent: &[u8]) -> Result<Reply, OpError> {
    send(client, Op::Deliver(part.clone()), sent).await
}

async fn send(client: &mut Client, delivery: Op, sent: &[u8]) -> Result<Reply, OpError> {
    let (id, from) = offered(client, delivery).await;
    for piece in sent[usize::try_from(from).unwrap()..].chunks(10_000) {
        client.piece(piece).await;
    }
    client.end().await;
    client.answer(id).await
}

async fn is_there(client: &mut Client, part: &Part) -> bool {
    let ask = ObserveAsk { parts: vec![part.clone()], ..ObserveAsk::default() };
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::new(ask))).await.unwrap() else { panic!() };
    facts.blobs.contains(&part.digest)
}

#[tokio::test]
async fn a_part_arrives_is_runnable_and_linked_and_is_not_sent_again() {
    let place = Place::new();
    let mut client = place.locked().await;
    let whole = content(3_000_000);
    let (part, sent) = part(&whole);
    assert!(!is_there(&mut client, &part).await);
    assert!(matches!(deliver(&mut client, &part, &sent).await, Ok(Reply::Done)));
    let path = place.at(&part.path());
    assert!(std::fs::read(&path).unwrap() == whole);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(std::fs::read_link(place.at("/usr/local/bin/etcd")).unwrap().to_str().unwrap(), part.path());
    assert!(is_there(&mut client, &part).await);
    assert!(matches!(client.ask(Op::Deliver(part.clone())).await, Ok(Reply::Done)));
    assert_eq!(place.list("/var/lib/hactl/parts").len(), 2, "content and its note, nothing else");
}

#[tokio::test]
async fn a_delivery_that_was_cut_off_goes_on_where_it_stopped() {
    let place = Place::new();
    let (part, sent) = part(&content(2_000_000));
    let half = sent.len() / 2;
    let mut client = place.locked().await;
    wanted(&mut client, &part).await;
    client.piece(&sent[..half]).await;
    let partial = place.at(&part.path()).with_file_name(format!(".etcd.part-{}", sent.len()));
    timeout(Duration::from_secs(10), async {
        while std::fs::metadata(&partial).map_or(0, |m| m.len()) < half as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the pieces do not reach the disk");
    client.close().await.unwrap();
    let mut client = place.locked().await;
    assert!(!is_there(&mut client, &part).await);
    // The writing thread notices shortly after the end of the session.
    let (id, from) = loop {
        let id = client.send(Op::Deliver(part.clone())).await;
        match client.answer(id).await {
            Ok(Reply::Wanted { from }) => break (id, from),
            Err(fault) if fault.what.contains("already") => tokio::time::sleep(Duration::from_millis(10)).await,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(from, half as u64);
    client.piece(&sent[half..]).await;
    client.end().await;
    assert!(matches!(client.answer(id).await, Ok(Reply::Done)));
    assert!(is_there(&mut client, &part).await);
}

#[tokio::test]
async fn an_image_stays_compressed_and_is_refused_when_a_bit_flips_in_transit_or_on_disk() {
    let place = Place::new();
    let (mut part, sent) = part(&content(300_000));
    part.name = "coredns".to_owned();
    part.place = Becomes::Image { reference: "registry.k8s.io/coredns/coredns:v1.14.6".to_owned() };
    let mut client = place.locked().await;
    let mut damaged = sent.clone();
    damaged[sent.len() / 2] ^= 0x10;
    let fault = deliver(&mut client, &part, &damaged).await.unwrap_err();
    assert_eq!(fault.kind, OpErrorKind::Corrupt, "{fault:?}");
    assert_eq!(place.list("/var/lib/hactl/parts"), Vec::<String>::new());
    assert!(matches!(deliver(&mut client, &part, &sent).await, Ok(Reply::Done)));
    let path = place.at(&part.path());
    assert!(std::fs::read(&path).unwrap() == sent);
    assert!(is_there(&mut client, &part).await);
    std::fs::write(&path, &damaged).unwrap();
    assert!(!is_there(&mut client, &part).await);
}

#[tokio::test]
async fn a_blob_verified_in_an_earlier_boot_without_reaching_the_disk_is_read_again() {
    let place = Place::new();
    let (part, sent) = part(&content(300_000));
    let mut client = place.locked().await;
    assert!(deliver(&mut client, &part, &sent).await.is_ok());
    let note = place.at(&part.path()).with_file_name(".etcd.verified");
    // The delivery's own thread settles it; until then the note names the boot.
    timeout(Duration::from_secs(10), async {
        while std::fs::read_to_string(&note).unwrap().lines().count() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the content never settles");
    let settled = std::fs::read_to_string(&note).unwrap();
    std::fs::write(&note, format!("{settled}another-boot-another-boot-another-boot\n")).unwrap();
    assert!(is_there(&mut client, &part).await, "intact content is found so by reading it");
    assert_eq!(std::fs::read_to_string(&note).unwrap(), settled);
    // A power loss left a file of the right length without its content: the note must not confirm it.
    let path = place.at(&part.path());
    std::fs::write(&path, vec![0; 300_000]).unwrap();
    std::fs::write(&note, format!("{settled}another-boot-another-boot-another-boot\n")).unwrap();
    assert!(!is_there(&mut client, &part).await);
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_corrupt_and_leaves_nothing_behind() {
    let place = Place::new();
    let (part, sent) = part(&content(300_000));
    let mut client = place.locked().await;
    for at in [0, 10, sent.len() / 2, sent.len() - 1] {
        let mut damaged = sent.clone();
        damaged[at] ^= 0x10;
        let fault = deliver(&mut client, &part, &damaged).await.unwrap_err();
        assert_eq!(fault.kind, OpErrorKind::Corrupt, "{fault:?}");
        assert_eq!(place.list("/var/lib/hactl/parts"), Vec::<String>::new());
    }
    // The same session can still receive the good one.
    assert!(deliver(&mut client, &part, &sent).await.is_ok());
}

#[tokio::test]
async fn content_that_is_short_long_or_of_another_part_is_corrupt() {
    let place = Place::new();
    let whole = content(200_000);
    let (part_of_it, sent) = part(&whole);
    let (_, other) = part(&content(200_001)[1..]);
    let mut client = place.locked().await;
    let longer = zstd::encode_all([whole.as_slice(), b"x"].concat().as_slice(), 3).unwrap();
    for bytes in [&sent[..sent.len() - 1], &[], &[sent.as_slice(), b"x"].concat(), &longer, &other] {
        let fault = deliver(&mut client, &part_of_it, bytes).await.unwrap_err();
        assert_eq!(fault.kind, OpErrorKind::Corrupt, "{fault:?}");
        assert!(!place.at(&part_of_it.path()).exists());
    }
}

#[tokio::test]
async fn a_bomb_stops_at_the_announced_size() {
    let place = Place::new();
    let (mut bomb, sent) = part(&vec![0; 64 << 20]);
    bomb.size = 1 << 20;
    let mut client = place.locked().await;
    let fault = deliver(&mut client, &bomb, &sent).await.unwrap_err();
    assert!(fault.kind == OpErrorKind::Corrupt && fault.what.contains("larger"), "{fault:?}");
}

#[tokio::test]
async fn pieces_after_an_early_fault_are_ignored_and_the_next_part_is_fine() {
    let place = Place::new();
    let (part_of_it, sent) = part(&content(500_000));
    let mut client = place.locked().await;
    let (id, _) = wanted(&mut client, &part_of_it).await;
    client.piece(&[0xff; 5000]).await;
    assert_eq!(client.answer(id).await.unwrap_err().kind, OpErrorKind::Corrupt);
    client.piece(&sent[..1000]).await;
    client.end().await;
    assert!(deliver(&mut client, &part_of_it, &sent).await.is_ok());
}

#[tokio::test]
async fn content_that_changed_on_the_disk_is_noticed_and_replaced() {
    let place = Place::new();
    let (part, sent) = part(&content(100_000));
    let mut client = place.locked().await;
    deliver(&mut client, &part, &sent).await.unwrap();
    let path = place.at(&part.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[50_000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(!is_there(&mut client, &part).await);
    deliver(&mut client, &part, &sent).await.unwrap();
    assert!(is_there(&mut client, &part).await);
    std::fs::remove_file(place.at("/usr/local/bin/etcd")).unwrap();
    assert!(!is_there(&mut client, &part).await, "a program without its link is not in its place");
    assert!(matches!(client.ask(Op::Deliver(part.clone())).await, Ok(Reply::Done)), "only the link was missing");
    assert!(is_there(&mut client, &part).await);
}

#[tokio::test]
async fn directories_that_only_root_can_enter_are_opened_without_sending_their_part_again() {
    let place = Place::new();
    let (part, sent) = part(&content(100_000));
    let folders = ["/var/lib/hactl/parts".to_owned(), format!("/var/lib/hactl/parts/{}", part.digest.hex())];
    // As an earlier run under a umask of 077 left them.
    let close = |folder: &String| {
        std::fs::create_dir_all(place.at(folder)).unwrap();
        std::fs::set_permissions(place.at(folder), std::fs::Permissions::from_mode(0o700)).unwrap();
    };
    let mode = |folder: &String| std::fs::metadata(place.at(folder)).unwrap().permissions().mode() & 0o777;
    folders.iter().for_each(close);
    let mut client = place.locked().await;
    deliver(&mut client, &part, &sent).await.unwrap();
    assert!(is_there(&mut client, &part).await);
    assert_eq!(folders.each_ref().map(mode), [0o755; 2]);
    for folder in &folders {
        close(folder);
        assert!(!is_there(&mut client, &part).await, "the user of a unit cannot run it: {folder}");
        assert!(matches!(client.ask(Op::Deliver(part.clone())).await, Ok(Reply::Done)), "only the mode is corrected");
        assert!(is_there(&mut client, &part).await);
        assert_eq!(folders.each_ref().map(mode), [0o755; 2]);
    }
}

#[tokio::test]
async fn names_and_sizes_that_make_no_sense_are_refused() {
    let place = Place::new();
    let (good, _) = part(b"x");
    let mut client = place.locked().await;
    // The last two are components of the other kind, which have no program and no image.
    for name in ["", ".", "..", "../x", "a/b", ".hidden", "a b", "snapshot", "systemctl", "kube-apiserver", "pause"] {
        let bad = Part { name: name.to_owned(), ..good.clone() };
        assert_eq!(client.ask(Op::Deliver(bad)).await.unwrap_err().kind, OpErrorKind::BadRequest, "{name:?}");
    }
    for (size, sent_size) in [(u64::MAX, 1), (1, u64::MAX)] {
        let bad = Part { size, sent_size, ..good.clone() };
        assert_eq!(client.ask(Op::Deliver(bad)).await.unwrap_err().kind, OpErrorKind::BadRequest);
    }
}

/// A snapshot and its compressed form.
fn snapshot(content: &[u8]) -> (SnapshotBlob, Vec<u8>) {
    let (Part { digest, size, sent_digest, sent_size, .. }, sent) = part(content);
    (SnapshotBlob { digest, size, sent_digest, sent_size }, sent)
}

/// Everything on the host but its locks.
fn tree(place: &Place) -> Vec<String> {
    let lock = |path: &str| matches!(path.rsplit('/').next(), Some("lock" | "busy"));
    place.list("/").into_iter().filter(|path| !lock(path)).collect()
}

#[tokio::test]
async fn a_snapshot_becomes_a_file_that_only_root_reads() {
    let place = Place::new();
    let mut client = place.locked().await;
    let (snapshot, sent) = snapshot(b"#!/bin/sh\nexec /usr/bin/systemctl \"$@\"\n");
    for (to, folder) in [(SnapshotUse::Recovery, "incoming"), (SnapshotUse::Check, "checks")] {
        let delivered = send(&mut client, Op::DeliverSnapshot { snapshot, to }, &sent).await;
        assert!(matches!(delivered, Ok(Reply::Done)), "{delivered:?}");
        let at = format!("/var/lib/hactl/{folder}/{}/snapshot", snapshot.digest.hex());
        let mode = |path: &str| std::fs::metadata(place.at(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&at), mode(&format!("/var/lib/hactl/{folder}"))), (0o600, 0o700));
    }
    let elsewhere = |path: &String| {
        !["var/lib/hactl/incoming/", "var/lib/hactl/checks/"].iter().any(|folder| path.starts_with(folder))
    };
    assert_eq!(tree(&place).into_iter().filter(elsewhere).collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test]
async fn a_check_that_fails_or_is_cut_off_leaves_nothing_and_a_recovery_goes_on_where_it_stopped() {
    let place = Place::new();
    let (snapshot, sent) = snapshot(&content(200_000));
    let deliver = |to| Op::DeliverSnapshot { snapshot, to };
    let mut client = place.locked().await;
    let mut damaged = sent.clone();
    damaged[sent.len() / 2] ^= 1;
    assert!(send(&mut client, deliver(SnapshotUse::Check), &damaged).await.is_err());
    assert_eq!(tree(&place), Vec::<String>::new(), "it arrived damaged");
    assert!(send(&mut client, deliver(SnapshotUse::Check), &sent).await.is_ok());
    // It is not a database of etcd, and this machine need not have etcd.
    assert!(client.ask(Op::Rehearse { snapshot, drill: None }).await.is_err());
    assert_eq!(tree(&place), Vec::<String>::new(), "it could not be restored");
    assert!(!place.at("/var/lib/hactl/checks").exists());
    assert!(send(&mut client, deliver(SnapshotUse::Check), &sent).await.is_ok());
    assert!(send(&mut client, deliver(SnapshotUse::Recovery), &sent).await.is_ok());
    client.close().await.unwrap();
    let mut client = place.locked().await;
    assert!(!place.at("/var/lib/hactl/checks").exists(), "the next run clears what the last one left");
    assert!(matches!(client.ask(deliver(SnapshotUse::Recovery)).await, Ok(Reply::Done)), "it is there already");
}
