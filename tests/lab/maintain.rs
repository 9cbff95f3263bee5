//! Maintenance of a worker by `hactl maintain`: what is shown before, what is in the way, an interrupted command, and the
//! Node as it was before.

use super::drains::{OF_RULES, workloads};
use super::support::{Hactl, Ran, once_free, wait_for};
use super::{Scenario, World, in_one_line, present_image};
use std::time::Duration;

/// On one control-plane host and one worker.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the API server accepts and refuses maintenances as their kind and its policy say",
        cut: false,
        run: admitted,
    },
    Scenario {
        name: "a worker is taken out of service by a command that is killed and one that continues, and is restored",
        cut: false,
        run: maintained,
    },
];

pub const HEAL: Duration = Duration::from_secs(180);
/// After this time another process takes over the Lease of a killed one.
const TAKEN_OVER: Duration = Duration::from_secs(60);
/// A budget that allows no eviction of the one pod that it selects.
pub const BUDGET: &str = "\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: rules}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";

pub fn kubectl(w: &World, words: &str) -> Ran {
    w.hactl.kubectl(&words.split_whitespace().collect::<Vec<_>>())
}

pub fn apply(w: &World, text: &str) -> Ran {
    let path = w.lab.dir().join("maintain.yaml");
    std::fs::write(&path, text).expect("writable");
    w.hactl.kubectl(&["apply", "-f", path.to_str().expect("a path of letters")])
}

