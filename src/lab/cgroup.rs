//! The hosts' processes, by their cgroups: finds them, ends them, and removes the folders.

use super::error::{LabError, Result};
use crate::process::Run;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MOUNT: &str = "/sys/fs/cgroup";
/// Time for the kernel to remove namespaces and file systems of killed processes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Whether this machine has only the unified hierarchy.
pub(crate) fn unified() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

/// Ends every process below `cgroup` in all hierarchies, then removes the folders.
pub(crate) fn clear(cgroup: &str) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let found: Vec<PathBuf> = hierarchies().iter().flat_map(|top| below(&top.join(cgroup))).collect();
        let pids: BTreeSet<u32> = found.iter().flat_map(|folder| pids(folder)).collect();
        if pids.is_empty() {
            // Children come before their parents; a busy folder is tried again.
            let left: Vec<&PathBuf> = found.iter().filter(|folder| fs::remove_dir(folder).is_err()).collect();
            if left.iter().all(|folder| !folder.exists()) {
                return Ok(());
            }
        } else {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let mut arguments = vec!["-KILL"];
            arguments.extend(pids.iter().map(String::as_str));
            // Some may have ended meanwhile: the next round counts the others.
            Run::new("kill", &arguments).output()?;
        }
        if Instant::now() >= deadline {
            let pids = pids.into_iter().collect();
            return Err(LabError::Unkillable { pids, cgroup: Path::new(MOUNT).join(cgroup) });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sets how much CPU time a cgroup gets when all want some, in percent of what each gets by default.
pub(crate) fn set_cpu_share(cgroup: &str, percent: u32) -> Result<()> {
    let (top, file, default) = if unified() { ("", "cpu.weight", 100) } else { ("cpu", "cpu.shares", 1024) };
    let path = Path::new(MOUNT).join(top).join(cgroup).join(file);
    fs::write(&path, (default * percent / 100).to_string()).map_err(LabError::io("set the CPU share", &path))
}

/// The roots of all hierarchies.
fn hierarchies() -> Vec<PathBuf> {
    if unified() {
        return vec![PathBuf::from(MOUNT)];
    }
    children(Path::new(MOUNT))
}

/// The folder and all below it, deepest first; empty if it does not exist.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = children(folder).iter().flat_map(|child| below(child)).collect();
    if folder.is_dir() {
        all.push(folder.to_owned());
    }
    all
}

/// The direct subfolders, without links (`cpu,cpuacct` has two names on many machines).
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

/// The processes directly in a cgroup; never init or one of another PID namespace (both would be a kernel bug).
fn pids(folder: &Path) -> Vec<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 1).collect()
}
