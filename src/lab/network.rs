//! A lab's network: one bridge, one /24 of 10.88.0.0/16, and one nftables table for outgoing connections.
//!
//! Every name contains the third octet, so that all resources of a lab are found exactly.

use super::error::Result;
use super::files;
use super::machine::installed;
use crate::inventory::topology::topology;
use crate::process::Run;
use std::net::Ipv4Addr;
use std::path::Path;

/// A lab's network, by its third octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// The third octet.
    pub(crate) octet: u8,
}

impl Network {
    /// The bridge's name.
    pub(crate) fn bridge(self) -> String {
        format!("hlb{}", self.octet)
    }

    /// The machine's end of a host's cable.
    pub(crate) fn veth(self, index: usize) -> String {
        format!("hlv{}-{}", self.octet, self.address(index).octets()[3])
    }

    /// The network as text.
    pub(crate) fn cidr(self) -> String {
        format!("10.88.{}.0/24", self.octet)
    }

    /// The machine's address on the bridge.
    pub(crate) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, self.octet, 1)
    }

    /// The virtual address.
    pub(crate) fn vip(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, self.octet, topology().vip)
    }

    /// The address of the host at `index`; specs and records have fewer hosts than there are addresses.
    pub(crate) fn address(self, index: usize) -> Ipv4Addr {
        let last = u8::try_from(index).unwrap_or(u8::MAX).saturating_add(topology().first);
        Ipv4Addr::new(10, 88, self.octet, last)
    }

    /// A MAC address that stays the same after a power-off.
    pub(crate) fn mac(self, index: usize) -> String {
        format!("02:88:00:00:{:02x}:{:02x}", self.octet, self.address(index).octets()[3])
    }

    /// The cgroup of all processes of the lab, in each hierarchy.
    pub(crate) fn cgroup(self) -> String {
        format!("hactl-lab-{}", self.octet)
    }

    fn table(self) -> String {
        format!("hactl_lab_{}", self.octet)
    }

    /// Whether the bridge exists.
    pub(crate) fn exists(self) -> bool {
        Path::new("/sys/class/net").join(self.bridge()).exists()
    }

    /// Creates bridge, address and NAT, as far as they are missing.
    pub(crate) fn make(self, lab: &str) -> Result<()> {
        let (bridge, cidr, table) = (self.bridge(), self.cidr(), self.table());
        if !self.exists() {
            Run::new("ip", &["link", "add", &bridge, "mtu", &mtu().to_string(), "type", "bridge"]).ok()?;
        }
        let alias = format!("hactl lab {lab}");
        Run::new("ip", &["link", "set", &bridge, "alias", &alias]).ok()?;
        Run::new("ip", &["addr", "replace", &format!("{}/24", self.gateway()), "dev", &bridge]).ok()?;
        Run::new("ip", &["link", "set", &bridge, "up"]).ok()?;
        let rules = format!(
            "table ip {table}\ndelete table ip {table}\ntable ip {table} {{\n  chain out {{\n    \
             type nat hook postrouting priority srcnat;\n    \
             ip saddr {cidr} ip daddr != {cidr} oifname != \"{bridge}\" masquerade\n  }}\n}}\n"
        );
        Run::new("nft", &["-f", "-"]).input(rules).ok()?;
        self.admit()
    }

    /// If the machine forwards nothing by default (as with Docker), admits the lab.
    fn admit(self) -> Result<()> {
        if !installed("iptables") {
            return Ok(());
        }
        let rules = Run::new("iptables", &["-w", "-S", "FORWARD"]).output()?.stdout;
        if !rules.contains("-P FORWARD DROP") || rules.contains(&self.table()) {
            return Ok(());
        }
        for direction in ["-i", "-o"] {
            let (bridge, table) = (self.bridge(), self.table());
            let rule = [direction, &bridge, "-m", "comment", "--comment", &table, "-j", "ACCEPT"];
            Run::new("iptables", &["-w", "-I", "FORWARD"]).words(&rule).ok()?;
        }
        Ok(())
    }

    /// Removes all of it, in any state.
    pub(crate) fn remove(self, hosts: usize) -> Result<()> {
        for link in (0..hosts).map(|index| self.veth(index)).chain([self.bridge()]) {
            unlink(&link)?;
        }
        let table = self.table();
        // Declared first, so that the deletion succeeds also if it did not exist.
        Run::new("nft", &["-f", "-"]).input(format!("table ip {table}\ndelete table ip {table}\n")).ok()?;
        if !installed("iptables") {
            return Ok(());
        }
        let rules = Run::new("iptables", &["-w", "-S", "FORWARD"]).output()?.stdout;
        for rule in tagged(&rules, &table) {
            Run::new("iptables", &["-w", "-D"]).words(&rule).ok()?;
        }
        Ok(())
    }

    /// Removes a host's cable.
    pub(crate) fn unplug(self, index: usize) -> Result<()> {
        unlink(&self.veth(index))
    }

    /// Plugs a host's cable in or unplugs it, at the machine's end.
    pub(crate) fn cable(self, index: usize, plugged: bool) -> Result<()> {
        let state = if plugged { "up" } else { "down" };
        Run::new("ip", &["link", "set", &self.veth(index), state]).ok()?;
        Ok(())
    }

    /// Whether a host's cable is plugged in; `None` if the host is off and has none.
    pub(crate) fn plugged(self, index: usize) -> Option<bool> {
        let path = Path::new("/sys/class/net").join(self.veth(index)).join("flags");
        let text = std::fs::read_to_string(path).ok()?;
        let flags = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
        Some(flags & 1 == 1)
    }
}

