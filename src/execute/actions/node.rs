//! Nodes: waits until the running kubelet has reported, and deletes Nodes whose kubelet no longer reports.
//!
//! In: a Node's name. Out: done, or its last status. A Node whose kubelet runs is never deleted: the kubelet would not
//! register it again, and the pods on its host would run on unseen.

use crate::execute::act::{Doing, failed};
use crate::execute::walk::StepError;
use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::control_plane::{API_MANIFEST, MANIFESTS};
use crate::model::desired::Cni;
use crate::model::event::Event;
use crate::model::facts::UnitFact;
use crate::model::labels::QUORUM;
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use crate::model::plan::NodeEnd;
use crate::model::pod::PodView;
use crate::model::target::FileSet;
use crate::protocol::Op;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often the kubelet's start time is read again, because it may restart in between.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long a kubelet takes to register its Node, which it does only when it starts.
const REGISTERS: Duration = Duration::from_secs(30);
/// How long a Node must be reported as unreachable. After a recovery this status may come from the snapshot: a running
/// kubelet corrects it within ten seconds, and needs up to ten more to reconnect.
const SILENT_FOR: Duration = Duration::from_secs(30);

impl Doing<'_> {
    /// Waits until a Node is Ready according to the kubelet that runs on its host now. A Node that was deleted is
    /// registered again.
    pub(super) async fn await_node(&self, host: &HostName) -> Result<(), StepError> {
        let client = self.client().await?;
        let (node, until) = (ObjectRef::node(host), self.until());
        loop {
            let kubelet = self.unit(host, crate::plan::kubelet_unit()).await?;
            let ready = |live: Option<&Value>| self.node_ready(live, &kubelet);
            let turn = until.min(Instant::now() + ASK_AGAIN);
            match client.wait(&node, &format!("Node {host} being Ready"), turn, ready).await {
                Err(KubeError::TimedOut { .. }) if turn < until => {}
                waited => return waited.map(drop).map_err(StepError::from),
            }
            let (running, now_ms) = kubelet;
            let runs_ms = u64::try_from(now_ms.saturating_sub(running.started_ms)).unwrap_or(0);
            let registered = !matches!(client.get(&node, until).await, Ok(None));
            if Duration::from_millis(runs_ms) >= REGISTERS && !registered {
                self.waiting(format!("the kubelet to register {host} again: its Node was deleted"));
                self.restart_kubelet(host).await?;
            }
        }
    }

    /// Whether a Node is Ready according to the kubelet that runs on its host now; otherwise its status.
    fn node_ready(&self, live: Option<&Value>, kubelet: &(UnitFact, i64)) -> Result<(), String> {
        let on = match live.and_then(NodeFact::of).map(|node| node.by(&kubelet.0, kubelet.1)) {
            Some(node) if node.ready && self.desired.network.cni == Cni::Flannel && node.pods.is_none() => {
                "the controller manager has not assigned its pod CIDR yet".to_owned()
            }
            Some(node) if node.ready => return Ok(()),
            Some(node) => node.message,
            None => "its kubelet has not registered it yet".to_owned(),
        };
        self.waiting(on.clone());
        Err(on)
    }

    /// Deletes a Node and its pods. Unless its kubelet was stopped, the controller manager must report it as
    /// unreachable: an unknown Node whose kubelet runs stays, with a warning.
    pub(super) async fn delete_node(&self, name: &HostName, end: NodeEnd) -> Result<(), StepError> {
        let client = self.client().await?;
        let (node, until) = (ObjectRef::node(name), self.until());
        let since = Mutex::new(None);
        let unreachable = |live: Option<&Value>| {
            let Some(live) = live.and_then(NodeFact::of) else { return Ok(()) };
            if end == NodeEnd::Stopped {
                return Ok(());
            }
            let mut since = since.lock().unwrap_or_else(PoisonError::into_inner);
            *since = live.unreachable.then(|| since.unwrap_or_else(Instant::now));
            if since.is_some_and(|at| at.elapsed() >= SILENT_FOR) {
                return Ok(());
            }
            let on = format!("the controller manager to report {name} as unreachable for {} s", SILENT_FOR.as_secs());
            self.waiting(on.clone());
            Err(on)
        };
        let live = match client.wait(&node, &format!("Node {name} being unreachable"), until, unreachable).await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(()),
            Err(KubeError::TimedOut { .. }) if end == NodeEnd::Abandoned => {
                let text = format!(
                    "the kubelet of {name} still reports, but {name} is not in the inventory: its Node stays; power \
                     that host off, then `hactl up --prune {name}` deletes it"
                );
                self.sink.emit(Event::Warning { text });
                return Ok(());
            }
            Err(KubeError::TimedOut { .. }) => {
                return Err(failed(format!(
                    "the controller manager does not report {name} as unreachable: if that host is on, power it off; \
                     otherwise check with `hactl status` that a controller manager leads; then run the same command \
                     again"
                )));
            }
            Err(error) => return Err(error.into()),
        };
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
        // The Node comes first, or a DaemonSet would recreate its pods on it. If this is interrupted, the controllers
        // delete the rest.
        client.delete_if(&node, uid, None, until).await?;
        let on = format!("fieldSelector=spec.nodeName%3D{name}");
        for pod in client.list("/api/v1/pods", &on, until).await? {
            let text = |at: &str| pod.pointer(at).and_then(Value::as_str);
            let (Some(namespace), Some(of)) = (text("/metadata/namespace"), text("/metadata/name")) else { continue };
            let reference = ObjectRef::new("v1", "Pod", Some(namespace), of);
            if PodView::of(&pod).is_some_and(|pod| pod.quorum) {
                stands_no_more(client, &reference, until).await?;
            }
            client.delete_if(&reference, text("/metadata/uid"), Some(0), until).await?;
        }
        forget_api_server(client, name, until).await
    }

    /// Lets the kubelet stop the pods of a former control plane on this host, the API server last.
    pub(super) async fn end_pods(&self, host: &HostName) -> Result<(), StepError> {
        let until = self.until();
        let former = self.target.hosts.get(host).and_then(|target| target.sets.get(&FileSet::FormerControlPlane));
        let paths = former.map(|set| set.own.as_slice()).unwrap_or_default();
        let mut manifests: Vec<String> = paths.iter().filter(|path| path.starts_with(MANIFESTS)).cloned().collect();
        manifests.sort_by_key(|path| path.as_str() == API_MANIFEST);
        self.call(host, Op::EndPods { manifests }).await?;
        forget_api_server(self.client().await?, host, until).await
    }
}

/// Takes a pod from those that stand for the control plane of their host: nobody may delete these.
async fn stands_no_more(client: &Client, pod: &ObjectRef, until: Instant) -> Result<(), StepError> {
    match client.merge(pod, &json!({"metadata": {"labels": {QUORUM: null}}}), until).await {
        Err(error) if error.is_not_found() => Ok(()),
        changed => Ok(changed.map(drop)?),
    }
}

/// Deletes the identity lease of a host's API server, which otherwise remains for an hour.
async fn forget_api_server(client: &Client, host: &HostName, until: Instant) -> Result<(), StepError> {
    let of_it = format!(
        "labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver%2Ckubernetes.io%2Fhostname%3D{host}"
    );
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    for lease in client.list(leases, &of_it, until).await? {
        let Some(of) = lease.pointer("/metadata/name").and_then(Value::as_str) else { continue };
        let lease = ObjectRef::new("coordination.k8s.io/v1", "Lease", Some("kube-system"), of);
        client.delete(&lease, None, until).await?;
    }
    Ok(())
}
