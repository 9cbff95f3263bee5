//! Pods that exhaust a control-plane host: processors, memory, PIDs. Clients do not notice, and guards repair nothing.

use super::bare_hosts::variant;
use super::guard::{cost, faults, guarded};
use super::repairs::history;
use super::soak::setting;
use super::support::{Hactl, Writer, wait_for};
use super::{Scenario, World};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "while pods exhaust a control-plane host, etcd keeps its leader and requests end within a second",
    cut: false,
    run: eaten,
}];

/// The memory that all pods together may use, MiB: hosts share the memory of this machine, which must have more.
const FOR_PODS: u64 = 3 << 10;
const CALM: Duration = Duration::from_secs(20);
const CROWDED: Duration = Duration::from_secs(45);
/// One script per resource, each of which uses all that it can get.
const EATERS: [(&str, &str); 3] = [
    ("processors", "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"),
    ("memory", "x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done"),
    ("numbers", "while :; do sleep 600 & done"),
];

/// The histogram of etcd's WAL fsync on a host; two of them give the 99th percentile in between, in seconds.
struct Fsync(Vec<(f64, f64)>);

impl Fsync {
    fn of(w: &World, host: &str) -> Self {
        let metrics = w.on(host, "curl -s http://127.0.0.1:2384/metrics");
        let bucket = |line: &str| {
            let rest = line.strip_prefix("etcd_disk_wal_fsync_duration_seconds_bucket{le=\"")?;
            let (bound, count) = rest.split_once("\"} ")?;
            Some((bound.replace("+Inf", "inf").parse().ok()?, count.trim().parse().ok()?))
        };
        let buckets: Vec<(f64, f64)> = metrics.lines().filter_map(bucket).collect();
        assert!(buckets.len() > 5, "etcd reports its WAL fsync: {metrics}");
        Self(buckets)
    }
    fn p99_since(&self, before: &Self) -> f64 {
        let counts: Vec<(f64, f64)> = self.0.iter().zip(&before.0).map(|(now, then)| (now.0, now.1 - then.1)).collect();
        let all = counts.last().map_or(0.0, |last| last.1);
        assert!(all > 20.0, "too few writes: {all}");
        counts.iter().find(|(_, count)| *count >= all * 0.99).map_or(f64::INFINITY, |(bound, _)| *bound)
    }
}

/// Reads and writes for a while: how long the slowest of them took, and the 99th percentile of etcd's WAL fsync.
fn asked(w: &World, name: &str, within: Duration) -> (Duration, f64) {
    let before = Fsync::of(w, "cp1");
    let (reading, writer) = (w.api().reads(Duration::from_millis(20)), Writer::start(&w.api(), name));
    std::thread::sleep(within);
    let reads = reading.end();
    let (written, pause) = writer.end();
    let failed: Vec<_> = reads.iter().filter(|k| k.2.is_some()).collect();
    let longest = reads.iter().map(|k| k.1).max().unwrap_or_default();
    let fsync = Fsync::of(w, "cp1").p99_since(&before);
    println!(
        "        {name}: {} reads, {} failed, the longest took {longest:.2?}; {written} writes, the longest pause {pause:.2?}; \
         99 of 100 fsyncs of etcd's WAL within {fsync} s",
        reads.len(),
        failed.len()
    );
    assert!(failed.is_empty(), "{failed:?}");
    (longest.max(pause), fsync)
}

