//! A Node as the API shows it, and whether what it shows is of the kubelet that runs now.
//!
//! The API keeps what a kubelet said last. For up to 40 seconds after a host has lost its power, and after a recovery of etcd for as long as
//! its API servers were away, that is of a kubelet which is no more: nobody may take it for the one that has just started.

use super::desired::Cidr;
use super::facts::{InterfaceAddress, UnitFact};
use super::timestamp::parse_rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// Where a Node remembers which of its labels and taints are the inventory's.
pub const OWNS: &str = "/metadata/annotations/hactl.dev~1owns";

/// Where a Node remembers that it is hactl that cordoned it, and who else did before is not overruled.
pub const CORDONED: &str = "/metadata/annotations/hactl.dev~1cordoned";

/// Interfaces that flannel and its plugin make: the bridge that pods hang on, by the bridge plugin's own name for it, and the tunnel to the
/// other hosts.
pub const PODS_INTERFACES: [&str; 2] = ["cni0", "flannel.1"];

/// Where flannel says at which address a Node's tunnel ends.
const PUBLIC_IP: &str = "/metadata/annotations/flannel.alpha.coreos.com~1public-ip";
/// Where it says which MAC address the tunnel has.
const BACKEND_DATA: &str = "/metadata/annotations/flannel.alpha.coreos.com~1backend-data";

/// Heartbeats are told in whole seconds, cut off.
const SECOND_MS: i64 = 1000;
/// What such a Node says of itself.
const UNHEARD: &str = "its kubelet was started since and has not reported yet";
const AT_REST: &str = "its kubelet does not run";

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of one another, as the API shows them")]
pub struct NodeFact {
    /// Its name.
    pub name: String,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// The Ready condition's message.
    pub message: String,
    /// When its kubelet last reported, by its own clock, milliseconds since 1970; 0 when never.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub heard_ms: i64,
    /// Kubelet version with the `v`.
    pub version: String,
    /// Container runtime and its version, as `containerd://2.3.7`.
    pub runtime: String,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Whether it is hactl that cordoned it, to drain it, and has not taken that back.
    pub drained: bool,
    /// Whether the controllers have given up hearing of its kubelet.
    pub unreachable: bool,
    /// Whether hactl has had it in an inventory: it bears the memory of [`OWNS`].
    pub ours: bool,
    /// The range that its pods have their addresses of, once it was given one.
    pub pods: Option<Cidr>,
    /// Where the other hosts send what is for its pods, and the MAC address that they send it to, by what flannel's annotations say; empty
    /// where they say nothing.
    pub tunnel: (String, String),
}

impl NodeFact {
    /// What an object of the API tells; `None` for one without a name.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions.and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
        Some(Self {
            name: object.pointer("/metadata/name")?.as_str()?.to_owned(),
            ready: ready.is_some_and(|c| c["status"] == "True"),
            message: ready.map_or_else(|| "its kubelet has not registered it yet".to_owned(), |c| text(c, "/message")),
            heard_ms: ready.and_then(|c| parse_rfc3339(&text(c, "/lastHeartbeatTime"))).unwrap_or(0),
            version: text(object, "/status/nodeInfo/kubeletVersion"),
            runtime: text(object, "/status/nodeInfo/containerRuntimeVersion"),
            unschedulable: object.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false),
            drained: object.pointer(CORDONED).is_some(),
            unreachable: ready.is_none_or(|c| c["status"] == "Unknown"),
            ours: object.pointer(OWNS).is_some(),
            pods: object.pointer("/spec/podCIDR").and_then(Value::as_str).and_then(range),
            tunnel: (text(object, PUBLIC_IP), mac(&text(object, BACKEND_DATA))),
        })
    }

    /// An interface of flannel's that has addresses, by what its host says, and none of the Node's range: pods on it have addresses that the
    /// other hosts look for elsewhere. A Node has another range than its host where it was deleted and registered itself anew, or where etcd
    /// went back to when it had. flannel reads the range when it starts, and the bridge plugin never gives a bridge that is there another address.
    pub fn pod_cidr_mismatch<'a>(&self, addresses: &'a [InterfaceAddress]) -> Option<&'a InterfaceAddress> {
        let pods = self.pods?;
        // What a host gives to interfaces by itself tells nothing.
        let counts = |a: &&InterfaceAddress| matches!(a.address, IpAddr::V4(v4) if !v4.is_link_local());
        PODS_INTERFACES.iter().find_map(|name| {
            let its: Vec<_> = addresses.iter().filter(|a| a.interface == *name).filter(counts).collect();
            its.first().copied().filter(|_| !its.iter().any(|a| pods.contains(a.address)))
        })
    }

    /// The same, as far as it is of the kubelet that its host shows: what an earlier one said does not make it Ready. `now_ms` is that host's
    /// clock: where it was put back behind the kubelet's start, nothing can be told from it.
    #[must_use]
    pub fn by(self, kubelet: &UnitFact, now_ms: i64) -> Self {
        let why = match kubelet.started_ms {
            0 => AT_REST,
            started if started > now_ms => return self,
            started if self.heard_ms.saturating_add(SECOND_MS) <= started => UNHEARD,
            _ => return self,
        };
        if self.ready { Self { ready: false, message: why.to_owned(), ..self } } else { self }
    }
}

