//! Other systems than Debian 12, which the hosts of all other suites have: clusters on Debian 13, and on hosts of both,
//! are brought up, broken and taken down; Debian 11 is refused.

use super::shapes::up_from_bare;
use super::{Scenario, World, cluster, failures};
use hactl::lab::{Base, Spec};

const NEW: &[Base] = &[Base::Debian13; 3];
const MIXED: &[Base] = &[Base::Debian12, Base::Debian13, Base::Debian12];
const OLD: &[Base] = &[Base::Debian11];

const ON_NEW: [Scenario; 4] = life(|w| from_bare(w, NEW));
const ON_MIXED: [Scenario; 4] = life(|w| from_bare(w, MIXED));
const ON_OLD: [Scenario; 1] =
    [scenario("Debian 11: up names its old systemd, and changes neither packages nor files of /etc", refused)];

/// Each lab, the systems of its hosts, and its scenarios.
pub const SYSTEMS: &[(&str, &[Base], &[Scenario])] =
    &[("t-debian-13", NEW, &ON_NEW), ("t-mixed", MIXED, &ON_MIXED), ("t-debian-11", OLD, &ON_OLD)];

const fn life(begin: fn(&World)) -> [Scenario; 4] {
    [
        scenario("other systems: up turns three bare hosts into a healthy cluster", begin),
        scenario("other systems: a host that loses power under writes recovers automatically", failures::one_host),
        scenario("other systems: up brings back a host that lost its disks", failures::wiped),
        scenario("other systems: down --wipe leaves bare hosts that can become a cluster again", cluster::down_and_up),
    ]
}

const fn scenario(name: &'static str, run: fn(&World)) -> Scenario {
    Scenario { name, cut: false, run }
}

/// Control-plane hosts with these systems.
pub fn world(lab: &str, bases: &[Base]) -> World {
    let mut spec = Spec::new(lab).hosts(bases.len(), 0, 0);
    for (host, base) in spec.hosts.iter_mut().zip(bases) {
        host.base = *base;
    }
    World::of(&spec)
}

/// Checks that each host runs the system that was asked for.
fn run_these(w: &World, bases: &[Base]) {
    let runs = |host: &str| w.on(host, ". /etc/os-release; printf %s \"$ID-$VERSION_ID\"");
    let running: Vec<String> = w.lab.hosts().map(runs).collect();
    assert_eq!(running, bases.iter().map(|base| base.word()).collect::<Vec<_>>());
}

fn from_bare(w: &World, bases: &[Base]) {
    run_these(w, bases);
    up_from_bare(w);
}

/// The files below `/etc`, and the packages.
const STATE: &str = "sudo find /etc -type f -exec md5sum {} + | sort; dpkg-query -W";

fn refused(w: &World) {
    run_these(w, OLD);
    let before = w.on("cp1", STATE);
    assert!(before.contains(" /etc/passwd\n") && before.contains("\nsystemd\t247"), "{before}");
    let ran = w.hactl.up().exits(3).says("Nothing was changed");
    ran.says("cp1: its systemd is version 247; hactl needs 248 or later").says("[systemd]");
    assert_eq!(w.on("cp1", STATE), before);
}
