//! Hosts that stay while their roles are removed, while one client reads every 20 ms and another one writes.

use super::failures::{holder_among, moves_since};
use super::leaving::Watched;
use super::shapes::{STACKED, inventory, up_from_bare, vip};
use super::trials::{late, unnoticed_but_for_moves};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// On five hosts, each with an etcd member; three of them have all roles, because two processors cannot run five API
/// servers without delays. In this order: each scenario starts from what the previous one left.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the VIP holder loses one role after the other, and no client notices",
        cut: false,
        run: one_by_one,
    },
    Scenario { name: "two hosts lose all their roles in one run and become spare", cut: false, run: all_at_once },
    Scenario { name: "hosts that lost their roles get them back", cut: false, run: back },
];

const ALL: [&str; 5] = ["cp1", "cp2", "cp3", "cp4", "cp5"];
/// Those that have all roles.
const WHOLE: [&str; 3] = ["cp1", "cp2", "cp3"];
const HEAL: Duration = Duration::from_secs(180);

/// Prints what is left of a balancer, one line each.
const BALANCER: &str = "ls -d /etc/keepalived/keepalived.conf /etc/haproxy/haproxy.cfg /etc/hactl/endpoint-usable.sh \
     /etc/systemd/system/keepalived.service.d /etc/systemd/system/haproxy.service.d 2>/dev/null; \
     for u in keepalived haproxy; do systemctl is-active $u; systemctl is-enabled $u 2>/dev/null; done | grep -xE 'active|enabled'";
/// Prints what is left of a control plane on a Node. Below pki, only the two CA certificates that a kubelet reads may
/// stay.
const CONTROL_PLANE: &str = "find /etc/kubernetes/pki /etc/kubernetes/config /etc/kubernetes/manifests /etc/kubernetes/*.conf \
     /etc/hactl/approver.json /etc/hactl/etcd-balancer.cfg /etc/hactl/issuers -type f 2>/dev/null \
     | grep -vxE '/etc/kubernetes/(pki/(client-)?ca.crt|kubelet.conf)'; \
     ls /etc/systemd/system | grep -E 'hactl-(approver|etcd-balancer)'; \
     for u in hactl-approver hactl-etcd-balancer; do systemctl is-active $u; done | grep -x active; \
     pgrep -l 'kube-(apiserver|controller|scheduler)'";
/// Prints what is left of a member; its data is archived.
const ETCD: &str = "find /etc/etcd /etc/hactl/snapshots.json /etc/hactl/object-storage -type f 2>/dev/null; \
     ls -d /var/lib/etcd/member /var/lib/etcd/hactl-born /etc/systemd/system/etcd.service.d 2>/dev/null; \
     ls /etc/systemd/system | grep -E '^(etcd|hactl-snapshot)'; \
     for u in etcd hactl-snapshot.timer hactl-snapshot; do systemctl is-active $u; done | grep -x active; pgrep -lx etcd";
/// Prints what is left of a Node and of everything else, except what a spare host has. The two directories are volumes
/// of their own in the lab: their previous content is archived in a folder there.
const EVERYTHING: &str = "find /etc/kubernetes /etc/etcd /etc/hactl /etc/cni/net.d /opt/cni/bin -type f 2>/dev/null; \
     find /var/lib/kubelet /var/lib/containerd -mindepth 1 -not -path '*/wiped-*' 2>/dev/null | head -n 3; \
     ls -d /var/lib/hactl/state.age /etc/containerd/config.toml /etc/sysctl.d/zz-hactl.conf 2>/dev/null; \
     find / -xdev -name 'kubelet-client-*.pem' 2>/dev/null; \
     for u in kubelet containerd etcd haproxy keepalived; do systemctl is-active $u; done | grep -x active; \
     pgrep -l 'kube|etcd'; ip -o link | grep -E 'cni0|flannel'";

fn at_first(host: &str) -> &'static str {
    if WHOLE.contains(&host) { STACKED } else { "etcd" }
}

fn roles(w: &World, of: impl Fn(&str) -> String) {
    let all: Vec<(&str, String)> = ALL.iter().map(|host| (*host, of(host))).collect();
    inventory(w, &vip(w), &all.iter().map(|(host, roles)| (*host, roles.as_str(), "")).collect::<Vec<_>>());
}

fn holder(w: &World) -> &'static str {
    holder_among(w, &WHOLE)
}

fn left(w: &World, host: &str, what: &str) {
    let found = w.on(host, &format!("sudo sh -c \"{}\"", what.replace('$', "\\$").replace('"', "\\\"")));
    assert_eq!(found.trim(), "", "{host} keeps nothing of it");
}

