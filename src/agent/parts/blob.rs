//! A blob that follows a request, between the session that reads it and the operation that stores it.
//!
//! In: frames, as the session reads them. Out: pieces. A piece that no operation requested ends the session, so both
//! share what is expected.

use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::mpsc;

/// Whether pieces of a blob are expected: shared by the reader and the operation.
#[derive(Debug, Default)]
pub(crate) struct Appetite(pub(crate) AtomicU8);

impl Appetite {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const WANTED: u8 = 1;
    pub(crate) const SPOILT: u8 = 2;

    /// Pieces will be requested next.
    pub(crate) fn want(&self) {
        self.0.store(Self::WANTED, Ordering::SeqCst);
    }
    /// Pieces in transit are useless from now on.
    pub(crate) fn spoil(&self) {
        // Nothing to spoil if the end has been read already.
        let _ = self.0.compare_exchange(Self::WANTED, Self::SPOILT, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// A piece of a blob, or its end.
#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    End,
}

/// The blob that follows a request.
pub(crate) struct Blob<'a> {
    pub pieces: &'a mut mpsc::Receiver<Piece>,
    pub appetite: &'a Appetite,
    /// Receives the offset from which the blob is requested.
    pub wanted: &'a mpsc::Sender<u64>,
}
