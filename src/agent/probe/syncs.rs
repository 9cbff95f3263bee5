//! What an etcd member says in its metrics: how fast its disk syncs, since it writes nothing before its log is on the
//! disk; whether it leads, and whether it is a learner.
//!
//! In: the metrics of the own member, the states of its threads. Out: counts to compare with later ones.

use super::ANSWER;
use super::process::{self, Runs};
use crate::agent::machine::processes::waits_for_disk;
use crate::agent::plain_http::etcd_metrics;
use crate::model::facts::ETCD_UNIT;

/// etcd's histogram of the time that a sync of its log takes, seconds.
const SYNCS: &str = "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"";
const LEADS: &str = "etcd_server_is_leader ";
const LEARNS: &str = "etcd_server_is_learner ";
/// With fewer syncs, their times tell nothing.
const FEWEST: u64 = 10;

/// The syncs of a member since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syncs {
    /// How many took at most so many milliseconds; the last one counts all.
    within: Vec<(u32, u64)>,
    /// Whether the member leads.
    pub leads: bool,
    /// Whether it is no learner.
    pub votes: bool,
    /// Whether a thread of it waits for the disk.
    pub waits: bool,
}

/// Looks once; `None`: the member does not tell.
pub async fn syncs() -> Option<Syncs> {
    let text = etcd_metrics(ANSWER).await?;
    let waits = matches!(process::of(ETCD_UNIT), Runs::As(process) if waits_for_disk(process));
    Syncs::of(&text, waits)
}

impl Syncs {
    fn of(text: &str, waits: bool) -> Option<Self> {
        let bucket = |line: &str| {
            let (le, count) = line.strip_prefix(SYNCS)?.split_once("\"} ")?;
            let seconds: f64 = le.parse().ok()?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
            let within_ms = (seconds * 1000.0).ceil() as u32;
            Some((within_ms, count.trim().parse().ok()?))
        };
        let within: Vec<(u32, u64)> = text.lines().filter_map(bucket).collect();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (leads, votes) = (value(LEADS)? == "1", value(LEARNS) == Some("0"));
        (!within.is_empty()).then_some(Self { within, leads, votes, waits })
    }

    /// How many there were.
    pub fn all(&self) -> u64 {
        self.within.last().map_or(0, |(_, count)| *count)
    }

    /// In so many milliseconds nine of ten syncs since `before` ended; `None`: there were few, or etcd has started since.
    pub fn nine_of_ten_ms(&self, before: &Self) -> Option<u32> {
        let since = |at: usize| self.within[at].1.checked_sub(before.within.get(at)?.1);
        let all = since(self.within.len() - 1).filter(|all| *all >= FEWEST)?;
        let reached = (0..self.within.len()).find(|at| since(*at).is_some_and(|count| 10 * count >= 9 * all))?;
        Some(self.within[reached].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(counts: [u64; 4]) -> String {
        let [ms, mid, slow, all] = counts;
        format!(
            "# TYPE etcd_disk_wal_fsync_duration_seconds histogram\n{SYNCS}0.001\"}} {ms}\n{SYNCS}0.128\"}} {mid}\n\
             {SYNCS}0.512\"}} {slow}\n{SYNCS}+Inf\"}} {all}\n{LEADS}1\n{LEARNS}0\n"
        )
    }

    fn syncs(counts: [u64; 4]) -> Syncs {
        Syncs::of(&page(counts), false).unwrap()
    }

    #[test]
    fn the_time_of_nine_of_ten_syncs_is_that_of_those_between_two_looks() {
        let before = syncs([1000, 1000, 1000, 1000]);
        assert!(before.leads && before.votes && before.all() == 1000);
        assert_eq!(syncs([1000, 1090, 1100, 1100]).nine_of_ten_ms(&before), Some(128));
        assert_eq!(syncs([1000, 1000, 1080, 1100]).nine_of_ten_ms(&before), Some(u32::MAX), "slower than all buckets");
        assert_eq!(syncs([1009, 1009, 1009, 1009]).nine_of_ten_ms(&before), None, "few");
        assert_eq!(syncs([50, 50, 50, 50]).nine_of_ten_ms(&before), None, "etcd has started since");
    }

    #[test]
    fn a_page_without_the_histogram_tells_nothing() {
        assert_eq!(Syncs::of("etcd_server_is_leader 1\n", false), None);
        let page = page([1, 1, 1, 1]);
        assert_eq!(Syncs::of(&page.replace(LEADS, "other "), false), None);
        let votes = |page: &str| Syncs::of(page, false).unwrap().votes;
        assert!(votes(&page) && !votes(&page.replace(LEARNS, "other ")), "unknown: it does not vote by its own word");
        assert!(!votes(&page.replace(&format!("{LEARNS}0"), &format!("{LEARNS}1"))));
    }
}
