//! `make bench`: hactl beside kubeadm on fresh hosts of this machine, with the same binaries and images, in one run.
//!
//! `cargo test --test bench -- [PAIRS]`, `-- scale` for the hundred hosts alone, `-- recovery [MB]...` for recoveries
//! alone, `-- changes` for what clients notice of changes, `-- upgrade` for an upgrade of Kubernetes, `-- drains` for
//! drains of a worker, `-- snapshots MB` for what snapshots cost writers; `-- crowds [NODES] [IDLE_NODES]`, which is
//! not part of all, for many Nodes. Prints the tables that the documentation shows. Ratios count; seconds depend on this
//! machine. Fails if a goal of the hundred hosts or of many Nodes is missed.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    missing_docs,
    reason = "a benchmark prints, and fails where it stands"
)]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with the lab tests")]
mod support;

mod admin;
mod changes;
mod crowds;
mod drains;
mod recovery;
mod requests;
mod scale;
mod upgrade;

use hactl::lab::{Scoped, Silent, Spec};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Api, Hactl, Probe};

const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];
/// Sizes of the recovered databases, MB.
const RECOVERED: [u64; 3] = [10, 100, 1000];
/// Nodes of a rollout, and Nodes that nothing is done to.
const CROWDS: (usize, usize) = (1000, 5000);
/// A new connection is late when it takes longer than this.
const LATE: Duration = Duration::from_millis(500);
/// Between two new connections.
const EVERY: Duration = Duration::from_millis(20);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn on(lab: &Scoped, host: &str, command: &str) -> String {
    let output = lab.ssh(host).expect("the host exists").arg(command).output().expect("ssh runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a client that opens a connection every 20 ms notices while something is done to the cluster.
struct Noticed {
    reads: usize,
    failed: usize,
    late: usize,
    /// How long a new client would not have been served in time: from the first read that was late or failed to the one
    /// after the last of them.
    outage: Duration,
    /// The longest read that was served in the end.
    longest: Duration,
}

fn notice(api: &Api, act: impl FnOnce()) -> Noticed {
    let reading = api.reads(EVERY);
    std::thread::sleep(Duration::from_secs(2));
    act();
    std::thread::sleep(Duration::from_secs(8));
    let reads = reading.end();
    let bad: Vec<&Probe> = reads.iter().filter(|k| k.2.is_some() || k.1 > LATE).collect();
    let outage = match (bad.first(), bad.last()) {
        (Some(first), Some(last)) => (last.0 + EVERY).saturating_sub(first.0),
        _ => Duration::ZERO,
    };
    let failed = bad.iter().filter(|k| k.2.is_some()).count();
    let longest = reads.iter().filter(|k| k.2.is_none()).map(|k| k.1).max().unwrap_or_default();
    Noticed { reads: reads.len(), failed, late: bad.len() - failed, outage, longest }
}

/// How long something took, and what a client that reads every 20 ms saw of it.
fn under_reads(api: &Api, act: impl FnOnce()) -> (Duration, Vec<Probe>) {
    let reading = api.reads(EVERY);
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    act();
    let took = begun.elapsed();
    std::thread::sleep(Duration::from_secs(3));
    (took, reading.end().all())
}

impl std::fmt::Display for Noticed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} failed, {} late; away {:.2} s, longest served {:.2} s",
            self.failed,
            self.reads,
            self.late,
            self.outage.as_secs_f64(),
            self.longest.as_secs_f64()
        )
    }
}

/// Fresh hosts, after all pending disk writes are done.
fn fresh(name: &str) -> Scoped {
    let lab = Scoped::up(&Spec::new(name).hosts(3, 0, 0), &Silent).expect("the lab comes up");
    assert!(Command::new("sync").status().expect("sync runs").success());
    lab
}

fn kill_api_server(lab: &Scoped) {
    on(lab, "cp2", "sudo sh -c 'kill -KILL $(pgrep -x kube-apiserver)'");
}