fn eaten(w: &World) {
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("/proc/meminfo is readable");
    let total =
        meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let reserved = (total.expect("a number of kB") >> 10).checked_sub(FOR_PODS).expect("a machine with more memory");
    let own = format!("failCgroupV1: false, systemReserved: {{memory: {reserved}Mi}}");
    let hactl = variant(w, "crowded.yaml", |text| text.replace("failCgroupV1: false", &own));
    hactl.up().ok();
    w.healthy(Duration::from_secs(180));
    let leads = || w.on("cp1", "curl -s http://127.0.0.1:2384/metrics | grep '^etcd_server_leader_changes_seen_total'");

    let (_, calm) = asked(w, "w-calm", CALM);
    let changes = leads();
    for (name, script) in EATERS {
        eats(&hactl, ("cp1", name), script);
    }
    run(w, "cp1", EATERS.len());
    let (longest, crowded) = asked(w, "w-crowded", CROWDED);
    let ended = "jsonpath={.status.containerStatuses[0].lastState.terminated.reason}{.status.containerStatuses[0].state.terminated.reason}";
    let memory = hactl.kubectl(&["get", "pod", "memory", "-o", ended]).ok().out;
    assert!(memory.contains("OOMKilled"), "the pod that uses up memory is OOM-killed: {memory}");
    let load = w.on("cp1", "cut -d' ' -f1 /proc/loadavg");
    println!("        the load while they ran: {}", load.trim());
    for (name, _) in EATERS {
        hactl.kubectl(&["delete", "pod", name, "--grace-period=1"]).ok();
    }
    assert_eq!(leads(), changes, "no other leader was elected meanwhile");
    assert!(longest < Duration::from_secs(1), "a client waited for {longest:?}");
    assert!(crowded <= (calm * 8.0).max(0.128), "etcd's WAL fsync went from {calm} s to {crowded} s");
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(180));
}

/// Runs a pod on a host.
fn eats(hactl: &Hactl, (host, name): (&str, &str), script: &str) {
    let images = hactl.kubectl(&["get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].image}"]).ok().out;
    let image = images.split_whitespace().find(|i| i.contains("kube-proxy")).expect("kube-proxy runs");
    let spec = serde_json::json!({"spec": {"nodeName": host, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}]}});
    hactl.kubectl(&["run", name, "--image", image, "--overrides", &spec.to_string()]).ok();
}

/// Waits until so many pods without a limit run on a host.
fn run(w: &World, host: &str, pods: usize) {
    let limits = "sudo sh -c 'cat /sys/fs/cgroup/pids/kubepods/besteffort/pod*/pids.max'";
    wait_for("the pods run", Duration::from_secs(60), || w.on(host, limits).matches("4096").count() >= pods);
}

/// Between two looks at the guards.
const LOOK: Duration = Duration::from_secs(60);
/// What a guard may use of a processor, permille: see decision 0290.
const COST: u64 = 25;

/// Pods use up the processors and the PIDs of a host for so many hours: no guard repairs anything.
pub fn crowd(settings: &[String]) {
    let (hours, count): (f64, usize) = (setting(settings, 0, 1.0), setting(settings, 1, 5));
    let world = World::bare("t-crowd", (count, 0));
    let hactl = guarded(&world, "healing: on");
    let hosts: Vec<String> = (1..=count).map(|n| format!("cp{n}")).collect();
    let hungry = EATERS.iter().filter(|(name, _)| *name != "memory");
    for (name, script) in hungry.clone() {
        eats(&hactl, ("cp1", name), script);
    }
    run(&world, "cp1", hungry.count());
    let (begun, length) = (Instant::now(), Duration::from_secs_f64(hours * 3600.0));
    let (mut written, mut longest) = (0, Duration::ZERO);
    while begun.elapsed() < length {
        let writer =
            Writer::every(Duration::from_millis(200), &world.api(), &format!("w{}", begun.elapsed().as_secs()));
        std::thread::sleep(LOOK.min(length.saturating_sub(begun.elapsed())));
        let (acknowledged, pause) = writer.end();
        (written, longest) = (written + acknowledged, longest.max(pause));
        let load = world.on("cp1", "cut -d' ' -f1 /proc/loadavg");
        let repairs = history(&hactl);
        println!(
            "{:>7} s  load {}; {acknowledged} writes, longest pause {pause:.1?}; faults {:?}; repairs {repairs:?}",
            begun.elapsed().as_secs(),
            load.trim(),
            faults(&hactl)
        );
        assert_eq!(repairs, Vec::<[String; 3]>::new(), "nothing is broken");
    }
    println!("        {written} writes acknowledged, none lost, longest pause {longest:.1?}; no repair in {hours} h");
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    cost(&world, &names, COST);
}
