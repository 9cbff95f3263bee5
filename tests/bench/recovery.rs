//! The time from "quorum lost" to a write that the endpoint acknowledges: `hactl recover` beside the manual procedure
//! of the runbook, pasted without a pause, on the same hosts; with databases of growing size, and with two of three
//! hosts unreachable.
//!
//! `cargo test --test bench -- recovery [MB]...`. It measures what a client sees: a writer that never stops uses the
//! endpoint.

use crate::support::{Api, ETCDCTL, Hactl, Writer, by_hand, wait_for};
use crate::{HOSTS, fresh, on};
use hactl::lab::Scoped;
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(300);
/// How long a client waits for one answer: with a longer timeout, this time would be measured instead.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How many sequential writes give a p99: of a tenth as many, two slow ones would decide it.
const WRITES: usize = 2000;
/// How many times as many writes are made while snapshots are taken, and as many while none is.
const ROUNDS: usize = 6;

struct Bench {
    lab: Scoped,
    hactl: Hactl,
    runbook: String,
}

/// How long no write was acknowledged, and what the tool itself printed.
struct Outage {
    away: Duration,
    said: String,
}

impl Bench {
    fn new() -> Self {
        let lab = fresh("b-rec");
        let hactl = Hactl::new(lab.inventory());
        hactl.up().ok();
        let runbook = hactl.run(&["runbook"]).ok().out;
        Self { lab, hactl, runbook }
    }

    fn api(&self) -> Api {
        Api::new(&self.hactl.state(self.lab.name()).join("kubeconfig"), TIMEOUT)
    }

    /// Writes random values under keys that no API server uses.
    fn fill(&self, megabytes: u64) {
        let put = format!(
            "n=$(({ETCDCTL} get --prefix /filler/ --keys-only --limit=0; true) | grep -c filler); while [ $n -lt {megabytes} ]; do \
             head -c 1000000 /dev/urandom > /tmp/x; {ETCDCTL} put /filler/$n < /tmp/x >/dev/null || exit 1; n=$((n+1)); done; rm -f /tmp/x"
        );
        on(&self.lab, "cp1", &put);
        let size = on(&self.lab, "cp3", "sudo du -m /var/lib/etcd/member/snap/db | cut -f 1");
        assert!(size.trim().parse::<u64>().is_ok_and(|mb| mb >= megabytes), "{size} MB");
    }

    /// Two of three hosts lose their data, one after the other, and `mend` restores the cluster.
    fn outage(&self, name: &str, lose: impl Fn(&str), mend: impl FnOnce() -> String) -> Outage {
        assert!(Command::new("sync").status().expect("sync runs").success());
        let writer = Writer::start(&self.api(), name);
        std::thread::sleep(Duration::from_secs(3));
        lose("cp1");
        std::thread::sleep(Duration::from_secs(2));
        lose("cp2");
        let said = mend();
        let (_, away) = writer.end();
        Outage { away, said }
    }

    fn data_gone(&self, host: &str) {
        let gone =
            "sudo systemctl kill -s KILL etcd; sudo systemctl stop --no-block etcd; sudo rm -rf /var/lib/etcd/member";
        on(&self.lab, host, gone);
    }

