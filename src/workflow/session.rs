//! Connections to all hosts of an inventory, and the administrator's state: what every workflow starts with.

use super::{Failure, State};
use crate::component::Bundle;
use crate::host::op::{Op, Reply};
use crate::host::{Access, Feed, HostError, Machine};
use crate::inventory::Attached;
use crate::model::desired::{Desired, Role};
use crate::model::event::{Event, Sink};
use crate::model::facts::{Silence, Stamp};
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::model::refusal::Refusal;
use crate::pki;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long taking the lock on one host may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Where things are on the administrator's machine.
#[derive(Debug, Clone)]
pub struct Places {
    /// The administrator's state for this cluster.
    pub state: PathBuf,
    /// The store of bundles.
    pub bundles: PathBuf,
}

/// Connections and state.
pub struct Session {
    /// What is wanted.
    pub desired: Arc<Desired>,
    /// What is in the files that the inventory names.
    pub attached: Arc<Attached>,
    /// The inventory as it was read.
    pub inventory: String,
    /// Where things are.
    pub places: Places,
    /// Hosts that are connected.
    pub machines: BTreeMap<HostName, Arc<Machine>>,
    /// Hosts that are not, with the reason.
    pub silent: BTreeMap<HostName, Silence>,
    /// How many hosts are worked on at once.
    pub at_once: usize,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
    /// Cancelled by the first interrupt.
    pub stop: CancellationToken,
}

/// On how many of etcd's hosts this run holds the lock.
#[derive(Debug, Clone, Copy)]
pub struct Locked {
    etcd: usize,
    of: usize,
}

impl Locked {
    /// Members are changed only by whoever holds the lock on a majority of their hosts: there can be one such run.
    ///
    /// # Errors
    /// [`Refusal::NoMajorityLock`].
    pub fn allows(self, plan: &Plan) -> Result<(), Refusal> {
        if plan.changes_members() && self.etcd * 2 <= self.of {
            return Err(Refusal::NoMajorityLock { locked: self.etcd, hosts: self.of });
        }
        Ok(())
    }
}

impl Session {
    /// Connects to every host, so many at once. Hosts that cannot be reached are kept as silent; that none can is a failure, and
    /// so is a host key that is not the one on record or was revoked, for that may be somebody else's machine.
    ///
    /// # Errors
    /// No host at all, or a changed host key.
    pub async fn open(
        (desired, attached, inventory): (Arc<Desired>, Arc<Attached>, String),
        places: Places,
        access: &Access,
        sink: Arc<dyn Sink>,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let count = desired.hosts.len();
        sink.emit(Event::Phase { doing: format!("connecting to {count} host{}", if count == 1 { "" } else { "s" }) });
        let connect = async |host: &crate::model::desired::Host| {
            let result = tokio::select! {
                result = Machine::connect(&host.name, &host.ssh, access) => result,
                () = stop.cancelled() => return None,
            };
            Some((host.name.clone(), result))
        };
        let at_once = access.at_once.max(1);
        let all: Vec<_> = desired.hosts.iter().map(connect).collect();
        let results: Vec<_> = futures::stream::iter(all).buffered(at_once).collect().await;
        let mut machines = BTreeMap::new();
        let mut failed: Vec<(HostName, Box<HostError>)> = Vec::new();
        for result in results {
            let Some((host, result)) = result else { return Err(Failure::Interrupted { done: 0, left: 0 }) };
            match result {
                Ok(machine) => drop(machines.insert(host, Arc::new(machine))),
                Err(error)
                    if matches!(error.innermost(), HostError::KeyChanged { .. } | HostError::KeyRevoked { .. }) =>
                {
                    return Err(Failure::Host { host, error: Box::new(error) });
                }
                Err(error) => failed.push((host, Box::new(error))),
            }
        }
        if machines.is_empty() {
            return Err(Failure::NoHost { hosts: failed });
        }
        let mut silent = BTreeMap::new();
        for (host, error) in failed {
            sink.emit(Event::Warning { text: format!("{host}: {error}") });
            silent.insert(host, error.silence());
        }
        Ok(Self { desired, attached, inventory, places, machines, silent, at_once, sink, stop })
    }

