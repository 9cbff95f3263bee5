//! The facts of a directory that others write to, from test directories.

use super::folder::{Wanted, find, piece};
use super::*;
use crate::model::blob::SnapshotBlob;
use crate::model::names::Digest;
use crate::model::secret::Secret;
use crate::model::snapshot::{Manifest, Point, Proof, SCHEMA, by_name};
use crate::snapshot::{Recipients, Writer, new_identity, public_of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::time::Instant;

/// A test directory of a host with a share.
struct Share {
    root: tempfile::TempDir,
    to: Recipients,
}

const AT: &str = "/mnt/backup";

impl Share {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join("mnt/backup")).expect("ours");
        let to = Recipients::parse(&public_of(&new_identity()).expect("just made")).expect("a key");
        Self { root, to }
    }
    fn at(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join("mnt/backup").join(name)
    }
    /// A snapshot whose manifest is that of its name, changed by `says`.
    fn with(&self, name: &str, authority: &[u8], says: impl FnOnce(&mut Manifest)) {
        let by = by_name(name).expect("a bundle's name");
        let mut writer = Writer::begin(std::fs::File::create(self.at(name)).expect("ours"), &self.to).expect("room");
        writer.write_all(&[7; 1000]).expect("room");
        let state = self.to.text(&Secret::new("keys".to_owned())).expect("memory");
        let manifest = |sealed, state| {
            let digest = Digest::of(b"snapshot");
            let mut manifest = Manifest {
                schema: SCHEMA,
                cluster: by.cluster.parse().expect("a name"),
                authority: Digest::of(authority),
                host: by.host.parse().expect("a name"),
                taken_ms: by.taken_ms,
                point: Point { cluster: "c".into(), term: 2, index: 3, revision: 4, high_water: 5 },
                etcd: "3.6.16".into(),
                hactl: "0.1.0".into(),
                snapshot: SnapshotBlob { digest, size: 1000, sent_digest: digest, sent_size: 1000 },
                sealed,
                state,
                proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
            };
            says(&mut manifest);
            manifest
        };
        writer.end(&state, None, manifest).expect("room");
    }
    fn put(&self, name: &str) {
        self.with(name, b"ours", |_| {});
    }
    fn look(&self, wanted: &Wanted) -> CopiesFact {
        find(AT.to_owned(), &self.at(""), wanted)
    }
}

fn wanted() -> Wanted {
    let cluster = "lab".parse().expect("a name");
    Wanted { cluster, authority: Some(Digest::of(b"ours")), named: None, all: false }
}

fn stated(fact: &CopiesFact) -> Vec<&str> {
    fact.copies.iter().map(|copy| copy.bundle.name.as_str()).collect()
}

/// The snapshot that a host took in this minute of a day.
fn of(host: &str, minute: u32) -> String {
    format!("lab-20261122T06{minute:02}00000Z-{host}.hactl")
}

#[test]
fn the_newest_copies_of_each_host_are_reported_and_the_names_of_all_others_on_request() {
    let share = Share::new();
    let (many, few) = ((0..8).map(|minute| of("cp1", minute)), (0..2).map(|minute| of("cp2", minute)));
    many.chain(few).for_each(|name| share.put(&name));
    let fact = share.look(&wanted());
    let newest = [("cp1", 7), ("cp1", 6), ("cp1", 5), ("cp1", 4), ("cp2", 1), ("cp2", 0)].map(|(h, m)| of(h, m));
    assert_eq!(stated(&fact), newest);
    assert_eq!((fact.others.len(), &fact.damaged, &fact.trouble), (0, &vec![], &None));
    let fact = share.look(&Wanted { all: true, named: Some(of("cp1", 1)), ..wanted() });
    assert_eq!(stated(&fact).len(), 6, "{fact:?}");
    assert!(stated(&fact).contains(&of("cp1", 1).as_str()), "the named one is read");
    let others: Vec<&str> = fact.others.iter().map(|other| other.name.as_str()).collect();
    assert_eq!(others, [of("cp1", 4), of("cp1", 3), of("cp1", 2), of("cp1", 0)]);
}

#[test]
fn copies_of_other_clusters_in_the_same_directory_are_ignored_in_any_number() {
    let share = Share::new();
    share.put(&of("cp1", 0));
    (1..20).for_each(|minute| share.with(&of("cp1", minute), b"theirs", |_| {}));
    share.put("other-20261122T060000000Z-cp1.hactl");
    std::fs::write(share.at("notes.txt"), "not ours").expect("ours");
    std::fs::write(share.at("old.hactl"), "renamed by somebody").expect("ours");
    assert_eq!(
        share.look(&wanted()),
        CopiesFact { copies: share.look(&wanted()).copies, directory: AT.into(), ..CopiesFact::default() }
    );
    assert_eq!(stated(&share.look(&wanted())), [of("cp1", 0)]);
    let anyone = share.look(&Wanted { authority: None, ..wanted() });
    assert_eq!(stated(&anyone).len(), 4, "without a state both are reported");
}

