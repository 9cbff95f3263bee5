//! Guards that repair their own host: what is frozen works again in time under a client that writes, and what a person
//! has stopped, held or locked is left alone.

use super::guard::{CLEARED, SLACK, faults, guarded, is_known, next, none};
use super::leaving::move_leadership_to;
use super::support::{Hactl, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "without guards, status names the components that are frozen, and up restarts them",
        cut: false,
        run: by_up,
    },
    Scenario { name: "guards restart what is frozen, in time", cut: true, run: repair },
    Scenario { name: "guards leave alone what a person stopped, held or locked", cut: false, run: left_alone },
];

/// A frozen component: its host, unit and fault, how its host sees that it serves, and the goal for its repair.
struct Frozen {
    host: &'static str,
    process: &'static str,
    kind: &'static str,
    serves: &'static str,
    goal_s: u64,
}

const ETCD: Frozen = Frozen {
    host: "cp1",
    process: "etcd",
    kind: "EtcdFrozen",
    serves: "curl -sf -m 1 -o /dev/null http://127.0.0.1:2384/livez",
    goal_s: 30,
};
const API_SERVER: &str = "kube-apiserver";
const API: Frozen = Frozen {
    host: "cp1",
    process: API_SERVER,
    kind: "ApiFrozen",
    serves: "curl -sk -m 1 -o /dev/null https://$(hostname -I | cut -d' ' -f1):6443/livez",
    goal_s: 45,
};
const KUBELET: Frozen = Frozen {
    host: "cp2",
    process: "kubelet",
    kind: "KubeletFrozen",
    serves: "curl -sf -m 1 -o /dev/null http://127.0.0.1:10248/healthz",
    goal_s: 60,
};
const CONTAINERD: Frozen = Frozen {
    host: "cp3",
    process: "containerd",
    kind: "RuntimeFrozen",
    serves: "sudo timeout 1 ctr version >/dev/null 2>&1",
    goal_s: 60,
};
const HAPROXY: Frozen = Frozen {
    host: "cp2",
    process: "haproxy",
    kind: "BalancerFrozen",
    serves: "curl -s -m 1 -o /dev/null http://127.0.0.1:6480/usable",
    goal_s: 10,
};
const KEEPALIVED: Frozen = Frozen {
    host: "cp3",
    process: "keepalived",
    kind: "KeepalivedFrozen",
    // It has no port: that it is not suspended is all that can be seen.
    serves: "true",
    goal_s: 10,
};

/// Whether the component runs, is not suspended, and serves.
fn works(w: &World, frozen: &Frozen) -> bool {
    let Frozen { process, serves, .. } = frozen;
    let states = format!("s=$(ps -o stat= -C {process}); [ -n \"$s\" ] && ! echo \"$s\" | grep -q ^T && {serves}");
    w.on(frozen.host, &format!("{{ {states}; }} && echo works || true")).contains("works")
}

fn freeze(w: &World, frozen: &Frozen) {
    let stop = match frozen.process {
        // No unit runs it.
        API_SERVER => format!("sudo sh -c 'kill -STOP $(pgrep -x {API_SERVER})'"),
        // Its shims, which have the containers, are not frozen.
        unit @ "containerd" => format!("sudo systemctl kill --kill-who=main --signal=SIGSTOP {unit}"),
        unit => format!("sudo systemctl kill --signal=SIGSTOP {unit}"),
    };
    assert_eq!(w.on(frozen.host, &format!("{stop} && echo stopped")).trim(), "stopped");
    assert!(!works(w, frozen), "{} of {} is frozen", frozen.process, frozen.host);
}

fn by_up(w: &World) {
    let all = [API, KUBELET, HAPROXY, KEEPALIVED];
    for frozen in &all {
        freeze(w, frozen);
    }
    let status = w.hactl.run(&["status"]);
    let said = in_one_line(&status);
    for frozen in &all {
        let named = match frozen.process {
            API_SERVER => format!("of {API_SERVER} is suspended"),
            unit => format!("of {unit}.service is suspended"),
        };
        assert!(said.contains(&named), "{named}: {}", status.all());
    }
    println!("        status took {:.1?}", status.took);
    let up = w.hactl.up().ok();
    println!("        up took {:.1?}", up.took);
    for frozen in &all {
        assert!(works(w, frozen), "{} of {}: {}", frozen.process, frozen.host, up.all());
    }
    assert!(up.took < Duration::from_secs(90), "{:?}", up.took);
    w.hactl.up().ok().says("nothing to do");
    w.healthy(CLEARED);
}

