//! Boots of this host: which one it is, whether a reboot is due, and the reboot itself.
//!
//! In: /proc, the notes of package managers, a request that names the boot which it ends. Out: a [`Boot`]; a host that
//! shuts down. Units stop in their order, and the kubelet ends its pods.

use super::Root;
use super::host::Host;
use super::lock::{self, Held};
use super::machine::processes;
use super::machine::run::must;
use super::machine::units;
use super::op_error::{Outcome, bad, failed};
use crate::model::boot::{Boot, BootId};
use std::fs;
use std::time::Duration;

/// The kernel's name of the boot.
const KERNEL: &str = "/proc/sys/kernel/random/boot_id";
/// The notes by which package managers ask for a reboot: Debian's, and SUSE's.
const NOTES: [&str; 3] = ["/run/reboot-required", "/var/run/reboot-required", "/run/reboot-needed"];
/// systemd only takes note of a reboot.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How this host runs.
///
/// # Errors
/// /proc cannot be read.
pub fn boot() -> Outcome<Boot> {
    boot_of(&fs::read_to_string(KERNEL).map_err(|error| failed(format!("cannot read {KERNEL}: {error}")))?)
}

/// The same, with the kernel's name of the boot as systemd has it: in a container, a unit with a `/proc` of its own may
/// read another one.
///
/// # Errors
/// /proc cannot be read, or this is not a name of the kernel.
pub fn boot_of(kernel: &str) -> Outcome<Boot> {
    let unreadable = || failed("cannot read when the first process of this host was started");
    let (started, since_ms) = processes::start(1).zip(processes::started_at(1)).ok_or_else(unreadable)?;
    Ok(Boot { id: BootId::new(kernel, started).map_err(failed)?, since_ms })
}

/// Whether a package manager asks for a reboot.
pub fn is_reboot_due(root: &Root) -> bool {
    NOTES.iter().any(|note| root.own(note).exists())
}

/// The lock of a host that is to shut down: no run of hactl begins to change it.
#[derive(Debug)]
pub struct ShutsDown {
    _held: Held,
}

impl ShutsDown {
    /// Takes the lock.
    ///
    /// # Errors
    /// A run of hactl changes the host.
    pub async fn take(root: &Root) -> Outcome<Self> {
        units::own_systemd(&Host::new(root.clone()))?;
        Ok(Self { _held: lock::take_as_resident(root, "a reboot of this host for its maintenance").await? })
    }

    /// Has systemd reboot the host.
    ///
    /// # Errors
    /// It does not.
    pub async fn reboot(&self) -> Outcome<()> {
        must(&["systemctl", "reboot"], TIMEOUT).await.map(drop)
    }
}

/// Reboots this host, if this boot has not ended yet.
///
/// # Errors
/// It does not reboot, and why.
pub(super) async fn end(root: &Root, of: &BootId) -> Outcome<()> {
    if boot()?.id != *of {
        return Err(bad("it has booted since the reboot was asked for"));
    }
    ShutsDown::take(root).await?.reboot().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_knows_its_boot_and_when_it_began() {
        let (first, second) = (boot().unwrap(), boot().unwrap());
        assert_eq!(first.id, second.id);
        let now_ms = crate::agent::machine::when::now_ms();
        assert!(first.since_ms < now_ms && (first.since_ms - second.since_ms).abs() < 1_000, "{first:?}, {second:?}");
    }

    #[test]
    fn a_reboot_is_due_while_a_package_manager_asks_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert!(!is_reboot_due(&root));
        for note in ["run/reboot-required", "run/reboot-needed"] {
            fs::create_dir_all(folder.path().join("run")).unwrap();
            fs::write(folder.path().join(note), "").unwrap();
            assert!(is_reboot_due(&root), "{note}");
            fs::remove_file(folder.path().join(note)).unwrap();
        }
    }
}
