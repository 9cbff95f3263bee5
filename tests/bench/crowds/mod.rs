//! Many Nodes: what they cost a guard while nothing is done to them, and a rollout over a thousand of them.
//!
//! `cargo test --test bench -- crowds [NODES] [IDLE_NODES]`. In: the components. Out: a table, and whether every goal was
//! met. The control plane is real, one host of a lab. The Nodes have no hosts: the benchmark itself plays their kubelets,
//! and the person who works on them.

mod cost;
mod play;

use crate::requests::{self, Kinds, Request, now_ms};
use crate::support::{Hactl, wait_for};
use cost::{Cost, Watch};
use hactl::lab::{Scoped, Silent, Spec};
use play::Crowd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOST: &str = "cp1";
const GUARD: &str = "hactl-guard";
const GUARDS: &str = "hactl:guards";
/// Pods on each Node of the rollout.
const PODS: usize = 30;
/// Nodes of the rollout that are away at once.
const AT_ONCE: &str = "5%";
/// How long a guard is looked at while nothing happens: a watch of it lasts five minutes.
const IDLE: Duration = Duration::from_secs(60);
/// Before that, it may do what it has to do about changes.
const SETTLES: Duration = Duration::from_secs(30);
const READY: Duration = Duration::from_secs(180);
/// A rollout that takes longer than this is given up.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

/// Goals: of the guard's growth, MiB; of a rollout of a thousand Nodes, of memory, MiB, and of processors.
const GROWTH_MIB: f64 = 8.0;
const ROLLOUT: Duration = Duration::from_secs(30 * 60);
const MEMORY_MIB: f64 = 60.0;
const PROCESSORS: f64 = 0.15;

struct Bench {
    lab: Arc<Scoped>,
    crowd: Crowd,
    rows: Vec<String>,
    missed: Vec<String>,
}

fn number(of: usize) -> f64 {
    u32::try_from(of).expect("so many").into()
}

fn mib(kib: u64) -> f64 {
    number(usize::try_from(kib).expect("so much memory")) / 1024.0
}

impl Bench {
    /// One host with a guard that acts, and controllers that leave Nodes without kubelets alone.
    fn up() -> Self {
        let lab = Scoped::up(&Spec::new("b-crowds").hosts(1, 0, 0), &Silent).expect("the lab comes up");
        let hactl = Hactl::new(lab.inventory());
        hactl.up().ok();
        let path = lab.inventory();
        let plain = std::fs::read_to_string(&path).expect("the inventory is readable");
        // Nodes get no networks and no pods of DaemonSets, and stay ready without heartbeats.
        let played = "extra: {kube-controller-manager: {args: {node-monitor-grace-period: 24h, controllers: \
                      \"*,-node-ipam-controller,-daemonset-controller\"}}, ";
        let text = plain.replace("extra: {", played) + "healing: watch\n";
        assert!(text.contains(played), "{text}");
        std::fs::write(&path, text).expect("the inventory is writable");
        hactl.up().ok();
        hactl.up().ok().says("nothing to do");
        let crowd = Crowd::new(&hactl.state(lab.name()).join("kubeconfig"));
        requests::log(&lab, Some(GUARDS), || crowd.is_served());
        wait_for("a guard acts", READY, || {
            let holder = "jsonpath={.spec.holderIdentity}";
            !hactl.kubectl(&["-n", "kube-system", "get", "lease", "hactl-controllers", "-o", holder]).out.is_empty()
        });
        Self { lab: Arc::new(lab), crowd, rows: Vec::new(), missed: Vec::new() }
    }

    fn cost(&self) -> Cost {
        Cost::of(&self.lab, HOST, GUARD)
    }

    fn row(&mut self, what: &str, figure: &str, goal: &str) {
        println!("    {what}: {figure}");
        self.rows.push(format!("| {what} | {figure} | {goal} |"));
    }

    fn goal(&mut self, met: bool, what: String) {
        if !met {
            println!("    MISSED: {what}");
            self.missed.push(what);
        }
    }

    /// What the guard costs while nothing is done, and what it asks for.
    fn idle(&self) -> (Cost, f64, Vec<Request>) {
        std::thread::sleep(SETTLES);
        let (before, from) = (self.cost(), now_ms());
        std::thread::sleep(IDLE);
        let (after, to) = (self.cost(), now_ms());
        (after, after.processors_since(&before), requests::between(&self.lab, from, to))
    }

