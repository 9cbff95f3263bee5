//! Agents of simulated hosts: each operation of the protocol is cut into single effects, and a crash can happen between
//! any two of them. The real executor calls these agents as it calls real hosts.
//!
//! In: operations. Out: replies, from the world as it is then. The dice choose how much of the test's virtual time each
//! call takes, so that steps that may run in parallel run in any order.

use super::effect::Effect;
use super::live::{Shared, halted};
use super::make;
use super::member::Change;
use super::world::{FirstBoot, World};
use hactl::model::blob::SnapshotBlob;
use hactl::model::desired::{EndpointKind, Role};
use hactl::model::facts::HostFacts;
use hactl::model::names::{Digest, HostName, UnitName};
use hactl::model::plan::HowToRun;
use hactl::model::recovery::{Origin, Recovery};
use hactl::model::target::{FileSet, Place, RECORD, missing_packages};
use hactl::protocol::{
    Balancing, HostingAsk, MemberChange, MemberStart, ObserveAsk, Op, OpError, OpErrorKind, PackageSource, Reply,
    RestoreAsk, RestoreFrom, WaitCondition, WipeAsk,
};
use hactl::transport::{Agent, Asking, Connect, Forwarding, HostError, Payload, Traffic, Watch};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The interval between two polls of a condition that does not hold yet.
const POLL: Duration = Duration::from_secs(2);
/// The content of every simulated snapshot.
const SNAPSHOT: &[u8] = b"snapshot";

/// The agent of one host.
pub struct SimAgent {
    pub host: HostName,
    pub live: Shared,
}

impl Agent for SimAgent {
    fn name(&self) -> &HostName {
        &self.host
    }
    fn hactl_path(&self) -> String {
        "/var/lib/hactl/hactl".to_owned()
    }
    fn call<'a>(&'a self, op: Op, _: Payload, timeout: Duration, _: Watch<'a>) -> Asking<'a> {
        Box::pin(async move {
            let late = HostError::TimedOut { doing: "the operation", after: timeout, waiting_on: String::new() };
            tokio::time::timeout(timeout, self.perform(op)).await.unwrap_or(Err(late))
        })
    }
    fn forward(&self, _: IpAddr, _: u16) -> Forwarding<'_> {
        Box::pin(async { Err(HostError::ForwardingForbidden) })
    }
    fn counters(&self) -> Traffic {
        Traffic::default()
    }
    fn holds_lock(&self) -> bool {
        self.live.lock().expect("no panic holds it").world.host(&self.host).lock.is_some()
    }
    fn close(&self) -> futures::future::BoxFuture<'_, ()> {
        Box::pin(async {
            let mut live = self.live.lock().expect("no panic holds it");
            live.world.host_mut(&self.host).lock = None;
        })
    }
}

/// Reaches the hosts of a world.
pub struct SimNetwork(pub Shared);

impl Connect for SimNetwork {
    fn connect<'a>(
        &'a self,
        host: &'a HostName,
        _: &'a hactl::model::desired::SshTarget,
    ) -> futures::future::BoxFuture<'a, Result<Arc<dyn Agent>, HostError>> {
        Box::pin(async move {
            let live = self.0.lock().expect("no panic holds it");
            if !live.world.host(host).answers() {
                return Err(lost());
            }
            Ok(Arc::new(SimAgent { host: host.clone(), live: Arc::clone(&self.0) }) as Arc<dyn Agent>)
        })
    }
}

fn lost() -> HostError {
    HostError::Lost { why: "connection timed out".to_owned() }
}

fn fault(what: impl Into<String>) -> HostError {
    HostError::Op(OpError { kind: OpErrorKind::Failed, what: what.into(), tail: Vec::new() })
}

