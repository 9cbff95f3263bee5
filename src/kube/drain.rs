//! What a drain asks of the API: cordon and uncordon a Node, and list the pods that a controller recreates elsewhere.
//!
//! In: a Node's name, a pod. Out: what the drain does with the pod. The rules are those of `kubectl drain`, except that
//! `emptyDir` volumes do not prevent an eviction: a pod that uses one accepts that its content is lost.

use super::{Client, KubeError, ObjectRef};
use crate::model::labels::{CORDONED, annotation};
use crate::model::names::HostName;
use serde_json::{Value, json};
use tokio::time::Instant;

/// What a drain does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// It belongs to its Node: a static pod, one of a DaemonSet, or one that has terminated.
    Stays,
    /// Its controller recreates it on another Node.
    Leaves,
    /// It has no controller: evicting it would delete it for good.
    Lost,
}

impl Leaving {
    /// Judges a pod.
    pub fn of(pod: &Value) -> Self {
        let mirror = pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some();
        let ended = matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let controller = owners.and_then(|all| all.iter().find(|owner| owner["controller"] == true));
        match controller.map(|owner| owner["kind"].as_str().unwrap_or_default()) {
            _ if mirror || ended => Self::Stays,
            Some("DaemonSet") => Self::Stays,
            Some(_) => Self::Leaves,
            // A pod that is being deleted already is not lost because of the drain.
            None if pod.pointer("/metadata/deletionTimestamp").is_some() => Self::Leaves,
            None => Self::Lost,
        }
    }
}

impl Client {
    /// The pods of a Node to which this happens in a drain.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn pods(&self, host: &HostName, what: Leaving, until: Instant) -> Result<Vec<Value>, KubeError> {
        let all = self.list("/api/v1/pods", &format!("fieldSelector=spec.nodeName%3D{host}"), until).await?;
        Ok(all.into_iter().filter(|pod| Leaving::of(pod) == what).collect())
    }

    /// Cordons a Node, and annotates that hactl did it; returns whether the Node exists. A Node that is already
    /// cordoned stays as it is.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn cordon(&self, host: &HostName, until: Instant) -> Result<bool, KubeError> {
        let Some(live) = self.get(&ObjectRef::node(host), until).await? else { return Ok(false) };
        if live.pointer("/spec/unschedulable") != Some(&Value::Bool(true)) {
            let shut = json!({"spec": {"unschedulable": true}, "metadata": {"annotations": {CORDONED: "to drain it"}}});
            self.merge(&ObjectRef::node(host), &shut, until).await?;
        }
        Ok(true)
    }

    /// Uncordons a Node that hactl cordoned; one that others cordoned stays so.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn uncordon(&self, host: &HostName, until: Instant) -> Result<(), KubeError> {
        let Some(live) = self.get(&ObjectRef::node(host), until).await? else { return Ok(()) };
        if annotation(&live, CORDONED).is_none() {
            return Ok(());
        }
        let open = json!({"spec": {"unschedulable": null}, "metadata": {"annotations": {CORDONED: null}}});
        self.merge(&ObjectRef::node(host), &open, until).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_by(kind: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"kind": kind, "controller": true}]}, "status": {"phase": "Running"}})
    }

    #[test]
    fn pods_of_controllers_leave_and_pods_of_the_node_stay() {
        assert_eq!(Leaving::of(&owned_by("ReplicaSet")), Leaving::Leaves);
        assert_eq!(Leaving::of(&owned_by("StatefulSet")), Leaving::Leaves);
        assert_eq!(Leaving::of(&owned_by("DaemonSet")), Leaving::Stays);
        let mirror = json!({"metadata": {
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [{"kind": "Node", "controller": true}],
        }});
        assert_eq!(Leaving::of(&mirror), Leaving::Stays);
        let mut done = owned_by("Job");
        done["status"]["phase"] = json!("Succeeded");
        assert_eq!(Leaving::of(&done), Leaving::Stays);
    }

    #[test]
    fn a_pod_without_a_controller_would_be_lost_unless_it_is_terminating() {
        let mut bare = json!({"metadata": {"name": "x"}, "status": {"phase": "Running"}});
        assert_eq!(Leaving::of(&bare), Leaving::Lost);
        bare["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(Leaving::of(&bare), Leaving::Leaves);
    }
}
