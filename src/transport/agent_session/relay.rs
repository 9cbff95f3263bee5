//! An agent session as a tunnel: its process carries one connection, and is spent afterwards.
//!
//! In: a port of the host, and a local connection. Out: bytes in both directions until both ends have closed. Bytes
//! from the host wait in memory while the local side does not read, up to a limit, as in a tunnel of sshd: an unread
//! channel would block all others of the connection.

use super::super::error::HostError;
use super::super::wire::ROOM;
use super::{AgentSession, Payload};
use crate::protocol::frame::{write_end, write_piece};
use crate::protocol::{Op, Reply};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Bytes of one frame.
const PIECE: usize = 32 << 10;

type Piece = Option<Vec<u8>>;

/// What a relay has received and nobody has read yet. Closed until a relay is requested: earlier pieces are invalid.
pub(super) struct Flow {
    open: AtomicBool,
    waiting: AtomicUsize,
    to: mpsc::UnboundedSender<Piece>,
    from: Mutex<Option<mpsc::UnboundedReceiver<Piece>>>,
}

impl Default for Flow {
    fn default() -> Self {
        let (to, from) = mpsc::unbounded_channel();
        Self { open: AtomicBool::new(false), waiting: AtomicUsize::new(0), to, from: Mutex::new(Some(from)) }
    }
}

impl Flow {
    pub(super) fn is_open(&self) -> bool {
        self.open.load(SeqCst)
    }

    /// Adds a piece, or the end.
    pub(super) fn bring(&self, piece: Piece) -> Result<(), HostError> {
        let length = piece.as_ref().map_or(0, Vec::len);
        let waiting = self.waiting.fetch_add(length, SeqCst) + length;
        if waiting > ROOM || self.to.send(piece).is_err() {
            return Err(HostError::Lost { why: "the data of a tunnel was not read".to_owned() });
        }
        Ok(())
    }
}

impl AgentSession {
    /// Carries a connection to a port of the host. The session ends with it.
    pub(crate) async fn relay(mut self, to: IpAddr, port: u16, stream: TcpStream) -> Result<(), HostError> {
        let flow = self.flow.clone();
        let taken = flow.from.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut brought) = taken else {
            return Err(HostError::Misanswered { what: "this session has carried a connection before".to_owned() });
        };
        flow.open.store(true, SeqCst);
        match self.call(0, Op::Relay { to, port }, &Payload::None, &|_| {}).await? {
            Reply::Connected => {}
            other => return Err(HostError::Misanswered { what: format!("{other:?} instead of a connection") }),
        }
        let (mut near_read, mut near_write) = stream.into_split();
        let writer = self.writer.clone();
        let broken =
            |error: std::io::Error| HostError::Lost { why: format!("the local end of a tunnel failed: {error}") };
        let gone = |_| HostError::Lost { why: "the remote end of a tunnel was closed".to_owned() };
        let up = async {
            let mut piece = vec![0; PIECE];
            loop {
                let read = near_read.read(&mut piece).await.map_err(broken)?;
                let mut writer = writer.lock().await;
                if read == 0 {
                    return write_end(&mut *writer).await.map_err(gone);
                }
                write_piece(&mut *writer, &piece[..read]).await.map_err(gone)?;
                writer.flush().await.map_err(|error| HostError::Lost { why: error.to_string() })?;
            }
        };
        let down = async {
            while let Some(Some(piece)) = brought.recv().await {
                near_write.write_all(&piece).await.map_err(broken)?;
                flow.waiting.fetch_sub(piece.len(), SeqCst);
            }
            near_write.shutdown().await.map_err(broken)
        };
        let both = async { tokio::try_join!(up, down).map(|_| ()) };
        tokio::pin!(both);
        // The second answer comes when both directions have ended there; before that it reports what broke.
        let early = tokio::select! {
            both = &mut both => return both,
            answer = self.answers.recv() => answer,
        };
        match early {
            Some((_, Err(fault))) => Err(HostError::Op(fault)),
            // Everything has arrived, but perhaps not all of it is written yet.
            Some((_, Ok(_))) => both.await,
            None => Err(self.ended().await),
        }
    }
}
