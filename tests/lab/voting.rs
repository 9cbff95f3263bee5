//! Guards whose etcd member has no vote, or may not use its data: it becomes a voter again, under a client that writes.

use super::guard::{CLEARED, SLACK, guarded, is_known, none};
use super::recover::{newest, other_keys};
use super::rejoin::{member, serves};
use super::repairs::history;
use super::rolled_back::{memory, sh, stays_down};
use super::support::{ETCDCTL, Hactl, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "an etcd member that a person removed, whose disk was rolled back, or whose keys differ is repaired by itself",
    cut: false,
    run: votes_again,
}];

/// How long a member has no vote before its guard acts, in the inventory of this test.
const AFTER: Duration = Duration::from_secs(20);
/// From then on, or from the start that the fence refused, to linearizable reads from the member.
const GOAL: Duration = Duration::from_secs(45);

/// The repairs of such members so far: host, fault and outcome.
fn repaired(hactl: &Hactl) -> Vec<[String; 3]> {
    let kinds = ["EtcdNotVoting", "EtcdFenced", "EtcdDiverged"];
    history(hactl).into_iter().filter(|[_, kind, _]| kinds.contains(&kind.as_str())).collect()
}

fn votes_again(w: &World) {
    let hactl = guarded(w, "healing: {mode: on, after: {notVoting: 20s}}");
    let before = repaired(&hactl).len();
    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-voting");
    removed(w, &hactl, "cp2");
    rolled_back(w, &hactl, "cp3");
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, longest pause {longest:.1?}");
    diverged(w, &hactl);
    none(&hactl);
    w.healthy(CLEARED);
    assert_eq!(before, 0, "no repair before");
    let once = [("cp2", "EtcdDiverged"), ("cp2", "EtcdNotVoting"), ("cp3", "EtcdFenced")];
    assert_eq!(repaired(&hactl), once.map(|(host, kind)| [host, kind, "helped"].map(str::to_owned)), "once each");
    hactl.up().ok().says("nothing to do");
}

/// Waits until the member of a host serves, with another id than before.
fn serves_again(w: &World, hactl: &Hactl, host: &str, before: &str, within: Duration) {
    let since = Instant::now();
    while !serves(w, host) || member(w, host) == before {
        let why = || hactl.run(&["guard", "explain", host]).all();
        assert!(since.elapsed() < within + SLACK, "the member of {host} does not serve: {}", why());
        std::thread::sleep(Duration::from_millis(250));
    }
    println!("        the member of {host} serves again after {:.1?} (goal {within:?})", since.elapsed());
    assert!(since.elapsed() < within + SLACK / 2, "{:?}", since.elapsed());
}

/// A person removes a member by hand, and leaves it at that.
fn removed(w: &World, hactl: &Hactl, host: &str) {
    let before = member(w, host);
    w.on("cp1", &format!("{ETCDCTL} member remove {before}"));
    let since = Instant::now();
    wait_for("the fault is reported", AFTER + SLACK, || is_known(hactl, host, "EtcdNotVoting"));
    assert!(since.elapsed() >= AFTER, "it is reported before its delay");
    serves_again(w, hactl, host, &before, GOAL);
}

/// An image of a host's disk is restored after writes that its member acknowledged.
fn rolled_back(w: &World, hactl: &Hactl, host: &str) {
    hactl.run(&["guard", "pause", "--host", host, "--for", "1h", "--reason", "image"]).ok();
    let units = "etcd hactl-positions";
    sh(
        w,
        host,
        &format!(
            "systemctl stop {units}; rm -rf /root/old; mkdir /root/old; cp -a /var/lib/etcd /var/lib/hactl/positions.json \
             /root/old/; systemctl start {units}"
        ),
    );
    wait_for("its member serves", SLACK, || serves(w, host));
    let (old, of_cp1) = (memory(w, host), memory(w, "cp1"));
    wait_for("the hosts have recorded more of it than the image has", 3 * SLACK, || {
        memory(w, host) != old && memory(w, "cp1") != of_cp1
    });
    let before = member(w, host);
    sh(
        w,
        host,
        &format!(
            "systemctl stop {units}; rm -rf /var/lib/etcd/*; cp -a /root/old/etcd/. /var/lib/etcd/; \
             cp -a /root/old/positions.json /var/lib/hactl/positions.json; rm -rf /root/old; \
             systemctl start --no-block {units}"
        ),
    );
    let said = stays_down(w, host);
    assert!(said.contains("its disk went back in time"), "{said}");
    wait_for("the fault is reported", SLACK, || is_known(hactl, host, "EtcdFenced"));
    let explained = in_one_line(&hactl.run(&["guard", "explain", host]).exits(4));
    assert!(explained.contains("its disk went back in time") && explained.contains("the host is held"), "{explained}");
    hactl.run(&["guard", "resume"]).ok();
    serves_again(w, hactl, host, &before, GOAL);
}

/// Keys of cp2's member differ: etcd notices at the next compaction, and rejects writes from then on.
fn diverged(w: &World, hactl: &Hactl) {
    other_keys(w);
    wait_for("its member serves", SLACK, || serves(w, "cp2"));
    let before = member(w, "cp2");
    let revision = newest(&w.api());
    w.on("cp1", &format!("{ETCDCTL} put /x y; {ETCDCTL} compact {revision}"));
    let alarms = || w.on("cp1", &format!("{ETCDCTL} alarm list"));
    // The members compare their hashes once a minute.
    wait_for("etcd raises its alarm", Duration::from_secs(100), || alarms().contains("CORRUPT"));
    let since = Instant::now();
    wait_for("etcd accepts writes", Duration::from_secs(60) + SLACK, || {
        w.on("cp1", &format!("{ETCDCTL} put /x z 2>&1; true")).trim() == "OK"
    });
    println!("        etcd accepts writes {:.1?} after its alarm (goal 60 s)", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(60) + SLACK / 2, "{:?}", since.elapsed());
    // The alarm ended with the removal of the member.
    serves_again(w, hactl, "cp2", &before, GOAL);
    assert_eq!(alarms().trim(), "", "no alarm is left");
    let read = format!("{ETCDCTL} get /registry/configmaps/default/needle --consistency=s | grep -ac needle-of-all");
    assert_eq!(w.on("cp2", &read).trim(), "1", "cp2 has the data of the others");
    hactl.kubectl(&["delete", "configmap", "needle"]).ok();
}
