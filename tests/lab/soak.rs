//! A soak: for hours, one random fault after the other under load, on a cluster that nobody touches.
//!
//! In: how long, how many etcd hosts, and a seed. Out: a report as text and as an SVG timeline. It fails if an
//! acknowledged write is lost, a guard repairs what had no fault, a person would have been needed, or a goal is missed.

use super::guard::{CLEARED, cost, faults, guarded};
use super::rejoin::member;
use super::repairs::history;
use super::support::{Api, ETCDCTL, Hactl, Probe, Writer, wait_for};
use super::timeline::{Bar, Timeline};
use super::{World, in_one_line};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// What happens to a host.
#[derive(Clone, Copy)]
struct Kind {
    /// In words.
    name: &'static str,
    /// How it is done.
    how: How,
    /// The faults that its guard may repair then.
    repaired: &'static [&'static str],
    /// From the fault until everything on the host serves again, with detection.
    goal_s: u64,
}

#[derive(Clone, Copy)]
enum How {
    /// A signal for the processes of a unit; for containerd, whose shims have the containers, for its own.
    Signal(&'static str, &'static str),
    /// A command on the host.
    Command(&'static str),
    /// A person removes its etcd member, on another host.
    Removal,
    /// It has no power for a while.
    Off,
    /// Its cable is unplugged for a while.
    Cut,
}

/// How long a host has no power, or no cable.
const GONE: Duration = Duration::from_secs(30);
const DAMAGE: &str = "systemctl stop etcd; \
    dd if=/dev/zero of=/var/lib/etcd/member/snap/db bs=4096 seek=2 count=400 conv=notrunc 2>/dev/null; \
    systemctl start --no-block etcd";

const ETCD: &[&str] = &["EtcdStopped", "EtcdFrozen"];
const LOST: &[&str] = &["EtcdStopped", "EtcdFrozen", "EtcdDataLost", "EtcdDamaged", "EtcdNotVoting"];
const VIP: &[&str] = &["KeepalivedFrozen", "VipMissing", "VipDuplicate"];
/// A host that boots, or that saw no other one, may look broken for a while.
const BOOT: &[&str] = &["EtcdFrozen", "ApiFrozen", "KubeletFrozen", "RuntimeFrozen", "VipMissing"];

const fn kind(name: &'static str, how: How, repaired: &'static [&'static str], goal_s: u64) -> Kind {
    Kind { name, how, repaired, goal_s }
}

/// The faults, with the goals of the design and, where it has none, what an operator would expect.
const KINDS: &[Kind] = &[
    kind("etcd frozen", How::Signal("STOP", "etcd"), ETCD, 30),
    kind("etcd killed", How::Signal("KILL", "etcd"), ETCD, 10),
    kind("etcd data deleted", How::Command("rm -rf /var/lib/etcd/member"), LOST, 30),
    kind("etcd data damaged", How::Command(DAMAGE), LOST, 30),
    kind("etcd member removed", How::Removal, LOST, 65),
    kind("API server frozen", How::Command("kill -STOP $(pgrep -x kube-apiserver)"), &["ApiFrozen"], 45),
    kind("API server killed", How::Command("kill -KILL $(pgrep -x kube-apiserver)"), &["ApiFrozen"], 45),
    kind("kubelet frozen", How::Signal("STOP", "kubelet"), &["KubeletFrozen"], 60),
    kind("kubelet killed", How::Signal("KILL", "kubelet"), &["KubeletFrozen"], 10),
    kind("containerd frozen", How::Signal("STOP", "containerd"), &["RuntimeFrozen"], 60),
    kind("containerd killed", How::Signal("KILL", "containerd"), &["RuntimeFrozen"], 10),
    kind("haproxy frozen", How::Signal("STOP", "haproxy"), &["BalancerFrozen"], 10),
    kind("haproxy killed", How::Signal("KILL", "haproxy"), &["BalancerFrozen"], 10),
    kind("etcd balancer frozen", How::Signal("STOP", "hactl-etcd-balancer"), &["EtcdBalancerFrozen"], 10),
    kind("keepalived frozen", How::Signal("STOP", "keepalived"), VIP, 10),
    kind("keepalived killed", How::Signal("KILL", "keepalived"), VIP, 10),
    kind("guard killed", How::Signal("KILL", "hactl-guard"), &[], 10),
    kind("no power for 30 s", How::Off, BOOT, 120),
    kind("no network for 30 s", How::Cut, BOOT, 90),
];

/// Whether everything on a host serves.
const SERVES: &str = "! ps -o stat= -C etcd,kube-apiserver,kubelet,containerd,haproxy,keepalived,hactl | grep -q ^T \
    && sudo test -d /var/lib/etcd/member && curl -sf -m 1 -o /dev/null http://127.0.0.1:2384/readyz \
    && curl -sk -m 1 -o /dev/null --fail https://$(hostname -I | cut -d' ' -f1):6443/livez \
    && curl -sf -m 1 -o /dev/null http://127.0.0.1:10248/healthz && sudo timeout 1 ctr version >/dev/null 2>&1 \
    && curl -s -m 1 -o /dev/null http://127.0.0.1:6480/usable \
    && systemctl is-active --quiet keepalived && systemctl is-active --quiet hactl-guard && echo serves || true";

fn serves(w: &World, host: &str) -> bool {
    w.on(host, SERVES).contains("serves")
}

/// Between the end of one fault and the next one, at least.
const CALM: Duration = Duration::from_secs(20);
/// What a guard may use of a processor while faults happen and are repaired, permille.
const COST: u64 = 20;
/// What `healing:` says in the inventory of this cluster.
const HEALING: &str = "healing: {mode: on, after: {notVoting: 20s}}";

/// Numbers from a seed (SplitMix64): a soak can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % most as u64).expect("smaller than a usize")
    }

