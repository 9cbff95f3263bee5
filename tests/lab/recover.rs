//! etcd without its majority: recovered from what is left, and from nothing else.

use super::support::{Ran, Writer};
use super::{Scenario, World};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a majority that lost its disks is recovered from the survivor without losing an acknowledged write",
        cut: true,
        run: survivor,
    },
    Scenario {
        name: "hosts that do not answer are not recovered from under, unless they are said to be off",
        cut: true,
        run: dark,
    },
    Scenario { name: "recover killed at four moments is finished by the same command", cut: false, run: killed },
];

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);

/// Two hosts lose their disks, one after the other: whatever is acknowledged in between is on the second and on the third.
fn lose_majority(w: &World) {
    w.lab.wipe("cp1").expect("the disks can be lost");
    std::thread::sleep(Duration::from_secs(3));
    w.lab.wipe("cp2").expect("the disks can be lost");
    for host in ["cp1", "cp2"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
}

/// What must not have changed by looking alone: the process of the survivor's member, and its files.
fn untouched(w: &World) -> String {
    w.on("cp3", "systemctl show -p MainPID --value etcd; sudo ls -d /var/lib/etcd/*; systemctl is-active kubelet")
}

fn recover(w: &World, arguments: &[&str]) -> Ran {
    let ran = w.hactl.run(&[&["recover"], arguments].concat());
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    ran
}

fn survivor(w: &World) {
    w.hactl.up().ok();
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover: all 3 members of etcd are healthy");
    let writer = Writer::start(&w.api(), "w-survivor");
    std::thread::sleep(Duration::from_secs(3));
    lose_majority(w);
    let before = untouched(w);
    w.hactl.up().exits(3).says("no quorum").says("hactl recover");
    recover(w, &["--dry-run"]).ok().says("cp3").says("cannot be known").says("nothing was changed");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    assert_eq!(untouched(w), before, "nothing changes before somebody agrees");
    let before = w.on("cp3", "sudo etcdutl version >/dev/null && echo there");
    assert_eq!(before.trim(), "there");
    recover(w, &["--yes"]).ok().says("etcd is recovered from cp3");
    let (written, longest) = writer.end();
    println!(
        "        {written} writes acknowledged, none lost; the longest pause, until it was recovered: {longest:.1?}"
    );
    w.hactl.up().ok().says("nothing to do");
    let left = w.on("cp3", "sudo ls /var/lib/etcd; sudo cat /var/lib/hactl/high-water");
    assert!(left.contains("member.moved-"), "the old data is there: {left}");
    assert!(!left.contains("hactl-recovery") && !left.contains("hactl-restoring"), "and nothing else is: {left}");
    let base: i64 = left.lines().last().and_then(|l| l.trim().parse().ok()).expect("a revision");
    let list = w.api().get("/api/v1/namespaces/default/configmaps?limit=1").expect("the API serves");
    let now: i64 = list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a revision");
    assert!(now >= base, "no revision comes twice: {now} after a leap to {base}");
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover");
}

fn dark(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-dark");
    std::thread::sleep(Duration::from_secs(3));
    w.lab.kill("cp1").expect("the power can be cut");
    std::thread::sleep(Duration::from_secs(3));
    w.lab.kill("cp2").expect("the power can be cut");
    let before = untouched(w);
    recover(w, &["--yes"]).exits(3).says("may still run").says("--confirm-powered-off cp1");
    assert_eq!(untouched(w), before, "a refusal changes nothing");
    let off = ["--confirm-powered-off", "cp1", "--confirm-powered-off", "cp2"];
    recover(w, &[&["--yes"], off.as_slice()].concat()).exits(1).says("etcd is recovered from cp3").says("cp1");
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    for host in ["cp1", "cp2"] {
        w.lab.start(host, BOOT).expect("the host boots");
        let ran = w.hactl.up();
        assert!(ran.code == 0 || host == "cp1", "{}", ran.all());
    }
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

fn killed(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-killed");
    std::thread::sleep(Duration::from_secs(3));
    lose_majority(w);
    for seconds in [1.0, 3.0, 5.0, 8.0_f32] {
        let mut child = w.hactl.command(&["recover", "--yes"]).spawn().expect("hactl can be started");
        std::thread::sleep(Duration::from_secs_f32(seconds));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }
    let begun = Instant::now();
    let mut last = recover(w, &["--yes"]);
    // The lock of a killed run is given back within seconds.
    while last.code == 6 && begun.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(500));
        last = recover(w, &["--yes"]);
    }
    last.ok();
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    writer.end();
}
