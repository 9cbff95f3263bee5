//! One control-plane host and a worker: the smallest cluster with a host that has neither API server nor etcd.

use super::bare_hosts::variant;
use super::{Scenario, World, with_pod};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "one control-plane host and a worker become a cluster", cut: true, run: from_bare },
    Scenario { name: "the etcd balancer reads a renewed certificate", cut: false, run: renewed },
];

pub const LAST: &[Scenario] =
    &[Scenario { name: "hosts that were taken down can become another cluster", cut: false, run: another_cluster }];

fn from_bare(w: &World) {
    w.hactl.up().ok().says("nodes Ready");
    w.hactl.up().ok().says("nothing to do");
    with_pod(&w.hactl, "w1", || ());
}

fn renewed(w: &World) {
    let started = || w.on("cp1", "sudo pgrep -f etcd-balancer.cfg | xargs -r ps -o lstart=,pid= -p | sort | tail -1");
    let before = started();
    w.on("cp1", "sudo rm /etc/kubernetes/pki/apiserver-etcd-client.crt");
    w.hactl.run(&["plan", "-v"]).ok().says("issue 1 certificate").says("reload hactl-etcd-balancer.service");
    w.hactl.up().ok();
    assert_ne!(started(), before, "a new haproxy reads the new certificate");
    w.hactl.up().ok().says("nothing to do");
}

fn another_cluster(w: &World) {
    let other = variant(w, "other.yaml", |t| t.replace("cluster: t-worker", "cluster: other"));
    other.up().exits(3).says("t-worker");
    w.hactl.run(&["down", "--wipe", "--yes"]).ok();
    w.hactl.run(&["down", "--wipe", "--yes"]).ok().says("nothing to do");
    other.up().ok();
    other.up().ok().says("nothing to do");
    w.hactl.up().exits(3).says("other");
}
