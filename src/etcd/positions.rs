//! Positions of members, stored in etcd itself: each member reports its own under a key, so that every other one can
//! answer for it.
//!
//! In: the access to a member. Out: the positions that it knows of all members, its own, and its list. A key travels
//! with the log: a member that answers at all, even without a quorum, returns the positions of others that it applied
//! last, and has itself applied the entries after each of them.

use super::{Access, EtcdError, Link, ask};
use crate::model::names::PeerUrl;
use crate::model::positions::{MOST, Position};
use etcd_client::{GetOptions, KeyValue};
use std::time::Duration;

/// The prefix of the keys: beside the data of the API server, which is below `/registry`.
const FOLDER: &str = "/hactl/positions/";
/// A longer value is not ours.
const LONGEST: usize = 512;

/// What one member reports for the start of another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Witness {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Its own member id.
    pub member: u64,
    /// Revision of its database.
    pub revision: i64,
    /// Term of the last entry that it applied.
    pub term: u64,
    /// Index of the last entry that it applied.
    pub applied: u64,
    /// Its list of members, by id.
    pub members: Vec<(u64, PeerUrl)>,
    /// The positions of members that it knows.
    pub positions: Vec<Position>,
}

/// Queries the positions of a member. Works without quorum, once the member had one since its start.
pub async fn witness(access: &Access, within: Duration) -> Result<Witness, EtcdError> {
    let mut link = access.connect(within).await?;
    known(&mut link, within).await.map(|(witness, _)| witness)
}

/// Its positions, and how often positions were written in total. The positions are read first, then that of the
/// member itself: so no honest position is ahead of it.
async fn known(link: &mut Link, within: Duration) -> Result<(Witness, i64), EtcdError> {
    let options = GetOptions::new().with_prefix().with_serializable().with_limit(i64::try_from(MOST).unwrap_or(64));
    let (mut a, mut b) = (link.0.clone(), link.0.clone());
    let answer = ask("read positions", within, a.get(FOLDER, Some(options))).await?;
    let (status, members) = tokio::join!(
        ask("report its status", within, link.0.status()),
        ask("list its members", within, b.member_list())
    );
    let (status, members) = (status?, members?);
    let (cluster, member, revision) =
        status.header().map_or((0, 0, 0), |h| (h.cluster_id(), h.member_id(), h.revision()));
    let mut found = Witness {
        cluster: format!("{cluster:x}"),
        member,
        revision,
        term: status.raft_term(),
        applied: status.raft_applied_index(),
        ..Witness::default()
    };
    let listed = members.members().iter().take(MOST);
    found.members = listed.filter_map(|m| Some((m.id(), m.peer_urls().first()?.parse().ok()?))).collect();
    found.positions = answer.kvs().iter().filter_map(read).filter(|p| found.may_tell(p)).collect();
    Ok((found, answer.kvs().iter().map(KeyValue::version).fold(0, i64::saturating_add)))
}

impl Witness {
    /// Whether it can know that: the position is of its cluster, and it applied the report, which is a later entry.
    pub fn may_tell(&self, position: &Position) -> bool {
        position.cluster == self.cluster && position.index <= self.applied && position.term <= self.term
    }
    /// Whether its list has the member.
    pub fn lists(&self, position: &Position) -> bool {
        self.members.iter().any(|(id, _)| *id == position.member)
    }
    /// Its own position.
    fn own(&self) -> Position {
        Position { cluster: self.cluster.clone(), member: self.member, term: self.term, index: self.applied }
    }
}

fn key(member: u64) -> String {
    format!("{FOLDER}{member:x}")
}

/// A position under the key of its member; none: it is not one of ours.
fn read(kv: &KeyValue) -> Option<Position> {
    let value = Some(kv.value()).filter(|value| value.len() <= LONGEST)?;
    let position: Position = serde_json::from_slice(value).ok()?;
    (kv.key() == key(position.member).as_bytes()).then_some(position)
}

/// The reports of a host about its own member, from one round to the next.
#[derive(Debug, Default)]
pub struct Reporter {
    /// The last observation, and how often positions had been written by then.
    last: Option<(Position, i64)>,
    /// The observation that was reported last.
    reported: Option<(Position, i64)>,
}

