//! Chooses the address at which the other machines reach a machine.
//!
//! In: the addresses of each machine, and those that Vagrant logs in to. Out: one address each, all of one network.
//! Machines of VirtualBox all have the same address for Vagrant, those of libvirt one from DHCP: neither is suitable
//! for a cluster.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// A machine that runs.
pub(super) struct Seen<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// The address that Vagrant logs in to.
    pub(super) login: Option<Ipv4Addr>,
    /// Its recorded address.
    pub(super) before: Option<Ipv4Addr>,
    /// All its addresses, each with its prefix.
    pub(super) addresses: Vec<Ipv4Net>,
}

impl Seen<'_> {
    fn within(&self, network: Ipv4Net) -> Option<Ipv4Net> {
        self.addresses.iter().copied().find(|address| address.trunc() == network)
    }
}

/// For each machine its address in the network that all have in common; `None` if there is no such network. Of several
/// networks, one with a recorded address; else the first one that Vagrant does not use for logging in.
pub(super) fn common(machines: &[Seen<'_>]) -> Option<Vec<Ipv4Net>> {
    let first = machines.first()?;
    let shared = |network: &Ipv4Net| {
        let found: Option<Vec<Ipv4Net>> = machines.iter().map(|m| m.within(*network)).collect();
        let distinct = |found: &Vec<Ipv4Net>| found.iter().enumerate().all(|(at, one)| !found[..at].contains(one));
        found.filter(distinct)
    };
    // Addresses of a single host, such as a virtual one, have no network.
    let networks = first.addresses.iter().filter(|address| address.prefix_len() <= 30).map(Ipv4Net::trunc);
    let candidates: Vec<Vec<Ipv4Net>> =
        networks.filter(|network| !nat(first, *network)).filter_map(|network| shared(&network)).collect();
    let known = |found: &&Vec<Ipv4Net>| machines.iter().zip(*found).any(|(m, one)| m.before == Some(one.addr()));
    let apart = |found: &&Vec<Ipv4Net>| {
        !machines.iter().any(|m| m.login.is_some_and(|login| found.iter().any(|one| one.addr() == login)))
    };
    candidates.iter().find(known).or(candidates.iter().find(apart)).or(candidates.first()).cloned()
}

/// Whether a network is VirtualBox's NAT network, in which all machines have the same address; Vagrant then logs in
/// through a port of this machine.
fn nat(machine: &Seen<'_>, network: Ipv4Net) -> bool {
    machine.login.is_some_and(|login| login.is_loopback()) && network.addr() == Ipv4Addr::new(10, 0, 2, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, login: &str, addresses: &[(&str, u8)]) -> Seen<'static> {
        let name = Box::leak(name.to_owned().into_boxed_str());
        let address = |(ip, prefix): &(&str, u8)| Ipv4Net::new(ip.parse().unwrap(), *prefix).unwrap();
        Seen { name, login: login.parse().ok(), before: None, addresses: addresses.iter().map(address).collect() }
    }

    fn known(before: &str, seen: Seen<'static>) -> Seen<'static> {
        Seen { before: before.parse().ok(), ..seen }
    }

    fn chosen(machines: &[Seen<'_>]) -> Option<Vec<String>> {
        common(machines).map(|found| found.iter().map(|one| one.addr().to_string()).collect())
    }

    #[test]
    fn containers_have_one_network() {
        let machines = [
            seen("cp1", "10.88.200.11", &[("10.88.200.11", 24), ("10.88.200.100", 32), ("10.244.0.1", 24)]),
            seen("cp2", "10.88.200.12", &[("10.88.200.12", 24), ("10.244.1.1", 24)]),
        ];
        assert_eq!(chosen(&machines), Some(vec!["10.88.200.11".into(), "10.88.200.12".into()]));
    }

    #[test]
    fn the_address_that_all_of_virtualbox_share_is_none() {
        let machines = [
            seen("cp1", "127.0.0.1", &[("10.0.2.15", 24), ("192.168.57.11", 24)]),
            seen("cp2", "127.0.0.1", &[("10.0.2.15", 24), ("192.168.57.12", 24)]),
        ];
        assert_eq!(chosen(&machines), Some(vec!["192.168.57.11".into(), "192.168.57.12".into()]));
    }

    #[test]
    fn a_private_network_is_preferred_to_the_one_that_vagrant_logs_in_by() {
        let machines = [
            seen("cp1", "192.168.121.7", &[("192.168.121.7", 24), ("10.88.200.11", 24)]),
            seen("cp2", "192.168.121.9", &[("192.168.121.9", 24), ("10.88.200.12", 24)]),
        ];
        assert_eq!(chosen(&machines), Some(vec!["10.88.200.11".into(), "10.88.200.12".into()]));
        let alone = [
            seen("cp1", "192.168.121.7", &[("192.168.121.7", 24)]),
            seen("cp2", "192.168.121.9", &[("192.168.121.9", 24)]),
        ];
        assert_eq!(chosen(&alone), Some(vec!["192.168.121.7".into(), "192.168.121.9".into()]));
    }

    #[test]
    fn a_machine_alone_is_known_by_no_address_that_it_has_for_something_else() {
        let container = seen("cp1", "10.88.200.11", &[("10.88.200.11", 24)]);
        assert_eq!(chosen(&[container]), Some(vec!["10.88.200.11".into()]));
        let virtualbox = || seen("cp1", "127.0.0.1", &[("10.0.2.15", 24), ("192.168.57.11", 24)]);
        assert_eq!(chosen(&[virtualbox()]), Some(vec!["192.168.57.11".into()]));
        assert_eq!(
            chosen(&[seen("cp1", "127.0.0.1", &[("10.0.2.15", 24)])]),
            None,
            "no other machine reaches it there"
        );
    }

    #[test]
    fn a_machine_that_still_has_its_address_keeps_it() {
        let two = || seen("cp1", "10.88.200.11", &[("10.88.200.11", 24), ("172.20.0.1", 24)]);
        assert_eq!(chosen(&[two()]), Some(vec!["172.20.0.1".into()]));
        assert_eq!(chosen(&[known("10.88.200.11", two())]), Some(vec!["10.88.200.11".into()]));
        let other = seen("cp2", "10.88.200.12", &[("10.88.200.12", 24), ("172.20.0.2", 24)]);
        let both = [known("10.88.200.11", two()), other];
        assert_eq!(
            chosen(&both),
            Some(vec!["10.88.200.11".into(), "10.88.200.12".into()]),
            "and so does a new machine"
        );
    }

    #[test]
    fn machines_without_a_common_network_are_reported() {
        let machines = [seen("cp1", "127.0.0.1", &[("10.0.2.15", 24)]), seen("cp2", "127.0.0.1", &[("10.0.2.15", 24)])];
        assert_eq!(chosen(&machines), None);
    }
}
