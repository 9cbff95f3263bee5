//! All hosts are lost for good: a snapshot restores the cluster on hosts with other names and addresses.

use super::shapes::{STACKED, inventory, up_from_bare, vip};
use super::{Scenario, World, in_one_line};
use std::time::Duration;

/// On six hosts, of which three are lost.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "all hosts are lost, and a snapshot restores the cluster on hosts with other names and addresses",
        cut: false,
        run: moved,
    },
    Scenario {
        name: "a damaged newest snapshot is skipped for the next best one, and no revision is issued twice",
        cut: false,
        run: damaged,
    },
];

const NEW: [&str; 3] = ["cp4", "cp5", "cp6"];

/// The resource version of a new object.
fn revision(w: &World, name: &str) -> i64 {
    w.hactl.kubectl(&["create", "configmap", name]).ok();
    let at = ["get", "configmap", name, "-o", "jsonpath={.metadata.resourceVersion}"];
    w.hactl.kubectl(&at).ok().out.trim().parse().expect("a revision")
}

fn moved(w: &World) {
    inventory(w, &vip(w), &[("cp1", STACKED, ""), ("cp2", STACKED, ""), ("cp3", STACKED, "")]);
    up_from_bare(w);
    w.hactl.kubectl(&["create", "secret", "generic", "kept", "--from-literal=word=kept-in-the-bundle"]).ok();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.hactl");
    let path = file.to_str().expect("letters");
    w.hactl.run(&["snapshot", "take", "--to", path]).ok();
    let before = revision(w, "after-the-bundle");
    for host in ["cp1", "cp2", "cp3"] {
        w.lab.kill(host).expect("the power can be cut");
    }

    inventory(w, &vip(w), &NEW.map(|host| (host, STACKED, "")));
    w.hactl.up().exits(3).says("hactl recover");
    w.hactl.run(&["recover", "--dry-run", "--from", path]).ok().says("everything that was written since");
    let ran = w.hactl.run(&["recover", "--yes", "--from", path]).ok().says("etcd is recovered from lab.hactl");
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));

    let nodes = w.hactl.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"]).ok().out;
    assert_eq!(nodes.trim(), NEW.join(" "), "the Nodes of lost hosts are gone");
    let on = w.hactl.kubectl(&["get", "pods", "-A", "-o", "jsonpath={.items[*].spec.nodeName}"]).ok().out;
    assert!(on.split_whitespace().all(|node| NEW.contains(&node)), "and so are their pods: {on}");
    let word = w.hactl.kubectl(&["get", "secret", "kept", "-o", "jsonpath={.data.word}"]).ok().out;
    assert_eq!(word.trim(), "a2VwdC1pbi10aGUtYnVuZGxl", "the Secret decrypts");
    w.hactl.kubectl(&["get", "configmap", "after-the-bundle"]).exits(1).says("NotFound");
    let now = revision(w, "after-the-move");
    assert!(now > before + 900_000_000, "{now} after {before}");
    w.well().says("3 voters, quorum 2, 3 healthy");
    w.hactl.up().ok().says("nothing to do");
}

/// Removes etcd's data on every host.
fn lose_data(w: &World) {
    for host in NEW {
        w.on(
            host,
            "sudo systemctl kill -s KILL etcd; sudo systemctl stop --no-block etcd; sudo sh -c 'rm -rf /var/lib/etcd/*'",
        );
    }
}

fn damaged(w: &World) {
    inventory(w, &vip(w), &NEW.map(|host| (host, STACKED, "")));
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(120));
    for host in NEW {
        w.on(host, "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service; sudo sh -c 'rm -f /var/lib/hactl/snapshots/*.hactl'");
    }
    revision(w, "in-the-older");
    w.hactl.run(&["snapshot", "take", "--host", "cp4"]).ok();
    revision(w, "in-the-newer");
    w.hactl.run(&["snapshot", "take", "--host", "cp5"]).ok();
    let flip = "f=$(sudo sh -c 'ls /var/lib/hactl/snapshots/*-cp5.hactl'); printf flipped! | sudo dd of=$f bs=1 seek=5000 conv=notrunc";
    w.on("cp5", flip);
    let before = revision(w, "in-none");
    let has = |name: &str, there: bool| {
        let ran = w.hactl.kubectl(&["get", "configmap", name]);
        assert!(ran.code == 0 && there || ran.err.contains("NotFound") && !there, "{name}: {}", ran.all());
    };

    lose_data(w);
    let said = in_one_line(&w.hactl.run(&["recover", "--yes"]).ok());
    let skipped = said.contains("the snapshot has changed since it was written; trying the next best");
    assert!(skipped && said.contains("-cp4.hactl: a quorum after"), "{said}");
    has("in-the-older", true);
    has("in-the-newer", false);
    let between = revision(w, "between");
    assert!(between > before, "{between} after {before}");

    let older = w.on("cp4", "sudo sh -c 'ls -tr /var/lib/hactl/snapshots' | head -n 1");
    lose_data(w);
    w.hactl
        .run(&["recover", "--yes", "--from", older.trim()])
        .ok()
        .says(&format!("etcd is recovered from {}", older.trim()));
    has("in-the-older", true);
    has("between", false);
    let now = revision(w, "again");
    assert!(now > between, "{now} after {between}: the same snapshot with another leap");
    w.well().says("3 voters, quorum 2, 3 healthy");
}
