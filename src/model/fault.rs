//! Faults: what a guard detects on its own host, or concludes about another one.
//!
//! In: made by `guard/`, sent in heartbeats. Out: read by `plan/triage`, `report/`. A fault of a kind of
//! [`Class::Confirmed`] is a host's word about itself; no other host can raise it.

use super::healing::Delays;
use super::names::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest evidence, characters.
pub const LONGEST_EVIDENCE: usize = 240;

/// A detected problem of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The host that has it.
    pub host: HostName,
    /// The kind.
    pub kind: FaultKind,
    /// Since when, by the clock of the host that detected it, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub since_ms: i64,
    /// What was seen, one sentence without a full stop.
    pub evidence: String,
}

/// How a fault is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The host itself sees it.
    Confirmed,
    /// Others conclude it from silence or from disagreement.
    Presumed,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident, $word:literal, $class:ident, $delay:expr;)+) => {
        /// The kinds of faults.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl FaultKind {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its name, as in metrics and events.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
            /// What it means, one clause about a host.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
            /// How it is known.
            pub fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)+ }
            }
            /// For how long it must last before it is reported, seconds.
            pub fn delay_s(self, delays: &Delays) -> u32 {
                let delay: fn(&Delays) -> u32 = match self { $(Self::$name => $delay,)+ };
                delay(delays)
            }
        }
    };
}

