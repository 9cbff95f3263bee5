//! Real etcd: a database that hactl makes that of a new cluster is the one that etcd's own tool makes, and etcd serves
//! it. `cargo test --test etcd`; needs the components.

#![allow(clippy::print_stdout, clippy::type_complexity, reason = "a suite without a harness prints what it ran")]
#![allow(clippy::unwrap_used)]

mod bolt;
mod member;
#[path = "../support/scenarios.rs"]
mod scenarios;
#[path = "../support/served.rs"]
mod served;

use hactl::etcd::disk::{self, Identity};
use member::{Member, Programs, peer};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Far above every revision here.
const BASE: i64 = 1_000_000;
/// etcd commits its transactions every 100 ms.
const COMMITTED: Duration = Duration::from_millis(500);

struct World {
    root: tempfile::TempDir,
    /// The folder into which the components of the default version are built.
    dist: PathBuf,
}

impl World {
    fn new() -> Self {
        let dist = hactl::component::default_store().with_file_name("dist");
        Self { root: tempfile::tempdir().unwrap(), dist: std::env::var_os("DIST").map_or(dist, PathBuf::from) }
    }
    fn programs(&self, of: &str) -> PathBuf {
        self.dist.with_file_name(of).join("bin")
    }
    /// A folder of its own.
    fn folder(&self) -> PathBuf {
        tempfile::tempdir_in(self.root.path()).unwrap().keep()
    }
}

/// Numbers that look random, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Writes, overwrites and deletes so many keys, in transactions.
fn write(member: &Member<'_>, numbers: &mut Numbers, keys: u64) {
    let mut left = keys;
    while left > 0 {
        let many = left.min(100);
        let mut puts = String::new();
        for key in 0..many {
            // The last digits make the keys of a transaction different.
            let size = usize::try_from(numbers.below(900)).unwrap();
            puts += &format!("put k{}-{key:02} {}\n", numbers.below(30), "x".repeat(size + 1));
        }
        member.ctl(&["txn"], &format!("\n{puts}\n\n")).unwrap();
        if numbers.below(4) == 0 {
            member.ctl(&["del", "--prefix", &format!("k{}-", numbers.below(30))], "").unwrap();
        }
        left -= many;
    }
}

/// Writes into other buckets, a value that takes many pages, a compaction, and a deletion at the end.
fn decorate(member: &Member<'_>) {
    member.ctl(&["member", "add", "short", "--learner", &format!("--peer-urls={}", peer())], "").unwrap();
    member.ctl(&["member", "remove", &member.learner()], "").unwrap();
    member.ctl(&["role", "add", "reader"], "").unwrap();
    member.ctl(&["user", "add", "somebody:secret"], "").unwrap();
    let said = member.ctl(&["lease", "grant", "3600"], "").unwrap();
    member.ctl(&["put", "leased", "value", &format!("--lease={}", said.split(' ').nth(1).unwrap())], "").unwrap();
    member.ctl(&["put", "large"], &"y".repeat(300_000)).unwrap();
    let (_, revision) = member.keys();
    member.ctl(&["compact", &(revision - 2).to_string()], "").unwrap();
    member.ctl(&["put", "gone", "value"], "").unwrap();
    member.ctl(&["del", "gone"], "").unwrap();
}

/// Makes a database that of a new cluster, as hactl does; the data directory. It must be what etcd's tool makes of the
/// whole database.
fn rewritten(programs: Programs<'_>, database: &Path, name: &str, members: &[(&str, &str)]) -> PathBuf {
    let beside = |what: &str| database.with_extension(what);
    let (seed, official, ours) = (beside("seed"), beside("official"), beside("ours"));
    let bump = BASE - disk::revision(database).unwrap();
    programs.restore((database, &official), name, members, bump);
    fs::write(&seed, disk::seed(database).unwrap()).unwrap();
    programs.restore((&seed, &ours), name, members, bump);
    let into = ours.join("member/snap/db");
    let identity = Identity::of(&into).unwrap();
    fs::copy(database, &into).unwrap();
    identity.write(&File::options().read(true).write(true).open(&into).unwrap(), &into).unwrap();

    let (expected, found) = (bolt::content(&official.join("member/snap/db")), bolt::content(&into));
    for (bucket, content) in &expected {
        assert!(found.get(bucket) == Some(content), "bucket {bucket} is as etcd's tool makes it");
    }
    assert_eq!(expected.len(), found.len());
    ours
}

