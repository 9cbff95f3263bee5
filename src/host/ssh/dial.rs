//! The stream below an SSH session: a TCP connection, or a channel through a jump host.
//!
//! In: an address. Out: a stream, or which barrier stood in the way: refused, no route and silence call for different remedies.

use super::Session;
use crate::host::access::Access;
use crate::host::counters::Counters;
use crate::host::error::{Barrier, HostError};
use crate::model::desired::SshTarget;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Data that stays unacknowledged for this long means that the host is gone, milliseconds.
const UNACKNOWLEDGED_MS: u32 = 15_000;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens the stream to a host, directly or through `by`.
pub(super) async fn dial(
    target: &SshTarget,
    by: Option<&Session>,
    patience: Duration,
) -> Result<Box<dyn Stream>, HostError> {
    match by {
        Some(session) => Ok(Box::new(session.tunnel(&target.host, target.port).await?.into_stream())),
        None => Ok(Box::new(Prompt { stream: tcp(&target.host, target.port, patience).await?, left: PROMPT_READS })),
    }
}

/// Reads that are acknowledged at once: more than a handshake has.
const PROMPT_READS: u8 = 64;

/// A TCP connection that acknowledges at once what it reads at first. An sshd leaves Nagle's algorithm on until a program
/// runs, and together with the kernel's delayed acknowledgement that costs 40 ms on the way in.
struct Prompt {
    stream: TcpStream,
    left: u8,
}

impl AsyncRead for Prompt {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        if outcome.is_ready() && self.left > 0 {
            self.left -= 1;
            // The kernel forgets the wish as soon as we write; without it things are only slower.
            let _ = rustix::net::sockopt::set_tcp_quickack(&self.stream, true);
        }
        outcome
    }
}

impl AsyncWrite for Prompt {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn tcp(host: &str, port: u16, patience: Duration) -> Result<TcpStream, HostError> {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let failed = |barrier, said: String| HostError::Unreachable { address: address.clone(), barrier, said };
    let addresses: Vec<_> = match timeout(patience, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return Err(failed(Barrier::NoAddress, error.to_string())),
        Err(_) => return Err(failed(Barrier::NoAddress, format!("no answer within {patience:?}"))),
    };
    let mut last = failed(Barrier::NoAddress, String::new());
    for one in addresses {
        match timeout(patience, TcpStream::connect(one)).await {
            Ok(Ok(stream)) => {
                let set = stream
                    .set_nodelay(true)
                    .and_then(|()| Ok(rustix::net::sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS)?));
                match set {
                    Ok(()) => return Ok(stream),
                    Err(error) => last = failed(Barrier::Other, error.to_string()),
                }
            }
            Ok(Err(error)) => {
                last = failed(
                    barrier(&error),
                    if barrier(&error) == Barrier::Other { error.to_string() } else { String::new() },
                );
            }
            Err(_) => last = failed(Barrier::TimedOut, format!("{patience:?}")),
        }
    }
    Err(last)
}

fn barrier(error: &io::Error) -> Barrier {
    match error.kind() {
        ErrorKind::ConnectionRefused => Barrier::Refused,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => Barrier::NoRoute,
        ErrorKind::TimedOut => Barrier::TimedOut,
        ErrorKind::ConnectionReset => Barrier::HungUp,
        _ => Barrier::Other,
    }
}

/// The session with a jump host, shared by every host behind it.
pub(super) async fn jump(text: &str, target: &SshTarget, access: &Access) -> Result<Arc<Session>, HostError> {
    let jump = parse_jump(text, target)?;
    // Held while connecting, so that a hundred hosts do not knock a hundred times.
    let mut jumps = access.jumps.lock().await;
    if let Some(session) = jumps.get(text).filter(|session| session.gone().is_none()) {
        return Ok(session.clone());
    }
    let session = Arc::new(Box::pin(Session::open(&jump, access, Arc::new(Counters::default()))).await?);
    jumps.insert(text.to_owned(), session.clone());
    Ok(session)
}

/// `[user@]host[:port]`, the rest as for the host behind it.
fn parse_jump(text: &str, target: &SshTarget) -> Result<SshTarget, HostError> {
    let bad = |why| HostError::BadJump { text: text.to_owned(), why };
    if text.contains(',') {
        return Err(bad("a chain of jump hosts is not supported, only one"));
    }
    let (user, place) = text.rsplit_once('@').map_or((target.user.as_str(), text), |(user, place)| (user, place));
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(|| bad("a ']' is missing"))?;
        (host, port.strip_prefix(':'))
    } else if place.matches(':').count() == 1 {
        let (host, port) = place.split_once(':').expect("it contains one colon");
        (host, Some(port))
    } else {
        (place, None)
    };
    let port = port.map_or(Ok(22), |port| port.parse().map_err(|_| bad("the port is not a number below 65536")))?;
    if host.is_empty() || user.is_empty() {
        return Err(bad("expected [user@]host[:port]"));
    }
    Ok(SshTarget {
        host: host.to_owned(),
        port,
        user: user.to_owned(),
        fingerprint: None,
        jump: None,
        ..target.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_host_is_understood_or_refused_with_the_reason() {
        let target = SshTarget {
            host: "cp1".into(),
            port: 2222,
            user: "ops".into(),
            identity: None,
            known_hosts: None,
            fingerprint: Some("SHA256:x".into()),
            jump: Some("bastion".into()),
        };
        let told = |text| parse_jump(text, &target).map(|j| (j.user, j.host, j.port, j.fingerprint, j.jump));
        let said = |user: &str, host: &str, port| (user.to_owned(), host.to_owned(), port, None, None);
        assert_eq!(told("bastion").unwrap(), said("ops", "bastion", 22));
        assert_eq!(told("me@bastion:2200").unwrap(), said("me", "bastion", 2200));
        assert_eq!(told("me@[fd00::1]:2200").unwrap(), said("me", "fd00::1", 2200));
        assert_eq!(told("fd00::1").unwrap(), said("ops", "fd00::1", 22));
        for bad in ["a,b", "a:b", "@a", "me@", "[fd00::1"] {
            assert!(matches!(told(bad), Err(HostError::BadJump { .. })), "{bad}");
        }
    }
}
