//! The stream below an SSH session: a TCP connection, or a channel through a jump host.
//!
//! In: an address. Out: a stream, or the reason why there is none: a refused connection, a missing route and a
//! timeout have different remedies.

use super::Session;
use crate::model::desired::SshTarget;
use crate::transport::error::{Barrier, HostError};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Data that stays unacknowledged for this long means that the host is gone, milliseconds.
const UNACKNOWLEDGED_MS: u32 = 15_000;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens the stream to a host, directly or through `by`.
pub(super) async fn dial(
    target: &SshTarget,
    by: Option<&Session>,
    timeout: Duration,
) -> Result<Box<dyn Stream>, HostError> {
    match by {
        Some(session) => match session.tunnel(&target.host, target.port).await {
            Ok(channel) => Ok(Box::new(channel.into_stream())),
            Err(HostError::ForwardingForbidden) => {
                Err(HostError::JumpForbidsForwarding { jump: session.place.clone() })
            }
            Err(HostError::Unreachable { address, barrier, .. }) => {
                Err(HostError::Unreachable { address, barrier, said: format!("seen from {}", session.place) })
            }
            Err(error) => Err(error),
        },
        None => Ok(Box::new(Prompt { stream: tcp(&target.host, target.port, timeout).await?, left: PROMPT_READS })),
    }
}

/// Reads that are acknowledged at once: more than a handshake has.
const PROMPT_READS: u8 = 64;

/// A TCP connection that acknowledges its first reads at once. An sshd leaves Nagle's algorithm on until a program
/// runs, and together with the delayed acknowledgement of the kernel that costs 40 ms per login.
struct Prompt {
    stream: TcpStream,
    left: u8,
}

impl AsyncRead for Prompt {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        if outcome.is_ready() && self.left > 0 {
            self.left -= 1;
            // The kernel forgets this setting as soon as we write; without it the connection is only slower.
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

async fn tcp(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, HostError> {
    let address = SshTarget { port, ..SshTarget::new(host, "") }.address();
    let failed = |barrier, said: String| HostError::Unreachable { address: address.clone(), barrier, said };
    let addresses: Vec<_> = match tokio::time::timeout(timeout, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return Err(failed(Barrier::NoAddress, error.to_string())),
        Err(_) => return Err(failed(Barrier::NoAddress, format!("no answer within {timeout:?}"))),
    };
    let mut last = failed(Barrier::NoAddress, String::new());
    for one in addresses {
        match tokio::time::timeout(timeout, TcpStream::connect(one)).await {
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
            Err(_) => last = failed(Barrier::TimedOut, format!("{timeout:?}")),
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
