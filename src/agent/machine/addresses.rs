//! The network interfaces of this host, as `ip` lists them.
//!
//! In: nothing. Out: every address with its interface, and the MTU of the interface of one address.

use crate::agent::machine::run::must;
use crate::agent::op_error::{Outcome, failed};
use crate::model::facts::InterfaceAddress;
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;

#[derive(Deserialize)]
struct Interface {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    mtu: u32,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: Option<IpAddr>,
    #[serde(default)]
    prefixlen: u8,
}

/// Every address on every interface.
pub(crate) async fn addresses() -> Outcome<Vec<InterfaceAddress>> {
    listed(&shown().await?)
}

/// The MTU of the interface with this address, if it is known.
pub(crate) async fn mtu(address: IpAddr) -> Option<u32> {
    mtu_of(&shown().await.ok()?, address)
}

async fn shown() -> Outcome<String> {
    must(&["ip", "-j", "addr", "show"], Duration::from_secs(5)).await
}

fn parse(text: &str) -> Outcome<Vec<Interface>> {
    serde_json::from_str(text).map_err(|e| failed(format!("the output of `ip addr` is not a list of addresses: {e}")))
}

fn listed(text: &str) -> Outcome<Vec<InterfaceAddress>> {
    let each = |i: Interface| {
        let name = i.ifname;
        i.addr_info.into_iter().filter_map(move |a| {
            Some(InterfaceAddress { interface: name.clone(), address: a.local?, prefix: a.prefixlen })
        })
    };
    Ok(parse(text)?.into_iter().flat_map(each).collect())
}

fn mtu_of(text: &str, address: IpAddr) -> Option<u32> {
    let interfaces = parse(text).ok()?;
    interfaces.iter().find(|i| i.addr_info.iter().any(|a| a.local == Some(address))).map(|i| i.mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_with_interface_and_prefix() {
        let text = r#"[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
            {"ifname":"eth0","addr_info":[{"family":"inet6","local":"fe80::1","prefixlen":64}]},{}]"#;
        let found = listed(text).unwrap();
        assert_eq!(
            (found[1].interface.as_str(), found[1].address.to_string(), found[1].prefix),
            ("eth0", "fe80::1".to_owned(), 64)
        );
        assert!(listed("nonsense").is_err());
    }

    #[test]
    fn the_mtu_is_that_of_the_interface_with_the_address() {
        let text = r#"[{"ifname":"lo","mtu":65536,"addr_info":[{"local":"127.0.0.1"}]},{"ifname":"eth0","mtu":1450,"addr_info":[{"local":"10.0.0.7"}]}]"#;
        assert_eq!(mtu_of(text, "10.0.0.7".parse().unwrap()), Some(1450));
        assert_eq!(mtu_of(text, "10.0.0.8".parse().unwrap()), None);
    }
}
