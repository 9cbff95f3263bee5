//! Plays one act on both hosts: the simulated agent and the real one get the same operations.

use crate::act::{Act, How, InitialClusterState, Stale};
use crate::compare::{Clocks, same};
use crate::fixture::{self, FIXTURE, host};
use crate::place::{DATA, Place};
use crate::sim::World;
use crate::sim::agent::effects;
use crate::sim::effect::{Effect, happen};
use crate::sim::member::Stop;
use hactl::model::foreign::FOLDERS;
use hactl::model::names::Digest;
use hactl::model::plan;
use hactl::model::target::{CertSpec, FileSet, HostTarget, Part};
use hactl::protocol::{EtcdAsk, FilePut, Op, OpError, OpErrorKind, Reply, WipeAsk};
use std::collections::BTreeMap;

/// Both hosts and what connects them.
pub struct Both {
    pub world: World,
    pub place: Place,
    pub clocks: Clocks,
    release: u8,
    /// How much of a part has arrived, if its delivery was cut off.
    partial: BTreeMap<Digest, u64>,
}

impl Both {
    pub async fn new() -> Self {
        let (world, place) = (fixture::world(), Place::new().await);
        Self { world, place, clocks: Clocks::default(), release: 0, partial: BTreeMap::new() }
    }

    pub fn target(&self) -> HostTarget {
        self.world.host_target(&host())
    }

    /// Plays one act.
    ///
    /// # Errors
    /// With a description, if one accepts what the other refuses.
    pub async fn play(&mut self, act: &Act) -> Result<(), String> {
        self.place.later_than(self.clocks.latest()).await;
        match act {
            Act::ClusterId => {
                let op = Op::WriteClusterId(self.world.intent.cluster_id.of(&host()));
                let sim = self.sim(op.clone());
                let real = self.place.ask(op).await;
                same(&sim, &real, OpErrorKind::BadRequest)
            }
            Act::Prepare => {
                let sim = self.sim(Op::Prepare(fixture::preparation()));
                let real = self.place.ask(Op::Prepare(fixture::preparation())).await;
                same(&sim, &real, OpErrorKind::Failed)
            }
            Act::Deliver { part, how } => self.deliver(part, *how).await,
            Act::Configure { set, which } => {
                let paths = self.some_paths(*set, *which);
                let files = fixture::puts(&self.target(), *set, &paths, self.release);
                let op = Op::WriteFiles { files, remove: vec![], keep: None };
                let sim = self.sim(op.clone());
                self.if_ready(sim, op).await
            }
            Act::Rejected { set, which } => self.rejected(*set, *which).await,
            Act::Certify(which) => {
                let leaves = self.some_leaves(*which);
                let ready = self.ready();
                let certs = leaves.iter().map(|leaf| (leaf.clone(), String::new())).collect();
                let sim = self.sim(Op::InstallCerts { certs });
                if ready {
                    same(&sim, &self.place.certify(leaves).await, OpErrorKind::BadRequest)
                } else {
                    refused(&sim)
                }
            }
            Act::KeysOnly(which) => {
                // Killed before anything is signed: no visible change.
                let leaves = self.some_leaves(*which);
                self.if_ready(self.idle(), Op::MakeKeys { leaves }).await
            }
            Act::WrongCert(which) => self.wrong_cert(*which).await,
            Act::Start(state) => self.start(*state).await,
            Act::ArchiveData => {
                let sim = self.sim(Op::ArchiveData(member()));
                self.mirror_process();
                let real = self.place.ask(Op::ArchiveData(member())).await;
                same(&sim, &real, OpErrorKind::BadRequest)
            }
            Act::ArchiveDataUnderEtcd => {
                let sim = self.happen(&[Effect::DataArchived(host())]);
                let real = self.place.ask(Op::ArchiveData(member())).await;
                same(&sim, &real, OpErrorKind::BadRequest)
            }
            Act::MarkBootstrapped => {
                let disk = self.world.host(&host()).disk.clone();
                let cluster = disk.map_or_else(|| "cafe".to_owned(), |d| d.cluster);
                let op = Op::Seal { data_dir: DATA.to_owned(), cluster };
                let sim = self.sim(op.clone());
                let real = self.place.ask(op).await;
                same(&sim, &real, OpErrorKind::BadRequest)
            }
            Act::Wipe { delete } => {
                let desired = self.world.desired.clone();
                // The directory has no systemd for units.
                let ask = WipeAsk { units: vec![], ..hactl::render::wipe(&desired, &desired.hosts[0], *delete) };
                let sim = self.sim(Op::Wipe(ask.clone()));
                self.mirror_process();
                same(&sim, &self.place.ask(Op::Wipe(ask)).await, OpErrorKind::BadRequest)?;
                if sim.is_ok() {
                    // On the real host those stay that had files before it got its identity.
                    for folder in FOLDERS {
                        self.place.remove(folder);
                    }
                }
                Ok(())
            }
            Act::NextRun => {
                self.place.next_run().await;
                Ok(())
            }
            Act::Late(whose) => self.late(*whose).await,
            Act::Release => {
                self.release = 1 - self.release;
                self.world.target = fixture::target(self.release);
                Ok(())
            }
            Act::Tamper(tamper) => self.tamper(*tamper).await,
        }?;
        self.mirror_process();
        Ok(())
    }

