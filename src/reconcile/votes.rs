//! Follows votes in etcd that guards have moved to hosts that stand by.
//!
//! In: the hosts of a run, and what they report about etcd. Out: the desired state of the run, with these votes where
//! they are now. An inventory without such hosts costs nothing.

use super::Fleet;
use crate::model::event::Event;
use crate::model::facts::EtcdFact;
use crate::model::names::HostName;
use crate::protocol::{EtcdAsk, ObserveAsk, Op, Reply};
use crate::transport::Payload;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a host may take to report about etcd: it may have to read damaged data.
const LOOK: Duration = Duration::from_secs(60);

impl Fleet {
    /// Moves votes in the desired state to where they are. A vote moves only under the locks of this run or of a guard:
    /// what this finds after locking stays so.
    pub(super) async fn follow_votes(&mut self) {
        if !self.desired.hosts.iter().any(|host| host.standby) {
            return;
        }
        let reports = self.reports().await;
        for taken in self.desired.taken_over(&reports) {
            let text = format!(
                "{by} votes in etcd instead of {from}, and hactl keeps it so. Write it into the \
                 inventory: the role etcd for {by}, and `standby: [etcd]` instead of it for {from}",
                by = taken.by,
                from = taken.from
            );
            self.sink.emit(Event::Warning { text });
            self.desired = Arc::new((*self.desired).clone().with_vote(&taken));
        }
    }

    /// What the hosts that may vote and answer report.
    async fn reports(&self) -> BTreeMap<HostName, EtcdFact> {
        let etcd = EtcdAsk::own(self.desired.etcd.data_dir.to_string_lossy());
        let hosts = self.desired.may_vote().filter_map(|host| Some((&host.name, self.machines.get(&host.name)?)));
        let asked = hosts.map(async |(name, machine)| {
            let ask = ObserveAsk { etcd: Some(etcd.clone()), ..ObserveAsk::default() };
            // A host that does not answer is reported as such by the next observation of all.
            match machine.call(Op::Observe(Box::new(ask)), Payload::None, LOOK, &|_| {}).await {
                Ok(Reply::Facts(facts)) => Some((name.clone(), facts.etcd?)),
                _ => None,
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}
