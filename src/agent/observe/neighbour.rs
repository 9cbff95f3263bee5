//! Which machine on the host's own network has an address.
//!
//! In: an IPv4 address. Out: the hardware address that answers for it. The kernel sends an ARP request, which every
//! machine answers, whatever its ports and firewall; one datagram to the discard port triggers it.

use crate::agent::host::Host;
use crate::agent::machine::run::run;
use crate::agent::op_error::{Outcome, failed};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

/// An answer takes a millisecond on a local network; the kernel sends three requests, a second apart.
const TIMEOUT: Duration = Duration::from_millis(400);
const EVERY: Duration = Duration::from_millis(20);
/// `ATF_COM` of linux/if_arp.h: the entry is complete.
const COMPLETE: u32 = 2;
const DISCARD: u16 = 9;

/// The hardware address that has `address`; `None` if there is no answer or the host itself has it.
pub(crate) async fn owner(host: &Host, address: Ipv4Addr) -> Outcome<Option<String>> {
    host.waits(format!("an ARP answer for {address}"));
    // An entry of the kernel may be outdated. A missing entry is no failure, nor is a host without `ip`.
    let _ = run(&["ip", "neigh", "flush", "to", &address.to_string()], Duration::from_secs(2)).await;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await;
    let socket = socket.map_err(|e| failed(format!("could not open a datagram socket: {e}")))?;
    if socket.send_to(&[0], (address, DISCARD)).await.is_err() {
        // No route: it is not in a network of the host.
        return Ok(None);
    }
    let until = Instant::now() + TIMEOUT;
    loop {
        let table = tokio::fs::read_to_string("/proc/net/arp").await;
        let table = table.map_err(|e| failed(format!("could not read /proc/net/arp: {e}")))?;
        if let Some(found) = answered(&table, address) {
            return Ok(Some(found));
        }
        if Instant::now() > until {
            return Ok(None);
        }
        sleep(EVERY).await;
    }
}

/// `IP HW-type flags HW-address mask device`, see proc_pid_net(5).
fn answered(table: &str, address: Ipv4Addr) -> Option<String> {
    let address = address.to_string();
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let ours = words.next()? == address;
        let flags = u32::from_str_radix(words.nth(1)?.trim_start_matches("0x"), 16).ok()?;
        let hardware = words.next()?;
        (ours && flags & COMPLETE != 0).then(|| hardware.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_entry_of_the_very_address_is_an_answer() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.88.0.10       0x1         0x2         aa:aa:aa:aa:aa:aa     *        eth0\n\
            10.88.0.100      0x1         0x0         00:00:00:00:00:00     *        eth0\n\
            10.88.0.101      0x1         0x6         cc:cc:cc:cc:cc:cc     *        eth0\n";
        let who = |last| answered(table, Ipv4Addr::new(10, 88, 0, last));
        assert_eq!(who(10).as_deref(), Some("aa:aa:aa:aa:aa:aa"));
        assert_eq!(who(100), None, "requested, and not answered");
        assert_eq!(who(101).as_deref(), Some("cc:cc:cc:cc:cc:cc"), "permanent and complete");
        assert_eq!(who(1), None);
    }
}
