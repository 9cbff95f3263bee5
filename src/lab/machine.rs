//! Shared by all labs of this machine: its commands, its kernel settings, and the register of networks.
//!
//! The register is in `/run/hactl-lab`. Removing the last lab removes it and reverts the changed kernel settings.

use super::error::{LabError, Result};
use super::files::{self, Lock};
use super::progress::{Note, Progress};
use super::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const REGISTER: &str = "/run/hactl-lab";
/// A host's systemd, kubelet and containerd each use some inotify instances; the usual 128 are sufficient for one host.
const INOTIFY: &str = "fs/inotify/max_user_instances";
const INOTIFY_LEAST: u64 = 8192;
const FORWARD: &str = "net/ipv4/ip_forward";
/// Settings that we or the hosts' kubelets change for the whole machine; the last `down` reverts them.
const WATCHED: &[&str] = &[
    FORWARD,
    INOTIFY,
    "fs/inotify/max_user_watches",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/max_map_count",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];
/// Each command and Debian's package that contains it.
const COMMANDS: &[(&str, &str)] = &[
    ("flock", "util-linux"),
    ("ip", "iproute2"),
    ("kill", "procps"),
    ("lxc-info", "lxc"),
    ("lxc-start", "lxc"),
    ("lxc-stop", "lxc"),
    ("mmdebstrap", "mmdebstrap"),
    ("nft", "nftables"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("unshare", "util-linux"),
];

/// Requires root and the commands that a running lab needs.
pub(crate) fn check() -> Result<()> {
    let status = files::read(Path::new("/proc/self/status"))?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    if ids.and_then(|ids| ids.split_whitespace().nth(1)) != Some("0") {
        return Err(LabError::NotRoot);
    }
    demand(&["flock", "ip", "kill", "lxc-info", "lxc-start", "lxc-stop", "nft", "ssh", "ssh-keygen"])
}

/// Requires that commands are installed.
pub(crate) fn demand(commands: &[&'static str]) -> Result<()> {
    let missing: Vec<&'static str> = commands.iter().copied().filter(|name| !installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(LabError::Missing { packages: packages(&missing), commands: missing })
}

/// The packages that contain these commands, each once.
fn packages(commands: &[&str]) -> String {
    let wanted = COMMANDS.iter().filter(|(name, _)| commands.contains(name));
    let packages: BTreeSet<&str> = wanted.map(|(_, package)| *package).collect();
    packages.into_iter().collect::<Vec<_>>().join(" ")
}

/// Whether a command is in PATH.
pub(crate) fn installed(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(command).is_file())
}

/// A lab in the register.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Entry {
    /// The lab's own folder.
    pub(crate) dir: PathBuf,
    /// The data that `down` needs if the folder is missing.
    pub(crate) record: Record,
}

/// The register, locked exclusively.
pub(crate) struct Machine {
    register: PathBuf,
    lock: Lock,
}

impl Machine {
    /// Waits for the register's lock and removes entries of an earlier boot.
    pub(crate) fn hold() -> Result<Self> {
        let register = PathBuf::from(REGISTER);
        let lock = Lock::take(&register.join("lock"))?;
        let boot = files::read(Path::new("/proc/sys/kernel/random/boot_id"))?;
        if files::read_if(&register.join("boot"))?.as_ref() != Some(&boot) {
            files::remove(&register.join("labs"))?;
            files::remove(&register.join("sysctls.json"))?;
            files::write(&register.join("boot"), 0o644, &boot)?;
        }
        Ok(Self { register, lock })
    }

    /// Adds or updates a lab.
    pub(crate) fn enter(&self, entry: &Entry) -> Result<()> {
        let text = serde_json::to_string_pretty(entry)
            .map_err(|source| LabError::BadRecord { path: entry.dir.clone(), source })?;
        files::write(&self.file(entry.record.octet), 0o644, &text)
    }

    /// Removes a lab; the last one also removes the register and reverts the kernel settings.
    pub(crate) fn leave(self, octet: u8) -> Result<()> {
        files::remove(&self.file(octet))?;
        if !entries()?.is_empty() {
            return Ok(());
        }
        restore(&self.register.join("sysctls.json"))?;
        for name in ["labs", "sysctls.json", "boot"] {
            files::remove(&self.register.join(name))?;
        }
        self.lock.remove()?;
        files::prune(&self.register, &self.register);
        Ok(())
    }

    /// Records the kernel settings without labs, then sets those that hosts need.
    pub(crate) fn tune(&self, progress: &dyn Progress) -> Result<()> {
        let kept = self.register.join("sysctls.json");
        if !kept.exists() {
            let now: BTreeMap<&str, String> = WATCHED.iter().filter_map(|name| Some((*name, setting(name)?))).collect();
            let text = serde_json::to_string_pretty(&now)
                .map_err(|source| LabError::BadRecord { path: kept.clone(), source })?;
            files::write(&kept, 0o644, &text)?;
        }
        if setting(INOTIFY).and_then(|text| text.parse::<u64>().ok()).is_some_and(|n| n < INOTIFY_LEAST) {
            set(INOTIFY, &INOTIFY_LEAST.to_string(), progress)?;
        }
        if setting(FORWARD).as_deref() != Some("1") {
            set(FORWARD, "1", progress)?;
        }
        Ok(())
    }

    fn file(&self, octet: u8) -> PathBuf {
        self.register.join("labs").join(format!("{octet}.json"))
    }
}

/// All labs in the register, by network.
pub(crate) fn entries() -> Result<Vec<Entry>> {
    let folder = Path::new(REGISTER).join("labs");
    let mut found = Vec::new();
    for name in files::names(&folder)? {
        let path = folder.join(&name);
        // A file may disappear when its lab is removed; the name of a half-written one ends in `.new`.
        if let (true, Some(text)) = (name.strip_suffix(".json").is_some(), files::read_if(&path)?) {
            found.push(serde_json::from_str(&text).map_err(|source| LabError::BadRecord { path, source })?);
        }
    }
    found.sort_by_key(|entry: &Entry| entry.record.octet);
    Ok(found)
}

fn setting(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok().map(|text| text.trim().to_owned())
}

fn set(name: &str, value: &str, progress: &dyn Progress) -> Result<()> {
    let from = setting(name).unwrap_or_default();
    let path = Path::new("/proc/sys").join(name);
    fs::write(&path, value).map_err(LabError::io("set the kernel's", &path))?;
    progress.on(&Note::Sysctl { name: name.replace('/', "."), from, to: value.to_owned() });
    Ok(())
}

/// Reverts the kernel settings to the recorded values.
fn restore(path: &Path) -> Result<()> {
    let Some(text) = files::read_if(path)? else { return Ok(()) };
    let kept: BTreeMap<String, String> =
        serde_json::from_str(&text).map_err(|source| LabError::BadRecord { path: path.to_owned(), source })?;
    for (name, value) in kept.iter().filter(|(name, _)| WATCHED.contains(&name.as_str())) {
        if setting(name).is_some_and(|now| now != *value) {
            set(name, value, &super::progress::Silent)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_packages_each_once() {
        assert!(demand(&["kill"]).is_ok());
        assert!(!installed("hactl-no-such-command"));
        let commands = vec!["lxc-start", "lxc-stop", "ip"];
        let text = LabError::Missing { packages: packages(&commands), commands }.to_string();
        assert!(text.ends_with("lacks lxc-start, lxc-stop, ip: run `apt-get install -y iproute2 lxc`"), "{text}");
    }
}