/// The one of these hosts that holds the VIP.
fn holder(lab: &Scoped, among: &[&'static str]) -> &'static str {
    let vip = format!(" {}/", lab.vip());
    let found = among.iter().copied().find(|host| on(lab, host, "ip -4 addr").contains(&vip));
    found.expect("a host holds the VIP")
}

fn power_off_holder(lab: &Scoped) {
    lab.kill(holder(lab, &HOSTS)).expect("the power can be cut");
}

fn hactl_run(number: usize, last: bool, table: &mut Vec<String>) -> f64 {
    let lab = fresh(&format!("b-hactl{number}"));
    let hactl = Hactl::new(lab.inventory());
    let ran = hactl.up().ok();
    let took = ran.took.as_secs_f64();
    println!("hactl {number}: {took:.1} s");
    if last {
        for line in ran.out.lines().filter(|l| l.contains(" s  ") || l.contains("sent")) {
            println!("    {}", line.trim());
        }
        let again = median((0..5).map(|_| hactl.up().ok().took.as_secs_f64()).collect());
        table.push(format!("| second run, nothing to do | - | {again:.2} s |"));
        let api = Api::new(&hactl.state(lab.name()).join("kubeconfig"), Duration::from_secs(10));
        let killed = notice(&api, || kill_api_server(&lab));
        support::wait_for("the API server comes back", Duration::from_secs(120), || hactl.run(&["status"]).code == 0);
        let off = notice(&api, || power_off_holder(&lab));
        table.push(format!("| API server killed | KUBEADM_KILLED | {killed} |"));
        table.push(format!("| holder of the VIP powered off | KUBEADM_OFF | {off} |"));
    }
    took
}

/// Bootstraps or upgrades the cluster with kubeadm; returns how long each stage took.
fn kubeadm(lab: &Scoped, verb: &str, dist: &Path) -> String {
    let network = lab.network();
    let net = network.rsplit_once('.').expect("an address").0;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/kubeadm.sh");
    let output = Command::new(script).arg(verb).arg(lab.dir()).arg(dist).arg(net).output().expect("the script runs");
    assert!(output.status.success(), "kubeadm {verb}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().replace('\n', ", ")
}

fn kubeadm_run(number: usize, last: bool, dist: &Path, table: &mut [String]) -> f64 {
    let lab = fresh(&format!("b-kubeadm{number}"));
    let begun = Instant::now();
    let stages = kubeadm(&lab, "up", dist);
    let took = begun.elapsed().as_secs_f64();
    println!("kubeadm {number}: {took:.1} s ({stages})");
    if last {
        let config = lab.dir().join("admin.conf");
        std::fs::write(&config, on(&lab, "cp1", "sudo cat /etc/kubernetes/admin.conf")).expect("writable");
        let api = Api::new(&config, Duration::from_secs(10));
        let killed = notice(&api, || kill_api_server(&lab));
        std::thread::sleep(Duration::from_secs(20));
        let off = notice(&api, || power_off_holder(&lab));
        for line in table {
            *line = line.replace("KUBEADM_KILLED", &killed.to_string()).replace("KUBEADM_OFF", &off.to_string());
        }
    }
    took
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["carry", inventory, blob] => {
            scale::carry::main(inventory, blob);
            return std::process::ExitCode::SUCCESS;
        }
        ["recovery", ref sizes @ ..] => {
            let sizes: Vec<u64> = sizes.iter().map(|mb| mb.parse().expect("sizes are megabytes")).collect();
            recovery::main(if sizes.is_empty() { &RECOVERED } else { &sizes });
            return std::process::ExitCode::SUCCESS;
        }
        ["snapshots", megabytes] => {
            recovery::snapshots_alone(megabytes.parse().expect("a size is megabytes"));
            return std::process::ExitCode::SUCCESS;
        }
        ["changes", ref parts @ ..] => {
            changes::main(parts);
            return std::process::ExitCode::SUCCESS;
        }
        ["upgrade"] => {
            upgrade::main(&dist());
            return std::process::ExitCode::SUCCESS;
        }
        ["drains", ref words @ ..] => {
            drains::main(words.contains(&"short"));
            return std::process::ExitCode::SUCCESS;
        }
        ["crowds", ref sizes @ ..] => {
            let size = |at: usize, usual| sizes.get(at).map_or(usual, |size| size.parse().expect("a number of Nodes"));
            let met = crowds::main(size(0, CROWDS.0), size(1, CROWDS.1));
            return if met { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE };
        }
        ["scale"] => {}
        _ => {
            pairs(arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(3));
            recovery::main(&RECOVERED);
            changes::main(&[]);
            upgrade::main(&dist());
            drains::main(false);
        }
    }
    if scale::main() { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// The folder into which `make components` builds.
fn dist() -> PathBuf {
    let dist = hactl::component::default_store().with_file_name("dist");
    std::env::var_os("DIST").map_or(dist, PathBuf::from)
}

/// Runs hactl and kubeadm in turns, this many times.
fn pairs(pairs: usize) {
    let dist = dist();
    let mut table = Vec::new();
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for number in 1..=pairs {
        ours.push(hactl_run(number, number == pairs, &mut table));
        theirs.push(kubeadm_run(number, number == pairs, &dist, &mut table));
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
    println!("\n| what | kubeadm, haproxy, keepalived | hactl |\n|---|---|---|");
    println!(
        "| three bare hosts to all Ready, median of {pairs} | {:.1} s | {:.1} s, verified |",
        median(theirs),
        median(ours)
    );
    for line in &table {
        println!("{line}");
    }
    println!("\nratio of each pair: {}", ratios.iter().map(|r| format!("{r:.2}")).collect::<Vec<_>>().join(", "));
}