/// Deletes a link; LXC or the kernel may be faster.
fn unlink(link: &str) -> Result<()> {
    let there = || Path::new("/sys/class/net").join(link).exists();
    if !there() {
        return Ok(());
    }
    match Run::new("ip", &["link", "del", link]).ok() {
        Err(e) if there() => Err(e.into()),
        _ => Ok(()),
    }
}

/// The words after `-A` of the rules with our comment.
fn tagged<'a>(rules: &'a str, table: &str) -> Vec<Vec<&'a str>> {
    let ours =
        |words: &[&str]| words.windows(2).any(|pair| pair[0] == "--comment" && pair[1].trim_matches('"') == table);
    let all = rules.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    all.filter(|words| words.first() == Some(&"-A") && ours(words)).map(|words| words[1..].to_vec()).collect()
}

/// Third octets of 10.88.0.0/16 that this machine's addresses and routes use.
pub(crate) fn used() -> Result<Vec<u8>> {
    let routes = Run::new("ip", &["-4", "route", "show", "table", "all"]).ok()?;
    Ok(octets(&routes))
}

fn octets(routes: &str) -> Vec<u8> {
    let words = routes.split(|c: char| c.is_whitespace() || c == '/');
    let ours = words.filter_map(|word| word.parse::<Ipv4Addr>().ok()).map(|address| address.octets());
    ours.filter(|octets| octets[..2] == [10, 88]).map(|octets| octets[2]).collect()
}

/// The MTU of this machine's default route: packets of hosts with a larger MTU would be dropped.
pub(crate) fn mtu() -> u32 {
    const USUAL: u32 = 1500;
    let routes = files::read_if(Path::new("/proc/net/route")).ok().flatten().unwrap_or_default();
    let default = routes.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?)).filter(|(_, to)| *to == "00000000").map(|(link, _)| link)
    });
    default
        .and_then(|link| std::fs::read_to_string(format!("/sys/class/net/{link}/mtu")).ok())
        .and_then(|text| text.trim().parse().ok())
        .map_or(USUAL, |mtu: u32| mtu.min(USUAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_say_whose_they_are() {
        let net = Network { octet: 255 };
        assert_eq!((net.bridge().as_str(), net.veth(88).as_str()), ("hlb255", "hlv255-99"));
        assert!(net.veth(88).len() <= 15);
        assert_eq!(net.address(0), Ipv4Addr::new(10, 88, 255, 11));
        assert_eq!(net.mac(0), "02:88:00:00:ff:0b");
    }

    #[test]
    fn the_last_host_is_below_the_virtual_address() {
        let net = Network { octet: 0 };
        assert!(net.address(crate::lab::record::MOST_HOSTS - 1) < net.vip());
    }

    #[test]
    fn used_octets_are_read_from_routes() {
        let routes = "default via 192.0.2.1 dev eth0\n10.88.3.0/24 dev hlb3 proto kernel src 10.88.3.1\n\
                      local 10.88.7.1 dev x table local\n10.8.9.0/24 dev y\n";
        assert_eq!(octets(routes), [3, 3, 7]);
    }

    #[test]
    fn only_our_own_rules_are_ours() {
        let rules = "-P FORWARD DROP\n-A FORWARD -i hlb1 -m comment --comment hactl_lab_1 -j ACCEPT\n\
                     -A FORWARD -i hlb10 -m comment --comment \"hactl_lab_10\" -j ACCEPT\n";
        let found = tagged(rules, "hactl_lab_1");
        assert_eq!(found, [["FORWARD", "-i", "hlb1", "-m", "comment", "--comment", "hactl_lab_1", "-j", "ACCEPT"]]);
    }
}
