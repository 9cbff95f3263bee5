//! hactl's record of the objects that it applied, stored in the cluster. With it any machine can delete an object that
//! is no longer wanted, after any crash.
//!
//! In: add-ons and keys. Out: one ConfigMap, `kube-system/hactl-objects`, with an entry for each add-on: its keys, one
//! a line. A key is written before its object is applied and removed after the object is gone, so that no object is
//! ever unrecorded.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::{Client, KubeError, ObjectRef};
use crate::model::labels::NOTE;
use crate::model::target::RECORD;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

fn reference() -> ObjectRef {
    let mut parts = RECORD.split('|');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    let (api_version, kind, namespace, name) = (next(), next(), next(), next());
    ObjectRef { api_version, kind, namespace: Some(namespace), name }
}

/// The content of the record: add-on to keys.
pub fn read(live: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let entries = live.get("data").and_then(Value::as_object);
    let keys = |text: &Value| text.as_str().unwrap_or_default().lines().map(str::to_owned).collect();
    entries.into_iter().flatten().map(|(addon, text)| (addon.clone(), keys(text))).collect()
}

/// Adds keys to the entry of an add-on.
pub async fn note(client: &Client, addon: &str, keys: &[String], until: Instant) -> Result<(), KubeError> {
    change(client, addon, until, |known| known.extend(keys.iter().cloned())).await
}

/// Removes keys from the entry of an add-on.
pub async fn forget(client: &Client, addon: &str, keys: &[String], until: Instant) -> Result<(), KubeError> {
    change(client, addon, until, |known| known.retain(|key| !keys.contains(key))).await
}

/// Entries are changed one by one, and only by the run that holds the lock, so there is one writer.
async fn change(
    client: &Client,
    addon: &str,
    until: Instant,
    edit: impl Fn(&mut BTreeSet<String>),
) -> Result<(), KubeError> {
    loop {
        let live = client.get(&reference(), until).await?;
        let before = live.as_ref().map(read).unwrap_or_default().remove(addon).unwrap_or_default();
        let mut after = before.clone();
        edit(&mut after);
        if after == before {
            return Ok(());
        }
        let entry = if after.is_empty() { Value::Null } else { json!(lines(&after)) };
        if live.is_some() {
            client.merge(&reference(), &json!({"data": {addon: entry}}), until).await?;
            return Ok(());
        }
        let place = reference();
        let fresh = json!({
            "apiVersion": place.api_version, "kind": place.kind,
            "metadata": {"name": place.name, "namespace": place.namespace, "annotations": {
                NOTE: "objects that hactl applied; hactl deletes those that the inventory no longer has",
            }},
            "data": {addon: entry},
        });
        match client.create(&fresh, until).await {
            // Another step of this run created it just now, or the API server has not created its namespaces yet.
            Err(error) if error.is_conflict() => {}
            Err(error) if error.is_not_found() && Instant::now() + PAUSE < until => sleep(PAUSE).await,
            outcome => return outcome.map(drop),
        }
    }
}

fn lines(keys: &BTreeSet<String>) -> String {
    keys.iter().fold(String::new(), |text, key| text + key + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_back_as_written() {
        let keys: BTreeSet<String> = ["v1|ConfigMap|a|b", "apps/v1|Deployment|a|c"].map(str::to_owned).into();
        let live = json!({"data": {"manifests": lines(&keys)}});
        assert_eq!(read(&live), BTreeMap::from([("manifests".to_owned(), keys)]));
        assert_eq!(read(&json!({})), BTreeMap::new());
    }

    #[test]
    fn the_list_has_the_path_that_hosts_read() {
        assert_eq!(reference().to_string(), "ConfigMap kube-system/hactl-objects");
    }
}
