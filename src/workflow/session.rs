//! The input of every workflow: the hosts of a run, and the administrator's files.
//!
//! In: a loaded inventory, and how to connect to hosts. Out: a [`Session`]: a [`Fleet`] with the administrator's files.

use super::state::Given;
use super::{Failure, State};
use crate::component::Bundle;
use crate::model::attached::Attached;
use crate::model::desired::{Desired, Host};
use crate::model::event::Sink;
use crate::model::facts::{HostFacts, Unreachable};
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use crate::model::secret::Secret;
use crate::pki;
use crate::protocol::{ObserveAsk, Op, Reply};
use crate::reconcile::Fleet;
use crate::transport::{Access, Connect, Payload};
use futures::StreamExt as _;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The paths on the administrator's machine.
#[derive(Debug, Clone)]
pub struct Places {
    /// The administrator's state for this cluster.
    pub state: PathBuf,
    /// The store of bundles.
    pub bundles: PathBuf,
}

impl Places {
    /// There is no state here.
    pub(super) fn no_state(&self) -> Failure {
        Failure::NoState { state: self.state.clone() }
    }
}

/// The hosts of a run, and the administrator's files. It dereferences to its fleet.
pub struct Session {
    fleet: Fleet,
    /// The contents of the files that the inventory names.
    pub attached: Arc<Attached>,
    /// The inventory as it was read.
    pub inventory: String,
    /// The paths on this machine.
    pub places: Places,
    /// How its hosts are reached.
    pub(super) connect: Arc<dyn Connect>,
    /// The password for sudo that a person typed for this run.
    pub sudo_password: Option<Arc<Secret<String>>>,
}

impl Deref for Session {
    type Target = Fleet;
    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Fleet {
        &mut self.fleet
    }
}

impl Session {
    /// Observes one host, or why it does not answer.
    ///
    /// # Errors
    /// There is no connection to it, or it failed.
    pub async fn observe(&self, host: &HostName, ask: ObserveAsk, within: Duration) -> Result<HostFacts, Unreachable> {
        let read = |reply| match reply {
            Reply::Facts(facts) => Some(*facts),
            _ => None,
        };
        self.ask(host, Op::Observe(Box::new(ask)), within, read).await
    }

    /// Asks several hosts at the same time, and returns the answers in the order of the hosts.
    pub async fn each<'a, T>(
        &self,
        hosts: impl Iterator<Item = &'a Host>,
        ask: impl AsyncFn(&'a Host) -> T,
    ) -> Vec<(HostName, T)> {
        let ask = &ask;
        let asked = hosts.map(async |host| (host.name.clone(), ask(host).await));
        futures::stream::iter(asked.collect::<Vec<_>>()).buffered(self.at_once.max(1)).collect().await
    }

    /// Asks a host for an operation that needs no lock; `read` takes the reply that it expects.
    pub async fn ask<T>(
        &self,
        host: &HostName,
        op: Op,
        within: Duration,
        read: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T, Unreachable> {
        let Some(machine) = self.machines.get(host) else {
            let unknown = Unreachable { why: "there is no connection to it".to_owned(), hint: None };
            return Err(self.unreachable.get(host).cloned().unwrap_or(unknown));
        };
        match machine.call(op, Payload::None, within, &|_| {}).await {
            Ok(reply) => {
                let unexpected = || Unreachable { why: "it sent an unexpected reply".to_owned(), hint: None };
                read(reply).ok_or_else(unexpected)
            }
            Err(error) => Err(error.unreachable()),
        }
    }

    /// Connects to every host: see [`Fleet::open`].
    ///
    /// # Errors
    /// A changed host key.
    pub async fn open(
        (desired, attached, inventory): (Arc<Desired>, Arc<Attached>, String),
        places: Places,
        access: &Access,
        sink: Arc<dyn Sink>,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let connect: Arc<dyn Connect> = Arc::new(access.clone());
        let fleet = Fleet::open(desired, &connect, access.at_once, sink, stop).await?;
        Ok(Self { fleet, attached, inventory, places, connect, sudo_password: access.sudo_password.clone() })
    }

    /// The administrator's files that the state uses as `Authority`.
    fn given(&self) -> Given {
        Given {
            attached: Arc::clone(&self.attached),
            inventory: self.inventory.clone(),
            bundles: self.places.bundles.clone(),
            recoveries: self.places.state.clone(),
        }
    }

    /// The administrator's state, if there is one.
    ///
    /// # Errors
    /// State that is unusable.
    pub(super) fn kept(&self) -> Result<Option<State>, Failure> {
        let state = State::open(&self.places.state, &self.desired.cluster)?;
        Ok(state.map(|state| state.with(self.given())))
    }

    /// The administrator's state; created if there is none, unless a host reports that it belongs to a cluster.
    ///
    /// # Errors
    /// State that is lost or unusable.
    pub async fn state(&self, make: bool) -> Result<State, Failure> {
        let named = &self.desired.named.pki;
        if let Some(state) = self.kept()? {
            let others = pki::brought::others(named, &state.publics());
            if !others.is_empty() {
                return Err(Refusal::OtherAuthority { problems: others }.into());
            }
            return Ok(state);
        }
        if let Some((host, cluster_id)) = self.fleet.cluster_id().await? {
            let state = self.places.state.display().to_string();
            return Err(Refusal::StateLost { host, cluster: cluster_id.cluster, state }.into());
        }
        let brought = pki::brought::read(named, time::OffsetDateTime::now_utc())?;
        for text in &brought.warnings {
            self.sink.warn(text.clone());
        }
        let state = if make {
            self.sink.note(format!("creating CAs and keys in {}", self.places.state.display()));
            State::create(&self.places.state, &self.desired.cluster, brought)?
        } else {
            State::ephemeral(&self.desired.cluster, brought)?
        };
        Ok(state.with(self.given()))
    }

    /// The bundle of the wanted Kubernetes version.
    ///
    /// # Errors
    /// It does not exist.
    pub fn bundle(&self) -> Result<Bundle, Failure> {
        Ok(Bundle::open(&self.places.bundles, &self.desired.versions.kubernetes)?)
    }
}
