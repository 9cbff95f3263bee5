//! Stalls of the machine that all hosts of a lab share. Where a test bounds a time by a second, a host without a
//! processor or a disk that stalls must be distinguished from a slow cluster.
//!
//! In: the kernel's CPU pressure of each host's cgroup. Out: the worst second of each host, and every small write with
//! fsync that took long.

use super::Stop;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two samples.
const REST: Duration = Duration::from_millis(100);
/// Samples in a second.
const SAMPLES: usize = 10;
/// Shorter stalls are not reported.
const WITHOUT: Duration = Duration::from_millis(700);
const STILL: Duration = Duration::from_millis(200);
/// Where cgroup v2 is mounted, beside v1 or alone.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// A stall of the machine, not of a cluster.
pub enum Stall {
    /// All processes of a host waited for a processor for this part of one second.
    Host { name: String, without: Duration, until: Duration },
    /// A small write and its fsync took this long.
    Disk { took: Duration, until: Duration },
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { name, without, until } => {
                write!(f, "{name} got no processor for {without:.1?} of the second before {until:.1?}")
            }
            Self::Disk { took, until } => write!(f, "a small write took {took:.1?} at {until:.1?}"),
        }
    }
}

/// Watches the machine until it is ended or dropped.
pub struct Watch {
    stop: Stop,
    hosts: JoinHandle<(Vec<Stall>, Stalled)>,
    disk: JoinHandle<Vec<Stall>>,
}

impl Watch {
    pub fn begin() -> Self {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file can be made");
        let (of_hosts, of_disk) = (Arc::clone(&stop), Arc::clone(&stop));
        let hosts = std::thread::spawn(move || hosts(&of_hosts, begun));
        let disk = std::thread::spawn(move || disk(file, &of_disk, begun));
        Self { stop: Stop(stop), hosts, disk }
    }

    /// The stalls, and how long hosts got no processor.
    pub fn end(self) -> (Vec<Stall>, Stalled) {
        drop(self.stop);
        let (mut seen, stalled) = self.hosts.join().expect("it ends");
        seen.extend(self.disk.join().expect("it ends"));
        (seen, stalled)
    }
}

/// How long hosts got no processor in their worst seconds.
#[derive(Debug, Clone, Copy)]
pub struct Stalled {
    /// The most stalled one.
    pub one: Duration,
    /// The three most stalled ones together: a request may wait for one after the other.
    pub three: Duration,
}

/// The worst second of each host that stalled, and how long the most stalled ones were.
fn hosts(stop: &AtomicBool, begun: Instant) -> (Vec<Stall>, Stalled) {
    let mut seen: BTreeMap<String, VecDeque<Duration>> = BTreeMap::new();
    let mut worst: BTreeMap<String, (Duration, Duration)> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        for (name, total) in groups().into_iter().filter_map(|group| Some((name(&group)?, waited(&group)?))) {
            let totals = seen.entry(name.clone()).or_default();
            totals.push_back(total);
            if totals.len() > SAMPLES + 1 {
                totals.pop_front();
            }
            let without = total.saturating_sub(totals[0]);
            let entry = worst.entry(name).or_default();
            *entry = (*entry).max((without, begun.elapsed()));
        }
        std::thread::sleep(REST);
    }
    let mut longest: Vec<Duration> = worst.values().map(|(without, _)| *without).collect();
    longest.sort_unstable_by(|one, other| other.cmp(one));
    let one = longest.first().copied().unwrap_or_default();
    let stalled = Stalled { one, three: longest.iter().take(3).sum() };
    let bad = worst.into_iter().filter(|(_, (without, _))| *without >= WITHOUT);
    (bad.map(|(name, (without, until))| Stall::Host { name, without, until }).collect(), stalled)
}

/// The cgroups of all hosts of all labs.
fn groups() -> Vec<PathBuf> {
    let labs = GROUPS.iter().flat_map(|top| entries(Path::new(top)));
    let labs = labs.filter(|path| name(path).is_some_and(|name| name.starts_with("hactl-lab-")));
    labs.flat_map(|lab| entries(&lab)).filter(|path| path.is_dir()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// How long all processes of a cgroup have waited for a processor at the same time so far: the last field of `full
/// avg10=… avg60=… avg300=… total=MICROSECONDS`.
fn waited(group: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(group.join("cpu.pressure")).ok()?;
    let full = text.lines().find(|line| line.starts_with("full "))?;
    Some(Duration::from_micros(full.rsplit_once("total=")?.1.parse().ok()?))
}

fn disk(mut file: File, stop: &AtomicBool, begun: Instant) -> Vec<Stall> {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let tried = Instant::now();
        let kept = file.rewind().and_then(|()| file.write_all(b"a few bytes")).and_then(|()| file.sync_data());
        kept.expect("the disk stores it");
        if tried.elapsed() >= STILL {
            seen.push(Stall::Disk { took: tried.elapsed(), until: begun.elapsed() });
        }
        std::thread::sleep(REST);
    }
    seen
}