/// Freezes components of different hosts at the same time, and waits until each works again.
fn restarted(w: &World, all: &[Frozen]) {
    let since = Instant::now();
    for frozen in all {
        freeze(w, frozen);
    }
    let mut left: Vec<&Frozen> = all.iter().collect();
    let most = all.iter().map(|frozen| frozen.goal_s).max().expect("one");
    wait_for("each works again", Duration::from_secs(2 * most), || {
        left.retain(|frozen| {
            let again = works(w, frozen);
            if again {
                let (took, goal) = (since.elapsed(), Duration::from_secs(frozen.goal_s));
                println!("        {} of {} works again after {took:.1?} (goal {goal:?})", frozen.process, frozen.host);
                assert!(took < goal + SLACK / 2, "{} took {took:?}", frozen.process);
            }
            !again
        });
        left.is_empty()
    });
}

/// The processes of the containers of a host, each with its pod.
fn containers(w: &World, host: &str) -> BTreeMap<String, String> {
    let pod = r#"grep -o '"io.kubernetes.pod.name": *"[^"]*"' | cut -d'"' -f4"#;
    let line = format!("echo $pid $(sudo ctr -n k8s.io containers info $id < /dev/null | {pod})");
    let all = format!("sudo ctr -n k8s.io tasks ls | tail -n +2 | while read id pid state; do {line}; done");
    let said = w.on(host, &all);
    let found: BTreeMap<_, _> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .map(|(pid, pod)| (pid.to_owned(), pod.to_owned()))
        .collect();
    assert!(found.len() > 3 && found.values().all(|pod| !pod.is_empty()), "{host}: {said}");
    found
}

/// The repairs so far: host, kind and outcome.
pub fn history(hactl: &Hactl) -> Vec<[String; 3]> {
    let ran = hactl.run(&["guard", "history", "-o", "json"]).ok();
    let all: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.all()));
    let field = |repair: &Value, key: &str| repair[key].as_str().expect("a text").to_owned();
    let repairs = all["repairs"].as_array().expect("repairs").iter();
    let mut found: Vec<_> = repairs.map(|repair| ["host", "kind", "outcome"].map(|key| field(repair, key))).collect();
    found.sort();
    found
}

/// Waits until the repairs so far are exactly these, and each has helped.
fn repaired(hactl: &Hactl, before: Vec<[String; 3]>, more: &[&Frozen]) {
    let mut expected = before;
    expected.extend(more.iter().map(|frozen| [frozen.host, frozen.kind, "helped"].map(str::to_owned)));
    expected.sort();
    let since = Instant::now();
    let mut found = history(hactl);
    while since.elapsed() < SLACK && !found.iter().all(|[.., outcome]| outcome == "helped") {
        std::thread::sleep(Duration::from_millis(500));
        found = history(hactl);
    }
    if found != expected {
        println!("{}", hactl.run(&["guard", "history"]).all());
    }
    assert_eq!(found, expected, "each has helped, and there was no other repair");
}

/// The API has an Event of each part of a repair, at the Node.
fn events(w: &World, frozen: &Frozen) {
    let of_node = format!("involvedObject.kind=Node,involvedObject.name={}", frozen.host);
    let kind = frozen.kind;
    wait_for("the Events of a repair exist", SLACK, || {
        let ran = w.hactl.kubectl(&["-n", "default", "get", "events", "--field-selector", &of_node, "-o", "json"]).ok();
        let list: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.all()));
        let about = |event: &&Value| event["message"].as_str().is_some_and(|text| text.starts_with(kind));
        let all = list["items"].as_array().expect("a list").iter().filter(about);
        let reasons: Vec<&str> = all.filter_map(|event| event["reason"].as_str()).collect();
        let expected = ["HactlFault", "HactlRepairStarted", "HactlRepaired", "HactlFaultCleared"];
        expected.iter().all(|reason| reasons.contains(reason))
    });
    let shown = w.hactl.kubectl(&["describe", "node", frozen.host]).ok().out;
    assert!(shown.contains("HactlRepaired"), "{shown}");
}

