//! Observation: every host is asked once, all at the same time, and the answers become [`Facts`].
//!
//! In: connected machines and what to ask of each. Out: facts, in which silence stays silence.

mod asks;
mod checks;
mod classify;
mod drift;
mod hash;
pub mod preflight;

pub use asks::Asks;
pub use checks::checks;
pub use classify::classify;
pub use hash::{HashCheck, hashes};

use crate::host::op::{Op, Reply};
use crate::host::{Feed, Machine};
use crate::model::desired::Desired;
use crate::model::facts::{Facts, HostFacts, Silence};
use crate::model::names::HostName;
use crate::model::target::Addon;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a host may take to answer an observation. Hashing every part anew on a slow disk is the worst case.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks every connected host what is asked for, so many at once; hosts in `silent` could not be connected to.
pub async fn round(
    desired: &Desired,
    machines: &BTreeMap<HostName, Arc<Machine>>,
    silent: &BTreeMap<HostName, Silence>,
    asks: &Asks,
    at_once: usize,
) -> BTreeMap<HostName, Result<HostFacts, Silence>> {
    let one = async |host: &HostName| {
        let Some(machine) = machines.get(host) else {
            let unknown = Silence { why: "it was not connected to".to_owned(), hint: None };
            return (host.clone(), Err(silent.get(host).cloned().unwrap_or(unknown)));
        };
        let ask = asks.of(host);
        let answer = match machine.call(Op::Observe(Box::new(ask)), Feed::None, PATIENCE, &|_| {}).await {
            Ok(Reply::Facts(facts)) => Ok(*facts),
            Ok(_) => Err(Silence { why: "it answered something else than was asked".to_owned(), hint: None }),
            Err(error) => Err(Silence { why: error.to_string(), hint: None }),
        };
        (host.clone(), answer)
    };
    let all: Vec<_> = desired.hosts.iter().map(|h| one(&h.name)).collect();
    futures::stream::iter(all).buffer_unordered(at_once.max(1)).collect().await
}

/// Puts the answers together.
pub fn assemble(desired: &Desired, hosts: BTreeMap<HostName, Result<HostFacts, Silence>>, addons: &[Addon]) -> Facts {
    let etcd = classify(desired, &hosts);
    let (drift, stale) = (drift::drift(addons, &hosts), drift::stale(addons, &hosts));
    Facts { hosts, etcd, drift, stale }
}
