//! Repairs: what a guard does about a fault of its own host, what it has done, and what prevents it.
//!
//! In: decisions of `plan/local_repair`, records and holds in files of the host. Out: part of the guard's report, read
//! by `report/`. Nothing that another host says leads to a repair here.

use super::fault::{FaultKind, evidence};
use super::names::{HostName, UnitName};
use super::timestamp;
use super::units::{HEAL_UNIT, containerd_unit, etcd_balancer_unit, etcd_unit, kubelet_unit, unit};
use serde::{Deserialize, Serialize};

/// The records, one JSON object on each line, the newest last.
pub const RECORDS: &str = "/var/lib/hactl/guard/repairs.jsonl";
/// Attempts before the time in this file no longer count: milliseconds since 1970.
pub const RETRY: &str = "/var/lib/hactl/guard/retry";
/// The most records that are kept.
pub const MOST_RECORDS: usize = 200;
/// A step of a guard. [`LocalStep::Rejoin`], [`LocalStep::FreeEtcdSpace`] and [`LocalStep::Power`] need a quorum; no
/// other one needs another host. All but [`LocalStep::Power`] are steps on the own host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalStep {
    /// Starts a unit that does not run.
    Start,
    /// Ends a process at once and starts it again.
    Restart,
    /// Deletes old journals and core dumps.
    FreeSpace,
    /// Compacts and defragments its etcd member, and disarms the alarm of that member.
    FreeEtcdSpace,
    /// Transfers the lead of etcd to a member with a faster disk.
    HandOverLead,
    /// Restarts the service that sets the clock.
    RestartTimeService,
    /// Renews the certificates that the host itself can renew.
    RenewCertificates,
    /// Makes its etcd member join with an empty disk, or removes those of hosts that are gone, by the leave of the others.
    Rejoin,
    /// Reboots the host, because restarts did not help.
    Reboot,
    /// Switches the power of another host, which gives no sign of life, by the leave of the others.
    Power,
}

impl LocalStep {
    /// Its name in metrics; that in records is the same.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Restart => "restart",
            Self::FreeSpace => "free-space",
            Self::FreeEtcdSpace => "free-etcd-space",
            Self::RestartTimeService => "restart-time-service",
            Self::RenewCertificates => "renew-certificates",
            Self::Rejoin => "rejoin",
            Self::Reboot => "reboot",
            Self::HandOverLead => "hand-over-lead",
            Self::Power => "power",
        }
    }

    /// How often it is tried for one fault.
    pub fn tries(self, kind: FaultKind) -> usize {
        match self {
            // A kubelet creates its Node when it starts, and only then.
            Self::Restart if kind == FaultKind::NodeMissing => 1,
            // One whose keys differ again has a broken host.
            Self::Rejoin if kind == FaultKind::EtcdDiverged => 2,
            Self::Start | Self::Restart | Self::Rejoin | Self::FreeEtcdSpace | Self::HandOverLead => 3,
            Self::Power => 2,
            // What did not help once does not help again.
            Self::FreeSpace | Self::RestartTimeService | Self::RenewCertificates | Self::Reboot => 1,
        }
    }
}

/// What runs a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// systemd.
    Unit(UnitName),
    /// The kubelet, from a manifest: the API server.
    ApiServer,
}