impl SimAgent {
    async fn perform(&self, op: Op) -> Result<Reply, HostError> {
        self.pause().await;
        self.reached()?;
        match op {
            Op::Observe(ask) => Ok(Reply::Facts(Box::new(self.facts(&ask)?))),
            Op::MakeKeys { leaves } => {
                Ok(Reply::Requests(leaves.into_iter().map(|l| (l.id, "request".to_owned())).collect()))
            }
            Op::Await { condition, within_ms } => self.wait(&condition, Duration::from_millis(within_ms)).await,
            Op::Lock { holder } => Ok(self.lock(&holder)),
            Op::TakeSnapshot(ask) => {
                self.all(vec![Effect::SnapshotTaken(self.host(), ask.recovery, ask.aside)]).await?;
                let digest = Digest::of(SNAPSHOT);
                let size = SNAPSHOT.len() as u64;
                Ok(Reply::Taken(SnapshotBlob { digest, size, sent_digest: digest, sent_size: size }))
            }
            Op::ReadSnapshot { from, .. } => {
                use base64::Engine as _;
                let from = usize::try_from(from).expect("a few bytes").min(SNAPSHOT.len());
                Ok(Reply::Bytes(base64::engine::general_purpose::STANDARD.encode(&SNAPSHOT[from..])))
            }
            Op::SaveBundle => {
                self.all(vec![Effect::Bundled(self.host())]).await?;
                let facts = self.facts(&ObserveAsk::default())?;
                let taken = facts.bundles.and_then(|b| b.bundles.into_iter().next());
                taken.map(Reply::Saved).ok_or_else(|| fault("no snapshot was taken"))
            }
            Op::ArchiveData(_) if self.serves() => Err(fault("its member serves")),
            Op::Halt { unless_serving: Some(_), .. } if self.serves() => Err(fault("its member serves")),
            Op::Balance { how, .. } => {
                let mut live = self.live.lock().expect("no panic holds it");
                let passed_over = &mut live.world.host_mut(&self.host).passed_over;
                match how {
                    Balancing::PassOver { member, .. } => drop(passed_over.insert(member)),
                    Balancing::PassTo { member } => drop(passed_over.remove(&member)),
                    Balancing::Pause { .. } | Balancing::Resume => {}
                }
                Ok(Reply::Done)
            }
            Op::Hosting(ask) => self.hosting(ask).await,
            Op::ChangeMembers { .. } if !self.has_leader() => {
                let what = "etcd has no leader".to_owned();
                Err(HostError::Op(OpError { kind: OpErrorKind::TimedOut, what, tail: Vec::new() }))
            }
            // This world does not simulate these.
            Op::Unlock | Op::DeliverSnapshot { .. } | Op::Sweep(_) | Op::Accept { .. } => {
                if let Op::Accept { sets } = op {
                    self.live.lock().expect("no panic holds it").world.accept(&self.host, &sets);
                }
                Ok(Reply::Done)
            }
            Op::RollBack { sets } => {
                let mut live = self.live.lock().expect("no panic holds it");
                live.world.roll_back(&self.host, &sets).map_err(fault)?;
                Ok(Reply::Done)
            }
            op => {
                let of = effects(&mut self.live.lock().expect("no panic holds it").world, &self.host, op);
                self.all(of.map_err(fault)?).await?;
                Ok(Reply::Done)
            }
        }
    }

    async fn hosting(&self, ask: HostingAsk) -> Result<Reply, HostError> {
        let was = self.live.lock().expect("no panic holds it").world.host(&self.host).hosting.is_some();
        let within = match ask {
            HostingAsk::Hold { .. } => {
                self.all(vec![Effect::Held(self.host())]).await?;
                return Ok(Reply::Done);
            }
            HostingAsk::AwaitHeld { .. } if !was => return Ok(Reply::Done),
            HostingAsk::AwaitHeld { within_ms, .. } => within_ms,
            HostingAsk::HandOver { revision, within_ms, .. } => {
                self.all(vec![Effect::HandedOver(self.host(), revision)]).await?;
                within_ms
            }
        };
        let until = tokio::time::Instant::now() + Duration::from_millis(within);
        loop {
            match self.all(vec![Effect::PodsSeen(self.host())]).await {
                Err(_) if tokio::time::Instant::now() + POLL < until => tokio::time::sleep(POLL).await,
                seen => return seen.map(|()| Reply::Done),
            }
        }
    }

    fn host(&self) -> HostName {
        self.host.clone()
    }

