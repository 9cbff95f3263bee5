//! Checks that traffic for a Node's pods goes to its host: all hosts route it by flannel's annotations of the Nodes.
//!
//! In: the inventory and the Nodes. Out: a check for each wrong annotation. An admission policy prevents flannel's
//! tokens from writing such an annotation; kubelets and people can.

use crate::model::check::{Check, Outcome, check as named};
use crate::model::desired::{Cni, Desired, Host};
use crate::model::facts::ApiFact;

const NAME: &str = "pods' traffic goes to their host";

/// Nodes whose annotation names an address that is not their host's, and Nodes that share a MAC address: the traffic
/// for their pods goes to another host.
pub(super) fn check(desired: &Desired, api: &ApiFact) -> Vec<Check> {
    let fails = |host: &Host, detail: String, hint| named(NAME, Some(&host.name), Outcome::Fail, detail, Some(hint));
    let mut list = Vec::new();
    for host in desired.hosts.iter().filter(|host| host.is_node() && desired.network.cni == Cni::Flannel) {
        let Some(node) = api.nodes.iter().find(|node| node.name == host.name.as_str()) else { continue };
        let (at, mac) = &node.tunnel;
        if !at.is_empty() && *at != host.address.to_string() {
            let own = host.address;
            let detail = format!(
                "an annotation of its Node routes the traffic for its pods to {at}, but its address is {own}: the \
                 annotation was changed"
            );
            list.push(fails(host, detail, "hactl up"));
        }
        let twin = |other: &&crate::model::node::NodeFact| other.name != node.name && other.tunnel.1 == *mac;
        if let Some(twin) = api.nodes.iter().filter(|_| !mac.is_empty()).find(twin) {
            let twin = &twin.name;
            let detail = format!(
                "its Node and {twin} have the same MAC address for their tunnels, {mac}: one is a clone, or reports a \
                 false address"
            );
            let hint = "`ip link show flannel.1` shows which host owns it; on the other host run `ip link delete \
                        flannel.1`, then delete its flannel pod";
            list.push(fails(host, detail, hint));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::node::NodeFact;
    use serde_json::json;

    fn node(name: &str, at: &str, mac: &str) -> NodeFact {
        let data = json!({"VNI": 1, "VtepMAC": mac}).to_string();
        let annotations =
            json!({"flannel.alpha.coreos.com/public-ip": at, "flannel.alpha.coreos.com/backend-data": data});
        NodeFact::of(&json!({"metadata": {"name": name, "annotations": annotations}})).expect("it has a name")
    }

    fn stated(nodes: Vec<NodeFact>) -> Vec<String> {
        let api = ApiFact { nodes, ..ApiFact::default() };
        let all = check(&sample(3), &api).into_iter();
        all.map(|check| format!("{}: {}", check.host.expect("of a host"), check.detail)).collect()
    }

    #[test]
    fn a_node_with_a_wrong_annotation_and_nodes_with_the_same_mac_address_are_reported() {
        let (one, two) = ("6a:00:00:00:00:01", "6A:00:00:00:00:02");
        assert_eq!(stated(vec![node("cp1", "10.88.0.11", one), node("cp2", "10.88.0.12", two)]), [""; 0]);
        let bare = NodeFact::of(&json!({"metadata": {"name": "cp3"}})).expect("it has a name");
        assert_eq!(
            stated(vec![bare.clone(), NodeFact { name: "cp2".to_owned(), ..bare }]),
            [""; 0],
            "flannel has yet to run"
        );
        let elsewhere = stated(vec![node("cp1", "10.88.0.13", one), node("cp2", "10.88.0.12", two)]);
        assert!(elsewhere.len() == 1 && elsewhere[0].starts_with("cp1: ") && elsewhere[0].contains("to 10.88.0.13"));
        let twins = stated(vec![node("cp1", "10.88.0.11", two), node("cp2", "10.88.0.12", &two.to_lowercase())]);
        assert_eq!(twins.len(), 2, "it is unknown which of them is wrong: {twins:?}");
    }
}
