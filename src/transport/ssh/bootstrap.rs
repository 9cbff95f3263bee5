//! Starts `hactl host` on a host, and installs it first if it is missing.
//!
//! In: a session and the available binaries. Out: an [`AgentSession`]. The usual case is one exec of a constant
//! command that contains a digest and nothing else. Otherwise `sh` reads a constant script from the channel. The
//! script asks for digest and size, receives the binary, checks it and renames it into place. Nothing is
//! interpolated, and nothing is run from a directory that others can write to.

use super::Session;
use super::root::Root;
use crate::model::desired::SshTarget;
use crate::transport::access::{Access, Binary};
use crate::transport::agent_session::{AgentSession, Greeting};
use crate::transport::error::{HostError, STARTING};
use crate::transport::wire::{ExitReport, Wire, printable};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

const SCRIPT: &str = include_str!("../../../templates/bootstrap.sh");
/// The directory of the binaries, for messages.
const PLACE: &str = "/var/lib/hactl/bin";
/// How long the host may take to accept a piece of the binary, and to check it.
const STALL: Duration = Duration::from_secs(60);
/// A line of the script is shorter than this.
const LONGEST_LINE: u64 = 4096;

/// The command that starts the agent, once it is known to be installed.
#[derive(Clone)]
pub(crate) struct AgentCommand {
    root: Root,
    command: String,
}

impl AgentCommand {
    fn new(root: Root, binary: &Binary) -> Self {
        Self { root, command: format!("{PLACE}/{}/hactl host", binary.digest.hex()) }
    }

    /// Where hactl is stored on the host.
    pub(crate) fn program(&self) -> &str {
        self.command.split(' ').next().unwrap_or_default()
    }

    /// Starts one more agent process.
    pub(crate) async fn wire(&self, session: &Session) -> Result<Wire, HostError> {
        self.root.exec(session, &self.command).await
    }
}

/// Starts the first session of a machine; also returns how to start the next ones.
pub(crate) async fn start(
    session: &Session,
    target: &SshTarget,
    access: &Access,
) -> Result<(AgentSession, AgentCommand), HostError> {
    let root = Root::of(target, access)?;
    let mut said = String::new();
    for binary in &access.binaries {
        let entrance = AgentCommand::new(root.clone(), binary);
        match greet(session, &entrance, access).await? {
            Ok(line) => return Ok((line, entrance)),
            Err(words) => said = words,
        }
    }
    let binary = install(session, &root, access, said).await?;
    let entrance = AgentCommand::new(root, binary);
    match greet(session, &entrance, access).await? {
        Ok(line) => Ok((line, entrance)),
        Err(output) => Err(HostError::BootstrapFailed { output }),
    }
}

/// Starts the agent; the inner error is its output if it ended instead of speaking.
async fn greet(
    session: &Session,
    entrance: &AgentCommand,
    access: &Access,
) -> Result<Result<AgentSession, String>, HostError> {
    let mut line = AgentSession::over(entrance.wire(session).await?);
    match tokio::time::timeout(access.connect_timeout, line.greeting()).await {
        Ok(Ok(Greeting::Hello)) => Ok(Ok(line)),
        Ok(Ok(Greeting::Ended { exit, said })) => {
            // Another attempt would only add another refusal to the log of the host.
            if let Some(error) = entrance.root.trouble(&said) {
                return Err(error);
            }
            let exit = exit.map_or_else(String::new, |exit| format!(" ({exit:?})"));
            Ok(Err(format!("{}{exit}", if said.is_empty() { "it ended without output" } else { &said })))
        }
        Ok(Err(error)) => Err(session.explain(error)),
        Err(_) => Err(HostError::too_slow(STARTING, access.connect_timeout, "its first heartbeat")),
    }
}

/// Installs the right binary on the host.
async fn install<'a>(
    session: &Session,
    root: &Root,
    access: &'a Access,
    said: String,
) -> Result<&'a Binary, HostError> {
    // The script reports that it runs before it reads: sudo may take earlier input for a password. `dd` takes exactly
    // the script from the channel, byte by byte; the script reads what follows. Sudo may have a PATH of its own.
    let command = format!(
        "/bin/sh -c 'PATH=/usr/bin:/bin; echo hactl-bootstrap root; eval \"$(dd bs=1 count={} 2>/dev/null)\"'",
        SCRIPT.len()
    );
    let wire = root.exec(session, &command).await?;
    let mut talk = Talk::over(wire, access.connect_timeout);
    match talk.word(session).await? {
        Word::Root => {}
        Word::Ended(words) => {
            let words = if words.is_empty() { said } else { words };
            return Err(root.stopped(&words).unwrap_or_else(|| Word::Ended(words).stop("")));
        }
        other => return Err(other.stop(&said)),
    }
    talk.write(SCRIPT.as_bytes()).await.map_err(|()| talk_failed(&said))?;
    let architecture = match talk.word(session).await? {
        Word::Hello(architecture) => architecture,
        other => return Err(other.stop(&said)),
    };
    let Some(binary) = access.binaries.iter().find(|binary| binary.architecture == architecture) else {
        let have = access.binaries.iter().map(|binary| binary.architecture.clone()).collect();
        return Err(HostError::WrongArchitecture { host: architecture, have });
    };
    let unreadable = |source| HostError::BinaryUnreadable { path: binary.path.clone(), source };
    let order = format!("{} {}\n", binary.digest.hex(), binary.size);
    talk.write(order.as_bytes()).await.map_err(|()| talk_failed(&said))?;
    match talk.word(session).await? {
        Word::Have => {
            talk.end().await;
            return Ok(binary);
        }
        Word::Send => {}
        other => return Err(other.stop(&said)),
    }
    let mut file = tokio::fs::File::open(&binary.path).await.map_err(unreadable)?.take(binary.size);
    let mut piece = vec![0; 256 << 10];
    talk.timeout = STALL;
    loop {
        let read = file.read(&mut piece).await.map_err(unreadable)?;
        // If it does not read, the script explains itself on exit.
        if read == 0 || talk.write(&piece[..read]).await.is_err() {
            break;
        }
    }
    match talk.word(session).await? {
        Word::Done => {
            talk.end().await;
            Ok(binary)
        }
        other => Err(other.stop(&said)),
    }
}

