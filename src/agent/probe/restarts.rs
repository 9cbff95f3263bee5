//! How often the kubelet has started the API server of this host.
//!
//! In: the logs that the kubelet keeps for the containers of its pod, which are numbered. Out: the number, and what the
//! last one said.

use crate::agent::machine::root::Root;
use crate::model::control_plane::API_SERVER;
use crate::model::fault::evidence;
use crate::model::names::HostName;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Where the kubelet has the logs of pods.
const LOGS: &str = "/var/log/pods";
/// So much of the end of a log is read, bytes.
const END: u64 = 8 << 10;

/// The starts of a pod's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starts {
    /// The pod, with its uid: another manifest has another one.
    pub pod: String,
    /// How many there were before the last one.
    pub before: u32,
    /// The last line of the last container that said anything.
    pub said: String,
}

/// Looks once; `None`: there is no such pod.
pub async fn starts(root: &Root, own: &HostName) -> Option<Starts> {
    let prefix = format!("kube-system_{API_SERVER}-{own}_");
    root.blocking(move |root| Ok(of_pod(&root.own(LOGS), &prefix))).await.ok()?
}

fn of_pod(logs: &Path, prefix: &str) -> Option<Starts> {
    let pods = fs::read_dir(logs).ok()?.flatten().filter(|pod| pod.file_name().to_string_lossy().starts_with(prefix));
    let pod = pods.max_by_key(|pod| pod.metadata().and_then(|meta| meta.modified()).ok())?;
    let number = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".log")?.parse::<u32>().ok();
    let files = fs::read_dir(pod.path().join(API_SERVER)).ok()?.flatten().map(|file| file.path());
    let mut logs: Vec<(u32, PathBuf)> = files.filter_map(|path| Some((number(&path)?, path))).collect();
    logs.sort();
    let before = logs.last()?.0;
    let said = logs.iter().rev().find_map(|(_, path)| last_line(path)).unwrap_or_default();
    Some(Starts { pod: pod.file_name().to_string_lossy().into_owned(), before, said })
}

/// The last line of a log of the container runtime, without its time, stream and tag.
fn last_line(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END))).ok()?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(evidence(line.splitn(4, ' ').last()?)).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_those_of_the_newest_pod_and_the_last_words_those_of_the_last_container_that_spoke() {
        let place = tempfile::tempdir().unwrap();
        let log = |pod: &str, file: &str, text: &str| {
            let folder = place.path().join(pod).join(API_SERVER);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        };
        let prefix = "kube-system_kube-apiserver-cp1_";
        assert_eq!(of_pod(place.path(), prefix), None);
        log("kube-system_kube-apiserver-cp1_a", "9.log", "");
        log("kube-system_kube-apiserver-cp12_c", "50.log", "");
        let old = File::open(place.path().join("kube-system_kube-apiserver-cp1_a")).unwrap();
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        log(
            "kube-system_kube-apiserver-cp1_b",
            "3.log",
            "2026-11-28T01:00:00Z stderr F one\n2026 stderr F bad \u{1b}[1mflag\n",
        );
        log("kube-system_kube-apiserver-cp1_b", "4.log", "");
        log("kube-system_kube-apiserver-cp1_b", "3.log.20261128.gz", "");
        let found = of_pod(place.path(), prefix).unwrap();
        assert_eq!((found.before, found.said.as_str()), (4, "bad [1mflag"));
        assert!(found.pod.ends_with("_b"));
    }
}
