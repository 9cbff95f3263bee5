//! Which hosts must reach which others, and on which ports. Pure.
//!
//! In: the desired state, the reachable hosts and the new ones. Out: the connections of a new host, and the openings in
//! each firewall.

use super::desired::{Cni, Desired, EndpointKind, Host, Role};
use super::firewall::Opening;
use super::healing::{HEARTBEAT_PORT, METRICS_PORT, Metrics, PEER_PORT, heals, is_guarded};
use super::metrics;
use super::names::HostName;
use super::survey::Way;
use std::collections::BTreeSet;

/// Linux's default port of VXLAN, which flannel uses.
pub const VXLAN: u16 = 8472;
/// The kubelet's port.
pub const KUBELET: u16 = 10250;
/// The port on loopback where a load balancer answers whether it has a ready API server.
pub const USABLE: u16 = 6480;
/// The port on loopback where a control-plane host's kubelet reaches an API server: its own, or another one in reserve.
pub const KUBELETS_API: u16 = 6481;
/// etcd's port for clients, and the one for peers.
pub const ETCD_CLIENTS: u16 = 2379;
/// See [`ETCD_CLIENTS`].
pub const ETCD_PEERS: u16 = 2380;

/// A connection to be tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The client.
    pub from: HostName,
    /// The server.
    pub to: HostName,
    /// The port or protocol.
    pub way: Way,
    /// Whether hactl listens there; otherwise a component does.
    pub echo: bool,
}

/// The connections between reachable hosts of which at least one is new. `runs` returns whether the component of a port
/// runs on a host that is not new.
pub fn wanted(
    desired: &Desired,
    there: &dyn Fn(&HostName) -> bool,
    new: &dyn Fn(&HostName) -> bool,
    runs: &dyn Fn(&HostName, u16) -> bool,
) -> Vec<Wanted> {
    let mut all = Vec::new();
    for to in desired.hosts.iter().filter(|h| there(&h.name)) {
        for from in desired.hosts.iter().filter(|h| there(&h.name) && h.name != to.name) {
            if !new(&to.name) && !new(&from.name) {
                continue;
            }
            // A running component accepts a connection, but does not answer unknown datagrams.
            let ways = between(desired, from, to).into_iter().filter(|way| new(&to.name) || matches!(way, Way::Tcp(_)));
            all.extend(ways.map(|way| {
                let echo = new(&to.name) || matches!(way, Way::Tcp(port) if !runs(&to.name, port));
                Wanted { from: from.name.clone(), to: to.name.clone(), way, echo }
            }));
        }
    }
    all
}

/// The connections from `from` to `to`.
fn between(desired: &Desired, from: &Host, to: &Host) -> Vec<Way> {
    let mut ways = Vec::new();
    if to.may_vote() {
        // Before etcd starts, its host queries the other members, as a client, whether the cluster was recovered
        // without it.
        if from.is(Role::ControlPlane) || from.may_vote() {
            ways.push(Way::Tcp(ETCD_CLIENTS));
        }
        if from.may_vote() {
            ways.push(Way::Tcp(ETCD_PEERS));
        }
    }
    // Pods reach API servers at their own addresses; traffic of pods on another host has the address of that host. Guards
    // create Events.
    if to.is(Role::ControlPlane) && (desired.balances(from) || from.is_node() || is_guarded(desired, from)) {
        ways.push(Way::Tcp(desired.api_port));
    }
    if to.is_node() && from.is(Role::ControlPlane) {
        ways.push(Way::Tcp(KUBELET));
    }
    if to.is_node() && from.is_node() && desired.network.cni == Cni::Flannel {
        ways.push(Way::Udp(VXLAN));
    }
    if matches!(desired.endpoint.kind, EndpointKind::Vip { .. })
        && to.is(Role::LoadBalancer)
        && from.is(Role::LoadBalancer)
    {
        ways.push(Way::Vrrp);
    }
    if is_guarded(desired, from) && is_guarded(desired, to) {
        ways.push(Way::Tcp(HEARTBEAT_PORT));
    }
    if heals(desired, from) && heals(desired, to) {
        ways.push(Way::Tcp(PEER_PORT));
    }
    ways
}

