//! Clusters of every shape, each bootstrapped from bare hosts and healed after a loss of power. Each has a suite of its
//! own, because their hosts differ.

use super::failures::power_cycle;
use super::support::{Writer, wait_for};
use super::{Scenario, World};
use std::fmt::Write as _;
use std::time::Duration;

/// Five members in three zones.
pub const ZONES: &[Scenario] =
    &[Scenario { name: "five members in three zones survive the loss of a zone under writes", cut: false, run: zones }];
/// Seven members.
pub const SEVEN: &[Scenario] =
    &[Scenario { name: "seven members survive the loss of three hosts at once under writes", cut: false, run: seven }];
/// Every role on hosts of its own.
pub const APART: &[Scenario] = &[Scenario {
    name: "etcd, API servers and load balancers on separate hosts each survive a loss of power",
    cut: false,
    run: apart,
}];
/// An external load balancer.
pub const EXTERNAL: &[Scenario] = &[Scenario {
    name: "an external load balancer is the endpoint, and hactl installs none",
    cut: false,
    run: external,
}];
/// No VIP.
pub const LOCAL: &[Scenario] = &[Scenario {
    name: "without a VIP each Node reaches the API through a load balancer of its own",
    cut: false,
    run: local,
}];
/// One host to begin with.
pub const GROWN: &[Scenario] = &[Scenario {
    name: "a single host grows to three by an edit of the inventory, under writes",
    cut: false,
    run: grown,
}];

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);
pub const STACKED: &str = "control-plane, etcd, load-balancer";

/// Rewrites the lab's inventory: this endpoint, and these hosts with their roles and further keys.
pub fn inventory(w: &World, endpoint: &str, hosts: &[(&str, &str, &str)]) {
    let path = w.lab.inventory();
    let text = std::fs::read_to_string(&path).expect("the inventory is readable");
    let mut new = String::new();
    let mut skip = false;
    for line in text.lines() {
        if !line.starts_with(' ') {
            skip = matches!(line, "endpoint:" | "hosts:");
        }
        if line == "endpoint:" {
            let _ = writeln!(new, "endpoint: {{{endpoint}}}");
        } else if line == "hosts:" {
            let _ = writeln!(new, "hosts:");
            for (name, roles, more) in hosts {
                let address = w.lab.address(name).expect("the lab has this host");
                let _ = writeln!(new, "  - {{name: {name}, address: {address}, roles: [{roles}]{more}}}");
            }
        } else if !skip {
            let _ = writeln!(new, "{line}");
        }
    }
    std::fs::write(path, new).expect("the inventory is writable");
}

pub fn vip(w: &World) -> String {
    format!("vip: {}", w.lab.vip())
}

/// Brings bare hosts up until there is nothing left to do.
pub fn up_from_bare(w: &World) {
    let took = w.hactl.up().ok().says("Ready").took;
    println!("        up took {took:.1?}");
    w.hactl.up().ok().says("nothing to do");
    w.well();
}

