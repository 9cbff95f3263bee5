//! Upgrades from one minor version of Kubernetes to the next, with real components of each, while clients use the
//! cluster.

use super::bare_hosts::variant;
use super::founding::SIGKILL;
use super::recover::members;
use super::support::{Api, GIVEN_BACK, Hactl, Reads, Writer, once_free, wait_for};
use super::trials::{late, unnoticed};
use super::{Scenario, World, in_one_line, present_image};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

pub const OLD: &str = "1.34.4";
pub const NEXT: &str = "1.35.4";
pub const PREVIOUS: &str = "1.36.3";
/// What new clusters get.
pub const LATEST: &str = hactl::inventory::DEFAULT_KUBERNETES;
/// The versions of etcd that go with the last two.
const ETCD: [&str; 2] = ["3.6.16", "3.7.3"];

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "Kubernetes 1.35 that does not start is rolled back to 1.34 on the first host, and no client notices",
        cut: false,
        run: broken,
    },
    Scenario {
        name: "Kubernetes 1.34 becomes 1.35, its worker is drained once a budget allows it, and no request fails",
        cut: false,
        run: next,
    },
    Scenario {
        name: "Kubernetes 1.35 becomes 1.36 in a run that is killed and one that resumes it, and no request fails",
        cut: false,
        run: killed,
    },
    Scenario {
        name: "Kubernetes 1.36 becomes 1.37 and etcd 3.6 becomes 3.7, and no request fails; back is refused",
        cut: false,
        run: latest,
    },
];

/// A feature gate that 1.34 knows and 1.35 does not, so that its API server does not start.
const GATE: &str = "kube-apiserver: {args: {feature-gates: PodIndexLabel=true}}";
/// Prints what must not change on a host.
const FILES: &str = "sudo sh -c 'sha256sum /etc/kubernetes/manifests/* /etc/systemd/system/kubelet.service /var/lib/kubelet/config.yaml; \
                     ls /var/lib/hactl/kept'";

/// An inventory with another version of Kubernetes, and with this added to `extra`.
pub fn named(text: &str, version: &str, extra: &str) -> String {
    let text = text.replace(&format!("kubernetes: \"{LATEST}\""), &format!("kubernetes: \"{version}\""));
    if extra.is_empty() { text } else { text.replace("extra: {", &format!("extra: {{{extra}, ")) }
}

/// The lab's inventory with this version and this `extra`.
fn of(w: &World, version: &str, extra: &str) -> Hactl {
    variant(w, "upgrade.yaml", |text| named(&text, version, extra))
}

/// The shortest timeout of a drain.
const DRAIN: &str = "upgrade: {workers: {drainTimeout: 1m}}\n";
/// A Deployment, the label of its pod, and its disruption budget.
const MOVABLE: &str = "movable";

/// A pod of the Deployment.
struct Pod {
    name: String,
    uid: String,
    host: String,
    phase: String,
}

/// A Deployment, and the label of its pod.
const STICKY: &str = "sticky";

fn deployment(name: &str, mut pod: Value) -> Value {
    let labels = json!({"app": name});
    pod["terminationGracePeriodSeconds"] = json!(1);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

/// Two Deployments. The pod of one runs on the worker while that accepts pods, and may run on any other host; its
/// disruption budget refuses every eviction. The pod of the other tolerates every taint and runs on the worker only.
fn deploy(hactl: &Hactl, api: &Api) {
    let worker = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": ["w1"]}]);
    let containers = json!([{"name": "c", "image": present_image(hactl), "imagePullPolicy": "IfNotPresent"}]);
    let prefers = json!([{"weight": 100, "preference": {"matchExpressions": worker}}]);
    let movable = json!({
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "containers": containers,
    });
    let sticky = json!({
        "nodeSelector": {"kubernetes.io/hostname": "w1"},
        "tolerations": [{"operator": "Exists"}],
        "containers": containers,
    });
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": MOVABLE},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": MOVABLE}}},
    });
    for (path, object) in [
        ("/apis/apps/v1/namespaces/default/deployments", deployment(MOVABLE, movable)),
        ("/apis/apps/v1/namespaces/default/deployments", deployment(STICKY, sticky)),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget),
    ] {
        api.post(path, &object).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}

