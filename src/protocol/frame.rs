//! Frames: how messages and blobs share one byte stream, on both sides.
//!
//! A frame is a 4-byte big-endian length of the payload, one kind byte, the payload. In: any byte stream. Out: whole
//! frames no larger than [`LARGEST_FRAME`], or a [`FrameError`] that distinguishes a cut stream, a foreign stream and
//! an oversized frame. A payload is allocated as it arrives, so that a claimed length alone costs nothing.

use super::LARGEST_FRAME;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes before the payload.
pub const HEADER: usize = 5;
/// The initial allocation for a payload, before any of it has arrived.
const FIRST_ALLOCATION: usize = 256 << 10;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Kind `J`: a request or a response.
    Json(Vec<u8>),
    /// Kind `B`: a piece of a blob.
    Piece(Vec<u8>),
    /// Kind `E`: the blob is complete.
    End,
}

/// Why no frame could be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream ended inside a frame.
    #[error("the stream ended in the middle of a frame, after {got} of {of} bytes")]
    Truncated {
        /// Bytes of the frame that had arrived.
        got: usize,
        /// Bytes that the frame should have had, header included; [`HEADER`] if even that was incomplete.
        of: usize,
    },
    /// The kind byte is unknown: most likely the other side is not hactl.
    #[error("the stream does not consist of frames: kind byte {:#04x}", header[4])]
    UnknownKind {
        /// The five bytes that were read as a header.
        header: [u8; HEADER],
    },
    /// The frame is larger than either side accepts.
    #[error("a frame of {length} bytes exceeds the limit of {LARGEST_FRAME} bytes")]
    TooLarge {
        /// The length claimed by the header, or that of the message to be written.
        length: usize,
        /// The five bytes that were read as a header; zeros if the frame was to be written.
        header: [u8; HEADER],
    },
    /// The message could not be serialized as JSON.
    #[error("the message could not be serialized as JSON")]
    Encode(#[source] serde_json::Error),
    /// The stream itself failed.
    #[error("the stream failed")]
    Stream(#[from] std::io::Error),
}

/// Writes a message as a `J` frame and flushes.
pub async fn write_json<W: AsyncWrite + Unpin, T: Serialize + Sync>(to: &mut W, message: &T) -> Result<(), FrameError> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, message).map_err(FrameError::Encode)?;
    let header = header(b'J', bytes.len() - HEADER)?;
    bytes[..HEADER].copy_from_slice(&header);
    to.write_all(&bytes).await?;
    Ok(to.flush().await?)
}

/// Writes a piece of a blob as a `B` frame, without flushing.
pub async fn write_piece<W: AsyncWrite + Unpin>(to: &mut W, piece: &[u8]) -> Result<(), FrameError> {
    // One write: on SSH a lone header would travel as a packet of its own.
    let mut bytes = Vec::with_capacity(HEADER + piece.len());
    bytes.extend_from_slice(&header(b'B', piece.len())?);
    bytes.extend_from_slice(piece);
    Ok(to.write_all(&bytes).await?)
}

/// Closes a blob with an `E` frame and flushes.
pub async fn write_end<W: AsyncWrite + Unpin>(to: &mut W) -> Result<(), FrameError> {
    to.write_all(&header(b'E', 0)?).await?;
    Ok(to.flush().await?)
}