    /// Runs an operation in the simulated agent.
    fn sim(&mut self, op: Op) -> Result<(), String> {
        let all = effects(&mut self.world, &host(), op)?;
        self.happen(&all)
    }

    pub fn happen(&mut self, effects: &[Effect]) -> Result<(), String> {
        let stopped = |stop| match stop {
            Stop::Failed(why) => why,
            Stop::Broken(law) => format!("{law:?}"),
        };
        effects.iter().try_for_each(|effect| happen(&mut self.world, effect).map_err(stopped))
    }

    /// Whether the host has its cluster identity and is prepared: before that, the simulated world accepts nothing
    /// else.
    pub fn ready(&self) -> bool {
        let found = self.world.host(&host());
        found.cluster_id.is_some() && self.target().paths.iter().all(|p| found.programs.contains(p))
    }

    /// A step that is not completed changes nothing, and does not begin before the host is ready.
    fn idle(&self) -> Result<(), String> {
        if self.ready() { Ok(()) } else { Err("not ready".to_owned()) }
    }

    async fn if_ready(&mut self, sim: Result<(), String>, op: Op) -> Result<(), String> {
        if self.ready() { same(&sim, &self.place.ask(op).await, OpErrorKind::BadRequest) } else { refused(&sim) }
    }

    pub fn part(&self, name: &str) -> Part {
        self.target().parts.into_iter().find(|p| p.name == name).expect("a part of the target")
    }

    async fn deliver(&mut self, name: &str, how: How) -> Result<(), String> {
        let part = self.part(name);
        let op = Op::Deliver(part.clone());
        if !self.ready() {
            return refused(&self.sim(op.clone()));
        }
        let sent = FIXTURE.sent(&part);
        let offered = self.place.offer(&part).await.map_err(|fault| format!("{fault:?}"))?;
        let Some(from) = offered else {
            // Nothing is sent, so nothing can be cut off or damaged.
            return self.sim(op.clone());
        };
        if self.world.host(&host()).blobs.contains(&part.digest) {
            return Err(format!("the host wants {name} again, and sim has it"));
        }
        let known = self.partial.remove(&part.digest).unwrap_or(0);
        if from != known {
            return Err(format!("the host resumes at {from} instead of {known}"));
        }
        let rest = &sent[usize::try_from(from).expect("a small part")..];
        match how {
            How::Whole => same(&self.sim(op.clone()), &self.place.send(rest).await, OpErrorKind::Corrupt),
            How::CutOff(share) => {
                let some = &rest[..(rest.len() - 1) * usize::from(share) / 256];
                let until = from + some.len() as u64;
                self.partial.insert(part.digest, until);
                self.place.cut_off(&part, some, until).await;
                Ok(())
            }
            How::Damaged => {
                let mut rest = rest.to_vec();
                // After the header, in the content itself.
                let at = rest.len() / 2;
                rest[at] ^= 0xff;
                same(&Err("damaged".to_owned()), &self.place.send(&rest).await, OpErrorKind::Corrupt)
            }
        }
    }

    fn some_paths(&self, set: FileSet, which: u8) -> Vec<String> {
        let files = self.target().sets.remove(&set).expect("a set of the target").files;
        some(&files, which).map(|f| f.path.clone()).collect()
    }

    fn some_leaves(&self, which: u8) -> Vec<CertSpec> {
        some(&self.target().leaves, which).cloned().collect()
    }

    /// A check rejects the last file: all of them stay as they were. A file that is already right is not checked.
    async fn rejected(&mut self, set: FileSet, which: u8) -> Result<(), String> {
        let (target, paths) = (self.target(), self.some_paths(set, which));
        let mut files: Vec<FilePut> = fixture::puts(&target, set, &paths, self.release);
        let Some(last) = files.last_mut().filter(|_| self.ready()) else { return Ok(()) };
        last.check = Some(vec!["false".to_owned()]);
        let wanted = target.sets[&set].files.iter().find(|f| f.path == last.path).expect("a file of the set");
        let sim = if self.world.host(&host()).has(wanted) {
            self.sim(Op::WriteFiles { files: files.clone(), remove: vec![], keep: None })
        } else {
            Err("rejected".to_owned())
        };
        same(&sim, &self.place.ask(Op::WriteFiles { files, remove: vec![], keep: None }).await, OpErrorKind::Rejected)
    }

