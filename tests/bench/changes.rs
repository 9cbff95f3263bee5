//! What clients notice of changes: a connection that reads through the endpoint every 20 ms, and one that writes as often, while the inventory comes to ask for something else.
//!
//! `cargo test --test bench -- changes [settings] [members] [authorities]`. The table that README shows; every row is `hactl up` or `certs` on the same cluster.

use crate::support::{Api, ETCDCTL, Hactl, Writer, wait_for};
use crate::{EVERY, holder, on, under_reads};
use hactl::lab::{Scoped, Silent, Spec};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const HEAL: Duration = Duration::from_secs(180);
/// After so long nobody is surprised any more by who is gone.
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

    /// These hosts of the lab are in the inventory, as the lab wrote them.
    fn hosts(&self, all: &str, names: &[&str]) {
        let mut text = String::new();
        let mut kept = true;
        for line in all.lines() {
            match line.trim_start().strip_prefix("- name: ") {
                Some(name) => kept = names.contains(&name),
                // What follows a host's first line is indented further, and belongs to it.
                None => kept |= !line.starts_with("    "),
            }
            if kept {
                let _ = writeln!(text, "{line}");
            }
        }
        assert_eq!(text.matches("- name: ").count(), names.len(), "{text}");
        std::fs::write(self.lab.inventory(), text).expect("the inventory is writable");
    }

    /// All is well, or becomes so soon.
    fn well(&self, before: &str) {
        let begun = Instant::now();
        loop {
            let ran = self.hactl.run(&["status"]);
            if ran.code == 0 {
                break;
            }
            assert!(begun.elapsed() < HEAL, "all is to be well before {before}: {}", ran.all());
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Runs something while all is well and notes what a client saw of it.
    fn change(&mut self, what: &str, act: impl FnOnce(&Self)) {
        self.well(what);
        self.watched(what, act);
    }

    /// Runs something and notes what a client saw of it.
    fn watched(&mut self, what: &str, act: impl FnOnce(&Self)) {
        let writer = Writer::every(EVERY, &self.api(), &format!("w-{}", self.rows.len()));
        let (took, knocks) = under_reads(&self.api(), || act(self));
        let (written, refused, pause) = writer.account();
        let pause = pause.as_secs_f64();
        let took = took.as_secs_f64();
        let failed: Vec<_> = knocks.iter().filter(|k| k.2.is_some()).collect();
        for (at, after, why) in &failed {
            println!("        a read at {at:.1?} failed after {after:.1?}: {}", why.as_deref().unwrap_or_default());
        }
        let failed = failed.len();
        let longest = knocks.iter().map(|k| k.1).max().unwrap_or_default().as_secs_f64();
        let reads = format!("{} | {failed} | {longest:.2} s", knocks.len());
        self.rows.push(format!("| {what} | {took:.0} s | {reads} | {written} | {refused} | {pause:.2} s |"));
        println!("{}", self.rows[self.rows.len() - 1]);
    }

    /// Which of these hosts leads etcd.
    fn leader(&self, among: &[&'static str]) -> &'static str {
        let ask = "curl -s http://127.0.0.1:2384/metrics";
        let leads = |host: &&str| on(&self.lab, host, ask).contains("\netcd_server_is_leader 1");
        among.iter().copied().find(leads).expect("somebody leads")
    }
    fn not_the_holder(&self, among: &[&'static str]) -> &'static str {
        let holder = holder(&self.lab, among);
        among.iter().copied().find(|host| *host != holder).expect("there are several")
    }

    /// A host other than the one that has the endpoint's address gets an address of its own choice, and goes back to the one it had.
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
            b.hactl.up().ok().says(&format!("list member https://{old}:2380 as https://{new}:2380"));
        });
        write(self, &before);
        self.hactl.up().ok();
        take(self, "del");
    }

    /// Three become five, and three without the leader; one of those dies and another takes its place, and one is shut down in order.
    fn come_and_go(&mut self, all: &str) {
        self.change("three members become five", |b| {
            b.hosts(all, &FIVE);
            b.hactl.up().ok();
        });
        self.well("somebody leaves");
        let leader = self.leader(&FIVE);
        let other = FIVE.into_iter().find(|host| *host != leader).expect("there are five");
        let mut three = without(FIVE.to_vec(), &[leader, other]);
        self.change("five become three, the leader goes as well", |b| {
            b.hosts(all, &three);
            b.hactl.run(&["up", "--yes", "--prune", leader, "--prune", other]).ok();
        });
        let dead = self.not_the_holder(&three);
        self.lab.kill(dead).expect("the power can be cut");
        std::thread::sleep(NOTICED);
        three = without(three, &[dead]);
        three.push(other);
        self.hosts(all, &three);
        self.watched("a host has died, another takes its place", |b| {
            b.hactl.run(&["up", "--yes", "--prune", dead]).ok();
        });
        self.well("the shutdown");
        let holder = holder(&self.lab, &three);
        self.change("the host with the endpoint's address shuts down", |b| {
            on(&b.lab, holder, "sudo systemctl poweroff");
            wait_for("the host is off", HEAL, || {
                b.lab.states().expect("LXC tells").iter().any(|host| host.name == holder && !host.running)
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

/// The table, or the parts of it that are named.
pub fn main(named: &[&str]) {
    let lab = Scoped::up(&Spec::new("b-day2").hosts(5, 0, 0), &Silent).expect("the lab comes up");
    let hactl = Hactl::new(lab.inventory());
    let mut bench = Bench { lab, hactl, rows: Vec::new() };
    let all = std::fs::read_to_string(bench.lab.inventory()).expect("the inventory is readable");
    bench.hosts(&all, &["cp1", "cp2", "cp3"]);
    bench.hactl.up().ok();
    for part in if named.is_empty() { &["settings", "members", "authorities"] } else { named } {
        match *part {
            "settings" => settings(&mut bench, &all),
            "members" => members(&mut bench, &all),
            "authorities" => authorities(&mut bench),
            other => panic!("{other}: no part of these changes"),
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
    bench.change("a flag that none comes up with", |b| {
        b.hosts(&with("soon"), &three);
        b.hactl.up().exits(1);
    });
    bench.hosts(all, &three);
    bench.hactl.up().ok();
    bench.change("every certificate anew", |b| drop(b.hactl.run(&["certs", "renew", "--yes"]).ok()));
    let fill = format!(
        "head -c 1000000 /dev/urandom > /tmp/x; n=0; while [ $n -lt 400 ]; do {ETCDCTL} put /filler/$n < /tmp/x > /dev/null || exit 1; \
         n=$((n+1)); done; rm -f /tmp/x; {ETCDCTL} del --prefix /filler/ > /dev/null; \
         {ETCDCTL} compact $({ETCDCTL} get / -w fields | sed -n 's/^\"Revision\" : //p') > /dev/null; echo done"
    );
    assert_eq!(on(&bench.lab, "cp1", &fill).trim(), "done");
    bench.change("400 MB of etcd that hold nothing", |b| {
        b.hactl.up().ok().says("defragment its database");
    });
}

fn members(bench: &mut Bench, all: &str) {
    bench.change("a fourth host, in place of one that lives", |b| {
        b.hosts(all, &["cp1", "cp2", "cp4"]);
        b.hactl.run(&["up", "--yes", "--prune", "cp3"]).ok();
    });
    bench.well("the address changes");
    bench.another_address(["cp1", "cp2", "cp4"]);
    bench.come_and_go(all);
}

fn authorities(bench: &mut Bench) {
    for what in ["etcd-ca", "encryption"] {
        bench.change(&format!("`certs rotate {what}`, the old one gone"), |b| {
            let ran = b.hactl.run(&["certs", "rotate", what, "--yes"]).ok();
            if ran.all().contains("--finish") {
                b.hactl.run(&["certs", "rotate", what, "--finish", "--yes"]).ok();
            }
        });
    }
    // Who comes with the old one's certificate is a stranger at the end: the second half is watched with the new one's.
    bench.change("`certs rotate cluster-ca`, both trusted", |b| {
        b.hactl.run(&["certs", "rotate", "cluster-ca", "--yes"]).ok().says("--finish");
    });
    bench.change("`certs rotate cluster-ca --finish`", |b| {
        b.hactl.run(&["certs", "rotate", "cluster-ca", "--finish", "--yes"]).ok();
    });
}
