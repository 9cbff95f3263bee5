//! Heartbeats between guards: over mutual TLS, each guard sends its own to every other one, once a second, on a
//! connection of its own. Nothing is answered.
//!
//! In: the shared state, the TLS configurations. Out: heartbeats received and checked, and, for a guard that is not
//! heard, whether any port of its host answers. A connection counts only if its certificate and its source address
//! are those of one host of the policy.

use super::shared::Shared;
use crate::model::healing::{GuardedHost, HEARTBEAT_PORT};
use crate::model::heartbeat::Heartbeat;
use crate::model::ports::{ETCD_CLIENTS, KUBELET};
use crate::transport::mtls::{self, CONNECT};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Between two heartbeats.
const EVERY: Duration = Duration::from_secs(1);
/// The largest heartbeat, bytes: 32 faults and 100 hosts fit.
const LARGEST: usize = 32 << 10;
/// A connection that sends nothing for so long is closed.
const QUIET: Duration = Duration::from_secs(30);
/// Before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// Handshakes of strangers at the same time.
const AT_ONCE: usize = 16;
/// Between two attempts at the ports of a host that is not heard.
const DIAL_EVERY: Duration = Duration::from_secs(3);
/// How long a port may take to answer: with the pause less than it takes to miss a guard.
const DIAL: Duration = Duration::from_secs(2);
const SSH: u16 = 22;

fn frames<T: tokio::io::AsyncRead + tokio::io::AsyncWrite>(stream: T) -> Framed<T, LengthDelimitedCodec> {
    LengthDelimitedCodec::builder().max_frame_length(LARGEST).new_framed(stream)
}

/// Receives heartbeats until the guard ends.
pub(super) async fn receive(shared: Arc<Shared>, server: ServerConfig, authorities: Vec<CertificateDer<'static>>) {
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let address = SocketAddr::new(shared.own.address, HEARTBEAT_PORT);
    let authorities: Arc<[_]> = authorities.into();
    let free = Arc::new(Semaphore::new(AT_ONCE));
    let listener = shared.listen(address, "receive heartbeats", PAUSE).await;
    loop {
        // Too many open files, for example: the connections that are open go on.
        let Ok((stream, from)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // Strangers are refused before anything of them is read.
        let Some(host) = shared.host_at(from.ip()) else { continue };
        let Ok(handshake) = Arc::clone(&free).try_acquire_owned() else { continue };
        let (shared, acceptor, authorities) = (Arc::clone(&shared), acceptor.clone(), Arc::clone(&authorities));
        tokio::spawn(async move {
            let accepted = timeout(CONNECT, acceptor.accept(stream)).await;
            drop(handshake);
            let stream = match accepted {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return shared.refused(from.ip(), &error.to_string()),
                Err(_) => return shared.refused(from.ip(), "the TLS handshake took too long"),
            };
            match mtls::is_guard_of(&host.name, stream.get_ref().1.peer_certificates(), &authorities) {
                Ok(()) => listen(&shared, &host, stream).await,
                Err(why) => shared.refused(from.ip(), &why.to_string()),
            }
        });
    }
}

/// Receives the heartbeats of one connection.
async fn listen(
    shared: &Shared,
    host: &GuardedHost,
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
) {
    let mut frames = frames(stream);
    while let Ok(Some(Ok(frame))) = timeout(QUIET, frames.next()).await {
        let refused = match serde_json::from_slice::<Heartbeat>(&frame) {
            Ok(heartbeat) => shared.with(|state| state.received(&host.name, heartbeat, shared.now())),
            Err(error) => Err(format!("it is not one: {error}")),
        };
        if let Err(why) = refused {
            shared.say_once(&format!("the heartbeat of {} is not used: {why}", host.name));
        }
    }
}

/// Sends heartbeats to one other guard until the guard ends.
pub(super) async fn send(
    shared: Arc<Shared>,
    to: GuardedHost,
    client: Arc<ClientConfig>,
    authorities: Vec<CertificateDer<'static>>,
) {
    let connector = TlsConnector::from(client);
    loop {
        let Err(error) = keep_sending(&shared, &to, &connector, &authorities).await;
        let trouble = error.to_string();
        if shared.with(|state| state.sent(&to.name, &trouble)) {
            shared.say(&format!("heartbeats do not reach {}: {trouble}", to.name));
        }
        sleep(PAUSE).await;
    }
}

/// Connects and sends; returns only with an error.
async fn keep_sending(
    shared: &Shared,
    to: &GuardedHost,
    connector: &TlsConnector,
    authorities: &[CertificateDer<'static>],
) -> io::Result<std::convert::Infallible> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let address = SocketAddr::new(to.address, HEARTBEAT_PORT);
    let stream = mtls::dial(shared.own.address, (&to.name, address), connector, authorities).await?;
    let mut frames = frames(stream);
    let mut turn = interval(EVERY);
    let mut first = true;
    loop {
        turn.tick().await;
        let heartbeat = shared.with(|state| state.heartbeat(shared.now()));
        let text = serde_json::to_vec(&heartbeat).map_err(io::Error::other)?;
        timeout(CONNECT, frames.send(Bytes::from(text))).await.map_err(late)??;
        if first && shared.with(|state| state.sent(&to.name, "")) {
            shared.say(&format!("heartbeats reach {}", to.name));
        }
        first = false;
    }
}

/// Dials the ports of one other host as long as its guard is not heard.
pub(super) async fn dial(shared: Arc<Shared>, host: GuardedHost) {
    let ports = [SSH, ETCD_CLIENTS, shared.api_port, KUBELET, HEARTBEAT_PORT];
    loop {
        sleep(DIAL_EVERY).await;
        if shared.with(|state| state.hears(&host.name, shared.now())) {
            continue;
        }
        let tries = ports.map(|port| answers(SocketAddr::new(host.address, port)));
        let answered = futures::future::join_all(tries).await.contains(&true);
        shared.with(|state| state.dialled(&host.name, answered));
    }
}

/// Whether a port answers: a refusal is an answer of the host, too.
async fn answers(address: SocketAddr) -> bool {
    match timeout(DIAL, TcpStream::connect(address)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}
