//! What a maintenance leaves on its Node when its object or the Node is gone: nothing, in whatever state it was.

use super::acting::{TAKEN_OVER, complete, reaches, status};
use super::interfered::{BLOCKED, SOON, as_before, bare, blocked, is_free, left, registers};
use super::maintain::{HEAL, apply, is_cordoned, kubectl, object};
use super::reboot::booted;
use super::support::wait_for;
use super::{Scenario, World};
use std::time::{Duration, Instant};

/// On one control-plane host and one worker.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "of a maintenance that is deleted nothing is left on its Node, in whatever state it was",
        cut: false,
        run: deleted,
    },
    Scenario {
        name: "of a maintenance whose finalizer is removed by force nothing is left on its Node",
        cut: false,
        run: forgotten,
    },
    Scenario {
        name: "a Node that is deleted when it is drained, and registers again, is not called drained any more",
        cut: false,
        run: replaced,
    },
];

/// A maintenance reaches a state, is deleted, and is gone with all that it held of its Node; otherwise what is left.
fn goes(w: &World, spec: &str, state: &str) -> Option<String> {
    apply(w, &object("w1", spec)).ok();
    reaches(w, "w1", state, TAKEN_OVER + TAKEN_OVER);
    let took = kubectl(w, "delete nmt w1 --timeout=60s").ok().took;
    println!("        {state}: it was gone after {took:.1?}");
    gone(w, state, SOON)
}

/// The same, and its finalizer is removed while the guard does not run, which goes on by `then`.
fn goes_by_force(w: &World, state: &str, (meanwhile, then): (&str, &str)) -> Option<String> {
    apply(w, &object("w1", BLOCKED)).ok();
    reaches(w, "w1", state, TAKEN_OVER);
    w.on("cp1", &format!("sudo systemctl {meanwhile} hactl-guard"));
    kubectl(w, "delete nmt w1 --wait=false").ok();
    w.hactl.kubectl(&["patch", "nmt", "w1", "--type", "merge", "-p", "{\"metadata\":{\"finalizers\":null}}"]).ok();
    kubectl(w, "get nmt w1").exits(1).says("not found");
    assert!(is_cordoned(w), "{state}");
    w.on("cp1", &format!("sudo systemctl {then} hactl-guard"));
    gone(w, &format!("{state}, without its finalizer, {meanwhile}"), TAKEN_OVER)
}

/// What is left of a maintenance that is gone; it is removed then, by another one of the same name.
fn gone(w: &World, what: &str, within: Duration) -> Option<String> {
    let begun = Instant::now();
    while begun.elapsed() < within {
        if left(w).is_empty() {
            println!("        {what}: nothing is left after {:.1?}", begun.elapsed());
            return None;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let left = left(w);
    println!("        {what}: after {within:?} there is still {left}");
    apply(w, &object("w1", "{nodeName: w1, stage: Cordon}")).ok();
    reaches(w, "w1", "Cordoned", TAKEN_OVER);
    kubectl(w, "delete nmt w1 --timeout=60s").ok();
    Some(format!("{what}: {left}"))
}

fn deleted(w: &World) {
    blocked(w);
    let mut left = vec![
        goes(w, "{nodeName: w1}", "Idle"),
        goes(w, "{nodeName: w1, stage: Cordon, reason: replace sdb}", "Cordoned"),
        goes(w, BLOCKED, "Blocked"),
        goes(w, "{nodeName: w1, stage: Drain, drain: {giveUpAfter: 1m}}", "Failed"),
    ];
    bare(w);
    left.push(goes(w, BLOCKED, "Waiting"));
    kubectl(w, "-n rules delete pod bare").ok();
    kubectl(w, "-n rules delete pdb web").ok();
    left.push(goes(w, BLOCKED, "Drained"));

    // Its object stays until it is deleted.
    apply(w, &object("w1", BLOCKED)).ok();
    reaches(w, "w1", "Drained", TAKEN_OVER);
    complete(w, "w1");
    reaches(w, "w1", "Completed", TAKEN_OVER);
    kubectl(w, "delete nmt w1 --timeout=60s").ok();
    assert!(is_free(w));

    let before = booted(w, "w1");
    apply(w, &object("w1", "{nodeName: w1, stage: Drain, action: Reboot}")).ok();
    wait_for("the host goes down", TAKEN_OVER, || booted(w, "w1") != before);
    assert_eq!(status(w, "w1", "state"), "Rebooting");
    kubectl(w, "delete nmt w1 --timeout=60s").ok();
    left.push(gone(w, "Rebooting", SOON));
    wait_for("the host has booted", HEAL, || !booted(w, "w1").is_empty() && booted(w, "w1") != before);
    wait_for("its Node is ready", HEAL, || kubectl(w, "get node w1").out.contains(" Ready "));
    as_before(w);
    let left: Vec<String> = left.into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:#?}");
}

fn forgotten(w: &World) {
    blocked(w);
    let frozen = ("kill --signal=SIGSTOP", "kill --signal=SIGCONT");
    let mut left = vec![goes_by_force(w, "Blocked", frozen)];
    left.push(goes_by_force(w, "Blocked", ("stop", "start")));
    kubectl(w, "-n rules delete pdb web").ok();
    left.push(goes_by_force(w, "Drained", frozen));
    left.push(goes_by_force(w, "Drained", ("stop", "start")));
    as_before(w);
    let left: Vec<String> = left.into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:#?}");
}

fn replaced(w: &World) {
    blocked(w);
    kubectl(w, "-n rules delete pdb web").ok();
    apply(w, &object("w1", BLOCKED)).ok();
    reaches(w, "w1", "Drained", TAKEN_OVER);
    kubectl(w, "delete node w1").ok();
    registers(w);
    // A Node of that name accepts pods: nothing says any more that it is drained.
    reaches(w, "w1", "Completed", TAKEN_OVER);
    kubectl(w, "delete nmt w1").ok();
    assert!(is_free(w));
    as_before(w);
}
