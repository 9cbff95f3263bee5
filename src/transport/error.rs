//! Why a host could not be reached, logged in to or used.
//!
//! In: the failures of the transports. Out: one variant per failure, with its numbers, and [`HostError::hint`] with
//! the next thing to do. The host's name is not repeated here: the caller knows it.

use crate::model::facts::Unreachable;
use crate::protocol::{OpError, OpErrorKind};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The phase in which sshd of the host looks up the name of this machine.
pub(super) const LOGGING_IN: &str = "logging in";
/// A phase in which sudo looks up the name of the host.
pub(super) const BECOMING_ROOT: &str = "becoming root by sudo";
/// Another one, if sudo does not ask for a password.
pub(super) const STARTING: &str = "starting hactl on the host";

/// Why there is no TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// The host refused: nothing listens on the port.
    Refused,
    /// The network has no route to the host.
    NoRoute,
    /// Nothing answered in time.
    TimedOut,
    /// The name has no address.
    NoAddress,
    /// The connection was closed before SSH began: sshd is overloaded or filters.
    HungUp,
    /// Anything else; the message says what.
    Other,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the connection was refused",
            Self::NoRoute => "there is no route to it",
            Self::TimedOut => "the connection timed out",
            Self::NoAddress => "the name has no address",
            Self::HungUp => "it was closed before SSH began",
            Self::Other => "the connection failed",
        })
    }
}

/// Why sudo does not make a user root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SudoTrouble {
    /// It asks for a password, and none was given.
    Queries,
    /// Sudo rejected the password. It was tried once.
    WrongPassword,
    /// Another host rejected this password, so it was not tried here.
    NotTried {
        /// `user@host:port` of that host.
        first: String,
    },
    /// Sudo requires a terminal (requiretty).
    NeedsTerminal,
    /// The rules of sudo do not allow the user to run the commands of hactl.
    NotAllowed,
    /// There is no sudo.
    Missing,
    /// Anything else; the output of sudo explains it.
    Other,
}

impl fmt::Display for SudoTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queries => f.write_str("sudo requires a password, and none was given"),
            Self::WrongPassword => f.write_str("sudo rejected the password; hactl tried it once"),
            Self::NotTried { first } => write!(
                f,
                "the password was not tried here, because {first} rejected it and a wrong password tried on every \
                 host may lock the account"
            ),
            Self::NeedsTerminal => f.write_str("sudo requires a terminal (requiretty)"),
            Self::NotAllowed => f.write_str("the rules of sudo do not allow it"),
            Self::Missing => f.write_str("sudo is not installed on the host"),
            Self::Other => f.write_str("sudo failed"),
        }
    }
}

/// What of the login user has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// The password, which must be changed first, also if the login uses a key.
    Password,
    /// The account.
    Account,
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password => "password",
            Self::Account => "account",
        })
    }
}

