//! Whether the other hosts of the control plane are well enough for one of them to go.
//!
//! In: the state: own findings, and the heartbeats of others. Out: what is in the way, in words. The API says the same
//! later: a Node whose host is dead is ready there for most of a minute.

use super::State;
use crate::guard::ledger::Now;
use crate::model::names::HostName;

impl State {
    /// What speaks against taking this host from the control plane now.
    pub fn needed(&self, host: &HostName, now: Now) -> Option<String> {
        let own = if self.setup.own.name == *host { Vec::new() } else { self.own_faults() };
        let presumed = self.ledger.raised().filter(|fault| fault.host != *host).cloned();
        let others = || self.others.iter().filter(|(other, _)| *other != host);
        let heard = others().filter_map(|(_, seen)| seen.heartbeat.as_ref()).flat_map(|beat| beat.faults.clone());
        if let Some(fault) =
            own.into_iter().chain(presumed).chain(heard).find(|fault| fault.host != *host && !fault.kind.is_warning())
        {
            return Some(format!("{} cannot be spared: {}, {}", host, fault.host, fault.kind.meaning()));
        }
        let unheard = others().find(|(_, seen)| !seen.is_heard(now)).map(|(other, _)| other);
        if let Some(other) = unheard {
            return Some(format!("{host} cannot be spared: the guard of {other} is not heard"));
        }
        let own_serves_not = self.setup.own.name != *host && self.serves == Some(false);
        let serves_not =
            others().find(|(_, seen)| seen.heartbeat.as_ref().is_some_and(|beat| beat.etcd == Some(false)));
        let other = own_serves_not.then_some(&self.setup.own.name).or(serves_not.map(|(other, _)| other))?;
        Some(format!("{host} cannot be spared: the member of etcd on {other} does not serve"))
    }
}
