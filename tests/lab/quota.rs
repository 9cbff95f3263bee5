//! Guards whose etcd has reached its quota: etcd accepts writes again by itself, unless the stored data alone fills it.

use super::guard::{CLEARED, SLACK, guarded, is_known, none};
use super::repairs::history;
use super::room::{AS_BEFORE, QUOTA, filled, small, started_with, stored};
use super::support::{ETCDCTL, Hactl, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "an etcd that reached its quota accepts writes again by itself, and guards say when it cannot",
    cut: false,
    run: frees,
}];

/// From the first rejected write to the first accepted one.
const GOAL: Duration = Duration::from_secs(60);

/// The hosts whose guards freed space, with the outcome.
fn freed(hactl: &Hactl) -> Vec<[String; 3]> {
    history(hactl).into_iter().filter(|[_, kind, _]| kind == "EtcdFull").collect()
}

fn writes(w: &World) -> bool {
    w.on("cp1", &format!("{ETCDCTL} put /after-the-quota x 2>&1; true")).trim() == "OK"
}

fn frees(w: &World) {
    let hactl = guarded(w, "healing: on");
    let before = freed(&hactl).len();

    started_with(w, &small(QUOTA));
    w.healthy(CLEARED);
    filled(w, 6);
    let since = Instant::now();
    wait_for("etcd accepts writes", GOAL + SLACK, || writes(w));
    println!("        etcd accepts writes after {:.1?} (goal {GOAL:?})", since.elapsed());
    assert!(since.elapsed() < GOAL + SLACK / 2, "{:?}", since.elapsed());
    w.healthy(CLEARED);
    none(&hactl);
    let repairs = freed(&hactl);
    assert!(repairs.len() > before, "{repairs:?}");
    assert!(repairs.iter().all(|[.., outcome]| outcome == "helped"), "{repairs:?}");

    // The stored data alone exceeds this quota.
    started_with(w, &small(stored(w) - 1_000_000));
    wait_for("the fault is reported", SLACK, || is_known(&hactl, "cp1", "EtcdFull"));
    // Hosts act in turns.
    wait_for("a guard says why that did not help", GOAL, || {
        let said = in_one_line(&hactl.run(&["guard", "history"]).ok());
        said.contains("the newest values alone take") && said.contains("etcd.quotaGiB")
    });
    assert!(!writes(w), "the alarm stays");
    w.on("cp1", &format!("{ETCDCTL} del --prefix /filler/"));
    for host in ["cp1", "cp2", "cp3"] {
        hactl.run(&["guard", "retry", host]).ok();
    }
    wait_for("etcd accepts writes", GOAL + SLACK, || writes(w));
    started_with(w, AS_BEFORE);
    w.on("cp1", &format!("{ETCDCTL} del /after-the-quota"));
    w.healthy(CLEARED);
    none(&hactl);
    hactl.up().ok().says("nothing to do");
}
