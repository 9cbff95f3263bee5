//! A Node as the API shows it, and whether its status is from the current kubelet.
//!
//! The API keeps the last report of a kubelet. For up to 40 seconds after a power loss of its host, and after a
//! recovery of etcd for as long as API servers were down, that is the report of an earlier kubelet: it must not be
//! mistaken for one of the current kubelet.

use super::cordon::{CordonRecord, Holder};
use super::desired::Cidr;
use super::facts::{InterfaceAddress, UnitFact};
use super::labels::{HELD, OWNS, annotation};
use super::names::HostName;
use super::timestamp::parse_rfc3339;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// Interfaces of flannel: the bridge of the pods, with the default name of the bridge plugin, and the tunnel to the
/// other hosts.
pub const PODS_INTERFACES: [&str; 2] = ["cni0", "flannel.1"];

/// flannel's annotation with the tunnel address of a Node.
const PUBLIC_IP: &str = "/metadata/annotations/flannel.alpha.coreos.com~1public-ip";
/// flannel's annotation with the MAC address of the tunnel.
const BACKEND_DATA: &str = "/metadata/annotations/flannel.alpha.coreos.com~1backend-data";

/// Heartbeats have whole seconds, rounded down.
const SECOND_MS: i64 = 1000;
/// The most maintenances of a Node that are named.
const MOST_NAMED: usize = 8;
/// The message of a Node with an outdated status.
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
    /// Whether `up` cordoned it for a drain and has not uncordoned it.
    pub drained: bool,
    /// The maintenances that keep it cordoned, by its annotation. Root on its host may write that.
    pub maintenances: Vec<HostName>,
    /// Whether its node agent holds its static pods for a maintenance, by its annotation. Root on its host may write that.
    pub holds_static_pods: bool,
    /// Whether the node controller has marked its kubelet as not reporting.
    pub unreachable: bool,
    /// Whether it was in an inventory of hactl: it has the annotation [`OWNS`].
    pub ours: bool,
    /// The address that its kubelet reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its Pod CIDR, once it has one.
    pub pods: Option<Cidr>,
    /// The address and the MAC address to which other hosts send traffic for its pods, from flannel's annotations;
    /// empty if there are none.
    pub tunnel: (String, String),
}

impl NodeFact {
    /// Whether its static pods are held for a maintenance of it, so that none of them is to run.
    pub fn is_without_static_pods(&self) -> bool {
        self.holds_static_pods && !self.maintenances.is_empty()
    }

    /// Parses an object of the API; `None` for an object without a name.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let record = CordonRecord::of(object);
        let maintenances = record.iter().flat_map(CordonRecord::maintenances);
        let ready = conditions.and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
        let addresses = object.pointer("/status/addresses").and_then(Value::as_array);
        let address = addresses.and_then(|all| all.iter().find(|a| a["type"] == "InternalIP"));
        Some(Self {
            name: object.pointer("/metadata/name")?.as_str()?.to_owned(),
            ready: ready.is_some_and(|c| c["status"] == "True"),
            message: ready.map_or_else(|| "its kubelet has not registered it yet".to_owned(), |c| text(c, "/message")),
            heard_ms: ready.and_then(|c| parse_rfc3339(&text(c, "/lastHeartbeatTime"))).unwrap_or(0),
            version: text(object, "/status/nodeInfo/kubeletVersion"),
            runtime: text(object, "/status/nodeInfo/containerRuntimeVersion"),
            unschedulable: object.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false),
            drained: record.as_ref().is_some_and(|record| record.is_held_by(&Holder::Up)),
            maintenances: maintenances.take(MOST_NAMED).filter_map(|name| name.parse().ok()).collect(),
            holds_static_pods: annotation(object, HELD).is_some(),
            unreachable: ready.is_none_or(|c| c["status"] == "Unknown"),
            ours: annotation(object, OWNS).is_some(),
            address: address.and_then(|a| a["address"].as_str()?.parse().ok()),
            pods: object
                .pointer("/spec/podCIDR")
                .and_then(Value::as_str)
                .and_then(|range| range.parse::<IpNet>().ok())
                .map(Cidr::from),
            tunnel: (text(object, PUBLIC_IP), mac(&text(object, BACKEND_DATA))),
        })
    }

    /// A flannel interface on the host with addresses, but none in the Pod CIDR of the Node: other hosts cannot reach
    /// the pods on it. The CIDRs differ if the Node was deleted and registered again, or if etcd was restored to an
    /// earlier state. flannel reads the CIDR when it starts, and the bridge plugin never changes the address of an
    /// existing bridge.
    pub fn pod_cidr_mismatch<'a>(&self, addresses: &'a [InterfaceAddress]) -> Option<&'a InterfaceAddress> {
        let pods = self.pods?;
        // Addresses that the kernel assigns automatically show nothing.
        let counts = |a: &&InterfaceAddress| matches!(a.address, IpAddr::V4(v4) if !v4.is_link_local());
        PODS_INTERFACES.iter().find_map(|name| {
            let its: Vec<_> = addresses.iter().filter(|a| a.interface == *name).filter(counts).collect();
            its.first().copied().filter(|_| !its.iter().any(|a| pods.contains(a.address)))
        })
    }

    /// The same Node, judged by the kubelet that runs on its host: a report of an earlier kubelet does not make it
    /// Ready. `now_ms` is the clock of that host: if it was set back to before the kubelet's start, it shows nothing.
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

