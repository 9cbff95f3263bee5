//! Drains that the Node's own pods leave as well: those of DaemonSets, and static pods, which the node agent holds.

use super::acting::{TAKEN_OVER, reaches, status};
use super::drains::stands_on;
use super::guard::guarded;
use super::maintain::{HEAL, apply, kubectl};
use super::repairs::history;
use super::support::{Writer, wait_for};
use super::trials::unnoticed_but_for_moves;
use super::{Scenario, World, in_one_line, present_image};
use std::time::Duration;

/// On three control-plane hosts and one worker.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a control-plane host is drained of its DaemonSets and static pods, stays so over a loss of power, and comes back",
    cut: false,
    run: through,
}];

const OFTEN: Duration = Duration::from_millis(20);
const BOOT: Duration = Duration::from_secs(60);
/// Longer than a node agent or a kubelet takes to act on what it finds after a boot.
const SETTLED: Duration = Duration::from_secs(45);

/// A DaemonSet on every Node of the control plane, whose pods tolerate this as well.
fn daemon_set(name: &str, image: &str, tolerates: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: {{app: {name}}}}}\n  \
         template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      tolerations:\n      \
         - {{key: node-role.kubernetes.io/control-plane, operator: Exists}}\n{tolerates}      containers:\n      \
         - {{name: c, image: {image:?}, imagePullPolicy: IfNotPresent}}\n"
    )
}

/// Pods of the app on cp2 that run.
fn running(w: &World, app: &str) -> usize {
    let of = format!("get pods -l app={app} -o name --field-selector spec.nodeName=cp2,status.phase=Running");
    kubectl(w, &of).out.lines().count()
}

/// The manifests in a folder of cp2, and whether an API server runs there.
fn files(w: &World, folder: &str) -> Vec<String> {
    let listed = w.on("cp2", &format!("sudo ls /etc/kubernetes/{folder}"));
    listed.split_whitespace().map(str::to_owned).collect()
}

fn serves(w: &World) -> bool {
    w.on("cp2", "pgrep -x kube-apiserver || true").trim() != ""
}

fn through(w: &World) {
    let hactl = guarded(w, "healing: on");
    stands_on(w, "3");
    let image = present_image(&hactl);
    apply(w, &daemon_set("plain", &image, "")).ok();
    apply(w, &daemon_set("everywhere", &image, "      - {operator: Exists}\n")).ok();
    wait_for("the pods of both run", HEAL, || running(w, "plain") == 1 && running(w, "everywhere") == 1);
    let (before, repaired) = (files(w, "manifests"), history(&hactl));
    assert_eq!(before.len(), 3, "{before:?}");

    let (reading, writer) = (w.api().reads(OFTEN), Writer::every(OFTEN, &w.api(), "w-through"));
    let words = ["maintain", "start", "cp2", "--yes", "--through", "static", "--reason", "new container runtime"];
    let ran = hactl.run(&words).ok().says("cp2 is drained");
    let (written, refused, longest) = writer.account();
    let reads = reading.end();
    println!(
        "        cp2 was drained of everything after {:.1?}; {written} writes acknowledged, none lost, {refused} failed; the \
         longest pause {longest:.2?}",
        ran.took
    );
    unnoticed_but_for_moves(w, &reads, 1);
    let said = in_one_line(&ran);
    assert!(said.contains("default/everywhere-") && said.contains("tolerates the taint of the drain"), "{said}");
    assert_eq!((running(w, "plain"), running(w, "everywhere"), serves(w)), (0, 1, false));
    assert_eq!((files(w, "manifests").len(), files(w, "held")), (0, before.clone()));
    let taints = kubectl(w, "get node cp2 -o jsonpath={.spec.taints[*].key}").ok().out;
    assert!(taints.contains("lifecycle.hactl.dev/drained"), "{taints}");
    let patch = ["patch", "nmt", "cp2", "--type", "merge", "-p", "{\"spec\":{\"drain\":{\"through\":\"DaemonSet\"}}}"];
    hactl.kubectl(&patch).exits(1).says("through cannot go from Static to DaemonSet");
    hactl.up().ok().says("nothing to do");

    w.lab.kill("cp2").expect("the power can be cut");
    w.lab.start("cp2", BOOT).expect("the host boots");
    wait_for("the Node is ready by its new boot", HEAL, || {
        let path = "get node cp2 -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        kubectl(w, path).out == "True" && w.on("cp2", "systemctl is-active hactl-node-agent").trim() == "active"
    });
    std::thread::sleep(SETTLED);
    assert_eq!((files(w, "manifests").len(), files(w, "held").len(), serves(w)), (0, 3, false), "after the boot");
    assert_eq!(status(w, "cp2", "state"), "Drained");
    assert_eq!(history(&hactl), repaired, "guards repair nothing of it");

    let ran = hactl.run(&["maintain", "finish", "cp2"]).ok().says("the maintenance of cp2 is over");
    println!("        cp2 was back after {:.1?}", ran.took);
    reaches(w, "cp2", "Completed", TAKEN_OVER);
    assert_eq!((files(w, "manifests"), files(w, "held").len(), serves(w)), (before, 0, true));
    let path = "get node cp2 -o jsonpath={.spec.unschedulable}{.spec.taints[*].key}";
    assert!(!kubectl(w, path).ok().out.contains("lifecycle.hactl.dev"));
    wait_for("the DaemonSet is back", HEAL, || running(w, "plain") == 1);
    kubectl(w, "delete daemonset plain everywhere").ok();
    kubectl(w, "delete nmt cp2").ok();
    super::guard::asked(w, "").up().ok();
    w.healthy(HEAL);
}
