//! Probes of the load balancers: haproxy for the endpoint, haproxy in front of etcd, and keepalived.

use super::process::{self, Runs};
use super::{Found, Seen};
use crate::agent::machine::root::Root;
use crate::agent::plain_http::answers;
use crate::model::desired::Role;
use crate::model::fault::FaultKind;
use crate::model::healing::GuardedHost;
use crate::model::ports::USABLE;
use crate::protocol::ETCD_BALANCER_SOCKET;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

pub(super) const HAPROXY: &str = "haproxy.service";
pub(super) const ETCD_BALANCER: &str = "hactl-etcd-balancer.service";
pub(super) const KEEPALIVED: &str = "keepalived.service";
/// How long haproxy may take to answer on this host: its check needs no other process.
const ANSWER: Duration = Duration::from_secs(1);
/// Any port: nothing is sent.
const ANY_PORT: u16 = 9;

/// Whether every haproxy of the host answers.
pub(super) async fn look(root: &Root, host: &GuardedHost) -> Seen {
    // At the same time: a frozen one must not delay what is known of the other.
    let asked = async { if host.balances { trouble(HAPROXY, endpoint(ANSWER)).await } else { None } };
    let of_socket =
        async { if host.is(Role::ControlPlane) { trouble(ETCD_BALANCER, socket(root, ANSWER)).await } else { None } };
    let (of_endpoint, of_etcd) = tokio::join!(asked, of_socket);
    let kinds = [FaultKind::BalancerFrozen, FaultKind::EtcdBalancerFrozen].into_iter();
    let found = kinds.zip([of_endpoint, of_etcd]).filter_map(|(kind, why)| Some(Found::new(kind, why?)));
    Some(found.collect())
}

/// Why a haproxy does not serve. One that is suspended is not asked: it would not answer.
async fn trouble<T>(unit: &str, asked: impl Future<Output = Result<T, String>>) -> Option<String> {
    if let suspended @ Runs::Suspended(_) = process::of(unit) {
        return Some(suspended.words(unit));
    }
    let why = asked.await.err()?;
    Some(format!("{}, and {why}", process::of(unit).words(unit)))
}

/// The answer of haproxy to whether the endpoint is usable.
pub(super) async fn endpoint(within: Duration) -> Result<u16, String> {
    answers(&format!("127.0.0.1:{USABLE}"), "/usable", within).await
}

/// Whether the load balancer of this host has a usable API server: without one, no host takes the VIP.
pub async fn is_usable() -> bool {
    endpoint(ANSWER).await == Ok(200)
}

/// Whether the balancer in front of etcd answers on its socket.
pub(super) async fn socket(root: &Root, within: Duration) -> Result<(), String> {
    let asked = async {
        let mut stream = UnixStream::connect(root.own(ETCD_BALANCER_SOCKET)).await?;
        stream.write_all(b"show version\n").await?;
        stream.read_u8().await
    };
    match timeout(within, asked).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{ETCD_BALANCER_SOCKET} does not answer: {error}")),
        Err(_) => Err(format!("{ETCD_BALANCER_SOCKET} does not answer within {} s", within.as_secs())),
    }
}

/// Whether keepalived runs.
pub(super) fn keepalived() -> Vec<Found> {
    match process::of(KEEPALIVED) {
        Runs::As(_) => Vec::new(),
        other => vec![Found::new(FaultKind::KeepalivedFrozen, other.words(KEEPALIVED))],
    }
}

/// Whether an address is on an interface of this host: then the kernel chooses it as the source of what is sent to it.
pub fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(address, ANY_PORT))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_this_host_is_its_own() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        // Reserved for documentation (RFC 5737).
        assert!(!is_own(Ipv4Addr::new(192, 0, 2, 7).into()));
    }
}
