//! After a recovery of etcd, the maintenances and rollouts of its snapshot are there again, as they were then. No guard may
//! act on them before a person has looked: hosts are in service again by now, or are being repaired.
//!
//! In: the cluster of the own etcd member, and the one that a ConfigMap names, which comes back with the snapshot. Out:
//! whether a guard may act. If the two differ, etcd was recovered.

use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::maintenance::CONTROLLERS_CONFIG_MAP;
use crate::model::pod::NAMESPACE;
use crate::model::timestamp::parse_rfc3339;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The cluster in which guards act on maintenances, by the id of etcd.
const CLUSTER: &str = "cluster";
/// Which cluster that was is not known.
const UNKNOWN: &str = "unknown";
/// The cluster in which they do not yet.
const RECOVERED: &str = "recovered";

/// In which cluster of etcd a guard is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InCluster {
    /// This one, by its id.
    Of(String),
    /// It has no member, and no host of the control plane has: it cannot know.
    Unknown,
    /// Its member has not been in a cluster yet, or others have one: it had better not act.
    None,
}

fn place() -> ObjectRef {
    ObjectRef::new("v1", "ConfigMap", Some(NAMESPACE), CONTROLLERS_CONFIG_MAP)
}

fn read<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object["data"][field].as_str().filter(|id| !id.is_empty())
}

/// Whether there is something to be done that is older than the ConfigMap.
async fn has_older(client: &Client, live: &Value, until: Instant) -> Result<bool, KubeError> {
    let made_ms = live["metadata"]["creationTimestamp"].as_str().and_then(parse_rfc3339).unwrap_or(0);
    let (all, _) = client.maintenances(until).await?.unwrap_or_default();
    let (rollouts, _) = client.rollouts(until).await?.unwrap_or_default();
    let maintained = all.iter().any(|one| one.takes() && one.created_ms < made_ms);
    Ok(maintained || rollouts.iter().any(|one| !one.is_over() && one.created_ms < made_ms))
}

/// Whether a guard may act in this cluster. The first one notes its id.
///
/// # Errors
/// See [`KubeError`].
pub(super) async fn may_act(client: &Client, cluster: &str, until: Instant) -> Result<bool, KubeError> {
    let live = client.get(&place(), until).await?;
    let live = live.ok_or_else(|| KubeError::Missing { what: format!("{}, which `hactl up` creates,", place()) })?;
    match read(&live, CLUSTER) {
        Some(known) if known == cluster => return Ok(true),
        None if has_older(client, &live, until).await? => {
            // They came with a snapshot, from before guards noted a cluster.
            drop(client.merge(&place(), &json!({"data": {CLUSTER: UNKNOWN, RECOVERED: cluster}}), until).await?);
        }
        None => return client.merge(&place(), &json!({"data": {CLUSTER: cluster}}), until).await.map(|_| true),
        Some(_) if read(&live, RECOVERED) == Some(cluster) => {}
        Some(_) => drop(client.merge(&place(), &json!({"data": {RECOVERED: cluster}}), until).await?),
    }
    Ok(false)
}

/// Whether guards wait after a recovery.
///
/// # Errors
/// See [`KubeError`].
pub async fn waits_after_recovery(client: &Client, until: Instant) -> Result<bool, KubeError> {
    let live = client.get(&place(), until).await?;
    Ok(live.is_some_and(|live| read(&live, RECOVERED).is_some_and(|id| read(&live, CLUSTER) != Some(id))))
}

/// Lets guards go on; returns whether they waited.
///
/// # Errors
/// See [`KubeError`].
pub async fn resume_after_recovery(client: &Client, until: Instant) -> Result<bool, KubeError> {
    let live = client.get(&place(), until).await?.unwrap_or_default();
    let Some(recovered) = read(&live, RECOVERED) else { return Ok(false) };
    let version = &live["metadata"]["resourceVersion"];
    let data = json!({CLUSTER: recovered, RECOVERED: null});
    client.merge(&place(), &json!({"metadata": {"resourceVersion": version}, "data": data}), until).await.map(|_| true)
}