fn repair(w: &World) {
    let hactl = guarded(w, "healing: on");
    assert_eq!((faults(&hactl), history(&hactl)), (vec![], vec![]), "nothing is broken");

    move_leadership_to(w, ETCD.host);
    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-guard");
    let hosts = [KUBELET.host, CONTAINERD.host];
    let before = hosts.map(|host| containers(w, host));
    restarted(w, &[KUBELET, CONTAINERD, API]);
    assert_eq!(hosts.map(|host| containers(w, host)), before, "the containers of the kubelet and of containerd go on");
    // Not before: a controller manager that cannot renew its Lease, because etcd's leader is frozen, ends by itself.
    restarted(w, &[ETCD, HAPROXY, KEEPALIVED]);
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, longest pause {longest:.1?}");
    repaired(&hactl, vec![], &[&ETCD, &KUBELET, &CONTAINERD, &API, &HAPROXY, &KEEPALIVED]);
    none(&hactl);
    w.healthy(CLEARED);
    events(w, &ETCD);
}

/// The host whose Node a person deletes.
const MISSING: &str = "cp1";

/// A host that a person holds, one that a run has locked, and a unit that a person stopped; meanwhile, a Node is deleted
/// and comes back. In the end, all that is frozen is repaired.
fn left_alone(w: &World) {
    let hactl = &guarded(w, "healing: on");
    let before = history(hactl);
    let (held, locked) = (KUBELET, Frozen { host: "cp3", ..HAPROXY });
    let hour = ["guard", "pause", "--host", held.host, "--for", "1h", "--reason", "disk swap"];
    hactl.run(&hour).ok().says("repairs are paused on cp2");
    let lock = "sudo systemd-run --quiet --unit=a-run flock /run/hactl/lock sleep 600 && echo locked";
    assert_eq!(w.on(locked.host, lock).trim(), "locked");
    w.on("cp1", "sudo systemctl stop haproxy");
    hactl.kubectl(&["delete", "node", MISSING]).ok();
    let since = Instant::now();
    freeze(w, &held);
    freeze(w, &locked);
    wait_for("all three faults are reported", Duration::from_secs(30) + SLACK, || {
        let kinds = [("cp1", "BalancerFrozen"), (held.host, held.kind), (locked.host, locked.kind)];
        kinds.iter().all(|(host, kind)| is_known(hactl, host, kind))
    });
    wait_for("each guard says why it does nothing", SLACK, || {
        next(hactl, held.host).contains("the host is held")
            && next(hactl, locked.host).contains("has the lock of the host")
            && next(hactl, "cp1").contains("restart haproxy.service in 14 min")
    });
    let status = in_one_line(&hactl.run(&["status"]).exits(4));
    assert!(status.contains("is held for another 59 min") && status.contains("\"disk swap\""), "{status}");
    // As long as a repair would have taken.
    std::thread::sleep((Duration::from_secs(held.goal_s)).saturating_sub(since.elapsed()));
    assert!(!works(w, &held) && !works(w, &locked), "both are still frozen");
    assert_eq!(w.on("cp1", "systemctl is-active haproxy || true").trim(), "inactive", "a person stopped it");

    hactl.run(&["guard", "resume"]).ok();
    w.on(locked.host, "sudo systemctl stop a-run");
    wait_for("both work again", SLACK, || works(w, &held) && works(w, &locked));
    w.on("cp1", "sudo systemctl start haproxy");
    let exists = || hactl.kubectl(&["get", "node", MISSING]).code == 0;
    wait_for("the Node exists again", Duration::from_secs(60) + SLACK, exists);
    println!("        the Node of {MISSING} exists again after {:.1?}", since.elapsed());
    let missing = Frozen { host: MISSING, kind: "NodeMissing", ..KUBELET };
    repaired(hactl, before, &[&held, &locked, &missing]);
    none(hactl);
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    w.healthy(CLEARED);
}
