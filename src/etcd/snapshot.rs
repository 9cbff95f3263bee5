//! A snapshot streamed from a member.
//!
//! In: [`Access`] and a writer. Out: the database of the member as etcd's own tool would save it, the file followed
//! by its SHA-256, with that digest verified. Only the member answers: no quorum is required, and nothing is locked
//! in it meanwhile.

use super::{Access, EtcdError, ask};
use crate::model::digester::Digester;
use std::io::Write;
use std::time::Duration;

/// The digest at the end.
const SUM: usize = 32;
const DOING: &str = "send a snapshot";

/// Streams the database of the member into a writer; returns the number of bytes. `within` is the timeout of each
/// piece, not of the whole.
///
/// # Errors
/// See [`EtcdError`]; a stream with a wrong digest, and a failing writer, are transport errors.
pub async fn snapshot(access: &Access, mut to: impl Write, within: Duration) -> Result<u64, EtcdError> {
    let broken = |message: String| EtcdError::Transport { doing: DOING, message };
    let mut link = access.connect(within).await?;
    let mut stream = ask(DOING, within, link.0.snapshot()).await?;
    let mut sum = Digester::new(());
    // The last bytes received: they are the digest, or belong to the file if more follow.
    let mut last: Vec<u8> = Vec::new();
    let mut bytes = 0;
    while let Some(piece) = ask(DOING, within, stream.message()).await? {
        to.write_all(piece.blob()).map_err(|e| broken(format!("cannot write it: {e}")))?;
        bytes += piece.blob().len() as u64;
        last.extend_from_slice(piece.blob());
        let whole = last.len().saturating_sub(SUM);
        sum.add(&last[..whole]);
        last.drain(..whole);
    }
    if last.len() != SUM || sum.so_far().bytes().as_slice() != last {
        return Err(broken("it arrived damaged, or incomplete".to_owned()));
    }
    Ok(bytes)
}
