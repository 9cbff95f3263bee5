//! Objects that the inventory lists: annotated, ordered, compared, applied, and deleted once they are no longer listed.
//!
//! In: objects, and keys from hactl's record. Out: differences, and the fate of objects that are no longer listed. Each
//! object carries an annotation with the digest of the applied manifest: a field that was removed from a manifest
//! changes the digest, and an edit by hand changes the fields. Any other difference is checked with a dry run, because
//! only the API server knows its normalisation. Objects that may hold others' data are never deleted.

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt, iter};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::time::Instant;

use super::{Client, KubeError, ObjectRef, drift};
use crate::model::labels::{APPLIED, annotation};
use crate::model::names::Digest;
use crate::model::target::{identity, object_key};

/// Concurrent requests.
const AT_ONCE: usize = 16;

/// The object with the annotation.
#[must_use]
pub fn marked(mut object: Value) -> Value {
    let mark = &Digest::of(object.to_string().as_bytes()).hex()[..32];
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = meta.entry("annotations").or_insert_with(|| json!({}));
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[APPLIED] = json!(mark);
    }
    object
}

/// The order of applying: namespaces and CRDs come first. Webhooks and API services come last, because their backends
/// may not run yet.
fn rank(kind: &str) -> u8 {
    match kind {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" | "APIService" => 3,
        _ => 2,
    }
}

fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Sorts objects into the order in which they are applied; otherwise the listed order stays.
pub fn in_order(objects: &mut [Value]) {
    objects.sort_by_key(|object| rank(kind(object)));
}

/// A pending request.
type Asked<'a, T> = BoxFuture<'a, Result<T, KubeError>>;

/// Runs requests concurrently, with results in order; the first error ends it.
async fn all<T>(asked: Vec<Asked<'_, T>>) -> Result<Vec<T>, KubeError> {
    iter(asked).buffered(AT_ONCE).try_collect().await
}

/// The objects that differ, by key, and how.
pub async fn compare(client: &Client, objects: &[Value], until: Instant) -> Result<Vec<(String, String)>, KubeError> {
    let asked = objects.iter().map(|object| differs(client, object, until).boxed()).collect();
    let found = objects.iter().zip(all(asked).await?);
    Ok(found.filter_map(|(object, what)| Some((object_key(object), what?))).collect())
}

async fn differs(client: &Client, object: &Value, until: Instant) -> Result<Option<String>, KubeError> {
    let Some(live) = client.find(&ObjectRef::of(object)?, until).await? else {
        return Ok(Some("it does not exist".to_owned()));
    };
    let Some(path) = drift(object, &live) else { return Ok(None) };
    let Some(mark) = annotation(&live, APPLIED) else {
        return Ok(Some("hactl did not apply it".to_owned()));
    };
    if Some(mark) != annotation(object, APPLIED) {
        return Ok(Some("its manifest has changed".to_owned()));
    }
    match client.rehearse(object, until).await {
        Ok(after) if plain(&after) == plain(&live) => Ok(None),
        Ok(after) => Ok(Some(format!("{} differs", drift(&after, &live).unwrap_or(path)))),
        Err(error @ KubeError::Refused { status: 400..500, .. }) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// An object without the fields that change with every write.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "generation"] {
            meta.remove(field);
        }
    }
    object
}

/// Applies objects in order: each rank once the previous one exists, and objects of a CRD once it is established.
pub async fn apply(client: &Client, objects: &[&Value], until: Instant) -> Result<(), KubeError> {
    for wanted in 0..=3 {
        let now: Vec<&Value> = objects.iter().copied().filter(|object| rank(kind(object)) == wanted).collect();
        all(now.iter().map(|object| client.apply(object, until).boxed()).collect()).await?;
        for definition in now.into_iter().filter(|object| kind(object) == "CustomResourceDefinition") {
            let definition = ObjectRef::of(definition)?;
            client.wait(&definition, &format!("establishment of {definition}"), until, established).await?;
        }
    }
    Ok(())
}

fn established(live: Option<&Value>) -> Result<(), String> {
    let conditions = live.and_then(|l| l.pointer("/status/conditions")).and_then(Value::as_array);
    let of = |kind: &str| conditions.and_then(|all| all.iter().find(|c| c["type"] == kind));
    if of("Established").is_some_and(|condition| condition["status"] == "True") {
        return Ok(());
    }
    let said = of("NamesAccepted").and_then(|c| c.get("message")).and_then(Value::as_str);
    Err(said.unwrap_or("the API server does not serve it yet").to_owned())
}

