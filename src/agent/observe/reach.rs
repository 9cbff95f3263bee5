//! Connectivity between hosts on the ports of the components: one side listens, the other sends probes.
//!
//! In: the probes to be received and the probes to be sent. Out: which probes were received, and why the others
//! failed. A probe of a TCP port sends more than one packet and expects an echo, which detects paths that drop large
//! packets. Listeners end when they have received all expected probes, or at their deadline.

use crate::agent::host::Host;
use crate::agent::op_error::{Outcome, bad};
use crate::model::survey::Way;
use crate::protocol::{ConnectivityTest, Expected, Probe, ProbeResult};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// The beginning of every probe, which distinguishes it from other packets.
const HELLO: &[u8; 12] = b"hactl-knock\0";
/// Ten packets.
const ECHOED: usize = 16 << 10;
/// Hosts do not begin at the same time.
const LONGER: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(60);
/// Enough for all probes of a preflight of 100 hosts.
const MOST: usize = 4096;
/// The Virtual Router Redundancy Protocol, RFC 5798.
const VRRP: u32 = 112;

/// What has been received so far.
#[derive(Debug)]
struct Listener {
    received: Mutex<BTreeSet<(u16, Way)>>,
    news: Notify,
}

impl Listener {
    fn hears(&self, who: u16, way: Way) {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).insert((who, way));
        self.news.notify_one();
    }
    fn so_far(&self) -> BTreeSet<(u16, Way)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn greeting(who: u16) -> [u8; 14] {
    let mut bytes = [0; 14];
    bytes[..12].copy_from_slice(HELLO);
    bytes[12..].copy_from_slice(&who.to_be_bytes());
    bytes
}

fn greeted(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(HELLO)?;
    Some(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]))
}

/// How long a registry may take to accept a connection.
const DIAL: Duration = Duration::from_secs(4);
/// Enough for all mirrors of all registries of an inventory.
const MOST_PLACES: usize = 64;

/// The registries of which no mirror accepts a connection from here, and why.
pub(crate) async fn dial(host: &Host, registries: BTreeMap<String, Vec<String>>) -> Outcome<BTreeMap<String, String>> {
    let count: usize = registries.values().map(Vec::len).sum();
    if count > MOST_PLACES {
        return Err(bad(format!("{count} addresses of registries exceed the limit of {MOST_PLACES}")));
    }
    host.waits("registries to be reached");
    let one = async |place: &String| match tokio::time::timeout(DIAL, TcpStream::connect(place.as_str())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{place}: {error}")),
        Err(_) => Err(format!("{place}: no answer within {} s", DIAL.as_secs())),
    };
    let all = registries.iter().map(async |(registry, places)| {
        let tried = futures::future::join_all(places.iter().map(one)).await;
        let why: Vec<String> = tried.iter().filter_map(|tried| tried.clone().err()).collect();
        (why.len() == tried.len()).then(|| (registry.clone(), why.join(", ")))
    });
    Ok(futures::future::join_all(all).await.into_iter().flatten().collect())
}

/// Sends and receives probes at once: both sides must do so at the same time.
pub(crate) async fn meet(host: &Host, meeting: ConnectivityTest) -> Outcome<(Vec<ProbeResult>, Vec<Option<String>>)> {
    let ConnectivityTest { who, address, expected, probes, within_ms } = meeting;
    let most = expected.len().max(probes.len());
    if most > MOST {
        return Err(bad(format!("{most} probes exceed the limit of {MOST}")));
    }
    host.waits("the other hosts to be reached");
    let within = Duration::from_millis(within_ms);
    let (received, probed) = tokio::join!(listen(address, expected, within + LONGER), probe(who, probes, within));
    Ok((received, probed))
}

