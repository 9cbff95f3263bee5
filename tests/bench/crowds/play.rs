//! A crowd of Nodes without kubelets, and the person who works on their hosts: all of them are played.
//!
//! In: a kubeconfig. Out: Nodes and pods in the API; a pod that is to leave is gone at once, and each Node that is drained
//! is given back at once.

use crate::admin::Admin;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use hactl::kube::{Change, Changes, Client, KubeError, ObjectRef, next_change};
use hactl::model::maintenance::{API, KIND};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Requests at once.
const AT_ONCE: usize = 48;
const REQUEST: Duration = Duration::from_secs(60);
/// Before a watch is opened again that could not be opened.
const AGAIN: Duration = Duration::from_secs(1);
/// The label of all Nodes and pods of the crowd, and its value for those that a rollout takes.
pub const LABEL: &str = "crowd";
/// The namespace of the pods.
const NAMESPACE: &str = "default";

fn soon() -> Instant {
    Instant::now() + REQUEST
}

/// The administrator of the cluster.
pub struct Crowd(Admin);

/// Those who act until this is dropped.
pub struct Players(Vec<JoinHandle<()>>);

impl Drop for Players {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Crowd {
    pub fn new(kubeconfig: &Path) -> Self {
        Self(Admin::new(kubeconfig))
    }

    /// Whether the API server answers.
    pub fn is_served(&self) -> bool {
        self.0.is_served()
    }

    /// Creates so many Nodes that are ready, with this value of the label.
    pub fn nodes(&self, value: &str, count: usize) {
        let nodes = (0..count).map(|number| node(value, number));
        let created = stream::iter(nodes)
            .map(Ok)
            .try_for_each_concurrent(AT_ONCE, async |node| self.0.client.create(&node, soon()).await.map(drop));
        self.0.runtime.block_on(created).expect("the Nodes can be created");
    }

    /// Deletes them.
    pub fn no_nodes(&self, value: &str, count: usize) {
        let nodes = (0..count).map(|number| ObjectRef::new("v1", "Node", None, &called(value, number)));
        let deleted = stream::iter(nodes)
            .map(Ok)
            .try_for_each_concurrent(AT_ONCE, async |node| self.0.client.delete(&node, None, soon()).await.map(drop));
        self.0.runtime.block_on(deleted).expect("the Nodes can be deleted");
    }

    /// Creates so many pods that run on each of these Nodes. A ConfigMap is named as what controls them: it exists, so
    /// they stay, and nothing creates them again.
    pub fn pods(&self, value: &str, nodes: usize, each: usize) {
        let owner =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LABEL, "namespace": NAMESPACE}});
        let owner = self.0.runtime.block_on(self.0.client.create(&owner, soon())).expect("a ConfigMap can be created");
        let uid = owner.pointer("/metadata/uid").and_then(Value::as_str).expect("it has a uid").to_owned();
        let pods = (0..nodes * each).map(|number| pod(&called(value, number / each), number % each, &uid));
        let created = stream::iter(pods).map(Ok).try_for_each_concurrent(AT_ONCE, async |pod| {
            let mut created = self.0.client.create(&pod, soon()).await?;
            created["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            self.0.client.replace(&created, "status", soon()).await.map(drop)
        });
        self.0.runtime.block_on(created).expect("the pods can be created");
    }

    /// Has the guards act on all Nodes with this value of the label.
    pub fn rollout(&self, name: &str, value: &str, at_once: &str) {
        let rollout = json!({
            "apiVersion": API,
            "kind": hactl::model::rollout::KIND,
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"matchLabels": {LABEL: value}},
                "maxUnavailable": at_once,
                "soak": "1s",
                "template": {"action": "Manual", "reason": "a benchmark"},
            },
        });
        self.0.runtime.block_on(self.0.client.create(&rollout, soon())).expect("the rollout can be created");
    }

    /// The status of a rollout; none: the API server does not answer now.
    pub fn rollout_status(&self, name: &str) -> Option<Value> {
        let place = ObjectRef::new(API, hactl::model::rollout::KIND, None, name);
        let found = self.0.runtime.block_on(self.0.client.get(&place, soon())).ok()??;
        Some(found["status"].clone())
    }

    /// Plays the kubelets and the person until the answer is dropped.
    pub fn play(&self) -> Players {
        let (kubelets, person) = (self.0.client.clone(), self.0.client.clone());
        let pods = async move || kubelets.watch("/api/v1/pods", &format!("labelSelector={LABEL}"), None).await;
        let maintenances = async move || person.maintenance_changes(None).await;
        let (ends, gives_back) = (self.0.client.clone(), self.0.client.clone());
        Players(vec![
            self.0.runtime.spawn(each(pods, move |pod| ended(ends.clone(), pod))),
            self.0.runtime.spawn(each(maintenances, move |one| given_back(gives_back.clone(), one))),
        ])
    }
}

/// Acts on each object that a watch shows, for ever.
async fn each<F: Future<Output = Result<(), KubeError>> + Send>(
    open: impl AsyncFn() -> Result<Changes, KubeError>,
    act: impl Fn(Value) -> F,
) {
    loop {
        let Ok(changes) = open().await else {
            sleep(AGAIN).await;
            continue;
        };
        let shown = stream::unfold(Some(changes), |mut live| async { Some((next_change(&mut live).await?, live)) });
        let acted = shown.for_each_concurrent(AT_ONCE, |change| {
            let act = match change {
                Change::Is(object) => Some(act(object)),
                Change::Gone(_) => None,
            };
            async {
                if let Some(Err(error)) = futures::future::OptionFuture::from(act).await {
                    println!("        {error}");
                }
            }
        });
        acted.await;
    }
}

/// A kubelet ends a pod that is to leave.
async fn ended(client: Client, pod: Value) -> Result<(), KubeError> {
    if pod.pointer("/metadata/deletionTimestamp").is_none() {
        return Ok(());
    }
    let text = |at: &str| pod.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let place = ObjectRef::new("v1", "Pod", Some(NAMESPACE), text("/metadata/name"));
    client.delete_if(&place, Some(text("/metadata/uid")), Some(0), soon()).await.map(drop)
}

/// A person has done their work on a Node that is drained.
async fn given_back(client: Client, one: Value) -> Result<(), KubeError> {
    if one.pointer("/status/state") != Some(&json!("Drained")) || one.pointer("/spec/stage") != Some(&json!("Drain")) {
        return Ok(());
    }
    let name = one.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let place = ObjectRef::new(API, KIND, None, name);
    client.merge(&place, &json!({"spec": {"stage": "Complete"}}), soon()).await.map(drop)
}

fn called(value: &str, number: usize) -> String {
    format!("{value}-{number:05}")
}

/// A Node as large as those that kubelets make, on which the scheduler puts nothing.
fn node(value: &str, number: usize) -> Value {
    let name = called(value, number);
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Played", "message": "this Node is played"});
    let images: Vec<Value> = (0..30)
        .map(|image| json!({"names": [format!("registry.example.org/team/program-{image}@sha256:{image:064}")], "sizeBytes": 50_000_000}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {LABEL: value, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"taints": [{"key": LABEL, "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [
                condition("MemoryPressure", "False"),
                condition("DiskPressure", "False"),
                condition("PIDPressure", "False"),
                condition("Ready", "True"),
            ],
            "addresses": [{"type": "Hostname", "address": name}],
            "images": images,
        },
    })
}

fn pod(node: &str, number: usize, owner: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{node}-{number}"),
            "namespace": NAMESPACE,
            "labels": {LABEL: "pod"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": LABEL, "uid": owner, "controller": true}],
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "registry.example.org/none"}],
        },
    })
}
