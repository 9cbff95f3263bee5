//! Drills on a test directory: everything except the etcd that they restore into.

use super::sealing::STATE;
use super::store::SETTINGS;
use super::*;
use crate::model::drill::{DrillOutcome, IDENTITY, LastDrill, OwnDrill, RECORD, Showed};
use crate::model::names::Digest;
use crate::model::secret::Secret;
use crate::model::snapshot::{FOLDER, Keep};
use crate::snapshot::{Bundle, BundleError, Identities, Recipients, new_identity, public_of};
use rustix::fs::{FlockOperation, flock};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// A host with drills enabled, and the identity of the cluster's owners.
struct World {
    at: tempfile::TempDir,
    owners: Secret<String>,
}

/// Settings of a host without recipients.
pub(super) fn settings() -> Settings {
    Settings {
        cluster: "lab".parse().unwrap(),
        authority: Digest::of(b"authority"),
        host: "cp1".parse().unwrap(),
        every_s: 900,
        keep: Keep { last: 3, daily: 0, weekly: 0 },
        recipients: vec![],
        drill: false,
        to: vec![],
        url: "https://127.0.0.1:1".to_owned(),
        data_dir: "/var/lib/etcd".to_owned(),
        ca: String::new(),
        cert: String::new(),
        key: String::new(),
    }
}

impl World {
    fn new() -> Self {
        let world = Self { at: tempfile::tempdir().unwrap(), owners: new_identity() };
        world.queries(true);
        let to = Recipients::parse(&public_of(&world.owners).unwrap()).unwrap();
        world.write(STATE, to.text(&Secret::new("the CA keys".to_owned())).unwrap().as_bytes());
        std::fs::create_dir_all(world.path(FOLDER)).unwrap();
        world
    }
    fn root(&self) -> Root {
        Root::at(self.at.path())
    }
    fn path(&self, path: &str) -> PathBuf {
        self.at.path().join(path.trim_start_matches('/'))
    }
    fn write(&self, path: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        std::fs::write(self.path(path), bytes).unwrap();
    }
    fn settings(&self, drill: bool) -> Settings {
        Settings { recipients: public_of(&self.owners).unwrap(), drill, ..settings() }
    }
    /// Sets whether the inventory enables drills.
    fn queries(&self, drill: bool) {
        self.write(SETTINGS, &serde_json::to_vec(&self.settings(drill)).unwrap());
    }
    /// Makes a snapshot as the host does; its content is not a database of etcd.
    fn takes(&self, settings: Settings, taken_ms: i64) -> Bundle {
        let point = Point { cluster: "c".into(), term: 2, index: 3, revision: 4, high_water: 4 };
        self.takes_at(settings, taken_ms, point)
    }
    fn takes_at(&self, settings: Settings, taken_ms: i64, point: Point) -> Bundle {
        self.write("/work/snapshot.db", &b"registry/pods ".repeat(10_000));
        let name = format!("lab-{}-cp1.{ENDING}", when::file_timestamp(taken_ms).replace('.', ""));
        let about = About {
            settings,
            point,
            etcd: "3.6.16".to_owned(),
            proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
            taken_ms,
        };
        let folder = self.path(FOLDER);
        let sealed = sealed(&self.root(), &self.path("/work/snapshot.db"), &folder, name, about).unwrap();
        Bundle::open(&folder.join(sealed.name)).unwrap()
    }
    /// The same with an identity of the host and now.
    fn bundle(&self) -> Bundle {
        own::made(&self.root()).unwrap();
        self.takes(self.settings(true), when::now_ms())
    }
    fn own(&self) -> Identities {
        own::identity(&self.root()).unwrap().unwrap().0
    }
    async fn holds(&self) -> Outcome<DrillOutcome> {
        hold(&Host::new(self.root())).await
    }
    /// The result of a drill, which is the recorded one.
    async fn shows(&self) -> OwnDrill {
        let DrillOutcome::Held(held, _) = self.holds().await.unwrap() else { panic!("it is held") };
        let fact = fact(&self.root()).unwrap();
        assert_eq!(fact.own_drill.as_ref(), Some(&held), "it is reported");
        assert_eq!(fact.drill, None, "and is not taken for one with the owners' identity");
        let since_ms = own::since_ms(&self.root()).unwrap().filter(|_| held.showed == Showed::SealedBefore);
        let at_ms = since_ms.unwrap_or(held.at_ms);
        let last = LastDrill { identity: "host", outcome: held.showed.outcome(), at_ms };
        assert_eq!(last_drills(&self.root()), [last], "metrics show it");
        assert!(!self.path(FOLDER).join(".drill").exists(), "none of it remains unencrypted");
        held
    }
    fn damage(bundle: &Bundle, at: impl Fn(usize) -> usize) {
        let mut bytes = std::fs::read(bundle.path()).unwrap();
        let at = at(bytes.len());
        bytes[at] ^= 1;
        std::fs::write(bundle.path(), bytes).unwrap();
    }
}