/// What a fault of the own host is about: the component that a step starts or restarts.
pub fn runner(kind: FaultKind) -> Option<Runner> {
    let unit = match kind {
        FaultKind::EtcdStopped | FaultKind::EtcdFrozen => etcd_unit(),
        FaultKind::ApiFrozen => return Some(Runner::ApiServer),
        FaultKind::KubeletFrozen | FaultKind::NodeMissing => kubelet_unit(),
        FaultKind::RuntimeFrozen => containerd_unit(),
        FaultKind::BalancerFrozen => unit("haproxy.service"),
        FaultKind::EtcdBalancerFrozen => etcd_balancer_unit(),
        FaultKind::KeepalivedFrozen | FaultKind::VipMissing | FaultKind::VipDuplicate => unit("keepalived.service"),
        FaultKind::EtcdDataLost
        | FaultKind::EtcdDamaged
        | FaultKind::EtcdFenced
        | FaultKind::EtcdNotVoting
        | FaultKind::EtcdVoteFree
        | FaultKind::EtcdVotersGone
        | FaultKind::EtcdDiverged
        | FaultKind::PowerDue => unit(HEAL_UNIT),
        FaultKind::EtcdCorrupt
        | FaultKind::EtcdQuorumLost
        | FaultKind::EtcdSlowLeader
        | FaultKind::EtcdFull
        | FaultKind::DiskFull
        | FaultKind::ClockSkew
        | FaultKind::CertificateExpiring
        | FaultKind::HostUnreachable
        | FaultKind::Partitioned
        | FaultKind::GuardDown
        | FaultKind::ForeignHealer
        | FaultKind::EtcdDiskStalled
        | FaultKind::ApiCrashLoop
        | FaultKind::Flapping
        | FaultKind::NeedsUp => return None,
    };
    Some(Runner::Unit(unit))
}

/// How a component runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// Its main process runs since this time.
    Since(i64),
    /// A signal has suspended it.
    Suspended,
    /// systemd is starting or stopping it.
    Changing,
    /// It was stopped in order at this time: by a person, or by a program that a person started.
    Stopped(i64),
    /// It ended by a failure.
    Failed,
    /// It is disabled or masked, and does not run.
    Disabled,
    /// Its own fence has refused to start it.
    Fenced,
    /// It has no process, or is not installed.
    Absent,
}

/// An attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairRecord {
    /// The fault.
    pub kind: FaultKind,
    /// The step.
    pub step: LocalStep,
    /// When it began, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub begun_ms: i64,
    /// For how long the fault had lasted, milliseconds.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub after_ms: i64,
    /// How it went on.
    pub outcome: Outcome,
    /// The other host whose power the step was to switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
}

/// The power of another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    /// The host.
    pub host: HostName,
    /// What was done.
    pub switched: Switched,
}

/// What was done to the power of a host. Each value is stored before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switched {
    /// It is not known, because a program was killed.
    Unknown,
    /// Nothing.
    Nothing,
    /// It was on, and stays on for now: the host may be booting.
    LeftOn,
    /// It was off, and was switched on.
    On,
    /// It was switched off.
    Off,
    /// It was switched off, seen off, and switched on again.
    Cycled,
}

impl RepairRecord {
    /// The other host that the step was for.
    pub fn other(&self) -> Option<&HostName> {
        self.power.as_ref().map(|power| &power.host)
    }
    /// What the step has done to the power of that host.
    pub fn switched(&self) -> Option<Switched> {
        self.power.as_ref().map(|power| power.switched)
    }
}