/// All openings of a host: connections from the other hosts, from its pods to its API server, from people to a load
/// balancer, and from monitoring to its guard.
pub fn openings(desired: &Desired, host: &Host) -> BTreeSet<Opening> {
    let others = desired.hosts.iter().filter(|other| other.name != host.name);
    let mut open: BTreeSet<Opening> = others
        .flat_map(|other| {
            between(desired, other, host).into_iter().map(|way| Opening::from_address(other.address, way))
        })
        .collect();
    if host.is_node() {
        // Monitoring in pods of any Node queries kubelets, too.
        let nodes = desired.hosts.iter().filter(|other| other.name != host.name && other.is_node());
        open.extend(nodes.map(|other| Opening::from_address(other.address, Way::Tcp(KUBELET))));
        open.insert(Opening::from_range(desired.network.pods, Way::Tcp(KUBELET)));
        open.insert(Opening::through(desired.network.pods));
        if host.is(Role::ControlPlane) {
            open.insert(Opening::from_range(desired.network.pods, Way::Tcp(desired.api_port)));
        }
    }
    if is_guarded(desired, host) && desired.healing.metrics == Metrics::Host {
        // Monitoring is somewhere; a client needs a certificate for it.
        open.insert(Opening::from_anywhere(Way::Tcp(METRICS_PORT)));
    }
    if metrics::serves(desired, host) {
        open.insert(Opening::from_anywhere(Way::Tcp(metrics::PORT)));
    }
    match &desired.endpoint.kind {
        EndpointKind::Vip { .. } if host.is(Role::LoadBalancer) => {
            open.insert(Opening::from_anywhere(Way::Tcp(desired.endpoint.port)));
        }
        // External load balancers and people connect from unknown addresses.
        EndpointKind::External(_) | EndpointKind::Local { .. } if host.is(Role::ControlPlane) => {
            open.insert(Opening::from_anywhere(Way::Tcp(desired.api_port)));
        }
        EndpointKind::Vip { .. } | EndpointKind::External(_) | EndpointKind::Local { .. } => {}
    }
    open
}

/// The purpose of a port, for people.
pub fn purpose(desired: &Desired, way: Way) -> &'static str {
    match way {
        Way::Tcp(ETCD_CLIENTS) => "etcd's clients",
        Way::Tcp(ETCD_PEERS) => "etcd's peers",
        Way::Tcp(KUBELET) => "the kubelet",
        Way::Tcp(port) if port == desired.api_port => "the API server",
        Way::Tcp(HEARTBEAT_PORT | PEER_PORT) => "the guards",
        Way::Tcp(_) => "a component",
        Way::Udp(_) => "pods on different nodes (VXLAN)",
        Way::Vrrp => "keepalived",
    }
}

/// What gives two members of etcd a peer connection, as a clause.
pub fn reconnect(one: &str, other: &str) -> String {
    format!(
        "see that {one} and {other} reach each other on port {ETCD_PEERS} (network, firewall); if they do, restart \
         etcd on one of them: `systemctl restart etcd`"
    )
}

#[cfg(test)]
mod tests {
    use super::super::desired::sample;
    use super::*;

    fn lines(wanted: &[Wanted]) -> Vec<String> {
        wanted.iter().map(|w| format!("{}>{} {} {}", w.from, w.to, w.way, w.echo)).collect()
    }

    #[test]
    fn three_new_hosts_probe_every_port_in_both_directions() {
        let ways = lines(&wanted(&sample(3), &|_| true, &|_| true, &|_, _| true));
        assert_eq!(ways.len(), 3 * 2 * 6);
        for way in ["2379/tcp", "2380/tcp", "6443/tcp", "10250/tcp", "8472/udp", "IP protocol 112 (VRRP)"] {
            assert!(ways.contains(&format!("cp1>cp3 {way} true")), "{way}");
        }
    }

    #[test]
    fn among_hosts_of_the_cluster_nothing_is_tried_and_a_new_one_meets_all_of_them() {
        let desired = sample(3);
        assert_eq!(wanted(&desired, &|_| true, &|_| false, &|_, _| true), []);
        let ways = lines(&wanted(&desired, &|_| true, &|h| h.as_str() == "cp3", &|_, port| port != 6443));
        assert!(ways.contains(&"cp3>cp1 2380/tcp false".to_owned()), "its component listens there: {ways:?}");
        assert!(ways.contains(&"cp3>cp1 6443/tcp true".to_owned()), "its component does not run: hactl listens");
        assert!(!ways.iter().any(|w| w.starts_with("cp3>cp1 8472/udp")), "no component would answer");
        assert!(ways.contains(&"cp1>cp3 8472/udp true".to_owned()));
        assert!(!ways.iter().any(|w| w.starts_with("cp1>cp2")));
    }

