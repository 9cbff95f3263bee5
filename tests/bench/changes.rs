//! What clients notice of changes: one client reads through the endpoint every 20 ms with a new connection, another one
//! writes as often, while the inventory changes.
//!
//! `cargo test --test bench -- changes [settings] [members] [rotations]`. Prints the table that the documentation
//! shows; each row is one change with `hactl up` or `certs` on the same cluster.

use crate::support::{Api, ETCDCTL, Hactl, Writer, wait_for};
use crate::{EVERY, holder, on, under_reads};
use hactl::lab::{Scoped, Silent, Spec};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const HEAL: Duration = Duration::from_secs(180);
/// How long the cluster may take to notice that a host is gone.
const NOTICED: Duration = Duration::from_secs(4);
const FIVE: [&str; 5] = ["cp1", "cp2", "cp3", "cp4", "cp5"];

struct Bench {
    lab: Scoped,
    hactl: Hactl,
    rows: Vec<String>,
}

impl Bench {
    fn api(&self) -> Api {
        Api::new(&self.hactl.state(self.lab.name()).join("kubeconfig"), Duration::from_secs(10))
    }

    /// Writes the inventory with these hosts, as the lab wrote them.
    fn hosts(&self, all: &str, names: &[&str]) {
        let mut text = String::new();
        let mut kept = true;
        for line in all.lines() {
            match line.trim_start().strip_prefix("- name: ") {
                Some(name) => kept = names.contains(&name),
                // The lines of a host after its first are indented further, and belong to it.
                None => kept |= !line.starts_with("    "),
            }
            if kept {
                let _ = writeln!(text, "{line}");
            }
        }
        assert_eq!(text.matches("- name: ").count(), names.len(), "{text}");
        std::fs::write(self.lab.inventory(), text).expect("the inventory is writable");
    }

