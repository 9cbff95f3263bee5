//! How far a maintenance was brought, or why it does not go on.

use crate::execute::DrainError;
use crate::kube::KubeError;
use crate::model::names::HostName;

/// So many times a Node is cordoned again that others uncordon.
pub(super) const CONTESTED: u32 = 3;

/// Why a maintenance does not go on.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The API cannot be used.
    #[error(transparent)]
    Api(#[from] KubeError),
    /// The API server does not serve the kind.
    #[error("the cluster does not serve NodeMaintenance")]
    NotServed,
    /// There is no such object.
    #[error("there is no maintenance of {0}")]
    None(String),
    /// Its Node does not exist.
    #[error("the API has no Node {0}")]
    NoNode(HostName),
    /// Another maintenance has the name.
    #[error("NodeMaintenance {name} is for {node}")]
    OtherNode {
        /// The name.
        name: String,
        /// Its Node.
        node: HostName,
    },
    /// The host is a load balancer without a member of etcd or an API server: nothing says whether it can be spared.
    #[error("{0} is a load balancer of the control plane")]
    Balancer(HostName),
    /// The control plane cannot spare the host now.
    #[error("{0}")]
    NotSpared(String),
    /// Its kubelet does not answer, so that pods there do not end.
    #[error("{0} is not ready, and its kubelet ends no pods")]
    NotReady(HostName),
    /// Its host is not off, as its author says.
    #[error("{0} is ready, so that its host is not off")]
    NotOff(HostName),
    /// Another process acts on maintenances of the Node.
    #[error("another process acts on the maintenance of {node}: {by}")]
    Held {
        /// The Node.
        node: HostName,
        /// The process.
        by: String,
    },
    /// Pods would be lost.
    #[error("{0}")]
    WouldLose(String),
    /// Pods did not leave in time.
    #[error("{0}")]
    GaveUp(String),
    /// Another process should have restored the Node by now.
    #[error("{0} is not restored yet by the process that acts on its maintenance")]
    NotRestored(HostName),
    /// Its node agent has not brought its static pods back.
    #[error("the static pods of {0} do not run again yet")]
    StaticPodsHeld(HostName),
    /// A command alone holds no static pods.
    #[error("static pods are held by the node agents of hosts, and no guard acts on maintenances")]
    NoNodeAgent,
    /// Nothing acts on maintenances while no command runs.
    #[error("no guard acts on maintenances")]
    NoGuard,
    /// A rollout selects no Node.
    #[error("no Node is selected")]
    NoneSelected,
    /// There is no such rollout.
    #[error("there is no rollout {0}")]
    NoRollout(String),
    /// The rollout, or the maintenance of the Node, was called off by others.
    #[error("{0} was called off by others")]
    CalledOff(String),
    /// A maintenance of this name is under way for other work.
    #[error("{node} is in maintenance already ({name}{why}), by another person perhaps")]
    OtherWork {
        /// Its name.
        name: String,
        /// Its Node.
        node: HostName,
        /// Why, after a colon; empty if nobody said so.
        why: String,
    },
    /// A rollout would make the maintenance of the Node again.
    #[error("the maintenance of {node} belongs to the rollout {rollout}, which would make it again")]
    OfRollout {
        /// The Node.
        node: HostName,
        /// The rollout.
        rollout: String,
    },
    /// It begins without an approval.
    #[error("{0} needs no approval")]
    NotGated(String),
    /// Several maintenances of the Node could be meant.
    #[error("{node} has several maintenances: {}", names.join(", "))]
    Several {
        /// The Node.
        node: HostName,
        /// Their names.
        names: Vec<String>,
    },
    /// Each Node of the rollout is approved by itself.
    #[error("of the rollout {0}, each Node is approved by itself")]
    ApprovesEach(String),
    /// etcd was recovered, and nobody has said yet that maintenances go on.
    #[error("etcd was recovered, and maintenances wait until a person lets them go on")]
    Recovered,
    /// A rollout of this name exists.
    #[error("there is a rollout {0} already")]
    RolloutExists(String),
    /// A rollout ends by itself, or is called off.
    #[error("{0} is a rollout, which ends when all its Nodes are done")]
    IsRollout(String),
    /// Too many Nodes of a rollout failed.
    #[error("the rollout {name} has stopped: {why}")]
    Stopped {
        /// The rollout.
        name: String,
        /// Which Nodes.
        why: String,
    },
    /// Others uncordon the Node again and again.
    #[error("{0} was uncordoned {CONTESTED} times by others during the drain")]
    Contested(HostName),
    /// A person interrupted it.
    #[error("interrupted")]
    Interrupted,
}

impl From<DrainError> for MaintenanceError {
    fn from(error: DrainError) -> Self {
        match error {
            DrainError::Api(error) => error.into(),
            lost @ DrainError::Lost { .. } => Self::WouldLose(lost.to_string()),
            DrainError::NotSpared(why) => Self::NotSpared(why),
            // Its advice is for a Node that stays cordoned.
            DrainError::TimedOut { pods, within_s, why, .. } => {
                Self::GaveUp(format!("{pods} within {within_s} s: {why}"))
            }
        }
    }
}

/// How far a maintenance was brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The guards act on it from here.
    Accepted,
    /// The guards act on it later, and why.
    Later(String),
    /// It is only announced.
    Idle,
    /// Its Node is cordoned.
    Cordoned,
    /// Its Node is drained; what is to be said of pods that stay.
    Drained(Vec<String>),
    /// Its host has rebooted, and its Node is as it was before.
    Rebooted,
    /// Its Node is as it was before.
    Completed,
}
