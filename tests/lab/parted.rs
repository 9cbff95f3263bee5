//! What looks like a lost majority and is none, and a restore that finds no room.

use super::recover::{lose_majority, untouched};
use super::support::{Writer, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a network that parts the members is told from a loss, and heals without a recovery and without losing a write",
        cut: false,
        run: parted,
    },
    Scenario {
        name: "a restore that finds no room stops, and the same command finishes it once there is some",
        cut: false,
        run: no_room,
    },
];

const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];
const HEAL: Duration = Duration::from_secs(120);

fn parted(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-parted");
    std::thread::sleep(Duration::from_secs(2));
    let rule = |how: &str| {
        for host in HOSTS {
            let said = w.on(host, &format!("sudo iptables {how} INPUT -p tcp --dport 2380 -j DROP && echo done"));
            assert_eq!(said.trim(), "done", "{host}");
        }
    };
    rule("-I");
    wait_for("no quorum is left", HEAL, || w.hactl.run(&["status"]).code == 7);
    let before = untouched(w);
    let refused = w.hactl.run(&["recover", "--yes"]).exits(3);
    let said = in_one_line(&refused);
    assert!(said.contains("they do not reach one another") && said.contains("port 2380"), "{}", refused.all());
    w.hactl.up().exits(3);
    assert_eq!(untouched(w), before, "nothing was changed");
    rule("-D");
    w.healthy(HEAL);
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover");
    w.hactl.up().ok().says("nothing to do");
}

fn no_room(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-room");
    std::thread::sleep(Duration::from_secs(2));
    lose_majority(w);
    // A disk that is all but full, where the data belongs.
    let mount = "sudo mkdir -p /var/lib/etcd && sudo mount -t tmpfs -o size=24m tmpfs /var/lib/etcd && echo done";
    assert_eq!(w.on("cp1", mount).trim(), "done");
    let stopped = w.hactl.run(&["recover", "--yes"]).exits(1);
    let said = in_one_line(&stopped);
    println!("        {said}");
    assert!(said.contains("etcd is recovered from cp3"), "{}", stopped.all());
    assert!(said.replace("│ ", "").contains("no space left on device"), "{}", stopped.all());
    assert!(stopped.took < Duration::from_secs(180), "nobody waits for what cannot start: {:?}", stopped.took);
    w.on("cp1", "sudo systemctl stop etcd; sudo umount /var/lib/etcd");
    w.hactl.run(&["recover", "--yes"]).ok();
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    w.well().says("3 voters, quorum 2, 3 healthy");
    w.hactl.up().ok().says("nothing to do");
}
