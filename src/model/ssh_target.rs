//! How a host is reached by SSH.
//!
//! In: made by `inventory/` from the inventory, OpenSSH's configuration and the defaults. Out: read by `transport/ssh`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// How a host is reached by SSH: the inventory, OpenSSH's configuration and the defaults merged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshTarget {
    /// Name or address to connect to.
    pub host: String,
    /// The port of its sshd.
    pub port: u16,
    /// The user to log in as.
    pub user: String,
    /// The identity file in the inventory: only this one is used. `None`: any other.
    pub identity: Option<PathBuf>,
    /// Identity files of OpenSSH's configuration: those that exist are tried. Empty: the usual files under `~/.ssh`.
    pub identities: Vec<PathBuf>,
    /// User certificates besides those next to an identity file.
    pub certificates: Vec<PathBuf>,
    /// The SSH agent.
    pub agent: Agent,
    /// Whether other keys of the agent are ignored (`IdentitiesOnly`).
    pub identities_only: bool,
    /// known_hosts files, the first for new records; empty: `~/.ssh/known_hosts` and the system's.
    pub known_hosts: Vec<PathBuf>,
    /// The name its key is recorded under, when that is another than the one connected to (`HostKeyAlias`).
    pub key_alias: Option<String>,
    /// Pinned host key fingerprint, `SHA256:...`.
    pub fingerprint: Option<String>,
    /// Fingerprint of a CA whose host certificates are trusted here, `SHA256:...`.
    pub host_ca: Option<String>,
    /// The jump hosts, the nearest first. None of them has jump hosts of its own: this is the whole path.
    pub jump: Vec<SshTarget>,
    /// The file with the password for sudo. Never the password itself.
    pub sudo_password: Option<PathBuf>,
}

/// The SSH agent to use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Agent {
    /// The agent of `$SSH_AUTH_SOCK`, if it is set.
    #[default]
    Environment,
    /// The agent at this socket.
    At(PathBuf),
    /// None.
    None,
}

impl SshTarget {
    /// With the defaults: port 22, all keys, no jump hosts.
    pub fn new(host: impl Into<String>, user: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: 22,
            user: user.into(),
            identity: None,
            identities: Vec::new(),
            certificates: Vec::new(),
            agent: Agent::Environment,
            identities_only: false,
            known_hosts: Vec::new(),
            key_alias: None,
            fingerprint: None,
            host_ca: None,
            jump: Vec::new(),
            sudo_password: None,
        }
    }

    /// The destination: `user@host:port`.
    pub fn place(&self) -> String {
        format!("{}@{}", self.user, self.address())
    }

    /// `host:port`, an IPv6 address in brackets.
    pub fn address(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

impl fmt::Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())?;
        for (index, jump) in self.jump.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { " through " } else { ", " }, jump.place())?;
        }
        Ok(())
    }
}
