//! The part of the verdict table for maintenances.
//!
//! In: a kind. Out: its code for programs, its exit code, and hints.

use super::exit::Exit;

/// Why a maintenance does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceKind {
    /// The cluster does not serve the kind.
    NotServed,
    /// There is no such maintenance.
    NoSuch,
    /// The API has no such Node.
    NoNode,
    /// Another maintenance has the name.
    OtherNode,
    /// The host is a load balancer of the control plane.
    Balancer,
    /// The control plane cannot spare the host.
    NotSpared,
    /// Another process acts on the maintenances of the Node.
    Held,
    /// Another process has not restored the Node in time.
    NotRestored,
    /// No guard acts on maintenances.
    NoGuard,
    /// The kubelet of the Node does not answer.
    NotReady,
    /// The host is not off.
    NotOff,
    /// No node agent can hold static pods.
    NoNodeAgent,
    /// Static pods do not run again in time.
    StaticPodsHeld,
    /// Pods would be lost.
    WouldLose,
    /// Pods did not leave in time.
    GaveUp,
    /// Others uncordon the Node.
    Contested,
    /// A rollout selects no Node.
    NoneSelected,
    /// There is no such rollout.
    NoRollout,
    /// It begins without an approval.
    NotGated,
    /// Several maintenances of a Node could be meant.
    Several,
    /// Maintenances wait after a recovery of etcd.
    Recovered,
    /// Each Node of the rollout is approved by itself.
    ApprovesEach,
    /// A rollout has the name.
    RolloutExists,
    /// It was called off by others.
    CalledOff,
    /// A maintenance of the name is under way for other work.
    OtherWork,
    /// A rollout would make the maintenance again.
    OfRollout,
    /// It is a rollout, and no maintenance of one Node.
    IsRollout,
    /// Too many Nodes of a rollout failed.
    Stopped,
    /// No API server answers.
    Down,
    /// The API server refused a request.
    Refused,
}

