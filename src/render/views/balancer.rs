//! The endpoint's haproxy and keepalived.

use serde::Serialize;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::in_url;
use crate::model::desired::{Cidr, EndpointKind, Role, SERVES};
use crate::render::{Input, RenderError};

use crate::model::ports::USABLE;

/// For `load-balancer/haproxy.cfg`.
#[derive(Debug, Serialize)]
pub(crate) struct LoadBalancer {
    vip: bool,
    bind: String,
    port: u16,
    servers: Vec<Server>,
    serves: &'static str,
    usable_port: u16,
    trusts: String,
    metrics: bool,
}

#[derive(Debug, Serialize)]
struct Server {
    name: String,
    address: String,
    port: u16,
}

pub(crate) fn load_balancer(input: &Input<'_>) -> LoadBalancer {
    let desired = input.desired;
    let (vip, bind) = match desired.endpoint.kind {
        EndpointKind::Vip { address, .. } => (true, address),
        EndpointKind::External(_) | EndpointKind::Local { .. } => (false, Ipv4Addr::LOCALHOST.into()),
    };
    let servers = desired
        .with(Role::ControlPlane)
        .map(|host| Server { name: host.name.to_string(), address: in_url(host.address), port: desired.api_port })
        .collect();
    let (bind, port, trusts) = (in_url(bind), desired.endpoint.port, input.trust.servers());
    LoadBalancer { vip, bind, port, servers, serves: SERVES, usable_port: USABLE, trusts, metrics: desired.metrics }
}

/// For `keepalived/keepalived.conf`.
#[derive(Debug, Serialize)]
pub(crate) struct Keepalived {
    name: String,
    interface: String,
    vrid: u8,
    priority: u8,
    address: String,
    has_peers: bool,
    peers: Vec<String>,
    vip: String,
    prefix: u8,
    usable_port: u16,
}

/// How long a stopping keepalived keeps the VIP, seconds: the others take over after two thirds of a second, and send
/// gratuitous ARP immediately and again after one second (`vrrp_garp_master_delay`).
const HAND_OVER_S: u8 = 3;

/// For `keepalived/50-hactl.conf`.
#[derive(Debug, Serialize)]
pub(crate) struct HandOver {
    interface: String,
    vip: String,
    prefix: u8,
    hand_over_s: u8,
}

pub(crate) fn hand_over(input: &Input<'_>) -> Result<HandOver, RenderError> {
    let Keepalived { interface, vip, prefix, .. } = keepalived(input)?;
    Ok(HandOver { interface, vip, prefix, hand_over_s: HAND_OVER_S })
}

pub(crate) fn keepalived(input: &Input<'_>) -> Result<Keepalived, RenderError> {
    let (desired, host) = (input.desired, input.host);
    let missing = || RenderError::NoInterface { host: host.name.clone(), address: host.address };
    let EndpointKind::Vip { address: vip, interface, vrid } = &desired.endpoint.kind else { return Err(missing()) };
    let own = || input.facts.addresses.iter().find(|a| a.address == host.address).map(|a| a.interface.clone());
    let interface = interface.clone().or_else(own).ok_or_else(missing)?;
    let place = desired.with(Role::LoadBalancer).position(|h| h.name == host.name).unwrap_or(0);
    let others = || desired.hosts.iter().filter(|h| h.name != host.name);
    let mut peers: Vec<String> = others().filter(|h| h.is(Role::LoadBalancer)).map(|h| h.address.to_string()).collect();
    if peers.is_empty() {
        // Without a peer, keepalived changes to multicast, and so would release the VIP for two thirds of a second
        // whenever the last peer is removed or the first is added. So a single load balancer has a peer that does not
        // listen.
        peers.extend(others().next().map(|h| h.address.to_string()));
    }
    Ok(Keepalived {
        name: host.name.to_string(),
        interface,
        vrid: *vrid,
        priority: priority(place),
        address: host.address.to_string(),
        has_peers: !peers.is_empty(),
        peers,
        vip: vip.to_string(),
        prefix: Cidr::single(*vip).prefix,
        usable_port: USABLE,
    })
}

/// For `vrrp-filter/vrrp.nft`.
#[derive(Debug, Serialize)]
pub(crate) struct VrrpFilter {
    interfaces: BTreeSet<String>,
    has_peers: bool,
    peers: Vec<String>,
}

/// VRRP advertisements come from the other load balancers, to the address of the host. keepalived receives them only on
/// its configured interface, which the inventory may name.
pub(crate) fn vrrp_filter(input: &Input<'_>) -> Result<VrrpFilter, RenderError> {
    let (desired, host) = (input.desired, input.host);
    let Keepalived { interface, .. } = keepalived(input)?;
    let own = input.facts.addresses.iter().filter(|a| a.address == host.address).map(|a| a.interface.clone());
    let others = desired.with(Role::LoadBalancer).filter(|other| other.name != host.name);
    let peers: Vec<String> = others.map(|other| other.address.to_string()).collect();
    Ok(VrrpFilter { interfaces: own.chain([interface]).collect(), has_peers: !peers.is_empty(), peers })
}

/// Priorities with large steps, so that the second load balancer takes over well before the third if the holder fails;
/// never below 1, never 255 (which means "owner of the address").
fn priority(place: usize) -> u8 {
    u8::try_from(200_usize.saturating_sub(place * 40)).unwrap_or(1).max(1)
}
