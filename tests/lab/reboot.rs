//! Guards that reboot their host: restarts of a component do not help, all other hosts are well, and clients notice
//! nothing.

use super::guard::{CLEARED, SLACK, guarded, is_known, none};
use super::repairs::history;
use super::rolled_back::sh;
use super::support::{Hactl, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a host whose kubelet no restart helps is rebooted once, and only while every other host is well",
    cut: false,
    run: rebooted,
}];

/// Until a frozen kubelet is reported, and for three restarts that are a minute apart.
const RESTARTS: Duration = Duration::from_secs(30 + 3 * 60);
/// From then on, until the kubelet of the host that booted serves.
const GOAL: Duration = Duration::from_secs(120);
/// On a file system that is empty after a boot: until then, systemd starts a kubelet that does nothing.
const BROKEN: &str = r#"mkdir -p /run/systemd/system/kubelet.service.d
printf "[Service]\nType=simple\nExecStart=\nExecStart=/bin/sleep infinity\n" >/run/systemd/system/kubelet.service.d/99-broken.conf
systemctl daemon-reload
systemctl restart kubelet && echo broken"#;

/// When the host booted: the start of its first process.
pub fn booted(w: &World, host: &str) -> String {
    w.on(host, "stat -c %Y /proc/1")
}

fn breaks(w: &World, host: &str) {
    assert_eq!(sh(w, host, BROKEN).trim(), "broken");
}

fn explained(hactl: &Hactl, host: &str) -> String {
    in_one_line(&hactl.run(&["guard", "explain", host]).exits(4))
}

fn rebooted(w: &World) {
    let hactl = guarded(w, "healing: {mode: on, reboot: systemd}");
    let before = ["cp1", "cp2", "cp3"].map(|host| booted(w, host));
    // Of another host, etcd is stopped by a person: nothing is rebooted meanwhile.
    w.on("cp3", "sudo systemctl stop etcd");
    breaks(w, "cp2");
    let since = Instant::now();
    wait_for("the guard would reboot, but another host is not well", RESTARTS + SLACK, || {
        is_known(&hactl, "cp2", "KubeletFrozen") && explained(&hactl, "cp2").contains("cp3 is not well either")
    });
    assert_eq!(booted(w, "cp2"), before[1], "it was not rebooted");
    println!("        held back {:.1?} after the kubelet broke", since.elapsed());

    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-reboot");
    w.on("cp3", "sudo systemctl start etcd");
    let since = Instant::now();
    wait_for("cp2 was rebooted, and its kubelet serves", CLEARED + GOAL, || {
        let serves = "curl -sf -m 1 -o /dev/null http://127.0.0.1:10248/healthz && stat -c %Y /proc/1 || true";
        // While it boots, nothing is printed.
        let now = w.on("cp2", serves);
        !now.trim().is_empty() && now != before[1]
    });
    println!("        rebooted and serving {:.1?} after the other host was well", since.elapsed());
    none(&hactl);
    w.healthy(CLEARED);
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, longest pause {longest:.1?}");
    let reboots: Vec<_> =
        history(&hactl).into_iter().filter(|[host, kind, _]| host == "cp2" && kind == "KubeletFrozen").collect();
    assert_eq!(reboots.len(), 4, "three restarts and one reboot: {reboots:?}");
    assert_eq!([&before[0], &before[2]], [&booted(w, "cp1"), &booted(w, "cp3")], "no other host was rebooted");
    hactl.up().ok().says("nothing to do");
}