/// What went wrong with a host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No TCP connection.
    #[error("{address} cannot be reached: {barrier}{}", detail(said))]
    Unreachable {
        /// Host and port.
        address: String,
        /// The reason.
        barrier: Barrier,
        /// The error of the operating system, where it adds something.
        said: String,
    },
    /// Another guard cannot be reached by mutual TLS.
    #[error("the guard at {address} cannot be reached: {why}")]
    Peer {
        /// Address and port.
        address: String,
        /// The reason.
        why: String,
    },
    /// A TCP connection, but no SSH session.
    #[error("the SSH handshake with {address} failed: {why}")]
    Handshake {
        /// Host and port.
        address: String,
        /// The reason.
        why: String,
    },
    /// The host presents a key that is not on record.
    #[error("the host key of {address} is not in known_hosts: {key}{}", appended(notes))]
    UnknownKey {
        /// Host and port.
        address: String,
        /// Type and SHA-256 fingerprint of the key presented.
        key: String,
        /// Records of this host that could not be used, and why.
        notes: Vec<String>,
        /// The file that would record the key.
        file: PathBuf,
    },
    /// The host presents another key than the one on record.
    #[error("THE HOST KEY OF {address} HAS CHANGED: it presents {key}, but {on_record} has {expected}")]
    KeyChanged {
        /// Host and port.
        address: String,
        /// Type and SHA-256 fingerprint of the key presented.
        key: String,
        /// Type and fingerprint on record.
        expected: String,
        /// `file:line` of the record, or that it is the inventory.
        on_record: String,
    },
    /// The host presents a key that was revoked.
    #[error("the host key of {address}, {key}, is marked @revoked in {on_record}")]
    KeyRevoked {
        /// Host and port.
        address: String,
        /// Type and SHA-256 fingerprint of the key presented.
        key: String,
        /// `file:line` of the `@revoked` record.
        on_record: String,
    },
    /// The known_hosts file cannot be read or written.
    #[error("the known_hosts file {} cannot be read or written", path.display())]
    KnownHosts {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The host rejected every key.
    #[error(
        "{address} rejected the login of {user}; tried: {}{}",
        if tried.is_empty() { "nothing, because there is no key to try".to_owned() } else { tried.join(", ") },
        if accepted.is_empty() { String::new() } else { format!("; it accepts: {}", accepted.join(", ")) }
    )]
    AuthFailed {
        /// Host and port.
        address: String,
        /// The user.
        user: String,
        /// Keys tried or skipped, with the reason.
        tried: Vec<String>,
        /// Methods the host would accept.
        accepted: Vec<String>,
    },
    /// The identity file named in the inventory cannot be used.
    #[error("the identity {} cannot be used: {why}", path.display())]
    IdentityUnreadable {
        /// The file.
        path: PathBuf,
        /// The reason, with what to do.
        why: String,
    },
    /// The SSH agent is required and does not answer.
    #[error("the SSH agent at {} does not answer: {why}", socket.display())]
    AgentUnavailable {
        /// Its socket.
        socket: PathBuf,
        /// The reason.
        why: String,
    },
    /// hactl cannot log in to a jump host.
    #[error("the jump host {jump}: {source}")]
    Jump {
        /// `user@host:port`.
        jump: String,
        /// Why.
        source: Arc<HostError>,
    },
    /// A jump host forbids forwarding.
    #[error("the jump host {jump} does not let connections be forwarded, and hactl has no other connection through it")]
    JumpForbidsForwarding {
        /// `user@host:port`.
        jump: String,
    },
    /// The host runs nothing for the user.
    #[error("the {what} of {user} has expired{}", detail(said))]
    Expired {
        /// The user.
        user: String,
        /// The reason.
        what: Expired,
        /// The output of sshd, PAM or sudo.
        said: String,
    },
    /// `sudo` does not make the user root.
    #[error("{user} cannot become root: {trouble}{}", detail(said))]
    NoSudo {
        /// The user.
        user: String,
        /// The reason.
        trouble: SudoTrouble,
        /// The output of sudo.
        said: String,
    },
    /// The file with sudo's password cannot be used.
    #[error("the sudo password in {} cannot be used: {why}", path.display())]
    SudoPassword {
        /// The file.
        path: PathBuf,
        /// The reason, with what to do.
        why: String,
    },
    /// Programs cannot be run from the directory of hactl on the host.
    #[error("programs cannot be run from {path}: its file system is mounted noexec, or a policy forbids it")]
    NoExec {
        /// The directory on the host.
        path: String,
    },
    /// Not enough free space for the agent.
    #[error("{path} has {available} KiB free, but hactl needs {needed} KiB there")]
    NoSpace {
        /// The directory on the host.
        path: String,
        /// Free, KiB.
        available: u64,
        /// Needed, KiB.
        needed: u64,
    },
    /// There is no hactl for the architecture of the host.
    #[error("the host is {host}, but hactl is available for {} only", have.join(", "))]
    WrongArchitecture {
        /// `uname -m` of the host.
        host: String,
        /// The available architectures.
        have: Vec<String>,
    },
    /// Our own binary cannot be read.
    #[error("the hactl binary {} cannot be read", path.display())]
    BinaryUnreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The agent could not be installed or started.
    #[error("hactl could not be started on the host: {output}")]
    BootstrapFailed {
        /// The output of the host.
        output: String,
    },
    /// The process on the host does not speak the protocol.
    #[error("the host does not speak the protocol of hactl; it sent {first:?}")]
    Garbage {
        /// The first 200 printable bytes.
        first: String,
    },
    /// An answer that does not match the request.
    #[error("the answer of the host does not match the request: {what}")]
    Misanswered {
        /// The answer.
        what: String,
    },
    /// The host sent nothing, not even a heartbeat.
    #[error("the host sent nothing for {seconds} s")]
    Silent {
        /// How long.
        seconds: u64,
    },
    /// A message larger than the protocol allows.
    #[error("a message of {length} bytes is larger than the protocol allows")]
    TooLarge {
        /// Its length.
        length: usize,
    },
    /// The operation exceeded its timeout.
    #[error("{doing} took longer than {after:?}{}", detail(waiting_on))]
    TimedOut {
        /// The operation.
        doing: &'static str,
        /// The timeout.
        after: Duration,
        /// The last reason for waiting that the host reported.
        waiting_on: String,
    },
    /// The connection, or the process at its other end, ended during an operation.
    #[error("the connection to the host was lost: {why}")]
    Lost {
        /// The known reason.
        why: String,
    },
    /// A file that should be sent cannot be read.
    #[error("{} cannot be read", path.display())]
    BlobUnreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// sshd starts no further program on this connection.
    #[error("sshd of the host starts no further program on this connection")]
    NoMoreSessions,
    /// sshd forbids tunnels. The agent on the host carries the connections instead.
    #[error("sshd of the host does not let connections be forwarded")]
    ForwardingForbidden,
    /// The local port of a tunnel could not be opened.
    #[error("a local port for a tunnel could not be opened")]
    NoLocalPort(#[source] std::io::Error),
    /// The agent did not start; only for the process on this machine.
    #[error("{} could not be started", program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The host reports that another run holds its lock.
    #[error("another run holds its lock: {by}, since {since}")]
    Locked {
        /// The holder, as the host reports it.
        by: String,
        /// Since when, as the host reports it.
        since: String,
    },
    /// The host understood the request, and the operation failed.
    #[error("{}", .0.what)]
    Op(OpError),
}

