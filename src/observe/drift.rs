//! Which objects are missing or differ, told from what the API servers hold.

use crate::model::facts::{Facts, HostFacts, Silence};
use crate::model::names::HostName;
use crate::model::target::{Addon, object_key};
use std::collections::BTreeMap;

/// Per add-on, the objects that are missing or differ. Empty as a whole when no API server answered.
pub(super) fn drift(
    addons: &[Addon],
    hosts: &BTreeMap<HostName, Result<HostFacts, Silence>>,
) -> BTreeMap<String, Vec<(String, String)>> {
    let apis = hosts.values().filter_map(|f| f.as_ref().ok()).filter_map(|f| f.api.as_ref());
    let Some(api) = apis.filter(|a| a.own_trouble.is_none()).max_by_key(|a| a.objects.len()) else {
        return BTreeMap::new();
    };
    let differs = |object: &serde_json::Value| {
        let key = object_key(object);
        let what = match api.objects.get(&key) {
            None => Some("it does not exist".to_owned()),
            Some(live) => crate::kube::drift(object, live),
        };
        what.map(|what| (key, what))
    };
    let expected = |object: &&serde_json::Value| Facts::can_exist(object, hosts);
    addons.iter().map(|a| (a.name.clone(), a.objects.iter().filter(expected).filter_map(differs).collect())).collect()
}
