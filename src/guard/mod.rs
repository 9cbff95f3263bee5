//! The guard, `hactl host-guard`: a small resident program on every host of the control plane that detects faults and
//! reports them. With `healing: on` it also repairs what its own host can repair alone. One guard at a time acts on
//! maintenances of Nodes.
//!
//! In: the policy in `/etc/hactl/guard.json`, probes of the own host, heartbeats of the other guards. Out: a report in a
//! file that `hactl status` reads, lines in the journal, metrics. It needs certificates and the kernel only: no etcd, no
//! API, no containerd, no DNS.

mod api;
mod book;
mod crashes;
mod disk;
mod events;
mod figures;
mod heal;
mod held;
mod hosting;
mod lead;
mod ledger;
mod maintain;
mod members;
mod metrics;
mod metrics_relay;
mod node_agent;
mod notify;
mod on_host;
mod peer;
mod peer_snapshots;
mod peers;
mod power;
mod readers;
mod repair;
mod setup;
mod shared;
mod state;
#[cfg(test)]
mod tests;

pub use heal::{HealError, heal};
pub use hosting::{Place, run as keep_hosting};
pub use metrics_relay::run as serve_metrics;
pub use node_agent::run as serve_node;
pub use peer::{PeerError, peer};
pub use peer_snapshots::{PeerSnapshotsError, copy_peer_snapshots};
pub use setup::GuardError;

use crate::agent::Root;
use crate::agent::probe::{Probe, is_own};
use crate::model::desired::Role;
use crate::model::healing::{Metrics, Mode, REPORT};
use crate::model::names::HostName;
use shared::{Shared, replace, turns};
use state::State;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::channel;
use tokio::task::JoinSet;

/// Between two conclusions, each with a report.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the files that it has read, in turns.
const FILES_EVERY: u32 = 5;

/// Watches until one of the files changes that it has read.
///
/// # Errors
/// The files cannot be used.
pub async fn run(root: Root, own: &HostName, say: fn(&str)) -> Result<(), GuardError> {
    let begun = Instant::now();
    let version = setup::version(&root);
    let (setup, identity) = setup::read(&root, own)?;
    let (client, server) = (Arc::new(identity.client()?), identity.server()?);
    let policy = setup.policy.clone();
    let (events, occurrences) = channel(events::WAITING);
    let shared = Arc::new(Shared {
        own: setup.own.clone(),
        guards: policy.guards.clone(),
        api_port: policy.api_port,
        state: Mutex::new(State::new(setup)),
        begun,
        said: Mutex::default(),
        refused: Mutex::default(),
        say,
        events,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(metrics::serve(Arc::clone(&shared), None));
    if policy.healing.metrics == Metrics::Host {
        let readers = readers::Readers::of(server.clone(), identity.authorities.clone());
        tasks.spawn(metrics::serve(Arc::clone(&shared), Some(readers)));
    }
    tasks.spawn(figures::measure(Arc::clone(&shared), root.clone()));
    tasks.spawn(peers::receive(Arc::clone(&shared), server, identity.authorities.clone()));
    tasks.spawn(api::read(Arc::clone(&shared), root.clone(), policy.clone()));
    tasks.spawn(events::publish(Arc::clone(&shared), root.clone(), policy.clone(), occurrences));
    for other in policy.others(own) {
        let authorities = identity.authorities.clone();
        tasks.spawn(peers::send(Arc::clone(&shared), other.clone(), Arc::clone(&client), authorities));
        tasks.spawn(peers::dial(Arc::clone(&shared), other.clone()));
    }
    for probe in Probe::of(&shared.own, &policy) {
        let (shared, root, policy) = (Arc::clone(&shared), root.clone(), policy.clone());
        tasks.spawn(async move {
            let mut turn = turns(probe.every());
            loop {
                turn.tick().await;
                let Some(found) = probe.look(&root, &policy, &shared.own).await else { continue };
                shared.probed(probe.kinds(), found);
            }
        });
    }
    if shared.own.may_vote() {
        tasks.spawn(disk::watch(Arc::clone(&shared)));
    }
    if shared.own.is(Role::ControlPlane) {
        tasks.spawn(crashes::watch(Arc::clone(&shared), root.clone()));
        tasks.spawn(maintain::act(Arc::clone(&shared), root.clone(), policy.clone()));
    }
    members::ask(&mut tasks, &shared, &root, &policy);
    let others = policy.guards.len() - 1;
    shared.say(&if policy.healing.mode == Mode::On {
        tasks.spawn(repair::keep(Arc::clone(&shared), root.clone(), policy.clone()));
        format!("{own}: watching with {others} others; this host is repaired")
    } else {
        format!("{own}: watching with {others} others; nothing is repaired")
    });
    notify::ready();
    let mut turn = turns(EVERY);
    for count in 0_u32.. {
        tokio::select! {
            _ = turn.tick() => {}
            // No task ends but by a defect: systemd starts the guard again.
            Some(ended) = tasks.join_next() => {
                let why = ended.err().map_or_else(|| "it returned".to_owned(), |error| error.to_string());
                return Err(GuardError::Files(format!("a part of the guard ended: {why}")));
            }
        }
        if let Some(vip) = policy.vip {
            shared.with(|state| state.has_vip(is_own(vip)));
        }
        let changes = shared.with(|state| state.judge(shared.now()));
        shared.report_changes(changes);
        publish(&shared, &root);
        notify::alive();
        if count % FILES_EVERY == 0 && setup::version(&root) != version {
            shared.say("its policy or its certificate changed: starting again");
            return Ok(());
        }
    }
    Ok(())
}

/// Writes the report.
fn publish(shared: &Shared, root: &Root) {
    let report = shared.with(|state| state.report(shared.now()));
    let path = root.own(REPORT);
    let text = serde_json::to_vec(&report).map_err(std::io::Error::other);
    if let Err(error) = text.and_then(|text| replace(&path, &text)) {
        shared.say_once(&format!("cannot write {}: {error}; `hactl status` sees no report", path.display()));
    }
}