/// Waits until a Deployment has one pod, which runs; one that is being deleted does not count.
fn running(api: &Api, name: &str) -> Pod {
    let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}");
    let text = |pod: &Value, at: &str| pod.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut found: Vec<Pod> = Vec::new();
    wait_for("the Deployment's pod runs", Duration::from_secs(120), || {
        let list = api.get(&path).unwrap_or_default();
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let stay = all.iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
        let pod = |pod: &Value| Pod {
            name: text(pod, "/metadata/name"),
            uid: text(pod, "/metadata/uid"),
            host: text(pod, "/spec/nodeName"),
            phase: text(pod, "/status/phase"),
        };
        found = stay.map(pod).collect();
        matches!(&found[..], [pod] if pod.phase == "Running")
    });
    found.pop().expect("just found")
}

/// Whether the worker is cordoned.
fn cordoned(hactl: &Hactl) -> bool {
    hactl.kubectl(&["get", "node", "w1", "-o", "jsonpath={.spec.unschedulable}"]).ok().out.trim() == "true"
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

fn nobody_noticed(w: &World, reads: &Reads, writer: Writer) {
    unnoticed(w, reads);
    let (written, pause) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {pause:.2?}");
    assert!(pause <= late(reads), "a write waited for {pause:?}");
}

/// Starts with 1.34 on bare hosts; later scenarios continue from there.
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
    assert!(said.contains("the previous files were restored, and the host runs with them again"), "{}", ran.all());
    assert!(ran.all().contains("PodIndexLabel"), "the reason is reported: {}", ran.all());
    nobody_noticed(w, &reading.end(), writer);
    let after: Vec<String> = members(w).into_iter().map(|host| w.on(host, FILES)).collect();
    assert_eq!(after, before, "every host has its previous files");
    let hactl = of(w, OLD, GATE);
    assert_eq!(versions(&hactl), [format!("v{OLD}")]);
    // The hosts have the parts of 1.35 already, and the encrypted state includes the inventory that asks for it.
    hactl.up().ok().says("Nothing that serves is disturbed");
    hactl.up().ok().says("nothing to do");
    let refused = in_one_line(&of(w, PREVIOUS, "").up().exits(3));
    assert!(refused.contains("skips a minor version"), "{refused}");
    assert!(refused.contains("first set versions.kubernetes to a release of 1.35"), "{refused}");
}

fn next(w: &World) {
    let before = of(w, OLD, GATE);
    before.up().ok();
    let api = w.api();
    deploy(&before, &api);
    let (placed, sticky) = (running(&api, MOVABLE), running(&api, STICKY));
    assert_eq!(placed.host, "w1", "the worker accepts it");

    let hactl = variant(w, "upgrade.yaml", |text| named(&text, NEXT, "") + DRAIN);
    println!("{}", hactl.run(&["plan"]).ok().out);
    let writer = Writer::start(&w.api(), "w-next");
    let reading = w.api().reads(Duration::from_millis(20));
    let refused = hactl.up().exits(1);
    let said = in_one_line(&refused);
    let budget =
        format!("(PodDisruptionBudget default/{MOVABLE} never allows an eviction: 1 of its 1 must be healthy)");
    let pod = format!("1 pod did not leave w1 within 60 s: default/{} {budget}", placed.name);
    for words in [pod.as_str(), "the Node stays cordoned", "raise the number of replicas"] {
        assert!(said.contains(words), "{words}: {}", refused.all());
    }
    assert!(cordoned(&hactl), "the Node stays cordoned");
    assert_eq!(running(&api, MOVABLE).uid, placed.uid, "the pod stays");
    let back = running(&api, STICKY);
    assert!(back.uid != sticky.uid && back.host == "w1", "the other was evicted, and came back");
    let both = [format!("v{OLD}"), format!("v{NEXT}")];
    assert_eq!(versions(&hactl), both, "the worker keeps its kubelet until it is drained");

    hactl.kubectl(&["delete", "poddisruptionbudget", MOVABLE]).ok();
    let ran = hactl.up().ok();
    println!("        1.34 became 1.35 after {:.1?} with a budget and {:.1?} without it", refused.took, ran.took);
    nobody_noticed(w, &reading.end(), writer);
    assert_eq!(versions(&hactl), [format!("v{NEXT}")]);
    let said = in_one_line(&ran);
    assert!(said.contains("comes back to w1 although that is cordoned"), "{}", ran.all());
    let moved = running(&api, MOVABLE);
    assert_ne!(moved.uid, placed.uid, "the pod was evicted");
    assert_ne!(moved.host, "w1", "another host took over while the worker was cordoned");
    hactl.kubectl(&["delete", "deployment", MOVABLE, STICKY]).ok();
    let shut = hactl.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}"]).ok().out;
    assert_eq!(shut.trim(), "", "no Node is cordoned");
    hactl.up().ok().says("nothing to do");
    let refused = in_one_line(&of(w, OLD, "").up().exits(3));
    assert!(refused.contains("an older minor version"), "{refused}");
}

