//! A hundred hosts: a run with nothing to do beside OpenSSH, a first delivery, ansible-core doing the same, and faulty
//! hosts among the others.
//!
//! `cargo test --test bench -- scale`. In: the components, and the right to make namespaces. Out: the table that the
//! documentation shows, and whether every goal was met. The control plane is real, three hosts of a lab; the hundred
//! light hosts beside it have the role spare: they are connected to, locked, observed and prepared like any other and
//! need no systemd.

pub mod carry;
mod fleet;
mod group;
mod openssh;
mod peer;
mod slow;
mod timed;

use fleet::{Fleet, Ill};
use hactl::lab::{Scoped, Silent, Spec};
use openssh::OpenSsh;
use peer::{Peer, count};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use timed::Timed;

/// Light hosts.
const HOSTS: usize = 100;
/// Size of the blob, bytes; it is random, so that compression gains nothing.
const BLOB: usize = 50_000_000;
/// A run with nothing to do ends within this.
const AGAIN: Duration = Duration::from_secs(5);
/// The same by what OpenSSH takes to run `true` on all these hosts.
const OF_OPENSSH: f64 = 1.3;
/// hactl uses at most this much memory, MB.
const MEMORY: f64 = 150.0;
/// Faulty hosts may delay the others by this much, and by a quarter, because two runs on one machine always differ.
const HELD_UP: Duration = Duration::from_secs(4);

/// Collects the table and the missed goals.
struct Verdicts {
    table: Vec<String>,
    missed: Vec<String>,
}

impl Verdicts {
    fn row(&mut self, what: &str, peer: &str, ours: &str, goal: &str) {
        println!("    {what}: {ours}");
        self.table.push(format!("| {what} | {peer} | {ours} | {goal} |"));
    }
    fn goal(&mut self, met: bool, what: String) {
        if !met {
            println!("    MISSED: {what}");
            self.missed.push(what);
        }
    }
}

/// What a run of ours cost, and when each host was done.
struct Went {
    run: Timed,
    ends: BTreeMap<String, Duration>,
}

impl Went {
    /// When the last of these hosts was done.
    fn last_of(&self, hosts: &[String]) -> Duration {
        let end =
            |host: &String| *self.ends.get(host).unwrap_or_else(|| panic!("{host} is not done: {}", self.run.all()));
        hosts.iter().map(end).max().unwrap_or_default()
    }
}

/// Runs everything; returns whether every goal was met.
pub fn main() -> bool {
    let peer = Peer::new();
    let lab = Scoped::up(&Spec::new("b-scale").hosts(3, 0, 0), &Silent).expect("the lab comes up");
    super::support::Hactl::new(lab.inventory()).up().ok();
    println!("a control plane of three is up");
    let work = tempfile::tempdir().expect("a folder can be made");
    let blob = random(&work.path().join("blob"));
    let part = carry::pack(&blob);
    let mut verdicts = Verdicts { table: Vec::new(), missed: Vec::new() };
    let (carried, upped) = well(&lab, &blob, &mut verdicts, &peer);
    ill(&lab, &blob, &carried, &upped, &mut verdicts);
    println!("\n| {HOSTS} hosts beside a control plane of three | the peer | hactl | goal |\n|---|---|---|---|");
    verdicts.table.iter().for_each(|line| println!("{line}"));
    println!("\nthe peer: ansible-core, or OpenSSH that runs `true` on all hosts where there is nothing to do");
    println!("the blob: {} random bytes, {} as sent", part.size, part.sent_size);
    verdicts.missed.iter().for_each(|missed| println!("missed: {missed}"));
    verdicts.missed.is_empty()
}