impl Switched {
    /// Whether it was switched on, last of all.
    pub fn is_on(self) -> bool {
        matches!(self, Self::On | Self::Cycled)
    }
    /// Whether the power may have changed.
    pub fn may_have_changed(self) -> bool {
        !matches!(self, Self::Nothing | Self::LeftOn)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has not ended, or the guard was killed meanwhile.
    Open,
    /// The step is done; whether it helped is not known yet.
    Done,
    /// The step failed, and why.
    Failed(String),
    /// The fault was no longer seen, so many milliseconds after the beginning of the step.
    Helped(i64),
}

/// What prevents a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "gate")]
pub enum Gate {
    /// A person holds the host.
    Hold,
    /// Somebody has the lock of the host.
    Lock {
        /// The holder.
        by: String,
    },
    /// The unit is disabled or masked, so a person does not want it to run.
    Disabled,
    /// The component is not installed, or has no process that could be ended.
    Absent,
    /// systemd or the kubelet is starting it: ending it again does not help.
    Starting,
    /// A repair is under way already.
    Underway,
    /// The fence keeps the member down: its data is older than a recovery.
    Fenced,
    /// The member may still be needed for quorum.
    Quorum {
        /// Members of other hosts that serve linearizable reads.
        others: usize,
        /// How many of them are needed without this one.
        needed: usize,
    },
    /// Other hosts have all votes.
    Votes {
        /// How many votes etcd has.
        of: usize,
    },
    /// The cause is elsewhere: etcd has no quorum.
    NoQuorum,
    /// The cause is elsewhere: the load balancer has no usable API server, so no host takes the VIP.
    NotUsable,
    /// Another host is not well, so this one is not rebooted.
    Unwell {
        /// The host.
        host: HostName,
    },
    /// The fault comes and goes: its cause is elsewhere.
    Flapping,
    /// Another healer may reboot or replace the host, or the one that is gone.
    Foreign {
        /// Which.
        by: String,
    },
    /// No other host has an API server, or etcd has one member.
    Last,
    /// Another host is just being repaired for the same fault.
    Turn {
        /// The host.
        host: HostName,
    },
}

/// Why a step comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delay {
    /// A person stopped the component.
    Stopped,
    /// It has just started.
    Started,
    /// The last attempt is not long ago, or there were several.
    Attempts,
    /// Other hosts with the same fault come first.
    Turn,
    /// The member does not answer, but no other one has a quorum either.
    NoQuorum,
    /// The power of the host is on, so it may be booting.
    Boot,
    /// Its power was switched less than an hour ago.
    Switched,
}

/// What a guard does about a fault of its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "decision")]
pub enum Decision {
    /// The step, now.
    Act {
        /// The step.
        step: LocalStep,
    },
    /// The step, at a later time.
    Wait {
        /// The step.
        step: LocalStep,
        /// When, by the host's clock, milliseconds since 1970.
        #[serde(deserialize_with = "timestamp::bounded")]
        until_ms: i64,
        /// Why not now.
        why: Delay,
    },
    /// Nothing, for a reason that may end.
    HeldBack {
        /// The step.
        step: LocalStep,
        /// The reason.
        #[serde(flatten)]
        gate: Gate,
    },
    /// Nothing: it was tried, and the fault is still there.
    GaveUp {
        /// The step.
        step: LocalStep,
        /// How often.
        tries: usize,
    },
    /// Nothing: a guard has no step for it.
    Person,
}

impl Decision {
    /// Cuts its text to one line.
    pub fn in_one_line(&mut self) {
        if let Self::HeldBack { gate: Gate::Lock { by } | Gate::Foreign { by }, .. } = self {
            *by = evidence(by);
        }
    }
}

/// A fault of the host, and what its guard does about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The fault.
    pub kind: FaultKind,
    /// The host that has it; `None`: the own one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// What.
    #[serde(flatten)]
    pub decision: Decision,
}

impl RepairRecord {
    /// With a text of one line.
    #[must_use]
    pub fn in_one_line(mut self) -> Self {
        if let Outcome::Failed(why) = &mut self.outcome {
            *why = evidence(why);
        }
        self
    }
}

/// Such as `restart etcd.service`: the step with what it acts on, which may be another host.
pub fn deed(step: LocalStep, kind: FaultKind, other: Option<&HostName>) -> String {
    let what = match runner(kind) {
        Some(Runner::Unit(unit)) => unit.to_string(),
        Some(Runner::ApiServer) => super::control_plane::API_SERVER.to_owned(),
        None => String::new(),
    };
    match step {
        LocalStep::Start => format!("start {what}"),
        LocalStep::Restart => format!("restart {what}"),
        LocalStep::FreeSpace => "delete old journals and core dumps".to_owned(),
        LocalStep::FreeEtcdSpace => "free space in etcd".to_owned(),
        LocalStep::HandOverLead => "hand over the lead of etcd".to_owned(),
        LocalStep::RestartTimeService => "restart the time service".to_owned(),
        LocalStep::RenewCertificates => "start hactl-renew.service".to_owned(),
        LocalStep::Reboot => "reboot the host".to_owned(),
        LocalStep::Power => format!("switch the power of {}", other.map_or("another host", HostName::as_str)),
        LocalStep::Rejoin => match kind {
            FaultKind::EtcdVoteFree => "join etcd instead of a host that is gone".to_owned(),
            FaultKind::EtcdVotersGone => "remove the etcd members of hosts that are gone".to_owned(),
            _ => "rejoin etcd with an empty disk".to_owned(),
        },
    }
}

