//! Which hosts must reach which, on which ways. Pure.
//!
//! In: the desired state, who is there, who is new. Out: the ways that a new host takes part in.

use crate::model::desired::{Cni, Desired, EndpointKind, Host, Role};
use crate::model::names::HostName;
use crate::model::survey::Way;

/// Linux' own port for VXLAN, which flannel uses.
pub const VXLAN: u16 = 8472;

/// A way to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Who knocks.
    pub from: HostName,
    /// At whom.
    pub to: HostName,
    /// On which way.
    pub way: Way,
    /// Whether the other side is new and so listens for it; else its component does.
    pub echo: bool,
}

/// The ways between hosts that are there, of which at least one is new.
pub fn wanted(desired: &Desired, there: &dyn Fn(&HostName) -> bool, new: &dyn Fn(&HostName) -> bool) -> Vec<Wanted> {
    let mut all = Vec::new();
    for to in desired.hosts.iter().filter(|h| there(&h.name)) {
        for from in desired.hosts.iter().filter(|h| there(&h.name) && h.name != to.name) {
            if !new(&to.name) && !new(&from.name) {
                continue;
            }
            let echo = new(&to.name);
            // A component of ours answers a connection, but no datagram of a stranger.
            let ways = between(desired, from, to).into_iter().filter(|way| echo || matches!(way, Way::Tcp(_)));
            all.extend(ways.map(|way| Wanted { from: from.name.clone(), to: to.name.clone(), way, echo }));
        }
    }
    all
}

/// What `from` asks of `to`.
fn between(desired: &Desired, from: &Host, to: &Host) -> Vec<Way> {
    let mut ways = Vec::new();
    if to.is(Role::Etcd) {
        if from.is(Role::ControlPlane) {
            ways.push(Way::Tcp(2379));
        }
        if from.is(Role::Etcd) {
            ways.push(Way::Tcp(2380));
        }
    }
    if to.is(Role::ControlPlane) && (desired.balances(from) || from.is(Role::ControlPlane)) {
        ways.push(Way::Tcp(desired.api_port));
    }
    if to.is_node() && from.is(Role::ControlPlane) {
        ways.push(Way::Tcp(10250));
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
    ways
}

/// What a way is for, for people.
pub fn purpose(desired: &Desired, way: Way) -> &'static str {
    match way {
        Way::Tcp(2379) => "etcd's clients",
        Way::Tcp(2380) => "etcd's peers",
        Way::Tcp(10250) => "the kubelet",
        Way::Tcp(port) if port == desired.api_port => "the API server",
        Way::Tcp(_) => "a component",
        Way::Udp(_) => "pods on different nodes (VXLAN)",
        Way::Vrrp => "keepalived",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;

    fn lines(wanted: &[Wanted]) -> Vec<String> {
        wanted.iter().map(|w| format!("{}>{} {} {}", w.from, w.to, w.way, w.echo)).collect()
    }

    #[test]
    fn three_new_hosts_try_every_way_in_both_directions() {
        let ways = lines(&wanted(&sample(3), &|_| true, &|_| true));
        assert_eq!(ways.len(), 3 * 2 * 6);
        for way in ["2379/tcp", "2380/tcp", "6443/tcp", "10250/tcp", "8472/udp", "IP protocol 112 (VRRP)"] {
            assert!(ways.contains(&format!("cp1>cp3 {way} true")), "{way}");
        }
    }

    #[test]
    fn among_hosts_of_the_cluster_nothing_is_tried_and_a_new_one_meets_all_of_them() {
        let desired = sample(3);
        assert_eq!(wanted(&desired, &|_| true, &|_| false), []);
        let ways = lines(&wanted(&desired, &|_| true, &|h| h.as_str() == "cp3"));
        assert!(ways.contains(&"cp3>cp1 2380/tcp false".to_owned()), "its component listens there: {ways:?}");
        assert!(!ways.contains(&"cp3>cp1 8472/udp false".to_owned()), "nobody would answer");
        assert!(ways.contains(&"cp1>cp3 8472/udp true".to_owned()));
        assert!(!ways.iter().any(|w| w.starts_with("cp1>cp2")));
    }

    #[test]
    fn a_host_that_is_not_there_takes_no_part() {
        let ways = lines(&wanted(&sample(3), &|h| h.as_str() != "cp2", &|_| true));
        assert!(!ways.is_empty() && ways.iter().all(|w| !w.contains("cp2")));
    }
}