/// Listens on every port on which a probe is expected.
async fn listen(address: IpAddr, expected: Vec<Expected>, within: Duration) -> Vec<ProbeResult> {
    let ear = Arc::new(Listener { received: Mutex::default(), news: Notify::new() });
    let ways: BTreeSet<Way> = expected.iter().map(|e| e.way).collect();
    let mut deaf = BTreeSet::new();
    let mut listeners = JoinSet::new();
    for way in ways {
        let bound = match way {
            Way::Tcp(port) => TcpListener::bind((address, port)).await.map(|socket| {
                listeners.spawn(hear_tcp(socket, way, Arc::clone(&ear)));
            }),
            Way::Udp(port) => UdpSocket::bind((address, port)).await.map(|socket| {
                listeners.spawn(hear_udp(socket, way, Arc::clone(&ear)));
            }),
            Way::Vrrp => raw().map(|socket| {
                listeners.spawn(hear_vrrp(socket, Arc::clone(&ear)));
            }),
        };
        if bound.is_err() {
            // Another process uses it: the check of the ports reports that, and it says nothing about the
            // connectivity.
            deaf.insert(way);
        }
    }
    let wanted: BTreeSet<(u16, Way)> =
        expected.iter().filter(|e| !deaf.contains(&e.way)).map(|e| (e.who, e.way)).collect();
    let until = Instant::now() + within;
    while !wanted.is_subset(&ear.so_far()) {
        if timeout_at(until, ear.news.notified()).await.is_err() {
            break;
        }
    }
    // The last sender still waits for its echo, which the listener is about to send.
    if !wanted.is_empty() {
        sleep(AGAIN).await;
    }
    let received = ear.so_far();
    let verdict = |e: Expected| ProbeResult {
        who: e.who,
        way: e.way,
        received: if deaf.contains(&e.way) { None } else { Some(received.contains(&(e.who, e.way))) },
    };
    expected.into_iter().map(verdict).collect()
}

async fn hear_tcp(socket: TcpListener, way: Way, ear: Arc<Listener>) {
    let mut talks = JoinSet::new();
    loop {
        let Ok((mut stream, _)) = socket.accept().await else { return };
        let ear = Arc::clone(&ear);
        talks.spawn(async move {
            let mut all = vec![0; ECHOED];
            let read = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut all)).await;
            let (Ok(Ok(_)), Some(who)) = (read, greeted(&all)) else { return };
            // The sender reports whether the echo arrived.
            if stream.write_all(&all).await.is_ok() {
                ear.hears(who, way);
            }
        });
    }
}

async fn hear_udp(socket: UdpSocket, way: Way, ear: Arc<Listener>) {
    let mut packet = [0; 64];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut packet).await else { return };
        if let Some(who) = greeted(&packet[..length])
            && socket.send_to(&packet[..length], from).await.is_ok()
        {
            ear.hears(who, way);
        }
    }
}

async fn hear_vrrp(socket: UdpSocket, ear: Arc<Listener>) {
    let mut packet = [0; 256];
    loop {
        let Ok(length) = socket.recv(&mut packet).await else { return };
        // A raw IPv4 socket returns the header, too; its length is in its first byte, in words.
        let header = usize::from(packet[0] & 0x0f) * 4;
        if let Some(who) = packet.get(header..length).and_then(greeted) {
            ear.hears(who, Way::Vrrp);
        }
    }
}

/// A raw socket for VRRP. The standard library has no type for one; its datagram calls are the same.
fn raw() -> io::Result<UdpSocket> {
    use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
    let protocol = Protocol::from_raw(NonZeroU32::new(VRRP).ok_or(io::ErrorKind::InvalidInput)?);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(protocol))?;
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
    // The TTL of keepalived: a packet filter accepts nothing else.
    socket.set_ttl(255)?;
    Ok(socket)
}

/// Sends all these probes at once. Per probe: `None`, or why it failed.
async fn probe(who: u16, probes: Vec<Probe>, within: Duration) -> Vec<Option<String>> {
    let until = Instant::now() + within;
    let tries = probes.into_iter().map(|probe| async move {
        match probe.way {
            Way::Tcp(port) => tcp(who, SocketAddr::new(probe.to, port), probe.echo, until).await.err(),
            Way::Udp(port) => udp(who, SocketAddr::new(probe.to, port), until).await.err(),
            Way::Vrrp => vrrp(who, probe.to).await.err(),
        }
    });
    futures::future::join_all(tries).await
}

async fn tcp(who: u16, to: SocketAddr, echo: bool, until: Instant) -> Result<(), String> {
    let mut last = "no answer".to_owned();
    while Instant::now() < until {
        match timeout_at(until, TcpStream::connect(to)).await {
            Ok(Ok(_)) if !echo => return Ok(()),
            Ok(Ok(stream)) => match timeout_at(until, echoed(stream, who)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => last = format!("connected, then {error}"),
                Err(_) => return Err("connected, but large packets are dropped".to_owned()),
            },
            // Refused while the other side is not listening yet.
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => break,
        }
        sleep(AGAIN).await;
    }
    Err(last)
}

async fn echoed(mut stream: TcpStream, who: u16) -> io::Result<()> {
    let mut all = vec![0x2e; ECHOED];
    all[..14].copy_from_slice(&greeting(who));
    stream.write_all(&all).await?;
    let mut back = vec![0; ECHOED];
    stream.read_exact(&mut back).await?;
    if back == all { Ok(()) } else { Err(io::Error::other("the echo differs")) }
}