fn nobody_noticed(w: &World, watched: Watched, moves: usize) {
    let (reads, longest) = watched.end();
    unnoticed_but_for_moves(w, &reads, moves);
    assert!(longest < late(&reads), "a write waited for {longest:?}");
}

/// Runs `up` while clients are watched and the VIP moves at most this many times; returns what it says.
fn up(w: &World, name: &str, moves: usize) -> String {
    let (watched, since) = (Watched::start(w, name), SystemTime::now());
    let ran = w.hactl.up().ok();
    println!("        {name}: {:.1?}", ran.took);
    for line in moves_since(w, &WHOLE, since) {
        println!(
            "        the VIP moved: {line}; the run began at {:.2?}",
            since.duration_since(UNIX_EPOCH).unwrap_or_default()
        );
    }
    nobody_noticed(w, watched, moves);
    let said = in_one_line(&ran);
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
    said
}

fn said(w: &World, arguments: &[&str]) -> String {
    w.hactl.kubectl(arguments).ok().out.trim().to_owned()
}

/// Checks the number of API servers by their identity Leases, and that the host is no endpoint of the Service that pods
/// use.
fn api_servers(w: &World, host: &str, count: usize) {
    let address = w.lab.address(host).expect("the lab has this host").to_string();
    let ends = said(w, &["get", "endpointslices", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[*]}"]);
    assert!(!ends.split_whitespace().any(|end| end == address), "{ends}");
    let of = "apiserver.kubernetes.io/identity=kube-apiserver";
    let leases = said(w, &["get", "leases", "-n", "kube-system", "-l", of, "-o", "name"]);
    assert_eq!(leases.lines().count(), count, "one identity Lease for each API server: {leases}");
}

fn one_by_one(w: &World) {
    roles(w, |host| at_first(host).to_owned());
    up_from_bare(w);
    let host = holder(w);
    let with = |rest: &'static str| move |other: &str| if other == host { rest } else { at_first(other) }.to_owned();

    roles(w, with("control-plane, etcd"));
    let plan = in_one_line(&w.hactl.run(&["plan"]).ok());
    assert!(
        plan.contains("stop keepalived.service") && plan.contains("remove 7 files: the former load balancer"),
        "{plan}"
    );
    up(w, "w-balancer", 1);
    left(w, host, BALANCER);
    assert_ne!(holder(w), host, "another host holds the VIP");

    roles(w, with("etcd, worker"));
    let plan = in_one_line(&w.hactl.run(&["plan"]).ok());
    assert!(plan.contains("stop the control plane's static pods"), "{plan}");
    up(w, "w-control-plane", 0);
    left(w, host, CONTROL_PLANE);
    api_servers(w, host, 2);
    let server = w.on(host, "sudo grep server: /etc/kubernetes/kubelet.conf");
    assert!(server.contains(&w.lab.vip().to_string()), "its kubelet uses the endpoint: {server}");
    let labels = said(w, &["get", "node", host, "-o", "jsonpath={.metadata.labels} {.spec.taints}"]);
    assert!(!labels.contains("control-plane") && labels.contains("node-role.kubernetes.io/worker"), "{labels}");

    roles(w, with("worker"));
    let said_by_up = up(w, "w-etcd", 0);
    assert!(said_by_up.contains("remove member"), "{said_by_up}");
    left(w, host, ETCD);
    let aside = w.on(host, "sudo ls /var/lib/etcd");
    assert!(aside.contains("member.moved-"), "the data is archived: {aside}");
    w.well().says("4 voters");
}

fn all_at_once(w: &World) {
    roles(w, |host| at_first(host).to_owned());
    w.hactl.up().ok();
    w.healthy(HEAL);
    let has_it = holder(w);
    // One of them holds the VIP.
    let spare: Vec<&str> =
        [has_it].into_iter().chain(WHOLE.into_iter().filter(|host| *host != has_it)).take(2).collect();
    roles(w, |host| if spare.contains(&host) { "spare" } else { at_first(host) }.to_owned());
    up(w, "w-spare", 2);
    for host in spare {
        left(w, host, EVERYTHING);
        api_servers(w, host, 1);
        let nodes = said(w, &["get", "nodes", "-o", "name"]);
        assert!(!nodes.contains(host), "{nodes}");
    }
    w.well().says("3 voters, quorum 2, 3 healthy");
}

fn back(w: &World) {
    roles(w, |host| at_first(host).to_owned());
    let ran = w.hactl.up().ok();
    println!("        five again in {:.1?}", ran.took);
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
    w.well().says("5 voters, quorum 3, 5 healthy");
}
