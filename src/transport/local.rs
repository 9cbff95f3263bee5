//! `hactl host` as a child process of this machine: the same protocol without SSH, for tests and for the local host.

use super::counters::{Counted, Counters};
use super::error::HostError;
use super::wire::{Exit, ExitReport, Wire, intake};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio_util::bytes::Bytes;

/// Starts the program. It is killed when the wire is dropped.
pub(super) fn start(program: &Path, args: &[String], counters: &Arc<Counters>) -> Result<Wire, HostError> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| HostError::NotStarted { program: program.to_owned(), source })?;
    counters.exec();
    let stdin = child.stdin.take().expect("it was asked for");
    let stdout = Counted::new(child.stdout.take().expect("it was asked for"), counters.clone());
    let stderr = child.stderr.take().expect("it was asked for");
    let (to, intake) = intake();
    let exit_report = ExitReport::default();
    let words = exit_report.clone();
    tokio::spawn(async move {
        let closed = to.clone();
        tokio::select! {
            () = run(child, stdout, stderr, to, words) => {}
            () = closed.closed() => {}
        }
    });
    let writer = Box::new(Counted::new(stdin, counters.clone()));
    Ok(Wire { reader: Box::new(intake), writer, exit_report })
}

async fn run(
    mut child: Child,
    mut stdout: impl AsyncRead + Unpin,
    mut stderr: impl AsyncRead + Unpin,
    to: mpsc::Sender<Bytes>,
    exit_report: ExitReport,
) {
    let saying = async {
        let mut piece = vec![0; 64 << 10];
        while let Ok(read @ 1..) = stdout.read(&mut piece).await {
            if to.send(Bytes::copy_from_slice(&piece[..read])).await.is_err() {
                return;
            }
        }
    };
    let complaining = async {
        let mut piece = [0; 1024];
        while let Ok(read @ 1..) = stderr.read(&mut piece).await {
            exit_report.stderr(&piece[..read]);
        }
    };
    tokio::join!(saying, complaining);
    if let Ok(status) = child.wait().await {
        exit_report.exit(match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default().to_string()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Agent as _, Machine};
    use super::*;
    use std::io::Write as _;
    use std::time::{Duration, Instant};

    /// An executable written by another process: ours may be forking for another test while the file is open.
    fn script(dir: &Path, text: &str) -> std::path::PathBuf {
        let path = dir.join("program");
        let command = "cat > \"$0\" && chmod +x \"$0\"";
        let mut shell =
            std::process::Command::new("sh").arg("-c").arg(command).arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        path
    }

    #[tokio::test]
    async fn a_process_of_this_machine_is_entered_by_its_hello_and_ends_with_its_machine() {
        let dir = tempfile::tempdir().unwrap();
        let beat = r#"{"Heartbeat":{"id":0,"on":""}}"#;
        let said = format!("\\000\\000\\000\\{:03o}J%s", beat.len());
        let text = format!("#!/bin/sh\necho \"$$ $*\" > \"$0.ran\"\nprintf '{said}' '{beat}'\nexec sleep 1000\n");
        let program = script(dir.path(), &text);
        let machine =
            Machine::local(&"here".parse().unwrap(), &program, &["--root".into(), "/tmp/x".into()]).await.unwrap();
        let ran = std::fs::read_to_string(dir.path().join("program.ran")).unwrap();
        let (pid, args) = ran.trim().split_once(' ').unwrap();
        assert_eq!(args, "host --root /tmp/x");
        assert_eq!(machine.counters().execs, 1);
        machine.close().await;
        let deadline = Instant::now() + Duration::from_secs(5);
        while Path::new("/proc").join(pid).join("exe").read_link().is_ok() {
            assert!(Instant::now() < deadline, "it still runs");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_program_that_ends_at_once_and_a_missing_one_get_different_errors() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "#!/bin/sh\necho no such thing >&2\nexit 4\n");
        let name = "here".parse().unwrap();
        let error = Machine::local(&name, &program, &[]).await.unwrap_err();
        assert!(matches!(&error, HostError::BootstrapFailed { output } if output.contains("no such thing")), "{error}");
        let error = Machine::local(&name, &dir.path().join("none"), &[]).await.unwrap_err();
        assert!(matches!(error, HostError::NotStarted { .. }), "{error}");
    }
}