pub fn object(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: lifecycle.hactl.dev/v1alpha1\nkind: NodeMaintenance\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

pub fn admitted(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    apply(w, &object("t1", "{nodeName: w1}")).ok();
    assert_eq!(kubectl(w, "get nmt t1 -o jsonpath={.spec.stage}").ok().out, "Idle");
    for (patch, says) in [
        ("{\"nodeName\":\"cp1\"}", "nodeName cannot be changed"),
        ("{\"stage\":\"Drain\"}", ""),
        ("{\"stage\":\"Cordon\"}", "stage cannot go from Drain to Cordon"),
        ("{\"drain\":{\"forceAfter\":\"10s\"}}", "forceAfter is 1m to 168h"),
        ("{\"drain\":{\"forceAfter\":\"2h\",\"giveUpAfter\":\"1h\"}}", "forceAfter must be shorter than giveUpAfter"),
        ("{\"stage\":\"Complete\"}", ""),
        ("{\"reason\":\"x\"}", "a maintenance that is complete cannot be changed"),
    ] {
        let spec = format!("{{\"spec\":{patch}}}");
        let ran = w.hactl.kubectl(&["patch", "nmt", "t1", "--type", "merge", "-p", &spec]);
        if says.is_empty() {
            ran.ok()
        } else {
            ran.exits(1).says(says)
        };
    }
    apply(w, &object("t2", "{nodeName: w1, stage: Complete}")).exits(1).says("must start with Idle, Cordon or Drain");
    // A person with every right on the kind, and none on Nodes.
    kubectl(w, "create clusterrole nmt --verb=* --resource=nodemaintenances.lifecycle.hactl.dev").ok();
    kubectl(w, "create clusterrolebinding nmt --clusterrole=nmt --user=someone").ok();
    let path = w.lab.dir().join("maintain.yaml");
    std::fs::write(&path, object("t3", "{nodeName: w1, stage: Drain}")).expect("writable");
    let stranger = ["--as=someone", "create", "-f", path.to_str().expect("a path of letters")];
    w.hactl.kubectl(&stranger).exits(1).says("someone may not delete the Node w1");
    kubectl(w, "--as=someone delete nmt t1").exits(1).says("someone may not delete the Node w1");
    who_approves(w);
    // The right to delete it is none to reboot its host.
    kubectl(w, "create clusterrole nodes --verb=delete --resource=nodes").ok();
    kubectl(w, "create clusterrolebinding nodes --clusterrole=nodes --user=someone").ok();
    std::fs::write(&path, object("t4", "{nodeName: w1, action: Reboot}")).expect("writable");
    w.hactl.kubectl(&stranger).exits(1).says("a reboot, or poweredOff, needs the verb reboot on the Node");
    std::fs::write(&path, object("t4", "{nodeName: w1}")).expect("writable");
    w.hactl.kubectl(&stranger).ok();
    let reboot = "{\"spec\":{\"action\":\"Reboot\"}}";
    let patch = ["--as=someone", "patch", "nmt", "t4", "--type", "merge", "-p", reboot];
    w.hactl.kubectl(&patch).exits(1).says("a reboot, or poweredOff, needs the verb reboot on the Node");
    let long = "{\"spec\":{\"reboot\":{\"timeout\":\"5h\"}}}";
    w.hactl.kubectl(&["patch", "nmt", "t4", "--type", "merge", "-p", long]).exits(1).says("timeout is 1m to 4h");
    kubectl(w, "delete clusterrole,clusterrolebinding nodes").ok();
    kubectl(w, "delete nmt t1 t4").ok();
    kubectl(w, "delete clusterrole,clusterrolebinding nmt").ok();
}

/// Somebody may do all with maintenances, and not delete Nodes; an author may delete Nodes, and approve nothing.
fn who_approves(w: &World) {
    kubectl(w, "create clusterrole author --verb=get,patch --resource=nodemaintenances.lifecycle.hactl.dev").ok();
    kubectl(w, "create clusterrole deleter --verb=delete --resource=nodes").ok();
    kubectl(w, "create clusterrolebinding author --clusterrole=author --user=author").ok();
    kubectl(w, "create clusterrolebinding deleter --clusterrole=deleter --user=author").ok();
    let patch = |who: &str, spec: &str| {
        let (who, spec) = (format!("--as={who}"), format!("{{\"spec\":{spec}}}"));
        w.hactl.kubectl(&[&who, "patch", "nmt", "t5", "--type", "merge", "-p", &spec])
    };
    apply(w, &object("t5", "{nodeName: w1, approved: true}")).exits(1).says("approved needs the approval Required");
    apply(w, &object("t5", "{nodeName: w1, approval: Required}")).ok();
    wait_for("the rights of the author count", HEAL, || patch("author", "{\"reason\":\"disk\"}").code == 0);
    patch("author", "{\"approved\":true}").exits(1).says("author does not have it");
    patch("author", "{\"approval\":\"NotRequired\"}").exits(1).says("author does not have it");
    patch("someone", "{\"approved\":true,\"reason\":\"x\"}").exits(1).says("someone may not delete the Node w1");
    patch("someone", "{\"approved\":true}").ok();
    for change in ["{\"approved\":false}", "{\"allowOutage\":true}", "{\"drain\":{\"unmanagedPods\":\"Evict\"}}"] {
        patch("author", change).exits(1).says("what was approved cannot be changed");
    }
    apply(w, &object("t6", "{nodeName: w1}")).ok();
    for (window, says) in [
        ("{\"schedule\":\"soon\",\"duration\":\"1h\"}", "spec.windows[0].schedule"),
        ("{\"schedule\":\"@daily\",\"duration\":\"1m\"}", "a window is open for 5m to 168h"),
        ("{\"schedule\":\"@daily\"}", "spec.windows[0].duration"),
    ] {
        let spec = format!("{{\"spec\":{{\"windows\":[{window}]}}}}");
        w.hactl.kubectl(&["patch", "nmt", "t6", "--type", "merge", "-p", &spec]).exits(1).says(says);
    }
    kubectl(w, "delete clusterrolebinding author deleter").ok();
    kubectl(w, "delete clusterrole author deleter").ok();
    kubectl(w, "delete nmt t5 t6").ok();
}

pub fn is_cordoned(w: &World) -> bool {
    kubectl(w, "get node w1 -o jsonpath={.spec.unschedulable}").ok().out == "true"
}

/// The conditions of the Node that announce its maintenance.
pub fn announced(w: &World) -> String {
    let path = "jsonpath={.status.conditions[?(@.message==\"NodeMaintenance w1: replace sdb\")].type}";
    w.hactl.kubectl(&["get", "node", "w1", "-o", path]).ok().out
}

pub fn maintained(w: &World) {
    w.hactl.up().ok();
    kubectl(w, "create namespace rules").ok();
    apply(w, OF_RULES).ok();
    apply(w, &workloads(&present_image(&w.hactl))).ok();
    apply(w, BUDGET).ok();
    wait_for("all run on the worker", HEAL, || {
        let running = "-n rules get pods --field-selector spec.nodeName=w1,status.phase=Running -o name";
        kubectl(w, running).out.lines().count() == 4
    });
    wait_for("the budget counts its pod", HEAL, || {
        kubectl(w, "-n rules get pdb web -o jsonpath={.status.currentHealthy}").out == "1"
    });

    w.hactl.run(&["maintain", "start", "cp1", "--yes"]).exits(3).says("no host of this control plane can be spared");
    let said = in_one_line(&w.hactl.run(&["maintain", "start", "w1", "--dry-run"]).ok());
    for part in ["pods to leave", "by ClusterDrainRule agents", "refused now: rules/web-", "nothing was changed"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!is_cordoned(w));

    // Without --yes and without a terminal, nobody agrees.
    w.hactl.run(&["maintain", "start", "w1"]).exits(3).says("--yes");
    assert!(!is_cordoned(w));

    let begin = ["maintain", "start", "w1", "--yes", "--reason", "replace sdb", "--wait-completed", "1m"];
    let mut child = w.hactl.command(&begin).spawn().expect("hactl can be started");
    wait_for("the refused pod is in the status", HEAL, || w.hactl.run(&["maintain", "status"]).code == 4);
    let said = in_one_line(&w.hactl.run(&["maintain", "status", "w1"]).exits(4));
    assert!(said.contains("replace sdb") && said.contains("PodDisruptionBudget rules/web never allows"), "{said}");
    w.hactl.run(&begin).exits(6).says("another process acts on the maintenance of w1");
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    assert!(is_cordoned(w));

    kubectl(w, "-n rules delete pdb web").ok();
    let said = in_one_line(&once_free(TAKEN_OVER, || w.hactl.run(&begin)).ok());
    assert!(said.contains("w1 is drained. Work on it, then: hactl maintain finish w1"), "{said}");
    kubectl(w, "wait nmt/w1 --for=condition=Drained --timeout=5s").ok();
    let left = kubectl(w, "-n rules get pods --field-selector spec.nodeName=w1,status.phase=Running -o name").ok().out;
    assert!(left.lines().count() == 1 && left.contains("agent-"), "{left}");

    assert!(in_one_line(&w.hactl.run(&["status"])).contains("ready, in maintenance (w1)"));
    assert_eq!(announced(w), "Drained MaintenanceInProgress");
    let changed = w.lab.dir().join("maintained.yaml");
    let plain = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    std::fs::write(&changed, plain.replace("{kubelet: {config: {", "{kubelet: {config: {maxPods: 99, "))
        .expect("writable");
    let said = in_one_line(&Hactl::new(changed).run(&["plan", "-v"]).ok());
    assert!(said.contains("w1 is left out: it is in maintenance (w1)") && said.contains("kubelet"), "{said}");
    w.hactl.run(&["maintain", "finish", "w1"]).ok().says("the maintenance of w1 is over");
    assert_eq!(announced(w), "");
    assert!(!is_cordoned(w));
    kubectl(w, "wait nmt/w1 --for=condition=Completed --timeout=5s").ok();
    kubectl(w, "delete namespace rules").ok();
    kubectl(w, "delete clusterdrainrule agents").ok();

    // Another process restores the Node while one drains it.
    kubectl(w, "create namespace rules").ok();
    apply(w, &workloads(&present_image(&w.hactl))).ok();
    apply(w, BUDGET).ok();
    wait_for("the budget counts its pod", HEAL, || {
        kubectl(w, "-n rules get pdb web -o jsonpath={.status.currentHealthy}").out == "1"
    });
    let mut child = w.hactl.command(&begin).spawn().expect("hactl can be started");
    wait_for("the refused pod is in the status", HEAL, || w.hactl.run(&["maintain", "status"]).code == 4);
    w.hactl.run(&["maintain", "finish", "w1", "--yes"]).ok().says("the maintenance of w1 is over");
    assert!(!is_cordoned(w));
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "its maintenance was ended meanwhile");
    kubectl(w, "delete namespace rules").ok();

    // A person cordoned the Node before; a bare pod is on it.
    kubectl(w, "cordon w1").ok();
    let image = present_image(&w.hactl);
    apply(w, &format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: bare, namespace: default}}\nspec: {{nodeName: w1, terminationGracePeriodSeconds: 1, \
         containers: [{{name: c, image: {image:?}, imagePullPolicy: IfNotPresent}}]}}\n"
    ))
    .ok();
    let again = ["maintain", "start", "w1", "--yes"];
    w.hactl.run(&again).exits(3).says("default/bare").says("--evict-unmanaged");
    w.hactl.run(&[&again[..], &["--evict-unmanaged"]].concat()).ok().says("w1 is drained");
    w.hactl.run(&["maintain", "cancel", "w1"]).ok();
    assert!(is_cordoned(w), "it was cordoned before");
    kubectl(w, "get nmt w1").exits(1).says("not found");
    kubectl(w, "uncordon w1").ok();
    assert_eq!(
        kubectl(w, "get node w1 -o jsonpath={.metadata.annotations.lifecycle\\.hactl\\.dev/record}").ok().out,
        ""
    );
    w.hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
}
