//! Makes an [`OpError`] of an error, with the path or unit in its sentence.
//!
//! In: an I/O error and the operation in words. Out: the fault to return. One place decides that a full disk is a
//! [`OpErrorKind::DiskFull`] and adds its numbers.

use crate::protocol::{OpError, OpErrorKind};
use std::io;
use std::path::Path;

/// How many lines of a log travel with a fault.
pub(super) const TAIL: usize = 20;

/// The result of an operation.
pub(super) type Outcome<T> = Result<T, OpError>;

/// A fault without a log.
pub(super) fn fault(kind: OpErrorKind, what: impl Into<String>) -> OpError {
    OpError { kind, what: what.into(), tail: Vec::new() }
}

/// A fault of no special kind.
pub(super) fn failed(what: impl Into<String>) -> OpError {
    fault(OpErrorKind::Failed, what)
}

/// An invalid request.
pub(super) fn bad(what: impl Into<String>) -> OpError {
    fault(OpErrorKind::BadRequest, what)
}

/// The last [`TAIL`] lines of some output.
pub(super) fn tail(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL)..].iter().map(|l| l.chars().take(500).collect()).collect()
}

/// How the line of etcd's fence begins if it keeps the member down.
pub(super) const STAYS_DOWN: &str = "etcd stays down: ";

/// The lines that explain a failure: the errors in the log, only those since the last stop of the unit if there are
/// any. Without errors, all lines except the stacks of goroutines, which would push earlier output out of sight.
pub(super) fn telling(log: &str) -> String {
    let loud = |line: &&str| {
        line.starts_with("panic: ")
            || line.starts_with("Error: ")
            || line.starts_with(STAYS_DOWN)
            || line.contains(": Failed at step ")
            || line.contains(": Failed to determine ")
            || klog(line)
            || ["error", "fatal", "panic"].iter().any(|l| line.starts_with(&format!("{{\"level\":\"{l}\"")))
    };
    let stack = |line: &str| {
        line.starts_with('\t') || line.starts_with("goroutine ") || line.contains("(0x") || line.contains("{0x")
    };
    let lines: Vec<&str> = log.lines().collect();
    let stopped = lines.iter().rposition(|line| line.starts_with("Stopped ")).unwrap_or(0);
    let chosen = [&lines[stopped..], &lines[..]].map(|part| part.iter().copied().filter(loud).collect::<Vec<_>>());
    let chosen = chosen.into_iter().find(|part| !part.is_empty());
    chosen.unwrap_or_else(|| lines.into_iter().filter(|line| !stack(line)).collect()).join("\n")
}

/// Whether the line is an error or a fatal error of the Kubernetes logger: `E` or `F`, month and day, a blank.
fn klog(line: &str) -> bool {
    let mut bytes = line.bytes();
    matches!(bytes.next(), Some(b'E' | b'F'))
        && bytes.by_ref().take(4).all(|b| b.is_ascii_digit())
        && bytes.next() == Some(b' ')
}

/// Adds the operation and the path to an I/O error.
pub(super) trait Explain<T> {
    /// `doing`: a verb phrase such as `write`.
    fn explain(self, doing: &str, path: &Path) -> Outcome<T>;
}

impl<T> Explain<T> for io::Result<T> {
    fn explain(self, doing: &str, path: &Path) -> Outcome<T> {
        self.map_err(|error| explained(&error, doing, path))
    }
}

impl<T> Explain<T> for rustix::io::Result<T> {
    fn explain(self, doing: &str, path: &Path) -> Outcome<T> {
        self.map_err(io::Error::from).explain(doing, path)
    }
}

/// The same for an error that something else returned.
pub(super) fn explained(error: &io::Error, doing: &str, path: &Path) -> OpError {
    if is_full(error) {
        disk_full(path, None)
    } else {
        failed(format!("could not {doing} {}: {error}", path.display()))
    }
}

/// Whether there is no space left, on the disk or in the quota of the user.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A full disk with its numbers: the free space for `path`, and the required space if that is known.
pub(super) fn disk_full(path: &Path, needed: Option<u64>) -> OpError {
    let free = free_bytes(path).map_or_else(|| "an unknown amount".to_owned(), |b| format!("{} MiB", b >> 20));
    let needs = needed.map_or_else(String::new, |n| format!(", {} MiB are required", n.div_ceil(1 << 20)));
    fault(OpErrorKind::DiskFull, format!("no space left for {}: {free} free on its file system{needs}", path.display()))
}

/// A fault unless so many bytes are free for `path`, as far as that is known.
pub(super) fn ensure_space(path: &Path, needed: u64) -> Outcome<()> {
    if free_bytes(path).is_some_and(|free| free < needed) { Err(disk_full(path, Some(needed))) } else { Ok(()) }
}

/// The space that an unprivileged process may still use on the file system of `path`, or of its nearest existing
/// parent.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    path.ancestors().find_map(|p| rustix::fs::statvfs(p).ok()).map(|s| s.f_bavail.saturating_mul(s.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_crashed_program_is_not_hidden_by_its_stack_trace() {
        let plain = "could not open the disk\ngoroutine 1 [running]:\ngo.etcd.io/etcd.StartEtcd(0xc000)\n\tembed/etcd.go:262\nit failed";
        assert_eq!(telling(plain), "could not open the disk\nit failed");
        let loud = "{\"level\":\"panic\",\"error\":\"no space left on device\"}\npanic: failed to create WAL";
        assert_eq!(telling(&format!("{{\"level\":\"info\"}}\n{loud}\nmain.main()\nRestarting.")), loud);
        let kubelet = "E1123 07:12:25.439787 2887 run.go:72] \"command failed\"";
        assert_eq!(
            telling(&format!("I1123 07:12:25.43 2887 server.go:808] all is well\n{kubelet}\nkubelet.service: Failed")),
            kubelet
        );
        assert_eq!(telling("Usage:\n  kube-scheduler [flags]\nError: invalid argument"), "Error: invalid argument");
        let before = "{\"level\":\"error\",\"msg\":\"use of closed network connection\"}\nStopped etcd.service - etcd.";
        let step = "etcd.service: Failed at step GROUP spawning /bin/sh: No such process";
        assert_eq!(
            telling(&format!("{before}\n{step}\nCondition check resulted")),
            step,
            "its output while it stopped belongs to the previous start"
        );
        let fence = "etcd stays down: its disk went back in time";
        let skipped = "etcd.service: Skipped due to 'exec-condition'.";
        assert_eq!(telling(&format!("{before}\n{fence}\n{skipped}")), fence);
        assert_eq!(telling(&format!("{loud}\nStopped etcd.service - etcd.\nStarting etcd.service")), loud);
    }
}
