//! Maintenances that come back with a snapshot.

use super::acting::{TAKEN_OVER, reaches, status};
use super::drains::stands_on;
use super::guard::guarded;
use super::maintain::{HEAL, apply, kubectl, object};
use super::support::wait_for;
use super::{Scenario, World, in_one_line};
use std::time::Duration;

/// On three control-plane hosts.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "maintenances of a snapshot wait after a recovery until a person lets them go on",
    cut: false,
    run: returned,
}];

/// Long enough for a guard to take the Lease and to look at everything that waits.
const ENOUGH: Duration = Duration::from_secs(90);

fn cordoned(w: &World, host: &str) -> bool {
    kubectl(w, &format!("get node {host} -o jsonpath={{.spec.unschedulable}}")).out == "true"
}

fn returned(w: &World) {
    let hactl = guarded(w, "healing: watch");
    stands_on(w, "3");
    hactl.run(&["maintain", "resume"]).ok().says("maintenances wait for nothing");
    hactl.run(&["maintain", "start", "cp3", "--yes", "--reason", "replace sdb"]).ok().says("cp3 is drained");
    apply(w, &object("cp2", "{nodeName: cp2, stage: Drain}")).ok();
    reaches(w, "cp2", "Waiting", TAKEN_OVER);
    let path = w.lab.dir().join("in-maintenance.hactl");
    let path = path.to_str().expect("a path of letters");
    let _ = std::fs::remove_file(path);
    hactl.run(&["snapshot", "take", "--to", path]).ok();
    hactl.run(&["maintain", "cancel", "cp2"]).ok();
    hactl.run(&["maintain", "finish", "cp3"]).ok();
    assert!(!cordoned(w, "cp2") && !cordoned(w, "cp3"));

    hactl.run(&["recover", "--yes", "--undo", "--from", path]).ok();
    hactl.up().ok();
    wait_for("guards say that they wait", TAKEN_OVER, || {
        in_one_line(&hactl.run(&["maintain", "status"])).contains("etcd was recovered, and maintenances wait")
    });
    assert!(cordoned(w, "cp3"), "as in the snapshot");
    std::thread::sleep(ENOUGH);
    assert_eq!(status(w, "cp2", "state"), "Waiting");
    assert!(!cordoned(w, "cp2"));
    hactl.run(&["maintain", "start", "cp1", "--yes"]).exits(3).says("etcd was recovered");
    hactl.run(&["maintain", "cancel", "cp2"]).ok();
    hactl.run(&["maintain", "finish", "cp3"]).ok().says("after hactl maintain resume");
    assert!(cordoned(w, "cp3"));
    hactl.run(&["maintain", "resume"]).ok().says("the guards act on maintenances again");
    wait_for("the host is restored", HEAL, || !cordoned(w, "cp3"));
    assert!(!in_one_line(&hactl.run(&["maintain", "status"]).ok()).contains("recovered"));
    kubectl(w, "delete nmt --all").ok();
    super::guard::asked(w, "").up().ok();
    w.healthy(HEAL);
}
