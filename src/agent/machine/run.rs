//! Runs programs of the host: no shell, a deadline, a process group of their own that is killed with them.
//!
//! In: an argument list. Out: the output, or a fault with its last lines. Dropping the future kills the whole group,
//! so nothing outlives the channel that requested it.

use crate::agent::machine::tree::Tree;
use crate::agent::op_error::{Outcome, bad, failed, fault, tail};
use crate::protocol::{OpError, OpErrorKind};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

/// Output kept per stream, bytes; the rest is read and dropped.
const KEPT: usize = 8 << 20;
/// How long a stream may stay open after the program itself has ended (a child of it holds the stream).
const LINGER: Duration = Duration::from_millis(300);
/// The search path of programs, whatever the login shell has.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The output of a program that ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code, unless it was killed; 0 is success.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ran {
    pub(crate) fn ok(&self) -> bool {
        self.code == Some(0)
    }
    /// The last lines of its output.
    pub(crate) fn tail(&self) -> Vec<String> {
        tail(&format!("{}\n{}", self.out, self.err))
    }
    /// A fault about its failure.
    pub(crate) fn fault(&self, doing: &str) -> OpError {
        let how = self.code.map_or_else(|| "was killed".to_owned(), |c| format!("exited with {c}"));
        OpError { kind: OpErrorKind::Failed, what: format!("{doing} {how}"), tail: self.tail() }
    }
}

/// Kills a process group when dropped before it is disarmed.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // The group may have ended already, which is the goal.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Runs a program to its end and returns its output, whatever its exit code.
pub(crate) async fn run(argv: &[&str], within: Duration) -> Outcome<Ran> {
    run_with(argv, &[], within).await
}

/// [`run`] with additional environment.
pub(crate) async fn run_with(argv: &[&str], env: &[(&str, &str)], within: Duration) -> Outcome<Ran> {
    run_on(argv, env, Stdio::null(), None, within).await
}

/// [`run`] with nothing of the own environment but the search path, and this.
pub(crate) async fn run_clean(argv: &[&str], env: &[(&str, &str)], within: Duration) -> Outcome<Ran> {
    let (program, arguments) = argv.split_first().ok_or_else(|| bad("an empty argument list"))?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    ended(command, argv, env, Stdio::null(), within).await
}

/// Runs a program as another user, without supplementary groups, in a directory that this user can enter.
pub(crate) async fn run_as(
    owner: (u32, u32),
    at: &Tree,
    argv: &[&str],
    stdin: impl Into<Stdio>,
    within: Duration,
) -> Outcome<Ran> {
    run_on(argv, &[], stdin.into(), Some((owner, at)), within).await
}

/// Makes a program run as a user, in a directory. The directory is entered by its descriptor, whatever is above it,
/// and the program refers to it by a name that does not lead there from above either: etcd and its tools make
/// absolute paths of relative ones, from `PWD` if that is valid.
pub(crate) fn as_user<'a>(command: &'a mut Command, owner: (u32, u32), at: &Tree) -> &'a mut Command {
    // Other groups are dropped with the user.
    command.uid(owner.0).gid(owner.1).current_dir(at.anchor()).env("PWD", "/proc/self/cwd")
}

/// Runs a program that must succeed with the output of `from` as its stdin.
pub(crate) async fn must_take(argv: &[&str], mut from: impl Read + Send + 'static, within: Duration) -> Outcome<()> {
    let (take, mut give) = std::io::pipe().map_err(|e| failed(format!("could not make a pipe: {e}")))?;
    let feeding = tokio::task::spawn_blocking(move || std::io::copy(&mut from, &mut give).map(|_| ()));
    let ran = run_on(argv, &[], Stdio::from(take), None, within).await?;
    // The output of the program explains more than the broken pipe.
    if !ran.ok() {
        return Err(ran.fault(&argv.join(" ")));
    }
    match feeding.await {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(failed(format!("could not feed {}: {error}", argv.join(" "))))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(failed(format!("hactl itself failed: {error}"))),
    }
}

/// Runs a program with this stdin.
async fn run_on(
    argv: &[&str],
    env: &[(&str, &str)],
    stdin: Stdio,
    user: Option<((u32, u32), &Tree)>,
    within: Duration,
) -> Outcome<Ran> {
    let (program, arguments) = argv.split_first().ok_or_else(|| bad("an empty argument list"))?;
    let mut command = Command::new(program);
    if let Some((owner, at)) = user {
        as_user(&mut command, owner, at);
    }
    command.args(arguments);
    ended(command, argv, env, stdin, within).await
}

