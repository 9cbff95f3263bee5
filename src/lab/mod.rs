//! Labs: bare systemd hosts with a real sshd, as LXC containers of this machine, and an inventory for them.
//!
//! The lab creates and removes hosts, cuts their power and their network cables, and empties their disks. It never
//! deploys anything to them. A lab is stored in one folder and has one number, the third octet of its network:
//! bridge `hlbN`, cables `hlvN-*`, nftables table `hactl_lab_N`, cgroups `hactl-lab-N`.
//!
//! A power-off is that of a container: written data stays in the machine's page cache, so that a host loses its
//! processes and its memory, but no unsynced file.

mod base;
mod cgroup;
mod down;
mod error;
mod files;
mod host;
mod inventory;
mod machine;
mod mounts;
mod network;
mod progress;
mod record;
mod scoped;
mod ssh;
mod up;

pub use error::{LabError, Result};
pub use progress::{Note, Progress, Silent};
pub use record::{Base, HostSpec, Spec, default_cache, default_root};
pub use scoped::Scoped;

use crate::model::desired::Role;
use host::Host;
use record::Record;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A lab: created by [`Lab::up`], found by [`Lab::open`]. It keeps running when dropped; [`Scoped`] does not.
#[derive(Debug, Clone)]
pub struct Lab {
    dir: PathBuf,
    record: Record,
}

/// The state of a host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The role that it was created for.
    pub kind: Role,
    /// All its roles in this lab.
    pub roles: Vec<Role>,
    /// Its system.
    pub base: Base,
    /// Whether it has power.
    pub running: bool,
    /// Whether its cable is cut; a host that is off has none.
    pub cut: bool,
}

impl Lab {
    /// Creates or completes the lab: running hosts stay, hosts that are off are started, new ones are added.
    ///
    /// # Errors
    /// When a host does not answer SSH. The incomplete lab stays for inspection, until `down`.
    pub fn up(spec: &Spec, progress: &dyn Progress) -> Result<Self> {
        up::up(spec, progress)
    }

    /// Creates a network without hosts, `10.88.OCTET.0/24`, for machines of another tool; `down` removes it.
    ///
    /// # Errors
    /// When the network is in use, or the name is that of a lab with hosts.
    pub fn network_alone(root: &Path, name: &str, octet: u8, progress: &dyn Progress) -> Result<Self> {
        up::network_alone(root, name, octet, progress)
    }

    /// The lab of that name, in any state.
    ///
    /// # Errors
    /// When there is none, or its record cannot be read.
    pub fn open(root: &Path, name: &str) -> Result<Self> {
        down::find(root, name)
    }

    /// All labs below `root`, and those of this machine in other folders.
    ///
    /// # Errors
    /// When the folder or a record cannot be read.
    pub fn all(root: &Path) -> Result<Vec<Self>> {
        let mut labs = Vec::new();
        for dir in files::folders(root)? {
            labs.extend(Record::load(&dir)?.map(|record| Self { dir, record }));
        }
        for entry in machine::entries()? {
            if labs.iter().all(|lab| lab.dir != entry.dir) {
                labs.push(Self { dir: entry.dir, record: entry.record });
            }
        }
        Ok(labs)
    }

    /// Removes the lab completely, except for the cached bases.
    ///
    /// # Errors
    /// When a process cannot be killed or a file cannot be removed; the next run continues from there.
    pub fn down(&self, progress: &dyn Progress) -> Result<()> {
        down::down(self, progress)
    }

