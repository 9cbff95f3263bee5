//! Guards whose host has lost the data of its etcd member, or has damaged data: the member joins again, under a client
//! that writes. A host that a person holds is left to the person, and strangers get nothing from the port for guards.

use super::guard::{CLEARED, SLACK, guarded, is_known, none};
use super::leaving::move_leadership_to;
use super::repairs::history;
use super::support::{Hactl, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "an etcd member that lost its data, or whose data is damaged, joins again by itself, and no acknowledged write \
           is lost",
    cut: false,
    run: rejoins,
}];

/// From the loss to linearizable reads from the member, its detection included.
const GOAL: Duration = Duration::from_secs(30);
const LOSE: &str = "sudo rm -rf /var/lib/etcd/member";
const DAMAGE: &str = "sudo systemctl kill --signal=SIGKILL etcd; \
    sudo dd if=/dev/zero of=/var/lib/etcd/member/snap/db bs=4096 seek=2 count=400 conv=notrunc";
const SERVES: &str = "curl -sf -m 1 -o /dev/null http://127.0.0.1:2384/readyz && sudo test -d /var/lib/etcd/member \
    && sudo test -e /var/lib/etcd/hactl-born && echo yes || true";

pub fn serves(w: &World, host: &str) -> bool {
    w.on(host, SERVES).trim() == "yes"
}

/// The id of the member on a host, by itself.
pub fn member(w: &World, host: &str) -> String {
    w.on(host, "curl -s http://127.0.0.1:2384/metrics | sed -n 's/^etcd_server_id{server_id=\"\\(.*\\)\"} 1$/\\1/p'")
}

/// A host loses the data of its member, and has a new member in time.
fn lost(w: &World, hactl: &Hactl, host: &str, how: &str) {
    let before = member(w, host);
    let since = Instant::now();
    w.on(host, how);
    while !serves(w, host) {
        let why = || hactl.run(&["guard", "explain", host]).all();
        assert!(since.elapsed() < GOAL + SLACK, "the member of {host} does not serve: {}", why());
        std::thread::sleep(Duration::from_millis(250));
    }
    let took = since.elapsed();
    println!("        the member of {host} serves again after {took:.1?} (goal {GOAL:?})");
    assert!(took < GOAL + SLACK / 2, "{took:?}");
    let after = member(w, host);
    assert!(!before.is_empty() && !after.is_empty() && before != after, "{before:?} is removed, {after:?} is new");
}

/// The repairs of lost and damaged data so far: host, fault and outcome.
fn rejoined(hactl: &Hactl) -> Vec<[String; 3]> {
    let of_data = |kind: &str| matches!(kind, "EtcdDataLost" | "EtcdDamaged");
    history(hactl).into_iter().filter(|[_, kind, _]| of_data(kind)).collect()
}

fn rejoins(w: &World) {
    let hactl = guarded(w, "healing: on");
    assert_eq!(rejoined(&hactl), Vec::<[String; 3]>::new());

    move_leadership_to(w, "cp1");
    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-rejoin");
    // A follower whose etcd goes on for a while without its files, then the leader at once.
    lost(w, &hactl, "cp2", LOSE);
    lost(w, &hactl, "cp1", &format!("{LOSE}; sudo systemctl kill --signal=SIGKILL etcd"));
    // Pages in the middle of the database, as a disk damages them: etcd ends after each start.
    lost(w, &hactl, "cp3", DAMAGE);
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, longest pause {longest:.1?}");
    w.healthy(CLEARED);
    none(&hactl);
    let once = [("cp1", "EtcdDataLost"), ("cp2", "EtcdDataLost"), ("cp3", "EtcdDamaged")];
    assert_eq!(rejoined(&hactl), once.map(|(host, kind)| [host, kind, "helped"].map(str::to_owned)), "once each");

    left_to_a_person(w, &hactl);
    strangers(w);
    hactl.up().ok().says("nothing to do");
}

/// A host that a person holds: its guard says so, and the person's `up` repairs it.
fn left_to_a_person(w: &World, hactl: &Hactl) {
    hactl.run(&["guard", "pause", "--host", "cp3", "--for", "1h", "--reason", "disk swap"]).ok();
    w.on("cp3", &format!("{LOSE}; sudo systemctl kill --signal=SIGKILL etcd"));
    wait_for("the fault is reported", SLACK, || is_known(hactl, "cp3", "EtcdDataLost"));
    wait_for("its guard says why it does nothing", SLACK, || {
        in_one_line(&hactl.run(&["guard", "explain", "cp3"]).exits(4)).contains("the host is held")
    });
    assert!(!serves(w, "cp3"), "nobody has repaired it");
    hactl.up().ok();
    assert!(serves(w, "cp3"), "`up` has");
    hactl.run(&["guard", "resume"]).ok();
    none(hactl);
    assert_eq!(rejoined(hactl).len(), 3, "the guard of cp3 had no part in it");
    w.healthy(CLEARED);
}

/// Neither a host without etcd nor a certificate of another CA gets anything from the port for guards.
fn strangers(w: &World) {
    let to = format!("{}:10271", w.lab.address("cp1").expect("an address"));
    // In TLS 1.3 the client is done before the server has judged its certificate: it stays until the server ends it.
    let hello = |host: &str, with: &str| {
        let ask =
            format!("sudo timeout 5 openssl s_client -ign_eof -tls1_3 -connect {to} {with} 2>&1 < /dev/null; true");
        w.on(host, &ask)
    };
    let with = |certificate: &str| {
        let ca = "-CAfile /etc/hactl/guard/ca.crt";
        hello("cp2", &format!("-cert {certificate}.crt -key {certificate}.key {ca}"))
    };
    let worker = hello("w1", "");
    assert!(!worker.contains("BEGIN CERTIFICATE"), "w1 is no etcd host: {worker}");
    let guard = with("/etc/hactl/guard/guard");
    assert!(guard.contains("BEGIN CERTIFICATE") && !guard.contains(" alert "), "the guard of cp2 is let in: {guard}");
    let other = with("/etc/etcd/pki/observer");
    assert!(other.contains(" alert "), "a certificate of etcd's CA: {other}");
}
