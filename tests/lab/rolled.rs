//! Rollouts: all Nodes of a cluster reboot, a few at a time, while clients read and write; and a rollout that a person
//! pauses and calls off.

use super::drains::stands_on;
use super::guard::asked;
use super::maintain::{HEAL, kubectl};
use super::reboot::booted;
use super::support::{Hactl, Writer, wait_for};
use super::trials::{CutOff, GIVEN_AWAY, failed_but_for_moves, late};
use super::{Scenario, World, in_one_line};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// On three control-plane hosts and three workers.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "all Nodes reboot by one rollout, zone by zone and the control plane last, and clients are served",
        cut: false,
        run: all,
    },
    Scenario {
        name: "a rollout that is paused begins no other Node, and its Nodes are restored when it is called off",
        cut: false,
        run: called_off,
    },
];

const OFTEN: Duration = Duration::from_millis(20);
const HOSTS: [&str; 6] = ["cp1", "cp2", "cp3", "w1", "w2", "w3"];
/// A reboot of each host, one after the other, on a machine with two processors.
const ALL: Duration = Duration::from_secs(900);

/// Which Nodes are cordoned, whenever that was looked at, until it is stopped.
pub fn watched(hactl: &Hactl, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<BTreeSet<String>>> {
    let (own, stop) = (hactl.clone(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut seen: Vec<BTreeSet<String>> = Vec::new();
        let words =
            ["get", "nodes", "-o", "jsonpath={range .items[?(@.spec.unschedulable==true)]}{.metadata.name} {end}"];
        while !stop.load(Ordering::Relaxed) {
            let ran = own.kubectl(&words);
            let now: BTreeSet<String> = ran.out.split_whitespace().map(ToOwned::to_owned).collect();
            if ran.code == 0 && seen.last() != Some(&now) {
                seen.push(now);
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        seen
    })
}

fn all(w: &World) {
    let hactl = asked(w, "healing: on");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
    stands_on(w, "3");
    for (host, zone) in [("w1", "a"), ("w2", "b"), ("w3", "a")] {
        kubectl(w, &format!("label node {host} topology.kubernetes.io/zone={zone}")).ok();
    }
    let before = HOSTS.map(|host| booted(w, host));
    let asked = ["maintain", "reboot", "--all", "--max-unavailable", "2", "--soak", "5s"];
    let said = in_one_line(&hactl.run(&[&asked[..], &["--dry-run"]].concat()).ok());
    assert!(said.contains("6 Nodes are drained and reboot, at most 2 away at once"), "{said}");
    assert!(said.contains("first w1, w3") && said.contains("nothing was changed"), "{said}");

    let stop = Arc::new(AtomicBool::new(false));
    let cordoned = watched(&hactl, &stop);
    let (reading, writer) = (w.api().reads(OFTEN), Writer::every(OFTEN, &w.api(), "w-rollout"));
    let begun = Instant::now();
    let ran = hactl.run(&[&asked[..], &["--yes", "--name", "kernel", "--reason", "new kernel"]].concat());
    let took = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    let seen = cordoned.join().expect("it ends");
    let said = in_one_line(&ran.ok());
    assert!(said.contains("the rollout kernel is complete: 6/6 Nodes"), "{said}");
    assert!(took < ALL, "{took:?}");
    println!("        six hosts rebooted in {took:.1?}: {seen:?}");
    let (written, refused, longest) = writer.account();
    println!("        {written} writes acknowledged, none lost, {refused} failed; the longest pause: {longest:.2?}");
    let reads = reading.end();
    let failed = failed_but_for_moves(&reads, 6, CutOff { in_flight: late(&reads), ..GIVEN_AWAY });
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(refused, 0, "writes failed");
    assert!(longest < late(&reads), "a write took {longest:?}");

    for (host, before) in HOSTS.iter().zip(&before) {
        assert_ne!(booted(w, host), *before, "{host} has booted");
    }
    let order =
        |host: &str| seen.iter().position(|now| now.contains(host)).unwrap_or_else(|| panic!("{host}: {seen:?}"));
    assert!(order("w1") < order("w2") && order("w3") < order("w2"), "{seen:?}");
    assert!(["cp1", "cp2", "cp3"].iter().all(|host| order("w2") < order(host)), "{seen:?}");
    for now in &seen {
        assert!(now.len() <= 2 && now.iter().filter(|host| host.starts_with("cp")).count() <= 1, "{now:?}");
        assert!(!now.contains("w2") || now.len() == 1, "two zones: {now:?}");
    }
    kubectl(w, "wait nmr/kernel --for=condition=Completed --timeout=5s").ok();
    let shown = in_one_line(&hactl.run(&["maintain", "status"]).ok());
    assert!(shown.contains("kernel Completed 6/6"), "{shown}");
    kubectl(w, "delete nmr kernel").ok();
    wait_for("its maintenances are gone", HEAL, || kubectl(w, "get nmt -o name").ok().out.is_empty());
    w.healthy(HEAL);
    hactl.up().ok().says("nothing to do");
}

fn called_off(w: &World) {
    let hactl = asked(w, "healing: watch");
    hactl.up().ok();
    w.healthy(HEAL);
    let state = || kubectl(w, "get nmr two -o jsonpath={.status.state}").out;
    let begin = ["maintain", "reboot", "w1", "w2", "--yes", "--no-wait", "--name", "two"];
    hactl.run(&begin).ok().says("the guards act on the rollout two");
    hactl.run(&begin).ok().says("the guards act on the rollout two");
    hactl.run(&[&begin[..], &["--soak", "2m"]].concat()).exits(2).says("there is a rollout two already");
    wait_for("the first one begins", HEAL, || kubectl(w, "get nmt two-w1").code == 0);
    hactl.run(&["maintain", "pause", "two"]).ok().says("no other Node of two begins");
    kubectl(w, "wait nmt/two-w1 --for=condition=Completed --timeout=180s").ok();
    wait_for("it is paused", HEAL, || state() == "Paused");
    std::thread::sleep(Duration::from_secs(35));
    kubectl(w, "get nmt two-w2").exits(1);
    hactl.run(&["maintain", "finish", "two"]).exits(2).says("two is a rollout");

    hactl.run(&["maintain", "resume", "two"]).ok().says("the rollout two goes on");
    wait_for("the second one begins", HEAL, || kubectl(w, "get nmt two-w2").code == 0);
    hactl.run(&["maintain", "cancel", "two"]).ok().says("the rollout two is called off, and its Nodes are restored");
    kubectl(w, "get nmr two").exits(1);
    assert_eq!(kubectl(w, "get nmt -l lifecycle.hactl.dev/rollout=two -o name").ok().out, "");
    let cordoned = "get nodes -o jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}";
    assert_eq!(kubectl(w, cordoned).ok().out, "");
    hactl.run(&["maintain", "reboot", "--selector", "pool=none", "--yes"]).exits(2).says("no Node is selected");
    let plain = asked(w, "");
    plain.up().ok();
    plain.run(&["maintain", "reboot", "w1", "w2", "--yes"]).exits(3).says("no guard acts on maintenances");
    w.healthy(HEAL);
}
