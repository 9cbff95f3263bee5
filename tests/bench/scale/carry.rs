//! The library's own delivery, in a process of its own so that its memory can be measured: what `up` does for a part of
//! the bundle, with a part that is in no bundle.
//!
//! In: `carry INVENTORY BLOB`. It connects, locks, observes, and delivers to every light host that lacks the blob, in
//! rounds like those of `up`, with the same session, observation, walk and actuator. Light hosts have no systemd, so
//! they can have no role with parts, and the planner has nothing for them; only the plan is made here. Out: lines that
//! the parent reads.

use hactl::component::default_store;
use hactl::execute::{Actuator, DELIVERIES_PER_HOST, IMPORTS_PER_HOST, walk};
use hactl::inventory::{Source, load};
use hactl::model::desired::Role;
use hactl::model::event::{Event, Sink};
use hactl::model::facts::ClusterId;
use hactl::model::names::Digest;
use hactl::model::plan::{Action, Condition, Plan, Precondition, Step};
use hactl::model::target::{HostTarget, Part, Place, Target};
use hactl::observe::{Queries, Wait};
use hactl::protocol::ObserveAsk;
use hactl::statedir::StateDir;
use hactl::transport::Access;
use hactl::workflow::{Places, Session};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The blob's name on hosts.
const NAME: &str = "blob";
/// The compression level of the bundle's parts.
const LEVEL: i32 = 9;

/// Prints what the parent wants to know, each line with the seconds since the start.
struct Lines(Instant);

impl Sink for Lines {
    fn emit(&self, event: Event) {
        let at = self.0.elapsed().as_secs_f64();
        match event {
            Event::Done { host: Some(host), .. } => println!("{at:.3} done {host}"),
            Event::Failed { host: Some(host), why, .. } => println!("{at:.3} trouble {host}: {why}"),
            Event::Warning { text } => println!("{at:.3} trouble {text}"),
            _ => {}
        }
    }
}

/// The blob as a part, with its compressed form beside it: made once, as a bundle is.
pub fn pack(blob: &Path) -> Part {
    let content = std::fs::read(blob).expect("the blob can be read");
    let sent = zstd::bulk::compress(&content, LEVEL).expect("it can be compressed");
    std::fs::write(blob.with_extension("zst"), &sent).expect("writable");
    let part = Part {
        name: NAME.to_owned(),
        version: "1".to_owned(),
        digest: Digest::of(&content),
        size: content.len() as u64,
        sent_digest: Digest::of(&sent),
        sent_size: sent.len() as u64,
        place: Place::Program,
    };
    std::fs::write(blob.with_extension("json"), serde_json::to_vec(&part).expect("JSON")).expect("writable");
    part
}

/// The process: `carry INVENTORY BLOB`.
pub fn main(inventory: &str, blob: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(carry(Path::new(inventory), Path::new(blob)));
}

async fn carry(inventory: &Path, blob: &Path) {
    let part: Part =
        serde_json::from_slice(&std::fs::read(blob.with_extension("json")).expect("packed")).expect("JSON");
    let loaded = load(&Source::Path(inventory.to_owned())).expect("an inventory that holds");
    let mut desired = loaded.desired;
    desired.hosts.retain(|h| h.is(Role::Spare));
    let places = Places { state: StateDir::default_dir(&loaded.base, &desired.cluster), bundles: default_store() };
    let binary = (std::env::consts::ARCH.to_owned(), env!("CARGO_BIN_EXE_hactl").into());
    let access = Access::with(&[binary]).expect("hactl is built");
    let desired = Arc::new(desired);
    let sink: Arc<dyn Sink> = Arc::new(Lines(Instant::now()));
    let stop = CancellationToken::new();
    let mut session = Session::open(
        (Arc::clone(&desired), loaded.attached, loaded.text),
        places,
        &access,
        Arc::clone(&sink),
        stop.clone(),
    )
    .await
    .expect("a host can be reached");
    session.lock("bench").await.expect("no other run holds the lock");
    let state = session.state(false).await.expect("the cluster's state");
    let stamp = ClusterId {
        cluster: desired.cluster.clone(),
        ca: state.publics().founded,
        stages: 0,
        host: None,
        machine: None,
    };
    let ask = ObserveAsk { parts: vec![part.clone()], ..ObserveAsk::default() };
    let queries = desired.hosts.iter().map(|h| (h.name.clone(), ask.clone())).collect();
    let queries = Queries::new(Arc::clone(&desired), stamp, hactl::observe::KnownCluster::default(), queries);
    let actuator = |session: &Session, target| {
        let sent = blob.with_extension("zst");
        Arc::new(Actuator {
            desired: Arc::clone(&desired),
            target: Arc::new(target),
            machines: session.machines.clone(),
            files: BTreeMap::new(),
            queries: queries.clone(),
            sign: Box::new(|_, _| Err("nothing is signed here".to_owned())),
            blob: Box::new(move |_| Ok(sent.clone())),
            record_bootstrap: Box::new(|_, _| Err("nothing is bootstrapped here".to_owned())),
            recoveries: hactl::execute::Recoveries::of(std::path::Path::new(""), std::path::Path::new("")),
            api: std::sync::Arc::new(state.api_access()),
            sink: Arc::clone(&sink),
            deliveries: Actuator::slots_for(session.machines.keys(), DELIVERIES_PER_HOST),
            imports: Actuator::slots_for(session.machines.keys(), IMPORTS_PER_HOST),
            synced: OnceCell::new(),
            client: OnceCell::new(),
        })
    };
    let (mut delivered, mut wait) = (0, Wait::ForMost);
    loop {
        session.admit(if wait == Wait::ForAll { wait } else { Wait::ForNobody }).await.expect("no lock is held");
        let (machines, unreachable) = (&session.machines, &session.unreachable);
        let (answers, hurried) =
            hactl::observe::round(&desired, machines, unreachable, &queries, session.at_once, wait).await;
        let (mut plan, mut target) = (Plan::default(), Target::default());
        for (host, answer) in &answers {
            let Ok(facts) = answer else { continue };
            target.hosts.insert(host.clone(), HostTarget { parts: vec![part.clone()], ..HostTarget::default() });
            if !facts.blobs.contains(&part.digest) {
                let action = Action::Deliver { host: host.clone(), part: part.name.clone(), digest: part.digest };
                let provides = Condition::Delivered(host.clone(), part.digest);
                plan.steps.push(Step {
                    action,
                    why: String::new(),
                    requires: vec![],
                    provides,
                    precondition: Precondition::None,
                    rollback: vec![],
                });
                plan.after.push(vec![]);
            }
        }
        if plan.is_empty() && !hurried && !session.expects() {
            for (host, answer) in &answers {
                if let Err(unreachable) = answer {
                    println!("0 unreachable {host}: {}", unreachable.why);
                }
            }
            break;
        }
        if plan.is_empty() {
            wait = Wait::ForAll;
            continue;
        }
        let actuator = actuator(&session, target);
        delivered += walk(&plan, &actuator, &sink, &stop, session.at_once).await.done;
        wait = Wait::ForMost;
    }
    println!("0 delivered {delivered}");
    session.close().await;
}
