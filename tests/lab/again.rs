//! A Node that was deleted and registers again, and a cluster that was taken down and is restored.

use super::interrupted::killed_at;
use super::leaving::ids;
use super::support::{GIVEN_BACK, once_free, wait_for};
use super::{Scenario, World, in_one_line, with_pod};
use serde_json::json;
use std::cell::Cell;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a deleted Node registers again with another pod CIDR, which its pods use, and etcd keeps its members",
        cut: false,
        run: registered_again,
    },
    Scenario {
        name: "a cluster that was taken down is restored from a snapshot, also over one bootstrapped since",
        cut: false,
        run: taken_down,
    },
];

/// How long the controller manager may take to assign a pod CIDR to a Node.
const REGISTERED: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);

/// The pod CIDR of a Node.
fn range(w: &World, node: &str) -> String {
    w.hactl.kubectl(&["get", "node", node, "-o", "jsonpath={.spec.podCIDR}"]).out.trim().to_owned()
}

/// The address of the bridge of a host's pods.
fn bridge(w: &World, host: &str) -> String {
    w.on(host, "ip -4 -o addr show cni0 | awk '{print $4}'").trim().to_owned()
}

/// Checks that the bridge has the first address of its Node's pod CIDR.
fn in_range(w: &World, host: &str) {
    // Without a pod in the pod network there is no bridge.
    with_pod(&w.hactl, host, || assert_eq!(bridge(w, host), range(w, host).replace(".0/", ".1/"), "{host}"));
}

fn registered_again(w: &World) {
    w.hactl.up().ok();
    in_range(w, "cp2");
    let before = range(w, "cp2");
    let members = ids(w, "cp1");
    assert_eq!(members.len(), 3, "{members:?}");
    w.hactl.kubectl(&["delete", "node", "cp2"]).ok();
    // Depending on how long the controller manager has led, the freed pod CIDR goes to the next Node or to none for
    // long. So another Node takes it here.
    let other = json!({"metadata": {"name": "came-first"}, "spec": {"podCIDR": before, "podCIDRs": [before]}});
    w.api().post("/api/v1/nodes", &other).expect("a Node can be made");
    w.on("cp2", "sudo systemctl restart kubelet");
    wait_for("cp2 has a pod CIDR again", REGISTERED, || !range(w, "cp2").is_empty());
    w.hactl.kubectl(&["delete", "node", "came-first"]).ok();
    assert_ne!(range(w, "cp2"), before);
    let said = in_one_line(&w.hactl.run(&["status"]).exits(4));
    // The bridge has the first address of that pod CIDR, and the tunnel the one before.
    assert!(said.contains(&format!(" has {}", before.replace(".0/24", "."))), "{said}");
    assert!(
        said.contains(&format!("but the Node's pod CIDR is {}: other hosts cannot reach its pods", range(w, "cp2"))),
        "{said}"
    );
    let ran = w.hactl.up().ok();
    let said = in_one_line(&ran);
    assert!(said.contains("cp2 delete flannel's interfaces and stop the pods on them"), "{said}");
    assert!(!said.contains("cp1 delete flannel's") && !said.contains("cp3 delete flannel's"), "{said}");
    w.healthy(HEAL);
    in_range(w, "cp2");
    assert_eq!(ids(w, "cp1"), members, "no member of etcd was replaced");
    w.hactl.up().ok().says("nothing to do");
}

fn taken_down(w: &World) {
    w.hactl.up().ok();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("before.hactl");
    let path = file.to_str().expect("a path of letters");
    w.hactl.kubectl(&["create", "configmap", "of-before"]).ok();
    w.hactl.run(&["snapshot", "take", "--to", path]).ok();

    w.hactl.run(&["down", "--yes"]).ok();
    let said = in_one_line(&w.hactl.run(&["recover", "--yes"]).ok());
    assert!(said.contains("nothing to recover: there is no cluster"), "{said}");
    let nowhere = folder.path().join("nowhere.hactl");
    w.hactl.run(&["recover", "--yes", "--from", nowhere.to_str().expect("letters")]).exits(2).says("nowhere.hactl");
    let said = in_one_line(&w.hactl.run(&["recover", "--dry-run", "--from", path]).ok());
    assert!(said.contains("everything that was written since") && said.contains("before.hactl"), "{said}");
    // The recovery is agreed to and killed before any host has a member: a cluster is being restored, so `up`
    // bootstraps no other one.
    killed_at(w, &["--from", path], |line| line.starts_with('✓'));
    once_free(GIVEN_BACK, || w.hactl.run(&["up", "--yes"])).exits(3).says("hactl recover");
    // It is killed again once two of three hosts have their member.
    let restored = Cell::new(0);
    killed_at(w, &["--from", path], |line| {
        restored.set(restored.get() + usize::from(line.contains('✓') && line.contains("restore the snapshot")));
        restored.get() == 2
    });
    once_free(GIVEN_BACK, || w.hactl.run(&["recover", "--yes"])).ok();
    w.hactl.kubectl(&["get", "configmap", "of-before"]).ok();
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");

    // The same over another cluster that was bootstrapped from this inventory since, with pod CIDRs of its own.
    w.hactl.run(&["down", "--yes"]).ok();
    w.hactl.up().ok();
    w.hactl.kubectl(&["get", "configmap", "of-before"]).exits(1);
    w.hactl.kubectl(&["create", "configmap", "of-after"]).ok();
    w.hactl.run(&["recover", "--yes", "--from", path]).exits(3).says("etcd has a quorum");
    w.hactl.run(&["recover", "--yes", "--undo", "--from", path]).ok().says("etcd is recovered from before.hactl");
    w.hactl.kubectl(&["get", "configmap", "of-before"]).ok();
    w.hactl.kubectl(&["get", "configmap", "of-after"]).exits(1);
    w.healthy(HEAL);
    for host in ["cp1", "cp2", "cp3"] {
        in_range(w, host);
    }
    w.hactl.up().ok().says("nothing to do");
}