    /// Makes these happen one after the other; a crash or another event may fall between two of them.
    async fn all(&self, effects: Vec<Effect>) -> Result<(), HostError> {
        for (at, effect) in effects.iter().enumerate() {
            if at > 0 {
                self.pause().await;
            }
            let done = self.live.lock().expect("no panic holds it").happen(effect);
            match done {
                Ok(()) => {}
                Err(Some(why)) => return Err(fault(why)),
                Err(None) => halted().await,
            }
        }
        Ok(())
    }

    async fn pause(&self) {
        let ms = self.live.lock().expect("no panic holds it").dice.below(40);
        tokio::time::sleep(Duration::from_millis(ms as u64 + 1)).await;
    }

    fn reached(&self) -> Result<(), HostError> {
        let live = self.live.lock().expect("no panic holds it");
        if live.world.host(&self.host).answers() { Ok(()) } else { Err(lost()) }
    }

    fn has_leader(&self) -> bool {
        self.live.lock().expect("no panic holds it").has_leader()
    }

    /// Whether its member has a quorum behind it.
    fn serves(&self) -> bool {
        let live = self.live.lock().expect("no panic holds it");
        let host = live.world.host(&self.host);
        let cluster = host.disk.as_ref().filter(|_| host.runs("etcd.service")).map(|disk| disk.cluster.clone());
        cluster.is_some_and(|id| live.world.has_quorum(&id))
    }

    fn facts(&self, ask: &ObserveAsk) -> Result<HostFacts, HostError> {
        let mut live = self.live.lock().expect("no panic holds it");
        let leads = ask.etcd.is_none() || live.has_leader();
        let mut facts = live.world.say(&self.host).map_err(|_| lost())?;
        let busy = &mut live.world.host_mut(&self.host).busy;
        if let Some(etcd) = facts.etcd.as_mut().filter(|_| ask.etcd.is_some()) {
            if *busy > 0 {
                *busy -= 1;
                etcd.view = None;
                etcd.slow = true;
                etcd.trouble = Some("etcd did not answer within 1400 ms when asked to report its status".to_owned());
            }
            if let Some(view) = etcd.view.as_mut().filter(|_| !leads) {
                (view.leader, view.linearizable) = (0, false);
            }
        }
        let shown = |key: &String| {
            let record = || live.world.record.as_ref().map(|data| json!({ "data": data }));
            let object = live.world.objects.get(key).cloned();
            Some((key.clone(), object.or_else(|| if key == RECORD { record() } else { None })?))
        };
        let api = facts.api.zip(ask.api.as_ref()).map(|(mut api, asked)| {
            if api.own_trouble.is_none() {
                api.objects = asked.objects.iter().filter_map(shown).collect();
            }
            api
        });
        Ok(HostFacts { api, ..facts })
    }

    fn lock(&self, holder: &str) -> Reply {
        let mut live = self.live.lock().expect("no panic holds it");
        let lock = &mut live.world.host_mut(&self.host).lock;
        match lock {
            Some(by) if by != holder => {
                Reply::Held { by: by.clone(), since: "2026-01-01T00:00:00Z".to_owned(), yields: false }
            }
            _ => {
                *lock = Some(holder.to_owned());
                Reply::Locked { epoch: 1, wanted: false }
            }
        }
    }

    /// Polls until the condition holds.
    async fn wait(&self, condition: &WaitCondition, within: Duration) -> Result<Reply, HostError> {
        let until = tokio::time::Instant::now() + within;
        loop {
            self.reached()?;
            let seen = {
                let mut live = self.live.lock().expect("no panic holds it");
                let effect = waited(&live.world, &self.host, condition);
                match effect {
                    Some(effect) => Some(live.happen(&effect)),
                    None => live.world.living().is_some().then_some(Ok(())),
                }
            };
            match seen {
                Some(Ok(())) => return Ok(Reply::Done),
                Some(Err(None)) => halted().await,
                Some(Err(Some(why))) if tokio::time::Instant::now() + POLL >= until => return Err(fault(why)),
                None if tokio::time::Instant::now() + POLL >= until => return Err(fault("it does not hold")),
                Some(Err(Some(_))) | None => tokio::time::sleep(POLL).await,
            }
        }
    }
}

