//! Maintenances of hosts of the control plane: one host at a time, none while another one is not well, and no repair of a
//! host that a person works on.

use super::acting::{TAKEN_OVER, complete, reaches, status};
use super::drains::{drain, stands_on};
use super::guard::{asked, faults, guarded, is_known, next};
use super::maintain::{HEAL, apply, kubectl, object};
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::Duration;

/// On three control-plane hosts.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a command takes one control-plane host at a time, other tools and up respect it, and it may lose power",
        cut: false,
        run: by_commands,
    },
    Scenario {
        name: "guards take control-plane hosts one after the other, none beside a fault, and repair none that is taken",
        cut: false,
        run: by_guards,
    },
];

const BOOT: Duration = Duration::from_secs(60);
/// A maintenance that waits is looked at every 30 s.
const TURN: Duration = Duration::from_secs(120);

fn is_cordoned(w: &World, host: &str) -> bool {
    kubectl(w, &format!("get node {host} -o jsonpath={{.spec.unschedulable}}")).ok().out == "true"
}

/// The pods of a Node that stand for the control plane.
fn stands(w: &World, host: &str) -> usize {
    let of = "get pods -n kube-system -l hactl.dev/quorum -o name --field-selector";
    kubectl(w, &format!("{of} spec.nodeName={host},status.phase=Running")).ok().out.lines().count()
}

fn by_commands(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    stands_on(w, "3");
    let said = in_one_line(&w.hactl.run(&["maintain", "start", "cp3", "--dry-run"]).ok());
    assert!(said.contains("to leave") && said.contains("nothing was changed"), "{said}");
    w.hactl.run(&["maintain", "start", "cp3", "--yes", "--reason", "new memory"]).ok().says("cp3 is drained");
    assert_eq!((is_cordoned(w, "cp3"), stands(w, "cp3")), (true, 0));

    for words in [&["maintain", "start", "cp2", "--yes"][..], &["maintain", "start", "cp2", "--dry-run"]] {
        let said = in_one_line(&w.hactl.run(words).exits(3));
        assert!(said.contains("cannot spare cp2 now: cp3 is in maintenance or cordoned"), "{said}");
    }
    assert!(!is_cordoned(w, "cp2"));
    drain(w, "cp2", &[]).exits(1).says("control-plane-quorum");
    kubectl(w, "uncordon cp2").ok();
    w.hactl.up().ok().says("nothing to do");
    let changed = w.lab.dir().join("spared.yaml");
    let plain = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    std::fs::write(&changed, plain.replace("{kubelet: {config: {", "{kubelet: {config: {maxPods: 99, "))
        .expect("writable");
    let said = in_one_line(&Hactl::new(changed).run(&["plan"]).exits(3));
    assert!(said.contains("is not disturbed while cp3 is in maintenance (cp3)"), "{said}");

    w.lab.kill("cp3").expect("the power can be cut");
    kubectl(w, "get nmt cp3").ok().says("Drained");
    w.lab.start("cp3", BOOT).expect("the host boots");
    w.hactl.run(&["maintain", "finish", "cp3"]).ok().says("the maintenance of cp3 is over");
    assert!(!is_cordoned(w, "cp3"));
    stands_on(w, "3");
    w.hactl.run(&["maintain", "start", "cp2", "--yes"]).ok().says("cp2 is drained");
    w.hactl.run(&["maintain", "cancel", "cp2"]).ok();
    kubectl(w, "delete nmt cp3").ok();
    stands_on(w, "3");
    w.hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
}

fn by_guards(w: &World) {
    let hactl = guarded(w, "healing: on");
    stands_on(w, "3");

    // A member of etcd is down.
    w.on("cp1", "sudo systemctl stop etcd");
    wait_for("the guards report it", TURN, || !faults(&hactl).is_empty());
    apply(w, &object("cp3", "{nodeName: cp3, stage: Drain, reason: new memory}")).ok();
    reaches(w, "cp3", "Waiting", TURN);
    let why = status(w, "cp3", "waitingFor[0].message");
    assert!(why.contains("cp3 cannot be spared: cp1, its etcd member does not run"), "{why}");
    assert!(!is_cordoned(w, "cp3"));
    let said = in_one_line(&hactl.run(&["maintain", "status"]).ok());
    assert!(said.contains("cannot be spared"), "{said}");
    w.on("cp1", "sudo systemctl start etcd");
    reaches(w, "cp3", "Drained", TURN + TURN);
    assert_eq!(stands(w, "cp3"), 0);

    // Its guard leaves it alone, and the next host waits for its turn.
    apply(w, &object("cp2", "{nodeName: cp2, stage: Drain}")).ok();
    reaches(w, "cp2", "Waiting", TURN);
    assert!(status(w, "cp2", "waitingFor[0].message").contains("cp3"));
    w.on("cp3", "sudo systemctl kill --signal=SIGSTOP etcd");
    wait_for("the guards report it", TURN, || is_known(&hactl, "cp3", "EtcdFrozen"));
    wait_for("the guard says why it does nothing", TURN, || next(&hactl, "cp3").contains("the host is held"));
    w.on("cp3", "sudo systemctl kill --signal=SIGCONT etcd");
    wait_for("the fault is over", TURN, || faults(&hactl).is_empty());
    complete(w, "cp3");
    reaches(w, "cp3", "Completed", TURN);
    reaches(w, "cp2", "Drained", TURN + TAKEN_OVER);
    assert_eq!((is_cordoned(w, "cp3"), is_cordoned(w, "cp2")), (false, true));
    hactl.run(&["maintain", "finish", "cp2"]).ok().says("the maintenance of cp2 is over");
    kubectl(w, "delete nmt cp2 cp3").ok();
    stands_on(w, "3");
    let plain = asked(w, "");
    plain.up().ok();
    plain.up().ok().says("nothing to do");
    w.healthy(HEAL);
}
