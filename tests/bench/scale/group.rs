//! The processor time of the light hosts, by a cgroup of their own.
//!
//! In: nothing. Out: a folder that every host enters with its first process, and what all have used so far. A machine on
//! which no cgroup can be made has none; then their time is not measured.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MOUNT: &str = "/sys/fs/cgroup";
const NAME: &str = "hactl-bench";

/// The cgroup of the light hosts.
pub struct Group(PathBuf);

impl Group {
    /// Makes it; there is one fleet at a time.
    pub fn make() -> Option<Self> {
        let mount = Path::new(MOUNT);
        let is_unified = mount.join("cgroup.controllers").exists();
        let folder = if is_unified { mount.join(NAME) } else { mount.join("cpuacct").join(NAME) };
        match fs::create_dir(&folder) {
            // A killed run left it.
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        let group = Self(folder);
        group.used().is_some().then_some(group)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Processor time of all hosts so far, also of processes that have ended.
    pub fn used(&self) -> Option<Duration> {
        if let Ok(text) = fs::read_to_string(self.0.join("cpuacct.usage")) {
            return Some(Duration::from_nanos(text.trim().parse().ok()?));
        }
        let text = fs::read_to_string(self.0.join("cpu.stat")).ok()?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(used.trim().parse().ok()?))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last processes may still be ending.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
