//! NodeMaintenanceRollouts of the API.
//!
//! In: a name, or what an author asks for. Out: a [`Rollout`], or changes. A cluster that does not serve the kind has
//! none.

use super::client::MERGE;
use super::maintenance::older_kind;
use super::{Changes, Client, KubeError, ObjectRef};
use crate::model::names::HostName;
use crate::model::rollout::{API, KIND, PLURAL, Rollout, RolloutWanted};
use serde_json::{Value, json};
use tokio::time::Instant;

fn folder() -> String {
    format!("/apis/{API}/{PLURAL}")
}

fn place(name: &str) -> ObjectRef {
    ObjectRef::new(API, KIND, None, name)
}

impl Client {
    /// All of them, the oldest first, and a sentence for each that cannot be read; `None`: the API server does not serve
    /// the kind.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn rollouts(&self, until: Instant) -> Result<Option<(Vec<Rollout>, Vec<String>)>, KubeError> {
        let found = match self.list(&folder(), "", until).await {
            Err(error) if error.is_not_found() => return Ok(None),
            found => found?,
        };
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for object in found {
            match Rollout::of(&object) {
                Ok(one) => all.push(one),
                Err(why) => unread.push(why),
            }
        }
        all.sort_by(|a, b| (a.created_ms, &a.name).cmp(&(b.created_ms, &b.name)));
        Ok(Some((all, unread)))
    }

    /// One of them; `None`: it does not exist.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn rollout(&self, name: &str, until: Instant) -> Result<Option<Rollout>, KubeError> {
        let read = |object: &Value| {
            Rollout::of(object).map_err(|why| KubeError::Garbled { what: format!("read a {KIND}"), why })
        };
        self.get(&place(name), until).await?.as_ref().map(read).transpose()
    }

    /// What changes among all of them; each comes first as it is.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn rollout_changes(&self) -> Result<Changes, KubeError> {
        self.watch(&folder(), "", None).await
    }

    /// Creates one.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn begin_rollout(&self, name: &str, wanted: &RolloutWanted, until: Instant) -> Result<(), KubeError> {
        let object = json!({"apiVersion": API, "kind": KIND, "metadata": {"name": name}, "spec": wanted.spec()});
        match self.create_strictly(&object, until).await {
            // The answer to an earlier attempt was lost, perhaps.
            Err(error) if error.is_conflict() => {
                let found = self.rollout(name, until).await?;
                if found.is_some_and(|found| found.wanted == *wanted && !found.is_over()) { Ok(()) } else { Err(error) }
            }
            outcome => outcome.map(drop).map_err(older_kind),
        }
    }

    /// Has no other Node begin, or lets the next one.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn pause_rollout(&self, of: &Rollout, paused: bool, until: Instant) -> Result<(), KubeError> {
        let change = json!({"metadata": {"uid": of.uid}, "spec": {"paused": paused}});
        self.merge(&place(&of.name), &change, until).await.map(drop)
    }

    /// Approves one.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn approve_rollout(&self, of: &Rollout, until: Instant) -> Result<(), KubeError> {
        self.approve(&place(&of.name), (&of.uid, of.generation), until).await
    }

    /// Deletes one; its maintenances are deleted by the controller manager then.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn delete_rollout(&self, of: &Rollout, until: Instant) -> Result<(), KubeError> {
        self.delete(&place(&of.name), None, until).await.map(drop)
    }

    /// Reports how far it is. One that is gone by now, or another one of its name, is left alone.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn report_rollout(&self, of: &Rollout, status: &Value, until: Instant) -> Result<(), KubeError> {
        let change = json!({"metadata": {"uid": of.uid}, "status": status});
        match self.change(&place(&of.name), "/status", MERGE, &change, until).await {
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Creates the maintenance of a Node, and returns its uid; `None`: there is one of its name already.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn begin_of_rollout(
        &self,
        of: &Rollout,
        node: &HostName,
        until: Instant,
    ) -> Result<Option<String>, KubeError> {
        match self.create_strictly(&of.maintenance(node), until).await {
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
            Ok(made) => Ok(made.pointer("/metadata/uid").and_then(Value::as_str).map(ToOwned::to_owned)),
        }
    }
}
