//! What people do while a guard drains a Node: they uncordon or delete it, and they ask for two things at once.

use super::acting::{TAKEN_OVER, complete, reaches, status};
use super::guard::asked;
use super::maintain::{HEAL, apply, is_cordoned, kubectl, object};
use super::refusals::{budget, created, deploy, pinned, running};
use super::support::wait_for;
use super::{Scenario, World, present_image};
use serde_json::json;
use std::time::Duration;

/// On one control-plane host and one worker.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a Node that others uncordon is cordoned again twice, and one that they delete during its drain ends that",
        cut: false,
        run: taken_away,
    },
    Scenario {
        name: "of two maintenances the stricter one decides over pods, and the last one restores the Node",
        cut: false,
        run: both,
    },
];

/// What a guard does about a change of the API.
pub const SOON: Duration = Duration::from_secs(15);
pub const BLOCKED: &str = "{nodeName: w1, stage: Drain, reason: replace sdb}";

pub fn record(w: &World) -> String {
    kubectl(w, "get node w1 -o jsonpath={.metadata.annotations.lifecycle\\.hactl\\.dev/record}").ok().out
}

/// Nothing of a maintenance is left on the worker.
pub fn is_free(w: &World) -> bool {
    left(w).is_empty() && record(w).is_empty()
}

/// Guards, and a pod of the worker whose budget refuses every eviction.
pub fn blocked(w: &World) {
    asked(w, "healing: watch").up().ok();
    created(w, "rules");
    deploy(w, ("rules", "web"), pinned(), json!({}));
    running(&w.api(), "rules", "web");
    budget(w, "web", "web");
}

/// A pod of the worker that no controller creates again.
pub fn bare(w: &World) {
    let image = present_image(&w.hactl);
    let spec = format!(
        "{{nodeName: w1, terminationGracePeriodSeconds: 1, containers: [{{name: c, image: {image:?}, imagePullPolicy: IfNotPresent}}]}}"
    );
    apply(w, &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: bare, namespace: rules}}\nspec: {spec}\n")).ok();
    kubectl(w, "-n rules wait pod/bare --for=condition=Ready --timeout=60s").ok();
}

pub fn as_before(w: &World) {
    kubectl(w, "delete namespace rules").ok();
    asked(w, "").up().ok();
    asked(w, "").up().ok().says("nothing to do");
    w.healthy(HEAL);
}

/// What is left on the worker of maintenances that are gone; empty: nothing.
pub fn left(w: &World) -> String {
    let path = "jsonpath={range .status.conditions[*]}{.type} {.message};{end}";
    let all = w.hactl.kubectl(&["get", "node", "w1", "-o", path]).ok().out;
    let mut left: Vec<String> =
        all.split(';').filter(|one| one.contains("NodeMaintenance")).map(str::to_owned).collect();
    left.extend(is_cordoned(w).then(|| format!("cordoned {}", record(w))));
    left.join(", ")
}

/// The worker's Node registers again.
pub fn registers(w: &World) {
    kubectl(w, "get node w1").exits(1).says("not found");
    w.on("w1", "sudo systemctl restart kubelet");
    wait_for("the Node is there again", HEAL, || kubectl(w, "get node w1").out.contains(" Ready "));
    assert!(is_free(w), "{}", record(w));
    asked(w, "healing: watch").up().ok();
    running(&w.api(), "rules", "web");
}

fn taken_away(w: &World) {
    blocked(w);
    apply(w, &object("w1", BLOCKED)).ok();
    reaches(w, "w1", "Blocked", TAKEN_OVER);
    for time in 1..3 {
        kubectl(w, "uncordon w1").ok();
        let took = wait_for("it is cordoned again", SOON, || is_cordoned(w));
        println!("        uncordoned {time} times: it was cordoned again after {took:.1?}");
    }
    let contested = "get events --field-selector reason=CordonContested,involvedObject.kind=Node -o name";
    wait_for("Events say so", SOON, || kubectl(w, contested).out.lines().count() == 2);
    kubectl(w, "uncordon w1").ok();
    reaches(w, "w1", "Failed", SOON);
    let why = status(w, "w1", "waitingFor[0].message");
    assert!(why.contains("w1 was uncordoned 3 times by others during the drain"), "{why}");
    wait_for("the Node is left alone", SOON, || is_free(w));
    kubectl(w, "delete nmt w1").ok();

    apply(w, &object("w1", BLOCKED)).ok();
    reaches(w, "w1", "Blocked", TAKEN_OVER);
    kubectl(w, "delete node w1").ok();
    reaches(w, "w1", "Completed", TAKEN_OVER);
    registers(w);
    assert_eq!(status(w, "w1", "state"), "Completed");
    kubectl(w, "delete nmt w1").ok();
    as_before(w);
}

fn both(w: &World) {
    blocked(w);
    kubectl(w, "-n rules delete pdb web").ok();
    bare(w);
    apply(w, &object("strict", "{nodeName: w1, stage: Drain}")).ok();
    apply(w, &object("lax", "{nodeName: w1, stage: Drain, drain: {unmanagedPods: Evict}}")).ok();
    for name in ["strict", "lax"] {
        reaches(w, name, "Waiting", TAKEN_OVER);
        let why = status(w, name, "waitingFor[0].message");
        assert!(why.contains("rules/bare"), "{name}: {why}");
    }
    complete(w, "strict");
    reaches(w, "lax", "Drained", TAKEN_OVER);
    kubectl(w, "-n rules get pod bare").exits(1).says("not found");
    apply(w, &object("last", "{nodeName: w1, stage: Cordon}")).ok();
    reaches(w, "last", "Cordoned", TAKEN_OVER);
    complete(w, "lax");
    reaches(w, "lax", "Completed", TAKEN_OVER);
    assert!(is_cordoned(w), "the last one has not ended");
    complete(w, "last");
    reaches(w, "last", "Completed", TAKEN_OVER);
    assert!(is_free(w));
    kubectl(w, "delete nmt strict lax last").ok();
    as_before(w);
}
