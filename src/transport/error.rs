//! Why a host could not be reached, entered, understood or obeyed.
//!
//! In: what the carriers ran into. Out: one variant per thing that failed, with its numbers, and [`HostError::hint`] with the next
//! thing to do. The host's name is not repeated here: whoever asked knows whom.

use crate::model::facts::Unreachable;
use crate::protocol::Fault;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What stood between us and an open TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Something answered and refused: nothing listens on the port.
    Refused,
    /// The network knows no way there.
    NoRoute,
    /// Nothing answered in time.
    TimedOut,
    /// The name has no address.
    NoAddress,
    /// The connection was closed before SSH began, as an overloaded or filtering sshd does.
    HungUp,
    /// Anything else; the message says what.
    Other,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the connection was refused",
            Self::NoRoute => "there is no route to it",
            Self::TimedOut => "nothing answered in time",
            Self::NoAddress => "the name has no address",
            Self::HungUp => "it hung up before SSH began",
            Self::Other => "the connection failed",
        })
    }
}

/// What keeps sudo from making a user root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SudoTrouble {
    /// It asks for a password, and none was given.
    Queries,
    /// It did not take the password. It was tried once.
    WrongPassword,
    /// Another host did not take this password, so it was not tried here.
    NotTried {
        /// `user@host:port` of that host.
        first: String,
    },
    /// It wants a terminal (requiretty).
    NeedsTerminal,
    /// Its rules do not allow the user to run what hactl runs.
    NotAllowed,
    /// There is no sudo.
    Missing,
    /// Anything else; its own words say what.
    Other,
}

