//! Errors of the lab: each message says what happened, where, and what to do.

use crate::process::ProcessError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Result of a function of the lab.
pub type Result<T> = std::result::Result<T, LabError>;

/// A failed action of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Containers, bridges and mounts need root.
    #[error("the lab creates containers and bridges, which requires root: run it again with sudo")]
    NotRoot,
    /// Commands are missing on this machine.
    #[error("this machine lacks {}: run `apt-get install -y {packages}`", .commands.join(", "))]
    Missing {
        /// The missing commands.
        commands: Vec<&'static str>,
        /// Debian's packages that contain them.
        packages: String,
    },
    /// The name cannot be a cluster's and a folder's name.
    #[error("{name:?} cannot name a lab: use 1 to 30 of a-z, 0-9 and -, beginning with a letter")]
    BadName {
        /// The name.
        name: String,
    },
    /// LXC's configuration and overlay mounts have no quoting.
    #[error(
        "{} cannot contain a lab: LXC does not support spaces, colons, commas and backslashes in a path; choose \
         another with --dir or XDG_STATE_HOME",
        .path.display()
    )]
    BadPath {
        /// The folder.
        path: PathBuf,
    },
    /// No hosts, or more hosts than a lab's network has addresses.
    #[error(
        "a lab has 1 to {most} hosts, not {asked}: change --hosts, --etcd, --load-balancers, --workers or --spares"
    )]
    BadSize {
        /// The requested number.
        asked: usize,
        /// The number of addresses below the virtual one.
        most: usize,
    },
    /// Two hosts with the same name.
    #[error("two hosts are called {host:?}: choose a unique name for each")]
    SameHost {
        /// The name.
        host: String,
    },
    /// No such lab.
    #[error(
        "there is no lab {name:?} in {}: `hactl lab list` shows all labs, `hactl lab up --name {name}` creates it",
        .root.display()
    )]
    NoLab {
        /// The lab.
        name: String,
        /// The folder of labs.
        root: PathBuf,
    },
    /// No such host.
    #[error("lab {lab:?} has no host {host:?}: it has {}", .known.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// The requested host.
        host: String,
        /// The existing hosts.
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
    /// A record that cannot be read.
    #[error(
        "{} is not a record that this hactl can read: remove the lab with the hactl that created it",
        .path.display()
    )]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// No /24 is left.
    #[error("all networks of 10.88.0.0/16 are in use: `hactl lab down --name NAME` frees one")]
    NoNetwork,
    /// Another bridge or lab uses this lab's network.
    #[error(
        "the network 10.88.{octet}.0/24 of lab {name:?} is now used by {by}: remove that, or recreate this lab with \
         `hactl lab down --name {name}` and `up`"
    )]
    NetworkTaken {
        /// The lab.
        name: String,
        /// The third octet.
        octet: u8,
        /// Its user.
        by: String,
    },
    /// The requested network is in use.
    #[error("the network 10.88.{octet}.0/24 is used by {by}: choose another, or remove that")]
    NetworkUsed {
        /// The third octet.
        octet: u8,
        /// Its user.
        by: String,
    },
    /// The name belongs to the other kind: a lab with hosts or a network without hosts.
    #[error("{name:?} is {is}: choose another name, or remove it with `hactl lab down --name {name}`")]
    OtherKind {
        /// The lab.
        name: String,
        /// What it is.
        is: &'static str,
    },
    /// The hosts' lower file system is missing.
    #[error(
        "the base of lab {name:?}, {}, is missing, so its hosts cannot start: recreate the lab with `hactl lab down \
         --name {name}` and `up`",
        .base.display()
    )]
    NoBase {
        /// The lab.
        name: String,
        /// Its base.
        base: PathBuf,
    },
    /// A command of the machine failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file operation failed.
    #[error("could not {action} {}", .path.display())]
    Io {
        /// The action.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Another run holds the lock.
    #[error(
        "another hactl has held the lock {} for more than {} s: wait until it ends, or find it with `fuser {}`",
        .path.display(), .timeout.as_secs(), .path.display()
    )]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// How long we waited.
        timeout: Duration,
    },
    /// A host did not boot.
    #[error("{host} of lab {lab:?} did not boot: {why}\nend of its log {}:\n{tail}", .log.display())]
    NoBoot {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
        /// The reason.
        why: String,
        /// LXC's log of the host.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// Mounts from the machine into the lab: removing files would reach through them.
    #[error(
        "{} is still mounted, and removing the lab would delete the mounted files: run `umount {}`, then `hactl lab \
         down` again",
        .path.display(), .path.display()
    )]
    Mounted {
        /// The mount point.
        path: PathBuf,
    },
    /// Processes that survived SIGKILL.
    #[error(
        "processes {pids:?} in {} survived SIGKILL: wait for the disk or network file system that blocks them, then \
         run this again",
        .cgroup.display()
    )]
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