    fn many_idle(&mut self, nodes: usize) {
        let (without, used, asked) = self.idle();
        let others_without = others(&asked);
        let begun = Instant::now();
        self.crowd.nodes("idle", nodes);
        println!("{nodes} Nodes were created in {:.0?}", begun.elapsed());
        let (with, used_with, asked) = self.idle();
        let others_with = others(&asked);
        let growth = mib(with.own_kib) - mib(without.own_kib);
        let what = format!("{nodes} Nodes, nothing in maintenance: the guard's growth");
        self.row(&what, &format!("{growth:.1} MiB, to {:.1} MiB of its own", mib(with.own_kib)), "8 MiB");
        self.goal(growth <= GROWTH_MIB, format!("the guard grew by {growth:.1} MiB"));
        self.row("its processors, without and with them", &format!("{used:.3}, {used_with:.3}"), "-");
        self.row(
            &format!("its requests in {} s besides watches and Leases, without and with them", IDLE.as_secs()),
            &format!("{others_without}; {others_with}"),
            "no more with them",
        );
        // One more may begin in the same time.
        let more: Vec<&String> = others_with
            .0
            .iter()
            .filter(|(kind, n)| **n > others_without.of_kind(kind) + 1)
            .map(|(kind, _)| kind)
            .collect();
        self.goal(more.is_empty(), format!("an idle guard asks more often: {more:?}"));
        self.crowd.no_nodes("idle", nodes);
    }

    fn rollout(&mut self, nodes: usize) {
        let begun = Instant::now();
        self.crowd.nodes("busy", nodes);
        self.crowd.pods("busy", nodes, PODS);
        println!("{nodes} Nodes with {PODS} pods each were created in {:.0?}", begun.elapsed());
        std::thread::sleep(SETTLES);
        let players = self.crowd.play();
        let (watch, before, from) = (Watch::begin(&self.lab, HOST, GUARD), self.cost(), now_ms());
        let begun = Instant::now();
        self.crowd.rollout("busy", "busy", AT_ONCE);
        self.until_complete(begun);
        let (took, after, to) = (begun.elapsed(), self.cost(), now_ms());
        let own_kib = watch.end();
        drop(players);
        let asked = requests::between(&self.lab, from, to);
        let (accepted, refused): (Vec<&Request>, Vec<&Request>) =
            asked.iter().filter(|one| one.of == "pods/eviction").partition(|one| one.code < 400);
        println!("the guard asked for {}", Kinds::of(&asked));
        let pods = nodes * PODS;
        self.row(
            &format!("rollout of {nodes} Nodes with {PODS} pods each, {AT_ONCE} at a time"),
            &format!("{:.1} min", took.as_secs_f64() / 60.0),
            "30 min for 1000",
        );
        self.goal(took <= ROLLOUT.mul_f64((number(nodes) / 1000.0).max(1.0)), format!("the rollout took {took:.0?}"));
        self.row(
            "the guard's most memory, of its own and with the program",
            &format!("{:.1} MiB, {:.1} MiB", mib(own_kib), mib(after.peak_kib)),
            "60 MiB",
        );
        self.goal(mib(after.peak_kib) <= MEMORY_MIB, format!("the guard had {:.1} MiB", mib(after.peak_kib)));
        let used = after.processors_since(&before);
        self.row("its processors", &format!("{used:.3}"), "0.15");
        self.goal(used <= PROCESSORS, format!("the guard used {used:.3} processors"));
        let rate = number(accepted.len()) / took.as_secs_f64();
        self.row(
            "evictions, accepted and refused",
            &format!("{}, {} ({rate:.1} a second)", accepted.len(), refused.len()),
            "20 a second at most",
        );
        self.goal(accepted.len() == pods, format!("{} evictions of {pods} pods were accepted", accepted.len()));
        let (per_node, per_pod) = (number(asked.len()) / number(nodes), number(asked.len()) / number(pods));
        self.row("its requests, for each Node and pod", &format!("{per_node:.0}, {per_pod:.2}"), "-");
        let (later, used, _) = self.idle();
        self.row(
            "afterwards: memory of its own, and processors",
            &format!("{:.1} MiB, {used:.3}", mib(later.own_kib)),
            "-",
        );
    }

    fn until_complete(&self, begun: Instant) {
        let mut said = Instant::now();
        loop {
            let status = self.crowd.rollout_status("busy").unwrap_or_default();
            if status["state"] == "Completed" {
                return;
            }
            assert!(begun.elapsed() < LONGEST && status["state"] != "Stopped", "the rollout goes on: {status}");
            if said.elapsed() >= IDLE {
                said = Instant::now();
                let cost = self.cost();
                println!(
                    "    after {:.0?}: {}, {}; {:.1} MiB of its own; {}",
                    begun.elapsed(),
                    status["progress"],
                    status["nodes"],
                    mib(cost.own_kib),
                    status["waitingFor"]
                );
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Requests that are neither watches nor renewals of Leases.
fn others(asked: &[Request]) -> Kinds {
    Kinds::of(asked.iter().filter(|one| one.verb != "watch" && one.of != "leases"))
}

/// Runs everything, prints the table, and returns whether every goal was met.
pub fn main(nodes: usize, idle: usize) -> bool {
    let mut bench = Bench::up();
    bench.many_idle(idle);
    bench.rollout(nodes);
    println!("\n| many Nodes | | goal |\n|---|---|---|");
    for row in &bench.rows {
        println!("{row}");
    }
    for missed in &bench.missed {
        println!("missed: {missed}");
    }
    bench.missed.is_empty()
}
