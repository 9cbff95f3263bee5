//! etcd that has reached its quota: no loss, and room is made.

use super::recover::{lose_majority, members, recover};
use super::support::{ETCDCTL, wait_for};
use super::{Scenario, World, in_one_line};
use serde_json::Value;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "an etcd that has reached its quota gets room, and says when it cannot", cut: false, run: full },
    Scenario {
        name: "an etcd that has reached its quota loses its majority, and one command brings it back and makes room",
        cut: false,
        run: full_and_lost,
    },
];
/// On five members.
pub const FIVE: &[Scenario] =
    &[Scenario { name: "five members: etcd that has reached its quota gets room", cut: false, run: full }];

const HEAL: Duration = Duration::from_secs(180);

/// etcd's quota, set so low that a few values reach it: lower than an inventory can. Who wrote in scenarios before may have left half as much.
const QUOTA: u64 = 40_000_000;
/// Takes it away again.
const AS_BEFORE: &str = "sudo rm /etc/systemd/system/etcd.service.d/90-small.conf /etc/etcd/small.env";

fn full(w: &World) {
    w.hactl.up().ok();
    started_with(w, &small(QUOTA));
    w.healthy(HEAL);
    filled(w, 60);
    let told = w.hactl.run(&["status"]).exits(4);
    assert!(told.all().contains("NOSPACE") && told.all().contains("hactl recover"), "{}", told.all());
    recover(w, &["--dry-run"]).ok().says("nothing is lost");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    recover(w, &["--yes"]).ok().says("takes writes again");
    w.hactl.kubectl(&["create", "configmap", "after-the-room"]).ok();
    w.healthy(HEAL);
    // What is stored now fills it: then the alarm stays, and it is said what to do.
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
    // Who is left has the small quota still, and the alarm is in what is restored.
    let ran = recover(w, &["--yes"]).ok().says("etcd is recovered from");
    assert!(
        in_one_line(&ran).contains("had exceeded its quota, so etcd rejects writes: freeing space"),
        "{}",
        ran.all()
    );
    w.hactl.kubectl(&["create", "configmap", "after-the-loss"]).ok();
    w.hactl.kubectl(&["delete", "configmap", "after-the-room", "after-the-loss", "--ignore-not-found"]).ok();
    w.on("cp1", &format!("{ETCDCTL} del --prefix /filler/"));
    w.healthy(HEAL);
    started_with(w, AS_BEFORE);
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

/// How many bytes of its store a member needs.
fn stored(w: &World) -> u64 {
    let said = w.on("cp1", &format!("{ETCDCTL} endpoint status -w json"));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    said.pointer("/0/Status/dbSizeInUse").and_then(Value::as_u64).expect("a number of bytes")
}

/// A quota of so many bytes, on one host.
fn small(bytes: u64) -> String {
    format!(
        "sudo mkdir -p /etc/systemd/system/etcd.service.d; echo ETCD_QUOTA_BACKEND_BYTES={bytes} | sudo tee /etc/etcd/small.env; \
         printf '[Service]\\nEnvironmentFile=/etc/etcd/small.env\\n' | sudo tee /etc/systemd/system/etcd.service.d/90-small.conf"
    )
}

/// Writes so many keys, and then the same again, until etcd takes no more.
fn filled(w: &World, keys: u32) {
    let fill = format!(
        "head -c 1000000 /dev/zero | tr '\\0' x > /tmp/x; n=0; while [ $n -lt 60 ]; do {ETCDCTL} put /filler/$((n%{keys})) < /tmp/x 2>&1 \
         || break; n=$((n+1)); done"
    );
    let said = w.on("cp1", &fill);
    assert!(said.contains("database space exceeded"), "{said}");
}

/// Changes what etcd is started with on every host, one at a time.
fn started_with(w: &World, change: &str) {
    for host in members(w) {
        // Its unit is of the type notify: it is back when this returns, which it is only with a quorum.
        w.on(host, &format!("{change}; sudo systemctl daemon-reload; sudo systemctl restart etcd"));
    }
}