    fn hand(&self) -> String {
        let steps = by_hand(&self.runbook, "cp3");
        // The host with the newest data is known, so nothing is compared.
        let script =
            steps.iter().filter(|step| !step.contains("endpoint status")).cloned().collect::<Vec<_>>().join("\n");
        let folder = tempfile::tempdir().expect("a folder");
        let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("sh runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::new()
    }

    /// Restores three voters, removes archived data, and has nothing left to do.
    fn again(&self) {
        wait_for("up heals the rest", HEAL, || self.hactl.up().code == 0);
        for host in HOSTS {
            on(&self.lab, host, "sudo sh -c 'rm -rf /var/lib/etcd/*.moved-*'");
        }
    }
}

/// The times that the last line of a recovery reports.
fn times(said: &str) -> String {
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = line.find("a quorum after").unwrap_or(0);
    line[from..].split(';').next().unwrap_or_default().to_owned()
}

/// Prints the table.
pub fn main(sizes: &[u64]) {
    let bench = Bench::new();
    let mut rows = Vec::new();
    for megabytes in sizes {
        bench.fill(*megabytes);
        let hactl = bench.outage(
            &format!("h{megabytes}"),
            |host| bench.data_gone(host),
            || bench.hactl.run(&["recover", "--yes"]).ok().all(),
        );
        bench.again();
        let hand = bench.outage(&format!("m{megabytes}"), |host| bench.data_gone(host), || bench.hand());
        bench.again();
        let disk = disk(&bench.lab);
        #[allow(clippy::cast_precision_loss, reason = "megabytes")]
        let floor = *megabytes as f64 * 3.0 / disk;
        rows.push(format!(
            "| {megabytes} MB | {:.1} s | {:.1} s | {:.2} | {} | {floor:.1} s |",
            hactl.away.as_secs_f64(),
            hand.away.as_secs_f64(),
            hactl.away.as_secs_f64() / hand.away.as_secs_f64(),
            times(&hactl.said)
        ));
        println!("{}", rows[rows.len() - 1]);
    }
    let off = bench.outage(
        "off",
        |host| bench.lab.kill(host).expect("the power can be cut"),
        || {
            let command = ["recover", "--yes", "--confirm-powered-off", "cp1", "--confirm-powered-off", "cp2"];
            // Two hosts are still missing, so it is no success yet.
            bench.hactl.run(&command).exits(1).all()
        },
    );
    for host in ["cp1", "cp2"] {
        bench.lab.start(host, BOOT).expect("the host boots");
    }
    bench.again();
    println!(
        "\n| database | hactl recover | by hand | ratio | hactl says | three copies at the disk's speed |\n|---|---|---|---|---|---|"
    );
    for row in &rows {
        println!("{row}");
    }
    println!(
        "| {} MB, two hosts unreachable | {:.1} s | - | - | {} | - |",
        sizes.last().unwrap_or(&0),
        off.away.as_secs_f64(),
        times(&off.said)
    );
    snapshots(&bench, sizes.last().copied().unwrap_or(0));
}

/// Measures only what snapshots cost writers meanwhile.
pub fn snapshots_alone(megabytes: u64) {
    let bench = Bench::new();
    bench.fill(megabytes);
    snapshots(&bench, megabytes);
}

/// How many MB per second a host's disk writes.
fn disk(lab: &Scoped) -> f64 {
    let begun = Instant::now();
    on(
        lab,
        "cp3",
        "sudo dd if=/dev/zero of=/var/lib/etcd/dd bs=1M count=512 conv=fdatasync 2>/dev/null; sudo rm /var/lib/etcd/dd",
    );
    512.0 / begun.elapsed().as_secs_f64()
}

/// The p99 of sequential writes while snapshots are taken, and while none is, in turns: other load of the machine
/// affects both.
fn snapshots(bench: &Bench, megabytes: u64) {
    let api = bench.api();
    let mut number = 0;
    let mut write = |times: &mut Vec<Duration>| {
        number += 1;
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("p99-{number}")}});
        let begun = Instant::now();
        api.post("/api/v1/namespaces/default/configmaps", &body).expect("it is written");
        times.push(begun.elapsed());
    };
    let p99 = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort();
        times[times.len() * 99 / 100].as_secs_f64() * 1000.0
    };
    let (mut idle, mut busy, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut host, mut skipped) = (HOSTS.iter().cycle(), 0);
    while busy.len() < ROUNDS * WRITES {
        let (idle_before, busy_before) = (idle.len(), busy.len());
        std::thread::scope(|scope| {
            // As the timers take them, with low priority; a member that leads leaves it to the others.
            let host = host.next().expect("it begins again");
            let taking = scope.spawn(|| on(&bench.lab, host, "sudo systemctl start hactl-snapshot"));
            while !taking.is_finished() {
                write(&mut busy);
            }
        });
        let written = busy.len() - busy_before;
        if written < WRITES / 4 {
            // The leader took none.
            busy.truncate(busy_before);
            skipped += 1;
            assert!(skipped < 2 * HOSTS.len(), "snapshots of {megabytes} MB are not taken, or too quickly to measure");
            continue;
        }
        skipped = 0;
        (0..written).for_each(|_| write(&mut idle));
        ratios.push(p99(&busy[busy_before..]) / p99(&idle[idle_before..]));
    }
    let (still, taken) = (p99(&idle), p99(&busy));
    ratios.sort_by(f64::total_cmp);
    println!(
        "\np99 of {} writes while snapshots of {megabytes} MB are taken: {taken:.1} ms; of {} while none is, in turns: \
         {still:.1} ms; ratio {:.2}; of each of {} turns: {}",
        busy.len(),
        idle.len(),
        taken / still,
        ratios.len(),
        ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ")
    );
}