/// A step that was done: `restarted etcd.service`.
pub fn done(record: &RepairRecord) -> String {
    let deed = deed(record.step, record.kind, record.other());
    if let Some(Power { host, switched }) = &record.power {
        return match switched {
            Switched::Unknown => format!("began to {deed}"),
            Switched::Nothing => format!("did not {deed}"),
            Switched::LeftOn => format!("left the power of {host} on: it may be booting"),
            Switched::On => format!("switched the power of {host} on: it was off"),
            Switched::Off => format!("switched the power of {host} off, and not on again"),
            Switched::Cycled => format!("switched the power of {host} off and on again"),
        };
    }
    let (verb, rest) = deed.split_once(' ').unwrap_or((&deed, ""));
    let ed = if verb.ends_with('e') { "d" } else { "ed" };
    format!("{verb}{ed} {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_decisions_are_read_back_as_written() {
        let outcomes = [Outcome::Open, Outcome::Done, Outcome::Failed("no space".to_owned()), Outcome::Helped(1200)];
        for outcome in outcomes {
            let record = RepairRecord {
                kind: FaultKind::EtcdFrozen,
                step: LocalStep::Restart,
                begun_ms: 5,
                after_ms: 3,
                outcome,
                power: None,
            };
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<RepairRecord>(&text).unwrap(), record, "{text}");
        }
        let step = LocalStep::Restart;
        let gates = [Gate::Hold, Gate::Lock { by: "up".to_owned() }, Gate::Quorum { others: 1, needed: 2 }];
        let mut decisions = vec![
            Decision::Act { step },
            Decision::Wait { step, until_ms: 7, why: Delay::Turn },
            Decision::GaveUp { step, tries: 3 },
            Decision::Person,
        ];
        decisions.extend(gates.map(|gate| Decision::HeldBack { step, gate }));
        for decision in decisions {
            let decided = Decided { kind: FaultKind::ApiFrozen, host: None, decision };
            let text = serde_json::to_string(&decided).unwrap();
            assert_eq!(serde_json::from_str::<Decided>(&text).unwrap(), decided, "{text}");
        }
    }

    #[test]
    fn a_record_about_the_power_of_a_host_says_what_was_done_to_it() {
        let host: HostName = "cp3".parse().unwrap();
        let said = |switched| {
            let (kind, step) = (FaultKind::PowerDue, LocalStep::Power);
            let power = Some(Power { host: host.clone(), switched });
            let record = RepairRecord { kind, step, begun_ms: 5, after_ms: 3, outcome: Outcome::Done, power };
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<RepairRecord>(&text).unwrap(), record, "{text}");
            done(&record)
        };
        assert_eq!(said(Switched::On), "switched the power of cp3 on: it was off");
        assert_eq!(said(Switched::Cycled), "switched the power of cp3 off and on again");
        assert_eq!(said(Switched::LeftOn), "left the power of cp3 on: it may be booting");
        let all =
            [Switched::Unknown, Switched::Nothing, Switched::LeftOn, Switched::On, Switched::Off, Switched::Cycled];
        assert!(all.into_iter().all(|switched| said(switched).contains("power of cp3")));
        let changed: Vec<_> = all.into_iter().filter(|switched| switched.may_have_changed()).collect();
        assert_eq!(changed, [Switched::Unknown, Switched::On, Switched::Off, Switched::Cycled]);
    }
}
