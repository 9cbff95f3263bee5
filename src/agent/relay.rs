//! A relay: the stream to the administrator carries a connection to a port of this host if sshd forbids forwarding.
//!
//! In: an address and a port. Out: bytes in both directions, until both ends have closed or one has failed. Only
//! loopback and the addresses of the host are dialled: a user of hactl on this host must not gain access to its
//! network.

use crate::agent::host::Host;
use crate::agent::machine::addresses::addresses;
use crate::agent::op_error::{Outcome, bad, failed};
use crate::agent::parts::blob::Piece;
use crate::protocol::frame::{FrameError, write_end, write_piece};
use crate::protocol::{OpError, Reply};
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

/// A connection to this host itself succeeds at once or not at all.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes of one frame.
const PIECE: usize = 32 << 10;

/// Connects to a port of this host.
pub(super) async fn connect(host: &Host, to: IpAddr, port: u16) -> Outcome<TcpStream> {
    host.waits(format!("port {port} of {to}"));
    if !to.is_loopback() && !addresses().await?.iter().any(|own| own.address == to) {
        return Err(bad(format!(
            "{to} is not an address of this host: hactl relays connections only to the host itself"
        )));
    }
    let stream = match timeout(CONNECT, TcpStream::connect((to, port))).await {
        Ok(stream) => stream.map_err(|error| failed(format!("port {port} of {to} does not answer: {error}")))?,
        Err(_) => return Err(failed(format!("port {port} of {to} does not answer within {CONNECT:?}"))),
    };
    // A delay at worst.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Carries bytes in both directions until both have ended, or one has failed.
pub(super) async fn carry<W: AsyncWrite + Unpin>(
    stream: TcpStream,
    pieces: &mut mpsc::Receiver<Piece>,
    out: &Mutex<W>,
) -> Result<Result<Reply, OpError>, FrameError> {
    let (mut from, mut to) = stream.into_split();
    let broken = |error: std::io::Error| End::Op(failed(format!("the relayed connection broke: {error}")));
    let up = async {
        loop {
            match pieces.recv().await {
                Some(Piece::Bytes(piece)) => to.write_all(&piece).await.map_err(broken)?,
                Some(Piece::End) => return to.shutdown().await.map_err(broken),
                // The session is over, and its reader reports that.
                None => std::future::pending::<()>().await,
            }
        }
    };
    let down = async {
        let mut piece = vec![0; PIECE];
        loop {
            let read = from.read(&mut piece).await.map_err(broken)?;
            let mut out = out.lock().await;
            if read == 0 {
                return write_end(&mut *out).await.map_err(End::Channel);
            }
            write_piece(&mut *out, &piece[..read]).await.map_err(End::Channel)?;
            out.flush().await.map_err(|error| End::Channel(error.into()))?;
        }
    };
    match tokio::try_join!(up, down) {
        Ok(((), ())) => Ok(Ok(Reply::Done)),
        Err(End::Op(fault)) => Ok(Err(fault)),
        Err(End::Channel(error)) => Err(error),
    }
}

/// The reason why a relay ended early.
enum End {
    Op(OpError),
    Channel(FrameError),
}
