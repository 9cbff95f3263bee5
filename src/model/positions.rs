//! Recorded positions of etcd members, and what they show about a disk: that it was rolled back, or belongs to another
//! host.
//!
//! In: positions recorded by hosts and by the journal, and the data on a disk. Out: the reason not to start a member
//! from it. A member that was merely off is behind the others, but never behind its own earlier position, so only
//! positions of the same member are compared.

use super::desired::{Desired, Host, Role};
use super::facts::{DiskFact, Etcd, EtcdFact, Facts, HostFacts};
use super::names::HostName;
pub use super::position::{MOST, Position};

/// Where a host records positions: not in the data directory, which may be rolled back without it.
pub const POSITIONS: &str = "/var/lib/hactl/positions.json";
impl Position {
    /// Whether this data is the member's and lacks the entry: it was rolled back. A damaged log shows nothing.
    pub fn is_missing_from(&self, disk: &DiskFact) -> bool {
        (&self.cluster, self.member) == (&disk.cluster, disk.member)
            && !disk.damaged
            && (disk.index < self.index || disk.term < self.term)
    }
}

/// Why no member may start from the data on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Its disk was rolled back to an earlier state.
    RolledBack {
        /// The recorded position of its member.
        seen: Position,
        /// The host that recorded it, or the journal.
        by: String,
        /// Term and index of its last entry.
        ends: (u64, u64),
    },
    /// It is the data of the member of another host.
    Of(HostName),
    /// The same, and the other host has the data of this one.
    Swapped(HostName),
    /// Its member runs but cannot catch up, for this reason.
    Stuck(String),
}

impl Unfit {
    /// In words, on this host.
    pub fn on(&self, host: &HostName) -> String {
        match self {
            Self::RolledBack { seen, by, ends: (term, index) } => format!(
                "the disk of {host} was rolled back: its member had reached {seen} (recorded by {by}), but its data \
                 ends at raft term {term}, index {index}"
            ),
            Self::Of(other) => format!("the disk of {host} holds the etcd data of {other}'s member"),
            Self::Swapped(other) => {
                format!("{host} has the etcd disk of {other}, and {other} that of {host}: swap the volumes back")
            }
            Self::Stuck(why) => format!("the member on {host} runs but cannot catch up: {why}"),
        }
    }
}

/// Why the data on an etcd host must not be used, if there is a reason.
pub fn unfit(desired: &Desired, facts: &Facts, host: &Host) -> Option<Unfit> {
    let etcd = etcd_of(facts, &host.name)?;
    if let Some(other) = of_another(desired, facts, host) {
        let mutual = of_another(desired, facts, other).is_some_and(|back| back.name == host.name);
        let other = other.name.clone();
        return Some(if mutual { Unfit::Swapped(other) } else { Unfit::Of(other) });
    }
    rolled_back(desired, facts, &host.name).or_else(|| stuck(facts, etcd))
}

/// Hosts whose volumes were swapped, each pair once.
pub fn swapped<'a>(desired: &'a Desired, facts: &Facts) -> Vec<(&'a Host, HostName)> {
    let pair = |host: &'a Host| match unfit(desired, facts, host)? {
        Unfit::Swapped(other) if host.name < other => Some((host, other)),
        _ => None,
    };
    desired.with(Role::Etcd).filter_map(pair).collect()
}

fn etcd_of<'a>(facts: &'a Facts, host: &HostName) -> Option<&'a EtcdFact> {
    facts.host(host)?.etcd.as_ref().filter(|etcd| etcd.data)
}

/// Whether a member runs on a host, regardless of its report.
fn runs(facts: &HostFacts) -> bool {
    let unit = facts.units.iter().find(|(name, _)| name.as_str() == super::facts::ETCD_UNIT);
    unit.is_some_and(|(_, unit)| unit.started_ms > 0 && unit.runs_or_starts())
}

/// Only the log of a stopped member can be compared: the log of a running member grows while it is read.
fn rolled_back(desired: &Desired, facts: &Facts, host: &HostName) -> Option<Unfit> {
    let found = facts.host(host).filter(|found| !runs(found))?;
    let etcd = found.etcd.as_ref().filter(|etcd| etcd.view.is_none())?;
    let disk = etcd.disk.as_ref()?;
    // The vote of a single voter cannot help another member to lose acknowledged writes.
    if disk.voters().is_some_and(|voters| voters.count() == 1) && !matches!(facts.etcd, Etcd::HasQuorum(_)) {
        return None;
    }
    // No member can have applied more than the members with a quorum: such a report is wrong, or all of them were
    // rolled back.
    let most = facts.living().filter(|view| view.cluster == disk.cluster).map(|view| view.applied);
    let remembered = |by: String, positions: &[Position]| {
        let missing = positions.iter().filter(|p| p.is_missing_from(disk) && most.is_none_or(|most| p.index <= most));
        missing.max().map(|seen| (seen.clone(), by))
    };
    let hosts = desired.with(Role::Etcd).filter_map(|h| Some((&h.name, facts.host(&h.name)?.etcd.as_ref()?)));
    let hosts = hosts.filter_map(|(name, etcd)| remembered(name.to_string(), &etcd.positions));
    let noted = remembered("hactl's journal".to_owned(), &facts.noted);
    let (seen, by) = hosts.chain(noted).max_by(|(one, _), (other, _)| one.cmp(other))?;
    Some(Unfit::RolledBack { seen, by, ends: disk.reach() })
}

/// The host whose member's data is on this one, by the member list of the quorum, or otherwise by the list in the data.
fn of_another<'a>(desired: &'a Desired, facts: &Facts, host: &Host) -> Option<&'a Host> {
    let etcd = etcd_of(facts, &host.name)?;
    let (cluster, member) = match (&etcd.view, &etcd.disk) {
        (Some(view), _) => (&view.cluster, view.member),
        (None, Some(disk)) => (&disk.cluster, disk.member),
        (None, None) => return None,
    };
    let listed = match (&facts.etcd, facts.living(), &etcd.disk) {
        (Etcd::HasQuorum(members), Some(living), _) if &living.cluster == cluster => {
            members.0.iter().map(|(peer, m)| (m.id, peer)).collect::<Vec<_>>()
        }
        (Etcd::HasQuorum(_), ..) => return None,
        (_, _, Some(disk)) => disk.members.as_ref()?.iter().map(|(id, _, peer, _)| (*id, peer)).collect(),
        (_, _, None) => return None,
    };
    let (own, its) = (host.peer_url(), listed.iter().find(|(id, _)| *id == member).map(|(_, peer)| *peer)?);
    // A host that is not listed may have a new address.
    let others = listed.iter().any(|(id, peer)| **peer == own && *id != member);
    desired.with(Role::Etcd).find(|other| others && &other.peer_url() == its)
}

/// Why the local member is stuck, if the members with a quorum are ahead of it.
fn stuck(facts: &Facts, etcd: &EtcdFact) -> Option<Unfit> {
    let why = etcd.stuck.as_ref().filter(|_| !etcd.view.as_ref().is_some_and(|view| view.linearizable))?;
    let (living, disk) = (facts.living()?, etcd.disk.as_ref()?);
    (living.cluster == disk.cluster && living.applied > disk.commit).then(|| Unfit::Stuck(why.clone()))
}