fn talk_failed(said: &str) -> HostError {
    HostError::BootstrapFailed { output: format!("its shell does not read its input; before that: {said}") }
}

/// The output of the script.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// It runs as root, and reads from now on.
    Root,
    Hello(String),
    Have,
    Send,
    Done,
    NoExec,
    NoSpace {
        free: u64,
        need: u64,
    },
    Refused(String),
    /// Not output of the script.
    Foreign(String),
    /// It ended, with this on stderr.
    Ended(String),
}

impl Word {
    fn parse(line: &str) -> Self {
        let foreign = || Self::Foreign(printable(line.as_bytes(), 200));
        let Some(words) = line.trim_end().strip_prefix("hactl-bootstrap ") else { return foreign() };
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        match (word, rest) {
            ("hello", name) if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                Self::Hello(name.to_owned())
            }
            ("root", "") => Self::Root,
            ("have", "") => Self::Have,
            ("send", "") => Self::Send,
            ("done", "") => Self::Done,
            ("no-exec", "") => Self::NoExec,
            ("no-space", numbers) => match numbers.split_once(' ').map(|(a, b)| (a.parse(), b.parse())) {
                Some((Ok(free), Ok(need))) => Self::NoSpace { free, need },
                _ => foreign(),
            },
            ("refused", what) => Self::Refused(printable(what.as_bytes(), 200)),
            _ => foreign(),
        }
    }

    /// The error that a word means where another was due; `before` is the output of the first attempt.
    fn stop(self, before: &str) -> HostError {
        match self {
            Self::NoExec => HostError::NoExec { path: PLACE.to_owned() },
            Self::NoSpace { free, need } => {
                HostError::NoSpace { path: PLACE.to_owned(), available: free, needed: need }
            }
            Self::Refused(output) => HostError::BootstrapFailed { output },
            Self::Foreign(first) => HostError::Garbage { first },
            Self::Ended(words) if words.is_empty() => HostError::BootstrapFailed { output: before.to_owned() },
            Self::Ended(output) => HostError::BootstrapFailed { output },
            other => HostError::BootstrapFailed { output: format!("it said {other:?} out of order") },
        }
    }
}

/// The conversation with the script.
struct Talk {
    reader: BufReader<Box<dyn tokio::io::AsyncRead + Send + Unpin>>,
    writer: Box<dyn tokio::io::AsyncWrite + Send + Unpin>,
    exit_report: ExitReport,
    timeout: Duration,
}

impl Talk {
    fn over(wire: Wire, timeout: Duration) -> Self {
        Self { reader: BufReader::new(wire.reader), writer: wire.writer, exit_report: wire.exit_report, timeout }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ()> {
        tokio::time::timeout(self.timeout, self.writer.write_all(bytes)).await.map_err(drop)?.map_err(drop)
    }

    /// Waits until the script has ended: sshd refuses the next session if it allows only one.
    async fn end(mut self) {
        // Its work is done: further output, or no end, does not matter, and the next start reports what is wrong.
        let _ = tokio::time::timeout(self.timeout, tokio::io::copy(&mut self.reader, &mut tokio::io::sink())).await;
    }

    async fn word(&mut self, session: &Session) -> Result<Word, HostError> {
        let mut line = Vec::new();
        let reading = async { (&mut self.reader).take(LONGEST_LINE).read_until(b'\n', &mut line).await };
        match tokio::time::timeout(self.timeout, reading).await {
            Ok(Ok(0)) => match session.gone() {
                Some(why) => Err(HostError::Lost { why }),
                None => Ok(Word::Ended(self.exit_report.said())),
            },
            Ok(Ok(_)) => Ok(match Word::parse(&String::from_utf8_lossy(&line)) {
                Word::Refused(what) => {
                    Word::Refused(format!("{what} {}", self.exit_report.said()).trim_end().to_owned())
                }
                word => word,
            }),
            Ok(Err(error)) => Err(HostError::Lost { why: error.to_string() }),
            Err(_) => Err(HostError::too_slow("installing hactl on the host", self.timeout, self.exit_report.said())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_script_are_understood_and_nothing_else_is() {
        assert_eq!(Word::parse("hactl-bootstrap root\n"), Word::Root);
        assert_eq!(Word::parse("hactl-bootstrap hello x86_64\n"), Word::Hello("x86_64".into()));
        assert_eq!(Word::parse("hactl-bootstrap no-space 12 3400\n"), Word::NoSpace { free: 12, need: 3400 });
        assert_eq!(Word::parse("hactl-bootstrap refused bad size"), Word::Refused("bad size".into()));
        for foreign in
            ["Welcome!", "hactl-bootstrap hello $(id)", "hactl-bootstrap no-space a b", "hactl-bootstrap done x", ""]
        {
            assert!(matches!(Word::parse(foreign), Word::Foreign(_)), "{foreign}");
        }
    }

    #[test]
    fn the_script_is_plain_ascii_so_that_dd_counts_its_length_in_bytes() {
        assert!(SCRIPT.is_ascii() && SCRIPT.ends_with('\n'));
    }
}