fn every_database(world: &World, of: &str) {
    let programs = world.programs(of);
    let programs = Programs(&programs);
    let numbers = &mut Numbers(1);
    for keys in [0, 1, 40, 400, 9000] {
        let (folder, own) = (world.folder(), peer());
        let member = Member::start(programs, &folder.join("data"), "old", &[("old", &own)], "new");
        write(&member, numbers, keys);
        if keys > 40 {
            decorate(&member);
        }
        std::thread::sleep(COMMITTED);
        let database = member.killed(&folder.join("db"));
        let bytes = fs::metadata(&database).unwrap().len();
        println!("        {keys} keys, revision {}, {bytes} bytes", disk::revision(&database).unwrap());
        rewritten(programs, &database, "cp2", &[("cp1", &peer()), ("cp2", &peer()), ("cp3", &peer())]);
    }
}

fn served_again(world: &World, of: &str) {
    let programs = world.programs(of);
    let programs = Programs(&programs);
    let (folder, own) = (world.folder(), peer());
    let member = Member::start(programs, &folder.join("data"), "old", &[("old", &own)], "new");
    write(&member, &mut Numbers(2), 2000);
    decorate(&member);
    let (before, revision) = member.keys();
    std::thread::sleep(COMMITTED);
    let database = member.killed(&folder.join("db"));

    let (first, second) = (peer(), peer());
    let members = [("cp1", first.as_str())];
    let data = rewritten(programs, &database, "cp1", &members);
    let member = Member::start(programs, &data, "cp1", &members, "new");
    assert_eq!(member.keys(), (before.clone(), BASE), "all keys are there, and the revision is the one asked for");
    assert_eq!(member.members(), [("cp1".to_owned(), first.clone())]);
    let error = member.ctl(&["get", "large", &format!("--rev={revision}")], "").unwrap_err();
    assert!(error.contains("compacted"), "{error}");
    member.ctl(&["put", "after", "value"], "").unwrap();
    assert_eq!(member.keys().1, BASE + 1);

    member.ctl(&["member", "add", "cp2", "--learner", &format!("--peer-urls={second}")], "").unwrap();
    let both = [members[0], ("cp2", second.as_str())];
    let learner = Member::start(programs, &folder.join("second"), "cp2", &both, "existing");
    member.until(&["member", "promote", &member.learner()]);
    assert_eq!(learner.keys(), member.keys());

    // With all that a member does to its database.
    write(&member, &mut Numbers(3), 2000);
    let last = member.keys().1;
    member.ctl(&["compact", &last.to_string()], "").unwrap();
    member.ctl(&["defrag"], "").unwrap();
    let keys = member.keys();
    drop((member, learner));
    let member = Member::start(programs, &data, "cp1", &members, "new");
    let _learner = Member::start(programs, &folder.join("second"), "cp2", &both, "existing");
    member.until(&["get", "large"]);
    assert_eq!(member.keys(), keys, "both start again");
}

fn main() {
    let scenarios: &[scenarios::Scenario<World>] = &[
        ("a rewritten database has the buckets and keys that etcd's own tool makes", true, |world| {
            every_database(world, "dist");
        }),
        ("etcd serves a rewritten database, and a second member joins", true, |world| served_again(world, "dist")),
        ("etcd 3.6: a rewritten database has the buckets and keys that etcd's own tool makes", false, |world| {
            every_database(world, "dist-1.34");
        }),
        ("etcd 3.6: it serves a rewritten database, and a second member joins", false, |world| {
            served_again(world, "dist-1.34");
        }),
    ];
    scenarios::run("etcd", World::new(), scenarios);
}
