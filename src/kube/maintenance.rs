//! NodeMaintenances of the API.
//!
//! In: a name. Out: a [`Maintenance`], or changes of one. A cluster that does not serve the kind has none.

use super::client::{MERGE, STRATEGIC};
use super::{Changes, Client, KnownNode, KubeError, ObjectRef};
use crate::model::announced::{announced_by, announcement, forgotten};
use crate::model::cordon::CordonRecord;
use crate::model::labels::{COMPLETION, HOLD};
use crate::model::maintenance::{API, KIND, Maintenance, PLURAL, State, Wanted};
use crate::model::names::HostName;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

fn folder() -> String {
    format!("/apis/{API}/{PLURAL}")
}

fn of_node(node: &HostName) -> String {
    format!("fieldSelector=spec.nodeName%3D{node}")
}

fn place(name: &str) -> ObjectRef {
    ObjectRef::new(API, KIND, None, name)
}

/// What the API server says of fields that it does not know, in words that help.
pub(super) fn older_kind(error: KubeError) -> KubeError {
    match error {
        KubeError::Refused { what, message, .. } if message.contains("unknown field") => KubeError::Garbled {
            what,
            why: "the cluster has the kinds of an older hactl; `hactl up` installs them".to_owned(),
        },
        other => other,
    }
}

fn read(object: &Value) -> Result<Maintenance, KubeError> {
    Maintenance::of(object).map_err(|why| KubeError::Garbled { what: format!("read a {KIND}"), why })
}

