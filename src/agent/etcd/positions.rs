//! The positions of etcd members that this host remembers, and the program that keeps them up to date.
//!
//! In: this host's member, asked every few seconds over loopback. Out: a small file outside the data directory, so
//! that it stays if the volume of the data goes back in time, and a report in etcd that every other member can read.
//! Positions of members that are no longer in the list are dropped.

use crate::agent::etcd::member::{access, trouble};
use crate::agent::machine::files::write_one;
use crate::agent::machine::root::{Root, me};
use crate::agent::op_error::{Outcome, failed};
use crate::etcd::Reporter;
use crate::model::positions::{MOST, POSITIONS, Position};
use crate::protocol::EtcdAsk;
use std::fs::File;
use std::io::Read as _;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Between two rounds: a disk that went back by more than two of them is detected.
const EVERY: Duration = Duration::from_secs(5);
/// How long one round may take.
const WITHIN: Duration = Duration::from_secs(4);
/// A larger file is not ours.
const LARGEST: u64 = 64 << 10;

/// The positions that this host remembers; none if they are unreadable: that prevents no member from starting.
pub fn remembered(root: &Root) -> Vec<Position> {
    let mut text = Vec::new();
    let read = File::open(root.own(POSITIONS)).and_then(|file| file.take(LARGEST).read_to_end(&mut text));
    let mut all: Vec<Position> = read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default();
    all.truncate(MOST);
    all
}

/// Observes this host's member until the process ends. Reports each failure once, and its end.
pub async fn record_positions(root: &Root, ask: &EtcdAsk, say: impl Fn(&str)) {
    let mut reporter = Reporter::default();
    let mut said = String::new();
    loop {
        let next = Instant::now() + EVERY;
        let trouble = match Box::pin(look(root, ask, &mut reporter)).await {
            Ok(None) => String::new(),
            Ok(Some(why)) => format!(
                "the position of this host's etcd member is remembered here but not reported to the other members: \
                 {why}"
            ),
            Err(fault) => format!("no position of etcd is remembered meanwhile: {}", fault.what),
        };
        if trouble != said {
            say(if trouble.is_empty() {
                "the position of this host's etcd member is remembered and reported"
            } else {
                &trouble
            });
            said = trouble;
        }
        sleep_until(next).await;
    }
}

/// One round; returns why the position could not be reported, if so.
async fn look(root: &Root, ask: &EtcdAsk, reporter: &mut Reporter) -> Outcome<Option<String>> {
    let access = access(root, ask)?;
    let known = Box::pin(reporter.round(&access, WITHIN)).await.map_err(|error| trouble(&error))?;
    let Some(own) = known.own else { return Ok(None) };
    let noting = root.blocking(move |root| {
        let before = remembered(root);
        let mut all: Vec<Position> = before.clone();
        all.retain(|p| p.cluster == known.witness.cluster && known.witness.lists(p));
        let stated = known.witness.positions.iter().filter(|p| known.witness.lists(p)).cloned();
        stated.chain([own]).for_each(|position| position.note(&mut all));
        all.sort();
        if all == before {
            return Ok(());
        }
        let text = serde_json::to_vec(&all).map_err(|e| failed(format!("could not write positions: {e}")))?;
        write_one(root.own(POSITIONS), &text, 0o600, me())
    });
    noting.await?;
    Ok(known.unreported.map(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_file_counts_as_no_recorded_position() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        assert_eq!(remembered(&root), []);
        let own = Position { cluster: "c1".to_owned(), member: 7, term: 2, index: 9 };
        for (text, found) in
            [(serde_json::to_string(&[&own]).unwrap(), vec![own]), ("[{\"cluster\":".to_owned(), vec![])]
        {
            write_one(root.own(POSITIONS), text.as_bytes(), 0o600, me()).unwrap();
            assert_eq!(remembered(&root), found);
        }
    }
}
