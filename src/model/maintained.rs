//! What the maintenances of a cluster come to, in numbers.
//!
//! In: the maintenances. Out: how many are how far, and for how long Nodes have been away, read by the metrics of a guard.

use super::maintenance::{Maintenance, State};
use super::names::HostName;
use std::collections::BTreeMap;
use std::time::Duration;

/// The numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintained {
    /// How many maintenances have each state. Every state is there, so that a number that becomes 0 is one.
    pub states: BTreeMap<&'static str, usize>,
    /// How many pods do not leave now.
    pub blocked_pods: usize,
    /// For how long each Node is being drained.
    pub drains: BTreeMap<HostName, Duration>,
    /// When each host was asked to reboot that is not back, milliseconds since 1970.
    pub reboots: BTreeMap<HostName, i64>,
    /// How many evictions were asked for, by their result.
    pub evictions: BTreeMap<&'static str, u64>,
}

impl Maintained {
    /// Of all maintenances, and of these evictions.
    pub fn of<'a>(all: impl Iterator<Item = &'a Maintenance>, evictions: BTreeMap<&'static str, u64>) -> Self {
        let states = State::ALL.into_iter().map(|state| (state.name(), 0)).collect();
        let mut sum = Self { states, evictions, ..Self::default() };
        for one in all {
            let Some(state) = one.state else { continue };
            *sum.states.entry(state.name()).or_default() += 1;
            let node = &one.wanted.node;
            match state {
                State::Draining | State::Blocked => {
                    sum.blocked_pods += one.progress.blocked_count;
                    let lasted = sum.drains.entry(node.clone()).or_default();
                    *lasted = (*lasted).max(one.drain_lasted);
                }
                State::Rebooting | State::Overdue => {
                    sum.reboots.extend(one.reboot.as_ref().map(|reboot| (node.clone(), reboot.asked_ms)));
                }
                _ => {}
            }
        }
        sum
    }
}
