//! The runbook: printed from a running cluster, and its manual procedure followed to the letter.

use super::support::{self, Writer, blocks};
use super::{Scenario, World};
use hactl::model::names::Digest;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "the runbook's manual procedure restores a cluster that lost the data of a majority",
    cut: false,
    run: by_hand,
}];

/// Runs the script in one shell, for at most this long.
fn follow(within: Duration, folder: &Path, script: &str) -> String {
    // As with a paste, a command that fails does not stop the rest.
    let output = Command::new("timeout")
        .args([&within.as_secs().to_string(), "sh", "-c", script])
        .current_dir(folder)
        .output()
        .expect("there is a shell");
    let text = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&text).into_owned();
    println!("{}", said.lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{}", output.status);
    said
}

fn by_hand(w: &World) {
    w.hactl.up().ok();
    let folder = tempfile::tempdir().expect("a folder");
    let (bundle, page) = (folder.path().join("lab.hactl"), folder.path().join("runbook.md"));
    let (bundle, to) = (bundle.to_str().expect("letters"), page.to_str().expect("letters"));
    w.hactl.run(&["snapshot", "take", "--to", bundle]).ok();
    w.hactl.run(&["runbook", "--to", to]).ok().says("the runbook is");
    let runbook = std::fs::read_to_string(&page).expect("it was written");
    let printed = w.hactl.run(&["runbook"]).ok();
    assert!(printed.out.starts_with("# Disaster recovery of the cluster"), "{}", printed.out);
    let vip = w.lab.vip().to_string();
    for text in [vip.as_str(), "| cp3 | ", "-cp1.hactl`", "follows, etcd 3."] {
        assert!(runbook.contains(text), "{text:?} is not in\n{runbook}");
    }

    let writer = Writer::start(&w.api(), "w-by-hand");
    std::thread::sleep(Duration::from_secs(3));
    for host in ["cp1", "cp2"] {
        w.on(host, "sudo systemctl kill -s KILL etcd; sudo systemctl stop --no-block etcd; sleep 1; sudo rm -rf /var/lib/etcd/member");
        std::thread::sleep(Duration::from_secs(2));
    }
    w.hactl.run(&["status"]).exits(7);
    let steps = support::by_hand(&runbook, "cp3");
    assert_eq!(steps.len(), 8, "{steps:?}");
    let script = steps.join("\n");
    assert!(script.contains("\nsource=cp3\n"), "{script}");
    let said = follow(Duration::from_secs(300), folder.path(), &script);
    assert!(!said.contains("NOT ") && said.contains("ok, after "), "{said}");
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause, by hand: {longest:.1?}");
    w.hactl.up().ok();
    w.well().says("3 voters, quorum 2, 3 healthy");
    w.hactl.up().ok().says("nothing to do");
    let left = w.on("cp3", "sudo ls /var/lib/etcd /var/lib/hactl");
    assert!(left.contains("member.moved-by-hand-") && !left.contains("by-hand.db"), "{left}");

    let open = blocks(&runbook, "sh bundle");
    let identity = w.hactl.state(w.lab.name()).join("identity.txt");
    let script = format!("bundle={bundle}\nidentity={}\n{}", identity.display(), open.concat());
    follow(Duration::from_secs(60), folder.path(), &script);
    let snapshot = std::fs::read(folder.path().join("by-hand.db")).expect("it was written");
    let (content, sum) = snapshot.split_at(snapshot.len() - 32);
    assert!(snapshot.len() % 512 == 32 && Digest::of(content).bytes() == sum, "{} bytes", snapshot.len());
}
