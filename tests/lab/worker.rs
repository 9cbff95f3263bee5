//! One control-plane host and a worker, without a virtual IP: the smallest cluster with a host that has neither API
//! server nor etcd. Each of both has a load balancer of its own on loopback.

use super::bare_hosts::variant;
use super::{Scenario, World, with_pod};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "one control-plane host and a worker become a cluster, each with its own load balancer",
        cut: true,
        run: from_bare,
    },
    Scenario { name: "the etcd balancer reads a renewed certificate", cut: false, run: renewed },
];

pub const LAST: &[Scenario] =
    &[Scenario { name: "hosts that were taken down can become another cluster", cut: false, run: another_cluster }];

/// Bare hosts and an inventory with `endpoint.local`.
pub fn world() -> World {
    let w = World::bare("t-worker", (1, 1));
    let path = w.lab.inventory();
    let text = std::fs::read_to_string(&path).expect("the inventory is readable");
    let vip = format!("vip: {}\n", w.lab.vip());
    assert!(text.contains(&vip) && text.contains(", load-balancer"), "{text}");
    let text = text.replace(&vip, "local: true\n").replace(", load-balancer", "");
    std::fs::write(path, text).expect("the inventory is writable");
    w
}

fn from_bare(w: &World) {
    w.hactl.up().ok().says("nodes Ready");
    w.hactl.up().ok().says("nothing to do");
    with_pod(&w.hactl, "w1", || ());
    let own = w.lab.address("cp1").expect("the lab has this host");
    for (host, listeners) in [("cp1", format!("{own}:6443\n127.0.0.1:6443\n")), ("w1", "127.0.0.1:6443\n".to_owned())] {
        let bound = w.on(host, "ss -Hltn 'sport = :6443' | awk '{print $4}' | sort");
        assert_eq!(bound, listeners, "the API server and the load balancer of {host}");
        let server = w.on(host, "sudo grep server: /etc/kubernetes/kubelet.conf");
        assert!(server.contains("https://127.0.0.1:"), "the kubelet of {host} uses its own host: {server}");
    }
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