/// All hosts work: deliver and check again, ours and the peer's; then whole runs of `hactl up`.
fn well(lab: &Scoped, blob: &Path, verdicts: &mut Verdicts, peer: &Peer) -> (Went, Went) {
    let fleet = Fleet::start(HOSTS, &[]);
    let inventory = inventory(lab, &fleet);
    let first = carry_to(&inventory, blob);
    first.delivered(HOSTS);
    let again = carry_to(&inventory, blob);
    again.delivered(0);
    println!("delivered to {HOSTS} hosts, and checked again");
    let joined = up(&inventory);
    let converged = idle(lab, &fleet, &inventory, verdicts);
    let peak = |runs: &[&Went]| runs.iter().map(|w| w.run.peak_mb).fold(0.0, f64::max);
    let delivering = peak(&[&first, &joined]);
    let idle = converged.iter().map(|run| run.peak_mb).fold(again.run.peak_mb, f64::max);
    drop(fleet);

    let fleet = Fleet::start(HOSTS, &[]);
    let their_first = peer.copy(&fleet, blob, HOSTS).exits(0);
    assert_eq!(count(&their_first, "changed"), HOSTS, "{}", their_first.all());
    let their_again = peer.copy(&fleet, blob, HOSTS).exits(0);
    assert_eq!(count(&their_again, "ok"), HOSTS, "{}", their_again.all());
    drop(fleet);

    let ratio = |ours: &Timed, theirs: &Timed| {
        let ratio = ours.took.as_secs_f64() / theirs.took.as_secs_f64();
        format!("{}, {ratio:.2} of the peer's", seconds(ours.took))
    };
    let own = std::fs::metadata(env!("CARGO_BIN_EXE_hactl")).expect("it is there").len() / 1_000_000;
    let what = format!("first delivery of 50 MB, hactl itself ({own} MB) included");
    verdicts.row(&what, &seconds(their_first.took), &ratio(&first.run, &their_first), "-");
    verdicts.row(
        "checking again, nothing to deliver",
        &seconds(their_again.took),
        &ratio(&again.run, &their_again),
        "-",
    );
    let cpu = |run: &Timed| format!("{:.0} s", run.cpu);
    verdicts.row("processor time of the first delivery, here", &cpu(&their_first), &cpu(&first.run), "-");
    let memory = format!("{delivering:.0} MB; {idle:.0} MB with nothing to do");
    verdicts.row("most memory", "-", &memory, "150 MB");
    verdicts.goal(delivering.max(idle) <= MEMORY, memory);
    (first, joined)
}

/// Runs of `hactl up` with nothing to do, and OpenSSH on the same hosts, in turns.
fn idle(lab: &Scoped, fleet: &Fleet, inventory: &Path, verdicts: &mut Verdicts) -> Vec<Timed> {
    let openssh = OpenSsh::new(fleet, lab);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        ours.push(metered(fleet, || up(inventory).run));
        theirs.push(metered(fleet, || openssh.run()));
    }
    for runs in [&mut ours, &mut theirs] {
        runs.sort_by_key(|(run, _)| run.took);
    }
    let ((own, on_hosts), (peer, on_hosts_of_peer)) = (&ours[1], &theirs[1]);
    let ratio = own.took.as_secs_f64() / peer.took.as_secs_f64();
    let (median, slowest) = (seconds(own.took), seconds(ours[2].0.took));
    verdicts.row(
        &format!("`hactl up` with nothing to do on {} hosts, median of 3", openssh.hosts),
        &seconds(peer.took),
        &format!("{median}, {ratio:.2} of the peer's"),
        &format!("{}, {OF_OPENSSH} of the peer's", seconds(AGAIN)),
    );
    verdicts.goal(own.took <= AGAIN, format!("a run with nothing to do took {median}, the slowest {slowest}"));
    verdicts.goal(ratio <= OF_OPENSSH, format!("a run with nothing to do took {ratio:.2} of what OpenSSH takes"));
    let here = |run: &Timed| format!("{:.1} s", run.cpu);
    verdicts.row("its processor time, here", &here(peer), &here(own), "-");
    let there = |used: Option<Duration>| used.map_or("-".to_owned(), seconds);
    let what = format!("its processor time on the {HOSTS} hosts");
    verdicts.row(&what, &there(*on_hosts_of_peer), &there(*on_hosts), "-");
    ours.into_iter().map(|(run, _)| run).collect()
}

/// A run, and the processor time that it took the light hosts.
fn metered(fleet: &Fleet, run: impl FnOnce() -> Timed) -> (Timed, Option<Duration>) {
    let before = fleet.used();
    let run = run();
    // What it started on the hosts ends a moment later.
    std::thread::sleep(Duration::from_secs(1));
    let used = fleet.used().zip(before).map(|(after, before)| after.saturating_sub(before));
    (run, used)
}

