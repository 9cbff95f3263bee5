//! Heartbeats: the state that guards send one another every second.
//!
//! In: made by a guard, or received from another one and checked by [`Heartbeat::plausible`]. Out: read by
//! `plan/triage`. Unknown fields are ignored, so that guards of different releases understand one another.

use super::fault::{Class, Fault, FaultKind};
pub use super::fault::{Sight, evidence};
use super::healing::Policy;
use super::names::{Digest, HostName};
use super::position::Position;
use super::timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The most faults that are read of one host.
const MOST_FAULTS: usize = 64;

/// The state of a host, by its own guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The digest of its hactl.
    pub release: Digest,
    /// The digest of its policy.
    pub policy: Digest,
    /// The boot of the host, by its kernel.
    pub boot: String,
    /// Its clock, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub now_ms: i64,
    /// Its own faults; those of kinds that only a later release knows are left out.
    #[serde(deserialize_with = "known")]
    pub faults: Vec<Fault>,
    /// Whether the VIP is on one of its interfaces.
    pub vip: bool,
    /// How it sees the other hosts of the policy.
    pub sees: BTreeMap<HostName, Sight>,
    /// Whether its etcd member serves linearizable reads; `None`: it has no member.
    #[serde(default)]
    pub etcd: Option<bool>,
    /// The faults for which it has just acted, and which are not over.
    #[serde(default, deserialize_with = "known")]
    pub repairing: Vec<FaultKind>,
    /// How far the data of its host goes, while no member serves.
    #[serde(default)]
    pub reach: Option<Position>,
    /// In so many milliseconds nine of ten syncs of its etcd member's log ended.
    #[serde(default)]
    pub sync_ms: Option<u32>,
    /// Until when a person holds the host, by its clock, milliseconds since 1970; 0: nobody does.
    #[serde(default, deserialize_with = "timestamp::bounded")]
    pub held_until_ms: i64,
}

/// The entries of a list that this release can read.
fn known<'de, D: Deserializer<'de>, T: DeserializeOwned>(list: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::<Value>::deserialize(list)?;
    Ok(all.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect())
}

/// Why a heartbeat is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Implausible {
    /// A fault of another host.
    #[error("it reports a fault of {0}, which only {0} can confirm")]
    OfAnother(HostName),
    /// A fault of a kind that no host reports about itself.
    #[error("it reports {0} about itself, which only others can conclude")]
    NotConfirmed(FaultKind),
    /// More faults than there are kinds.
    #[error("it reports {0} faults")]
    TooMany(usize),
    /// A host that has no guard.
    #[error("it reports how it sees {0}, which has no guard")]
    Stranger(HostName),
    /// A boot id that is none.
    #[error("its boot id is not one")]
    NoBoot,
}

impl Heartbeat {
    /// The heartbeat of a host, if the host can say that: it confirms faults of its own only, and sees hosts of the
    /// policy only. Its words are cut to one line.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn plausible(mut self, from: &HostName, policy: &Policy) -> Result<Self, Implausible> {
        if self.faults.len() > MOST_FAULTS {
            return Err(Implausible::TooMany(self.faults.len()));
        }
        for fault in &mut self.faults {
            if &fault.host != from {
                return Err(Implausible::OfAnother(fault.host.clone()));
            }
            if fault.kind.class() != Class::Confirmed {
                return Err(Implausible::NotConfirmed(fault.kind));
            }
            fault.evidence = evidence(&fault.evidence);
        }
        if let Some(stranger) = self.sees.keys().find(|host| *host == from || policy.guard(host).is_none()) {
            return Err(Implausible::Stranger(stranger.clone()));
        }
        self.repairing.truncate(MOST_FAULTS);
        self.reach = self.reach.filter(Position::is_plausible);
        let hex = self.boot.len() <= 36 && self.boot.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        if hex { Ok(self) } else { Err(Implausible::NoBoot) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::desired::sample;
    use super::super::healing::Mode;
    use super::*;

    fn policy() -> Policy {
        let mut desired = sample(3);
        desired.healing.mode = Mode::Watch;
        Policy::of(&desired)
    }

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn heartbeat() -> Heartbeat {
        let of = Digest::of(b"x");
        let fault =
            |host| Fault { host, kind: FaultKind::EtcdFrozen, since_ms: 1, evidence: "a\n\u{1b}[31mb".to_owned() };
        let sees = [(name("cp2"), Sight::Heard), (name("cp3"), Sight::Silent)].into();
        let boot = "0f3c6f5e-7d2c-4a1a-9a55-0123456789ab".to_owned();
        Heartbeat {
            release: of,
            policy: of,
            boot,
            now_ms: 5,
            faults: vec![fault(name("cp1"))],
            vip: false,
            sees,
            etcd: None,
            repairing: vec![],
            reach: None,
            sync_ms: None,
            held_until_ms: 0,
        }
    }

    #[test]
    fn a_host_confirms_its_own_faults_only_and_its_words_are_one_line() {
        let (policy, from) = (policy(), name("cp1"));
        let good = heartbeat().plausible(&from, &policy).unwrap();
        assert_eq!(good.faults[0].evidence, "a [31mb");
        assert_eq!(heartbeat().plausible(&name("cp2"), &policy), Err(Implausible::OfAnother(from.clone())));
        let mut presumed = heartbeat();
        presumed.faults[0].kind = FaultKind::HostUnreachable;
        assert_eq!(presumed.plausible(&from, &policy), Err(Implausible::NotConfirmed(FaultKind::HostUnreachable)));
        let mut many = heartbeat();
        many.faults = vec![many.faults[0].clone(); 65];
        assert_eq!(many.plausible(&from, &policy), Err(Implausible::TooMany(65)));
        let mut stranger = heartbeat();
        stranger.sees.insert(name("evil"), Sight::Silent);
        assert_eq!(stranger.plausible(&from, &policy), Err(Implausible::Stranger(name("evil"))));
        let mut own = heartbeat();
        own.sees.insert(from.clone(), Sight::Silent);
        assert_eq!(own.plausible(&from, &policy), Err(Implausible::Stranger(from.clone())), "nobody sees itself");
        let of = |cluster: &str| {
            let reach = Position { cluster: cluster.to_owned(), member: 1, term: 2, index: 3 };
            Heartbeat { reach: Some(reach), ..heartbeat() }.plausible(&from, &policy).unwrap().reach
        };
        assert!(of("cdf818194e3a8c32").is_some() && of("\u{1b}[31m").is_none() && of(&"a".repeat(17)).is_none());
        let mut boot = heartbeat();
        boot.boot = "../../etc".to_owned();
        assert_eq!(boot.plausible(&from, &policy), Err(Implausible::NoBoot));
    }

    #[test]
    fn fields_and_kinds_of_a_later_release_are_ignored_and_times_are_bounded() {
        let mut value = serde_json::to_value(heartbeat()).unwrap();
        value["generation"] = 7.into();
        let later = value["faults"][0].clone();
        value["faults"].as_array_mut().unwrap().push(later);
        value["faults"][1]["kind"] = "KnownLater".into();
        value["repairing"] = serde_json::json!(["KnownLater", "EtcdFrozen"]);
        value["now_ms"] = i64::MAX.into();
        let read: Heartbeat = serde_json::from_value(value).unwrap();
        assert!(read.now_ms < i64::MAX / 2);
        assert_eq!((read.faults.len(), read.repairing), (1, vec![FaultKind::EtcdFrozen]));
    }
}