/// The MAC address in what flannel writes of a VXLAN.
fn mac(data: &str) -> String {
    let data: Value = serde_json::from_str(data).unwrap_or(Value::Null);
    data["VtepMAC"].as_str().unwrap_or_default().to_ascii_lowercase()
}

/// A range as the API writes it.
fn range(text: &str) -> Option<Cidr> {
    let (base, prefix) = text.split_once('/')?;
    Some(Cidr { base: base.parse().ok()?, prefix: prefix.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(status: &str, heard: &str) -> NodeFact {
        let ready = json!({"type": "Ready", "status": status, "message": "as it said", "lastHeartbeatTime": heard});
        NodeFact::of(&json!({"metadata": {"name": "cp1"}, "status": {"conditions": [{"type": "DiskPressure"}, ready]}}))
            .expect("it has a name")
    }

    fn kubelet(started_ms: i64) -> UnitFact {
        UnitFact { active: "active".to_owned(), enabled: true, started_ms, reloaded_ms: 0 }
    }

    #[test]
    fn a_node_is_ready_by_the_kubelet_that_runs_and_by_none_before_it() {
        let noon = parse_rfc3339("2026-01-01T12:00:00Z").expect("a moment");
        let said = node("True", "2026-01-01T12:00:00Z");
        assert_eq!((said.ready, said.heard_ms), (true, noon));
        assert!(said.clone().by(&kubelet(noon - 5), noon + 60_000).ready);
        assert!(said.clone().by(&kubelet(noon + 999), noon + 60_000).ready, "in the second that the heartbeat names");
        let stale = said.clone().by(&kubelet(noon + 1000), noon + 60_000);
        assert_eq!((stale.ready, stale.message.as_str()), (false, UNHEARD));
        assert_eq!(said.by(&kubelet(0), noon + 60_000).message, AT_REST);
        let put_back = node("True", "2026-01-01T12:00:00Z").by(&kubelet(noon + 5000), noon + 4000);
        assert!(put_back.ready, "a clock that was put back tells nothing");
        let unready = node("False", "2026-01-01T12:00:00Z").by(&kubelet(noon + 5000), noon + 60_000);
        assert_eq!((unready.ready, unready.message.as_str()), (false, "as it said"));
        assert_eq!(
            NodeFact::of(&json!({"metadata": {"name": "new"}})).map(|n| (n.ready, n.heard_ms)),
            Some((false, 0))
        );
    }

    #[test]
    fn an_interface_of_flannels_is_astray_where_its_address_is_not_of_the_nodes_range() {
        let node = |spec| NodeFact::of(&json!({"metadata": {"name": "cp1"}, "spec": spec})).expect("it has a name");
        let at = |interface: &str, address: &str, prefix| InterfaceAddress {
            interface: interface.to_owned(),
            address: address.parse().expect("an address"),
            prefix,
        };
        let others = [at("eth0", "10.0.0.11", 24), at("cni0", "fe80::1", 64)];
        let whole = [&others[..], &[at("cni0", "10.244.1.1", 24), at("flannel.1", "10.244.1.0", 32)]].concat();
        let found = |pods: &str, has: &[InterfaceAddress]| {
            node(json!({"podCIDR": pods}))
                .pod_cidr_mismatch(has)
                .map(|pod_cidr_mismatch| pod_cidr_mismatch.interface.clone())
        };
        assert_eq!(found("10.244.1.0/24", &whole), None);
        assert_eq!(found("10.244.1.0/24", &others), None, "a host that has no pods yet");
        assert_eq!(found("10.244.3.0/24", &whole).as_deref(), Some("cni0"));
        assert_eq!(found("10.244.3.0/24", &whole[3..]).as_deref(), Some("flannel.1"));
        let more = [&whole[..], &[at("cni0", "192.168.7.1", 24), at("cni0", "169.254.1.1", 16)]].concat();
        assert_eq!(found("10.244.1.0/24", &more), None, "somebody gave it another one besides");
        assert_eq!(found("10.244.1.0/24", &[at("cni0", "169.254.1.1", 16)]), None, "a host gave that by itself");
        assert_eq!(found("", &whole), None);
        assert_eq!(node(json!({})).pod_cidr_mismatch(&whole), None, "nobody has given it a range yet");
    }
}
