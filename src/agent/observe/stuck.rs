//! Whether a running member will never catch up, as far as its own host can tell.
//!
//! In: its data, its journal and its metrics. Out: the symptom, in words. Slow is not stuck. Either raft itself
//! reported that the log lacks entries that this member once acknowledged, or the member has a leader and has written
//! nothing for a whole minute. Code that knows the other members judges whether the leader made progress meanwhile.

use crate::agent::machine::run::run;
use crate::agent::machine::when::now_ms;
use crate::agent::plain_http::etcd_metrics;
use crate::model::facts::{DiskFact, ETCD_UNIT};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// How long each query may take.
const WITHIN: Duration = Duration::from_secs(2);
/// How long a member must have run and written nothing, milliseconds.
const QUIET_MS: i64 = 60_000;

/// The symptom of the member with this data.
pub(super) async fn stuck(data: &Path, disk: &DiskFact) -> Option<String> {
    if let Some(why) = panicked(&journal().await, disk.index) {
        return Some(why);
    }
    let metrics = etcd_metrics(WITHIN).await?;
    let quiet = now_ms().saturating_sub(disk.written_ms.max(newest(&data.join("member/snap"))));
    waits(&metrics, now_ms(), quiet)
}

/// The end of the member's journal; empty if it is unreadable.
async fn journal() -> String {
    let argv = ["journalctl", "-u", ETCD_UNIT, "-n", "200", "-o", "cat", "--no-pager", "-q"];
    run(&argv, WITHIN).await.map(|ran| ran.out).unwrap_or_default()
}

/// Raft's last panic about a commit beyond the end of the log, if the present log still ends before it.
fn panicked(journal: &str, last: u64) -> Option<String> {
    let number = |text: &str| text.split_once(')')?.0.parse::<u64>().ok();
    let (commit, index) = journal.lines().rev().find_map(|line| {
        let (commit, rest) = line.split_once("tocommit(")?.1.split_once(" is out of range [lastIndex(")?;
        Some((number(commit)?, number(rest)?))
    })?;
    (commit > last).then(|| {
        format!(
            "raft panics with \"tocommit({commit}) is out of range [lastIndex({index})]\": its log lacks \
                 acknowledged entries"
        )
    })
}

/// Whether it has a leader and receives nothing from it.
fn waits(metrics: &str, now_ms: i64, quiet_ms: i64) -> Option<String> {
    let value = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    let hears = value("etcd_server_has_leader ")? >= 1.0;
    #[allow(clippy::cast_possible_truncation, reason = "seconds since 1970, for a comparison with a minute")]
    let ran_ms = now_ms.saturating_sub((value("process_start_time_seconds ")? * 1000.0) as i64);
    let long = ran_ms >= QUIET_MS && quiet_ms >= QUIET_MS;
    (hears && long).then(|| format!("it has a leader and has written nothing for {} s", quiet_ms / 1000))
}

/// The last write to a file of the database, milliseconds since 1970: also to one that a leader is just sending.
fn newest(folder: &Path) -> i64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let written = files.filter_map(|file| file.metadata().and_then(|meta| meta.modified()).ok());
    let since = written.filter_map(|at| at.duration_since(UNIX_EPOCH).ok()).max().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_counts_while_the_log_ends_before_the_index_that_it_names() {
        let line = |n: u64| {
            format!(
                r#"{{"level":"panic","msg":"tocommit({n}) is out of range [lastIndex(6873)]. Was the raft log corrupted?"}}"#
            )
        };
        let journal = format!("started\n{}\nstarted\n{}\n", line(7000), line(7146));
        assert!(
            panicked(&journal, 6873)
                .is_some_and(|why| why.contains("tocommit(7146)") && why.contains("lastIndex(6873)"))
        );
        assert_eq!(panicked(&journal, 7146), None, "its data is another one now");
        assert_eq!(panicked("tocommit(x) is out of range [lastIndex(1)]\ntocommit(", 1), None);
    }

    #[test]
    fn only_one_that_hears_a_leader_and_wrote_nothing_for_a_minute_waits_in_vain() {
        let metrics =
            |leader: u8| format!("# HELP x\netcd_server_has_leader {leader}\nprocess_start_time_seconds 1.7e+09\n");
        let now = 1_700_000_100_000;
        assert!(waits(&metrics(1), now, 75_000).is_some_and(|why| why.contains("75 s")));
        assert_eq!(waits(&metrics(0), now, 75_000), None, "cut off, or without a quorum");
        assert_eq!(waits(&metrics(1), now, 59_000), None, "slow is not stuck");
        assert_eq!(waits(&metrics(1), now - 50_000, 75_000), None, "it has only just started");
        assert_eq!(waits("", now, 75_000), None);
    }
}