#[test]
fn the_hosts_own_identity_decrypts_the_etcd_data_of_its_snapshots_and_never_the_keys_in_them() {
    let world = World::new();
    let bundle = world.bundle();
    bundle.snapshot(&world.own(), std::io::sink()).unwrap();
    assert!(matches!(bundle.state(&world.own()), Err(BundleError::WrongIdentity(_))));
    let owners = Identities::parse(&world.owners).unwrap();
    bundle.snapshot(&owners, std::io::sink()).unwrap();
    assert_eq!(bundle.state(&owners).unwrap().reveal(), "the CA keys");
    let sealed_for_owners = std::fs::read(world.path(STATE)).unwrap();
    let whole = std::fs::read(bundle.path()).unwrap();
    let carries = whole.windows(sealed_for_owners.len()).any(|part| part == sealed_for_owners);
    assert!(carries, "the state is in it just as it was encrypted for the owners");
}

#[test]
fn snapshots_are_encrypted_for_their_owners_alone_when_drills_are_off() {
    let world = World::new();
    own::made(&world.root()).unwrap();
    let bundle = world.takes(world.settings(false), when::now_ms());
    assert!(matches!(bundle.snapshot(&world.own(), std::io::sink()), Err(BundleError::WrongIdentity(_))));
    bundle.snapshot(&Identities::parse(&world.owners).unwrap(), std::io::sink()).unwrap();
}

#[test]
fn a_removed_identity_does_not_prevent_a_snapshot() {
    let world = World::new();
    let bundle = world.takes(world.settings(true), when::now_ms());
    bundle.snapshot(&Identities::parse(&world.owners).unwrap(), std::io::sink()).unwrap();
}

#[test]
fn only_root_reads_the_identity_which_is_created_once_and_recreated_if_unusable() {
    let world = World::new();
    let before = when::now_ms();
    own::made(&world.root()).unwrap();
    let text = || std::fs::read_to_string(world.path(IDENTITY)).unwrap();
    let first = text();
    assert_eq!(std::fs::metadata(world.path(IDENTITY)).unwrap().permissions().mode() & 0o777, 0o600);
    let since = fact(&world.root()).unwrap().own_identity_ms.unwrap();
    assert!((before..=when::now_ms()).contains(&since), "{since}");
    own::made(&world.root()).unwrap();
    assert_eq!(text(), first);
    world.write(IDENTITY, b"half of a k");
    own::made(&world.root()).unwrap();
    assert!(text() != first && public_of(&Secret::new(text())).is_ok());
}

#[tokio::test]
async fn a_damaged_snapshot_fails_the_drill_wherever_it_is_damaged() {
    for place in [|n: usize| n / 2, |_| 100, |n| n - 200, |n| n - 1] {
        let world = World::new();
        let bundle = world.bundle();
        World::damage(&bundle, place);
        let held = world.shows().await;
        assert_eq!(bundle.path().file_name().unwrap().to_str(), Some(held.bundle.as_str()));
        let Showed::Failed { what, damaged } = held.showed else { panic!("{held:?}") };
        assert!(damaged && what.contains(&held.bundle), "{what}");
    }
}

#[tokio::test]
async fn it_is_the_newest_that_is_restored_and_none_of_another_cluster() {
    let world = World::new();
    let now = when::now_ms();
    own::made(&world.root()).unwrap();
    let old = world.takes(world.settings(true), now - 2000);
    let new = world.takes(world.settings(true), now - 1000);
    let another = Settings { authority: Digest::of(b"another"), ..world.settings(true) };
    world.takes(another, now);
    for bundle in [&old, &new] {
        World::damage(bundle, |n| n / 2);
    }
    let held = world.shows().await;
    assert_eq!(held.taken_ms, now - 1000);
    assert!(matches!(held.showed, Showed::Failed { damaged: true, .. }), "{held:?}");
}

