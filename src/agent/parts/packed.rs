//! A snapshot in transit: compressed, with the digests of both forms.
//!
//! In: a reader. Out: a [`SnapshotBlob`].

use crate::agent::op_error::{Explain, Outcome};
use crate::model::blob::SnapshotBlob;
use crate::model::digester::Digester;
use std::io::{Read, Write};
use std::path::Path;

const WINDOW: usize = 1 << 20;

/// The trailer after the bytes of the database in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The input is a snapshot already.
    There,
    /// Append its SHA-256, which makes it a snapshot.
    Digester,
}

/// Compresses `from` into `to`, and copies the snapshot as it is to `copy`; `at` is its source, for messages.
pub(crate) fn packed<W: Write>(
    mut from: impl Read,
    end: End,
    at: &Path,
    (to, mut copy): (W, impl Write),
) -> Outcome<(W, SnapshotBlob)> {
    let packing = zstd::Encoder::new(Digester::new(to), 1).explain("compress", at)?;
    let (mut whole, mut window) = (Digester::new(packing), vec![0; WINDOW]);
    loop {
        let read = from.read(&mut window).explain("read", at)?;
        if read == 0 {
            break;
        }
        whole.write_all(&window[..read]).explain("compress", at)?;
        copy.write_all(&window[..read]).explain("copy", at)?;
    }
    if end == End::Digester {
        let store = whole.so_far();
        whole.write_all(store.bytes()).explain("compress", at)?;
        copy.write_all(store.bytes()).explain("copy", at)?;
    }
    let (packing, digest, size) = whole.finish();
    let (to, sent_digest, sent_size) = packing.finish().explain("compress", at)?.finish();
    Ok((to, SnapshotBlob { digest, size, sent_digest, sent_size }))
}
