//! Runs this machine's own commands (`ip`, `nft`, `lxc-*`, `vagrant`), each with a deadline.
//!
//! In: a command line, perhaps with input. Out: what it printed, or an error that shows its last lines.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Long enough for every command that does not fetch anything.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// How many lines of a failed command are shown.
const TAIL: usize = 20;

/// Why a command is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A command could not be started at all.
    #[error("could not run `{command}`: check that it is installed and in PATH")]
    Spawn {
        /// The command line.
        command: String,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// A command failed.
    #[error("`{command}` ended with {status}\n{tail}")]
    Failed {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// The last lines it printed.
        tail: String,
    },
    /// A command did not end in time.
    #[error("`{command}` did not end within {} s and was killed\n{tail}", .patience.as_secs())]
    TimedOut {
        /// The command line.
        command: String,
        /// How long it was given.
        patience: Duration,
        /// The last lines it printed.
        tail: String,
    },
}

/// A command line that is about to run.
pub struct Run {
    command: Command,
    input: Option<String>,
    patience: Duration,
}

/// What a command left behind.
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Run {
    /// `program` with `arguments`, no input, in the C locale.
    pub fn new(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments);
        Self::from(command)
    }

    /// A command made elsewhere.
    pub fn from(mut command: Command) -> Self {
        command.env("LC_ALL", "C");
        Self { command, input: None, patience: PATIENCE }
    }

    /// More arguments.
    #[must_use]
    pub fn words(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Feeds `text` to standard input.
    #[must_use]
    pub fn input(mut self, text: String) -> Self {
        self.input = Some(text);
        self
    }

    /// Another deadline than [`PATIENCE`].
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs to the end and demands success; answers standard output.
    pub fn ok(self) -> Result<String, ProcessError> {
        let line = self.line();
        let output = self.output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let tail = tail(&format!("{}{}", output.stdout, output.stderr));
        Err(ProcessError::Failed { command: line, status: output.status, tail })
    }

    /// Runs to the end, whatever that is.
    pub fn output(mut self) -> Result<Output, ProcessError> {
        let line = self.line();
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|source| ProcessError::Spawn { command: line.clone(), source })?;
        let (input, sink) = (self.input.take(), child.stdin.take());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|threads| {
            if let (Some(text), Some(mut sink)) = (input, sink) {
                // A command that ends without reading its input says why itself.
                threads.spawn(move || drop(sink.write_all(text.as_bytes())));
            }
            let out = threads.spawn(move || slurp(out));
            let err = threads.spawn(move || slurp(err));
            let ended = wait(&mut child, self.patience);
            let stdout = out.join().unwrap_or_default();
            let stderr = err.join().unwrap_or_default();
            match ended {
                Ok(Some(status)) => Ok(Output { status, stdout, stderr }),
                Ok(None) => {
                    let tail = tail(&format!("{stdout}{stderr}"));
                    Err(ProcessError::TimedOut { command: line, patience: self.patience, tail })
                }
                Err(source) => Err(ProcessError::Spawn { command: line, source }),
            }
        })
    }

    /// The command line, for messages.
    fn line(&self) -> String {
        let mut line = self.command.get_program().to_string_lossy().into_owned();
        for argument in self.command.get_args() {
            line.push(' ');
            line.push_str(&argument.to_string_lossy());
        }
        line
    }
}

/// Waits for the child; `None` when it had to be killed.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    let mut nap = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(20));
    }
}

fn slurp(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // What was read before an error is still worth showing.
        drop(from.read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_shows_its_last_lines() {
        let failed = Run::new("sh", &["-c", "echo one; echo two >&2; exit 3"]).ok();
        let text = failed.expect_err("exit 3 is a failure").to_string();
        assert!(text.contains("exit status: 3") && text.contains("one\ntwo"), "{text}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_at_its_deadline() {
        let begun = Instant::now();
        let hung = Run::new("sleep", &["30"]).patience(Duration::from_millis(50)).ok();
        assert!(matches!(hung, Err(ProcessError::TimedOut { .. })));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn input_reaches_the_command() {
        let copied = Run::new("cat", &[]).input("hello\n".repeat(50_000)).ok();
        assert_eq!(copied.expect("cat copies").len(), 300_000);
    }
}