async fn udp(who: u16, to: SocketAddr, until: Instant) -> Result<(), String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.map_err(|e| e.to_string())?;
    socket.connect(to).await.map_err(|e| e.to_string())?;
    let mut last = "no answer".to_owned();
    let mut back = [0; 64];
    while Instant::now() < until {
        // Refused by an ICMP message while the other side is not listening yet.
        if let Err(error) = socket.send(&greeting(who)).await {
            last = error.to_string();
        }
        match tokio::time::timeout(AGAIN, socket.recv(&mut back)).await {
            Ok(Ok(length)) if greeted(&back[..length]) == Some(who) => return Ok(()),
            Ok(Err(error)) => {
                last = error.to_string();
                sleep(AGAIN).await;
            }
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    Err(last)
}

/// VRRP has no answer; the other side reports whether it was received.
async fn vrrp(who: u16, to: IpAddr) -> Result<(), String> {
    let socket = raw().map_err(|e| format!("could not open a raw socket: {e}"))?;
    let mut last = Ok(());
    for _ in 0..8 {
        last = socket.send_to(&greeting(who), (to, 0)).await.map(drop).map_err(|e| e.to_string());
        sleep(AGAIN).await;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::root::Root;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    async fn free_ports() -> (u16, u16) {
        let tcp = TcpListener::bind((HERE, 0)).await.unwrap().local_addr().unwrap().port();
        let udp = UdpSocket::bind((HERE, 0)).await.unwrap().local_addr().unwrap().port();
        (tcp, udp)
    }

    #[tokio::test]
    async fn probes_arrive_on_tcp_and_udp_and_listening_ends_with_the_last() {
        let (tcp, udp) = free_ports().await;
        let ways = [Way::Tcp(tcp), Way::Udp(udp)];
        let expected = ways.iter().map(|way| Expected { who: 7, way: *way }).collect();
        let probes = ways.iter().map(|way| Probe { to: HERE, way: *way, echo: true }).collect();
        let begun = Instant::now();
        let (received, stated) =
            tokio::join!(listen(HERE, expected, Duration::from_secs(60)), probe(7, probes, Duration::from_secs(60)));
        assert_eq!(stated, [None, None]);
        assert!(received.iter().all(|h| h.received == Some(true)));
        assert!(begun.elapsed() < Duration::from_secs(30), "it waited for its deadline");
    }

    #[tokio::test]
    async fn a_probe_without_a_listener_and_a_listener_without_a_probe_report_it() {
        let (tcp, udp) = free_ports().await;
        let within = Duration::from_secs(2);
        let probes = vec![
            Probe { to: HERE, way: Way::Tcp(tcp), echo: true },
            Probe { to: HERE, way: Way::Udp(udp), echo: true },
        ];
        let stated = probe(1, probes, within).await;
        assert!(stated.iter().all(|t| t.as_ref().is_some_and(|t| t.contains("refused"))), "{stated:?}");
        let expected = vec![Expected { who: 1, way: Way::Tcp(tcp) }];
        assert_eq!(listen(HERE, expected, within).await[0].received, Some(false));
    }

    #[tokio::test]
    async fn a_registry_is_away_only_when_none_of_its_places_takes_a_connection() {
        let open = TcpListener::bind((HERE, 0)).await.unwrap();
        let (here, nobody) = (open.local_addr().unwrap().to_string(), format!("{HERE}:{}", free_ports().await.0));
        let registries = BTreeMap::from([
            ("mirrored.example".to_owned(), vec![nobody.clone(), here]),
            ("away.example".to_owned(), vec![nobody.clone()]),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new(Root::at(folder.path()));
        let away = dial(&host, registries).await.unwrap();
        assert_eq!(away.len(), 1);
        assert!(away["away.example"].contains(&nobody) && away["away.example"].contains("refused"), "{away:?}");
        let many = BTreeMap::from([("a.example".to_owned(), vec![nobody; MOST_PLACES + 1])]);
        assert!(dial(&host, many).await.is_err());
    }

    #[tokio::test]
    async fn a_port_in_use_yields_no_verdict_and_foreign_traffic_is_no_probe() {
        let taken = TcpListener::bind((HERE, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let expected = vec![Expected { who: 1, way: Way::Tcp(port) }];
        assert_eq!(listen(HERE, expected, Duration::from_secs(5)).await[0].received, None);
        assert_eq!(greeted(b"GET / HTTP/1.1"), None);
        assert_eq!(greeted(&HELLO[..]), None);
        assert_eq!(greeted(&greeting(513)), Some(513));
    }
}
