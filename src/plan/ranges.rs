//! The Pod CIDR and the Service CIDR: a cluster keeps them for life, because Nodes and Services have addresses from
//! them.
//!
//! In: the inventory, the CIDRs that the first run recorded, and, where none were recorded, the add-ons as wanted and
//! as the API servers have them. Out: a refusal before anything is changed. API servers would accept another CIDR and
//! assign addresses that are not routed.

use super::intent::Intent;
use crate::model::desired::Desired;
use crate::model::facts::Facts;
use crate::model::refusal::Refusal;
use crate::model::target::{Target, object_key};
use serde_json::Value;

/// The setting, the value in words, the current value and the wanted one.
type Shown = (&'static str, &'static str, String, String);

/// Refuses a CIDR other than that of the cluster.
pub(super) fn judge(desired: &Desired, target: &Target, facts: &Facts, intent: &Intent) -> Result<(), Refusal> {
    let settings: Vec<Shown> = match intent.ranges {
        Some((pods, services)) => {
            let network = &desired.network;
            let pods = ("network.pods", PODS, pods.to_string(), network.pods.to_string());
            vec![pods, ("network.services", SERVICES, services.to_string(), network.services.to_string())]
        }
        None => shown(target, facts).collect(),
    };
    let changed = settings.into_iter().find(|(_, _, is, will)| is != will);
    changed.map_or(Ok(()), |(setting, what, is, will)| Err(Refusal::RangeChanged { setting, what, is, will }))
}

/// Whether an API server shows the CIDRs of the cluster.
pub fn seen(target: &Target, facts: &Facts) -> bool {
    shown(target, facts).next().is_some()
}

/// The values that the API servers have, with the wanted ones.
fn shown(target: &Target, facts: &Facts) -> impl Iterator<Item = Shown> {
    target.addons.iter().flat_map(|addon| &addon.objects).filter_map(|wanted| {
        let (setting, what, will) = range(wanted)?;
        let key = object_key(wanted);
        let mut apis = facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref());
        let (_, _, is) = range(apis.find_map(|api| api.objects.get(&key))?)?;
        Some((setting, what, is, will))
    })
}

/// The setting that an object contains: the key, the value in words, and the value.
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

const PODS: &str = "the Pod CIDR";
const SERVICES: &str = "the Service CIDR";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_flags_with_a_range_are_read() {
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
