//! Receives a file from a host in pieces.
//!
//! In: the agent of the host, the announced size, the request for the piece from a byte on. Out: the bytes, never more
//! than announced, within a time that depends on the size. Nothing of the content is verified here.

use super::agent::Agent;
use super::agent_session::Payload;
use super::error::HostError;
use super::transfer::transfer_within;
use crate::protocol::{Op, Reply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::{self, Write};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a host may take for one piece.
const PIECE: Duration = Duration::from_secs(30);

/// Why a file was not received.
#[derive(Debug, thiserror::Error)]
pub enum PiecesError {
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// It answers something else.
    #[error("the host answered something else than a piece of the file")]
    Odd,
    /// It sends too slowly.
    #[error("the host has sent {from} of {bytes} bytes within {} min", .within.as_secs() / 60)]
    TooSlow {
        /// Bytes received.
        from: u64,
        /// Bytes in all.
        bytes: u64,
        /// Its timeout.
        within: Duration,
    },
    /// The file cannot be written.
    #[error("the file cannot be written")]
    Write(#[source] io::Error),
}

/// Writes the pieces that a host sends.
///
/// # Errors
/// See [`PiecesError`]. Some pieces may have been written.
pub async fn receive(
    agent: &dyn Agent,
    bytes: u64,
    to: &mut (impl Write + Send),
    piece: impl Fn(u64) -> Op,
) -> Result<(), PiecesError> {
    let (mut from, within) = (0, transfer_within(bytes));
    let until = Instant::now() + within;
    loop {
        let text = match timeout_at(until, agent.call(piece(from), Payload::None, PIECE, &|_| {})).await {
            Ok(Ok(Reply::Bytes(text))) => text,
            Ok(Ok(_)) => return Err(PiecesError::Odd),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(PiecesError::TooSlow { from, bytes, within }),
        };
        let piece = STANDARD.decode(text).map_err(|_| PiecesError::Odd)?;
        from += piece.len() as u64;
        if piece.is_empty() || from > bytes {
            return Ok(());
        }
        to.write_all(&piece).map_err(PiecesError::Write)?;
    }
}