/// Reads the next frame; `None` if the stream ends between two frames.
///
/// Not cancel-safe: if dropped halfway, the stream is in the middle of a frame and must not be read any more.
pub async fn read_frame<R: AsyncRead + Unpin>(from: &mut R) -> Result<Option<Frame>, FrameError> {
    let mut header = [0; HEADER];
    let mut got = 0;
    while got < HEADER {
        match from.read(&mut header[got..]).await? {
            0 if got == 0 => return Ok(None),
            0 => return Err(FrameError::Truncated { got, of: HEADER }),
            more => got += more,
        }
    }
    let [a, b, c, d, kind] = header;
    if !matches!(kind, b'J' | b'B' | b'E') {
        return Err(FrameError::UnknownKind { header });
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > LARGEST_FRAME || (kind == b'E' && length > 0) {
        return Err(FrameError::TooLarge { length, header });
    }
    let mut payload = Vec::with_capacity(length.min(FIRST_ALLOCATION));
    from.take(length as u64).read_to_end(&mut payload).await?;
    if payload.len() < length {
        return Err(FrameError::Truncated { got: HEADER + payload.len(), of: HEADER + length });
    }
    Ok(Some(match kind {
        b'J' => Frame::Json(payload),
        b'B' => Frame::Piece(payload),
        _ => Frame::End,
    }))
}

fn header(kind: u8, length: usize) -> Result<[u8; HEADER], FrameError> {
    if length > LARGEST_FRAME {
        return Err(FrameError::TooLarge { length, header: [0; HEADER] });
    }
    let [a, b, c, d] = u32::try_from(length).expect("LARGEST_FRAME fits in 32 bits").to_be_bytes();
    Ok([a, b, c, d, kind])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    async fn read(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        read_frame(&mut &*bytes).await
    }

    proptest! {
        #[test]
        fn frames_survive_any_split_of_their_bytes(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
            window in 1_usize..40,
        ) {
            block(async {
                let (mut near, mut far) = tokio::io::duplex(window);
                let sent = pieces.clone();
                let writer = async move {
                    for piece in &sent {
                        write_piece(&mut near, piece).await.unwrap();
                    }
                    write_end(&mut near).await.unwrap();
                    write_json(&mut near, &sent).await.unwrap();
                };
                let reader = async {
                    for piece in &pieces {
                        assert_eq!(read_frame(&mut far).await.unwrap(), Some(Frame::Piece(piece.clone())));
                    }
                    assert_eq!(read_frame(&mut far).await.unwrap(), Some(Frame::End));
                    let Some(Frame::Json(json)) = read_frame(&mut far).await.unwrap() else { panic!("no message") };
                    assert_eq!(serde_json::from_slice::<Vec<Vec<u8>>>(&json).unwrap(), pieces);
                    assert_eq!(read_frame(&mut far).await.unwrap(), None);
                };
                tokio::join!(writer, reader);
            });
        }

        #[test]
        fn a_frame_cut_anywhere_is_truncated_and_never_a_frame(piece in prop::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>()) {
            block(async {
                let mut whole = Vec::new();
                write_piece(&mut whole, &piece).await.unwrap();
                let cut = at.index(whole.len());
                match read(&whole[..cut]).await {
                    Ok(None) => assert_eq!(cut, 0),
                    Err(FrameError::Truncated { got, .. }) => assert_eq!(got, cut),
                    other => panic!("{other:?}"),
                }
            });
        }

        #[test]
        fn foreign_bytes_cause_no_panic_and_no_buffer_larger_than_the_input(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some(Frame::Json(payload) | Frame::Piece(payload))) = block(read(&bytes)) {
                assert!(payload.len() <= bytes.len());
            }
        }
    }

    #[tokio::test]
    async fn an_oversized_length_an_unknown_kind_and_a_truncation_are_distinguished() {
        assert!(matches!(read(b"\xff\0\0\0J").await, Err(FrameError::TooLarge { length: 0xff00_0000, .. })));
        assert!(matches!(read(b"\0\0\0\x01E.").await, Err(FrameError::TooLarge { .. })));
        assert!(matches!(read(b"Last login").await, Err(FrameError::UnknownKind { header }) if &header == b"Last "));
        assert!(matches!(read(b"\0\0\0\x09B123").await, Err(FrameError::Truncated { got: 8, of: 14 })));
    }

    #[tokio::test]
    async fn a_message_too_large_is_refused_before_a_byte_is_written() {
        let mut out = Vec::new();
        let error = write_piece(&mut out, &vec![0; LARGEST_FRAME + 1]).await.unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { .. }) && out.is_empty());
    }
}
