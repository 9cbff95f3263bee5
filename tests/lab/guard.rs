//! Guards that watch: what breaks is reported in time, by the right hosts, and ends by itself in the reports.

use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line};
use serde_json::Value;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "guards report frozen processes, a dead host, a dead guard and two holders of the VIP, and only those",
    cut: false,
    run: watch,
}];

const CONTROL: [&str; 3] = ["cp1", "cp2", "cp3"];
/// What comes on top of a delay: a probe every 5 s that takes 2 s, or 5 s until heartbeats count as missed and 5 s until
/// no port has answered; a report, and a poll of this test; half of that again for a busy machine.
pub const SLACK: Duration = Duration::from_secs(20);
/// A fault is over for the guards after half a minute without it; a host after a minute.
pub const CLEARED: Duration = Duration::from_secs(110);
const BOOT: Duration = Duration::from_secs(60);
pub const HEARD: Duration = Duration::from_secs(60);

fn status(hactl: &Hactl) -> Value {
    let ran = hactl.run(&["guard", "status", "-o", "json"]);
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.all()))
}

/// The faults of `hactl guard status`: host (empty: of the VIP) and kind.
pub fn faults(hactl: &Hactl) -> Vec<(String, String)> {
    let text = |fault: &Value, key: &str| fault[key].as_str().unwrap_or_default().to_owned();
    let status = status(hactl);
    let all = status["faults"].as_array().expect("faults").iter();
    all.map(|fault| (text(fault, "host"), text(fault, "kind"))).collect()
}

/// Whether every guard works and hears all others.
pub fn all_hear(hactl: &Hactl) -> bool {
    let status = status(hactl);
    let guards = status["guards"].as_array().expect("guards");
    let others = guards.len().saturating_sub(1);
    let well =
        |guard: &Value| guard["state"] == "works" && guard["hears"].as_array().is_some_and(|h| h.len() == others);
    guards.len() >= 3 && guards.iter().all(well)
}

pub fn is_known(hactl: &Hactl, host: &str, kind: &str) -> bool {
    faults(hactl).contains(&(host.to_owned(), kind.to_owned()))
}

/// What the guard of a host says it does next.
pub fn next(hactl: &Hactl, host: &str) -> String {
    in_one_line(&hactl.run(&["guard", "explain", host]).exits(4))
}

/// Waits until the guards report a fault, which must last so long first.
fn reported(hactl: &Hactl, since: Instant, (host, kind): (&str, &str), delay: Duration) {
    wait_for(&format!("the guards report {kind} of {host}"), (delay + SLACK).saturating_sub(since.elapsed()), || {
        is_known(hactl, host, kind)
    });
    let took = since.elapsed();
    println!("        {kind} of {host} was reported after {took:.1?} (delay {delay:?})");
    assert!(took >= delay, "{kind} of {host} was reported after {took:?}, before its delay");
}

fn signal(w: &World, host: &str, signal: &str, unit: &str) {
    w.on(host, &format!("sudo systemctl kill --signal={signal} {unit}"));
}

pub fn none(hactl: &Hactl) {
    wait_for("the guards report no fault", CLEARED, || faults(hactl).is_empty());
}

/// hactl with the inventory of the lab and these lines.
pub fn asked(w: &World, more: &str) -> Hactl {
    let path = w.lab.dir().join("guard.yaml");
    let plain = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    std::fs::write(&path, format!("{plain}{more}\n")).expect("writable");
    Hactl::new(path)
}

/// hactl with these lines in its inventory, once `up` has nothing to do and all guards hear each other.
pub fn guarded(w: &World, more: &str) -> Hactl {
    let hactl = asked(w, more);
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    wait_for("every guard hears every other one", HEARD, || all_hear(&hactl));
    w.healthy(CLEARED);
    hactl
}

fn watch(w: &World) {
    let hactl = guarded(w, "healing: {mode: watch, after: {hostUnreachable: 30s}}");
    assert_eq!(faults(&hactl), [], "nothing is broken");
    let quick = hactl.run(&["guard", "status"]).ok().took;
    println!("        guard status took {quick:.1?}");

    strangers(w);
    frozen(w, &hactl);
    two_holders(w, &hactl);
    dead(w, &hactl);
    // Each was just asked again and again.
    cost(w, &CONTROL, 20);

    let hactl = asked(w, "");
    let ran = hactl.up().ok();
    assert!(in_one_line(&ran).contains("stop hactl-guard.service"), "{}", ran.all());
    for host in CONTROL {
        let left = w.on(host, "sudo find /etc/hactl /etc/systemd/system /run/hactl -type f | grep guard || true");
        assert_eq!(left.trim(), "", "{host}");
        assert_eq!(w.on(host, "sudo ss -Hltn 'sport = 10270 or sport = 10272'").trim(), "", "{host}");
    }
    hactl.up().ok().says("nothing to do");
    w.healthy(CLEARED);
}

