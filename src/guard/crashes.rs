//! Whether the API server of the host ends again and again.
//!
//! In: how often the kubelet has started it. Out: the fault `ApiCrashLoop`, with what it said last.

use super::shared::{Shared, turns};
use crate::agent::Root;
use crate::agent::probe::{Starts, starts};
use crate::model::fault::FaultKind;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(10);
/// Starts within this time count: so long the kubelet remembers them, too.
const WINDOW: Duration = Duration::from_secs(600);
/// One that answers has settled after this time.
const SETTLED: Duration = Duration::from_secs(60);
/// The kubelet waits at most five minutes before it starts a container again: later, one that does not answer is no
/// matter of starts.
const FROZEN: Duration = Duration::from_secs(360);
/// So many starts are too many.
const MOST: u32 = 4;

/// The looks of the last minutes, each with its time.
#[derive(Default)]
struct Looks(VecDeque<(Duration, Starts)>);

impl Looks {
    /// Adds a look. Returns what is wrong; `answers`: whether the API server answers now.
    fn add(&mut self, look: Starts, answers: bool, at: Duration) -> Option<String> {
        self.0.retain(|(then, other)| at.saturating_sub(*then) <= WINDOW && other.pod == look.pod);
        let first = self.0.front().map_or(look.before, |(_, first)| first.before);
        let same = self.0.iter().find(|(_, other)| other.before == look.before).map_or(at, |(then, _)| *then);
        let started = look.before.saturating_sub(first);
        let loops = started >= MOST && at.saturating_sub(same) < if answers { SETTLED } else { FROZEN };
        let said = if look.said.is_empty() { String::new() } else { format!("; it said last: {}", look.said) };
        let minutes = WINDOW.as_secs() / 60;
        self.0.push_back((at, look));
        loops.then(|| format!("the kubelet has started it {started} times in the last {minutes} min{said}"))
    }
}

/// Looks until the guard ends.
pub(super) async fn watch(shared: Arc<Shared>, root: Root) {
    let mut turn = turns(EVERY);
    let mut looks = Looks::default();
    loop {
        turn.tick().await;
        let answers = !shared.with(|state| state.seen_here()).contains(&FaultKind::ApiFrozen);
        let wrong = match starts(&root, &shared.own.name).await {
            Some(look) => looks.add(look, answers, shared.now().steady),
            None => None,
        };
        let found: Vec<_> = wrong.map(|why| (FaultKind::ApiCrashLoop, why)).into_iter().collect();
        shared.found(&[FaultKind::ApiCrashLoop], &found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_starts_in_ten_minutes_are_a_crash_loop_until_one_lasts() {
        let mut looks = Looks::default();
        let mut look = |pod: &str, before: u32, answers: bool, at_s: u64| {
            let starts = Starts { pod: pod.to_owned(), before, said: "bad flag".to_owned() };
            looks.add(starts, answers, Duration::from_secs(at_s))
        };
        assert_eq!(look("a", 7, true, 0), None, "it may have started often long ago");
        assert_eq!(look("a", 10, true, 100), None);
        let wrong = "the kubelet has started it 4 times in the last 10 min; it said last: bad flag";
        assert_eq!(look("a", 11, true, 150).unwrap(), wrong);
        assert!(look("a", 11, true, 209).is_some(), "it may end again");
        assert_eq!(look("a", 11, true, 211), None, "it has settled");
        assert!(look("a", 11, false, 500).is_some(), "the kubelet may be waiting");
        assert_eq!(look("a", 11, false, 520), None, "it runs, and is frozen");
        assert_eq!(look("b", 3, false, 530), None, "another manifest");
    }
}
