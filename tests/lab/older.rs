//! Maintenances on older versions of Kubernetes: their API servers admit the same, refuse evictions for the same reasons,
//! and their workers are drained in the same way.

use super::bare_hosts::variant;
use super::drains::{OF_RULES, workloads};
use super::maintain::{apply, is_cordoned, kubectl};
use super::refusals::created;
use super::support::wait_for;
use super::upgrades::{NEXT, OLD, PREVIOUS, named};
use super::{Scenario, World, drains, in_one_line, maintain, present_image, refusals};
use std::collections::BTreeMap;
use std::time::Duration;

/// On one control-plane host and one worker of that version.
pub const OLDEST: &[Scenario] = &[
    Scenario {
        name: "Kubernetes 1.34: maintenances are accepted and refused as their kind and its policy say",
        cut: false,
        run: |w| admitted(w, OLD),
    },
    Scenario { name: "Kubernetes 1.34: a worker is drained by commands", cut: false, run: maintain::maintained },
    Scenario { name: "Kubernetes 1.34: a worker is drained by rules", cut: false, run: drains::ruled },
    Scenario { name: "Kubernetes 1.34: a budget holds back its pod alone", cut: false, run: refusals::goes_on },
    Scenario { name: "Kubernetes 1.34: what refuses an eviction is named", cut: false, run: refusals::named },
];

/// The same.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "Kubernetes 1.35: maintenances are accepted and refused as their kind and its policy say",
        cut: false,
        run: |w| admitted(w, NEXT),
    },
    Scenario { name: "Kubernetes 1.35: a worker is drained by commands", cut: false, run: maintain::maintained },
    Scenario { name: "Kubernetes 1.35: a worker is drained by rules", cut: false, run: drains::ruled },
    Scenario { name: "Kubernetes 1.35: a budget holds back its pod alone", cut: false, run: refusals::goes_on },
    Scenario { name: "Kubernetes 1.35: what refuses an eviction is named", cut: false, run: refusals::named },
    Scenario {
        name: "Kubernetes 1.35 becomes 1.36, and up drains the worker by the rules of the cluster",
        cut: false,
        run: upgraded,
    },
];

const HEAL: Duration = Duration::from_secs(180);

/// Bare hosts that become a cluster of 1.34.
pub fn oldest() -> World {
    world_of("t-oldest", OLD)
}

/// Bare hosts that become a cluster of 1.35.
pub fn world() -> World {
    world_of("t-older", NEXT)
}

fn world_of(name: &str, version: &str) -> World {
    let w = World::bare(name, (1, 1));
    let path = w.lab.inventory();
    let text = std::fs::read_to_string(&path).expect("the inventory is readable");
    std::fs::write(path, named(&text, version, "")).expect("the inventory is writable");
    w
}

fn versions(w: &World) -> String {
    kubectl(w, "get nodes -o jsonpath={.items[*].status.nodeInfo.kubeletVersion}").ok().out
}

fn admitted(w: &World, version: &str) {
    maintain::admitted(w);
    assert_eq!(versions(w), format!("v{version} v{version}"));
}

/// The uid of each pod of the workloads that runs on the worker, by its label.
fn uids(w: &World) -> BTreeMap<String, String> {
    let path = "jsonpath={range .items[?(@.status.phase==\"Running\")]}{.metadata.labels.app}={.metadata.uid} {end}";
    let pods = ["-n", "rules", "get", "pods", "--field-selector", "spec.nodeName=w1", "-o", path];
    let said = w.hactl.kubectl(&pods).ok().out;
    said.split_whitespace().filter_map(|pod| pod.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

fn upgraded(w: &World) {
    w.hactl.up().ok();
    created(w, "rules");
    apply(w, OF_RULES).ok();
    apply(w, &workloads(&present_image(&w.hactl))).ok();
    wait_for("all run on the worker", HEAL, || uids(w).len() == 4);
    let before = uids(w);
    let newest = variant(w, "newest.yaml", |text| text.replace(&format!("\"{NEXT}\""), &format!("\"{PREVIOUS}\"")));
    let ran = newest.run(&["up", "--yes", "-v"]).ok();
    println!("        1.35 became 1.36 after {:.1?}", ran.took);
    let said = in_one_line(&ran);
    assert!(said.contains("stays on w1, by ClusterDrainRule agents"), "{said}");
    assert!(said.contains("until it has completed, by DrainRule rules/training"), "{said}");
    assert_eq!(versions(w), format!("v{PREVIOUS} v{PREVIOUS}"));
    wait_for("the others are back", HEAL, || uids(w).len() == 3);
    let after = uids(w);
    assert_eq!(after["agent"], before["agent"], "it stayed");
    assert!(after["web"] != before["web"] && after["storage"] != before["storage"], "they were evicted");
    assert!(!is_cordoned(w));
    kubectl(w, "delete namespace rules").ok();
    kubectl(w, "delete clusterdrainrule agents").ok();
    newest.up().ok().says("nothing to do");
}
