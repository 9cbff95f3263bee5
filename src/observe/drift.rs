//! Compares the add-ons with the objects on the API servers: which are missing, differ or are no longer wanted.

use crate::model::facts::{ApiFact, Facts, HostFacts, Stale, Unreachable};
use crate::model::names::HostName;
use crate::model::target::{Addon, MANIFESTS, NODES, RECORD, identity, object_key};
use std::collections::{BTreeMap, BTreeSet};

type Hosts = BTreeMap<HostName, Result<HostFacts, Unreachable>>;

/// The answer of the API server that returned most objects.
pub(super) fn api(hosts: &Hosts) -> Option<&ApiFact> {
    let apis = hosts.values().filter_map(|f| f.as_ref().ok()).filter_map(|f| f.api.as_ref());
    apis.filter(|a| a.own_trouble.is_none()).max_by_key(|a| a.objects.len())
}

/// The objects that are missing or differ, for each add-on. Empty if no API server answered. The user's own manifests
/// are not included, because the hosts may not read those objects.
pub(super) fn drift(addons: &[Addon], hosts: &Hosts) -> BTreeMap<String, Vec<(String, String)>> {
    let Some(api) = api(hosts) else { return BTreeMap::new() };
    let differs = |object: &serde_json::Value| {
        let key = object_key(object);
        let what = match api.objects.get(&key) {
            None => Some("it does not exist".to_owned()),
            Some(live) => crate::kube::drift(object, live).map(|path| format!("{path} differs")),
        };
        what.map(|what| (key, what))
    };
    let recorded = recorded(api);
    let unlisted = |addon: &Addon| {
        let listed = recorded.get(&addon.name);
        let known = |object: &serde_json::Value| listed.is_some_and(|keys| keys.contains(&object_key(object)));
        let all = addon.name == NODES || addon.objects.iter().all(known);
        (!all).then(|| (RECORD.to_owned(), format!("it does not list {} yet", addon.name)))
    };
    let expected = |object: &&serde_json::Value| Facts::can_exist(object, hosts);
    let one = |addon: &Addon| {
        let found = addon.objects.iter().filter(expected).filter_map(differs).chain(unlisted(addon));
        (addon.name.clone(), found.collect())
    };
    addons.iter().filter(|addon| addon.name != MANIFESTS).map(one).collect()
}

fn recorded(api: &ApiFact) -> BTreeMap<String, BTreeSet<String>> {
    api.objects.get(RECORD).map(crate::kube::record::read).unwrap_or_default()
}

/// The objects on hactl's list that no add-on contains, for each add-on. The planner decides whether to delete them.
pub(super) fn stale(addons: &[Addon], hosts: &Hosts) -> BTreeMap<String, Vec<Stale>> {
    let Some(api) = api(hosts) else { return BTreeMap::new() };
    let wanted: BTreeSet<String> =
        addons.iter().flat_map(|addon| &addon.objects).map(|object| identity(&object_key(object))).collect();
    let mut found = BTreeMap::new();
    for (addon, keys) in recorded(api) {
        let left = keys.into_iter().filter(|key| !wanted.contains(&identity(key)));
        let left: Vec<Stale> = left.map(|key| Stale { key, kept: None }).collect();
        if !left.is_empty() {
            found.insert(addon, left);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hosts(objects: &[(&str, Value)]) -> Hosts {
        let objects = objects.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let api = ApiFact { objects, ..ApiFact::default() };
        let facts = HostFacts { api: Some(api), ..HostFacts::default() };
        [("cp1".parse().unwrap(), Ok(facts))].into()
    }

    fn addon(name: &str, object: &str) -> Addon {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": object, "namespace": "a"}});
        Addon { name: name.to_owned(), objects: vec![object], needed_for_ready: false }
    }

    fn record(entries: &Value) -> (&'static str, Value) {
        (RECORD, json!({"data": entries}))
    }

    #[test]
    fn an_object_that_is_there_and_not_on_the_list_is_put_on_it() {
        let object = addon("own", "x").objects.remove(0);
        let found = drift(&[addon("own", "x")], &hosts(&[("v1|ConfigMap|a|x", object)]));
        assert_eq!(found["own"], [(RECORD.to_owned(), "it does not list own yet".to_owned())]);
    }

    #[test]
    fn a_recorded_object_that_is_no_longer_wanted_is_stale_in_any_version() {
        let list =
            record(&json!({"own": "v1|ConfigMap|a|x\nv1|ConfigMap|a|gone\n", "left": "apps/v1|DaemonSet|b|y\n"}));
        let found = stale(&[addon("own", "x")], &hosts(&[list]));
        let keys: Vec<&str> = found.values().flatten().map(|s| s.key.as_str()).collect();
        assert_eq!(keys, ["apps/v1|DaemonSet|b|y", "v1|ConfigMap|a|gone"]);
        let list = record(&json!({"manifests": "example.org/v1beta1|Widget||w\n"}));
        let newer = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
        let newer = Addon { name: MANIFESTS.to_owned(), objects: vec![newer], needed_for_ready: false };
        assert!(stale(&[newer], &hosts(&[list])).is_empty(), "another version of the same object");
    }

    #[test]
    fn an_object_that_moved_to_another_add_on_is_not_deleted() {
        let list = record(&json!({"old": "v1|ConfigMap|a|x\n"}));
        assert!(stale(&[addon("new", "x")], &hosts(&[list])).is_empty());
    }
}