    /// Waits until `status` passes.
    fn well(&self, before: &str) {
        let begun = Instant::now();
        loop {
            let ran = self.hactl.run(&["status"]);
            if ran.code == 0 {
                break;
            }
            assert!(begun.elapsed() < HEAL, "status must pass before {before}: {}", ran.all());
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Runs a change once `status` passes, and notes what clients saw of it.
    fn change(&mut self, what: &str, act: impl FnOnce(&Self)) {
        self.well(what);
        self.watched(what, act);
    }

    /// Runs a change and notes what clients saw of it.
    fn watched(&mut self, what: &str, act: impl FnOnce(&Self)) {
        let writer = Writer::every(EVERY, &self.api(), &format!("w-{}", self.rows.len()));
        let (took, reads) = under_reads(&self.api(), || act(self));
        let (written, refused, pause) = writer.account();
        let pause = pause.as_secs_f64();
        let took = took.as_secs_f64();
        let failed: Vec<_> = reads.iter().filter(|k| k.2.is_some()).collect();
        for (at, after, why) in &failed {
            println!("        a read at {at:.1?} failed after {after:.1?}: {}", why.as_deref().unwrap_or_default());
        }
        let failed = failed.len();
        let longest = reads.iter().map(|k| k.1).max().unwrap_or_default().as_secs_f64();
        let counts = format!("{} | {failed} | {longest:.2} s", reads.len());
        self.rows.push(format!("| {what} | {took:.0} s | {counts} | {written} | {refused} | {pause:.2} s |"));
        println!("{}", self.rows[self.rows.len() - 1]);
    }

    /// The one of these hosts whose member leads.
    fn leader(&self, among: &[&'static str]) -> &'static str {
        let ask = "curl -s http://127.0.0.1:2384/metrics";
        let leads = |host: &&str| on(&self.lab, host, ask).contains("\netcd_server_is_leader 1");
        among.iter().copied().find(leads).expect("a member leads")
    }
    fn not_the_holder(&self, among: &[&'static str]) -> &'static str {
        let holder = holder(&self.lab, among);
        among.iter().copied().find(|host| *host != holder).expect("there are several")
    }

    /// A host that does not hold the VIP gets another address, and then its previous one again.
    fn another_address(&mut self, three: [&'static str; 3]) {
        let host = self.not_the_holder(&three);
        let old = self.lab.address(host).expect("the lab has it");
        let new = format!("{}.77", self.lab.network().rsplit_once('.').expect("an address").0);
        let take = |b: &Self, verb: &str| {
            let said = on(&b.lab, host, &format!("sudo ip addr {verb} {new}/24 dev eth0 && echo done"));
            assert_eq!(said.trim(), "done");
        };
        take(self, "add");
        let before = std::fs::read_to_string(self.lab.inventory()).expect("the inventory is readable");
        let (from, to) = (format!("    address: {old}\n"), format!("    address: {new}\n    ssh: {{host: {old}}}\n"));
        assert!(before.contains(&from), "{before}");
        let write = |b: &Self, text: &str| std::fs::write(b.lab.inventory(), text).expect("the inventory is writable");
        write(self, &before.replace(&from, &to));
        self.watched("a host gets another address", |b| {
            b.hactl.up().ok().says("change the peer URL of member");
        });
        write(self, &before);
        self.hactl.up().ok();
        take(self, "del");
    }

    /// Three members become five, and three without the leader. Then one of them dies and another host replaces it, and
    /// one is shut down in order.
    fn come_and_go(&mut self, all: &str) {
        self.change("three members become five", |b| {
            b.hosts(all, &FIVE);
            b.hactl.up().ok();
        });
        self.well("members leave");
        let leader = self.leader(&FIVE);
        let other = FIVE.into_iter().find(|host| *host != leader).expect("there are five");
        let mut three = without(FIVE.to_vec(), &[leader, other]);
        self.change("five become three, the leader leaves as well", |b| {
            b.hosts(all, &three);
            b.hactl.run(&["up", "--yes", "--prune", leader, "--prune", other]).ok();
        });
        let dead = self.not_the_holder(&three);
        self.lab.kill(dead).expect("the power can be cut");
        std::thread::sleep(NOTICED);
        three = without(three, &[dead]);
        three.push(other);
        self.hosts(all, &three);
        self.watched("a new host replaces a dead one", |b| {
            b.hactl.run(&["up", "--yes", "--prune", dead]).ok();
        });
        self.well("the shutdown");
        let holder = holder(&self.lab, &three);
        self.change("the VIP holder shuts down", |b| {
            on(&b.lab, holder, "sudo systemctl poweroff");
            wait_for("the host is off", HEAL, || {
                b.lab.states().expect("LXC lists its hosts").iter().any(|host| host.name == holder && !host.running)
            });
            std::thread::sleep(NOTICED);
        });
        self.lab.start(holder, HEAL).expect("it boots");
    }
}

fn without(mut hosts: Vec<&'static str>, those: &[&str]) -> Vec<&'static str> {
    hosts.retain(|host| !those.contains(host));
    hosts
}

/// Prints the table, or the named parts of it.
pub fn main(named: &[&str]) {
    let lab = Scoped::up(&Spec::new("b-day2").hosts(5, 0, 0), &Silent).expect("the lab comes up");
    let hactl = Hactl::new(lab.inventory());
    let mut bench = Bench { lab, hactl, rows: Vec::new() };
    let all = std::fs::read_to_string(bench.lab.inventory()).expect("the inventory is readable");
    bench.hosts(&all, &["cp1", "cp2", "cp3"]);
    bench.hactl.up().ok();
    for part in if named.is_empty() { &["settings", "members", "rotations"] } else { named } {
        match *part {
            "settings" => settings(&mut bench, &all),
            "members" => members(&mut bench, &all),
            "rotations" => rotations(&mut bench),
            other => panic!("{other}: there is no such part of the changes"),
        }
    }
    println!(
        "\n| change | took | reads | failed | the longest | writes | failed | the longest |\n|---|---|---|---|---|---|---|---|"
    );
    for row in &bench.rows {
        println!("{row}");
    }
}

fn settings(bench: &mut Bench, all: &str) {
    let with =
        |flag: &str| all.replace("extra: {", &format!("extra: {{kube-apiserver: {{args: {{event-ttl: {flag}}}}}, "));
    let three = ["cp1", "cp2", "cp3"];
    bench.change("a flag of the API servers", |b| {
        b.hosts(&with("2h"), &three);
        b.hactl.up().ok();
    });
    bench.change("an invalid flag of the API servers", |b| {
        b.hosts(&with("soon"), &three);
        b.hactl.up().exits(1);
    });
    bench.hosts(all, &three);
    bench.hactl.up().ok();
    bench.change("every certificate renewed", |b| drop(b.hactl.run(&["certs", "renew", "--yes"]).ok()));
    let fill = format!(
        "head -c 1000000 /dev/urandom > /tmp/x; n=0; while [ $n -lt 400 ]; do {ETCDCTL} put /filler/$n < /tmp/x > /dev/null || exit 1; \
         n=$((n+1)); done; rm -f /tmp/x; {ETCDCTL} del --prefix /filler/ > /dev/null; \
         {ETCDCTL} compact $({ETCDCTL} get / -w fields | sed -n 's/^\"Revision\" : //p') > /dev/null; echo done"
    );
    assert_eq!(on(&bench.lab, "cp1", &fill).trim(), "done");
    bench.change("etcd defragmented: 400 MB without data", |b| {
        b.hactl.up().ok().says("defragment its database");
    });
}

fn members(bench: &mut Bench, all: &str) {
    bench.change("a fourth host replaces one that runs", |b| {
        b.hosts(all, &["cp1", "cp2", "cp4"]);
        b.hactl.run(&["up", "--yes", "--prune", "cp3"]).ok();
    });
    bench.well("the address changes");
    bench.another_address(["cp1", "cp2", "cp4"]);
    bench.come_and_go(all);
}

fn rotations(bench: &mut Bench) {
    for what in ["etcd-ca", "encryption"] {
        bench.change(&format!("`certs rotate {what}`, until the old one is removed"), |b| {
            let ran = b.hactl.run(&["certs", "rotate", what, "--yes"]).ok();
            if ran.all().contains("--finish") {
                b.hactl.run(&["certs", "rotate", what, "--finish", "--yes"]).ok();
            }
        });
    }
    // The old CA's certificate is refused at the end, so the second half is watched with a certificate of the new CA.
    bench.change("`certs rotate cluster-ca`, until both are trusted", |b| {
        b.hactl.run(&["certs", "rotate", "cluster-ca", "--yes"]).ok().says("--finish");
    });
    bench.change("`certs rotate cluster-ca --finish`", |b| {
        b.hactl.run(&["certs", "rotate", "cluster-ca", "--finish", "--yes"]).ok();
    });
}