/// Without a guard's certificate, a port of a guard gives nothing; metrics are on loopback only.
fn strangers(w: &World) {
    let cp1 = w.lab.address("cp1").expect("an address");
    let metrics = w.on("cp1", "curl -s http://127.0.0.1:10272/metrics");
    assert!(metrics.contains("hactl_guard_up 1") && metrics.contains("hactl_guard_heard{host=\"cp2\"} 1"), "{metrics}");
    for port in [10270, 10272] {
        for scheme in ["http", "https"] {
            let said = w.on("cp2", &format!("curl -sk --max-time 3 {scheme}://{cp1}:{port}/metrics; echo \"($?)\""));
            assert!(said.starts_with('(') && said.trim() != "(0)", "{scheme}, port {port}: {said}");
        }
    }
    // The kubelet's certificate is of the same CA.
    let kubelet = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let said = w.on(
        "cp2",
        &format!("sudo curl -sk --max-time 3 --cert {kubelet} --key {kubelet} https://{cp1}:10270/; echo \"($?)\""),
    );
    assert!(said.starts_with('(') && said.trim() != "(0)", "{said}");
    let journal = w.on("cp1", "sudo journalctl -u hactl-guard -o cat --no-pager");
    assert!(journal.contains("was refused: "), "{journal}");
}

/// Suspended processes of different hosts at the same time.
fn frozen(w: &World, hactl: &Hactl) {
    let frozen = [
        ("cp1", "etcd", "EtcdFrozen", 15),
        ("cp2", "kubelet", "KubeletFrozen", 30),
        ("cp2", "haproxy", "BalancerFrozen", 5),
        ("cp3", "containerd", "RuntimeFrozen", 30),
    ];
    let since = Instant::now();
    for (host, unit, ..) in frozen {
        signal(w, host, "SIGSTOP", unit);
    }
    let mut by_delay = frozen;
    by_delay.sort_by_key(|(.., delay)| *delay);
    for (host, _, kind, delay) in by_delay {
        reported(hactl, since, (host, kind), Duration::from_secs(delay));
    }
    let ran = hactl.run(&["status"]).exits(4);
    assert!(in_one_line(&ran).contains("EtcdFrozen"), "{}", ran.all());
    let ran = hactl.run(&["guard", "explain", "cp2"]).exits(4);
    assert!(in_one_line(&ran).contains("is suspended"), "{}", ran.all());
    for (host, unit, ..) in frozen {
        signal(w, host, "SIGCONT", unit);
    }
    none(hactl);
    w.healthy(CLEARED);
}

/// A suspended keepalived keeps the address that another host takes.
fn two_holders(w: &World, hactl: &Hactl) {
    let vip = w.lab.vip();
    let has = |host: &&&str| w.on(host, "ip -o -4 addr").contains(&format!("{vip}/"));
    let holder = CONTROL.iter().find(has).expect("one has it");
    let since = Instant::now();
    signal(w, holder, "SIGSTOP", "keepalived");
    reported(hactl, since, (holder, "KeepalivedFrozen"), Duration::from_secs(5));
    wait_for("the guards report two holders of the VIP", Duration::from_secs(40), || {
        faults(hactl).iter().any(|(_, kind)| kind == "VipDuplicate")
    });
    signal(w, holder, "SIGCONT", "keepalived");
    none(hactl);
}

/// A guard that is stopped, and a host without power.
fn dead(w: &World, hactl: &Hactl) {
    w.on("cp2", "sudo systemctl stop hactl-guard");
    let down = "hactl_faults{host=\"cp2\",kind=\"GuardDown\",class=\"presumed\"} 1";
    wait_for("cp1 reports that the guard of cp2 is down", Duration::from_secs(30) + SLACK, || {
        w.on("cp1", "curl -s http://127.0.0.1:10272/metrics").contains(down)
    });
    // cp2 itself shows it, so that the other guards' word is not repeated.
    let ran = hactl.run(&["guard", "status"]).exits(4);
    assert!(in_one_line(&ran).contains("its guard has no report: it does not run"), "{}", ran.all());
    assert_eq!(faults(hactl), []);
    w.on("cp2", "sudo systemctl start hactl-guard");
    wait_for("every guard hears every other one", HEARD, || all_hear(hactl));

    w.lab.kill("cp3").expect("the power can be cut");
    let since = Instant::now();
    reported(hactl, since, ("cp3", "HostUnreachable"), Duration::from_secs(30));
    let ran = hactl.run(&["guard", "explain", "cp3"]).exits(4);
    assert!(in_one_line(&ran).contains("cp1 and cp2"), "{}", ran.all());
    w.lab.start("cp3", BOOT).expect("the host boots");
    none(hactl);
    w.healthy(CLEARED);
}

/// The most memory of its own that a guard has, KiB. Pages of the program are shared with every other hactl on the host,
/// and the kernel may drop them: see decision 0290.
const OWN_KIB: u64 = 12 << 10;

/// Memory and processor time of each guard since its start, in permille of a processor at the most.
pub fn cost(w: &World, hosts: &[&str], most_permille: u64) {
    for host in hosts {
        let said = w.on(
            host,
            "p=$(systemctl show -p MainPID --value hactl-guard); awk '/VmRSS|RssAnon/ {print $2}' /proc/$p/status; \
             ps -o etimes=,cputimes= -p $p",
        );
        let numbers: Vec<u64> = said.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let [rss_kib, own_kib, ran_s, cpu_s] = numbers[..] else { panic!("{said}") };
        println!(
            "        the guard of {host}: {} MiB of its own, {} MiB with the program, {cpu_s} s of processor in {ran_s} s",
            own_kib >> 10,
            rss_kib >> 10
        );
        assert!(own_kib < OWN_KIB && rss_kib < 40_000, "{host}: {own_kib} of {rss_kib} KiB");
        // Times are whole seconds.
        let most_s = 1 + ran_s * most_permille / 1000;
        assert!(cpu_s <= most_s, "{host}: {cpu_s} s in {ran_s} s");
    }
}
