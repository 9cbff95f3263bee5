//! From "quorum lost" to a write that the endpoint acknowledges: `hactl recover` beside the runbook's own way by hand, pasted without a
//! pause for thought, on the same hosts; with databases of growing size, and with two of three hosts dark.
//!
//! `cargo test --test bench -- recovery [MB]...`. What is measured is what a client sees: a writer that never stops asks the endpoint.

use crate::support::{Api, ETCDCTL, Hactl, Writer, by_hand, wait_for};
use crate::{HOSTS, fresh, on};
use hactl::lab::Scoped;
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(300);
/// How long a client waits for one answer: one that waited for longer would be what is measured.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many sequential writes before bundles are taken, and again afterwards, tell a p99: a tenth as many, and two slow ones would be all of it.
const WRITES: usize = 2000;

struct Bench {
    lab: Scoped,
    hactl: Hactl,
    runbook: String,
}

/// How long nobody was served, and what the tool itself said.
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
        Api::new(&self.hactl.state(self.lab.name()).join("kubeconfig"), PATIENCE)
    }

    /// Random values under keys that no API server knows.
    fn fill(&self, megabytes: u64) {
        let put = format!(
            "n=$(({ETCDCTL} get --prefix /filler/ --keys-only --limit=0; true) | grep -c filler); while [ $n -lt {megabytes} ]; do \
             head -c 1000000 /dev/urandom > /tmp/x; {ETCDCTL} put /filler/$n < /tmp/x >/dev/null || exit 1; n=$((n+1)); done; rm -f /tmp/x"
        );
        on(&self.lab, "cp1", &put);
        let size = on(&self.lab, "cp3", "sudo du -m /var/lib/etcd/member/snap/db | cut -f 1");
        assert!(size.trim().parse::<u64>().is_ok_and(|mb| mb >= megabytes), "{size} MB");
    }

    /// Two of three lose their data, one after the other, and `mend` brings the cluster back.
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
        // Who knows already who has the newest data does not look.
        let script =
            steps.iter().filter(|step| !step.contains("endpoint status")).cloned().collect::<Vec<_>>().join("\n");
        let folder = tempfile::tempdir().expect("a folder");
        let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("sh runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::new()
    }

    /// As it was before: three voters, nothing moved aside, nothing to do.
    fn again(&self) {
        wait_for("up heals the rest", HEAL, || self.hactl.up().code == 0);
        for host in HOSTS {
            on(&self.lab, host, "sudo sh -c 'rm -rf /var/lib/etcd/*.moved-*'");
        }
    }
}

/// What the last line of a recovery says of its times.
fn told(said: &str) -> String {
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = line.find("a quorum after").unwrap_or(0);
    line[from..].split(';').next().unwrap_or_default().to_owned()
}

/// The table.
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
            told(&hactl.said)
        ));
        println!("{}", rows[rows.len() - 1]);
    }
    let dark = bench.outage(
        "dark",
        |host| bench.lab.kill(host).expect("the power can be cut"),
        || {
            let off = ["recover", "--yes", "--confirm-powered-off", "cp1", "--confirm-powered-off", "cp2"];
            // Two hosts are missing still, which is no success yet.
            bench.hactl.run(&off).exits(1).all()
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
        "| {} MB, two hosts dark | {:.1} s | - | - | {} | - |",
        sizes.last().unwrap_or(&0),
        dark.away.as_secs_f64(),
        told(&dark.said)
    );
    snapshots(&bench, sizes.last().copied().unwrap_or(0));
}

/// What bundles cost those who write meanwhile, alone.
pub fn bundles(megabytes: u64) {
    let bench = Bench::new();
    bench.fill(megabytes);
    snapshots(&bench, megabytes);
}

/// MB per second that a host's disk takes.
fn disk(lab: &Scoped) -> f64 {
    let begun = Instant::now();
    on(
        lab,
        "cp3",
        "sudo dd if=/dev/zero of=/var/lib/etcd/dd bs=1M count=512 conv=fdatasync 2>/dev/null; sudo rm /var/lib/etcd/dd",
    );
    512.0 / begun.elapsed().as_secs_f64()
}

/// The p99 of sequential writes while recovery bundles are taken, one after the other, and before and after that.
fn snapshots(bench: &Bench, megabytes: u64) {
    let api = bench.api();
    let (mut idle, mut busy) = (Vec::new(), Vec::new());
    let mut number = 0;
    let mut write = |times: &mut Vec<Duration>| {
        number += 1;
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("p99-{number}")}});
        let begun = Instant::now();
        api.post("/api/v1/namespaces/default/configmaps", &body).expect("it is written");
        times.push(begun.elapsed());
    };
    (0..WRITES).for_each(|_| write(&mut idle));
    while busy.len() < 2 * WRITES {
        std::thread::scope(|scope| {
            // As the timers take them, behind everybody who serves; a member that leads leaves it to the others.
            let take = |host: &str| on(&bench.lab, host, "sudo systemctl start hactl-snapshot");
            let taking = scope.spawn(move || HOSTS.map(take));
            while !taking.is_finished() {
                write(&mut busy);
            }
        });
    }
    (0..WRITES).for_each(|_| write(&mut idle));
    let p99 = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() * 99 / 100].as_secs_f64() * 1000.0
    };
    let (still, taken) = (p99(&mut idle), p99(&mut busy));
    println!(
        "\np99 of {} writes while a bundle of {megabytes} MB is taken: {taken:.1} ms; of {} while none is: {still:.1} ms; ratio {:.2}",
        busy.len(),
        idle.len(),
        taken / still
    );
}
