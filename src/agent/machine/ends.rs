//! Counts how often programs of static pods have exited, from the numbers of their logs.
//!
//! In: the name of a program. Out: the number of restarts of the pod of the present manifest, and the end of its log.
//! The kubelet makes another directory for the pod of a changed manifest, and the next number for each restart of a
//! container in it (`/var/log/pods/<namespace>_<pod>_<uid>/<container>/<number>.log`).

use crate::agent::machine::root::Root;
use crate::agent::op_error::{tail, telling};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

const LOGS: &str = "/var/log/pods";
/// How much is read of the end of a log.
const MOST: u64 = 64 * 1024;

/// The newest pod of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    folder: PathBuf,
    /// The number of restarts of its container.
    starts: u32,
}

fn newest(root: &Root, program: &str) -> Option<Pod> {
    // A pod that does not exist yet has never ended.
    let entries = fs::read_dir(root.own(LOGS)).ok()?;
    let ours = format!("kube-system_{program}-");
    let pods = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
    let made = |entry: &fs::DirEntry| entry.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let folder = pods.max_by_key(made)?.path().join(program);
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok();
    let starts = fs::read_dir(&folder).ok()?.flatten().filter_map(number).max()?;
    Some(Pod { folder, starts })
}

/// How often programs have ended since their first observation.
#[derive(Debug, Default)]
pub(crate) struct Ends(BTreeMap<String, Option<Pod>>);

impl Ends {
    /// Observes a program: how often it has ended since its first observation, with its present manifest.
    pub(crate) fn of(&mut self, root: &Root, program: &str) -> u32 {
        let now = newest(root, program);
        let first = self.0.entry(program.to_owned()).or_insert_with(|| now.clone());
        match (first, now) {
            (Some(first), Some(now)) if first.folder == now.folder => now.starts.saturating_sub(first.starts),
            (_, Some(now)) => now.starts,
            (_, None) => 0,
        }
    }
}

/// The end of the output of a program: of its last start, or of the previous one if that has no output yet.
pub(crate) fn exit_report(root: &Root, program: &str) -> Vec<String> {
    let Some(pod) = newest(root, program) else { return Vec::new() };
    let logs = (pod.starts.saturating_sub(1)..=pod.starts).rev().map(|number| pod.folder.join(format!("{number}.log")));
    logs.map(|path| end_of(&path).unwrap_or_default()).find(|lines| !lines.is_empty()).unwrap_or_default()
}

fn end_of(path: &std::path::Path) -> std::io::Result<Vec<String>> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(tail(&telling(&text.lines().map(said).collect::<Vec<_>>().join("\n"))))
}

/// A line without the prefix of the container runtime: a time, a stream and whether it is complete.
fn said(line: &str) -> &str {
    let mut parts = line.splitn(4, ' ');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some("stdout" | "stderr"), Some("F" | "P"), Some(rest)) => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &std::path::Path, pod: &str, number: u32, text: &str) {
        let folder = root.join(format!("var/log/pods/kube-system_kube-apiserver-cp1_{pod}/kube-apiserver"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{number}.log")), text).unwrap();
    }

    #[test]
    fn only_exits_since_the_first_observation_count_and_a_new_pod_starts_at_zero() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let mut ends = Ends::default();
        write(dir.path(), "old", 3, "");
        assert_eq!(ends.of(&root, "kube-apiserver"), 0);
        write(dir.path(), "old", 4, "");
        assert_eq!(ends.of(&root, "kube-apiserver"), 1);
        let new = dir.path().join("var/log/pods/kube-system_kube-apiserver-cp1_new");
        write(dir.path(), "new", 0, "");
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        fs::File::open(&new).unwrap().set_modified(later).unwrap();
        assert_eq!(ends.of(&root, "kube-apiserver"), 0, "it has not ended with its new manifest");
        write(dir.path(), "new", 2, "");
        fs::File::open(&new).unwrap().set_modified(later).unwrap();
        assert_eq!(ends.of(&root, "kube-apiserver"), 2);
        assert_eq!(ends.of(&root, "kube-scheduler"), 0, "it is not known");
    }

    #[test]
    fn the_last_words_are_those_of_the_last_start_that_said_any() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        write(dir.path(), "a", 1, "2026-11-23T06:00:00.1Z stderr F Error: unknown flag: --nonsense\n");
        write(dir.path(), "a", 2, "");
        assert_eq!(exit_report(&root, "kube-apiserver"), ["Error: unknown flag: --nonsense"]);
        assert!(exit_report(&root, "kube-scheduler").is_empty());
    }
}
