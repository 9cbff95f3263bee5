//! Faults that resemble a lost majority, and a restore without enough free space.

use super::recover::{all_healthy, data_files, lose_majority, majority, members, recover, untouched};
use super::support::{Writer, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a network partition is not mistaken for data loss, and heals without a recovery or a lost write",
        cut: false,
        run: parted,
    },
    Scenario {
        name: "a restore without free space stops, and the same command finishes it once there is space",
        cut: false,
        run: no_space,
    },
    Scenario {
        name: "missing volumes on a majority are named as such, and mounting them restores all data",
        cut: false,
        run: not_mounted,
    },
];
/// On five members.
pub const FIVE: &[Scenario] = &[
    Scenario { name: "five members: a network partition heals without a recovery", cut: false, run: parted },
    Scenario { name: "five members: a restore without free space on one host", cut: false, run: no_space },
    Scenario { name: "five members: missing volumes on three", cut: false, run: not_mounted },
];

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(120);

fn parted(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-parted");
    std::thread::sleep(Duration::from_secs(2));
    let rule = |how: &str| {
        for host in members(w) {
            let said = w.on(host, &format!("sudo iptables {how} INPUT -p tcp --dport 2380 -j DROP && echo done"));
            assert_eq!(said.trim(), "done", "{host}");
        }
    };
    rule("-I");
    wait_for("no quorum is left", HEAL, || w.hactl.run(&["status"]).code == 7);
    let before = untouched(w);
    let refused = w.hactl.run(&["recover", "--yes"]).exits(3);
    let said = in_one_line(&refused);
    assert!(said.contains("they cannot reach one another") && said.contains("port 2380"), "{}", refused.all());
    w.hactl.up().exits(3);
    assert_eq!(untouched(w), before, "nothing was changed");
    rule("-D");
    w.healthy(HEAL);
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover");
    w.hactl.up().ok().says("nothing to do");
}

fn no_space(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-space");
    std::thread::sleep(Duration::from_secs(2));
    lose_majority(w);
    // A disk with almost no free space, at the data directory.
    let mount = "sudo mkdir -p /var/lib/etcd && sudo mount -t tmpfs -o size=24m tmpfs /var/lib/etcd && echo done";
    assert_eq!(w.on("cp1", mount).trim(), "done");
    let stopped = w.hactl.run(&["recover", "--yes"]).exits(1);
    let said = in_one_line(&stopped);
    println!("        {said}");
    assert!(said.contains("etcd is recovered from cp"), "{}", stopped.all());
    assert!(said.replace("│ ", "").contains("no space left on device"), "{}", stopped.all());
    assert!(stopped.took < Duration::from_secs(180), "hactl does not wait for what cannot start: {:?}", stopped.took);
    w.on("cp1", "sudo systemctl stop etcd; sudo umount /var/lib/etcd");
    w.hactl.run(&["recover", "--yes"]).ok();
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    w.well().says(&all_healthy(w));
    w.hactl.up().ok().says("nothing to do");
}

/// At boot an empty file system is mounted over the data directory, which resembles a volume that is not mounted.
fn not_mounted(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-volume");
    std::thread::sleep(Duration::from_secs(3));
    let unit = "[Unit]\nDefaultDependencies=no\nBefore=etcd.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                ExecStart=/bin/mount -t tmpfs -o size=64m tmpfs /var/lib/etcd\n[Install]\nWantedBy=multi-user.target\n";
    let away = majority(w);
    for host in &away {
        let path = "/etc/systemd/system/not-mounted.service";
        let made = w.on(host, &format!("printf '{unit}' | sudo tee {path} >/dev/null; sudo systemctl enable not-mounted 2>/dev/null; sync; echo done"));
        assert_eq!(made.trim(), "done", "{host}");
    }
    for host in &away {
        w.lab.kill(host).expect("the power can be cut");
    }
    for host in &away {
        w.lab.start(host, BOOT).expect("the host boots");
        assert_eq!(w.on(host, "stat -f -c %T /var/lib/etcd").trim(), "tmpfs", "{host}");
    }
    let before = untouched(w);
    let refused = w.hactl.up().exits(3);
    let said = in_one_line(&refused);
    assert!(said.contains("is a volume not mounted?"), "{}", refused.all());
    let shown = recover(w, &["--dry-run"]).ok();
    let said = in_one_line(&shown);
    assert!(
        said.contains(&format!("{}: a member ran there, and its data is gone", away.join(", "))),
        "{}",
        shown.all()
    );
    assert!(said.contains("If a volume is not mounted, mount it and run"), "{}", shown.all());
    assert_eq!(untouched(w), before, "nothing was changed");
    for host in &away {
        w.on(host, "sudo systemctl disable not-mounted 2>/dev/null; sudo rm /etc/systemd/system/not-mounted.service; sudo systemctl stop etcd; sudo umount /var/lib/etcd; sudo systemctl daemon-reload");
        data_files(w, host);
    }
    w.hactl.up().ok();
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    w.well().says(&all_healthy(w));
    w.hactl.up().ok().says("nothing to do");
}
