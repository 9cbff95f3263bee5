//! etcd that has reached its quota: nothing is lost, and space is freed.

use super::recover::{lose_majority, members, recover};
use super::support::{ETCDCTL, wait_for};
use super::{Scenario, World, in_one_line};
use serde_json::Value;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "recover frees space in an etcd that reached its quota, and says when it cannot",
        cut: false,
        run: full,
    },
    Scenario {
        name: "an etcd that reached its quota loses its majority, and one recover restores it and frees space",
        cut: false,
        run: full_and_lost,
    },
];
/// On five members.
pub const FIVE: &[Scenario] =
    &[Scenario { name: "five members: recover frees space in an etcd that reached its quota", cut: false, run: full }];

const HEAL: Duration = Duration::from_secs(180);

/// etcd's quota, so low that a few values reach it, and lower than an inventory allows. Earlier scenarios may have left
/// half as much data.
pub(super) const QUOTA: u64 = 40_000_000;
/// Removes the quota again.
pub(super) const AS_BEFORE: &str = "sudo rm /etc/systemd/system/etcd.service.d/90-small.conf /etc/etcd/small.env";

fn full(w: &World) {
    w.hactl.up().ok();
    started_with(w, &small(QUOTA));
    w.healthy(HEAL);
    filled(w, 60);
    let status = w.hactl.run(&["status"]).exits(4);
    assert!(status.all().contains("NOSPACE") && status.all().contains("hactl recover"), "{}", status.all());
    // The alarm is in the snapshot, too, and the etcd that proves it has it.
    w.hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    recover(w, &["--dry-run"]).ok().says("nothing is lost");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    recover(w, &["--yes"]).ok().says("takes writes again");
    w.hactl.kubectl(&["create", "configmap", "after-the-quota"]).ok();
    w.healthy(HEAL);
    // The stored data alone exceeds this quota: the alarm stays, and recover says so.
    started_with(w, &small(stored(w) - 1_000_000));
    wait_for("it is full", HEAL, || w.hactl.run(&["status"]).all().contains("NOSPACE"));
    recover(w, &["--yes"]).exits(3).says("still full");
    w.hactl.run(&["status"]).exits(4).says("NOSPACE");
    w.on("cp1", &format!("{ETCDCTL} del --prefix /filler/"));
    recover(w, &["--yes"]).ok().says("takes writes again");
    w.healthy(HEAL);
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover");
    started_with(w, AS_BEFORE);
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

fn full_and_lost(w: &World) {
    w.hactl.up().ok();
    started_with(w, &small(QUOTA));
    w.healthy(HEAL);
    filled(w, 6);
    lose_majority(w);
    // The survivor still has the small quota, and the restored data includes the alarm.
    let ran = recover(w, &["--yes"]).ok().says("etcd is recovered from");
    assert!(
        in_one_line(&ran).contains("had exceeded its quota, so etcd rejects writes: freeing space"),
        "{}",
        ran.all()
    );
    w.hactl.kubectl(&["create", "configmap", "after-the-loss"]).ok();
    w.hactl.kubectl(&["delete", "configmap", "after-the-quota", "after-the-loss", "--ignore-not-found"]).ok();
    w.on("cp1", &format!("{ETCDCTL} del --prefix /filler/"));
    w.healthy(HEAL);
    started_with(w, AS_BEFORE);
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

/// How many bytes of its store a member uses.
pub(super) fn stored(w: &World) -> u64 {
    let said = w.on("cp1", &format!("{ETCDCTL} endpoint status -w json"));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    said.pointer("/0/Status/dbSizeInUse").and_then(Value::as_u64).expect("a number of bytes")
}

/// Sets a quota of this many bytes on a host.
pub(super) fn small(bytes: u64) -> String {
    format!(
        "sudo mkdir -p /etc/systemd/system/etcd.service.d; echo ETCD_QUOTA_BACKEND_BYTES={bytes} | sudo tee /etc/etcd/small.env; \
         printf '[Service]\\nEnvironmentFile=/etc/etcd/small.env\\n' | sudo tee /etc/systemd/system/etcd.service.d/90-small.conf"
    )
}

/// Writes this many keys again and again until etcd rejects writes.
pub(super) fn filled(w: &World, keys: u32) {
    let fill = format!(
        "head -c 1000000 /dev/zero | tr '\\0' x > /tmp/x; n=0; while [ $n -lt 60 ]; do {ETCDCTL} put /filler/$((n%{keys})) < /tmp/x 2>&1 \
         || break; n=$((n+1)); done"
    );
    let said = w.on("cp1", &fill);
    assert!(said.contains("database space exceeded"), "{said}");
}

/// Changes what etcd starts with on every host, one at a time.
pub(super) fn started_with(w: &World, change: &str) {
    for host in members(w) {
        // Its unit has `Type=notify`: the restart returns only once the member serves, which needs a quorum.
        w.on(host, &format!("{change}; sudo systemctl daemon-reload; sudo systemctl restart etcd"));
    }
}