/// What happens to an object that is no longer listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is deleted.
    Delete,
    /// It stays, for this reason, and hactl no longer manages it.
    LetGo(String),
}

/// The fate of each key. Objects that are deleted together do not keep one another.
pub async fn fates(client: &Client, keys: &[String], until: Instant) -> Result<Vec<(String, Fate)>, KubeError> {
    let going: BTreeSet<String> = keys.iter().map(|key| identity(key)).collect();
    let asked = keys.iter().map(|key| fate(client, key, &going, until).boxed()).collect();
    Ok(keys.iter().cloned().zip(all(asked).await?).collect())
}

async fn fate(client: &Client, key: &str, going: &BTreeSet<String>, until: Instant) -> Result<Fate, KubeError> {
    let go = |why: &str| Ok(Fate::LetGo(why.to_owned()));
    let Some(reference) = named(key) else { return go("its name cannot be read") };
    let Some(live) = client.find(&reference, until).await? else { return go("it does not exist any more") };
    if annotation(&live, APPLIED).is_none() {
        return go("it no longer carries the annotation hactl.dev/applied");
    }
    let others = match reference.kind.as_str() {
        "PersistentVolume" | "PersistentVolumeClaim" => return go("it holds data"),
        "Namespace" => in_namespace(client, &reference.name, going, until).await?,
        "CustomResourceDefinition" => of_definition(client, &live, going, until).await?,
        _ => return Ok(Fate::Delete),
    };
    Ok(match others.as_slice() {
        [] => Fate::Delete,
        [one] => Fate::LetGo(format!("it still holds {one}")),
        [one, rest @ ..] => Fate::LetGo(format!("it still holds {one} and {} more", rest.len())),
    })
}

/// The reference of a key in hactl's record.
fn named(key: &str) -> Option<ObjectRef> {
    let mut parts = key.split('|');
    let (version, kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let namespace = (!namespace.is_empty()).then_some(namespace);
    (parts.next().is_none() && !name.is_empty()).then(|| ObjectRef::new(version, kind, namespace, name))
}

/// Objects that others would miss: not those with an owner, and not those that every namespace has.
fn missed(item: &Value, version: &str, kind: &str, going: &BTreeSet<String>) -> Option<String> {
    let text = |path: &str| item.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let usual = matches!(
        (kind, name),
        ("Event" | "Endpoints" | "PodMetrics", _) | ("ServiceAccount", "default") | ("ConfigMap", "kube-root-ca.crt")
    );
    let owned = item.pointer("/metadata/ownerReferences").and_then(Value::as_array).is_some_and(|o| !o.is_empty());
    let key = format!("{version}|{kind}|{namespace}|{name}");
    (!usual && !owned && !going.contains(&identity(&key))).then(|| format!("{kind} {name}"))
}

async fn in_namespace(
    client: &Client,
    namespace: &str,
    going: &BTreeSet<String>,
    until: Instant,
) -> Result<Vec<String>, KubeError> {
    let kinds = client.namespaced_kinds(until).await?;
    let mut asked: Vec<Asked<'_, Vec<String>>> = Vec::new();
    for (version, kind, plural) in &kinds {
        let path = format!("{}/namespaces/{namespace}/{plural}", super::kinds::root(version));
        let listed = async move {
            let items = client.list(&path, "limit=200", until).await?;
            Ok(items.iter().filter_map(|item| missed(item, version, kind, going)).collect())
        };
        asked.push(listed.boxed());
    }
    Ok(all(asked).await?.into_iter().flatten().collect())
}

async fn of_definition(
    client: &Client,
    definition: &Value,
    going: &BTreeSet<String>,
    until: Instant,
) -> Result<Vec<String>, KubeError> {
    let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.and_then(|all| all.iter().find(|v| v["served"] == true)).and_then(|v| v["name"].as_str());
    let Some(version) = served else { return Ok(Vec::new()) };
    let version = format!("{group}/{version}");
    let Some(folder) = client.folder(&version, kind, until).await? else { return Ok(Vec::new()) };
    let items = client.list(&folder, "limit=200", until).await?;
    // Owners do not matter here: every object of a kind is deleted with its CRD.
    let item = |item: &Value| {
        let mut item = item.clone();
        if let Some(meta) = item.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("ownerReferences");
        }
        missed(&item, &version, kind, going)
    };
    Ok(items.iter().filter_map(item).collect())
}

