//! The endpoint: its kind, its ports, and what must not collide with them.

use super::hosts::{Hosts, is_known};
use super::text::{address, name_or_address, number, port};
use super::validator::Validator;
use crate::inventory::at::{At, Place};
use crate::inventory::problem::shorten;
use crate::inventory::schema::{self, Inventory};
use crate::model::desired::{Endpoint, EndpointKind, Host, Role};
use crate::model::healing::{HEARTBEAT_PORT, METRICS_PORT, PEER_PORT};
use crate::model::metrics;
use crate::model::names::ClusterName;
use crate::model::ports::KUBELETS_API;
use std::net::{IpAddr, Ipv4Addr};

/// The API's default port.
pub const PORT: u16 = 6443;

/// Ports that are in use on every host, with their users.
const TAKEN: [(u16, &str); 20] = [
    (22, "sshd"),
    (2379, "etcd for its clients"),
    (2380, "etcd for its peers"),
    (2381, "the loopback balancer in front of etcd"),
    (2384, "etcd's metrics"),
    (6480, "haproxy's health check, which keepalived uses"),
    (KUBELETS_API, "the loopback balancer in front of API servers, for the kubelet"),
    (8287, "flannel's health check"),
    (10248, "the kubelet's health check"),
    (10249, "kube-proxy's metrics"),
    (10250, "the kubelet"),
    (10256, "kube-proxy's health check"),
    (10257, "the controller manager"),
    (10259, "the scheduler"),
    (HEARTBEAT_PORT, "the heartbeats of guards"),
    (PEER_PORT, "the requests of guards"),
    (METRICS_PORT, "the guard's metrics"),
    (metrics::PORT, "the metrics of components"),
    (metrics::CONTAINERD, "containerd's metrics"),
    (metrics::ETCD_BALANCER, "the metrics of the balancer in front of etcd"),
];

/// Validates the endpoint. Without a usable one, returns an external placeholder.
pub fn endpoint(
    judge: &mut Validator<'_>,
    raw: &Inventory,
    top: Place,
    cluster: &ClusterName,
    hosts: &Hosts,
) -> Endpoint {
    let stand_in =
        || Endpoint { kind: EndpointKind::External("unknown.invalid".to_owned()), port: PORT, sans: Vec::new() };
    let expected = "vip: a free address that hactl manages, external: your own load balancer, or local: true";
    let Some(whole) = raw.endpoint.as_ref() else {
        let remedy = "add `endpoint: {vip: 10.0.0.100}` with a free address of your network";
        judge.refuse(top, "endpoint is missing", expected, remedy);
        return stand_in();
    };
    let raw = &whole.value;
    let local = raw.local.as_ref().filter(|local| local.value);
    let given = raw.port.as_ref().and_then(|p| port(judge, "endpoint.port", p));
    let sans = sans(judge, raw);
    let kinds = [
        raw.vip.as_ref().map(|vip| ("vip", vip.place)),
        raw.external.as_ref().map(|external| ("external", external.place)),
        local.map(|local| ("local", local.place)),
    ];
    let mut kinds = kinds.into_iter().flatten();
    if let (Some((one, _)), Some((other, place))) = (kinds.next(), kinds.next()) {
        judge.refuse(place, format!("the endpoint has both {one} and {other}"), expected, "remove one of them");
        return stand_in();
    }
    let (kind, port) = match (raw.vip.as_ref(), raw.external.as_ref(), local) {
        (Some(vip), ..) => (virtual_address(judge, raw, vip, cluster, hosts), own_port(judge, raw, given, vip.place)),
        (None, Some(external), _) => {
            (elsewhere(judge, raw, external, given), given.or(port_of(external)).unwrap_or(PORT))
        }
        (None, None, Some(local)) => {
            (on_every_node(judge, raw, local.place, hosts), own_port(judge, raw, given, local.place))
        }
        (None, None, None) => {
            let what = "the endpoint has neither vip nor external nor local";
            judge.refuse(whole.place, what, expected, "add one of them");
            return stand_in();
        }
    };
    Endpoint { kind, port, sans }
}

/// The port of an endpoint on hosts of the cluster.
fn own_port(judge: &mut Validator<'_>, raw: &schema::Endpoint, given: Option<u16>, kind: Place) -> u16 {
    let port = given.unwrap_or(PORT);
    free(judge, "endpoint.port", port, raw.port.as_ref().map_or(kind, |p| p.place));
    port
}

fn port_of(external: &At<String>) -> Option<u16> {
    external.value.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).filter(|port| *port > 0)
}

fn virtual_address(
    judge: &mut Validator<'_>,
    raw: &schema::Endpoint,
    vip: &At<String>,
    cluster: &ClusterName,
    hosts: &Hosts,
) -> EndpointKind {
    let found = address(judge, "endpoint.vip", vip);
    if let Some(owner) = hosts.list.iter().find(|p| Some(p.host.address) == found) {
        judge.refuse(
            vip.place,
            format!(
                "the virtual address {} is the address of {} (line {})",
                vip.value, owner.host.name, owner.address.line
            ),
            "an address that no machine has: it moves from host to host",
            "choose a free address of the same network",
        );
    }
    let interface = raw.interface.as_ref().and_then(|text| {
        let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@');
        if (1..=15).contains(&text.value.len())
            && text.value.bytes().all(fine)
            && text.value != "."
            && text.value != ".."
        {
            return Some(text.value.clone());
        }
        let what = format!("{:?} cannot name a network interface", shorten(&text.value));
        judge.none(text.place, what, "1 to 15 letters, digits, '-', '_' and '.'", "find it with `ip link` on a host")
    });
    let vrid = raw.vrid.as_ref().and_then(|n| number(judge, "endpoint.vrid", n, 1, 255));
    EndpointKind::Vip {
        address: found.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        interface,
        vrid: vrid.and_then(|n| u8::try_from(n).ok()).unwrap_or_else(|| vrid_of(cluster)),
    }
}