    /// Removes the cached bases that no lab uses.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn purge(root: &Path, cache: &Path, progress: &dyn Progress) -> Result<()> {
        down::purge(root, cache, progress)
    }

    /// The lab's and the cluster's name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The lab's own folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The inventory for `hactl up -i`.
    pub fn inventory(&self) -> PathBuf {
        self.dir.join(inventory::FILE)
    }

    /// The administrator's key.
    pub fn identity(&self) -> PathBuf {
        self.dir.join("id_ed25519")
    }

    /// The hosts' real keys.
    pub fn known_hosts(&self) -> PathBuf {
        self.dir.join("known_hosts")
    }

    /// The network, as `10.88.N.0/24`.
    pub fn network(&self) -> String {
        self.record.network().cidr()
    }

    /// The bridge of the hosts.
    pub fn bridge(&self) -> String {
        self.record.network().bridge()
    }

    /// The virtual address of the inventory's endpoint.
    pub fn vip(&self) -> Ipv4Addr {
        self.record.network().vip()
    }

    /// The hosts' names, in the order of their addresses.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.record.hosts.iter().map(|host| host.name.as_str())
    }

    /// A host's address.
    ///
    /// # Errors
    /// When the lab has no such host.
    pub fn address(&self, host: &str) -> Result<Ipv4Addr> {
        Ok(self.host(host)?.address())
    }

    /// The state of every host.
    ///
    /// # Errors
    /// When LXC cannot be queried: it requires root.
    pub fn states(&self) -> Result<Vec<HostState>> {
        machine::check()?;
        let state = |host: Host<'_>| {
            let running = host.runs()?;
            let cut = running && self.record.network().plugged(host.index) == Some(false);
            let HostSpec { name, kind, base } = self.record.hosts[host.index].clone();
            let roles = self.record.roles(kind);
            Ok(HostState { name, address: host.address(), kind, roles, base, running, cut })
        };
        self.each().map(state).collect()
    }

    /// Cuts a host's power. A host that is off stays off.
    ///
    /// # Errors
    /// When there is no such host or one of its processes survives.
    pub fn kill(&self, host: &str) -> Result<()> {
        machine::check()?;
        self.host(host)?.kill()
    }

    /// Sets how much CPU time a host gets when all hosts want some, in percent of its usual share, until it boots again:
    /// real hosts take none from one another.
    ///
    /// # Errors
    /// When there is no such host or the kernel refuses.
    pub fn set_cpu_share(&self, host: &str, percent: u32) -> Result<()> {
        self.host(host)?.set_cpu_share(percent)
    }

    /// Powers a host on and waits until it answers; its cable is plugged in again.
    ///
    /// # Errors
    /// When there is no such host or it does not answer in time.
    pub fn start(&self, host: &str, timeout: Duration) -> Result<()> {
        machine::check()?;
        let host = self.host(host)?;
        host.settle()?;
        if !host.runs()? {
            host.start()?;
        }
        host.network.cable(host.index, true)?;
        host.wait(timeout)
    }

    /// Unplugs a host's cable at the machine's end: the host sees a link without carrier, and keeps running.
    ///
    /// # Errors
    /// When there is no such host or it is off.
    pub fn cut(&self, host: &str) -> Result<()> {
        self.cable(host, false)
    }

    /// Plugs a host's cable in again.
    ///
    /// # Errors
    /// When there is no such host or it is off.
    pub fn mend(&self, host: &str) -> Result<()> {
        self.cable(host, true)
    }

    /// Cuts a host's power and empties its disks. It will start bare, with the same address and SSH host key.
    ///
    /// # Errors
    /// When there is no such host or a file cannot be removed.
    pub fn wipe(&self, host: &str) -> Result<()> {
        machine::check()?;
        let host = self.host(host)?;
        host.kill()?;
        host.empty()
    }

    /// OpenSSH to a host as user `ops`, with host key verification; add a command, or run it unchanged for a shell.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn ssh(&self, host: &str) -> Result<Command> {
        Ok(ssh::command(&self.dir, host, self.address(host)?))
    }

    fn cable(&self, name: &str, plugged: bool) -> Result<()> {
        machine::check()?;
        let host = self.host(name)?;
        if !host.runs()? {
            return Err(LabError::HostOff { lab: self.name().to_owned(), host: name.to_owned() });
        }
        host.network.cable(host.index, plugged)
    }

    fn host(&self, name: &str) -> Result<Host<'_>> {
        self.each().find(|host| host.name == name).ok_or_else(|| {
            let known = self.hosts().map(str::to_owned).collect();
            LabError::NoHost { lab: self.name().to_owned(), host: name.to_owned(), known }
        })
    }

    fn each(&self) -> impl Iterator<Item = Host<'_>> {
        self.record.hosts.iter().enumerate().map(|(index, host)| Host {
            lab: &self.record.name,
            dir: &self.dir,
            base: self.record.base_of(host),
            network: self.record.network(),
            name: &host.name,
            index,
        })
    }
}

/// A thread's result; its panic is resumed here.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