    /// Each of the kinds once, in any order; as often as needed.
    fn shuffled(&mut self) -> Vec<Kind> {
        let mut left = KINDS.to_vec();
        let mut all = Vec::new();
        while !left.is_empty() {
            all.push(left.swap_remove(self.below(left.len())));
        }
        all
    }
}

/// One fault, and what became of it.
struct Round {
    kind: Kind,
    host: String,
    /// Since the beginning of the soak.
    at: Duration,
    /// From the fault until everything on the host serves.
    took: Duration,
    repairs: Vec<String>,
    /// What was not as it should be.
    wrong: Vec<String>,
    written: usize,
    paused: Duration,
    reads: Vec<Probe>,
}

impl Round {
    fn failed_reads(&self) -> usize {
        self.reads.iter().filter(|(.., failed)| failed.is_some()).count()
    }

    fn line(&self) -> String {
        let longest = self.reads.iter().map(|(_, took, _)| *took).max().unwrap_or_default();
        let mut line = format!(
            "{:>7} s  {:<4} {:<22} {:>6.1} s of {:>3} s  {:<14}  {} writes, longest pause {:.1} s; {} reads, {} failed, longest {:.1} s",
            self.at.as_secs(),
            self.host,
            self.kind.name,
            self.took.as_secs_f32(),
            self.kind.goal_s,
            self.repairs.join(" "),
            self.written,
            self.paused.as_secs_f32(),
            self.reads.len(),
            self.failed_reads(),
            longest.as_secs_f32()
        );
        if let Some(why) = self.reads.iter().find_map(|(.., failed)| failed.as_ref()) {
            let _ = write!(line, "\n           the first failed read: {why}");
        }
        for wrong in &self.wrong {
            let _ = write!(line, "\n           WRONG: {wrong}");
        }
        line
    }
}

fn strike(w: &World, host: &str, other: &str, how: How) {
    match how {
        How::Signal(signal, unit) => {
            let whom = if unit == "containerd" { "--kill-who=main" } else { "--kill-who=all" };
            w.on(host, &format!("sudo systemctl kill {whom} --signal=SIG{signal} {unit}"));
        }
        How::Command(command) => {
            w.on(host, &format!("sudo sh -c '{command}'"));
        }
        How::Removal => {
            let id = member(w, host);
            w.on(other, &format!("{ETCDCTL} member remove {id}"));
        }
        How::Off => {
            w.lab.kill(host).expect("the power can be cut");
            std::thread::sleep(GONE);
            w.lab.start(host, Duration::from_secs(60)).expect("the host boots");
        }
        How::Cut => {
            w.lab.cut(host).expect("the cable can be unplugged");
            std::thread::sleep(GONE);
            w.lab.mend(host).expect("the cable can be plugged in");
        }
    }
}

