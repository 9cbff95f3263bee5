//! Upgrades from one minor version of Kubernetes to the next, with real components of each, while somebody uses the cluster.

use super::bare_hosts::variant;
use super::recover::members;
use super::support::{GIVEN_BACK, Hactl, Knocks, Writer, once_free, wait_for};
use super::trials::{late, unnoticed};
use super::{Scenario, World, in_one_line};
use std::time::Duration;

const OLD: &str = "1.34.4";
const NEXT: &str = "1.35.4";
const NEWEST: &str = "1.36.3";

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "Kubernetes 1.35 that does not come up stops at the first host, which goes back to 1.34, and no client notices",
        cut: false,
        run: broken,
    },
    Scenario {
        name: "Kubernetes 1.34 becomes 1.35, its worker is drained meanwhile, and no request fails",
        cut: false,
        run: next,
    },
    Scenario {
        name: "Kubernetes 1.35 becomes 1.36 by a run that is killed and one that finishes it, and no request fails",
        cut: false,
        run: killed,
    },
];

/// What a gate does to an API server that does not know it. 1.34 does, and 1.35 has forgotten it.
const GATE: &str = "kube-apiserver: {args: {feature-gates: PodIndexLabel=true}}";
/// What tells that nothing was changed on a host.
const FILES: &str = "sudo sh -c 'sha256sum /etc/kubernetes/manifests/* /etc/systemd/system/kubelet.service /var/lib/kubelet/config.yaml; \
                     ls /var/lib/hactl/kept'";

/// The lab's inventory with another Kubernetes, and with this put first into `extra`.
fn of(w: &World, version: &str, extra: &str) -> Hactl {
    let named = |text: String| {
        let text = text.replace(&format!("kubernetes: \"{NEWEST}\""), &format!("kubernetes: \"{version}\""));
        if extra.is_empty() { text } else { text.replace("extra: {", &format!("extra: {{{extra}, ")) }
    };
    variant(w, "upgrade.yaml", named)
}

/// The version of every kubelet and of every static pod's image, each once.
fn versions(hactl: &Hactl) -> Vec<String> {
    let nodes = hactl.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"]).ok().out;
    let image = "jsonpath={.items[*].spec.containers[*].image}";
    let pods = hactl.kubectl(&["get", "pods", "-n", "kube-system", "-l", "tier=control-plane", "-o", image]).ok().out;
    let tags = pods.split_whitespace().filter_map(|image| image.rsplit(':').next()).map(str::to_owned);
    let mut all: Vec<String> = nodes.split_whitespace().map(str::to_owned).chain(tags).collect();
    all.sort();
    all.dedup();
    all
}

fn nobody_noticed(knocks: &Knocks, writer: Writer) {
    unnoticed(knocks);
    let (written, pause) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {pause:.2?}");
    assert!(pause <= late(knocks), "a write waited for {pause:?}");
}

/// Begins at 1.34 on bare hosts; later scenarios go on from there.
fn broken(w: &World) {
    let hactl = of(w, OLD, GATE);
    hactl.up().ok();
    assert_eq!(versions(&hactl), [format!("v{OLD}")]);
    let before: Vec<String> = members(w).into_iter().map(|host| w.on(host, FILES)).collect();
    let writer = Writer::start(&w.api(), "w-broken");
    let reading = w.api().reads(Duration::from_millis(20));
    let ran = of(w, NEXT, GATE).up().exits(1);
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    let said = in_one_line(&ran);
    assert!(said.contains("the earlier files are back, and it runs by them again"), "{}", ran.all());
    assert!(ran.all().contains("PodIndexLabel"), "what it did not come up with is told: {}", ran.all());
    nobody_noticed(&reading.end(), writer);
    let after: Vec<String> = members(w).into_iter().map(|host| w.on(host, FILES)).collect();
    assert_eq!(after, before, "every host has what it had");
    let hactl = of(w, OLD, GATE);
    assert_eq!(versions(&hactl), [format!("v{OLD}")]);
    // The parts of 1.35 lie there, and the keys are sealed along with an inventory that asks for it.
    hactl.up().ok().says("Nothing that serves is disturbed");
    hactl.up().ok().says("nothing to do");
    let refused = in_one_line(&of(w, NEWEST, "").up().exits(3));
    assert!(refused.contains("skips a minor version"), "{refused}");
    assert!(refused.contains("first set versions.kubernetes to a release of 1.35"), "{refused}");
}

fn next(w: &World) {
    let hactl = of(w, NEXT, "");
    println!("{}", hactl.run(&["plan"]).ok().out);
    let writer = Writer::start(&w.api(), "w-next");
    let reading = w.api().reads(Duration::from_millis(20));
    let ran = hactl.up().ok();
    println!("        1.34 became 1.35 after {:.1?}", ran.took);
    nobody_noticed(&reading.end(), writer);
    assert_eq!(versions(&hactl), [format!("v{NEXT}")]);
    let shut = hactl.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}"]).ok().out;
    assert_eq!(shut.trim(), "", "every Node is open to pods");
    hactl.up().ok().says("nothing to do");
    let refused = in_one_line(&of(w, OLD, "").up().exits(3));
    assert!(refused.contains("an older minor version"), "{refused}");
}

fn killed(w: &World) {
    let hactl = of(w, NEWEST, "");
    let writer = Writer::start(&w.api(), "w-killed");
    let reading = w.api().reads(Duration::from_millis(20));
    let mut child = hactl.command(&["up", "--yes"]).spawn().expect("hactl can be started");
    wait_for("a second host gets its new API server", Duration::from_secs(400), || {
        let has = |host: &&str| w.on(host, "sudo cat /etc/kubernetes/manifests/kube-apiserver.yaml").contains(NEWEST);
        members(w).iter().filter(|host| has(host)).count() >= 2
    });
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    once_free(GIVEN_BACK, || hactl.up()).ok();
    nobody_noticed(&reading.end(), writer);
    assert_eq!(versions(&hactl), [format!("v{NEWEST}")]);
    hactl.up().ok().says("nothing to do");
    w.healthy(Duration::from_secs(120));
}
