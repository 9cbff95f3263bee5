//! Which of its addresses a machine is known by to the others.
//!
//! In: what each machine has, and where Vagrant logs in. Out: one address each, all of one network. Machines of VirtualBox
//! all have the same address towards Vagrant, those of libvirt one that a DHCP server gave them: neither makes a cluster.

use super::said::Address;
use std::net::Ipv4Addr;

/// A machine that runs.
pub(super) struct Seen<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Where Vagrant logs in.
    pub(super) login: Option<Ipv4Addr>,
    /// All its addresses.
    pub(super) addresses: Vec<Address>,
}

impl Seen<'_> {
    fn within(&self, network: (Ipv4Addr, u8)) -> Option<Address> {
        self.addresses.iter().copied().find(|address| address.network() == network)
    }
}

/// For each machine its address in the network that all have in common; `None` where there is no such network. Of several
/// it is one that Vagrant does not log in by, and of those the first.
pub(super) fn common(machines: &[Seen<'_>]) -> Option<Vec<Ipv4Addr>> {
    let first = machines.first()?;
    let shared = |network: &(Ipv4Addr, u8)| {
        let found: Option<Vec<Ipv4Addr>> =
            machines.iter().map(|m| m.within(*network).map(|address| address.ip)).collect();
        let distinct = |found: &Vec<Ipv4Addr>| found.iter().enumerate().all(|(at, ip)| !found[..at].contains(ip));
        found.filter(distinct)
    };
    // Addresses of a single host, such as a virtual one, make no network.
    let networks: Vec<(Ipv4Addr, u8)> =
        first.addresses.iter().filter(|address| address.prefix <= 30).map(|address| address.network()).collect();
    let logins = |found: &Vec<Ipv4Addr>| machines.iter().any(|m| m.login.is_some_and(|login| found.contains(&login)));
    let candidates: Vec<Vec<Ipv4Addr>> = networks.iter().filter_map(shared).collect();
    candidates.iter().find(|found| !logins(found)).or(candidates.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, login: &str, addresses: &[(&str, u8)]) -> Seen<'static> {
        let name = Box::leak(name.to_owned().into_boxed_str());
        let address = |(ip, prefix): &(&str, u8)| Address { ip: ip.parse().unwrap(), prefix: *prefix };
        Seen { name, login: login.parse().ok(), addresses: addresses.iter().map(address).collect() }
    }

    fn chosen(machines: &[Seen<'_>]) -> Option<Vec<String>> {
        common(machines).map(|found| found.iter().map(Ipv4Addr::to_string).collect())
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
    fn machines_without_a_network_in_common_are_told() {
        let machines = [seen("cp1", "127.0.0.1", &[("10.0.2.15", 24)]), seen("cp2", "127.0.0.1", &[("10.0.2.15", 24)])];
        assert_eq!(chosen(&machines), None);
    }
}
