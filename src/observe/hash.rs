//! Whether all members hold the same data: each hashes its store at one revision, and the hashes are compared here.
//!
//! etcd's own start-up corruption check costs seconds per peer and proved nothing in our experiments, so it is off.

use super::Asks;
use crate::host::op::{Op, Reply};
use crate::host::{Feed, Machine};
use crate::model::facts::Facts;
use crate::model::names::HostName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long hashing may take: about a second per GiB of database, and the quota is 8 GiB by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the comparison found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashCheck {
    /// Every running member has this hash at this revision.
    Same {
        /// The revision.
        revision: i64,
        /// How many members said so.
        members: usize,
    },
    /// They differ.
    Differs(BTreeMap<HostName, u32>),
    /// It could not be found out, for this reason.
    Unknown(String),
}

/// Asks every running member for its hash at the lowest revision among them.
pub async fn hashes(facts: &Facts, machines: &BTreeMap<HostName, Arc<Machine>>, asks: &Asks) -> HashCheck {
    let views = facts.hosts.iter().filter_map(|(h, f)| Some((h, f.as_ref().ok()?.etcd.as_ref()?.view.as_ref()?)));
    let running: Vec<(&HostName, i64)> = views.map(|(h, v)| (h, v.revision)).collect();
    let Some(revision) = running.iter().map(|(_, r)| *r).min() else {
        return HashCheck::Unknown("no member answers".to_owned());
    };
    let one = async |host: &HostName| {
        let machine = machines.get(host).ok_or_else(|| format!("{host} is not connected"))?;
        let etcd = asks.etcd(host).ok_or_else(|| format!("{host} is no etcd host"))?;
        match machine.call(Op::EtcdHash { etcd, revision }, Feed::None, PATIENCE, &|_| {}).await {
            Ok(Reply::Hash { hash, .. }) => Ok((host.clone(), hash)),
            Ok(_) => Err(format!("{host} answered something else than was asked")),
            Err(error) => Err(error.to_string()),
        }
    };
    let answers = futures::future::join_all(running.iter().map(|(h, _)| one(h))).await;
    match answers.into_iter().collect::<Result<BTreeMap<HostName, u32>, String>>() {
        Err(why) => HashCheck::Unknown(why),
        Ok(all) => {
            let mut values = all.values();
            let first = values.next();
            if values.all(|h| Some(h) == first) {
                HashCheck::Same { revision, members: all.len() }
            } else {
                HashCheck::Differs(all)
            }
        }
    }
}
