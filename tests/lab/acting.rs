//! Guards that act on maintenances: an object that a person applies, a guard that is killed meanwhile, and what a command
//! shows of it.

use super::drains::workloads;
use super::guard::asked;
use super::maintain::{BUDGET, HEAL, announced, apply, is_cordoned, kubectl, object};
use super::reboot::booted;
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line, present_image};
use std::time::{Duration, Instant};

/// On one control-plane host and one worker.
pub const ALONE: &[Scenario] = &[Scenario {
    name: "a guard drains a worker for an object that a person applied, also after it was killed, and restores it",
    cut: true,
    run: alone,
}];

/// On three control-plane hosts and one worker.
pub const REPLACED: &[Scenario] = &[Scenario {
    name: "whenever the guard is killed that acts on a drain, another one goes on and restores the worker",
    cut: false,
    run: replaced,
}];

/// A killed guard starts again, its Lease ends, and it takes over a Node that waits for half a minute at most.
pub const TAKEN_OVER: Duration = Duration::from_secs(90);
const CONTROL_PLANE: &str = "{nodeName: cp1, stage: Drain}";

/// What the guard of a host may do in the API.
fn may(hactl: &Hactl, words: &str) -> bool {
    let mut all = vec!["auth", "can-i", "--as=hactl:guard:cp1", "--as-group=hactl:guards"];
    all.extend(words.split(' '));
    match hactl.kubectl(&all).out.trim() {
        "yes" => true,
        "no" => false,
        other => panic!("{words}: {other}"),
    }
}

/// `kubectl get` of the maintenance w1, a field of its status.
pub fn status(w: &World, name: &str, field: &str) -> String {
    kubectl(w, &format!("get nmt {name} -o jsonpath={{.status.{field}}}")).out
}

pub fn reaches(w: &World, name: &str, state: &str, within: Duration) {
    wait_for(&format!("{name} is {state}"), within, || status(w, name, "state") == state);
}

/// Pods on the worker that a controller creates again elsewhere, and a budget that lets one of them not leave.
pub fn occupied(w: &World) {
    kubectl(w, "create namespace rules").ok();
    apply(w, &workloads(&present_image(&w.hactl))).ok();
    apply(w, BUDGET).ok();
    wait_for("the budget counts its pod", HEAL, || {
        kubectl(w, "-n rules get pdb web -o jsonpath={.status.currentHealthy}").out == "1"
    });
}

pub fn complete(w: &World, name: &str) {
    w.hactl.kubectl(&["patch", "nmt", name, "--type", "merge", "-p", "{\"spec\":{\"stage\":\"Complete\"}}"]).ok();
}

