//! Pod and service ranges: within size limits, without overlap with each other or with an address in use.

use super::hosts::{Hosts, is_known};
use super::text::{choice, cidr};
use super::validator::Validator;
use crate::inventory::at::{At, Place};
use crate::inventory::defaults::{PODS, SERVICES};
use crate::inventory::problem::shorten;
use crate::inventory::schema::{self, Inventory};
use crate::model::desired::{Cidr, Cni, Endpoint, EndpointKind, KubeProxy, Network, Role};
use std::net::{IpAddr, Ipv4Addr};

/// Prefix length of each Node's part of the pod range.
const NODE_PREFIX: u8 = 24;

const DEFAULT_PODS: Cidr = Cidr { base: IpAddr::V4(Ipv4Addr::new(10, 244, 0, 0)), prefix: 16 };
const DEFAULT_SERVICES: Cidr = Cidr { base: IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0)), prefix: 12 };

/// Ranges that can never be routed to pods or services.
const UNUSABLE: [(Cidr, &str); 4] = [
    (Cidr { base: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 8 }, "this network"),
    (Cidr { base: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 }, "loopback"),
    (Cidr { base: IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), prefix: 16 }, "link-local"),
    (Cidr { base: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), prefix: 3 }, "multicast and reserved"),
];

/// Validates the ranges and the choices.
pub fn network(judge: &mut Validator<'_>, raw: Option<&At<schema::Network>>) -> Network {
    let unset = schema::Network::default();
    let raw = raw.map_or(&unset, |n| &n.value);
    let plugins = [("flannel", Cni::Flannel), ("none", Cni::None)];
    let modes = [("nftables", KubeProxy::Nftables), ("none", KubeProxy::None)];
    let pods = raw.pods.as_ref().and_then(|t| range(judge, "network.pods", t, 8, NODE_PREFIX));
    let services = raw.services.as_ref().and_then(|t| range(judge, "network.services", t, 12, 26));
    let cni = raw.cni.as_ref().and_then(|t| choice(judge, "network plugin", t, &plugins));
    let kube_proxy = raw.kube_proxy.as_ref().and_then(|t| choice(judge, "kubeProxy mode", t, &modes));
    Network {
        pods: pods.unwrap_or(DEFAULT_PODS),
        services: services.unwrap_or(DEFAULT_SERVICES),
        cni: cni.unwrap_or(Cni::Flannel),
        mtu: raw.mtu.as_ref().and_then(|t| mtu_of(judge, t)),
        kube_proxy: kube_proxy.unwrap_or(KubeProxy::Nftables),
    }
}

fn range(judge: &mut Validator<'_>, key: &str, text: &At<String>, shortest: u8, longest: u8) -> Option<Cidr> {
    let range = cidr(judge, key, text)?;
    let expected = format!("a range from /{shortest} to /{longest}");
    if range.prefix > longest {
        let why = if longest == NODE_PREFIX { "each Node gets a /24 of it" } else { "it has too few addresses" };
        let what = format!("{key} {range} is too small: {why}");
        let usual = if longest == NODE_PREFIX { PODS } else { SERVICES };
        return judge.none(text.place, what, expected, format!("choose a larger range, such as {usual}"));
    }
    if range.prefix < shortest {
        let why =
            if shortest == 12 { "the API server accepts at most a /12" } else { "it leaves no space for other ranges" };
        let what = format!("{key} {range} is too large: {why}");
        return judge.none(text.place, what, expected, "choose a smaller range");
    }
    if let Some((bad, name)) = UNUSABLE.iter().find(|(bad, _)| bad.overlaps(&range)) {
        let what = format!("{key} {range} overlaps {bad} ({name})");
        return judge.none(text.place, what, "a private range, such as 10.244.0.0/16", "choose another range");
    }
    Some(range)
}

fn mtu_of(judge: &mut Validator<'_>, text: &At<String>) -> Option<u16> {
    if text.value == "auto" {
        return None;
    }
    let mtu = text.value.parse::<u16>().ok().filter(|mtu| (576..=9216).contains(mtu));
    if mtu.is_none() {
        let what = format!("network.mtu is {}", shorten(&text.value));
        judge.refuse(text.place, what, "auto, or a number from 576 to 9216", "write auto unless you know the MTU");
    }
    mtu
}

/// No address in use may be in a range; the ranges must not overlap and be large enough for the Nodes.
pub fn addresses_apart(
    judge: &mut Validator<'_>,
    raw: &Inventory,
    network: &Network,
    endpoint: &Endpoint,
    hosts: &Hosts,
) {
    let raw_network = raw.network.as_ref().map(|n| &n.value);
    let place = |text: Option<&At<String>>| text.map_or(hosts.place, |t| t.place);
    let pods_place = place(raw_network.and_then(|n| n.pods.as_ref().or(n.services.as_ref())));
    let ranges = [("pod", network.pods), ("service", network.services)];
    let remedy = "choose another range under `network:`, or another address";

    if network.pods.overlaps(&network.services) {
        let what = format!("the pod range {} and the service range {} overlap", network.pods, network.services);
        judge.refuse(pods_place, what, "ranges that share no address", "change network.pods or network.services");
    }
    let inside = |judge: &mut Validator<'_>, place: Place, who: &str, address: IpAddr| {
        for (name, range) in ranges.iter().filter(|(_, range)| range.contains(address)) {
            let what = format!("{who} {address} is inside the {name} range {range}");
            judge.refuse(place, what, "an address outside the pod and service ranges", remedy);
        }
    };
    for placed in hosts.list.iter().filter(|p| is_known(p.host.address)) {
        inside(judge, placed.address, &format!("the address of {}", placed.host.name), placed.host.address);
    }
    let raw_endpoint = raw.endpoint.as_ref().map(|e| &e.value);
    match &endpoint.kind {
        EndpointKind::Vip { address, .. } if is_known(*address) => {
            inside(judge, place(raw_endpoint.and_then(|e| e.vip.as_ref())), "the virtual address", *address);
        }
        EndpointKind::External(name) => {
            if let Ok(address) = name.parse::<IpAddr>() {
                inside(judge, place(raw_endpoint.and_then(|e| e.external.as_ref())), "the external endpoint", address);
            }
        }
        EndpointKind::Vip { .. } | EndpointKind::Local { .. } => {}
    }
    let nodes = hosts.list.iter().filter(|p| p.host.is_node() || p.host.is(Role::Spare)).count();
    let room = 1_usize << NODE_PREFIX.saturating_sub(network.pods.prefix);
    if nodes > room {
        let prefix = NODE_PREFIX.saturating_sub(u8::try_from(nodes.next_power_of_two().trailing_zeros()).unwrap_or(16));
        judge.refuse(
            pods_place,
            format!("the pod range {} has space for {room} Nodes of a /24 each, and there are {nodes}", network.pods),
            format!("a /{prefix} or larger"),
            "choose a larger pod range: it cannot be changed later without rebuilding the Nodes",
        );
    }
}
