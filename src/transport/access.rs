//! The prerequisites to log in to hosts: timeouts, trust, a sudo password, and a hactl binary for each architecture.
//!
//! In: the command line. Out: an [`Access`] shared by every [`super::Machine`] of a run. It also keeps the
//! connections to jump hosts, so that a hundred hosts behind one bastion cost one connection, and knows whether a
//! password was accepted anywhere yet.

use super::error::HostError;
use super::ssh::{Jumps, Passwords};
use crate::model::names::{Digest, HostName};
use crate::model::secret::Secret;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Hosts worked on at once by default: enough to make fleets fast, few enough that the machine that runs hactl keeps
/// up with sending.
pub const AT_ONCE: usize = 32;

/// How long a host that is said to be powered off may take to accept a connection. The kernel of a running host does
/// so at once: by then two lost packets have been sent again.
const POWERED_OFF: Duration = Duration::from_secs(4);

/// A hactl binary for one architecture.
#[derive(Debug, Clone)]
pub struct Binary {
    /// As `uname -m` prints it.
    pub architecture: String,
    /// Where it is.
    pub path: PathBuf,
    /// Digest of its content: its name on a host.
    pub digest: Digest,
    /// Its size, bytes.
    pub size: u64,
}

/// The prerequisites to log in to hosts.
#[derive(Clone)]
pub struct Access {
    /// Whether a host key that is not on record is accepted and recorded. A changed key never is.
    pub trust_first_use: bool,
    /// The timeout of each phase: TCP, key exchange, login, start of the agent.
    pub connect_timeout: Duration,
    /// Hosts that are powered off, according to the user: hactl still tries them, but with a short timeout for the
    /// connection. A host that accepts it has the same timeouts as the others.
    pub powered_off: Vec<String>,
    /// How many hosts are worked on at once.
    pub at_once: usize,
    /// The available binaries, the likeliest first.
    pub binaries: Vec<Binary>,
    /// Where identities and known_hosts are when the inventory names none; `None`: `~/.ssh`.
    pub ssh_dir: Option<PathBuf>,
    /// The socket of the SSH agent; `None`: no agent.
    pub agent: Option<PathBuf>,
    /// The sudo password of this run: it takes precedence over the files that the inventory names.
    pub sudo_password: Option<Arc<Secret<String>>>,
    pub(super) jumps: Jumps,
    pub(super) passwords: Passwords,
    /// Whether this host is one of those.
    said_off: bool,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("trust_first_use", &self.trust_first_use)
            .field("binaries", &self.binaries)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// The same for one host: see [`Access::powered_off`].
    #[must_use]
    pub fn to(&self, host: &HostName) -> Self {
        let mut access = self.clone();
        access.said_off = self.powered_off.iter().any(|name| name == host.as_str());
        access
    }

    /// The same for its jump hosts.
    pub(super) fn to_others(&self) -> Self {
        Self { said_off: false, ..self.clone() }
    }

    /// How long a TCP connection may take.
    pub(super) fn dial_timeout(&self) -> Duration {
        if self.said_off { self.connect_timeout.min(POWERED_OFF) } else { self.connect_timeout }
    }

    /// Access with the given binaries, each with the output of `uname -m` where it runs. Reads and digests them.
    pub fn with(binaries: &[(String, PathBuf)]) -> Result<Self, HostError> {
        let binaries =
            binaries.iter().map(|(architecture, path)| digest(architecture, path)).collect::<Result<_, _>>()?;
        let home = std::env::home_dir();
        Ok(Self {
            trust_first_use: false,
            connect_timeout: Duration::from_secs(10),
            powered_off: Vec::new(),
            at_once: AT_ONCE,
            binaries,
            ssh_dir: home.map(|home| home.join(".ssh")),
            agent: std::env::var_os("SSH_AUTH_SOCK").filter(|socket| !socket.is_empty()).map(PathBuf::from),
            sudo_password: None,
            jumps: Jumps::default(),
            passwords: Passwords::default(),
            said_off: false,
        })
    }

    /// Access with this very binary, for hosts of this machine's architecture.
    pub fn this_binary() -> Result<Self, HostError> {
        // The running binary, even when the file it was started from has been replaced meanwhile.
        let running = Path::new("/proc/self/exe");
        let path = if running.exists() {
            running.to_owned()
        } else {
            std::env::current_exe().map_err(|source| HostError::BinaryUnreadable { path: "hactl".into(), source })?
        };
        Self::with(&[(std::env::consts::ARCH.to_owned(), path)])
    }
}

fn digest(architecture: &str, path: &Path) -> Result<Binary, HostError> {
    let unreadable = |source| HostError::BinaryUnreadable { path: path.to_owned(), source };
    let (digest, size) = Digest::of_file(path).map_err(unreadable)?;
    Ok(Binary { architecture: architecture.to_owned(), path: path.to_owned(), digest, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_declared_as_powered_off_get_a_short_dial_timeout() {
        let mut access = Access::with(&[]).expect("nothing is read");
        access.powered_off = vec!["cp1".to_owned()];
        let timeout = |access: &Access, host: &str| access.to(&host.parse().expect("a name")).dial_timeout();
        assert_eq!((timeout(&access, "cp1"), timeout(&access, "cp10")), (POWERED_OFF, Duration::from_secs(10)));
        let off = access.to(&"cp1".parse().expect("a name"));
        assert_eq!(
            off.connect_timeout,
            Duration::from_secs(10),
            "once it answers it has the same timeouts as the others"
        );
        assert_eq!(
            off.to_others().dial_timeout(),
            Duration::from_secs(10),
            "a jump host is not declared as powered off"
        );
        access.connect_timeout = Duration::from_secs(1);
        assert_eq!(timeout(&access, "cp1"), Duration::from_secs(1), "a person may ask for less");
    }
}