/// When the soak gives a host up: so many times the goal.
const PATIENCE: u32 = 4;

/// One fault; `known` are the repairs so far, so that one between two rounds counts for the second.
fn round(
    w: &World,
    hactl: &Hactl,
    (begun, known): (Instant, &mut Vec<[String; 3]>),
    (host, other): (&str, &str),
    kind: Kind,
) -> Round {
    let of_member = member(w, host);
    let (reading, writer) =
        (w.api().reads(Duration::from_millis(50)), Writer::every(Duration::from_millis(100), &w.api(), "soak"));
    let first_read = begun.elapsed();
    std::thread::sleep(Duration::from_secs(2));

    let (at, since) = (begun.elapsed(), Instant::now());
    strike(w, host, other, kind.how);
    let goal = Duration::from_secs(kind.goal_s);
    let mut wrong = Vec::new();
    let again = || {
        let now = member(w, host);
        let other = !now.is_empty() && now != of_member;
        (other || !matches!(kind.how, How::Removal)) && serves(w, host)
    };
    while !again() {
        if since.elapsed() > goal * PATIENCE {
            wrong.push(format!("not over: {}", in_one_line(&hactl.run(&["guard", "explain", host]))));
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let took = since.elapsed();
    if took > goal {
        wrong.push("the goal is missed".to_owned());
    }
    let settled = Instant::now();
    while !(faults(hactl).is_empty() && hactl.run(&["status"]).code == 0) {
        if settled.elapsed() > 2 * CLEARED {
            wrong.push(format!("a person is needed: {}", in_one_line(&hactl.run(&["status"]))));
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    let reads = reading.end().all().into_iter().map(|(at, took, failed)| (first_read + at, took, failed)).collect();
    let (written, paused) = writer.end();
    let patient = Api::new(&hactl.state(w.lab.name()).join("kubeconfig"), Duration::from_secs(120));
    // When the VIP moves once more, the connection of this request ends.
    wait_for("the objects of the round are deleted", CLEARED, || {
        patient.delete("/api/v1/namespaces/default/configmaps?labelSelector=by%3Dsoak").is_ok()
    });
    let mut repairs = Vec::new();
    for [at, what, outcome] in unknown(hactl, known) {
        if at != host || !kind.repaired.contains(&what.as_str()) || outcome != "helped" {
            wrong.push(format!("the guard of {at} repaired {what} ({outcome})"));
        }
        repairs.push(what);
    }
    Round { kind, host: host.to_owned(), at, took, repairs, wrong, written, paused, reads }
}

/// The repairs that are not known yet; they are from now on.
fn unknown(hactl: &Hactl, known: &mut Vec<[String; 3]>) -> Vec<[String; 3]> {
    let all = history(hactl);
    let mut before = std::mem::replace(known, all.clone());
    let is_new = |repair: &[String; 3]| match before.iter().position(|known| known == repair) {
        Some(place) => {
            before.swap_remove(place);
            false
        }
        None => true,
    };
    all.into_iter().filter(is_new).collect()
}

/// For each kind: how often, the median and the longest time, and the goal.
fn summary(rounds: &[Round]) -> String {
    let mut of: BTreeMap<&str, Vec<&Round>> = BTreeMap::new();
    for round in rounds {
        of.entry(round.kind.name).or_default().push(round);
    }
    let mut text = String::from("fault                   times  median  longest    goal\n");
    for (name, mut all) in of {
        all.sort_by_key(|round| round.took);
        let (median, longest) = (all[all.len() / 2].took, all[all.len() - 1].took);
        let _ = writeln!(
            text,
            "{name:<22} {:>6} {:>5.1} s {:>6.1} s {:>5} s",
            all.len(),
            median.as_secs_f32(),
            longest.as_secs_f32(),
            all[0].kind.goal_s
        );
    }
    let sum = |of: fn(&Round) -> usize| rounds.iter().map(of).sum::<usize>();
    let paused = rounds.iter().map(|round| round.paused).max().unwrap_or_default();
    let _ = writeln!(
        text,
        "\n{} faults, {} repairs, {} things wrong\n{} writes acknowledged, none lost, longest pause {:.1} s; {} reads, {} failed",
        rounds.len(),
        sum(|round| round.repairs.len()),
        sum(|round| round.wrong.len()),
        sum(|round| round.written),
        paused.as_secs_f32(),
        sum(|round| round.reads.len()),
        sum(Round::failed_reads)
    );
    text
}

/// Writes what is known so far: a soak may be stopped at any time.
fn write_report(rounds: &[Round], hosts: &[String], seed: u64, ended: Duration) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let lines: Vec<String> = rounds.iter().map(Round::line).collect();
    let title = format!("{} etcd hosts, {} min, seed {seed}", hosts.len(), ended.as_secs() / 60);
    let text = format!("{title}\n\n{}\n\n{}", lines.join("\n"), summary(rounds));
    std::fs::write(folder.join("soak.txt"), text).expect("the report can be written");
    let bars = rounds.iter().map(|round| Bar {
        lane: (0..).zip(hosts).find(|(_, host)| **host == round.host).expect("one of the hosts").0,
        from: round.at,
        to: round.at + round.took,
        what: round.kind.name,
        repaired: !round.repairs.is_empty(),
        late: !round.wrong.is_empty(),
    });
    let reads = rounds.iter().flat_map(|round| &round.reads);
    let drawn = Timeline { title, lanes: hosts, bars: bars.collect(), reads: reads.collect(), ended }.svg();
    std::fs::write(folder.join("soak.svg"), drawn).expect("the timeline can be written");
}

/// A setting of a long run, or what it is by default.
pub fn setting<T: std::str::FromStr>(settings: &[String], at: usize, or: T) -> T {
    let read = |text: &String| text.parse().unwrap_or_else(|_| panic!("{text} is no number that is wanted"));
    settings.get(at).map_or(or, read)
}

/// Runs for so many hours on so many etcd hosts (3 or 5), with numbers from a seed.
pub fn soak(settings: &[String]) {
    let hours: f64 = setting(settings, 0, 0.5);
    let count: usize = setting(settings, 1, 3);
    let seed: u64 = setting(settings, 2, 1);
    let world = World::bare("t-soak", (count, 1));
    let hactl = guarded(&world, HEALING);
    let hosts: Vec<String> = (1..=count).map(|n| format!("cp{n}")).collect();
    let mut dice = Dice(seed);
    let (begun, length) = (Instant::now(), Duration::from_secs_f64(hours * 3600.0));
    let mut rounds = Vec::new();
    let mut ahead = Vec::new();
    let mut known = history(&hactl);
    while begun.elapsed() < length {
        let kind = ahead.pop().unwrap_or_else(|| {
            ahead = dice.shuffled();
            ahead.pop().expect("there are kinds")
        });
        let target = dice.below(count);
        let other = (target + 1) % count;
        rounds.push(round(&world, &hactl, (begun, &mut known), (&hosts[target], &hosts[other]), kind));
        println!("{}", rounds[rounds.len() - 1].line());
        write_report(&rounds, &hosts, seed, begun.elapsed());
        std::thread::sleep(CALM);
    }
    println!("\n{}", summary(&rounds));
    println!("the report: {}/soak.txt and soak.svg", env!("CARGO_TARGET_TMPDIR"));
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    cost(&world, &names, COST);
    assert_eq!(unknown(&hactl, &mut known), Vec::<[String; 3]>::new(), "no repair without a fault");
    assert!(rounds.iter().all(|round| round.wrong.is_empty()), "not everything was as it should be");
    hactl.up().ok().says("nothing to do");
}
