//! What talking to a host has cost: bytes, connections, processes.
//!
//! In: counted by the carriers. Out: a [`Traffic`] for the run's summary and for the tests that hold hactl to its figures.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What was sent and started so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent to the host, encryption included.
    pub sent: u64,
    /// Bytes received from the host, encryption included.
    pub received: u64,
    /// Programs started on the host.
    pub execs: u64,
    /// Connections opened to the host.
    pub connections: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    execs: AtomicU64,
    connections: AtomicU64,
}

impl Counters {
    pub(super) fn exec(&self) {
        self.execs.fetch_add(1, Relaxed);
    }
    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            execs: self.execs.load(Relaxed),
            connections: self.connections.load(Relaxed),
        }
    }
}

/// A stream that counts what passes through it.
#[derive(Debug)]
pub(super) struct Counted<S> {
    pub(super) stream: S,
    pub(super) counters: Arc<Counters>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.counters.received.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = outcome {
            self.counters.sent.fetch_add(written as u64, Relaxed);
        }
        outcome
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