/// What an operation does, in order.
pub fn effects(world: &mut World, name: &HostName, op: Op) -> Result<Vec<Effect>, String> {
    let (host, etcd) = (name.clone(), make::unit("etcd.service"));
    let of = |make: fn(HostName, UnitName) -> Effect, unit: &str| make(name.clone(), make::unit(unit));
    Ok(match op {
        Op::WriteClusterId(_) => vec![Effect::ClusterId(host)],
        Op::Prepare(_) => vec![Effect::Prepare(host)],
        Op::InstallPackages { packages, from } => {
            let target = world.host_target(name);
            let there = match &from {
                PackageSource::Host { .. } => !world.desired.bundled_packages,
                PackageSource::Bundle(Some(part)) => world.host(name).blobs.contains(&part.digest),
                PackageSource::Bundle(None) => {
                    missing_packages(&target.packages, &world.host(name).programs).next().is_none()
                }
            };
            if !there {
                return Err(format!("the packages come from {from:?}, and are not there"));
            }
            packages.into_iter().map(|package| Effect::Package(name.clone(), package)).collect()
        }
        Op::Deliver(part) => vec![Effect::Blob(host, part.digest)],
        Op::Import(part) => match part.place {
            Place::Image { reference } => vec![Effect::Image(host, reference, part.digest)],
            Place::Program | Place::Packages => return Err("it is no image".to_owned()),
        },
        Op::WriteFiles { files, remove, keep } => {
            let paths: Vec<String> = files.into_iter().map(|file| file.path).chain(remove).collect();
            if let Some(set) = keep {
                world.keep(name, set, &paths);
            }
            let of = |path: String| {
                let set = keep.or_else(|| set_of(world, name, &path));
                set.map(|set| Effect::File(name.clone(), set, path.clone()))
                    .ok_or_else(|| format!("{path} is of no set"))
            };
            return paths.into_iter().map(of).collect();
        }
        Op::InstallCerts { certs } => {
            certs.into_iter().map(|(spec, _)| Effect::CertSpec(name.clone(), spec.id)).collect()
        }
        Op::RunUnit { unit, how, .. } => {
            let mut all = vec![Effect::UnitEnabled(name.clone(), unit.clone())];
            // One that answers by now is left alone.
            if how == HowToRun::RestartIfHung && world.host(name).runs(unit.as_str()) {
                return Ok(all);
            }
            all.extend(how.restarts().then(|| Effect::UnitStops(name.clone(), unit.clone())));
            all.push(match how {
                HowToRun::Reload => Effect::UnitReloads(host, unit),
                HowToRun::Start | HowToRun::Restart | HowToRun::RestartIfHung => Effect::UnitStarts(host, unit),
            });
            all
        }
        Op::StopUnits { units } => units
            .into_iter()
            .flat_map(|unit| [Effect::UnitStops(name.clone(), unit.clone()), Effect::UnitDisabled(name.clone(), unit)])
            .collect(),
        Op::EndPods { manifests } => manifests.into_iter().map(|path| Effect::PodEnds(name.clone(), path)).collect(),
        Op::EndHungApiServer { .. } => vec![Effect::ApiServerEnds(host)],
        Op::StartMember(start) => starts(name, start),
        Op::Defragment { .. } => vec![
            Effect::UnitStops(name.clone(), etcd.clone()),
            Effect::Dense(name.clone()),
            Effect::UnitStarts(host, etcd),
        ],
        Op::ArchiveData(_) => vec![Effect::UnitStops(name.clone(), etcd), Effect::DataArchived(host)],
        Op::Halt { .. } => {
            vec![of(Effect::UnitStops, "kubelet.service"), of(Effect::UnitStops, "etcd.service"), Effect::PodsEnd(host)]
        }
        Op::Restore(ask) => {
            let own = matches!(ask.from, RestoreFrom::Own { .. });
            let read = own.then(|| Effect::SnapshotTaken(name.clone(), ask.token.clone(), None));
            let replaced = [Effect::DataArchived(name.clone()), Effect::Restored(host, restored(*ask))];
            read.into_iter().chain(replaced).collect()
        }
        Op::Seal { .. } => vec![Effect::MarkedBootstrapped(name.clone()), Effect::TokenSpent(host)],
        Op::ChangeMembers { change, .. } => vec![match change {
            MemberChange::Remove(peer) => Effect::Members(Change::Remove(peer)),
            MemberChange::AddLearner(peer) => Effect::Members(Change::AddLearner(peer)),
            MemberChange::Promote(peer) => Effect::Members(Change::Promote(peer)),
            MemberChange::Move(from, to) => Effect::Members(Change::Move(from, to)),
            MemberChange::Lead(peer) => Effect::Leads(host, peer),
        }],
        Op::Wipe(ask) => wiped(world, name, &ask),
        other => return Err(format!("this world does not know {other:?}")),
    })
}

