//! What a guard reads from the API: holds by annotations, and other healers of the same Nodes.
//!
//! In: the Namespace `kube-system`, the Nodes of guarded hosts, NodeHealthChecks. Out: with `healing: on`, a file with
//! the holds; the shared state. All of it can only prevent repairs. Without an API server, what was read last stays.

use super::shared::{Shared, replace, turns};
use crate::agent::{Root, annotated};
use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::desired::Role;
use crate::model::healing::{CA, CERT, ForeignHealers, KEY, Mode, Policy};
use crate::model::hold::{ANNOTATED, Annotated};
use crate::model::names::HostName;
use crate::model::selector::selects;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(15);
/// How long one look at one API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Other healers are looked for each so many looks.
const HEALERS_EVERY: u32 = 4;
/// The annotation of Cluster API on Nodes: its machines are deleted and created by a MachineHealthCheck.
const CLUSTER_API: &str = "/metadata/annotations/cluster.x-k8s.io~1machine";
/// Those of medik8s.
const HEALTH_CHECKS: &str = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks";

/// The API servers, the own one first.
pub(super) fn servers(root: &Root, policy: &Policy, own: &HostName) -> Result<Vec<Client>, KubeError> {
    let files = [CA, CERT, KEY].map(|path| root.own(path));
    let files = files.each_ref().map(PathBuf::as_path);
    let mut servers: Vec<_> = policy.guards.iter().filter(|guard| guard.is(Role::ControlPlane)).collect();
    servers.sort_by_key(|guard| &guard.name != own);
    let url = |address| format!("https://{}", SocketAddr::new(address, policy.api_port));
    servers.into_iter().map(|guard| Client::with_files(&url(guard.address), files)).collect()
}

/// Reads until the guard ends.
pub(super) async fn read(shared: Arc<Shared>, root: Root, policy: Policy) {
    let servers = match servers(&root, &policy, &shared.own.name) {
        Ok(servers) => servers,
        Err(why) => return shared.idle(&format!("cannot read holds and other healers from the API: {why}")).await,
    };
    let mut turn = turns(EVERY);
    let mut holds = annotated(&root).plausible(|host| policy.guard(host).is_some());
    shared.with(|state| state.annotates(holds.clone()));
    for count in 0_u32.. {
        turn.tick().await;
        let Some((client, nodes, namespace)) = first(&servers, &policy).await else { continue };
        let read = Annotated::of(&namespace, &nodes, &holds, shared.now().wall_ms);
        if read != holds {
            // With `watch` nothing is repaired, and nothing is written but the report.
            if policy.healing.mode == Mode::On {
                let text = serde_json::to_vec(&read).map_err(std::io::Error::other);
                let written = text.and_then(|text| replace(&root.own(ANNOTATED), &text));
                shared.warn(written.map_err(|error| format!("cannot write {ANNOTATED}: {error}")));
            }
            holds = read;
            shared.with(|state| state.annotates(holds.clone()));
        }
        if count % HEALERS_EVERY == 0 && policy.healing.foreign == ForeignHealers::Refuse {
            match client.list(HEALTH_CHECKS, "", Instant::now() + TIMEOUT).await {
                Ok(checks) => shared.healers(&nodes, &checks),
                Err(error) if error.is_not_found() => shared.healers(&nodes, &[]),
                Err(error) => shared.say_once(&format!("cannot look for other healers: {error}")),
            }
        }
    }
}

/// The Nodes of guarded hosts and the Namespace, from the first API server that answers. One that does not answer, or
/// that refuses, says nothing.
async fn first<'a>(servers: &'a [Client], policy: &Policy) -> Option<(&'a Client, BTreeMap<HostName, Value>, Value)> {
    for client in servers {
        let until = Instant::now() + TIMEOUT;
        let system = ObjectRef::new("v1", "Namespace", None, "kube-system");
        let Ok(Some(namespace)) = client.get(&system, until).await else { continue };
        let mut nodes = BTreeMap::new();
        let mut whole = true;
        for guard in &policy.guards {
            match client.get(&ObjectRef::node(&guard.name), until).await {
                Ok(Some(node)) => drop(nodes.insert(guard.name.clone(), node)),
                // A host without a kubelet has none.
                Ok(None) => {}
                Err(_) => whole = false,
            }
        }
        if whole {
            return Some((client, nodes, namespace));
        }
    }
    None
}

impl Shared {
    /// Says something once, and waits for ever: a part of the guard that cannot work must not end the guard.
    pub(super) async fn idle(&self, why: &str) {
        self.say_once(why);
        std::future::pending::<()>().await;
    }

    fn healers(&self, nodes: &BTreeMap<HostName, Value>, checks: &[Value]) {
        let found = nodes.iter().filter_map(|(host, node)| Some((host.clone(), healer(node, checks)?)));
        let found = found.collect();
        let changes = self.with(|state| state.healed_by(found, self.now()));
        self.report_changes(changes);
    }
}

/// What else may repair the host of a Node.
fn healer(node: &Value, checks: &[Value]) -> Option<String> {
    if let Some(machine) = node.pointer(CLUSTER_API).and_then(Value::as_str) {
        return Some(format!("Cluster API has its Node as the Machine {machine}"));
    }
    let none = Value::Null;
    let check = checks.iter().find(|check| selects(check.pointer("/spec/selector").unwrap_or(&none), node))?;
    let name = check.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
    Some(format!("the NodeHealthCheck {name} selects its Node"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_of_cluster_api_and_a_check_that_selects_the_node_are_other_healers() {
        let node = json!({"metadata": {"labels": {"role": "cp"}, "annotations": {}}});
        let of =
            |label: &str| json!({"metadata": {"name": "nhc"}, "spec": {"selector": {"matchLabels": {"role": label}}}});
        assert_eq!(healer(&node, &[of("worker")]), None);
        assert_eq!(healer(&node, &[of("worker"), of("cp")]).unwrap(), "the NodeHealthCheck nhc selects its Node");
        let machine = json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "m-1"}}});
        assert_eq!(healer(&machine, &[]).unwrap(), "Cluster API has its Node as the Machine m-1");
    }
}
