//! Programs that are measured: how long they take, how much memory they use, and when they print what.
//!
//! In: a command. Out: what the kernel counted for it once it had ended, by time(1), and its lines with the time at
//! which each came.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a program went.
pub struct Timed {
    /// Exit code.
    pub code: i32,
    /// From the start to the end.
    pub took: Duration,
    /// Most memory it had at once, MB.
    pub peak_mb: f64,
    /// Processor time of it and of the programs that it waited for, seconds.
    pub cpu: f64,
    /// Lines of its standard output, and when each came.
    pub lines: Vec<(Duration, String)>,
    /// Its standard error.
    pub err: String,
}

impl Timed {
    /// Runs the program to its end.
    pub fn run(command: &Command) -> Self {
        let report = tempfile::NamedTempFile::new().expect("a file can be made");
        let mut timed = Command::new("time");
        timed.args(["-f", "%M %U %S", "-o"]).arg(report.path());
        timed.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => timed.env(name, value),
                None => timed.env_remove(name),
            };
        }
        let begun = Instant::now();
        let mut child = timed
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("time(1) is there: `make packages`");
        let mut stderr = child.stderr.take().expect("piped");
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).ok();
            text
        });
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let lines = out.lines().map_while(Result::ok).map(|line| (begun.elapsed(), line)).collect();
        let code = child.wait().expect("it ends").code().unwrap_or(-1);
        let took = begun.elapsed();
        // If the program failed, time(1) prints a sentence of its own first.
        let text = std::fs::read_to_string(report.path()).expect("written by time");
        let last: Vec<f64> =
            text.lines().last().unwrap_or_default().split(' ').filter_map(|n| n.parse().ok()).collect();
        let [kib, user, system] = last[..] else { panic!("time said {text:?}") };
        let err = err.join().expect("read");
        Self { code, took, peak_mb: kib * 1024.0 / 1e6, cpu: user + system, lines, err }
    }

    /// Checks its exit code.
    pub fn exits(self, code: i32) -> Self {
        assert!(self.code == code, "expected exit {code}: {}", self.all());
        self
    }

    /// The end of what it printed, for a failed assertion.
    pub fn all(&self) -> String {
        let end = self.lines.len().saturating_sub(20);
        let out: Vec<&str> = self.lines[end..].iter().map(|(_, line)| line.as_str()).collect();
        format!("exit {} after {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.took, out.join("\n"), self.err)
    }
}