fn alone(w: &World) {
    w.hactl.up().ok();
    w.hactl.run(&["maintain", "start", "w1", "--yes", "--no-wait"]).exits(3).says("no guard acts on maintenances");
    let hactl = asked(w, "healing: watch");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    for (words, expected) in [
        ("list pods --all-namespaces", true),
        ("create pods --subresource=eviction -n default", true),
        ("get secrets -n kube-system", false),
        ("patch leases.coordination.k8s.io/kube-scheduler -n kube-system", false),
        ("delete nodes", false),
        ("reboot nodes/w1", false),
    ] {
        assert_eq!(may(&hactl, words), expected, "{words}");
    }

    occupied(w);
    let begun = Instant::now();
    apply(w, &object("w1", "{nodeName: w1, stage: Drain, reason: replace sdb}")).ok();
    reaches(w, "w1", "Blocked", TAKEN_OVER);
    println!("        a guard drained after {:.1?}", begun.elapsed());
    assert!(is_cordoned(w));
    wait_for("Events say what happened", HEAL, || {
        let shown = kubectl(w, "describe node w1").ok().out;
        ["DrainStarted", "EvictionBlocked"].iter().all(|reason| shown.contains(reason))
    });
    w.on("cp1", "sudo systemctl kill --signal=SIGKILL hactl-guard");
    kubectl(w, "-n rules delete pdb web").ok();
    reaches(w, "w1", "Drained", TAKEN_OVER);
    kubectl(w, "wait nmt/w1 --for=condition=Drained --timeout=5s").ok();
    assert_eq!(announced(w), "Drained MaintenanceInProgress");
    complete(w, "w1");
    kubectl(w, "wait nmt/w1 --for=condition=Completed --timeout=60s").ok();
    wait_for("the worker is as before", HEAL, || !is_cordoned(w) && announced(w).is_empty());
    kubectl(w, "delete nmt w1").ok();

    // The only host of the control plane cannot be spared.
    apply(w, &object("cp1", CONTROL_PLANE)).ok();
    reaches(w, "cp1", "Waiting", TAKEN_OVER);
    assert!(status(w, "cp1", "waitingFor[0].message").contains("no host of this control plane can be spared"));
    assert_eq!(kubectl(w, "get node cp1 -o jsonpath={.spec.unschedulable}").ok().out, "");
    kubectl(w, "delete nmt cp1").ok();

    let said = in_one_line(&hactl.run(&["maintain", "start", "w1", "--yes", "--reason", "replace sdb"]).ok());
    assert!(said.contains("the guard of cp1 acts on it") && said.contains("w1 is drained"), "{said}");
    let took = hactl.run(&["maintain", "finish", "w1"]).ok().says("the maintenance of w1 is over").took;
    println!("        a guard restored the worker within {took:.1?}");
    assert!(!is_cordoned(w));
    hactl.run(&["maintain", "start", "w1", "--yes", "--no-wait"]).ok().says("the guards act on the maintenance of w1");
    reaches(w, "w1", "Drained", TAKEN_OVER);
    hactl.run(&["maintain", "cancel", "w1"]).ok();
    assert!(!is_cordoned(w));
    kubectl(w, "delete namespace rules").ok();

    // A rollout of one Node, whose node agent has the host reboot.
    let before = booted(w, "w1");
    let reboot = ["maintain", "reboot", "--selector", "kubernetes.io/hostname=w1", "--name", "kernel", "--yes"];
    let took = hactl.run(&reboot).ok().says("the rollout kernel is complete: 1/1 Nodes").took;
    println!("        the guards had the worker reboot in {took:.1?}");
    assert_ne!(booted(w, "w1"), before);
    assert!(!is_cordoned(w));
    kubectl(w, "delete nmr kernel").ok();
    wait_for("its maintenance is gone", HEAL, || kubectl(w, "get nmt -o name").ok().out.is_empty());

    // Without guards, a command does not wait for the one that was there.
    let plain = asked(w, "");
    plain.up().ok();
    plain.run(&["maintain", "start", "w1", "--yes"]).ok().says("w1 is drained");
    plain.run(&["maintain", "finish", "w1"]).ok();
    let before = booted(w, "w1");
    plain.run(&["maintain", "reboot", "w1", "--yes"]).ok().says("w1 has rebooted, and is ready and restored");
    assert_ne!(booted(w, "w1"), before);
    assert!(!is_cordoned(w));
    plain.up().ok().says("nothing to do");
    w.healthy(HEAL);
}

/// The host whose guard acts on maintenances.
pub fn acts(w: &World) -> Option<String> {
    let holder = "-n kube-system get lease hactl-controllers -o jsonpath={.spec.holderIdentity}";
    let said = kubectl(w, holder).out;
    Some(said.strip_prefix("guard of ")?.split_once(',')?.0.to_owned())
}

fn replaced(w: &World) {
    let hactl = asked(w, "healing: watch");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    occupied(w);
    kubectl(w, "-n rules delete pdb web").ok();
    for number in 0..10_u64 {
        wait_for("all run on the worker", HEAL, || {
            let running = "-n rules get pods --field-selector spec.nodeName=w1,status.phase=Running -o name";
            kubectl(w, running).out.lines().count() >= 3
        });
        wait_for("a guard acts", TAKEN_OVER, || acts(w).is_some());
        let host = acts(w).expect("a guard acts");
        let begun = Instant::now();
        apply(w, &object("w1", "{nodeName: w1, stage: Drain, reason: replace sdb, drain: {waitCompletedFor: 1m}}"))
            .ok();
        // From before the first write until after the last one.
        std::thread::sleep(Duration::from_millis(number * 120));
        // systemd would start it again, and it could be elected again.
        w.on(&host, "sudo systemctl kill --signal=SIGKILL hactl-guard; sudo systemctl stop hactl-guard");
        let seen = status(w, "w1", "state");
        reaches(w, "w1", "Drained", TAKEN_OVER);
        wait_for("another guard acts", TAKEN_OVER, || acts(w).is_some_and(|next| next != host));
        let next = acts(w).expect("a guard acts");
        w.on(&host, "sudo systemctl start hactl-guard");
        println!("        {host} was killed at {seen:?}, {next} drained it, after {:.1?}", begun.elapsed());
        complete(w, "w1");
        reaches(w, "w1", "Completed", TAKEN_OVER);
        wait_for("the worker is as before", TAKEN_OVER, || !is_cordoned(w) && announced(w).is_empty());
        kubectl(w, "delete nmt w1").ok();
    }
    kubectl(w, "delete namespace rules").ok();
    let plain = asked(w, "");
    plain.up().ok();
    plain.up().ok().says("nothing to do");
    w.healthy(HEAL);
}
