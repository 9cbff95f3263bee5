//! Maintenances of Nodes: the guard of one control-plane host at a time acts on them.
//!
//! In: the policy, and the certificate of this guard, which the API binds to the rights of the controllers. Out: Nodes
//! that are cordoned, drained and restored as objects NodeMaintenance ask for, and lines in the journal.

use super::api::servers;
use super::shared::Shared;
use crate::agent::{Root, cluster_of};
use crate::controllers::{Guarding, InCluster, Place, control};
use crate::kube::Client;
use crate::model::desired::Role;
use crate::model::event::{Event, Sink};
use crate::model::healing::{GuardedHost, Policy};
use crate::model::maintained::Maintained;
use crate::model::names::HostName;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A sentence that is repeated within this time is not said again: until somebody mends its cause, it would come every
/// few seconds.
const AGAIN: Duration = Duration::from_secs(600);
/// The most sentences that are remembered.
const MOST: usize = 100;
/// A member has served reads within this time, or it does not.
const SERVED_WITHIN: Duration = Duration::from_secs(20);

/// The journal of the guard.
struct Journal {
    shared: Arc<Shared>,
    said: Mutex<BTreeMap<String, Instant>>,
}

impl Journal {
    fn say(&self, text: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| at.elapsed() < AGAIN);
        if said.contains_key(&text) {
            return;
        }
        if said.len() >= MOST {
            said.clear();
        }
        self.shared.say(&format!("maintenance: {text}"));
        said.insert(text, Instant::now());
    }
}

impl Sink for Journal {
    fn emit(&self, event: Event) {
        match event {
            Event::Warning { text } | Event::Note { text } => self.say(text),
            // The status of the object has them.
            _ => {}
        }
    }
}

/// Acts on maintenances whenever this guard is elected. Ends never.
pub(super) async fn act(shared: Arc<Shared>, root: Root, policy: Policy) {
    let own = shared.own.name.clone();
    let client = match servers(&root, &policy, &own).map(Client::of_servers) {
        Ok(Some(client)) => client,
        Ok(None) => return shared.idle("no maintenance of Nodes: no host has an API server").await,
        Err(why) => return shared.idle(&format!("no maintenance of Nodes: {why}")).await,
    };
    // A guard that starts again is another process: the Lease of the earlier one ends by itself.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let holder = format!("guard of {own}, {since}");
    let places = |node: &HostName| place(&shared, &policy, node);
    let journal = Journal { shared: Arc::clone(&shared), said: Mutex::default() };
    let shows = |seen: Option<Maintained>| shared.with(|state| state.figures.maintained = seen);
    let served = Mutex::new(None);
    let cluster = || {
        let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.with(|state| state.etcd(shared.now())).is_some_and(|etcd| etcd.serves) {
            *served = Some(Instant::now());
        }
        let serves = served.is_some_and(|since| since.elapsed() < SERVED_WITHIN);
        in_cluster((&shared, &policy), cluster_of(&root, &policy).filter(|_| serves))
    };
    let knows = Guarding { places: &places, shows: &shows, cluster: &cluster };
    control(&client, &journal, (&holder, &own), knows).await;
}

/// In which cluster of etcd this guard is, by a member of its host that serves: one that was left out of a recovery knows
/// only the cluster from before. Where hosts of the control plane have members, only their guards know.
fn in_cluster((shared, policy): (&Shared, &Policy), own: Option<String>) -> InCluster {
    let knows = |guard: &GuardedHost| guard.is(Role::ControlPlane) && guard.may_vote();
    match own {
        Some(id) if shared.own.may_vote() => InCluster::Of(id),
        _ if policy.guards.iter().any(knows) => InCluster::None,
        _ => InCluster::Unknown,
    }
}

/// What a Node is to the control plane. One of its hosts may go only while the guards know of no fault of another one:
/// they notice it before the API does.
fn place(shared: &Shared, policy: &Policy, node: &HostName) -> Place {
    let is_node = |guard: &GuardedHost| guard.is(Role::ControlPlane) || guard.is(Role::Worker);
    let counts = |guard: &&GuardedHost| is_node(guard) && (guard.has_etcd() || guard.is(Role::ControlPlane));
    let Some(host) = policy.guard(node) else { return Place::default() };
    if counts(&host) {
        let hosts = policy.guards.iter().filter(counts).map(|guard| guard.name.clone()).collect();
        let needed = shared.with(|state| state.needed(node, shared.now()));
        Place { control_plane: Some(hosts), needed, is_balancer: false }
    } else if host.is(Role::LoadBalancer) {
        let why = format!("{node} is a load balancer of the control plane: nothing says whether it can be spared");
        Place { control_plane: None, needed: Some(why), is_balancer: true }
    } else {
        Place::default()
    }
}