/// The default VRRP router ID of a cluster: the same on every run, 1 to 255.
pub fn vrid_of(cluster: &ClusterName) -> u8 {
    let hash =
        cluster.as_str().bytes().fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    u8::try_from(hash % 255 + 1).unwrap_or(1)
}

fn elsewhere(
    judge: &mut Validator<'_>,
    raw: &schema::Endpoint,
    external: &At<String>,
    given: Option<u16>,
) -> EndpointKind {
    let text = external.value.as_str();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    };
    let host = At { value: host.to_owned(), place: external.place };
    let name = name_or_address(judge, "endpoint.external", &host).unwrap_or_else(|| "unknown.invalid".to_owned());
    if let Some(port) = port {
        match (port.parse::<u16>().ok().filter(|p| *p > 0), given) {
            (None, _) => judge.refuse(
                external.place,
                format!("endpoint.external ends in :{}, which is not a port", shorten(port)),
                "name:port or address:port, with a port from 1 to 65535",
                "write something like api.example.org:6443",
            ),
            (Some(port), Some(given)) if port != given => judge.refuse(
                raw.port.as_ref().map_or(external.place, |p| p.place),
                format!("endpoint.external has port {port} and endpoint.port is {given}"),
                "one port",
                "remove endpoint.port",
            ),
            _ => {}
        }
    }
    only_for_vip(judge, raw, "an external load balancer");
    EndpointKind::External(name)
}

/// A balancer on every Node. Without a name, the kubeconfig for people contains only one API server's address.
fn on_every_node(judge: &mut Validator<'_>, raw: &schema::Endpoint, place: Place, hosts: &Hosts) -> EndpointKind {
    only_for_vip(judge, raw, "a balancer on every Node");
    let name = raw.name.as_ref().and_then(|name| name_or_address(judge, "endpoint.name", name));
    if name.is_none() && hosts.with(Role::ControlPlane).count() > 1 {
        judge.warn(
            place,
            "endpoint.local without endpoint.name: the kubeconfig uses one API server and fails while that is down",
            "endpoint.name: a DNS name with the addresses of all control-plane hosts",
            "add it, or use `hactl kubectl`, which finds an API server that answers",
        );
    }
    EndpointKind::Local { name }
}

/// Warns about keys of a virtual address where there is none.
fn only_for_vip(judge: &mut Validator<'_>, raw: &schema::Endpoint, instead: &str) {
    for (key, place) in [
        ("endpoint.interface", raw.interface.as_ref().map(|t| t.place)),
        ("endpoint.vrid", raw.vrid.as_ref().map(|t| t.place)),
    ] {
        if let Some(place) = place {
            judge.warn(place, format!("{key} has no effect with {instead}"), "it belongs to vip", "remove it");
        }
    }
}

fn sans(judge: &mut Validator<'_>, raw: &schema::Endpoint) -> Vec<String> {
    let mut sans: Vec<String> = Vec::new();
    let named = raw.name.iter().map(|name| ("endpoint.name", name));
    let more = raw.sans.iter().flat_map(|list| &list.value).map(|san| ("endpoint.sans", san));
    for (key, text) in named.chain(more) {
        if let Some(name) = name_or_address(judge, key, text)
            && !sans.contains(&name)
        {
            sans.push(name);
        }
    }
    sans
}

/// Refuses a port that another process on the hosts uses.
fn free(judge: &mut Validator<'_>, key: &str, port: u16, place: Place) {
    let remedy = "choose another port; 6443 is the usual one";
    if let Some((_, who)) = TAKEN.iter().find(|(taken, _)| *taken == port) {
        let expected = "a port that no other process on the hosts uses";
        judge.refuse(place, format!("{key} {port} is the port of {who}"), expected, remedy);
    } else if (30000..=32767).contains(&port) {
        let what = format!("{key} {port} is in Kubernetes' range of node ports");
        judge.refuse(place, what, "a port outside 30000 to 32767", remedy);
    }
}

/// Validates the API servers' own port.
pub fn api_port(judge: &mut Validator<'_>, raw: &Inventory, endpoint: &Endpoint, hosts: &Hosts) -> u16 {
    let given = raw.api_port.as_ref().and_then(|p| port(judge, "apiPort", p));
    let api_port = given.unwrap_or(PORT);
    if let Some(text) = raw.api_port.as_ref() {
        free(judge, "apiPort", api_port, text.place);
    }
    let mut stated = Vec::new();
    let haproxy = |host: &Host| match endpoint.kind {
        EndpointKind::Vip { .. } => host.is(Role::LoadBalancer),
        EndpointKind::Local { .. } => host.is_node(),
        EndpointKind::External(_) => false,
    };
    for placed in &hosts.list {
        let Some((ssh, place)) =
            placed.own_ssh.filter(|(ssh, _)| *ssh != 22 && is_known(placed.host.address) && *ssh > 0)
        else {
            continue;
        };
        let collides = (placed.host.is(Role::ControlPlane) && ssh == api_port)
            || (haproxy(&placed.host) && ssh == endpoint.port)
            || TAKEN.iter().any(|(taken, _)| *taken == ssh);
        // The common ssh.port is one mistake, however many hosts share it.
        if collides && !stated.contains(&place) {
            stated.push(place);
            judge.refuse(
                place,
                format!("sshd of {} listens on {ssh}, the port of a component", placed.host.name),
                "a port for sshd that no component uses",
                "move sshd, or change apiPort or endpoint.port",
            );
        }
    }
    api_port
}