/// Starts a command, and waits for its end.
async fn ended(
    mut command: Command,
    argv: &[&str],
    env: &[(&str, &str)],
    stdin: Stdio,
    within: Duration,
) -> Outcome<Ran> {
    let program = argv.first().copied().unwrap_or_default();
    let mut child = command
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .envs(env.iter().copied())
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed(format!("could not run {program}: {e}")))?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut group = Group(pid);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let finished = {
        let reading = async { tokio::join!(collect(stdout, &mut out), collect(stderr, &mut err)) };
        tokio::pin!(reading);
        timeout(within, async {
            let mut read = false;
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status,
                    _ = &mut reading, if !read => read = true,
                }
            };
            // The leader is reaped: its group must no longer be killed by number, unless other processes still hold
            // the streams.
            if !read && timeout(LINGER, &mut reading).await.is_ok() {
                read = true;
            }
            (status, read)
        })
        .await
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, err) = (text(out), text(err));
    let Ok((status, _)) = finished else {
        let what = format!("{} did not end within {} s", argv.join(" "), within.as_secs_f32());
        return Err(OpError { tail: tail(&format!("{out}\n{err}")), ..fault(OpErrorKind::TimedOut, what) });
    };
    group.0 = None;
    let status = status.map_err(|e| failed(format!("could not wait for {program}: {e}")))?;
    Ok(Ran { code: status.code(), out, err })
}

/// Runs a program that must succeed, and returns its standard output.
pub(crate) async fn must(argv: &[&str], within: Duration) -> Outcome<String> {
    let ran = run(argv, within).await?;
    if ran.ok() { Ok(ran.out) } else { Err(ran.fault(&argv.join(" "))) }
}

async fn collect(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; 64 << 10];
    // A read error of a pipe means that it is closed.
    while let Ok(got @ 1..) = from.read(&mut piece).await {
        let room = KEPT.saturating_sub(into.len()).min(got);
        into.extend_from_slice(&piece[..room]);
    }
}

/// The path of this very program.
pub(crate) fn own_program() -> Outcome<String> {
    let me = std::env::current_exe().map_err(|e| failed(format!("hactl cannot find its own binary: {e}")))?;
    me.into_os_string().into_string().map_err(|_| failed("the path of hactl is not UTF-8 text"))
}

/// Runs blocking work off the event loop; a panic in it becomes a fault.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(failed(format!("hactl itself failed: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_and_exit_code_come_back_and_a_missing_program_says_its_name() {
        let ran = run(&["sh", "-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(5)).await.unwrap();
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(3), "out\n", "err\n"));
        assert_eq!(ran.fault("sh").tail, ["out", "err"]);
        assert!(run(&["/nonexistent/x"], Duration::from_secs(5)).await.unwrap_err().what.contains("/nonexistent/x"));
    }

    #[tokio::test]
    async fn a_deadline_kills_grandchildren_too_and_keeps_the_output() {
        let directory = tempfile::tempdir().unwrap();
        let pid_file = directory.path().join("pid");
        let script = format!("echo started; sleep 60 & echo $! > {}; wait", pid_file.display());
        let fault = run(&["sh", "-c", &script], Duration::from_millis(500)).await.unwrap_err();
        assert_eq!(fault.kind, OpErrorKind::TimedOut);
        assert_eq!(fault.tail, ["started"]);
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let gone = || state().is_empty() || state().contains(") Z");
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while !gone() && std::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(gone(), "the grandchild {pid} outlived the deadline");
    }

    #[tokio::test]
    async fn a_daemon_that_keeps_the_stream_open_does_not_hold_up_the_answer() {
        let begun = std::time::Instant::now();
        let ran = run(&["sh", "-c", "sleep 3 & echo done"], Duration::from_secs(10)).await.unwrap();
        assert_eq!(ran.out, "done\n");
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test]
    async fn a_program_reads_its_input_and_one_that_ends_early_reports_its_error() {
        let whole = std::io::Cursor::new(vec![b'x'; 3_000_000]);
        let count = ["sh", "-c", "test $(wc -c) = 3000000"];
        must_take(&count, whole.clone(), Duration::from_secs(10)).await.unwrap();
        let fault =
            must_take(&["sh", "-c", "echo full >&2; exit 1"], whole, Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(fault.tail, ["full"]);
    }

    #[tokio::test]
    async fn a_panic_becomes_a_fault_with_its_words() {
        let fault = blocking(|| -> Outcome<()> { panic!("a bug of ours") }).await.unwrap_err();
        assert!(fault.what.contains("a bug of ours"), "{fault:?}");
    }
}
