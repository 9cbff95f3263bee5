//! The words of a recovery: what can be brought back, from where, and at which price.
//!
//! In: made by `plan/` from facts. Out: shown to a person, kept in the journal once agreed to, and run.

use super::names::{BadName, HostName, PeerUrl};
use serde::{Deserialize, Serialize};
use std::fmt;

/// By how much the revision leaps in a recovery: more than any cluster writes between two of them, so that none is ever given out
/// twice. Upstream's advice for `etcdutl snapshot restore --bump-revision`.
pub const LEAP: i64 = 1_000_000_000;

/// The only code by which `hactl host-fence` keeps etcd from starting; its unit's drop-in takes every other one for a yes.
pub const STAYS_DOWN: u8 = 86;

/// Whether the data of one member is of the past of another: of another cluster, and at least half a leap behind. Both come as
/// cluster id and revision. No two clusters with the same certificates come to lie so far apart but by a recovery.
pub fn left_behind(one: (&str, i64), other: (&str, i64)) -> bool {
    one.0 != other.0 && far_below(one.1, other.1)
}

/// Whether a recovery lies between two revisions.
pub fn far_below(one: i64, other: i64) -> bool {
    other.saturating_sub(one) >= LEAP / 2
}

/// How the names of directories begin that hold a member's data which was moved aside: by hactl, and by hand along the runbook.
pub const MOVED: &str = "member.moved-";

/// Whether this is such a name, and one that leads nowhere else.
pub fn is_aside(name: &str) -> bool {
    let rest = name.strip_prefix(MOVED).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (1..=100).contains(&rest.len()) && rest.bytes().all(plain)
}

/// What a cluster is brought back from. As text: a host's name, or `bundle:` and the name of a file, or `aside:`, a host's name, a colon
/// and the name of a directory; no host's name has a colon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Origin {
    /// The data of this host's member.
    Data(HostName),
    /// Data of a member that was moved aside on this host: the name of the directory, as [`is_aside`] wants it.
    Aside(HostName, String),
    /// A recovery bundle of this name.
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

/// A recovery that was agreed to: what no observation could tell a later run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// Random; names the recovery everywhere, and is the new cluster's token.
    pub id: String,
    /// What is taken.
    pub source: Origin,
    /// Term and index of the last entry of its log.
    pub reach: (u64, u64),
    /// The revision that the restored store begins at.
    pub base: i64,
    /// Name and peer URL of the members of the new cluster.
    pub members: Vec<(HostName, PeerUrl)>,
    /// Whether a person went back with it, though etcd may have answered.
    #[serde(default)]
    pub undo: bool,
}

/// What asking for an undo means after the last recovery that made a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Another one.
    Another,
    /// The very same, which was cut off, or whose end failed: only what is left is done.
    TheSame,
    /// Going forth again, or the same once more: nobody can tell, so the person has to name it.
    Unclear,
}

impl Recovery {
    /// What `--undo` means, with `from` where something was named, after this recovery; `whole`: nothing was left to do behind it.
    pub fn again(&self, from: Option<&Origin>, whole: bool) -> Again {
        match from {
            _ if !self.undo => Again::Another,
            None if whole => Again::Unclear,
            None => Again::TheSame,
            Some(from) if !whole && from == &self.source => Again::TheSame,
            Some(_) => Again::Another,
        }
    }
    /// How many of its members may fail before writes stop.
    pub fn tolerates(&self) -> usize {
        self.members.len().saturating_sub(1) / 2
    }
}

/// Data that a cluster could be brought back from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Where it lies, or who took it.
    pub host: HostName,
    /// The recovery bundle that it is; `None`: data of the host's own member.
    pub bundle: Option<String>,
    /// Where the bundle lies: a URL in object storage, or `HOST:/DIRECTORY`; `None`: among the host's own, or on this machine.
    pub away: Option<String>,
    /// The directory that holds the data, where it was moved aside; `None`: it is the member's, or a bundle.
    pub aside: Option<String>,
    /// Term and index of the last entry of its log.
    pub reach: (u64, u64),
    /// Revision of its store; it may lag behind the log.
    pub revision: i64,
    /// How long ago its log was last written to, by the host's own clock, milliseconds.
    pub age_ms: u64,
    /// How far in the future it is dated, milliseconds; 0: it is not.
    pub ahead_ms: u64,
    /// Size of its store, bytes.
    pub db_bytes: u64,
    /// What is not as it should be.
    pub flaws: Vec<String>,
}