#[tokio::test]
async fn a_snapshot_older_than_the_identity_is_no_failure_until_there_is_a_newer_one() {
    let world = World::new();
    world.takes(world.settings(false), when::now_ms() - 60_000);
    assert_eq!(world.shows().await.showed, Showed::SealedBefore, "there is no identity yet");
    own::made(&world.root()).unwrap();
    assert_eq!(world.shows().await.showed, Showed::SealedBefore);
    world.takes(world.settings(false), when::now_ms());
    let held = world.shows().await;
    let Showed::Failed { what, damaged: false } = &held.showed else { panic!("{held:?}") };
    assert!(what.contains("is not encrypted for this identity"), "{what}");
}

#[tokio::test]
async fn a_restore_that_is_impossible_on_this_host_is_recorded_and_blames_no_snapshot() {
    let world = World::new();
    world.bundle();
    // It is complete and can be decrypted, and is not a database of etcd; this machine need not have etcd.
    let held = world.shows().await;
    assert!(matches!(held.showed, Showed::Failed { damaged: false, .. }), "{held:?}");
}

#[tokio::test]
async fn no_drill_is_held_without_a_snapshot_or_when_drills_are_off() {
    let world = World::new();
    assert_eq!(world.holds().await.unwrap(), DrillOutcome::NoBundle);
    world.bundle();
    world.queries(false);
    assert!(world.holds().await.unwrap_err().what.contains("does not enable"));
    assert!(!world.path(RECORD).exists());
}

#[test]
fn metrics_show_the_last_drill_with_each_identity_or_since_when_the_host_is_to_run_them() {
    let world = World::new();
    assert!(last_drills(&world.root()).is_empty(), "there is no identity yet");
    own::made(&world.root()).unwrap();
    store::drilled(&world.root(), Proof { keys: 1, hash: 2, restored_ms: 3 }).unwrap();
    let fact = fact(&world.root()).unwrap();
    let by_owners = LastDrill { identity: "owners", outcome: "restored", at_ms: fact.drill.unwrap().at_ms };
    let by_host = LastDrill { identity: "host", outcome: "none", at_ms: fact.own_identity_ms.unwrap() };
    assert_eq!(last_drills(&world.root()), [by_owners, by_host]);
    std::fs::remove_file(world.path(IDENTITY)).unwrap();
    std::fs::create_dir(world.path(IDENTITY)).unwrap();
    assert_eq!(last_drills(&world.root()), [by_owners], "the identity cannot be read");
}

#[tokio::test]
async fn a_drill_waits_for_the_snapshot_that_is_being_taken() {
    let world = World::new();
    let folder = File::open(world.path(FOLDER)).unwrap();
    flock(&folder, FlockOperation::LockExclusive).unwrap();
    let mut drill = Box::pin(world.holds());
    assert!(tokio::time::timeout(2 * LOOK_AGAIN, &mut drill).await.is_err(), "another process has the lock");
    world.bundle();
    drop(folder);
    assert!(matches!(drill.await, Ok(DrillOutcome::Held(..))), "and it sees what they took");
}