/// Runs `up` to that version, and kills it when a second host has its new API server, also if that is in reserve.
pub fn killed_in_its_midst(w: &World, hactl: &Hactl, version: &str) {
    let mut child = hactl.command(&["up", "--yes"]).spawn().expect("hactl can be started");
    wait_for("a second host gets its new API server", Duration::from_secs(400), || {
        let manifest = "sudo sh -c 'cat /etc/kubernetes/*/kube-apiserver.yaml'";
        members(w).iter().filter(|host| w.on(host, manifest).contains(version)).count() >= 2
    });
    child.kill().expect("it can be killed");
    let ended = child.wait().expect("it ends");
    assert_eq!(ended.signal(), Some(SIGKILL), "the run had ended before it was killed: {ended}");
}

fn killed(w: &World) {
    let hactl = of(w, PREVIOUS, "");
    let writer = Writer::start(&w.api(), "w-killed");
    let reading = w.api().reads(Duration::from_millis(20));
    killed_in_its_midst(w, &hactl, PREVIOUS);
    once_free(GIVEN_BACK, || hactl.up()).ok();
    nobody_noticed(w, &reading.end(), writer);
    assert_eq!(versions(&hactl), [format!("v{PREVIOUS}")]);
    hactl.up().ok().says("nothing to do");
    w.healthy(Duration::from_secs(120));
}

/// The version of the etcd member of each host, each once.
fn etcds(w: &World) -> Vec<String> {
    let ask = "curl -s http://127.0.0.1:2384/metrics | grep -o 'server_version=\"[0-9.]*' | cut -d'\"' -f2";
    let hosts = members(w).into_iter().filter(|host| host.starts_with("cp"));
    let mut all: Vec<String> = hosts.map(|host| w.on(host, ask).trim().to_owned()).collect();
    all.sort();
    all.dedup();
    all
}

fn latest(w: &World) {
    of(w, PREVIOUS, "").up().ok();
    assert_eq!(etcds(w), ETCD[..1]);
    let hactl = of(w, LATEST, "");
    println!("{}", hactl.run(&["plan"]).ok().out);
    let writer = Writer::start(&w.api(), "w-latest");
    let reading = w.api().reads(Duration::from_millis(20));
    let ran = hactl.up().ok();
    println!("        1.36 became 1.37 after {:.1?}", ran.took);
    nobody_noticed(w, &reading.end(), writer);
    assert_eq!(versions(&hactl), [format!("v{LATEST}")]);
    assert_eq!(etcds(w), ETCD[1..]);
    hactl.up().ok().says("nothing to do");
    w.healthy(Duration::from_secs(120));
    let refused = in_one_line(&of(w, PREVIOUS, "").up().exits(3));
    assert!(refused.contains("an older minor version"), "{refused}");
    w.healthy(Duration::from_secs(120));
}
