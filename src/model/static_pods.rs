//! Static pods that a maintenance holds: asked for by the object, done and answered by the node agent of the host.
//!
//! In: a maintenance, or a Node, as the API shows them. Out: whether the manifests are to be away from the kubelet, and
//! whether they are.

use super::labels::{HELD, annotation};
use super::maintenance::Maintenance;
use super::names::HostName;
use serde_json::{Value, json};

/// The folder of manifests that are held. The kubelet does not read it, and a reboot leaves it as it is.
pub const FOLDER: &str = "/etc/kubernetes/held/";

/// The request with which a maintenance has the host of this name hold its static pods, if it does.
pub fn asks_to_hold<'a>(of: &'a Maintenance, host: &HostName) -> Option<&'a str> {
    of.holds_static_pods().filter(|_| of.wanted.node == *host)
}

/// How many static pods the node agent of a Node holds; `None`: it runs them.
pub fn held(node: &Value) -> Option<u64> {
    annotation(node, HELD)?.as_str()?.parse().ok()
}

/// The merge patch by which a node agent says how many it holds, or that it runs them.
pub fn says_held(count: Option<usize>) -> Value {
    json!({"metadata": {"annotations": {HELD: count.map(|count| count.to_string())}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::labels::COMPLETION;
    use crate::model::merge_patch::merged;

    fn maintenance(through: &str, stage: &str, state: &str) -> Maintenance {
        let metadata = json!({"name": "cp2", "uid": "u", "finalizers": [COMPLETION]});
        let spec = json!({"nodeName": "cp2", "stage": stage, "drain": {"through": through}});
        let status = json!({"state": state, "staticPods": {"request": "u/1"}});
        Maintenance::of(&json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_host_holds_its_static_pods_while_a_drain_through_them_lasts() {
        let host: HostName = "cp2".parse().unwrap();
        for state in ["Draining", "Blocked", "Drained"] {
            assert_eq!(asks_to_hold(&maintenance("Static", "Drain", state), &host), Some("u/1"), "{state}");
        }
        for (through, stage, state) in [
            ("DaemonSet", "Drain", "Drained"),
            ("Static", "Complete", "Drained"),
            ("Static", "Drain", "Completing"),
            ("Static", "Drain", "Failed"),
            ("Static", "Drain", "Waiting"),
        ] {
            assert_eq!(asks_to_hold(&maintenance(through, stage, state), &host), None, "{through} {stage} {state}");
        }
        assert_eq!(asks_to_hold(&maintenance("Static", "Drain", "Drained"), &"cp1".parse().unwrap()), None);
        let free = Maintenance { holds: false, ..maintenance("Static", "Drain", "Drained") };
        assert_eq!(asks_to_hold(&free, &host), None, "somebody has removed its finalizer");
    }

    #[test]
    fn what_the_node_agent_says_is_read_from_the_node() {
        let node = json!({"metadata": {"name": "cp2"}});
        let holds = merged(&node, &says_held(Some(3)));
        assert_eq!((held(&node), held(&holds), held(&merged(&holds, &says_held(None)))), (None, Some(3), None));
    }
}