kinds! {
    /// The unit of etcd does not run, although its data is there.
    EtcdStopped, "its etcd member does not run", Confirmed, |_| 10;
    /// etcd runs and does not answer its own health check.
    EtcdFrozen, "its etcd member runs but does not answer", Confirmed, |d| d.frozen_s;
    /// The data directory has no data, although the host was part of the cluster.
    EtcdDataLost, "its etcd data is gone", Confirmed, |_| 10;
    /// systemd starts etcd in vain, and its log or its database cannot be read.
    EtcdDamaged, "its etcd data is damaged", Confirmed, |_| 5;
    /// The fence keeps the member down: its data is older than a recovery, was rolled back, or is another member's.
    EtcdFenced, "its etcd data is outdated, so etcd is not started from it", Confirmed, |_| 10;
    /// The others do not list the member, or list it as a learner.
    EtcdNotVoting, "its etcd member has no vote", Confirmed, |d| d.not_voting_s;
    /// An etcd host is gone, and this one stands by for its vote.
    EtcdVoteFree, "it stands by for the vote of an etcd host that is gone", Presumed, |_| 0;
    /// Several hosts with a vote are gone, and none stands by. One of the others reports it.
    EtcdVotersGone, "several etcd hosts are gone, and no host stands by for them", Presumed, |_| 0;
    /// No member serves that is heard: etcd has no quorum, or the host is cut off.
    EtcdQuorumLost, "no etcd member serves that its hosts hear: etcd has no quorum, or they are cut off", Presumed, |_| 30;
    /// etcd has raised the alarm CORRUPT, and a majority has other keys than the member.
    EtcdDiverged, "its etcd member has other keys than a majority", Confirmed, |_| 10;
    /// The alarm CORRUPT is set for long, as the host of the leader sees it.
    EtcdCorrupt, "etcd rejects writes, because its members do not have the same keys", Confirmed, |_| 60;
    /// The member has raised the alarm NOSPACE: etcd accepts no writes.
    EtcdFull, "its etcd member has reached its quota, so etcd accepts no writes", Confirmed, |_| 5;
    /// The member leads, and its disk is much slower than that of another one.
    EtcdSlowLeader, "its etcd member leads, and its disk is slow", Confirmed, |_| 10;
    /// Threads of etcd wait for the disk, and no write ends.
    EtcdDiskStalled, "the disk of its etcd member does not answer", Confirmed, |_| 0;
    /// The API server does not answer, although etcd has a quorum here.
    ApiFrozen, "its API server does not answer", Confirmed, |d| 2 * d.frozen_s;
    /// The kubelet starts the API server again and again.
    ApiCrashLoop, "its API server ends again and again", Confirmed, |_| 0;
    /// The kubelet does not answer its own health check.
    KubeletFrozen, "its kubelet does not answer", Confirmed, |d| 2 * d.frozen_s;
    /// An API server says that there is no Node of this name.
    NodeMissing, "its Node does not exist", Confirmed, |_| 60;
    /// containerd does not answer on its socket.
    RuntimeFrozen, "its containerd does not answer", Confirmed, |d| 2 * d.frozen_s;
    /// The haproxy of the endpoint does not answer.
    BalancerFrozen, "its load balancer does not answer", Confirmed, |_| 5;
    /// The haproxy between the API server and etcd's members does not answer.
    EtcdBalancerFrozen, "its balancer in front of etcd does not answer", Confirmed, |_| 5;
    /// keepalived does not run, or is suspended.
    KeepalivedFrozen, "its keepalived does not work", Confirmed, |_| 5;
    /// No host has the VIP.
    VipMissing, "no host has the virtual IP of the endpoint", Presumed, |_| 5;
    /// Two hosts that hear each other have the VIP.
    VipDuplicate, "two hosts have the virtual IP of the endpoint", Presumed, |_| 10;
    /// A file system is almost full.
    DiskFull, "a file system is almost full", Confirmed, |_| 30;
    /// The clock differs from those of most others.
    ClockSkew, "its clock differs from those of the others", Confirmed, |_| 60;
    /// A certificate expires soon or has expired.
    CertificateExpiring, "a certificate expires soon", Confirmed, |_| 0;
    /// The host gives no sign of life, by the word of every other guard.
    HostUnreachable, "it gives no sign of life", Presumed, |d| d.host_unreachable_s;
    /// It is unreachable, and the guard that reports this is the one that may switch its power.
    PowerDue, "it gives no sign of life, and its power may be switched", Presumed, |_| 10;
    /// Some guards hear the host and others do not, or a single one that does not cannot be confirmed.
    Partitioned, "some hosts reach it and others do not", Presumed, |_| 30;
    /// The host answers, and its guard is not heard.
    GuardDown, "its guard is not heard", Presumed, |_| 30;
    /// Another fault was raised four times in half an hour.
    Flapping, "one of its faults comes and goes", Confirmed, |_| 0;
    /// Cluster API, or a NodeHealthCheck, may reboot or replace the host.
    ForeignHealer, "another healer may reboot or replace it", Confirmed, |_| 0;
    /// Its guard has another policy.
    NeedsUp, "its guard has another policy than the others", Confirmed, |_| 60;
}

impl FaultKind {
    /// Whether the components of the host work all the same.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::CertificateExpiring | Self::NeedsUp | Self::ForeignHealer)
    }

    /// Whether the cluster has the fault, and no host of its own.
    pub fn is_of_the_cluster(self) -> bool {
        matches!(self, Self::VipMissing | Self::VipDuplicate | Self::EtcdQuorumLost)
    }
}

/// How a guard sees another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// Its heartbeats arrive.
    Heard,
    /// They do not, but a port of the host answers, also with a refusal.
    Answers,
    /// Neither.
    Silent,
}

/// A text from a host as evidence: one line, without characters that control a terminal or the direction of text, of
/// limited length.
pub fn evidence(text: &str) -> String {
    let unseen = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = text.chars().map(|c| if unseen(c) { ' ' } else { c });
    let words: String = shown.take(4 * LONGEST_EVIDENCE).collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST_EVIDENCE).collect()
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_back_as_written() {
        for kind in FaultKind::ALL {
            let host: HostName = "cp1".parse().unwrap();
            let fault = Fault { host, kind: *kind, since_ms: 7, evidence: "x".to_owned() };
            let text = serde_json::to_string(&fault).unwrap();
            assert!(text.contains(&format!("\"kind\":\"{kind}\"")), "{text}");
            assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), fault);
        }
    }
}
