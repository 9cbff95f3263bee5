//! Drills that an etcd host holds by itself: how often, where what it takes lies, and what the last one showed.
//!
//! In: the inventory's word, and what `hactl host-drill` found. Out: read by `observe/` and `report/`; a [`OwnDrill`] lies on its host as
//! JSON. It proves less than a [`super::snapshot::Drill`] with the owners' identity: not that this opens a bundle, and nothing of the state in it.

use super::snapshot::Proof;
use serde::{Deserialize, Serialize};

/// What starts them.
pub const TIMER: &str = "hactl-drill.timer";
/// What it starts.
pub const SERVICE: &str = "hactl-drill.service";
/// The host's own age identity: root's alone, made there, and it never leaves. It opens the snapshots of the bundles that this host
/// took since, and none of the states in them.
pub const IDENTITY: &str = "/var/lib/hactl/drill-identity.txt";
/// The last [`OwnDrill`].
pub const RECORD: &str = "/var/lib/hactl/snapshots/own-drill.json";
/// Where systemd remembers the timer's last turn.
pub const LAST_TURN: &str = "/var/lib/systemd/timers/stamp-hactl-drill.timer";
/// A host that has held none for so many periods is told.
pub const OVERDUE_AFTER: i64 = 2;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Period {
    /// Once a day.
    Daily,
    /// Once a week.
    Weekly,
}

impl Period {
    /// The inventory's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Weekly => "weekly",
        }
    }
    /// How many days it has.
    pub fn days(self) -> u32 {
        match self {
            Self::Daily => 1,
            Self::Weekly => 7,
        }
    }
    /// The same in milliseconds.
    pub fn ms(self) -> i64 {
        i64::from(self.days()) * 86_400_000
    }
}

/// A drill that a host held by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnDrill {
    /// When, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub at_ms: i64,
    /// File name of the bundle: the newest that it had.
    pub bundle: String,
    /// When that was taken, by its name.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub taken_ms: i64,
    /// What came of it.
    pub showed: Showed,
}

/// What a host's own drill showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Showed {
    /// It restores, to what was taken.
    Restored(Proof),
    /// It is of before the host had its identity: only its owners can open it, and nothing is wrong with that.
    SealedBefore,
    /// It does not restore, or that could not be found out.
    Failed {
        /// What stood in the way, in words.
        what: String,
        /// Whether it is the bundle that is bad.
        damaged: bool,
    },
}

/// How a turn of the timer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrillOutcome {
    /// It was held, and noted; and the last lines of what failed.
    Held(OwnDrill, Vec<String>),
    /// There is no bundle yet.
    NoBundle,
    /// Bundles are taken or restored here for all that time: the next turn holds it.
    Busy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_as_it_was() {
        let proof = Proof { keys: 14_233, hash: 7, restored_ms: 6_100 };
        let failed = Showed::Failed { what: "x".to_owned(), damaged: true };
        for (showed, text) in [
            (Showed::Restored(proof), r#"{"restored":{"keys":14233,"hash":7,"restored_ms":6100}}"#),
            (Showed::SealedBefore, r#""sealed-before""#),
            (failed, r#"{"failed":{"what":"x","damaged":true}}"#),
        ] {
            assert_eq!(serde_json::to_string(&showed).unwrap(), text);
            let drill = OwnDrill { at_ms: 2, bundle: "a.hactl".to_owned(), taken_ms: 1, showed };
            let written = serde_json::to_vec(&drill).unwrap();
            assert_eq!(serde_json::from_slice::<OwnDrill>(&written).unwrap(), drill);
        }
    }
}