/// Notes, as the continuation of a sentence.
fn appended(notes: &[String]) -> String {
    notes.iter().fold(String::new(), |text, note| text + "; " + note)
}

fn detail(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

impl HostError {
    /// An operation that exceeded its timeout; `waiting_on` may be empty.
    pub(super) fn too_slow(doing: &'static str, after: Duration, waiting_on: impl Into<String>) -> Self {
        Self::TimedOut { doing, after, waiting_on: waiting_on.into() }
    }
    /// The error itself, or the error of the jump host.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Jump { source, .. } => source.innermost(),
            error => error,
        }
    }
    /// This failure as facts record it.
    pub fn unreachable(&self) -> Unreachable {
        Unreachable { why: self.to_string(), hint: self.hint() }
    }
    /// Whether the same operation may succeed later or on another host: a deadline passed, or the connection was lost.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Op(fault) => fault.kind == OpErrorKind::TimedOut,
            Self::TimedOut { .. } | Self::Lost { .. } | Self::Silent { .. } => true,
            _ => false,
        }
    }
    /// The last lines of the log of the host that explain it, oldest first.
    pub fn tail(&self) -> &[String] {
        match self {
            Self::Op(fault) => &fault.tail,
            _ => &[],
        }
    }

    /// The next thing to do about it, when there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unreachable { barrier: Barrier::Refused, .. } => {
                "check that sshd of the host listens on this port (ssh.port)".to_owned()
            }
            Self::Unreachable { barrier: Barrier::NoRoute | Barrier::TimedOut, .. } => {
                "check that the host is powered on and its address is right (hosts[].address, ssh.host)".to_owned()
            }
            Self::Unreachable { barrier: Barrier::NoAddress, .. } => "check the host name (ssh.host)".to_owned(),
            Self::Unreachable { barrier: Barrier::HungUp, .. } => {
                "sshd may be starting, overloaded (MaxStartups) or filtering; run the same command again".to_owned()
            }
            Self::UnknownKey { key, file, .. } => format!(
                "compare it with `ssh-keygen -lf` on the console of the host, then add the key to {}, pin it in the \
                 inventory (ssh.fingerprint: {}), or accept the key shown now with --trust-first-use",
                file.display(),
                key.rsplit(' ').next().unwrap_or(key)
            ),
            Self::KeyChanged { on_record, .. } => format!(
                "the host was reinstalled, or somebody intercepts the connection; only if you are certain of the \
                 first, remove the old key ({on_record}) and run again"
            ),
            Self::AuthFailed { tried, .. } if tried.is_empty() => {
                "name a key in the inventory (ssh.identity) or add one to the SSH agent (ssh-add)".to_owned()
            }
            Self::AuthFailed { user, .. } => {
                format!("add one of these keys to ~{user}/.ssh/authorized_keys on the host")
            }
            Self::AgentUnavailable { .. } => {
                "start an SSH agent, or name a key file in the inventory (ssh.identity)".to_owned()
            }
            Self::Jump { source, .. } => return source.hint(),
            Self::JumpForbidsForwarding { jump } => format!(
                "allow it in the sshd_config of {jump} (AllowTcpForwarding local), or use another jump host \
                 (ssh.jump); on other hosts hactl does not need it"
            ),
            Self::Expired { user, what: Expired::Password, .. } => format!(
                "set another password: `ssh {user}@HOST` on a terminal asks for it, or run `passwd {user}` as root on \
                 the host; `chage -M -1 {user}` there keeps it from expiring"
            ),
            Self::Expired { user, what: Expired::Account, .. } => {
                format!("run `chage -E -1 {user}` as root on the host, or log in as another user (ssh.user)")
            }
            Self::NoSudo { user, trouble, .. } => match trouble {
                SudoTrouble::Queries => format!(
                    "provide the password (--ask-sudo-password or ssh.sudo.passwordFile), log in as root, or put \
                     this line into /etc/sudoers.d/hactl on the host: {user} ALL=(root) NOPASSWD: ALL"
                ),
                SudoTrouble::WrongPassword => format!(
                    "try `sudo -k true` as {user} on the host, correct the password, and run the same command again"
                ),
                SudoTrouble::NotTried { first } => format!(
                    "correct the password; if only {first} has another password, set a password file for it \
                     (hosts[].ssh.sudo.passwordFile)"
                ),
                SudoTrouble::NeedsTerminal => {
                    format!("put this line into /etc/sudoers.d/hactl on the host: Defaults:{user} !requiretty")
                }
                SudoTrouble::NotAllowed => format!(
                    "put this line into /etc/sudoers.d/hactl on the host: {user} ALL=(root) ALL (with NOPASSWD: \
                     before the last ALL sudo does not ask for a password); rules for single commands are not \
                     enough, because hactl installs itself first"
                ),
                SudoTrouble::Missing => "install sudo on the host, or log in as root (ssh.user)".to_owned(),
                SudoTrouble::Other => format!(
                    "run `sudo true` as {user} on the host; this line in /etc/sudoers.d/hactl allows the commands of \
                     hactl: {user} ALL=(root) NOPASSWD: ALL"
                ),
            },
            Self::NoExec { path } => {
                format!("remount the file system of {path} without noexec, or mount another file system there")
            }
            Self::NoSpace { path, .. } => format!("free space on the file system of {path}"),
            Self::WrongArchitecture { host, .. } => format!("provide a hactl built for {host} as well"),
            Self::Garbage { .. } => {
                "a shell start-up file on the host prints something (without a terminal ~/.bashrc must print \
                 nothing), or the account has no usable shell"
                    .to_owned()
            }
            Self::Locked { .. } => "wait for that run to end and run the same command again; if there is no such \
                                    run, inspect the host: its agent reports a lock that does not exist"
                .to_owned(),
            Self::TimedOut { doing, .. } if [LOGGING_IN, BECOMING_ROOT, STARTING].contains(doing) => {
                "a likely cause is a name server in /etc/resolv.conf of the host that does not answer, because sshd \
                 and sudo look up names: correct that file, or wait longer (--timeout 60s)"
                    .to_owned()
            }
            Self::NoMoreSessions => "set MaxSessions 10 in sshd_config of the host".to_owned(),
            Self::ForwardingForbidden => "set AllowTcpForwarding local in sshd_config of the host".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_that_waits_for_a_name_server_has_a_hint_that_names_it_also_on_a_jump_host() {
        let late = |doing| HostError::too_slow(doing, Duration::from_secs(10), "");
        for doing in [LOGGING_IN, BECOMING_ROOT, STARTING] {
            let through = HostError::Jump { jump: "ops@gate:22".to_owned(), source: Arc::new(late(doing)) };
            for error in [late(doing), through] {
                let hint = error.hint().unwrap_or_default();
                assert!(hint.contains("/etc/resolv.conf") && hint.contains("--timeout"), "{error}: {hint}");
            }
        }
        assert_eq!(late("the operation").hint(), None, "it may take long for any reason");
    }
}
