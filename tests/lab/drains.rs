//! Drains by other tools on hosts of the control plane: one host at a time, and none while another one is not ready.

use super::support::{Ran, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "no kubectl drain takes a second control-plane host, and none takes one while a member of etcd is down",
    cut: true,
    run: foreign,
}];

const HEAL: Duration = Duration::from_secs(180);
/// What kubectl says of a pod whose budget refuses.
const REFUSED: &str = "violate the pod's disruption budget";

/// As people do it, with a short timeout.
fn drain(w: &World, host: &str, more: &[&str]) -> Ran {
    let plain = ["drain", host, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=12s"];
    w.hactl.kubectl(&[&plain[..], more].concat())
}

/// Waits until the pods that stand for the control plane are ready on so many hosts.
fn stands_on(w: &World, hosts: &str) {
    let ready = || {
        let path = "jsonpath={.status.currentHealthy}";
        w.hactl.kubectl(&["-n", "kube-system", "get", "pdb", "control-plane-quorum", "-o", path]).out
    };
    wait_for("the budget counts the hosts that are ready", HEAL, || ready() == hosts);
}

fn foreign(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    stands_on(w, "3");

    w.on("cp3", "sudo systemctl stop etcd");
    stands_on(w, "2");
    drain(w, "cp1", &[]).exits(1).says(REFUSED).says("control-plane-quorum");
    w.on("cp3", "sudo systemctl start etcd");
    stands_on(w, "3");

    drain(w, "cp1", &["--timeout=2m"]).ok().says("node/cp1 drained");
    stands_on(w, "2");
    drain(w, "cp2", &[]).exits(1).says(REFUSED).says("control-plane-quorum");
    drain(w, "cp2", &["--disable-eviction"]).exits(1).says("evict it instead");
    w.hactl.kubectl(&["uncordon", "cp2"]).ok();
    wait_for("status passes while one Node is drained", HEAL, || w.hactl.run(&["status"]).code == 0);
    let status = in_one_line(&w.hactl.run(&["status"]).ok());
    assert!(status.contains("1 waits until its Node is uncordoned"), "{status}");
    w.hactl.up().ok().says("nothing to do");

    w.hactl.kubectl(&["uncordon", "cp1"]).ok();
    stands_on(w, "3");
    w.healthy(HEAL);
}
