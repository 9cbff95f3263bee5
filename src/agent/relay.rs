//! A relay: the stream to the administrator carries a connection to a port of this host, where sshd forwards nothing.
//!
//! In: an address and a port. Out: bytes both ways, until both ends have said all or one has failed. Only loopback and the
//! host's own addresses are dialled: a host must not become a way into its network for whoever may run hactl on it.

use crate::agent::Host;
use crate::agent::fault::{Outcome, bad, failed};
use crate::agent::observe::system::addresses;
use crate::agent::parts::Piece;
use crate::agent::session::{Out, ServeError};
use crate::protocol::frame::{write_end, write_piece};
use crate::protocol::{Fault, Reply};
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A connection to oneself is made at once or not at all.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes of one frame.
const PIECE: usize = 32 << 10;

/// Connects to a port of this host.
pub(super) async fn connect(host: &Host, to: IpAddr, port: u16) -> Outcome<TcpStream> {
    host.waits(format!("port {port} of {to}"));
    if !to.is_loopback() && !addresses().await?.iter().any(|own| own.address == to) {
        return Err(bad(format!("{to} is no address of this host: it is not a way to others")));
    }
    let stream = match timeout(CONNECT, TcpStream::connect((to, port))).await {
        Ok(stream) => stream.map_err(|error| failed(format!("port {port} of {to} does not answer: {error}")))?,
        Err(_) => return Err(failed(format!("port {port} of {to} does not answer within {CONNECT:?}"))),
    };
    // A delay at worst.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Carries bytes both ways until both are at their end, or one has failed.
pub(super) async fn carry<W: AsyncWrite + Unpin>(
    stream: TcpStream,
    pieces: &mut mpsc::Receiver<Piece>,
    out: &Out<W>,
) -> Result<Result<Reply, Fault>, ServeError> {
    let (mut from, mut to) = stream.into_split();
    let broken = |error: std::io::Error| End::Fault(failed(format!("the relayed connection broke: {error}")));
    let up = async {
        loop {
            match pieces.recv().await {
                Some(Piece::Bytes(piece)) => to.write_all(&piece).await.map_err(broken)?,
                Some(Piece::End) => return to.shutdown().await.map_err(broken),
                // The session is over, and whoever reads it says so.
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
                return write_end(&mut *out).await.map_err(|error| End::Channel(error.into()));
            }
            write_piece(&mut *out, &piece[..read]).await.map_err(|error| End::Channel(error.into()))?;
            out.flush().await.map_err(|error| End::Channel(ServeError::Frame(error.into())))?;
        }
    };
    match tokio::try_join!(up, down) {
        Ok(((), ())) => Ok(Ok(Reply::Done)),
        Err(End::Fault(fault)) => Ok(Err(fault)),
        Err(End::Channel(error)) => Err(error),
    }
}

/// What ended a relay before its time.
enum End {
    Fault(Fault),
    Channel(ServeError),
}