impl Client {
    /// All of them, and a sentence for each that cannot be read; `None`: the API server does not serve the kind.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn maintenances(&self, until: Instant) -> Result<Option<(Vec<Maintenance>, Vec<String>)>, KubeError> {
        let found = match self.list(&folder(), "", until).await {
            Err(error) if error.is_not_found() => return Ok(None),
            found => found?,
        };
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for object in found {
            match Maintenance::of(&object) {
                Ok(one) => all.push(one),
                Err(why) => unread.push(why),
            }
        }
        Ok(Some((all, unread)))
    }

    /// Those of a Node that can be read, the oldest first.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn maintenances_of(&self, node: &HostName, until: Instant) -> Result<Vec<Maintenance>, KubeError> {
        let found = self.list(&folder(), &of_node(node), until).await?;
        let mut all: Vec<_> = found.iter().filter_map(|object| Maintenance::of(object).ok()).collect();
        all.sort_by(|a, b| (a.created_ms, &a.name).cmp(&(b.created_ms, &b.name)));
        Ok(all)
    }

    /// What changes among those of a Node, or among all; each comes first as it is.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn maintenance_changes(&self, node: Option<&HostName>) -> Result<Changes, KubeError> {
        self.watch(&folder(), &node.map(of_node).unwrap_or_default(), None).await
    }

    /// One of them; `None`: it does not exist.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn maintenance(&self, name: &str, until: Instant) -> Result<Option<Maintenance>, KubeError> {
        self.get(&place(name), until).await?.as_ref().map(read).transpose()
    }

    /// Creates one.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn begin_maintenance(&self, name: &str, wanted: &Wanted, until: Instant) -> Result<(), KubeError> {
        let object = json!({"apiVersion": API, "kind": KIND, "metadata": {"name": name}, "spec": wanted.new_spec()});
        self.create_strictly(&object, until).await.map(drop).map_err(older_kind)
    }

    /// Changes what its author asks for.
    ///
    /// # Errors
    /// See [`KubeError`]; also if the API server does not know what is asked for.
    pub async fn change_maintenance(&self, of: &Maintenance, spec: &Value, until: Instant) -> Result<(), KubeError> {
        let change = json!({"metadata": {"uid": of.uid}, "spec": spec});
        self.merge_strictly(&place(&of.name), &change, until).await.map(drop).map_err(older_kind)
    }

    /// Approves one, as it was read.
    ///
    /// # Errors
    /// See [`KubeError`]; a conflict: its author asks for something else by now.
    pub async fn approve_maintenance(&self, of: &Maintenance, until: Instant) -> Result<(), KubeError> {
        self.approve(&place(&of.name), (&of.uid, of.generation), until).await
    }

    /// Approves an object with this uid and this generation.
    pub(super) async fn approve(
        &self,
        place: &ObjectRef,
        (uid, generation): (&str, Option<u64>),
        until: Instant,
    ) -> Result<(), KubeError> {
        loop {
            let now = self.get(place, until).await?.unwrap_or_default();
            if now["metadata"]["uid"] != uid || now["metadata"]["generation"].as_u64() != generation {
                return Err(KubeError::Missing { what: format!("{place}, as it was read,") });
            }
            // Its status changes as well.
            let version = &now["metadata"]["resourceVersion"];
            let change = json!({"metadata": {"uid": uid, "resourceVersion": version}, "spec": {"approved": true}});
            match self.merge(place, &change, until).await {
                Err(error) if error.is_conflict() && Instant::now() < until => {}
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Reports how far it is. One that is gone by now is left alone.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn report_maintenance(&self, of: &Maintenance, status: &Value, until: Instant) -> Result<(), KubeError> {
        let change = json!({"metadata": {"uid": of.uid}, "status": status});
        match self.change(&place(&of.name), "/status", MERGE, &change, until).await {
            // Another one has the name by now.
            Err(error) if error.is_conflict() => Ok(()),
            outcome => absent_is_done(outcome),
        }
    }

    /// Has the conditions of its Node show a state of it. A Node that does not exist shows nothing.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn announce(
        &self,
        node: &mut KnownNode,
        (of, state): (&Maintenance, State),
        now_ms: i64,
        until: Instant,
    ) -> Result<(), KubeError> {
        node.change(self, ("/status", STRATEGIC), until, |node| announcement(node, of, state, now_ms)).await.map(drop)
    }

    /// Lets guards repair the host of a Node that is in maintenance.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn heal_in_maintenance(&self, node: &HostName, until: Instant) -> Result<(), KubeError> {
        let change = json!({"metadata": {"annotations": {HOLD: null}}});
        absent_is_done(self.merge(&ObjectRef::node(node), &change, until).await)
    }

    /// Sets or removes our finalizer, and leaves those of others. Returns whether the object exists.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn hold_maintenance(&self, of: &Maintenance, holds: bool, until: Instant) -> Result<bool, KubeError> {
        loop {
            let Some(live) = self.get(&place(&of.name), until).await? else { return Ok(false) };
            if live.pointer("/metadata/uid").and_then(Value::as_str) != Some(of.uid.as_str()) {
                return Ok(false);
            }
            let all = live.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
            let mut finalizers: Vec<&Value> = all.filter(|one| *one != COMPLETION).collect();
            let own = json!(COMPLETION);
            let held = live.pointer("/metadata/finalizers").and_then(Value::as_array);
            if held.is_some_and(|all| all.contains(&own)) == holds {
                return Ok(true);
            }
            if holds {
                finalizers.push(&own);
            }
            let version = live.pointer("/metadata/resourceVersion");
            let change = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
            match self.merge(&place(&of.name), &change, until).await {
                Err(error) if error.is_conflict() && Instant::now() < until => {}
                Err(error) if error.is_not_found() => return Ok(false),
                outcome => return outcome.map(|_| true),
            }
        }
    }

    /// Deletes it; it ends when its finalizers are gone.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn delete_maintenance(&self, of: &Maintenance, until: Instant) -> Result<(), KubeError> {
        self.take_back(&of.name, &of.uid, until).await
    }

    /// The same, by its name and its uid.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn take_back(&self, name: &str, uid: &str, until: Instant) -> Result<(), KubeError> {
        match self.delete_if(&place(name), Some(uid), None, until).await {
            Err(error) if error.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Ends what maintenances hold of a Node whose objects are gone, as when somebody removed their finalizer, and what
    /// its conditions say of them. Returns whether any held something.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn end_lost_maintenances(&self, node: &mut KnownNode, until: Instant) -> Result<bool, KubeError> {
        let Some(live) = node.read(self, until).await? else { return Ok(false) };
        let record = CordonRecord::of(live);
        let held = record.as_ref().map(CordonRecord::held_by_maintenances).unwrap_or_default();
        let mut names = announced_by(live);
        names.extend(record.iter().flat_map(CordonRecord::maintenances).map(str::to_owned));
        // One object each: all of them may be many. One that cannot be read lives as well.
        let mut uids = BTreeMap::new();
        for name in names {
            let found = self.get(&place(&name), until).await?;
            let uid = found.and_then(|found| found.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned));
            uids.extend(uid.map(|uid| (name, uid)));
        }
        let lost: BTreeSet<String> = announced_by(live).into_iter().filter(|name| !uids.contains_key(name)).collect();
        if !lost.is_empty() {
            let patch = |node: &Value| forgotten(node, |name| !lost.contains(name));
            node.change(self, ("/status", STRATEGIC), until, patch).await?;
        }
        let mut ended = false;
        for holder in held {
            if !uids.iter().any(|(name, uid)| holder.is_maintenance(name, uid)) {
                self.uncordon(node, &holder, false, until).await?;
                ended = true;
            }
        }
        Ok(ended)
    }
}

/// The Nodes on which maintenances hold something, or of which conditions speak.
pub fn is_marked(node: &Value) -> bool {
    CordonRecord::of(node).is_some_and(|record| !record.held_by_maintenances().is_empty())
        || !announced_by(node).is_empty()
}

fn absent_is_done(outcome: Result<Value, KubeError>) -> Result<(), KubeError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome.map(drop),
    }
}
