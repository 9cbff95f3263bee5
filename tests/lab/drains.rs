//! Drains: by other tools on hosts of the control plane, one host at a time and none while another one is not ready;
//! and by hactl on a worker, by the rules of the cluster.

use super::support::{Ran, wait_for};
use super::{Scenario, World, in_one_line, present_image};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "no kubectl drain takes a second control-plane host, and none takes a good one while a member of etcd is down",
    cut: true,
    run: foreign,
}];

/// On one control-plane host and one worker.
pub const RULES: &[Scenario] = &[Scenario {
    name: "a worker is drained by rules: a pod that stays, and one that completes",
    cut: false,
    run: ruled,
}];

const HEAL: Duration = Duration::from_secs(180);
/// What kubectl says of a pod whose budget refuses.
const REFUSED: &str = "violate the pod's disruption budget";

/// As people do it, with a short timeout.
pub fn drain(w: &World, host: &str, more: &[&str]) -> Ran {
    let plain = ["drain", host, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=12s"];
    w.hactl.kubectl(&[&plain[..], more].concat())
}

/// Waits until the pods that stand for the control plane are ready on so many hosts.
pub fn stands_on(w: &World, hosts: &str) {
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

/// Workloads of the worker: their names are also their labels. The Job ends by its deadline.
pub fn workloads(image: &str) -> String {
    let container = format!("{{name: c, image: {image:?}, imagePullPolicy: IfNotPresent}}");
    let spec = |more: &str| {
        format!(
            "{{nodeSelector: {{kubernetes.io/hostname: w1}}, containers: [{container}], terminationGracePeriodSeconds: 1{more}}}"
        )
    };
    let deployment = |name: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: rules}}\nspec:\n  selector: {{matchLabels: \
             {{app: {name}}}}}\n  template: {{metadata: {{labels: {{app: {name}}}}}, spec: {}}}\n---\n",
            spec("")
        )
    };
    let job = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: training, namespace: rules}}\nspec:\n  backoffLimit: 0\n  template: \
         {{metadata: {{labels: {{app: training}}}}, spec: {}}}\n---\n",
        spec(", restartPolicy: Never, activeDeadlineSeconds: 120")
    );
    ["agent", "storage", "web"].map(deployment).concat() + &job
}

/// What administrators and a team say of them.
pub const OF_RULES: &str = "\
apiVersion: lifecycle.hactl.dev/v1alpha1
kind: ClusterDrainRule
metadata: {name: agents}
spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: rules}}, podSelector: {matchLabels: {app: agent}}, behavior: Skip}
---
apiVersion: lifecycle.hactl.dev/v1alpha1
kind: DrainRule
metadata: {name: storage, namespace: rules}
spec: {podSelector: {matchLabels: {app: storage}}, behavior: Drain, order: 100}
---
apiVersion: lifecycle.hactl.dev/v1alpha1
kind: DrainRule
metadata: {name: training, namespace: rules}
spec: {podSelector: {matchLabels: {app: training}}, behavior: WaitCompleted}
";
const WRONG: &str = "\
apiVersion: lifecycle.hactl.dev/v1alpha1
kind: DrainRule
metadata: {name: wrong, namespace: rules}
spec: {behavior: Skip, order: 1}
";

pub fn ruled(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let apply = |name: &str, text: &str| {
        let path = w.lab.dir().join(name);
        std::fs::write(&path, text).expect("writable");
        w.hactl.kubectl(&["apply", "-f", path.to_str().expect("a path of letters")])
    };
    w.hactl.kubectl(&["create", "namespace", "rules"]).ok();
    apply("wrong.yaml", WRONG).exits(1).says("order is allowed with the behavior Drain only");
    apply("rules.yaml", OF_RULES).ok();
    apply("workloads.yaml", &workloads(&present_image(&w.hactl))).ok();
    let names = || {
        let path = "jsonpath={range .items[?(@.status.phase==\"Running\")]}{.metadata.labels.app} {end}";
        w.hactl.kubectl(&["-n", "rules", "get", "pods", "--field-selector", "spec.nodeName=w1", "-o", path]).ok().out
    };
    wait_for("all run on the worker", HEAL, || names().split_whitespace().count() == 4);

    let said = in_one_line(&w.hactl.run(&["maintain", "start", "w1", "-v", "--yes"]).ok());
    assert!(said.contains("stays on w1, by ClusterDrainRule agents"), "{said}");
    assert!(said.contains("until it has completed, by DrainRule rules/training)"), "{said}");
    w.hactl.run(&["maintain", "cancel", "w1"]).ok();
    w.hactl.kubectl(&["delete", "namespace", "rules"]).ok();
    w.hactl.kubectl(&["delete", "clusterdrainrule", "agents"]).ok();
    w.hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
}
