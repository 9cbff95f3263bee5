//! The terms of a recovery: its sources, its result and the data loss.
//!
//! In: made by `plan/` from facts. Out: shown to a person, stored in the journal once agreed to, and run.

use super::facts::EtcdView;
use super::names::{BadName, HostName, PeerUrl};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The increment of the revision in a recovery: more than any cluster writes between two recoveries, so that no
/// revision is used twice. It is upstream's advice for `etcdutl snapshot restore --bump-revision`.
pub const LEAP: i64 = 1_000_000_000;

/// From this size of the database on, bytes, a recovery from the data of a member first restores that member alone, and
/// the others join it while clients are served: the time of a snapshot to every host grows with the size.
pub const ALONE_FROM: u64 = 256 << 20;

/// The only exit code of `hactl host-fence` that prevents etcd from starting; its drop-in treats every other code as
/// permission.
pub const STAYS_DOWN: u8 = 86;

/// Whether the data of one member is older than the cluster of another: it has another cluster id, and is at least half
/// an increment behind. Both are given as cluster id and revision. Clusters with the same certificates differ that much
/// only because of a recovery.
pub fn left_behind(one: (&str, i64), other: (&str, i64)) -> bool {
    one.0 != other.0 && far_below(one.1, other.1)
}

/// Whether a recovery lies between two revisions.
pub fn far_below(one: i64, other: i64) -> bool {
    other.saturating_sub(one) >= LEAP / 2
}

/// Prefix of directories with data of a member that was moved aside, by hactl or by hand with the runbook.
pub const MOVED: &str = "member.moved-";

/// Whether this is such a name, and not a path that leads elsewhere.
pub fn is_aside(name: &str) -> bool {
    let rest = name.strip_prefix(MOVED).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (1..=100).contains(&rest.len()) && rest.bytes().all(plain)
}

/// The source of a recovery. As text: a host name, or `bundle:` and the name of a file, or `aside:`, a host name, a
/// colon and the name of a directory; no host name has a colon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Origin {
    /// The data of this host's member.
    Data(HostName),
    /// Data of a member that was moved aside on this host: the name of the directory, as [`is_aside`] accepts it.
    Aside(HostName, String),
    /// A snapshot of this name.
    Bundle(String),
}

const BUNDLE: &str = "bundle:";
const ASIDE: &str = "aside:";

impl TryFrom<String> for Origin {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        if let Some(name) = text.strip_prefix(BUNDLE) {
            return Ok(Self::Bundle(name.to_owned()));
        }
        match text.strip_prefix(ASIDE).and_then(|rest| rest.split_once(':')).filter(|(_, name)| is_aside(name)) {
            Some((host, name)) => host.to_owned().try_into().map(|host| Self::Aside(host, name.to_owned())),
            None => text.try_into().map(Self::Data),
        }
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> String {
        match origin {
            Origin::Data(host) => host.into(),
            Origin::Bundle(name) => format!("{BUNDLE}{name}"),
            Origin::Aside(host, name) => format!("{ASIDE}{host}:{name}"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(host) => f.write_str(host.as_str()),
            Self::Bundle(name) => f.write_str(name),
            Self::Aside(host, name) => write!(f, "{host}:{name}"),
        }
    }
}

/// A recovery that was agreed to: what a later run could not observe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// Random; it identifies the recovery everywhere, and is the token of the new cluster.
    pub id: String,
    /// What is restored.
    pub source: Origin,
    /// Term and index of the last entry of its log.
    pub reach: (u64, u64),
    /// The first revision of the restored database.
    pub base: i64,
    /// Name and peer URL of the members of the new cluster.
    pub members: Vec<(HostName, PeerUrl)>,
    /// Whether it is an undo, requested although etcd may have had a quorum.
    #[serde(default)]
    pub undo: bool,
}

/// The meaning of `--undo` after the last completed recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Another one.
    Another,
    /// The same one, which was interrupted or failed at its end: only the remaining steps are run.
    TheSame,
    /// Undo of the undo, or the same once more: it is ambiguous, so the person has to name it.
    Unclear,
}

