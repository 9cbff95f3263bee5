//! An upgrade to the next minor version of Kubernetes on three control-plane hosts: `hactl up` beside `kubeadm
//! upgrade`.
//!
//! `cargo test --test bench -- upgrade`. With the same binaries and images, each on fresh hosts, while a client reads
//! through the endpoint every 20 ms. The time counts from before anything is sent to the hosts until all is Ready; it
//! includes hactl's own checks and the snapshot that it takes first.

use crate::support::{Api, Hactl, Probe, wait_for};
use crate::{HOSTS, fresh, kubeadm, on, under_reads};
use hactl::lab::Scoped;
use std::path::Path;
use std::time::Duration;

/// The old and the new version, and the folders of their components.
const OLD: (&str, &str) = ("1.35.4", "dist-1.35");
const NEW: (&str, &str) = ("1.36.3", "dist-1.36");
const HEAL: Duration = Duration::from_secs(180);

/// What one tool took, and what a client noticed of it.
struct Row {
    took: Duration,
    reads: Vec<Probe>,
}

impl Row {
    /// Runs something while a client reads.
    fn of(api: &Api, act: impl FnOnce()) -> Self {
        let (took, reads) = under_reads(api, act);
        Self { took, reads }
    }

    fn per_host(&self) -> f64 {
        self.took.as_secs_f64() / f64::from(u8::try_from(HOSTS.len()).expect("a few hosts"))
    }

    fn failed(&self) -> usize {
        self.reads.iter().filter(|read| read.2.is_some()).count()
    }

    fn longest(&self) -> f64 {
        self.reads.iter().map(|read| read.1).max().unwrap_or_default().as_secs_f64()
    }

    /// The longest time in which every read failed.
    fn away(&self) -> f64 {
        let mut longest = Duration::ZERO;
        let mut since = None;
        for (at, _, failure) in &self.reads {
            match (failure, since) {
                (Some(_), None) => since = Some(*at),
                (Some(_), Some(begun)) => longest = longest.max(at.saturating_sub(begun)),
                (None, _) => since = None,
            }
        }
        longest.as_secs_f64()
    }
}

fn kubelets(lab: &Scoped, config: &str) -> String {
    on(
        lab,
        "cp1",
        &format!(
            "sudo kubectl --kubeconfig {config} get nodes -o jsonpath={{.items[*].status.nodeInfo.kubeletVersion}}"
        ),
    )
}

fn ours() -> Row {
    let lab = fresh("b-upgrade");
    let text = std::fs::read_to_string(lab.inventory()).expect("the inventory is readable");
    let of = |version: &str| {
        let text = text.replace(hactl::inventory::DEFAULT_KUBERNETES, version);
        std::fs::write(lab.inventory(), text).expect("the inventory is writable");
    };
    of(OLD.0);
    let hactl = Hactl::new(lab.inventory());
    hactl.up().ok();
    wait_for("status passes", HEAL, || hactl.run(&["status"]).code == 0);
    of(NEW.0);
    let api = Api::new(&hactl.state(lab.name()).join("kubeconfig"), Duration::from_secs(10));
    let row = Row::of(&api, || drop(hactl.up().ok()));
    let nodes = ["get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"];
    assert_eq!(hactl.kubectl(&nodes).ok().out.trim(), [format!("v{}", NEW.0).as_str(); 3].join(" "));
    row
}

fn theirs(dist: &Path) -> Row {
    let lab = fresh("b-upgraded");
    kubeadm(&lab, "up", &dist.with_file_name(OLD.1));
    let config = lab.dir().join("admin.conf");
    std::fs::write(&config, on(&lab, "cp1", "sudo cat /etc/kubernetes/admin.conf")).expect("writable");
    let api = Api::new(&config, Duration::from_secs(10));
    let row = Row::of(&api, || println!("kubeadm: {}", kubeadm(&lab, "upgrade", &dist.with_file_name(NEW.1))));
    assert_eq!(kubelets(&lab, "/etc/kubernetes/admin.conf").trim(), [format!("v{}", NEW.0).as_str(); 3].join(" "));
    row
}

/// Prints the table.
pub fn main(dist: &Path) {
    let (ours, theirs) = (ours(), theirs(dist));
    println!("\n| {} becomes {} on three hosts | kubeadm upgrade | hactl up |\n|---|---|---|", OLD.0, NEW.0);
    println!(
        "| per host, of {:.0} s and {:.0} s | {:.1} s | {:.1} s ({:.2}) |",
        theirs.took.as_secs_f64(),
        ours.took.as_secs_f64(),
        theirs.per_host(),
        ours.per_host(),
        ours.per_host() / theirs.per_host()
    );
    println!(
        "| connections that failed meanwhile | {} of {}, {:.2} s on end | {} of {} |",
        theirs.failed(),
        theirs.reads.len(),
        theirs.away(),
        ours.failed(),
        ours.reads.len()
    );
    println!("| the longest | {:.2} s | {:.2} s |", theirs.longest(), ours.longest());
}