fn starts(name: &HostName, start: MemberStart) -> Vec<Effect> {
    let etcd = make::unit("etcd.service");
    let boot = start.first.map(|first| match first.token {
        Some(token) => FirstBoot::New {
            token,
            initial_members: first
                .members
                .into_iter()
                .map(|(name, peer)| (name.parse().expect("a host's name"), peer))
                .collect(),
        },
        None => FirstBoot::Existing { members: first.members },
    });
    let first = boot.is_some();
    let mut all: Vec<Effect> = boot.into_iter().map(|boot| Effect::FirstBoot(name.clone(), boot)).collect();
    all.push(Effect::UnitEnabled(name.clone(), etcd));
    all.push(Effect::MemberStarts(name.clone(), first));
    all
}

fn wiped(world: &World, name: &HostName, ask: &WipeAsk) -> Vec<Effect> {
    let stops =
        |unit: UnitName| [Effect::UnitStops(name.clone(), unit.clone()), Effect::UnitDisabled(name.clone(), unit)];
    if ask.stays {
        // It is no longer a Node.
        let local = matches!(world.desired.endpoint.kind, EndpointKind::Local { .. });
        let units = ["haproxy.service", "kubelet.service", "containerd.service"].into_iter();
        let units = units.filter(|unit| local || *unit != "haproxy.service").map(make::unit);
        return units.flat_map(stops).chain([Effect::PodsEnd(name.clone())]).collect();
    }
    let units: Vec<_> = world.host(name).units.keys().cloned().collect();
    let mut all: Vec<Effect> = units.into_iter().map(|unit| Effect::UnitStops(name.clone(), unit)).collect();
    all.push(if ask.delete { Effect::DataDeleted(name.clone()) } else { Effect::DataArchived(name.clone()) });
    all.push(Effect::Blank(name.clone()));
    all
}

/// The effect of observing that a condition holds; `None` for a quorum that answers.
fn waited(world: &World, host: &HostName, condition: &WaitCondition) -> Option<Effect> {
    match condition {
        WaitCondition::EtcdQuorum(_) => None,
        WaitCondition::ApiServes { .. } => Some(Effect::EndpointSeen),
        WaitCondition::ApiReady { at, .. } => {
            let own = world.desired.entered().find(|h| &h.name == host).map(|h| h.address.to_string());
            let control = world.desired.entered().any(|h| &h.name == host && h.is(Role::ControlPlane));
            let its = control && own.as_ref() == Some(&at.0);
            Some(if its { Effect::ServingSeen(host.clone()) } else { Effect::EndpointSeen })
        }
    }
}

/// The set that a file belongs to, according to the target of the host.
fn set_of(world: &World, host: &HostName, path: &str) -> Option<FileSet> {
    let target = world.host_target(host);
    let has = |set: &hactl::model::target::SetTarget| {
        set.files.iter().any(|file| file.path == path)
            || set.own.iter().any(|own| own == path)
            || set.folders.iter().any(|folder| path.starts_with(folder.as_str()))
    };
    let found = target.sets.iter().find(|(_, set)| set.files.iter().any(|file| file.path == path));
    found.or_else(|| target.sets.iter().find(|(_, set)| has(set))).map(|(set, _)| *set)
}

fn restored(ask: RestoreAsk) -> Recovery {
    let members = ask.members.into_iter().map(|(name, peer)| (name.parse().expect("a host's name"), peer)).collect();
    // The host does not learn which source was chosen.
    let source = Origin::Bundle(String::new());
    Recovery { id: ask.token, source, reach: (0, 0), base: ask.base, members, undo: false }
}
