//! Objects of the API: those of add-ons are applied, and those that are no longer wanted are deleted.

use crate::execute::act::{Doing, failed};
use crate::execute::walk::StepError;
use crate::kube;
use crate::model::target::{MANIFESTS, NODES, object_key};
use crate::protocol::{Leftovers, Op};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at pods that are to end.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Doing<'_> {
    /// Applies the objects of an add-on that differ.
    pub(super) async fn apply(&self, name: &str, keys: &[String]) -> Result<(), StepError> {
        let until = self.until();
        let client = self.client().await?;
        let addon = self.target.addons.iter().find(|a| a.name == name);
        let objects = addon.map(|a| a.objects.as_slice()).unwrap_or_default();
        let all: Vec<String> = objects.iter().map(object_key).collect();
        if name != NODES {
            // On the list before it is there, so that nothing that hactl made is ever lost from sight.
            kube::record::note(client, name, &all, until).await?;
        }
        let due: Vec<&serde_json::Value> = objects.iter().filter(|o| keys.contains(&object_key(o))).collect();
        if name == MANIFESTS {
            return Ok(kube::manifests::apply(client, &due, until).await?);
        }
        for object in due {
            if object["kind"] == "Node" {
                registered(client, object, until).await?;
            }
            let key = object_key(object);
            client.apply(object, until).await.map_err(|e| failed(format!("{}: {e}", key.replace('|', " "))))?;
        }
        Ok(())
    }

    /// Deletes objects, sweeps the hosts after them, and only then takes them off the list: a run that is cut off begins again.
    pub(super) async fn prune(&self, addon: &str, delete: &[String], keep: &[String]) -> Result<(), StepError> {
        let until = self.until();
        let client = self.client().await?;
        kube::manifests::delete(client, delete, until).await?;
        let (what, label) = match addon {
            "kube-proxy" => (Some(Leftovers::KubeProxy), ("kube-system", "k8s-app%3Dkube-proxy")),
            "flannel" => (Some(Leftovers::Flannel), ("kube-flannel", "app%3Dflannel")),
            _ => (None, ("", "")),
        };
        if let Some(what) = what {
            self.pods_gone(client, label, until).await?;
            for host in self.desired.hosts.iter().filter(|h| h.is_node() && self.machines.contains_key(&h.name)) {
                self.call(&host.name, Op::Sweep(what)).await?;
            }
        }
        Ok(kube::record::forget(client, addon, &[delete, keep].concat(), until).await?)
    }

    /// Waits until no pod with this label is left in a namespace.
    async fn pods_gone(
        &self,
        client: &kube::Client,
        (namespace, label): (&str, &str),
        until: Instant,
    ) -> Result<(), StepError> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        loop {
            let left = client.list(&path, &format!("labelSelector={label}"), until).await?.len();
            if left == 0 {
                return Ok(());
            }
            let on = format!("{left} pods in {namespace} to end");
            if Instant::now() + LOOK_AGAIN >= until {
                return Err(failed(format!("waited in vain for {on}")));
            }
            self.waiting(on);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Waits until a kubelet has made its Node.
async fn registered(client: &kube::Client, node: &serde_json::Value, until: Instant) -> Result<(), StepError> {
    let reference = kube::ObjectRef::of(node)?;
    let there = |live: Option<&serde_json::Value>| live.map(drop).ok_or_else(|| "it is not registered yet".to_owned());
    client.wait(&reference, &format!("{reference} being registered"), until, there).await?;
    Ok(())
}