/// Some hosts are faulty: the others must be done as if they were not, and each faulty one must be named with its
/// fault.
fn ill(lab: &Scoped, blob: &Path, carried: &Went, upped: &Went, verdicts: &mut Verdicts) {
    let fleet = Fleet::start(HOSTS, &Ill::ALL);
    let inventory = inventory(lab, &fleet);
    let well = fleet.well();
    for (what, before, run) in [
        ("first delivery", carried, carry_to as fn(&Path, &Path) -> Went),
        ("first `hactl up`", upped, |inventory: &Path, _: &Path| up_with(inventory, 1)),
    ] {
        let went = run(&inventory, blob);
        let (without, with) = (before.last_of(&well), went.last_of(&well));
        let row = format!("{what}: the last of the others is done, with faulty hosts and without");
        let ours = format!("{} and {}", seconds(with), seconds(without));
        verdicts.row(&row, "-", &ours, "at most 4 s and a quarter later");
        verdicts.goal(with <= without.mul_f64(1.25) + HELD_UP, format!("{row}: {ours}"));
        println!("    {what}: the whole run took {}", seconds(went.run.took));
        for (ill, words) in [
            (Ill::Dead, "the connection timed out"),
            (Ill::Babbles, "no hactl here"),
            (Ill::Stalls, "could not take the lock"),
        ] {
            let host = fleet.host_with(ill).expect("it has this fault");
            let line = went.run.lines.iter().find(|(_, l)| l.contains(&host) && l.contains(words));
            verdicts.goal(line.is_some(), format!("{what}: {host} is not named with {words:?}"));
        }
        // A host that is only slow is admitted and served in the end.
        let slow = fleet.host_with(Ill::Slow).expect("it has this fault");
        let served = went.ends.get(&slow);
        verdicts.goal(served.is_some_and(|at| *at > with), format!("{what}: {slow} is not served after the others"));
    }
}

/// The lab's inventory with the light hosts in it.
fn inventory(lab: &Scoped, fleet: &Fleet) -> PathBuf {
    let text = std::fs::read_to_string(lab.inventory()).expect("the lab has an inventory");
    let (before, after) = text.split_once("# What containers").expect("the hosts end there");
    let path = lab.dir().join("scale.yaml");
    std::fs::write(&path, format!("{before}{}# What containers{after}", fleet.inventory_lines())).expect("writable");
    path
}

/// `hactl up` on all hosts.
fn up(inventory: &Path) -> Went {
    up_with(inventory, 0)
}

fn up_with(inventory: &Path, code: i32) -> Went {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hactl"));
    command.arg("-i").arg(inventory).args(["-o", "json", "up", "--yes"]);
    let run = Timed::run(&command).exits(code);
    let mut ends = BTreeMap::new();
    for (at, line) in &run.lines {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if let (Some("done"), Some(host)) = (event["event"].as_str(), event["host"].as_str()) {
            ends.insert(host.to_owned(), *at);
        }
    }
    Went { run, ends }
}

/// The library's delivery, in a process of its own.
fn carry_to(inventory: &Path, blob: &Path) -> Went {
    let mut command = Command::new(std::env::current_exe().expect("this program is a file"));
    command.arg("carry").arg(inventory).arg(blob);
    let run = Timed::run(&command).exits(0);
    let mut ends = BTreeMap::new();
    for (at, line) in &run.lines {
        if let Some((_, host)) = line.split_once(" done ") {
            ends.insert(host.to_owned(), *at);
        }
    }
    Went { run, ends }
}

impl Went {
    fn delivered(&self, count: usize) {
        let line = format!("0 delivered {count}");
        assert!(self.run.lines.iter().any(|(_, l)| *l == line), "expected {line:?}: {}", self.run.all());
    }
}

/// A file of [`BLOB`] random bytes.
fn random(path: &Path) -> PathBuf {
    use std::io::Read as _;
    let mut bytes = vec![0; BLOB];
    std::fs::File::open("/dev/urandom").expect("there").read_exact(&mut bytes).expect("endless");
    std::fs::write(path, bytes).expect("writable");
    path.to_owned()
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
