//! What a drain asks of the API besides evictions: to cordon and uncordon a Node, and which pods are on it.
//!
//! In: a Node's name. Out: whether the Node exists, its pods, and what changes among them while they leave.

use super::client::MERGE;
use super::watch::{Change, Changes};
use super::{Client, KnownNode, KubeError};
use crate::model::control_plane::{QUORUM_BUDGET, QuorumPod};
use crate::model::cordon::{CordonRecord, Holder, Taint};
use crate::model::eviction::{BudgetFact, BudgetRef};
use crate::model::labels::QUORUM;
use crate::model::names::HostName;
use crate::model::pod::{NAMESPACE, PodView};
use futures::stream::{BoxStream, StreamExt as _};
use serde_json::Value;
use tokio::time::Instant;

const PODS: &str = "/api/v1/pods";

/// A change among the pods of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodChange {
    /// The pod is new on the Node, or differs.
    Is(PodView),
    /// The pod with this uid does not exist any more.
    Gone(String),
}

/// How a Node was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordoned {
    /// It does not exist.
    NoNode,
    /// It is as it was.
    Before,
    /// It was changed just now.
    Now,
}

/// The changes, as they happen; ends with the watch, or after an error.
pub type PodChanges = BoxStream<'static, Result<PodChange, KubeError>>;

fn on(host: &HostName) -> String {
    format!("fieldSelector=spec.nodeName%3D{host}")
}

impl Client {
    /// The pods of a Node, and the version of this list.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn pods(&self, host: &HostName, until: Instant) -> Result<(Vec<PodView>, String), KubeError> {
        let mut pods = Vec::new();
        let version = self.read_list(PODS, &on(host), |pod| pods.extend(PodView::of(&pod)), until).await?;
        Ok((pods, version))
    }

    /// What changes among the pods of a Node after this version of their list.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn pod_changes(&self, host: &HostName, version: &str) -> Result<PodChanges, KubeError> {
        let changes = self.watch(PODS, &on(host), Some(version)).await?;
        Ok(changes.map(|change| change.and_then(|change| pod_change(&change))).boxed())
    }

    /// What changes of a Node; it comes first as it is.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn node_changes(&self, host: &HostName) -> Result<Changes, KubeError> {
        self.watch("/api/v1/nodes", &format!("fieldSelector=metadata.name%3D{host}"), None).await
    }

    /// The pods that stand for the control plane, and their budget.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn quorum(&self, until: Instant) -> Result<(Vec<QuorumPod>, Option<BudgetFact>), KubeError> {
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let found = self.list(&pods, &format!("labelSelector={QUORUM}"), until).await?;
        let budget = BudgetRef { namespace: NAMESPACE.to_owned(), name: QUORUM_BUDGET.to_owned() };
        Ok((found.iter().map(QuorumPod::of).collect(), self.budget(&budget, until).await?))
    }

    /// The hosts with an API server in a pod that its kubelet reports as ready.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn api_server_hosts(&self, until: Instant) -> Result<Vec<String>, KubeError> {
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let found = self.list(&pods, "labelSelector=component%3Dkube-apiserver", until).await?;
        let ready = found.iter().filter(|pod| PodView::of(pod).is_some_and(|pod| pod.ready && !pod.terminating));
        let host = |pod: &Value| pod.pointer("/spec/nodeName").and_then(Value::as_str).map(str::to_owned);
        Ok(ready.filter_map(host).collect())
    }

    /// Cordons a Node for a holder, with these taints, and records that. A Node that is already cordoned stays so after the
    /// last holder.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn cordon(
        &self,
        node: &mut KnownNode,
        (by, taints): (&Holder, &[Taint]),
        until: Instant,
    ) -> Result<Cordoned, KubeError> {
        node.change(self, ("", MERGE), until, |node| CordonRecord::begin(node, by, taints)).await
    }

    /// Ends what a holder began; the last one uncordons the Node, unless it was cordoned before or `stays` so.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn uncordon(
        &self,
        node: &mut KnownNode,
        by: &Holder,
        stays: bool,
        until: Instant,
    ) -> Result<(), KubeError> {
        node.change(self, ("", MERGE), until, |node| CordonRecord::end(node, by, stays)).await?;
        // Others may still drain it.
        if node.recent(self, until).await?.is_none_or(|node| CordonRecord::of(node).is_none()) {
            self.withdraw_requests(node.name(), until).await?;
        }
        Ok(())
    }
}

fn pod_change(change: &Change) -> Result<PodChange, KubeError> {
    let (object, is_gone) = change.object();
    match PodView::of(object) {
        Some(pod) if is_gone => Ok(PodChange::Gone(pod.uid)),
        Some(pod) => Ok(PodChange::Is(pod)),
        None => Err(KubeError::Garbled { what: "watch pods".to_owned(), why: "it is not a pod".to_owned() }),
    }
}