impl fmt::Display for SudoTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queries => f.write_str("sudo asks for a password, and none was given"),
            Self::WrongPassword => f.write_str("sudo did not take the password; it was tried once"),
            Self::NotTried { first } => write!(
                f,
                "the password was not tried here, for {first} did not take it, and a wrong one tried everywhere may lock the account"
            ),
            Self::NeedsTerminal => f.write_str("sudo wants a terminal (requiretty)"),
            Self::NotAllowed => f.write_str("sudo's rules do not allow it"),
            Self::Missing => f.write_str("there is no sudo on the host"),
            Self::Other => f.write_str("sudo did not do it"),
        }
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
        /// What stood in the way.
        barrier: Barrier,
        /// The system's words, when they add something.
        said: String,
    },
    /// A TCP connection, but no SSH on it.
    #[error("no SSH session with {address}: {why}")]
    Handshake {
        /// Host and port.
        address: String,
        /// The reason.
        why: String,
    },
    /// The host presents a key that nobody vouched for.
    #[error("the host key of {address} is not known: {key}{}", appended(notes))]
    UnknownKey {
        /// Host and port.
        address: String,
        /// Type and SHA-256 fingerprint of the key presented.
        key: String,
        /// Records for this host that could not be used, and why.
        notes: Vec<String>,
        /// Where a record would be kept.
        file: PathBuf,
    },
    /// The host presents another key than the one on record.
    #[error("THE HOST KEY OF {address} HAS CHANGED: it presents {key}, but {on_record} says {expected}")]
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
        /// `file:line` of the mark.
        on_record: String,
    },
    /// The record of host keys cannot be read or written.
    #[error("the known hosts file {} cannot be used", path.display())]
    KnownHosts {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nothing we have opens the door.
    #[error(
        "{address} did not let {user} in; tried: {}{}",
        if tried.is_empty() { "nothing, for there is no key to try".to_owned() } else { tried.join(", ") },
        if accepted.is_empty() { String::new() } else { format!("; it accepts: {}", accepted.join(", ")) }
    )]
    AuthFailed {
        /// Host and port.
        address: String,
        /// The user.
        user: String,
        /// Keys tried or passed over, with the reason.
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
    /// The SSH agent was needed and does not answer.
    #[error("the SSH agent at {} does not answer: {why}", socket.display())]
    AgentUnavailable {
        /// Its socket.
        socket: PathBuf,
        /// The reason.
        why: String,
    },
    /// A host that others are reached through cannot be entered.
    #[error("the jump host {jump}: {source}")]
    Jump {
        /// `user@host:port`.
        jump: String,
        /// Why.
        source: Arc<HostError>,
    },
    /// A host that others are reached through lets nobody through.
    #[error("the jump host {jump} does not let connections be forwarded, and there is no other way through it")]
    JumpForbidsForwarding {
        /// `user@host:port`.
        jump: String,
    },
    /// `sudo` does not make the user root.
    #[error("{user} cannot become root: {trouble}{}", detail(said))]
    NoSudo {
        /// The user.
        user: String,
        /// What stands in the way.
        trouble: SudoTrouble,
        /// What sudo said.
        said: String,
    },
    /// The file with sudo's password cannot be used.
    #[error("the password for sudo in {} cannot be used: {why}", path.display())]
    SudoPassword {
        /// The file.
        path: PathBuf,
        /// The reason, with what to do.
        why: String,
    },
    /// Programs cannot be run from where the host's side would live.
    #[error("{path} is on a file system that does not run programs (noexec), or is otherwise barred from it")]
    NoExec {
        /// The directory on the host.
        path: String,
    },
    /// No room for the host's side.
    #[error("{path} has {available} KiB free, the host's side of hactl needs {needed} KiB")]
    NoSpace {
        /// The directory on the host.
        path: String,
        /// Free, KiB.
        available: u64,
        /// Needed, KiB.
        needed: u64,
    },
    /// There is no hactl for the host's processor.
    #[error("the host is {host}, and hactl is at hand for {} only", have.join(", "))]
    WrongArchitecture {
        /// `uname -m` of the host.
        host: String,
        /// What there is.
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
    /// The host's side could not be put in place or started.
    #[error("hactl could not be started on the host: {output}")]
    BootstrapFailed {
        /// What the host said.
        output: String,
    },
    /// The other side talks, but not in our words.
    #[error("the host does not speak hactl's protocol; it said: {first:?}")]
    Garbage {
        /// The first 200 printable bytes.
        first: String,
    },
    /// An answer that does not fit the question.
    #[error("the host gave an answer that does not fit the question: {what}")]
    Misanswered {
        /// What came.
        what: String,
    },
    /// Nothing was heard, not even a heartbeat.
    #[error("nothing was heard from the host for {seconds} s")]
    Silent {
        /// How long.
        seconds: u64,
    },
    /// A message larger than either side accepts.
    #[error("a message of {length} bytes is larger than the protocol allows")]
    TooLarge {
        /// Its length.
        length: usize,
    },
    /// The patience of the caller ended.
    #[error("{doing} took longer than {after:?}{}", detail(waiting_on))]
    TimedOut {
        /// What was being done.
        doing: &'static str,
        /// The deadline.
        after: Duration,
        /// What the host last said it was waiting for.
        waiting_on: String,
    },
    /// The connection, or the process at its other end, ended in the middle of things.
    #[error("the connection to the host was lost: {why}")]
    Lost {
        /// What is known about it.
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
    /// The sshd starts no further program on this connection.
    #[error("the host's sshd starts no further program on this connection")]
    NoMoreSessions,
    /// The sshd forbids tunnels. hactl's own side on the host stands in for them.
    #[error("the host's sshd does not let connections be forwarded")]
    ForwardingForbidden,
    /// The near end of a tunnel could not be opened.
    #[error("no local port could be opened for a tunnel")]
    NoLocalPort(#[source] std::io::Error),
    /// The host did not start at all; only for this machine's own process.
    #[error("{} could not be started", program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The host says that another run holds its lock.
    #[error("another run holds its lock: {by}, since {since}")]
    Locked {
        /// Who, as the host says.
        by: String,
        /// Since when, as the host says.
        since: String,
    },
    /// The host understood and failed.
    #[error("{}", .0.what)]
    Fault(Fault),
}

/// Notes as a sentence goes on with them.
fn appended(notes: &[String]) -> String {
    notes.iter().fold(String::new(), |text, note| text + "; " + note)
}

fn detail(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

impl HostError {
    /// The error itself, where it is a jump host's.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Jump { source, .. } => source.innermost(),
            error => error,
        }
    }
    /// A host that failed like this, as facts know it.
    pub fn silence(&self) -> Unreachable {
        Unreachable { why: self.to_string(), hint: self.hint() }
    }
    /// Last lines of the host's log that explain it, oldest first.
    pub fn tail(&self) -> &[String] {
        match self {
            Self::Fault(fault) => &fault.tail,
            _ => &[],
        }
    }

    /// The next thing to do about it, when there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unreachable { barrier: Barrier::Refused, .. } => "is sshd running there, on this port? (ssh.port)".to_owned(),
            Self::Unreachable { barrier: Barrier::NoRoute | Barrier::TimedOut, .. } => {
                "is the host powered on, and its address right? (hosts[].address, ssh.host)".to_owned()
            }
            Self::Unreachable { barrier: Barrier::NoAddress, .. } => "check the name (ssh.host)".to_owned(),
            Self::Unreachable { barrier: Barrier::HungUp, .. } => {
                "its sshd may be starting, overloaded (MaxStartups) or filtering; run the same command again".to_owned()
            }
            Self::UnknownKey { key, file, .. } => format!(
                "compare with `ssh-keygen -lf` on the host's console, then add the key to {}, or pin it in the inventory \
                 (ssh.fingerprint: {}), or accept what is seen now with --trust-first-use",
                file.display(),
                key.rsplit(' ').next().unwrap_or(key)
            ),
            Self::KeyChanged { on_record, .. } => format!(
                "either the host was reinstalled or somebody is between you and it; only when you are certain of the first, \
                 remove the old key ({on_record}) and run again"
            ),
            Self::AuthFailed { tried, .. } if tried.is_empty() => {
                "name a key in the inventory (ssh.identity) or add one to the agent (ssh-add)".to_owned()
            }
            Self::AuthFailed { user, .. } => format!("is one of these keys in ~{user}/.ssh/authorized_keys on the host?"),
            Self::AgentUnavailable { .. } => "start an agent, or name a key file in the inventory (ssh.identity)".to_owned(),
            Self::Jump { source, .. } => return source.hint(),
            Self::JumpForbidsForwarding { jump } => format!(
                "allow it in the sshd_config of {jump} (AllowTcpForwarding local), or name another way (ssh.jump); on all other hosts \
                 hactl does without"
            ),
            Self::NoSudo { user, trouble, .. } => match trouble {
                SudoTrouble::Queries => format!(
                    "give the password (--ask-sudo-password asks for it, ssh.sudo.passwordFile names a file), log in as root, or put \
                     this line into /etc/sudoers.d/hactl on the host: {user} ALL=(root) NOPASSWD: ALL"
                ),
                SudoTrouble::WrongPassword => format!(
                    "try `sudo -k true` as {user} on the host itself, correct the password, and run the same command again"
                ),
                SudoTrouble::NotTried { first } => format!(
                    "correct the password; if {first} alone has another one, give it a password file of its own \
                     (hosts[].ssh.sudo.passwordFile)"
                ),
                SudoTrouble::NeedsTerminal => {
                    format!("put this line into /etc/sudoers.d/hactl on the host: Defaults:{user} !requiretty")
                }
                SudoTrouble::NotAllowed => format!(
                    "put this line into /etc/sudoers.d/hactl on the host: {user} ALL=(root) ALL (with NOPASSWD: before the last ALL sudo \
                     does not ask either); rules for single commands are not enough, for hactl puts itself there first"
                ),
                SudoTrouble::Missing => "install sudo on the host, or log in as root (ssh.user)".to_owned(),
                SudoTrouble::Other => format!(
                    "see what `sudo true` says as {user} on the host; this line in /etc/sudoers.d/hactl allows what hactl needs: \
                     {user} ALL=(root) NOPASSWD: ALL"
                ),
            },
            Self::NoExec { path } => format!("remount the file system of {path} without noexec, or mount another one there"),
            Self::NoSpace { path, .. } => format!("free some space on the file system of {path}"),
            Self::WrongArchitecture { host, .. } => format!("hand over a hactl built for {host} as well"),
            Self::Garbage { .. } => {
                "a shell start-up file on the host prints something (keep ~/.bashrc silent without a terminal), or the account has \
                 no usable shell"
                    .to_owned()
            }
            Self::Locked { .. } => "wait for that run to end and run the same command again; where there is no such run, look at the host \
                                    itself: what it says of its lock is not true"
                .to_owned(),
            Self::NoMoreSessions => "allow more in the host's sshd_config: MaxSessions 10".to_owned(),
            Self::ForwardingForbidden => "allow it in the host's sshd_config: AllowTcpForwarding local".to_owned(),
            _ => return None,
        })
    }
}
