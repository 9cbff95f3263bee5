//! What a pod is to a drain, and when it leaves compared with others.
//!
//! In: a pod, and the order of its rule. Out: its [`PodKind`] and its [`Level`].

use crate::model::pod::PodView;

/// What decides whether a drain evicts a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodKind {
    /// The kubelet runs it from a file; the API only shows it.
    Static,
    /// Of a DaemonSet, whose controller ignores the cordon and creates it on the same Node again.
    DaemonSet,
    /// It stands for the control plane of its host, so that one such host is emptied at a time. `up` compares members of
    /// etcd and API servers itself; in a maintenance this pod leaves first.
    Quorum,
    /// It has terminated, or it is that of a check by `up`, which deletes it within a minute.
    Ended,
    /// No controller creates it elsewhere: an eviction would delete it for good.
    Bare,
    /// Its controller creates it again.
    Controlled,
}

impl PodKind {
    /// Classifies a pod.
    pub fn of(pod: &PodView) -> Self {
        match &pod.controller {
            _ if pod.mirror => Self::Static,
            _ if pod.ended || pod.is_probe() => Self::Ended,
            _ if pod.quorum => Self::Quorum,
            Some(controller) if controller.kind == "DaemonSet" => Self::DaemonSet,
            Some(_) => Self::Controlled,
            None => Self::Bare,
        }
    }
}

/// The highest priority of each level but the last: the highest that users may set, `system-cluster-critical`, and
/// `system-node-critical`.
const HIGHEST: [i32; 3] = [1_000_000_000, 2_000_000_000, 2_000_001_000];

/// What serves a Node leaves after what uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    First,
    Default,
    DaemonSet,
}

/// The position of a pod in a drain: all pods of a smaller level have left before one of a larger level is asked to
/// leave. Pods of DaemonSets are the last; then the order of its rule counts. Within one order, what the cluster itself needs, such as its DNS, serves the
/// others until they have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level {
    kind: Turn,
    order: i32,
    priority: usize,
}

impl Level {
    /// Before all others.
    pub const FIRST: Self = Self { kind: Turn::First, order: i32::MIN, priority: 0 };

    /// The level of a pod with an order.
    pub fn of(pod: &PodView, order: i32) -> Self {
        let kind = if PodKind::of(pod) == PodKind::DaemonSet { Turn::DaemonSet } else { Turn::Default };
        Self { kind, order, priority: HIGHEST.partition_point(|highest| *highest < pod.priority) }
    }
}
