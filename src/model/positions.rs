//! How far each member of etcd was seen, and what that says of a disk: that it went back in time, or is another host's.
//!
//! In: what hosts and the journal remember, and what lies on a disk. Out: what speaks against starting a member from it. A member that was
//! merely off lies behind the others and never behind its own earlier position, so that only positions of one and the same member are
//! compared.

use super::desired::{Desired, Host, Role};
use super::facts::{DiskFact, Etcd, EtcdFact, Facts, HostFacts};
use super::names::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a host keeps what it remembers: not where the data lies, which may go back in time without it.
pub const POSITIONS: &str = "/var/lib/hactl/positions.json";
/// So many positions of one origin are read: no cluster has as many members.
pub const MOST: usize = 64;

/// An entry that a member had applied, as it said itself. Its log has reached it once and for all: what is applied is never taken back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Member id.
    pub member: u64,
    /// Term of an entry that it had applied.
    pub term: u64,
    /// Index of an entry that it had applied.
    pub index: u64,
}

impl Position {
    /// Whether both are of one member.
    pub fn same_member(&self, other: &Self) -> bool {
        (&self.cluster, self.member) == (&other.cluster, other.member)
    }
    /// Whether this data is the member's and lacks the entry: it went back in time. Of a log that is damaged nothing can be said.
    pub fn is_missing_from(&self, disk: &DiskFact) -> bool {
        (&self.cluster, self.member) == (&disk.cluster, disk.member)
            && !disk.damaged
            && (disk.index < self.index || disk.term < self.term)
    }
    /// Keeps the furthest of each member.
    pub fn note(self, all: &mut Vec<Self>) {
        let room = all.len() < MOST;
        match all.iter_mut().find(|known| known.same_member(&self)) {
            Some(known) if *known < self => *known = self,
            Some(_) => {}
            None if room => all.push(self),
            None => {}
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}, entry {}", self.term, self.index)
    }
}

/// Why no member may go on from the data on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Its disk went back in time.
    RolledBack {
        /// How far its member was seen.
        seen: Position,
        /// Who remembers that.
        by: String,
        /// Term and index of its last entry.
        ends: (u64, u64),
    },
    /// It is of the member of another host.
    Of(HostName),
    /// The same, and that one has this host's.
    Swapped(HostName),
    /// Its member runs and cannot catch up, for this reason.
    Stuck(String),
}

impl Unfit {
    /// In words, on this host.
    pub fn on(&self, host: &HostName) -> String {
        match self {
            Self::RolledBack { seen, by, ends: (term, index) } => format!(
                "the disk of {host} went back in time: its member was seen at {seen} ({by} remembers it), and its data ends at term {term}, \
                 entry {index}"
            ),
            Self::Of(other) => format!("the disk of {host} holds the etcd data of {other}'s member"),
            Self::Swapped(other) => {
                format!("{host} has the etcd disk of {other}, and {other} that of {host}: swap the volumes back")
            }
            Self::Stuck(why) => format!("the member on {host} runs and cannot catch up: {why}"),
        }
    }
}

/// What speaks against the data on an etcd host.
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

/// Whether a member runs on a host, whatever it says.
fn runs(facts: &HostFacts) -> bool {
    let unit = facts.units.iter().find(|(name, _)| name.as_str() == super::facts::ETCD_UNIT);
    unit.is_some_and(|(_, unit)| unit.started_ms > 0 && unit.runs_or_starts())
}

/// The log of a member that runs grows while it is read: only of one that lies still its end can be compared.
fn rolled_back(desired: &Desired, facts: &Facts, host: &HostName) -> Option<Unfit> {
    let found = facts.host(host).filter(|found| !runs(found))?;
    let etcd = found.etcd.as_ref().filter(|etcd| etcd.view.is_none())?;
    let disk = etcd.disk.as_ref()?;
    // A single voter has nobody whom its vote could help against what was acknowledged.
    if disk.voters().is_some_and(|voters| voters.count() == 1) && !matches!(facts.etcd, Etcd::HasQuorum(_)) {
        return None;
    }
    // No member has applied what those with a quorum behind them have not: who says so is wrong, or they all went back.
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

/// The host whose member's data lies on this one, by the list of those with a quorum behind them, or else by the data's own.
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
    // A host that is not listed may have another address than it had.
    let others = listed.iter().any(|(id, peer)| **peer == own && *id != member);
    desired.with(Role::Etcd).find(|other| others && &other.peer_url() == its)
}

/// What the host saw of its own member, where those with a quorum behind them have gone further.
fn stuck(facts: &Facts, etcd: &EtcdFact) -> Option<Unfit> {
    let why = etcd.stuck.as_ref().filter(|_| !etcd.view.as_ref().is_some_and(|view| view.linearizable))?;
    let (living, disk) = (facts.living()?, etcd.disk.as_ref()?);
    (living.cluster == disk.cluster && living.applied > disk.commit).then(|| Unfit::Stuck(why.clone()))
}
