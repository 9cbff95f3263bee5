//! A local port whose connections end at the host: how the Kubernetes API is reached with nothing but SSH.
//!
//! In: an address as the host sees it, and for hosts whose sshd forbids forwarding a function that starts `hactl
//! host`, which then carries each connection through a process of its own. Out: [`Forward::address`]. A reader that
//! falls behind gets some buffer and is then disconnected: its channel shares the connection with every other
//! channel, and an unread channel would block them all.

use super::{Hangup, Session};
use crate::transport::agent_session::AgentSession;
use crate::transport::error::HostError;
use crate::transport::wire::ROOM;
use russh::{Channel, ChannelMsg, client::Msg};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::bytes::Bytes;

/// A local port that leads to an address as seen from the host. It is open until this is dropped.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Forward {
    /// The local address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn through(session: Arc<Session>, host: &str, port: u16) -> Result<Self, HostError> {
        // A refusal shows here rather than as a reset at the first use. Whether something listens there yet does not
        // matter.
        match session.tunnel(host, port).await {
            Ok(channel) => drop(Hangup(Some(channel.split().1))),
            Err(HostError::Unreachable { .. }) => {}
            Err(error) => return Err(error),
        }
        let host = host.to_owned();
        Self::listening(move |stream| {
            let (session, host) = (session.clone(), host.clone());
            async move {
                // The client sees a failure as a closed connection; the caller of the API reports it.
                if let Ok(channel) = session.tunnel(&host, port).await {
                    carry(stream, channel).await;
                }
            }
        })
        .await
    }

    /// Through the agent, where sshd forbids forwarding: each connection is carried by a process of its own, which
    /// dials nothing but its own host.
    pub(crate) async fn relayed<S, F>(start: S, to: IpAddr, port: u16) -> Result<Self, HostError>
    where
        S: Fn() -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<AgentSession, HostError>> + Send,
    {
        // A refusal shows here, as above; the first connection uses this process.
        let first = Arc::new(Mutex::new(Some(start().await?)));
        Self::listening(move |stream| {
            let (start, first) = (start.clone(), first.clone());
            async move {
                let ready = first.lock().unwrap_or_else(PoisonError::into_inner).take().filter(AgentSession::usable);
                let line = match ready {
                    Some(line) => Ok(line),
                    None => start().await,
                };
                // The client sees a failure as a closed connection, as above.
                if let Ok(line) = line {
                    let _ = line.relay(to, port, stream).await;
                }
            }
        })
        .await
    }

    /// Without SSH, on this very machine.
    pub(crate) async fn direct(host: &str, port: u16) -> Result<Self, HostError> {
        let host = host.to_owned();
        Self::listening(move |mut stream| {
            let host = host.clone();
            async move {
                if let Ok(mut far) = TcpStream::connect((host.as_str(), port)).await {
                    // Either side may end the connection in any manner.
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
                }
            }
        })
        .await
    }

    async fn listening<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Result<Self, HostError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(HostError::NoLocalPort)?;
        let address = listener.local_addr().map_err(HostError::NoLocalPort)?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => {
                            // A delay at worst.
                            let _ = stream.set_nodelay(true);
                            connections.spawn(serve(stream));
                        }
                        // Out of file descriptors, for example: open connections continue, and the next accept may
                        // work again.
                        Err(_) => tokio::task::yield_now().await,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries bytes in both directions until both have ended, or one has failed.
async fn carry(stream: TcpStream, channel: Channel<Msg>) {
    let (mut far_read, far_write) = channel.split();
    let hangup = Hangup(Some(far_write));
    let (mut near_read, mut near_write) = stream.into_split();
    let (queue, mut queued) = mpsc::unbounded_channel::<Bytes>();
    let waiting = Arc::new(AtomicUsize::new(0));

    let up = async {
        let mut piece = vec![0; 32 << 10];
        loop {
            let read = near_read.read(&mut piece).await.map_err(drop)?;
            if read == 0 {
                return hangup.writer().eof().await.map_err(drop);
            }
            hangup.writer().data_bytes(Bytes::copy_from_slice(&piece[..read])).await.map_err(drop)?;
        }
    };
    let room = waiting.clone();
    let intake = async move {
        loop {
            match far_read.wait().await {
                Some(ChannelMsg::Data { data }) => {
                    if room.fetch_add(data.len(), Relaxed) > ROOM || queue.send(data).is_err() {
                        return Err(());
                    }
                }
                Some(ChannelMsg::Eof | ChannelMsg::Close) | None => return Ok(()),
                Some(_) => {}
            }
        }
    };
    let down = async {
        while let Some(piece) = queued.recv().await {
            near_write.write_all(&piece).await.map_err(drop)?;
            waiting.fetch_sub(piece.len(), Relaxed);
        }
        near_write.shutdown().await.map_err(drop)
    };
    // A failure of one direction ends the others; dropping them closes the connection.
    let _: Result<_, ()> = tokio::try_join!(up, intake, down);
}
