//! What can go wrong in the lab: each message says what happened, where, and what to do about it.

use crate::process::ProcessError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a function of the lab answers.
pub type Result<T> = std::result::Result<T, LabError>;

/// A failed action of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Containers, bridges and mounts need root.
    #[error("the lab makes containers and bridges and so needs root: run it again with sudo")]
    NotRoot,
    /// Commands are missing on this machine.
    #[error("this machine lacks {}: run `apt-get install -y {packages}`", .commands.join(", "))]
    Missing {
        /// The commands that were looked for in vain.
        commands: Vec<&'static str>,
        /// Debian's packages that bring them.
        packages: String,
    },
    /// The name cannot be a cluster's and a folder's name.
    #[error("{name:?} cannot name a lab: use 1 to 30 of a-z, 0-9 and -, beginning with a letter")]
    BadName {
        /// What was given.
        name: String,
    },
    /// LXC's configuration and overlay mounts know no quoting.
    #[error("{} cannot hold a lab: LXC reads no path with spaces, colons, commas or backslashes; choose another with --dir or XDG_STATE_HOME", .path.display())]
    BadPath {
        /// The folder.
        path: PathBuf,
    },
    /// More or fewer hosts than a lab's network has room for.
    #[error(
        "a lab has 1 to {most} hosts, not {asked}: change --hosts, --etcd, --load-balancers, --workers or --spares"
    )]
    BadSize {
        /// How many were asked for.
        asked: usize,
        /// How many addresses there are below the virtual one.
        most: usize,
    },
    /// Two hosts of one name.
    #[error("two hosts are called {host:?}: give each its own name")]
    SameHost {
        /// The name.
        host: String,
    },
    /// No such lab.
    #[error("there is no lab {name:?} in {}: `hactl lab list` shows those there are, `hactl lab up --name {name}` makes it", .root.display())]
    NoLab {
        /// The lab.
        name: String,
        /// Where labs were looked for.
        root: PathBuf,
    },
    /// No such host.
    #[error("lab {lab:?} has no host {host:?}: it has {}", .known.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// The host asked for.
        host: String,
        /// The hosts there are.
        known: Vec<String>,
    },
    /// The action needs a running host.
    #[error("{host} of lab {lab:?} is off: `hactl lab start --name {lab} {host}` powers it on")]
    HostOff {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
    },
    /// A record that cannot be read back.
    #[error("{} is no record of a lab that this hactl reads: remove the lab with the hactl that made it", .path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// No /24 is left.
    #[error("all of 10.88.0.0/16 is taken: `hactl lab down --name NAME` frees a network")]
    NoNetwork,
    /// Another bridge or lab sits on this lab's network.
    #[error(
        "the network 10.88.{octet}.0/24 of lab {name:?} is now used by {by}: take that down, or make this lab anew with `hactl lab down --name {name}` and `up`"
    )]
    NetworkTaken {
        /// The lab.
        name: String,
        /// The third octet.
        octet: u8,
        /// Who has it.
        by: String,
    },
    /// The network that was asked for is in use.
    #[error("the network 10.88.{octet}.0/24 is used by {by}: ask for another, or take that down")]
    NetworkUsed {
        /// The third octet.
        octet: u8,
        /// Who has it.
        by: String,
    },
    /// A network alone has no hosts, and a lab with hosts is no network alone.
    #[error("{name:?} is {is}: choose another name, or remove it with `hactl lab down --name {name}`")]
    OtherKind {
        /// The lab.
        name: String,
        /// What it is.
        is: &'static str,
    },
    /// Hosts' lower file system vanished.
    #[error("the base of lab {name:?}, {}, is gone, and its hosts cannot start: make the lab anew with `hactl lab down --name {name}` and `up`", .base.display())]
    NoBase {
        /// The lab.
        name: String,
        /// The base it was made on.
        base: PathBuf,
    },
    /// A command of the machine failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file operation failed.
    #[error("could not {action} {}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// Another run holds the lock.
    #[error("another hactl has held {} for more than {} s: let it end, or look for it with `fuser {}`", .path.display(), .timeout.as_secs(), .path.display())]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// How long we waited.
        timeout: Duration,
    },
    /// A host did not boot.
    #[error("{host} of lab {lab:?} did not boot: {why}\nits log, {}, ends:\n{tail}", .log.display())]
    NoBoot {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
        /// What was missing.
        why: String,
        /// LXC's log of the host.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// Mounts from the machine into the lab: removing files would reach through them.
    #[error("{} is still mounted, so that removing the lab would reach through it: `umount {}`, then `hactl lab down` again", .path.display(), .path.display())]
    Mounted {
        /// The mount point.
        path: PathBuf,
    },
    /// Processes that SIGKILL did not end.
    #[error("processes {pids:?} in {} survived SIGKILL: wait for the disk or the network file system that holds them, then run this again", .cgroup.display())]
    Unkillable {
        /// The processes.
        pids: Vec<u32>,
        /// Their cgroup.
        cgroup: PathBuf,
    },
}

impl LabError {
    /// For `map_err` on file operations.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