#[test]
fn damaged_or_misnamed_copies_are_left_out_with_a_reason_and_the_next_one_is_reported() {
    let share = Share::new();
    share.put(&of("cp1", 0));
    share.put(&of("cp1", 1));
    let whole = std::fs::read(share.at(&of("cp1", 1))).expect("it is there");
    std::fs::write(share.at(&of("cp1", 1)), &whole[..whole.len() - 1]).expect("ours");
    share.with(&of("cp1", 2), b"ours", |manifest| manifest.taken_ms += 1);
    share.with(&of("cp1", 3), b"ours", |manifest| manifest.host = "cp9".parse().expect("a name"));
    share.with(&of("cp1", 4), b"ours", |manifest| manifest.point.high_water = i64::MAX);
    share.with(&of("cp1", 5), b"ours", |manifest| manifest.cluster = "other".parse().expect("a name"));
    let fact = share.look(&wanted());
    assert_eq!(stated(&fact), [of("cp1", 0)]);
    assert_eq!(fact.damaged.iter().filter(|why| why.ends_with("does not match its name")).count(), 4, "{fact:?}");
    assert!(
        fact.damaged
            .iter()
            .any(|why| why.starts_with(&format!("{AT}/{}", of("cp1", 1))) && why.contains("is not complete"))
    );
    (10..40).for_each(|minute| std::fs::write(share.at(&of("cp3", minute)), "rubbish").expect("ours"));
    let fact = share.look(&wanted());
    assert_eq!((stated(&fact).len(), fact.damaged.len()), (1, 9));
    assert!(fact.damaged[8].contains("27 more files"), "{:?}", fact.damaged);
}

#[test]
fn no_link_is_followed_and_no_pipe_is_waited_for() {
    let share = Share::new();
    let elsewhere = share.root.path().join("secret");
    share.put(&of("cp1", 0));
    std::fs::rename(share.at(&of("cp1", 0)), &elsewhere).expect("ours");
    symlink(&elsewhere, share.at(&of("cp1", 1))).expect("ours");
    rustix::fs::mknodat(rustix::fs::CWD, share.at(&of("cp1", 2)), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("ours");
    std::fs::create_dir(share.at(&of("cp1", 3))).expect("ours");
    let fact = share.look(&Wanted { all: true, ..wanted() });
    assert_eq!((stated(&fact), fact.others.len()), (vec![], 0));
    assert_eq!(fact.damaged.iter().filter(|why| why.ends_with("is not a regular file")).count(), 3, "{fact:?}");
    for name in [of("cp1", 1), of("cp1", 2), of("cp1", 3), "../secret".to_owned(), "x".to_owned()] {
        assert!(piece(&share.at(""), &name, 0).is_err(), "{name}");
    }
}

#[test]
fn a_copy_is_read_piece_by_piece_without_changes() {
    let share = Share::new();
    share.put(&of("cp1", 0));
    let whole = std::fs::read(share.at(&of("cp1", 0))).expect("it is there");
    let read = |from: u64| {
        STANDARD.decode(piece(&share.at(""), &of("cp1", 0), from).expect("it can be read")).expect("base64")
    };
    assert_eq!((read(0), read(10)), (whole.clone(), whole[10..].to_vec()));
    assert!(read(whole.len() as u64).is_empty());
}

#[tokio::test]
async fn each_directory_is_read_independently_and_a_missing_one_is_reported() {
    let share = Share::new();
    share.put(&of("cp1", 0));
    let host = Host::new(Root::at(share.root.path()));
    let ask = |directories: &[&str]| CopiesAsk::Find {
        cluster: "lab".parse().expect("a name"),
        authority: None,
        named: None,
        all: false,
        directories: directories.iter().map(|d| (*d).to_owned()).collect(),
    };
    let Ok(Reply::Copies(found)) = copies(&host, ask(&["/srv", AT, "/mnt/../etc"])).await else { panic!("an answer") };
    assert_eq!(found[0].trouble.as_deref(), Some("/srv does not exist; check that it is mounted"));
    assert_eq!((stated(&found[1]), &found[1].trouble), (vec![of("cp1", 0).as_str()], &None));
    assert!(found[2].trouble.as_ref().is_some_and(|why| why.contains("is not a plain absolute path")), "{found:?}");
    let refused = copies(&host, ask(&[AT; MOST_DIRECTORIES + 1])).await;
    assert!(matches!(refused, Err(OpError { kind: OpErrorKind::BadRequest, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_share_that_does_not_answer_costs_its_deadline_and_says_so() {
    let begun = Instant::now();
    let fault = asked(&["sleep", "60"], Duration::from_millis(300)).await.expect_err("nobody answers");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(silence(AT, fault, FOUND_WITHIN), "/mnt/backup has not answered within 10 s");
    let fault =
        asked(&["sh", "-c", "echo it is on fire >&2; exit 1"], Duration::from_secs(5)).await.expect_err("it fails");
    assert_eq!(silence(AT, fault, FOUND_WITHIN), "/mnt/backup: it is on fire");
    assert!(asked(&["echo", "{}"], Duration::from_secs(5)).await.is_err());
}