    async fn wrong_cert(&mut self, which: u8) -> Result<(), String> {
        let Some(leaf) = self.some_leaves(which).pop().filter(|_| self.ready()) else { return Ok(()) };
        let stray = rcgen::KeyPair::generate().expect("a key");
        let request = rcgen::CertificateParams::default().serialize_request(&stray).and_then(|r| r.pem());
        let pem = FIXTURE.sign(&leaf, &request.expect("a request"));
        let real = self.place.ask(Op::InstallCerts { certs: vec![(leaf, pem)] }).await;
        same(&Err("not its key".to_owned()), &real, OpErrorKind::BadRequest)
    }

    /// A directory has no systemd, so the start itself always fails there. What counts is whether the settings before
    /// it are accepted; the simulated world decides for both what etcd makes of them.
    async fn start(&mut self, state: InitialClusterState) -> Result<(), String> {
        if !self.ready() {
            return Ok(());
        }
        let peer = self.world.peer(&host());
        let state = match state {
            InitialClusterState::New(n) => {
                plan::InitialClusterState::New { token: format!("token-{n}"), initial_members: vec![(host(), peer)] }
            }
            InitialClusterState::Existing => {
                plan::InitialClusterState::Existing { members: vec![(host().to_string(), peer)] }
            }
            InitialClusterState::Restart => plan::InitialClusterState::Restart,
        };
        let start = hactl::execute::member_start(DATA, &state);
        let mut all = effects(&mut self.world, &host(), Op::StartMember(start.clone()))?;
        let sim = if start.first.is_some() {
            self.happen(&[all.remove(0)])
        } else if self.world.host(&host()).disk.is_some() {
            Ok(())
        } else {
            Err("there is nothing to start".to_owned())
        };
        let real = match self.place.ask(Op::StartMember(start)).await {
            Err(OpError { what, .. }) if what.ends_with("has no systemd") => Ok(Reply::Done),
            other => other,
        };
        same(&sim, &real, OpErrorKind::BadRequest)?;
        if sim.is_ok() {
            // Whether it starts does not concern the host's side.
            let _ = self.happen(&all);
        }
        Ok(())
    }

    /// A session without the lock changes nothing, whatever it asks for.
    async fn late(&mut self, whose: Stale) -> Result<(), String> {
        let epoch = match whose {
            Stale::Never => 0,
            Stale::Earlier => self.place.epoch - 1,
        };
        let set = FileSet::Os;
        let files = fixture::puts(&self.target(), set, &self.some_paths(set, 0xff), self.release);
        let (held, real) = self.place.late(epoch, Op::WriteFiles { files, remove: vec![], keep: None }).await;
        if !matches!(&held, Reply::Held { by, .. } if by == "this run") {
            return Err(format!("the lock is held and the host says {held:?}"));
        }
        same(&Err("fenced".to_owned()), &real, OpErrorKind::Fenced)
    }

    /// Sets the real host's etcd as the simulated one is.
    pub fn mirror_process(&mut self) {
        let found = self.world.host(&host());
        let (runs, real) = (found.runs("etcd.service"), self.place.at(DATA).join("member").exists());
        // Data that a refused act leaves on one side only shows in the facts.
        let data = found.disk.is_some() || real;
        self.place.etcd(data, runs);
    }
}

/// The member of this host, which cannot be queried: there are no certificates for it.
fn member() -> EtcdAsk {
    let nowhere = || "/nowhere".to_owned();
    EtcdAsk {
        url: "https://127.0.0.1:1".to_owned(),
        data_dir: DATA.to_owned(),
        ca: nowhere(),
        cert: nowhere(),
        key: nowhere(),
    }
}

/// An act that only the simulated world refuses, because it comes out of order.
fn refused(sim: &Result<(), String>) -> Result<(), String> {
    if sim.is_err() { Ok(()) } else { Err("sim accepts an act out of order".to_owned()) }
}

/// The elements whose bit is set; all of them when none is.
fn some<T>(all: &[T], which: u8) -> impl Iterator<Item = &T> {
    let chosen = move |at: usize| which >> (at % 8) & 1 == 1;
    let none = !(0..all.len()).any(chosen);
    all.iter().enumerate().filter(move |(at, _)| none || chosen(*at)).map(|(_, one)| one)
}