/// These hosts lose power at once while a client writes, and recover automatically once they boot.
fn off_together(w: &World, hosts: &[&str]) {
    let writer = Writer::start(&w.api(), &format!("w-{}", hosts.join("-")));
    std::thread::sleep(Duration::from_secs(2));
    for host in hosts {
        w.lab.kill(host).expect("the power can be cut");
    }
    std::thread::sleep(Duration::from_secs(20));
    w.hactl.run(&["status"]).exits(4);
    for host in hosts {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    w.healthy(HEAL);
    let (written, longest) = writer.end();
    println!("        {} off: {written} writes acknowledged, longest pause {longest:.1?}", hosts.join(", "));
    assert!(longest < Duration::from_secs(15), "no write was acknowledged for {longest:?} while {hosts:?} were off");
    w.hactl.up().ok().says("nothing to do");
}

fn zones(w: &World) {
    let (a, b, c) = (", zone: a", ", zone: b", ", zone: c");
    let lopsided = [a, a, a, b, c];
    let spread = [a, a, b, b, c];
    let hosts =
        |zones: [&'static str; 5]| ["cp1", "cp2", "cp3", "cp4", "cp5"].map(|h| (h, STACKED)).into_iter().zip(zones);
    let hosts = |zones| hosts(zones).map(|((name, roles), zone)| (name, roles, zone)).collect::<Vec<_>>();
    inventory(w, &vip(w), &hosts(lopsided));
    w.hactl.run(&["inventory", "check"]).ok().says("zone a has 3 of 5 etcd members");
    inventory(w, &vip(w), &hosts(spread));
    w.hactl.run(&["inventory", "check"]).ok().says("5 etcd members: quorum 3, tolerates 2 failures");
    up_from_bare(w);
    let labels = w.hactl.kubectl(&["get", "nodes", "-L", "topology.kubernetes.io/zone", "--no-headers"]).ok().out;
    assert_eq!(labels.lines().filter(|l| l.trim_end().ends_with(" a")).count(), 2, "zones are labels: {labels}");
    off_together(w, &["cp1", "cp2"]);
    w.wipe("cp3");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
}

fn seven(w: &World) {
    let hosts = ["cp1", "cp2", "cp3", "cp4", "cp5", "cp6", "cp7"];
    let roles = |index: usize| if index < 3 { STACKED } else { "etcd" };
    let hosts: Vec<_> = hosts.into_iter().enumerate().map(|(index, host)| (host, roles(index), "")).collect();
    inventory(w, &vip(w), &hosts);
    w.hactl.run(&["inventory", "check"]).ok().says("7 etcd members: quorum 4, tolerates 3 failures");
    up_from_bare(w);
    off_together(w, &["cp1", "cp4", "cp5"]);
}

fn apart(w: &World) {
    let of = |names: &[&'static str], role: &'static str| names.iter().map(|n| (*n, role, "")).collect::<Vec<_>>();
    let (etcd, api, balancers) = (["cp1", "cp2", "cp3"], ["cp4", "cp5"], ["cp6", "cp7"]);
    let hosts = [of(&etcd, "etcd"), of(&api, "control-plane"), of(&balancers, "load-balancer"), of(&["w1"], "worker")];
    inventory(w, &vip(w), &hosts.concat());
    up_from_bare(w);
    for host in etcd {
        let kubelet = w.on(host, "pgrep -l 'kubelet|containerd|haproxy'; ls /etc/kubernetes 2>/dev/null");
        assert_eq!(kubelet, "", "an etcd host runs etcd and nothing else");
    }
    for host in balancers {
        assert_eq!(w.on(host, "pgrep -l 'kubelet|containerd|etcd'"), "", "a balancer runs no part of the cluster");
        let keys = w.on(host, "sudo find /etc/kubernetes /etc/etcd -name '*.key' 2>/dev/null");
        assert_eq!(keys, "", "a balancer has no key");
    }
    let vip = format!(" {}/", w.lab.vip());
    let holder = balancers.into_iter().find(|h| w.on(h, "ip -4 addr").contains(&vip)).expect("one holds the VIP");
    for host in ["cp1", "cp4", holder, "w1"] {
        power_cycle(w, host, &format!("w-{host}"));
        w.hactl.up().ok().says("nothing to do");
    }
    w.wipe("cp2");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
}

fn external(w: &World) {
    let balancer = w.lab.address("cp4").expect("the lab has this host");
    let hosts = ["cp1", "cp2", "cp3"].map(|name| (name, "control-plane, etcd", ""));
    inventory(w, &format!("external: \"{balancer}:8443\""), &hosts);
    // An external balancer, which only checks whether the port is open.
    let mut config = "defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1h\n  timeout server 1h\n  retries 3\n  option redispatch 1\n\
                      listen api\n  bind :8443\n  default-server check inter 500ms on-marked-down shutdown-sessions\n"
        .to_owned();
    for (name, ..) in hosts {
        let _ = writeln!(config, "  server {name} {}:6443", w.lab.address(name).expect("the lab has this host"));
    }
    w.on("cp4", "sudo apt-get install -y --no-install-recommends haproxy");
    w.on("cp4", &format!("echo '{config}' | sudo tee /etc/haproxy/haproxy.cfg; sudo systemctl restart haproxy"));
    up_from_bare(w);
    for (host, ..) in hosts {
        assert_eq!(w.on(host, "ls /usr/sbin/keepalived /etc/haproxy/haproxy.cfg.hactl 2>/dev/null"), "");
        assert_eq!(w.on(host, "systemctl is-active haproxy keepalived").trim(), "inactive\ninactive");
    }
    power_cycle(w, "cp1", "w-external");
    w.hactl.up().ok().says("nothing to do");
    // The balancer itself fails: status reports it, and nothing needs to be done once it is back.
    w.on("cp4", "sudo systemctl stop haproxy");
    let ran = w.hactl.run(&["status"]);
    assert!(ran.code == 7 && ran.out.contains("endpoint ready"), "{}", ran.all());
    w.hactl.kubectl(&["get", "nodes"]).ok();
    w.on("cp4", "sudo systemctl start haproxy");
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

fn local(w: &World) {
    let node = "control-plane, etcd";
    let hosts = [("cp1", node, ""), ("cp2", node, ""), ("cp3", node, ""), ("w1", "worker", "")];
    inventory(w, "local: true", &hosts);
    w.hactl.run(&["inventory", "check"]).ok().says("the kubeconfig uses one API server");
    up_from_bare(w);
    for (host, ..) in hosts {
        let bound = w.on(host, "ss -Hltn 'sport = :6443' | awk '{print $4}' | sort");
        let own = w.lab.address(host).expect("the lab has this host");
        let expected =
            if host == "w1" { "127.0.0.1:6443\n".to_owned() } else { format!("{own}:6443\n127.0.0.1:6443\n") };
        assert_eq!(bound, expected, "the listeners on {host}");
    }
    // The kubeconfig names cp1, but `hactl kubectl` needs no particular host.
    power_cycle(w, "cp3", "w-local");
    w.hactl.up().ok().says("nothing to do");
    w.lab.kill("cp1").expect("the power can be cut");
    let ready = ["get", "node", "w1", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"];
    let unready = ["get", "node", "cp1", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"];
    wait_for("the Node cp1 is Unknown", Duration::from_secs(90), || w.hactl.kubectl(&unready).out == "Unknown");
    assert_eq!(w.hactl.kubectl(&ready).ok().out, "True", "the worker found another API server");
    w.lab.start("cp1", BOOT).expect("the host boots");
    w.healthy(HEAL);
    w.on("w1", "sudo sh -c 'echo oops >> /etc/haproxy/haproxy.cfg'");
    w.hactl.run(&["plan"]).says("load balancer").says("w1");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    power_cycle(w, "w1", "w-worker");
    w.hactl.up().ok().says("nothing to do");
}

fn grown(w: &World) {
    let all = [("cp1", STACKED, ""), ("cp2", STACKED, ""), ("cp3", STACKED, "")];
    inventory(w, &vip(w), &all[..1]);
    w.hactl.run(&["inventory", "check"]).ok().says("one etcd member");
    up_from_bare(w);
    inventory(w, &vip(w), &all);
    let writer = Writer::start(&w.api(), "w-grown");
    w.hactl.run(&["plan", "--exit-code"]).exits(5).says("add learner").says("promote");
    w.hactl.run(&["up"]).exits(3).says("--yes");
    let took = w.hactl.up().ok().took;
    let (written, longest) = writer.end();
    println!("        grown in {took:.1?}: {written} writes acknowledged, longest pause {longest:.1?}");
    assert!(longest < Duration::from_secs(10), "no write was acknowledged for {longest:?} while the cluster grew");
    w.hactl.up().ok().says("nothing to do");
    w.well();
    let dns =
        ["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[*].spec.nodeName}"];
    wait_for("DNS has two replicas on two Nodes", Duration::from_secs(60), || {
        let nodes = w.hactl.kubectl(&dns).out;
        let nodes: std::collections::BTreeSet<&str> = nodes.split_whitespace().collect();
        nodes.len() == 2
    });
    // The first host is now as replaceable as the others.
    power_cycle(w, "cp1", "w-first");
    w.hactl.up().ok().says("nothing to do");
    w.wipe("cp1");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
}
