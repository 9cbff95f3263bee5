//! Runs commands of this machine (`ip`, `nft`, `lxc-*`, `vagrant`), each with a deadline.
//!
//! In: a command line and optional input. Out: its output, or an error with its last lines.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Keeps the memory of this process, which may contain keys, out of core dumps and away from other processes of the
/// same user. Errors are ignored, because hactl works without these limits. The processes it starts may set their own.
pub fn leave_no_core() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Only the soft limit: a lab's hosts inherit the hard limit, and their units could not raise it again.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum });
}

/// Enough for every command that downloads nothing.
pub const TIMEOUT: Duration = Duration::from_mins(1);
/// How long to wait for killed processes to exit.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// How many lines of a failed command are shown.
const TAIL: usize = 20;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A command could not be started at all.
    #[error("could not run `{command}`: check that it is installed and in PATH")]
    Spawn {
        /// The command line.
        command: String,
        /// The system's error.
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
    #[error("`{command}` did not end within {} s and was killed\n{tail}", .timeout.as_secs())]
    TimedOut {
        /// The command line.
        command: String,
        /// The deadline.
        timeout: Duration,
        /// The last lines it printed.
        tail: String,
    },
}

/// A command line that is about to run.
pub struct Run {
    command: Command,
    input: Option<String>,
    timeout: Duration,
}

/// The result of a command.
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

    /// A command that was built elsewhere.
    pub fn from(mut command: Command) -> Self {
        command.env("LC_ALL", "C");
        Self { command, input: None, timeout: TIMEOUT }
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

    /// Another deadline than [`TIMEOUT`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the command and requires success; returns its standard output.
    pub fn ok(self) -> Result<String, ProcessError> {
        let line = self.line();
        let output = self.output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let tail = tail(&format!("{}{}", output.stdout, output.stderr));
        Err(ProcessError::Failed { command: line, status: output.status, tail })
    }

    /// Runs the command; returns its exit status, whatever it is.
    pub fn output(mut self) -> Result<Output, ProcessError> {
        let line = self.line();
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|source| ProcessError::Spawn { command: line.clone(), source })?;
        let (input, sink) = (self.input.take(), child.stdin.take());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        if let (Some(text), Some(mut sink)) = (input, sink) {
            // A command that exits without reading its input reports the reason itself.
            std::thread::spawn(move || drop(sink.write_all(text.as_bytes())));
        }
        let (out, err) = (Reader::of(out), Reader::of(err));
        match wait(&mut child, self.timeout) {
            Ok(Some(status)) => Ok(Output { status, stdout: out.all(), stderr: err.all() }),
            Ok(None) => {
                let tail = tail(&format!("{}{}", out.so_far(), err.so_far()));
                Err(ProcessError::TimedOut { command: line, timeout: self.timeout, tail })
            }
            Err(source) => Err(ProcessError::Spawn { command: line, source }),
        }
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

/// Waits for the child; `None` if it had to be killed.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    let mut nap = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            let others = descendants(child.id());
            child.kill()?;
            child.wait()?;
            for pid in others.iter().filter_map(|pid| rustix::process::Pid::from_raw(*pid)) {
                // It has exited meanwhile.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            // Killing only sends a signal, and a process closes its files when it exits. One that hangs in the kernel
            // is not waited for.
            let last_look = Instant::now() + LAST_BREATH;
            while others.iter().any(|pid| lives(*pid)) && Instant::now() < last_look {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Ok(None);
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(20));
    }
}

/// Whether a process exists and has not exited.
fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The state follows the process name, which may contain any character.
    let state = stat.ok().and_then(|stat| stat.rsplit_once(')')?.1.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// All descendants of a process: they hold its pipes and its locks.
fn descendants(of: u32) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The state and the parent follow the process name, which may contain any character.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let all: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let parents: Vec<(i32, i32)> = all.into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![i32::try_from(of).unwrap_or(-1)];
    let mut at = 0;
    while at < found.len() {
        let children = parents.iter().filter(|(pid, parent)| *parent == found[at] && !found.contains(pid));
        let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
        found.extend(children);
        at += 1;
    }
    found.split_off(1)
}

/// Reads a pipe in a thread, so that a process that keeps it open does not block the caller.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Reader {
    fn of(from: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&bytes);
        let read = move |mut from: Box<dyn Read + Send>| {
            let mut piece = [0; 8192];
            loop {
                match from.read(&mut piece) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Output that arrived before an error is still worth showing.
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        if let Ok(mut to) = to.lock() {
                            to.extend_from_slice(&piece[..count]);
                        }
                    }
                }
            }
        };
        Self { bytes, thread: from.map(|from| std::thread::spawn(move || read(Box::new(from)))) }
    }
    /// The complete output, once all writers have closed the pipe.
    fn all(mut self) -> String {
        if let Some(thread) = self.thread.take() {
            // If the reader panicked, its output so far counts.
            drop(thread.join());
        }
        self.so_far()
    }
    fn so_far(&self) -> String {
        let bytes = self.bytes.lock().map(|bytes| bytes.clone()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
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
        let hung = Run::new("sleep", &["30"]).timeout(Duration::from_millis(50)).ok();
        assert!(matches!(hung, Err(ProcessError::TimedOut { .. })));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_deadline_also_applies_to_children_of_a_command() {
        let begun = Instant::now();
        let script = "sleep 31.25 & echo begun; wait";
        let hung = Run::new("sh", &["-c", script]).timeout(Duration::from_millis(300)).ok();
        let Err(ProcessError::TimedOut { tail, .. }) = hung else { panic!("it hangs") };
        assert_eq!(tail, "begun");
        assert!(begun.elapsed() < Duration::from_secs(5));
        let entries = std::fs::read_dir("/proc").expect("there are processes").flatten();
        let lives = |entry: &std::fs::DirEntry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|c| c == b"sleep\x0031.25\0")
        };
        assert_eq!(entries.filter(lives).count(), 0, "its descendants are gone as well");
    }

    #[test]
    fn input_reaches_the_command() {
        let copied = Run::new("cat", &[]).input("hello\n".repeat(50_000)).ok();
        assert_eq!(copied.expect("cat copies").len(), 300_000);
    }
}
