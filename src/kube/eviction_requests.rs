//! EvictionRequests of hactl's own kind.
//!
//! In: a request. Out: changes of all of them, the pod that one names, and its status.

use super::client::MERGE;
use super::{Changes, Client, KubeError, ObjectRef};
use crate::model::eviction_request::{EvictionRequest, KIND, PLURAL};
use crate::model::maintenance::API;
use crate::model::pod::PodView;
use serde_json::{Value, json};
use tokio::time::Instant;

impl Client {
    /// What changes among all requests; each comes first as it is.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn request_changes(&self) -> Result<Changes, KubeError> {
        self.watch(&format!("/apis/{API}/{PLURAL}"), "", None).await
    }

    /// The pod that has the name that a request gives; `None`: there is none.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn requested_pod(&self, of: &EvictionRequest, until: Instant) -> Result<Option<PodView>, KubeError> {
        let pod = self.get(&ObjectRef::new("v1", "Pod", Some(&of.namespace), &of.pod), until).await?;
        Ok(pod.as_ref().and_then(PodView::of))
    }

    /// Whether a request still asks for the same.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn is_requested(&self, of: &EvictionRequest, until: Instant) -> Result<bool, KubeError> {
        let now = self.get(&ObjectRef::new(API, KIND, Some(&of.namespace), &of.name), until).await?;
        let now = now.as_ref().and_then(EvictionRequest::of);
        Ok(now.is_some_and(|now| now.uid == of.uid && now.generation == of.generation))
    }

    /// Reports how far a request is. One that is gone by now is left alone.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn report_request(&self, of: &EvictionRequest, status: &Value, until: Instant) -> Result<(), KubeError> {
        let place = ObjectRef::new(API, KIND, Some(&of.namespace), &of.name);
        let change = json!({"metadata": {"uid": of.uid}, "status": status});
        match self.change(&place, "/status", MERGE, &change, until).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}
