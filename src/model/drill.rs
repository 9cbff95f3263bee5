//! Unattended restore drills of an etcd host: their interval, their files and the last result.
//!
//! In: the setting in the inventory, and the result of `hactl host-drill`. Out: read by `observe/` and `report/`; an
//! [`OwnDrill`] is stored on its host as JSON. It proves less than a [`super::snapshot::Drill`] with the owners'
//! identity: neither that this identity decrypts the snapshot, nor anything about the state in it.

use super::snapshot::Proof;
use serde::{Deserialize, Serialize};

/// The timer.
pub const TIMER: &str = "hactl-drill.timer";
/// The service that it starts.
pub const SERVICE: &str = "hactl-drill.service";
/// The age identity of the host: created there, readable only by root, and never sent elsewhere. It decrypts the etcd
/// data of snapshots that this host took since, but not the states in them.
pub const IDENTITY: &str = "/var/lib/hactl/drill-identity.txt";
/// The last [`OwnDrill`].
pub const RECORD: &str = "/var/lib/hactl/snapshots/own-drill.json";
/// Where systemd records the last run of the timer.
pub const LAST_TURN: &str = "/var/lib/systemd/timers/stamp-hactl-drill.timer";
/// `status` warns of a host that ran no drill for so many intervals.
pub const OVERDUE_AFTER: i64 = 2;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Period {
    /// Once a day.
    Daily,
    /// Once a week.
    Weekly,
}

impl Period {
    /// The word in the inventory.
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

/// A drill of a host with its own identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnDrill {
    /// When, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub at_ms: i64,
    /// File name of the snapshot: the newest one on the host.
    pub bundle: String,
    /// When that was taken, by its name.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub taken_ms: i64,
    /// The result.
    pub showed: Showed,
}

/// The result of a host's own drill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Showed {
    /// The snapshot restores to the data that was taken.
    Restored(Proof),
    /// The snapshot is older than the host's identity: only its owners can decrypt it. This is no fault.
    SealedBefore,
    /// The snapshot does not restore, or the drill could not be completed.
    Failed {
        /// The failure, in words.
        what: String,
        /// Whether the snapshot is damaged.
        damaged: bool,
    },
}

impl Showed {
    /// Its word in `hactl status -o json`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Restored(_) => "restored",
            Self::SealedBefore => "sealed-before",
            Self::Failed { .. } => "failed",
        }
    }
    /// Its word in metrics: a drill that could not be completed shows nothing about the snapshot.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Failed { damaged: false, .. } => "aborted",
            _ => self.word(),
        }
    }
}

/// The last drill on a host with one identity, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastDrill {
    /// Whose identity decrypted the snapshot: `owners` or `host`.
    pub identity: &'static str,
    /// The word of its result ([`Showed::outcome`]); `none`: the host is to run drills, and has run none.
    pub outcome: &'static str,
    /// When it was, milliseconds since 1970; without one, or if its snapshot is older than the host's identity for
    /// drills, since when the host has that identity.
    pub at_ms: i64,
}

/// The result of a run of the timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrillOutcome {
    /// The drill was run and recorded; with the last lines of a failure.
    Held(OwnDrill, Vec<String>),
    /// There is no snapshot yet.
    NoBundle,
    /// Another snapshot or restore was running on the host all the time: the next run does the drill.
    Busy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_distinguish_a_damaged_snapshot_from_a_drill_that_was_aborted() {
        let failed = |damaged| Showed::Failed { what: "x".to_owned(), damaged };
        assert_eq!([failed(true).outcome(), failed(false).outcome()], ["failed", "aborted"]);
    }

    #[test]
    fn a_record_is_read_back_as_written() {
        let proof = Proof { keys: 14_233, hash: 7, restored_ms: 6_100 };
        let failed = Showed::Failed { what: "x".to_owned(), damaged: true };
        for (showed, text) in [
            (Showed::Restored(proof), r#"{"restored":{"keys":14233,"hash":7,"restored_ms":6100}}"#),
            (Showed::SealedBefore, r#""sealed-before""#),
            (failed, r#"{"failed":{"what":"x","damaged":true}}"#),
        ] {
            assert_eq!(serde_json::to_string(&showed).unwrap(), text);
            assert!(text.contains(&format!("\"{}\"", showed.word())), "the record has the same word");
            let drill = OwnDrill { at_ms: 2, bundle: "a.hactl".to_owned(), taken_ms: 1, showed };
            let written = serde_json::to_vec(&drill).unwrap();
            assert_eq!(serde_json::from_slice::<OwnDrill>(&written).unwrap(), drill);
        }
    }
}