/// Deletes objects in the opposite order and waits until they are gone. Their fate is checked once more: an object that
/// contains others' objects by now stays and is an error.
pub async fn delete(client: &Client, keys: &[String], until: Instant) -> Result<(), KubeError> {
    for (key, fate) in fates(client, keys, until).await? {
        if let Fate::LetGo(why) = fate
            && !why.starts_with("it does not exist")
        {
            return Err(KubeError::Kept { what: key.replace('|', " "), why });
        }
    }
    let rest: Vec<ObjectRef> = keys.iter().rev().filter_map(|key| named(key)).collect();
    for wanted in (0..=3).rev() {
        let now = rest.iter().filter(|reference| rank(&reference.kind) == wanted);
        all(now.map(|reference| gone(client, reference, until).boxed()).collect()).await?;
    }
    Ok(())
}

async fn gone(client: &Client, reference: &ObjectRef, until: Instant) -> Result<(), KubeError> {
    let Some(live) = client.find(reference, until).await? else { return Ok(()) };
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    client.delete_if(reference, Some(&uid), None, until).await?;
    let still = |live: Option<&Value>| match live {
        Some(live) if live.pointer("/metadata/uid").and_then(Value::as_str) == Some(&uid) => {
            let finalizers = live.pointer("/metadata/finalizers").map(Value::to_string).unwrap_or_default();
            Err(if finalizers.is_empty() { "it is still there".to_owned() } else { format!("finalizers {finalizers}") })
        }
        _ => Ok(()),
    };
    client.wait(reference, &format!("deletion of {reference}"), until, still).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_annotation_changes_with_the_content() {
        let object = |data: &str| json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": data}});
        let mark = |object: Value| annotation(&marked(object), APPLIED).unwrap().clone();
        assert_eq!(mark(object("1")), mark(object("1")));
        assert_ne!(mark(object("1")), mark(object("2")));
        let fewer = json!({"kind": "ConfigMap", "metadata": {"name": "a"}});
        assert_ne!(mark(object("1")), mark(fewer), "a field that was taken out");
        assert_eq!(drift(&marked(object("1")), &marked(object("1"))), None);
    }

    #[test]
    fn annotations_that_are_there_stay_and_null_is_none() {
        let object = json!({"metadata": {"name": "a", "annotations": {"mine": "x"}}});
        assert_eq!(marked(object).pointer("/metadata/annotations/mine"), Some(&json!("x")));
        assert!(annotation(&marked(json!({"metadata": {"name": "a", "annotations": null}})), APPLIED).is_some());
    }

    #[test]
    fn namespaces_and_crds_come_first_webhooks_last_and_the_rest_as_listed() {
        let of = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name}});
        let mut objects = vec![
            of("ValidatingWebhookConfiguration", "a"),
            of("Deployment", "b"),
            of("Widget", "c"),
            of("CustomResourceDefinition", "d"),
            of("ConfigMap", "e"),
            of("Namespace", "f"),
        ];
        in_order(&mut objects);
        let names: Vec<&str> = objects.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["f", "d", "b", "c", "e", "a"]);
    }

    #[test]
    fn cluster_scoped_objects_keep_no_namespace() {
        let going = BTreeSet::from([identity("v1|ConfigMap|shop|settings")]);
        let of = |name: &str| json!({"metadata": {"name": name, "namespace": "shop"}});
        assert_eq!(missed(&of("settings"), "v1", "ConfigMap", &going), None);
        assert_eq!(missed(&of("kube-root-ca.crt"), "v1", "ConfigMap", &going), None);
        let mut pod = of("web-1");
        pod["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet"}]);
        assert_eq!(missed(&pod, "v1", "Pod", &going), None);
        assert_eq!(missed(&of("theirs"), "v1", "ConfigMap", &going), Some("ConfigMap theirs".to_owned()));
    }

    #[test]
    fn a_definition_that_is_not_taken_up_says_why() {
        let live =
            json!({"status": {"conditions": [{"type": "NamesAccepted", "status": "False", "message": "in use"}]}});
        assert_eq!(established(Some(&live)).unwrap_err(), "in use");
        let live = json!({"status": {"conditions": [{"type": "Established", "status": "True"}]}});
        assert_eq!(established(Some(&live)), Ok(()));
    }
}