impl MaintenanceKind {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::NotServed => "not-served",
            Self::NoSuch => "no-maintenance",
            Self::NoNode => "no-node",
            Self::OtherNode => "name-taken",
            Self::Balancer => "load-balancer",
            Self::NotSpared => "not-spared",
            Self::Held => "locked",
            Self::NotRestored => "not-restored",
            Self::NoGuard | Self::NoNodeAgent => "no-guard",
            Self::StaticPodsHeld => "static-pods-held",
            Self::NotReady => "node-not-ready",
            Self::NotOff => "node-ready",
            Self::WouldLose => "would-be-lost",
            Self::GaveUp => "drain-blocked",
            Self::Contested => "cordon-contested",
            Self::NoneSelected => "no-node",
            Self::NoRollout => "no-maintenance",
            Self::NotGated | Self::ApprovesEach => "not-gated",
            Self::Several => "ambiguous",
            Self::Recovered => "after-recovery",
            Self::RolloutExists | Self::OtherWork => "name-taken",
            Self::CalledOff => "called-off",
            Self::OfRollout => "of-rollout",
            Self::IsRollout => "is-rollout",
            Self::Stopped => "rollout-stopped",
            Self::Down => "api-down",
            Self::Refused => "failed",
        }
    }
    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::NoSuch | Self::NoNode | Self::OtherNode => Exit::Usage,
            Self::NoneSelected | Self::NoRollout | Self::RolloutExists | Self::IsRollout => Exit::Usage,
            Self::NotGated | Self::ApprovesEach | Self::Several => Exit::Usage,
            Self::NotServed | Self::Balancer | Self::NotSpared | Self::WouldLose => Exit::Refused,
            Self::NoGuard | Self::NoNodeAgent | Self::NotReady | Self::NotOff => Exit::Refused,
            Self::OtherWork | Self::OfRollout | Self::Recovered => Exit::Refused,
            Self::Held => Exit::Locked,
            Self::Down => Exit::Down,
            Self::GaveUp | Self::Contested | Self::NotRestored | Self::StaticPodsHeld => Exit::Failed,
            Self::Stopped | Self::CalledOff | Self::Refused => Exit::Failed,
        }
    }
    pub(super) const fn hints(self) -> &'static [&'static str] {
        match self {
            Self::NotServed => &["`hactl up` installs the kind; then run the same command again"],
            Self::NoSuch => &["`hactl maintain list` shows all maintenances"],
            Self::NoNode => &["`hactl kubectl -- get nodes` lists the Nodes; `hactl up` lets a worker join"],
            Self::OtherNode => &["`--name NAME` gives this maintenance another name"],
            Self::Balancer => &[
                "work on one load balancer at a time: `hactl status` shows which one holds the endpoint's address",
                "`hactl kubectl -- drain HOST --ignore-daemonsets --delete-emptydir-data` drains its Node",
            ],
            Self::NotSpared => &[
                "`hactl maintain status` and `hactl status` show which other hosts are away",
                "with guards, `--no-wait` has the maintenance begin as soon as the host can be spared",
                "`--allow-outage` takes a host from a control plane that can never spare one",
            ],
            Self::Held => &[
                "wait for the other process to end, or end the maintenance with `hactl maintain finish` or `cancel`",
                "if it was killed, run the same command again: its Lease ends after 15 seconds",
            ],
            Self::NotRestored => {
                &["`hactl maintain status` shows how far it is; `hactl guard status` shows whether the guards work"]
            }
            Self::NoneSelected => &["`hactl kubectl -- get nodes --show-labels` shows the labels of the Nodes"],
            Self::NoRollout => &["`hactl maintain list` shows all rollouts"],
            Self::NotGated => &["`hactl maintain status` shows what it waits for"],
            Self::Recovered => &[
                "`hactl maintain status` shows maintenances as they were in the snapshot; `hactl maintain cancel` calls one off",
                "then `hactl maintain resume` lets guards act on them",
            ],
            Self::Several => &["`hactl maintain status` shows what each is for; `hactl maintain approve NAME`"],
            Self::ApprovesEach => &["`hactl maintain status` shows which Node waits; `hactl maintain approve NODE`"],
            Self::RolloutExists => &["`--name NAME` gives this rollout another name"],
            Self::CalledOff => {
                &["`hactl maintain status` shows what is under way; `kubectl describe node` shows Events"]
            }
            Self::OtherWork => &[
                "`--name NAME` gives this one a name of its own: a reboot then waits until the other one is finished",
                "`hactl maintain finish NODE` or `cancel NODE` ends the other one",
            ],
            Self::OfRollout => &[
                "`hactl maintain pause ROLLOUT` first: then no Node of it begins",
                "`hactl maintain cancel ROLLOUT` calls all of it off",
            ],
            Self::IsRollout => &["`hactl maintain cancel NAME` calls it off, `hactl maintain pause NAME` pauses it"],
            Self::Stopped => &[
                "`hactl maintain status` shows what is in the way of each Node",
                "`hactl maintain cancel NAME` calls it off and restores its Nodes",
            ],
            Self::NoGuard => &[
                "for one Node and without --no-wait, this command does it itself",
                "`healing: watch` in the inventory and `hactl up` start guards, which act on maintenances",
            ],
            Self::NotReady => &[
                "`hactl status` shows what is wrong with its host; once the Node is ready, run the same command again",
                "if its host is off and stays off, `--powered-off` deletes its pods and detaches its volumes",
            ],
            Self::NotOff => &["switch its host off first, or leave out `--powered-off`"],
            Self::NoNodeAgent => &[
                "`healing: watch` in the inventory and `hactl up` start guards and node agents",
                "without `--through static`, this command drains the Node itself",
            ],
            Self::StaticPodsHeld => &[
                "on its host, `journalctl -u hactl-node-agent.service` says why",
                "the manifests are in /etc/kubernetes/held; then run the same command again",
            ],
            Self::WouldLose => &["`--evict-unmanaged` deletes them for good, and their data with them"],
            Self::GaveUp => &[
                "the Node is as it was before; remove what is in the way, then run the same command again",
                "`--force-after 30m` deletes a pod whose eviction was refused for so long",
            ],
            Self::Contested => &[
                "find out what uncordons it: a person, an autoscaler or another tool for drains",
                "then run the same command again, or give up with `hactl maintain cancel`",
            ],
            Self::Down => &["`hactl status` shows the API servers; it needs neither quorum nor the API"],
            Self::Refused => &[],
        }
    }
}
