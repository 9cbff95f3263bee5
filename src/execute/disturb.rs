//! How an action disrupts an etcd member that is in use.
//!
//! In: an action. Out: the host of the member, and how it is disrupted. This decides whether it transfers leadership,
//! whether balancers bypass it, and whether it is back afterwards.

use super::act::Actuator;
use crate::model::desired::Role;
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::Action;
use crate::plan::etcd_unit;

/// How a member is disrupted for its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Away {
    /// It did not run, or only reloads files.
    Hardly,
    /// It is restarted with its new files.
    Restarts,
    /// It does not answer while it defragments.
    Defragments,
    /// Once the list has its new address, the others cannot reach it until its etcd has restarted.
    Moves,
    /// It is removed.
    Goes,
}

impl Away {
    /// Whether it stops while clients use it.
    fn stops(self) -> bool {
        matches!(self, Self::Restarts | Self::Defragments | Self::Goes)
    }

    /// Whether clients may use it again after the step: clients of a member that did not start would wait in vain.
    pub(super) fn is_back(self, done: bool) -> bool {
        match self {
            Self::Goes => false,
            // It serves again in any case.
            Self::Defragments => true,
            Self::Hardly | Self::Restarts | Self::Moves => done,
        }
    }
}

impl Actuator {
    /// The host of the member that an action disrupts, and how.
    pub(super) fn disturbs<'a>(&'a self, action: &'a Action) -> Option<(&'a HostName, Away)> {
        match action {
            Action::RunUnit { host, unit, how } if *unit == etcd_unit() => {
                Some((host, if how.restarts() { Away::Restarts } else { Away::Hardly }))
            }
            Action::Defragment { host } => Some((host, Away::Defragments)),
            Action::RemoveMember { peer } => self.host_of(peer).map(|host| (host, Away::Goes)),
            Action::MoveMember { to, .. } => self.host_of(to).map(|host| (host, Away::Moves)),
            _ => None,
        }
    }

    /// The host of the member that serves clients after an action, and may have been bypassed until its removal.
    pub(super) fn returns<'a>(&'a self, action: &Action) -> Option<&'a HostName> {
        if let Action::Promote { peer } = action { self.host_of(peer) } else { None }
    }

    fn host_of(&self, peer: &PeerUrl) -> Option<&HostName> {
        self.desired.entered().find(|host| &host.peer_url() == peer).map(|host| &host.name)
    }

    /// Whether balancers bypass a member during the step: if there is another one.
    pub(super) fn is_passed_over(&self, host: &HostName, away: Away) -> bool {
        away.stops() && self.desired.with(Role::Etcd).any(|other| &other.name != host)
    }
}