/// The result of a round.
#[derive(Debug)]
pub struct Known {
    /// The positions that the own member knows.
    pub witness: Witness,
    /// Its position at the previous observation.
    pub own: Option<Position>,
    /// Why that could not be reported: etcd accepts no writes, for example. It is remembered anyway.
    pub unreported: Option<EtcdError>,
}

impl Reporter {
    /// Observes the own member and reports its previous position: the entries that it had applied then are on its
    /// disk by now, even if power fails.
    ///
    /// # Errors
    /// A member that does not answer.
    pub async fn round(&mut self, access: &Access, within: Duration) -> Result<Known, EtcdError> {
        let mut link = access.connect(within).await?;
        let (witness, writes) = known(&mut link, within).await?;
        let due = self.look(witness.own(), writes);
        let own = due.as_ref().map(|(position, _)| position.clone());
        let unreported = match due.filter(|due| self.is_news(due)) {
            None => None,
            Some(due) => match report(&mut link, &witness, &due.0, within).await {
                Ok(()) => {
                    self.reported = Some(due);
                    None
                }
                Err(error) => Some(error),
            },
        };
        Ok(Known { witness, own, unreported })
    }

    /// Records an observation; returns the previous one if it was of the same member.
    fn look(&mut self, own: Position, writes: i64) -> Option<(Position, i64)> {
        let before = self.last.replace((own.clone(), writes));
        before.filter(|(before, _)| before.same_member(&own))
    }

    /// Whether anything but positions was written since the last report: otherwise the members would trigger one
    /// another for ever.
    fn is_news(&self, due: &(Position, i64)) -> bool {
        let Some((reported, writes)) = self.reported.as_ref().filter(|(p, _)| p.same_member(&due.0)) else {
            return true;
        };
        let entries = i64::try_from(due.0.index.saturating_sub(reported.index)).unwrap_or(i64::MAX);
        due.0.term != reported.term || entries != due.1.saturating_sub(*writes)
    }
}

/// Writes a position, and deletes those of former members.
async fn report(link: &mut Link, witness: &Witness, own: &Position, within: Duration) -> Result<(), EtcdError> {
    let unreadable =
        |error: serde_json::Error| EtcdError::Transport { doing: "write a position", message: error.to_string() };
    let text = serde_json::to_vec(own).map_err(unreadable)?;
    ask("report a position", within, link.0.put(key(own.member), text, None)).await?;
    for former in witness.positions.iter().filter(|p| !witness.lists(p)) {
        ask("drop the position of a former member", within, link.0.delete(key(former.member), None)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(index: u64) -> Position {
        Position { cluster: "c1".to_owned(), member: 7, term: 2, index }
    }

    proptest! {
        /// Of every burst of writes the last entry is reported within two rounds, and nothing is once only positions
        /// are written.
        #[test]
        fn the_last_write_is_reported_and_then_nothing_more(bursts in prop::collection::vec(0_u64..5, 1..30), others in 0_u64..4) {
            let (mut reporter, mut index, mut writes) = (Reporter::default(), 100_u64, 3_i64);
            let mut real = index;
            let quiet = std::iter::repeat_n(0, 4);
            let mut puts = Vec::new();
            for burst in bursts.into_iter().chain(quiet) {
                index += burst;
                if burst > 0 {
                    real = index;
                }
                let mut put = false;
                if let Some(due) = reporter.look(at(index), writes) && reporter.is_news(&due) {
                    reporter.reported = Some(due);
                    put = true;
                }
                // The others, which saw the same, follow each report.
                let more = if put { 1 + others } else { 0 };
                index += more;
                writes += i64::try_from(more).unwrap();
                puts.push(put);
            }
            let reported = reporter.reported.map_or(0, |(p, _)| p.index);
            prop_assert!(reported >= real, "{reported} of {real}");
            prop_assert_eq!(puts.last(), Some(&false));
        }
    }

    #[test]
    fn a_witness_reports_no_later_position_and_no_other_cluster() {
        let witness = Witness { cluster: "c1".to_owned(), term: 2, applied: 50, ..Witness::default() };
        assert!(witness.may_tell(&at(50)));
        assert!(!witness.may_tell(&at(51)));
        assert!(!witness.may_tell(&Position { term: 3, ..at(9) }));
        assert!(!witness.may_tell(&Position { cluster: "c2".to_owned(), ..at(9) }));
    }
}