impl Recovery {
    /// The meaning of `--undo` after this recovery, with `from` if a source was named; `whole`: no steps of it are
    /// left.
    pub fn again(&self, from: Option<&Origin>, whole: bool) -> Again {
        match from {
            _ if !self.undo => Again::Another,
            None if whole => Again::Unclear,
            None => Again::TheSame,
            Some(from) if !whole && from == &self.source => Again::TheSame,
            Some(_) => Again::Another,
        }
    }
    /// Whether its only member is restored from its own data, on its own disk: no snapshot of it goes anywhere.
    pub fn is_local(&self) -> bool {
        match (&self.source, self.members.as_slice()) {
            (Origin::Data(host), [(member, _)]) => host == member,
            _ => false,
        }
    }
    /// How many of its members may fail before writes stop.
    pub fn tolerates(&self) -> usize {
        self.members.len().saturating_sub(1) / 2
    }
}

/// Data that a cluster could be recovered from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The host that has it, or that took it.
    pub host: HostName,
    /// The name of the snapshot; `None`: data of the host's member.
    pub bundle: Option<String>,
    /// Where the snapshot is stored: a URL in object storage, or `HOST:/DIRECTORY`; `None`: on the host, or on this
    /// machine.
    pub away: Option<String>,
    /// The directory of the data, if it was moved aside; `None`: it is the member's current data, or a snapshot.
    pub aside: Option<String>,
    /// Term and index of the last entry of its log.
    pub reach: (u64, u64),
    /// Revision of its database; it may lag behind the log.
    pub revision: i64,
    /// How long ago its log was last written to, by the host's clock, milliseconds.
    pub age_ms: u64,
    /// How far in the future it is dated, milliseconds; 0: it is not.
    pub ahead_ms: u64,
    /// Size of its database, bytes.
    pub db_bytes: u64,
    /// What is wrong with it.
    pub flaws: Vec<String>,
}

impl Source {
    /// The origin that selects it.
    pub fn origin(&self) -> Origin {
        match (&self.bundle, &self.aside) {
            (Some(name), _) => Origin::Bundle(name.clone()),
            (None, Some(name)) => Origin::Aside(self.host.clone(), name.clone()),
            (None, None) => Origin::Data(self.host.clone()),
        }
    }
}

/// The data loss of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Every write that was ever acknowledged is in the source.
    Nothing,
    /// A majority of the members is missing, and only they know which entries they committed after the source's last
    /// entry.
    CannotBeKnown,
    /// Everything that was written after a snapshot was taken.
    Since {
        /// How long ago that was, milliseconds.
        ms: u64,
        /// How many revisions are known to have been used since, at least.
        revisions: u64,
    },
    /// The person chose an older source than the newest readable one.
    Chosen {
        /// Log entries that the newest has and the source does not, at least; 0: the newest has fewer, but later ones.
        entries: u64,
        /// By how many revisions the database of the newest is ahead.
        revisions: u64,
        /// For how much longer the newest was written to, milliseconds.
        ms: u64,
    },
    /// The person chose a source older than a recovery: all writes of the recovered cluster.
    #[serde(rename = "forsaken")]
    Abandoned,
    /// The person replaces the current data with earlier data: everything since.
    Undone {
        /// Revisions that were used since, as far as known.
        revisions: u64,
    },
}

