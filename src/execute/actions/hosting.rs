//! Self-hosting: lets pods of `DaemonSets` take over a host's control plane, and makes static pods run again.
//!
//! In: a host. Out: done, or what is missing. The label of the Node decides whether there are pods, which takes the API;
//! which of them may serve is decided on the host, which does not.

use crate::execute::act::{Doing, failed, within_ms};
use crate::execute::walk::StepError;
use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::hosting::{NODE_LABEL, NODE_LABEL_VALUE};
use crate::model::labels::{HOSTS, REVISION, annotation};
use crate::model::names::HostName;
use crate::protocol::{HostingAsk, Op};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How long the API may take for the label of a Node and its pods.
const API: Duration = Duration::from_secs(30);

impl Doing<'_> {
    fn own_api_server(&self, host: &HostName) -> Result<(IpAddr, u16), StepError> {
        Ok((self.queries.host(host).map_err(failed)?.address, self.desired.api_port))
    }

    /// Static pods run on the host. Their manifests are in place before the pods lose their Node: there is never a
    /// moment in which nothing would start.
    pub(super) async fn hold(&self, host: &HostName) -> Result<(), StepError> {
        let own = self.own_api_server(host)?;
        let until = self.until();
        self.call(host, Op::Hosting(HostingAsk::Hold { own })).await?;
        let unlabelled = self.label(host, None).await;
        let left = until.saturating_duration_since(Instant::now());
        let ask = HostingAsk::AwaitHeld { own, within_ms: within_ms(left) };
        match (self.call(host, Op::Hosting(ask)).await, unlabelled) {
            (Ok(_), Ok(())) => self.await_ready(host, until).await,
            // There was no API, and no pod either.
            (Ok(_), Err(_)) => self.label(host, None).await,
            // Without an API, pods that run keep the ports.
            (Err(_), Err(why)) => Err(why),
            (Err(error), Ok(())) => Err(error),
        }
    }

    /// Pods of this revision take over from static pods, or from older pods. If they do not, static pods run again.
    pub(super) async fn hand_over_to_pods(&self, host: &HostName, revision: &str) -> Result<(), StepError> {
        let own = self.own_api_server(host)?;
        let until = self.until();
        self.label(host, Some(NODE_LABEL_VALUE)).await?;
        self.end_older(host, revision).await?;
        // The rest of the time is for going back.
        let left = until.saturating_duration_since(Instant::now()).mul_f32(0.8);
        let ready_by = Instant::now() + left;
        let ask = HostingAsk::HandOver { own, revision: revision.to_owned(), within_ms: within_ms(left) };
        let taken = self.call(host, Op::Hosting(ask)).await.map(drop);
        let taken = if taken.is_ok() { self.await_ready(host, ready_by).await } else { taken };
        let Err(error) = taken else { return Ok(()) };
        let why = match self.label(host, None).await {
            Ok(()) => String::new(),
            Err(why) => format!("; its pods could not be removed: {why}"),
        };
        let (what, tail) = match error {
            StepError::Failed { what, tail } => (what, tail),
            other => (other.to_string(), Vec::new()),
        };
        Err(StepError::Failed { what: format!("{what}; static pods run again{why}"), tail })
    }

    /// The API server of the host is ready: one that only answers gets no requests from load balancers yet, and the next
    /// host must not begin.
    async fn await_ready(&self, host: &HostName, until: Instant) -> Result<(), StepError> {
        let condition = self.queries.ready(host).map_err(failed)?;
        let left = until.saturating_duration_since(Instant::now());
        self.call(host, Op::Await { condition, within_ms: within_ms(left) }).await.map(drop)
    }

    /// Sets or removes the label by which a Node gets the pods; a Node that does not exist has none.
    async fn label(&self, host: &HostName, value: Option<&str>) -> Result<(), StepError> {
        let change = json!({"metadata": {"labels": {NODE_LABEL: value}}});
        let until = Instant::now() + API;
        match self.client().await?.merge(&ObjectRef::node(host), &change, until).await {
            Err(error) if error.is_not_found() && value.is_none() => Ok(()),
            changed => Ok(changed.map(drop)?),
        }
    }

    /// Deletes pods of other revisions on a Node: their `DaemonSet` does not.
    async fn end_older(&self, host: &HostName, revision: &str) -> Result<(), StepError> {
        let client = self.client().await?;
        let until = Instant::now() + API;
        for pod in pods(client, host, until).await? {
            let text = |at: &str| pod.pointer(at).and_then(Value::as_str);
            let Some(name) = text("/metadata/name") else { continue };
            if annotation(&pod, REVISION).and_then(Value::as_str) == Some(revision) {
                continue;
            }
            let reference = ObjectRef::new("v1", "Pod", Some("kube-system"), name);
            client.delete_if(&reference, text("/metadata/uid"), None, until).await?;
        }
        Ok(())
    }
}

/// The pods of the `DaemonSets` on a Node.
async fn pods(client: &Client, host: &HostName, until: Instant) -> Result<Vec<Value>, KubeError> {
    let label = HOSTS.replace('/', "%2F");
    let query = format!("labelSelector={label}&fieldSelector=spec.nodeName%3D{host}");
    client.list("/api/v1/namespaces/kube-system/pods", &query, until).await
}