    #[test]
    fn a_host_that_is_not_there_takes_no_part() {
        let ways = lines(&wanted(&sample(3), &|h| h.as_str() != "cp2", &|_| true, &|_, _| true));
        assert!(!ways.is_empty() && ways.iter().all(|w| !w.contains("cp2")));
    }

    #[test]
    fn etcd_on_hosts_of_its_own_is_asked_by_the_other_members_whether_it_was_recovered_without_them() {
        let mut desired = sample(3);
        for host in &mut desired.hosts[..2] {
            host.roles = [Role::Etcd].into();
        }
        let ways = lines(&wanted(&desired, &|_| true, &|_| true, &|_, _| true));
        let asked: Vec<_> = ways.iter().filter(|way| way.starts_with("cp1>cp2")).collect();
        assert_eq!(asked, ["cp1>cp2 2379/tcp true", "cp1>cp2 2380/tcp true"]);
        let open: Vec<String> = openings(&desired, &desired.hosts[1]).iter().map(ToString::to_string).collect();
        assert!(open.contains(&"2379/tcp from 10.88.0.11".to_owned()), "{open:?}");
    }

    #[test]
    fn guards_reach_one_another_and_no_other_host_reaches_them() {
        let mut desired = sample(3);
        desired.healing.mode = super::super::healing::Mode::Watch;
        desired.hosts[2].roles = [Role::Worker].into();
        let heartbeats = |desired: &Desired| {
            let mut ways = lines(&wanted(desired, &|_| true, &|_| true, &|_, _| true));
            ways.retain(|way| way.contains(" 10270/tcp "));
            ways
        };
        assert_eq!(heartbeats(&desired), ["cp2>cp1 10270/tcp true", "cp1>cp2 10270/tcp true"]);
        let open = openings(&desired, &desired.hosts[0]);
        let open: Vec<String> = open.iter().map(ToString::to_string).filter(|o| o.starts_with("10270/")).collect();
        assert_eq!(open, ["10270/tcp from 10.88.0.12"]);
        assert_eq!(purpose(&desired, Way::Tcp(HEARTBEAT_PORT)), "the guards");
        let metrics = |desired: &Desired, host: usize| {
            let open = openings(desired, &desired.hosts[host]);
            open.iter().map(ToString::to_string).filter(|o| o.starts_with("10272/")).collect::<Vec<_>>()
        };
        assert_eq!(metrics(&desired, 0), [""; 0], "on loopback only");
        desired.healing.metrics = Metrics::Host;
        assert_eq!(metrics(&desired, 0), ["10272/tcp from anywhere"]);
        assert_eq!(metrics(&desired, 2), [""; 0], "a worker has no guard");
        desired.metrics = true;
        for host in &desired.hosts {
            assert!(
                openings(&desired, host).iter().any(|o| o.to_string() == "10273/tcp from anywhere"),
                "{}",
                host.name
            );
        }
        desired.healing.mode = super::super::healing::Mode::Off;
        assert_eq!(heartbeats(&desired), [""; 0]);
        assert_eq!(metrics(&desired, 0), [""; 0]);
    }

    #[test]
    fn a_host_opens_exactly_the_ports_that_other_hosts_use() {
        let desired = sample(3);
        let open: Vec<String> = openings(&desired, &desired.hosts[0]).iter().map(ToString::to_string).collect();
        let from = |host: &str| open.iter().filter(|o| o.ends_with(&format!("from {host}"))).count();
        assert_eq!(from("10.88.0.12"), 6, "{open:?}");
        assert_eq!(from("10.88.0.13"), 6);
        assert_eq!(from("10.88.0.11"), 0, "no host needs a rule for itself");
        assert!(open.contains(&"6443/tcp from 10.244.0.0/16".to_owned()), "its own pods: {open:?}");
        assert!(open.contains(&"6443/tcp from anywhere".to_owned()), "people: {open:?}");
        assert!(open.contains(&"forwarding from 10.244.0.0/16".to_owned()), "{open:?}");
        assert_eq!(open.len(), 16);
    }
}