/// The MAC address in flannel's annotation of a VXLAN.
fn mac(data: &str) -> String {
    let data: Value = serde_json::from_str(data).unwrap_or(Value::Null);
    data["VtepMAC"].as_str().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(status: &str, received: &str) -> NodeFact {
        let ready = json!({"type": "Ready", "status": status, "message": "as it said", "lastHeartbeatTime": received});
        NodeFact::of(&json!({"metadata": {"name": "cp1"}, "status": {"conditions": [{"type": "DiskPressure"}, ready]}}))
            .expect("it has a name")
    }

    fn kubelet(started_ms: i64) -> UnitFact {
        UnitFact { active: "active".to_owned(), enabled: true, started_ms, reloaded_ms: 0 }
    }

    #[test]
    fn a_node_is_ready_by_the_kubelet_that_runs_and_by_none_before_it() {
        let noon = parse_rfc3339("2026-01-01T12:00:00Z").expect("a timestamp");
        let said = node("True", "2026-01-01T12:00:00Z");
        assert_eq!((said.ready, said.heard_ms), (true, noon));
        assert!(said.clone().by(&kubelet(noon - 5), noon + 60_000).ready);
        assert!(said.clone().by(&kubelet(noon + 999), noon + 60_000).ready, "in the second that the heartbeat names");
        let stale = said.clone().by(&kubelet(noon + 1000), noon + 60_000);
        assert_eq!((stale.ready, stale.message.as_str()), (false, UNHEARD));
        assert_eq!(said.by(&kubelet(0), noon + 60_000).message, AT_REST);
        let put_back = node("True", "2026-01-01T12:00:00Z").by(&kubelet(noon + 5000), noon + 4000);
        assert!(put_back.ready, "a clock that was set back shows nothing");
        let unready = node("False", "2026-01-01T12:00:00Z").by(&kubelet(noon + 5000), noon + 60_000);
        assert_eq!((unready.ready, unready.message.as_str()), (false, "as it said"));
        assert_eq!(
            NodeFact::of(&json!({"metadata": {"name": "new"}})).map(|n| (n.ready, n.heard_ms)),
            Some((false, 0))
        );
    }

    #[test]
    fn a_flannel_interface_outside_the_nodes_pod_cidr_is_a_mismatch() {
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
        assert_eq!(found("10.244.1.0/24", &more), None, "it has another address besides");
        assert_eq!(
            found("10.244.1.0/24", &[at("cni0", "169.254.1.1", 16)]),
            None,
            "the host assigned that automatically"
        );
        assert_eq!(found("", &whole), None);
        assert_eq!(node(json!({})).pod_cidr_mismatch(&whole), None, "it has no Pod CIDR yet");
    }
}