/// A proposed recovery, for a person to agree to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// The recovery.
    pub recovery: Recovery,
    /// Whether it was agreed to before and only has to be finished.
    pub begun: bool,
    /// An unfinished recovery that is abandoned for this one.
    pub gives_up: Option<Recovery>,
    /// A snapshot that claims to be newer than the live data that is used: only a person can prefer it.
    pub passed_over: Option<Source>,
    /// All readable sources, the newest first; snapshots after live data.
    pub sources: Vec<Source>,
    /// The number of voters.
    pub voters: usize,
    /// Unreachable voters, by name, or by address if the inventory does not name them.
    pub unreachable: Vec<String>,
    /// Hosts that answer and have no data although a member ran there: it is lost, or a volume is not mounted.
    pub empty: Vec<HostName>,
    /// Hosts that report a revision that no cluster could have reached from the sources: it is ignored.
    pub beyond: Vec<(HostName, i64)>,
    /// The data loss.
    pub loss: Loss,
    /// Hosts of the inventory that become members later, by `hactl up`.
    pub later: Vec<HostName>,
}

/// The steps that free space in a database that has reached its quota, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// Compaction: drops all but the newest revision of every key, on all members; watches of older revisions have to
    /// restart.
    Compact,
    /// Defragments one member, which does not answer meanwhile.
    Defragment,
    /// Disarms the NOSPACE alarm, so that etcd accepts writes again.
    Disarm,
    /// Disarms the CORRUPT alarm, once the data of the members no longer differs.
    Agreed,
}

/// How full one member is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fullness {
    /// Where.
    pub host: HostName,
    /// Size of its database, bytes.
    pub db_bytes: u64,
    /// Its quota, bytes; 0: not known.
    pub quota_bytes: u64,
}

impl Fullness {
    /// Of the member on this host, as it reports it.
    pub fn of(host: HostName, view: &EtcdView) -> Self {
        Self { host, db_bytes: view.db_bytes.unsigned_abs(), quota_bytes: view.quota_bytes.unsigned_abs() }
    }
}

/// The diagnosis of etcd, with the least intrusive remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Diagnosis {
    /// etcd has a quorum: no recovery is needed, and `hactl up` repairs the rest.
    Serves {
        /// Voters that are healthy.
        healthy: usize,
        /// Voters.
        voters: usize,
    },
    /// There never was a cluster.
    Uninitialized,
    /// Enough members have their data and only have to be started.
    Asleep,
    /// etcd has a quorum but refuses writes, because a database has reached its quota (the alarm `NOSPACE`). The leader
    /// comes last.
    Full(Vec<Fullness>),
    /// etcd has a quorum, and some members hold other keys than the majority.
    Odd {
        /// The members with other keys.
        odd: Vec<HostName>,
        /// How many agree.
        agree: usize,
    },
    /// The last recovery started a cluster, and was interrupted before its remaining steps were done.
    Unfinished,
    /// A majority is lost.
    Lost(Box<Proposal>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_asked_for_again_never_goes_back_to_where_it_came_from() {
        let aside = |stamp: &str| Origin::Aside("cp3".parse().unwrap(), format!("member.moved-{stamp}"));
        let (one, other) = (aside("1"), aside("2"));
        let plain = Recovery {
            id: "00ff00ff".to_owned(),
            source: one.clone(),
            reach: (2, 9),
            base: 1_000_000_009,
            members: Vec::new(),
            undo: false,
        };
        for whole in [false, true] {
            assert_eq!(plain.again(None, whole), Again::Another, "what was recovered may be the wrong data");
        }
        let undo = Recovery { undo: true, ..plain };
        assert_eq!(undo.again(None, false), Again::TheSame);
        assert_eq!(undo.again(None, true), Again::Unclear);
        assert_eq!(undo.again(Some(&one), false), Again::TheSame);
        assert_eq!(undo.again(Some(&one), true), Again::Another);
        assert_eq!(undo.again(Some(&other), false), Again::Another, "it was the wrong one");
    }

    #[test]
    fn a_chosen_source_is_read_from_the_journal_as_it_was_written() {
        let origins = [
            Origin::Data("cp3".parse().unwrap()),
            Origin::Bundle("lab-1-cp3.hactl".to_owned()),
            Origin::Aside("bundle".parse().unwrap(), "member.moved-20261122T134733.822Z".to_owned()),
        ];
        for origin in origins {
            assert_eq!(Origin::try_from(String::from(origin.clone())).unwrap(), origin);
        }
    }
}
