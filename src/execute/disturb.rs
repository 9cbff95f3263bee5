//! What an action does to an etcd member that people write to.
//!
//! In: an action. Out: whose member it is, and in which way it is away: what follows from that (who hands over the lead, whether balancers pass
//! it over, whether it is there again afterwards) is asked of this one answer.

use super::act::Actuator;
use crate::model::desired::Role;
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, HowToRun};
use crate::plan::etcd_unit;

/// In which way a member is taken away from those who write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Away {
    /// It did not run, or reads something anew.
    Hardly,
    /// It is stopped, and started by its new files.
    Restarts,
    /// It answers nobody while it defragments.
    Defragments,
    /// Once the list names its new address, the others find nobody there until its etcd has started anew.
    Moves,
    /// It is a member no more.
    Goes,
}

impl Away {
    /// Whether it stops while it is being asked.
    fn stops(self) -> bool {
        matches!(self, Self::Restarts | Self::Defragments | Self::Goes)
    }

    /// Whether people may come again, after a step that was done or was not: who went to one that did not come up would wait for nothing.
    pub(super) fn is_back(self, done: bool) -> bool {
        match self {
            Self::Goes => false,
            // It goes on whatever came of it.
            Self::Defragments => true,
            Self::Hardly | Self::Restarts | Self::Moves => done,
        }
    }
}

impl Actuator {
    /// Whose member an action takes away from those who write, and how.
    pub(super) fn disturbs<'a>(&'a self, action: &'a Action) -> Option<(&'a HostName, Away)> {
        let of = |peer: &PeerUrl| self.desired.entered().find(|host| &host.peer_url() == peer).map(|host| &host.name);
        match action {
            Action::RunUnit { host, unit, how } if *unit == etcd_unit() => {
                Some((host, if *how == HowToRun::Restart { Away::Restarts } else { Away::Hardly }))
            }
            Action::Defragment { host } => Some((host, Away::Defragments)),
            Action::RemoveMember { peer } => of(peer).map(|host| (host, Away::Goes)),
            Action::MoveMember { to, .. } => of(to).map(|host| (host, Away::Moves)),
            _ => None,
        }
    }

    /// Whether balancers pass a member over meanwhile: where there is another to ask.
    pub(super) fn is_passed_over(&self, host: &HostName, away: Away) -> bool {
        away.stops() && self.desired.with(Role::Etcd).any(|other| &other.name != host)
    }
}