    /// Takes the run's lock on every host that is connected; one that is held refuses the run. A host that cannot even be
    /// locked (its disk has become read-only, say) counts as silent: it must not hold up the others.
    ///
    /// # Errors
    /// Who holds it; no host that can be locked.
    pub async fn lock(&mut self, verb: &str) -> Result<Locked, Failure> {
        let user =
            std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".to_owned());
        let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let holder = format!("{user}@{here}, process {}, hactl {verb}", std::process::id());
        // One host after the other and always in the same order: two runs cannot hold half of the locks each.
        let mut etcd = 0;
        let mut failed = Vec::new();
        for host in &self.desired.hosts {
            let Some(machine) = self.machines.get(&host.name) else { continue };
            let op = Op::Lock { holder: holder.clone() };
            match machine.call(op, Feed::None, LOCK_PATIENCE, &|_| {}).await {
                Ok(Reply::Held { by, since }) => {
                    return Err(Refusal::Locked { host: host.name.clone(), holder: by, since }.into());
                }
                Ok(_) => etcd += usize::from(host.is(Role::Etcd)),
                Err(error) => failed.push((host.name.clone(), Box::new(error))),
            }
        }
        for (host, error) in &failed {
            self.sink.emit(Event::Warning { text: format!("{host}: could not take the lock: {error}") });
            self.machines.remove(host);
            self.silent.insert(host.clone(), error.silence());
        }
        if self.machines.is_empty() {
            return Err(Failure::NoHost { hosts: failed });
        }
        Ok(Locked { etcd, of: self.desired.with(Role::Etcd).count() })
    }

    /// The administrator's state; made when there is none, unless a host says that the cluster lives.
    ///
    /// # Errors
    /// State that is lost or unusable.
    pub async fn state(&self, make: bool) -> Result<State, Failure> {
        let named = &self.desired.named.pki;
        if let Some(state) = State::open(&self.places.state, &self.desired.cluster)? {
            let others = pki::brought::others(named, &state.publics());
            if !others.is_empty() {
                return Err(Refusal::OtherAuthority { problems: others }.into());
            }
            return Ok(state);
        }
        if let Some((host, stamp)) = self.stamp().await? {
            return Err(Refusal::StateLost {
                host,
                cluster: stamp.cluster,
                state: self.places.state.display().to_string(),
            }
            .into());
        }
        let brought = pki::brought::read(named, time::OffsetDateTime::now_utc())?;
        for text in &brought.warnings {
            self.sink.emit(Event::Warning { text: text.clone() });
        }
        if make {
            self.sink.emit(Event::Note {
                text: format!("making certificate authorities and keys in {}", self.places.state.display()),
            });
            State::create(&self.places.state, &self.desired.cluster, brought)
        } else {
            State::ephemeral(&self.desired.cluster, brought)
        }
    }

    /// The first stamp any host carries.
    async fn stamp(&self) -> Result<Option<(HostName, Stamp)>, Failure> {
        for (host, machine) in &self.machines {
            let op = Op::Observe(Box::default());
            match machine.call(op, Feed::None, LOCK_PATIENCE, &|_| {}).await {
                Ok(Reply::Facts(facts)) => {
                    if let Some(stamp) = facts.stamp {
                        return Ok(Some((host.clone(), stamp)));
                    }
                }
                Ok(_) => {}
                Err(error) => return Err(Failure::Host { host: host.clone(), error: Box::new(error) }),
            }
        }
        Ok(None)
    }

    /// The bundle of the wanted Kubernetes version.
    ///
    /// # Errors
    /// It is not there.
    pub fn bundle(&self) -> Result<Bundle, Failure> {
        Ok(Bundle::open(&self.places.bundles, &self.desired.versions.kubernetes)?)
    }

    /// Closes all connections in an orderly way, which also gives the locks back.
    pub async fn close(&self) {
        futures::future::join_all(self.machines.values().map(|m| m.close())).await;
    }
}