#[tokio::test]
async fn snapshots_are_copied_to_the_directory_and_expired_or_incomplete_copies_are_removed() {
    let world = World::new();
    let share = world.path("/mnt/backup");
    let settings = Settings { keep: Keep { last: 1, daily: 0, weekly: 0 }, ..world.settings(false) };
    world.write(SETTINGS, &serde_json::to_vec(&settings).unwrap());
    let to = Path::new("/mnt/backup");
    let stated = copies::tend(&world.root(), to, None).await.unwrap_err().what;
    assert!(stated.contains("/mnt/backup: ") && stated.contains("check that it is mounted"), "{stated}");
    assert!(!share.exists(), "a missing directory is not made");
    std::fs::create_dir_all(&share).unwrap();
    let name = |bundle: &Bundle| bundle.path().file_name().unwrap().to_str().unwrap().to_owned();
    let now = when::now_ms();
    let (older, newer) = (world.takes(settings.clone(), now - 5_000), world.takes(settings.clone(), now));
    let others = "lab-20261122T060000000Z-cp2.hactl.new";
    let begun = ["lab-20261122T060000000Z-cp1.hactl.new".to_owned(), others.to_owned()];
    for file in &begun {
        let made = File::create(share.join(file)).unwrap();
        made.set_modified(std::time::SystemTime::now() - Duration::from_secs(2 * 86_400)).unwrap();
    }
    let there = || {
        let mut names: Vec<String> =
            std::fs::read_dir(&share).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    copies::tend(&world.root(), to, Some(&name(&older))).await.unwrap();
    assert_eq!(
        there(),
        [others.to_owned(), name(&older)],
        "its own interrupted copy is deleted, that of another host is not"
    );
    copies::tend(&world.root(), to, Some(&name(&newer))).await.unwrap();
    assert_eq!(there(), [others.to_owned(), name(&newer)]);
    assert_eq!(std::fs::read(share.join(name(&newer))).unwrap(), std::fs::read(newer.path()).unwrap());
    assert!(older.path().exists(), "snapshots on the host are not touched");
    let stated = copies::tend(&world.root(), to, Some("../escape.hactl")).await.unwrap_err().what;
    assert!(stated.contains("is not the name of a snapshot"), "{stated}");
}

#[tokio::test]
async fn retention_keeps_the_newest_snapshots_by_raft_position_and_not_by_clock() {
    let world = World::new();
    let keep = Keep { last: 2, daily: 2, weekly: 0 };
    let settings = Settings { keep, ..world.settings(false) };
    let at = |cluster: &str, revision: i64| Point {
        cluster: cluster.to_owned(),
        term: 2,
        index: u64::try_from(revision).unwrap(),
        revision,
        high_water: revision,
    };
    // Noon of yesterday, so that a few seconds belong to one day.
    let day = 86_400_000;
    let now = when::now_ms() / day * day - day / 2;
    let name = |bundle: &Bundle| bundle.path().file_name().unwrap().to_str().unwrap().to_owned();
    // In the order in which they were taken: by another etcd of this CA, with a clock that was years ahead, and
    // since.
    let of_before = world.takes_at(settings.clone(), now - 3 * day, at("before", 90_000));
    let ahead: Vec<Bundle> =
        (0..4).map(|n| world.takes_at(settings.clone(), now + (900 + n) * day, at("c", 10 + n))).collect();
    let since: Vec<Bundle> =
        (0..3).map(|n| world.takes_at(settings.clone(), now - (3 - n) * 1000, at("c", 20 + n))).collect();
    assert_eq!(store::living(&world.path(FOLDER), &settings).unwrap().as_deref(), Some("c"));
    let gone = store::prune(&world.path(FOLDER), &settings, Some("c"), &BTreeSet::new()).unwrap();
    let left = [&since[2], &since[1], &ahead[3]];
    assert!(left.iter().all(|bundle| bundle.path().exists()), "{gone:?}");
    let mut wanted: Vec<String> = [&of_before, &since[0]].into_iter().chain(&ahead[..3]).map(name).collect();
    wanted.sort();
    assert_eq!(gone, wanted, "one of another day stays, the last one taken that day");
    assert!(store::prune(&world.path(FOLDER), &settings, Some("c"), &BTreeSet::new()).unwrap().is_empty());
}

#[tokio::test]
async fn foreign_files_displace_no_copy_that_the_host_keeps_itself() {
    let world = World::new();
    let share = world.path("/mnt/backup");
    std::fs::create_dir_all(&share).unwrap();
    let settings = Settings { keep: Keep { last: 1, daily: 0, weekly: 0 }, ..world.settings(false) };
    world.write(SETTINGS, &serde_json::to_vec(&settings).unwrap());
    let name = |bundle: &Bundle| bundle.path().file_name().unwrap().to_str().unwrap().to_owned();
    let now = when::now_ms();
    // Another client adds one whose manifest claims that this host took it, much later and at a much higher revision.
    let far = Point { cluster: "c".into(), term: 99, index: 1 << 40, revision: 1 << 40, high_water: 1 << 40 };
    let forged = world.takes_at(settings.clone(), now + 60_000, far);
    std::fs::rename(forged.path(), share.join(name(&forged))).unwrap();
    let own = world.takes(settings, now);
    copies::tend(&world.root(), Path::new("/mnt/backup"), Some(&name(&own))).await.unwrap();
    copies::tend(&world.root(), Path::new("/mnt/backup"), None).await.unwrap();
    assert!(share.join(name(&own)).exists() && own.path().exists());
}
