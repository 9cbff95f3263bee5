//! A host with a kernel of its own, where hosts of a lab share that of their machine: kernel modules, swap, a reboot,
//! and a loss of power that takes what was not synced. `cargo test --test vm`; needs root, qemu and a bundle.
//!
//! The virtual machine is emulated, so that no hardware virtualisation is needed. It is slow: timeouts are ten times as
//! long as those of a lab.

#![allow(clippy::print_stdout, reason = "a suite without a harness prints what it ran")]

mod machine;
#[path = "../support/scenarios.rs"]
mod scenarios;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "most of it is the lab's")]
mod support;

use machine::Machine;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Api, Ran, Writer, wait_for};

/// The modules that a Node needs, in the order of the alphabet.
const MODULES: &str = "br_netfilter\nnf_conntrack\noverlay\nvxlan";
/// Until the API serves, or until the cluster is healthy, without a person.
const HEAL: Duration = Duration::from_mins(20);
/// The most runs until hactl is done: each continues where a timeout, which is for real processors, ended another.
const RUNS: usize = 4;
/// Writes that are acknowledged before anything happens to the host.
const ENOUGH: usize = 50;
/// The size of the files that are synced or not.
const SIZE: &str = "1048576";

/// Runs hactl until it is done; a refusal is none of the failures that another run may overcome.
fn done(m: &Machine, words: &[&str]) -> Ran {
    let mut runs = 1;
    loop {
        let ran = m.hactl.run(words);
        println!("        hactl {}: exit {} after {:.0?}", words.join(" "), ran.code, ran.took);
        if ran.code == 0 {
            return ran;
        }
        assert!(runs < RUNS && ran.code != 3, "run {runs}: {}", ran.all());
        println!("{}", ran.err);
        runs += 1;
    }
}

/// The modules of a Node that are loaded.
fn loaded(m: &Machine) -> String {
    m.on("cd /sys/module && LC_ALL=C ls -d br_netfilter nf_conntrack overlay vxlan")
}

/// The swap areas in use.
fn swaps(m: &Machine) -> String {
    m.on("tail -n +2 /proc/swaps")
}

/// Checks the kernel of a Node: what is loaded, what is set, and what is off.
fn is_prepared(m: &Machine) {
    assert_eq!(loaded(m), MODULES);
    assert_eq!(swaps(m), "");
    assert_eq!(m.on("cat /proc/sys/net/ipv4/ip_forward"), "1");
}

fn from_bare(m: &Machine) {
    println!("        kernel {}", m.on("uname -r"));
    assert!(swaps(m).starts_with("/dev/vdb"), "swap is on: {}", swaps(m));
    assert_eq!(loaded(m), "", "no module of a Node is loaded");
    assert_eq!(m.on("cat /proc/sys/net/ipv4/ip_forward"), "0");
    done(m, &["up", "--yes"]);
    m.hactl.healthy(HEAL);
    done(m, &["up", "--yes"]).says("nothing to do");
    is_prepared(m);
    let table = m.on("grep -w swap /etc/fstab");
    assert_eq!(table, "# hactl: kubelet needs swap to be off\n#/dev/vdb none swap sw 0 0");
    assert_eq!(m.on("grep '^[a-z]' /etc/modules-load.d/hactl.conf | LC_ALL=C sort"), MODULES);
}

/// How many writes of a writer the API has.
fn count(api: &Api, by: &str) -> usize {
    let list = api.get(&format!("/api/v1/namespaces/default/configmaps?labelSelector=by%3D{by}"));
    list.ok().and_then(|list| Some(list["items"].as_array()?.len())).unwrap_or(0)
}

/// A writer without pauses, of which the API has some writes.
fn writes(api: &Api, by: &str) -> Writer {
    let writer = Writer::start(api, by);
    wait_for("writes are acknowledged", HEAL, || count(api, by) >= ENOUGH);
    writer
}

/// Waits until the API serves, checks that no write is lost, and waits until the cluster is healthy.
fn serves_again(m: &Machine, api: &Api, writer: Writer, since: Instant) {
    wait_for("the API serves", HEAL, || api.get("/api/v1/namespaces/default").is_ok());
    println!("        the API serves after {:.0?}", since.elapsed());
    let (written, failed, longest) = writer.account();
    println!("        {written} writes acknowledged, none lost; {failed} failed; the longest pause: {longest:.0?}");
    m.hactl.healthy(HEAL);
    println!("        healthy after {:.0?}", since.elapsed());
}

fn rebooted(m: &Machine) {
    let (api, boot) = (m.api(), m.boot());
    assert!(!boot.is_empty(), "it answers");
    let writer = writes(&api, "w-reboot");
    let since = Instant::now();
    m.on("sudo systemctl reboot");
    m.boots_after(&boot);
    serves_again(m, &api, writer, since);
    is_prepared(m);
    let inserted = m.on("sudo journalctl -b -u systemd-modules-load -o cat");
    assert!(inserted.contains("Inserted module 'br_netfilter'"), "{inserted}");
    done(m, &["up", "--yes"]).says("nothing to do");
}

fn power_lost(m: &Machine) {
    let (api, boot) = (m.api(), m.boot());
    let dd = "dd if=/dev/urandom bs=1M count=1 status=none";
    m.on(&format!("{dd} of=synced conv=fsync"));
    let writer = writes(&api, "w-power");
    let mut unsynced = m.ssh(&format!("{dd} of=unsynced && stat -c %s unsynced && exec sleep 60"));
    let mut unsynced = unsynced.stdout(Stdio::piped()).spawn().expect("ssh can be started");
    let mut size = String::new();
    BufReader::new(unsynced.stdout.take().expect("piped")).read_line(&mut size).expect("readable");
    assert_eq!(size.trim_end(), SIZE, "the file is complete");
    m.cut();
    let since = Instant::now();
    unsynced.kill().expect("ssh can be killed");
    unsynced.wait().expect("its end can be awaited");
    m.start();
    assert_ne!(m.boot(), boot);
    assert_eq!(m.on("stat -c %s synced"), SIZE);
    let left = m.on("stat -c %s unsynced 2>/dev/null || echo no file");
    println!("        of a file that was not synced, {left} is left");
    assert!(["0", "no file"].contains(&left.as_str()), "what was not synced is lost: {left}");
    serves_again(m, &api, writer, since);
    is_prepared(m);
    done(m, &["up", "--yes"]).says("nothing to do");
}

fn bare_again(m: &Machine) {
    done(m, &["down", "--wipe", "--yes"]);
    let files = "/etc/kubernetes /etc/etcd /etc/containerd /var/lib/etcd/member /var/lib/kubelet";
    let settings = "/etc/modules-load.d/hactl.conf /etc/sysctl.d/zz-hactl.conf";
    let processes = "pgrep -l 'etcd|kube|containerd'";
    let left = m.on(&format!("sudo ls -d {files} {settings} 2>/dev/null; {processes}; echo looked"));
    assert_eq!(left, "looked");
    done(m, &["down", "--wipe", "--yes"]).says("nothing to do");
}

fn main() {
    let scenarios: &[scenarios::Scenario<Machine>] = &[
        ("`up` makes a healthy cluster of a host, loads kernel modules and turns swap off", true, from_bare),
        (
            "after a reboot the cluster is healthy by itself, modules are loaded, swap is off, and no write is lost",
            true,
            rebooted,
        ),
        (
            "a loss of power takes a file that was not synced and no acknowledged write, and the cluster heals itself",
            true,
            power_lost,
        ),
        ("`down --wipe` leaves no process and none of these files of the cluster", true, bare_again),
    ];
    scenarios::run("vm", Machine::create(), scenarios);
}
