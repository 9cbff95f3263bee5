//! The network interfaces of this host, as its kernel lists them.
//!
//! In: nothing. Out: every address with its interface, and the MTU of the interface of one address. The kernel is asked
//! directly: every observation asks, and a program would cost the host more than the rest of it.

use crate::agent::machine::run::blocking;
use crate::agent::op_error::{Outcome, failed};
use crate::model::facts::InterfaceAddress;
use nix::ifaddrs::{self, getifaddrs};
use nix::sys::socket::SockaddrStorage;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Every address on every interface.
pub(crate) async fn addresses() -> Outcome<Vec<InterfaceAddress>> {
    blocking(|| {
        let all = getifaddrs().map_err(|e| failed(format!("the kernel does not list the interfaces: {e}")))?;
        Ok(all.filter_map(of).collect())
    })
    .await
}

/// The MTU of the interface with this address, if it is known.
pub(crate) async fn mtu(address: IpAddr) -> Option<u32> {
    let all = addresses().await.ok()?;
    let interface = &all.iter().find(|found| found.address == address)?.interface;
    let file = Path::new("/sys/class/net").join(interface).join("mtu");
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// An address of IP. The name of the interface may have a label behind a colon, which no name has.
fn of(one: ifaddrs::InterfaceAddress) -> Option<InterfaceAddress> {
    let prefix = match ip(one.netmask.as_ref()?)? {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    let interface = one.interface_name.split(':').next()?.to_owned();
    Some(InterfaceAddress { interface, address: ip(one.address.as_ref()?)?, prefix: prefix.try_into().ok()? })
}

fn ip(storage: &SockaddrStorage) -> Option<IpAddr> {
    let four = storage.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
    four.or_else(|| storage.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddrV4, SocketAddrV6};

    fn storage(address: &str) -> SockaddrStorage {
        match address.parse().unwrap() {
            IpAddr::V4(four) => SocketAddrV4::new(four, 0).into(),
            IpAddr::V6(six) => SocketAddrV6::new(six, 0, 0, 0).into(),
        }
    }

    #[test]
    fn addresses_come_with_the_prefix_and_the_interface_without_a_label() {
        let all = getifaddrs().unwrap();
        let mut one = all.into_iter().next().unwrap();
        for (name, address, mask, expected) in [
            ("eth0:vip", "10.0.0.7", "255.255.254.0", "eth0 10.0.0.7/23"),
            ("wg0", "10.0.0.1", "255.255.255.255", "wg0 10.0.0.1/32"),
            ("eth1", "fe80::1", "ffff:ffff:ffff:ffff::", "eth1 fe80::1/64"),
        ] {
            (one.interface_name, one.address, one.netmask) =
                (name.to_owned(), Some(storage(address)), Some(storage(mask)));
            let found = of(one.clone()).unwrap();
            assert_eq!(format!("{} {}/{}", found.interface, found.address, found.prefix), expected);
        }
        one.address = None;
        assert!(of(one).is_none(), "an interface without an address");
    }

    #[tokio::test]
    async fn the_kernel_of_this_machine_lists_the_loopback_address() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let found = addresses().await.unwrap();
        let expected = InterfaceAddress { interface: "lo".to_owned(), address: loopback, prefix: 8 };
        assert!(found.contains(&expected), "{found:?}");
        assert!(mtu(loopback).await.is_some_and(|mtu| mtu > 1000));
        assert_eq!(mtu(IpAddr::from([192, 0, 2, 1])).await, None);
    }
}