impl Source {
    /// As what it is chosen.
    pub fn origin(&self) -> Origin {
        match (&self.bundle, &self.aside) {
            (Some(name), _) => Origin::Bundle(name.clone()),
            (None, Some(name)) => Origin::Aside(self.host.clone(), name.clone()),
            (None, None) => Origin::Data(self.host.clone()),
        }
    }
}

/// What is lost with the data that is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Every write that was ever acknowledged is in the source.
    Nothing,
    /// A majority of the members is missing, and only they could tell what they agreed on after the source's last entry.
    CannotBeKnown,
    /// Everything that was written after a recovery bundle was taken.
    Since {
        /// How long ago that was, milliseconds.
        ms: u64,
        /// How many revisions are known to have been given out since, at least.
        revisions: u64,
    },
    /// The person chose an older source than the newest one that can be read.
    Chosen {
        /// Entries of the log that the newest has and the source has not, at least; 0: it has later ones in fewer.
        entries: u64,
        /// By how many revisions the newest's store is further.
        revisions: u64,
        /// For how much longer the newest was written to, milliseconds.
        ms: u64,
    },
    /// The person chose a source of before a recovery, and the cluster that this made wrote since: all of that.
    #[serde(rename = "forsaken")]
    Abandoned,
    /// The person goes back from what etcd has now to what was there before: everything since.
    Undone {
        /// Revisions that were given out since, as far as can be seen.
        revisions: u64,
    },
}

/// What a recovery would do, for a person to agree to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// What would be done.
    pub recovery: Recovery,
    /// Whether it was agreed to before and only has to be finished.
    pub begun: bool,
    /// One that was agreed to, is not finished, and is given up for this one.
    pub gives_up: Option<Recovery>,
    /// A bundle that says that it goes further than the data which is taken: that lives, and a person alone puts a file before it.
    pub passed_over: Option<Source>,
    /// All data that can be read, the newest first; bundles after data that lives.
    pub sources: Vec<Source>,
    /// How many members had a vote.
    pub voters: usize,
    /// Voters that do not answer, by name, or by address where the inventory does not name them.
    pub dark: Vec<String>,
    /// Hosts that answer, and hold no data although a member ran there: it is lost, or a volume is not mounted.
    pub empty: Vec<HostName>,
    /// Hosts that say that a revision was given out to which no cluster can have come from what is left: it counts for nothing.
    pub beyond: Vec<(HostName, i64)>,
    /// What is lost.
    pub loss: Loss,
    /// Hosts of the inventory that become members later, by `hactl up`.
    pub later: Vec<HostName>,
}

/// One of the things that make room in a store that has reached its quota, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// Forgets all but the newest value of every key, on every member: watches that are further back begin anew.
    Compact,
    /// Gives what was forgotten back to the file system, on one member, which stands still meanwhile.
    Defragment,
    /// Lets it take writes again.
    Disarm,
    /// The same, where members' data differed, and does not any more.
    Agreed,
}

/// How full one member is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fullness {
    /// Where.
    pub host: HostName,
    /// Size of its store, bytes.
    pub db_bytes: u64,
    /// The size at which it takes no more writes; 0: not known.
    pub quota_bytes: u64,
}

/// What is wrong with etcd, and the least that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Diagnosis {
    /// A quorum answers: nothing is to be recovered, `hactl up` heals the rest.
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
    /// A quorum answers and takes no writes, for a store has reached its quota (the alarm `NOSPACE`). Who leads comes last.
    Full(Vec<Fullness>),
    /// A quorum answers, and some of its members hold other keys than the majority.
    Odd {
        /// Whose keys are other ones.
        odd: Vec<HostName>,
        /// How many agree.
        agree: usize,
    },
    /// The last recovery made a cluster, and was cut off before all that hangs on it was done.
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
    fn what_is_chosen_is_read_from_the_journal_as_it_was_written() {
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
