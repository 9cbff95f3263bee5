//! The ranges of addresses that pods and Services have: a cluster keeps them for life, for Nodes and Services have addresses out of them.
//!
//! In: what the inventory asks for, what was noted at the first run, and, where nothing was, what the add-ons are to be and what the API servers
//! hold. Out: a refusal before anything is changed. API servers would take another range, and hand out addresses that nobody leads anywhere.

use super::Intent;
use crate::model::desired::Desired;
use crate::model::facts::Facts;
use crate::model::refusal::Refusal;
use crate::model::target::{Target, object_key};
use serde_json::Value;

/// Refuses another range than the one that the cluster lives with.
pub(super) fn judge(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<(), Refusal> {
    if let Some((pods, services)) = intent.ranges {
        let network = &desired.network;
        let settings =
            [("network.pods", PODS, pods, network.pods), ("network.services", SERVICES, services, network.services)];
        let changed = settings.into_iter().find(|(_, _, is, will)| is != will);
        return changed.map_or(Ok(()), |(setting, what, is, will)| {
            Err(Refusal::RangeChanged { setting, what, is: is.to_string(), will: will.to_string() })
        });
    }
    let apis = || facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref());
    for wanted in target.addons.iter().flat_map(|addon| &addon.objects) {
        let key = object_key(wanted);
        let live = apis().find_map(|api| api.objects.get(&key));
        let (Some((setting, what, will)), Some((_, _, is))) = (range(wanted), live.and_then(range)) else { continue };
        if is != will {
            return Err(Refusal::RangeChanged { setting, what, is, will });
        }
    }
    Ok(())
}

/// Whether an API server shows what the cluster lives with.
pub fn seen(target: &Target, facts: &Facts) -> bool {
    let apis = || facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref());
    let told = target.addons.iter().flat_map(|addon| &addon.objects).filter(|object| range(object).is_some());
    told.into_iter().any(|object| apis().any(|api| api.objects.get(&object_key(object)).and_then(range).is_some()))
}

/// The setting behind what an object says of a range: the key, what it is, and its value.
fn range(object: &Value) -> Option<(&'static str, &'static str, String)> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str);
    match (object.get("kind").and_then(Value::as_str)?, text("/metadata/name")?) {
        ("Service", "kube-dns") => {
            Some(("network.services", "the address of cluster DNS", text("/spec/clusterIP")?.to_owned()))
        }
        ("ConfigMap", "kube-flannel-cfg") => {
            let config: Value = serde_json::from_str(text("/data/net-conf.json")?).ok()?;
            Some(("network.pods", PODS, config.get("Network")?.as_str()?.to_owned()))
        }
        ("ConfigMap", "kube-proxy") => {
            let files = object.get("data")?.as_object()?.values().filter_map(Value::as_str);
            let said = files.flat_map(str::lines).find_map(|line| line.strip_prefix("clusterCIDR:"))?;
            Some(("network.pods", PODS, said.trim().trim_matches(['"', '\'']).to_owned()))
        }
        _ => None,
    }
}

const PODS: &str = "the range of pods";
const SERVICES: &str = "the range of Services";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_says_a_range_is_read_and_nothing_else_is() {
        let dns = json!({"kind": "Service", "metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.96.0.10"}});
        assert_eq!(range(&dns), Some(("network.services", "the address of cluster DNS", "10.96.0.10".to_owned())));
        let flannel = json!({
            "kind": "ConfigMap", "metadata": {"name": "kube-flannel-cfg"}, "data": {"net-conf.json": "{\"Network\": \"10.244.0.0/16\"}"},
        });
        assert_eq!(range(&flannel), Some(("network.pods", PODS, "10.244.0.0/16".to_owned())));
        let proxy = |line: &str| json!({"kind": "ConfigMap", "metadata": {"name": "kube-proxy"}, "data": {"config.conf": format!("mode: nftables\n{line}\n")}});
        for line in ["clusterCIDR: 10.244.0.0/16", "clusterCIDR: \"10.244.0.0/16\""] {
            assert_eq!(range(&proxy(line)), Some(("network.pods", PODS, "10.244.0.0/16".to_owned())), "{line}");
        }
        assert_eq!(range(&proxy("metricsBindAddress: 127.0.0.1")), None);
        assert_eq!(
            range(&json!({"kind": "Service", "metadata": {"name": "mine"}, "spec": {"clusterIP": "10.96.0.7"}})),
            None
        );
    }
}
