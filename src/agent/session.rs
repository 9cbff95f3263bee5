//! One session: reads frames, performs requests in order, answers, sends heartbeats, and ends in time.
//!
//! In: a byte stream to read and one to write. Out: the end of the stream (fine) or a [`ServeError`]. Reading
//! continues while an operation runs, so that a closed stream or missing heartbeats end it; leaving this function
//! drops the operation, which kills the programs it runs.

use crate::agent::admission::Caller;
use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::op_error::{bad, failed};
use crate::agent::parts::blob::{Appetite, Blob, Piece};
use crate::agent::parts::clear_interrupted;
use crate::agent::perform::{panicked, perform};
use crate::agent::pki::tls::install_provider;
use crate::agent::{lock, relay};
use crate::protocol::changes;
use crate::protocol::frame::{Frame, FrameError, read_frame, write_json};
use crate::protocol::{DEAF_AFTER_S, Op, OpError, Reply, Request, Response};
use futures::FutureExt;
use futures::future::{BoxFuture, pending, select_all};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Requests that may be queued; a client that sends more is broken.
const QUEUE: usize = 1024;
/// Pieces of a blob that may wait for the disk; then reading pauses, and the sender with it.
const PIECES: usize = 8;
/// The interval of the heartbeats to the client.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Why a session ended before its stream did.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The stream has no valid frames.
    #[error("the channel to the administrator's hactl failed")]
    Frame(#[from] FrameError),
    /// A message is not a request.
    #[error("a message on the channel is not a request")]
    NotARequest(#[source] serde_json::Error),
    /// A piece of a blob came without a request for it.
    #[error("a piece of a blob came without a request for it")]
    StrayPiece,
    /// Far more requests than a client has reason to send.
    #[error("more than {QUEUE} requests are waiting")]
    TooMany,
    /// The client sent nothing.
    #[error("the administrator's hactl sent nothing for {DEAF_AFTER_S} s")]
    Deaf,
}

type Out<W> = Arc<Mutex<W>>;

/// Serves this host until the stream ends, or a signal arrives: the running programs must end with us in both cases.
///
/// The caller should exit the process without waiting for threads: an interrupted operation may still be in a system
/// call.
pub async fn serve<R, W>(stdin: R, stdout: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let mut ends = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()].map(signal);
    // If a signal cannot be handled, its default action ends the process.
    let mut signalled: Vec<BoxFuture<'_, Option<()>>> = vec![Box::pin(pending())];
    for end in ends.iter_mut().flatten() {
        signalled.push(Box::pin(end.recv()));
    }
    tokio::select! {
        outcome = serve_at(Root::host(), stdin, stdout) => outcome,
        _ = select_all(signalled) => Ok(()),
    }
}

/// Serves a directory as if it were a host, for tests.
pub async fn serve_at<R, W>(root: Root, stdin: R, stdout: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_as(root, Caller::Person, stdin, stdout).await
}

/// Serves a caller.
pub async fn serve_as<R, W>(root: Root, caller: Caller, stdin: R, stdout: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    install_provider();
    let out: Out<W> = Arc::new(Mutex::new(stdout));
    let host = Host::new(root);
    let current = Arc::new(AtomicU64::new(0));
    let appetite = Arc::new(Appetite::default());
    let (requests, queue) = mpsc::channel(QUEUE);
    let (pieces, blob) = mpsc::channel(PIECES);
    // Dropping the set aborts its tasks, so that nothing reads or writes the stream after this function.
    let mut tasks = JoinSet::new();
    tasks.spawn(read(stdin, requests, pieces, appetite.clone()));
    tasks.spawn(heartbeats(host.clone(), current.clone(), out.clone()));
    tokio::select! {
        ended = tasks.join_next() => match ended {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) | None => Ok(()),
        },
        outcome = work(&host, &caller, queue, blob, (&appetite, &current), &out) => outcome,
    }
}

/// Reads frames; ends with the stream.
async fn read<R: AsyncRead + Unpin>(
    mut stdin: R,
    requests: mpsc::Sender<Request>,
    pieces: mpsc::Sender<Piece>,
    appetite: Arc<Appetite>,
) -> Result<(), ServeError> {
    loop {
        let frame = timeout(Duration::from_secs(DEAF_AFTER_S), read_frame(&mut stdin)).await;
        match frame.map_err(|_| ServeError::Deaf)?? {
            None => return Ok(()),
            Some(Frame::Json(text)) => {
                let request: Request = serde_json::from_slice(&text).map_err(ServeError::NotARequest)?;
                if request.op.is_some() {
                    requests.try_send(request).map_err(|_| ServeError::TooMany)?;
                }
            }
            Some(Frame::Piece(piece)) => match appetite.0.load(Ordering::SeqCst) {
                Appetite::WANTED => {
                    // The receiver is gone only when the session is.
                    let _ = pieces.send(Piece::Bytes(piece)).await;
                }
                Appetite::SPOILT => {}
                _ => return Err(ServeError::StrayPiece),
            },
            Some(Frame::End) => match appetite.0.swap(Appetite::NONE, Ordering::SeqCst) {
                Appetite::WANTED => {
                    let _ = pieces.send(Piece::End).await;
                }
                Appetite::SPOILT => {}
                _ => return Err(ServeError::StrayPiece),
            },
        }
    }
}

async fn heartbeats<W: AsyncWrite + Unpin>(host: Host, current: Arc<AtomicU64>, out: Out<W>) -> Result<(), ServeError> {
    let mut tick = interval(HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let beat = Response::Heartbeat { id: current.load(Ordering::SeqCst), on: host.waiting_on() };
        write_json(&mut *out.lock().await, &beat).await?;
    }
}

async fn work<W: AsyncWrite + Unpin>(
    host: &Host,
    caller: &Caller,
    mut queue: mpsc::Receiver<Request>,
    mut pieces: mpsc::Receiver<Piece>,
    (appetite, current): (&Appetite, &AtomicU64),
    out: &Out<W>,
) -> Result<(), ServeError> {
    let mut held = None;
    while let Some(Request { id, epoch, op: Some(op) }) = queue.recv().await {
        current.store(id, Ordering::SeqCst);
        // The reader processed everything before this request: the rest of a failed blob is all there.
        while pieces.try_recv().is_ok() {}
        let outcome = match op {
            Op::Lock { holder } => match caller.locks(&host.root, holder) {
                Ok((holder, rank)) => take_lock(host, &mut held, holder, rank).await,
                Err(fault) => Err(fault),
            },
            Op::Unlock => {
                held = None;
                Ok(Reply::Done)
            }
            Op::Relay { .. } if !caller.is_person() => Err(bad("a guard does not ask for connections")),
            Op::Relay { to, port } => match relay::connect(host, to, port).await {
                Ok(stream) => {
                    // Before the client can send: the following pieces are for the stream.
                    appetite.want();
                    answer(out, id, Ok(Reply::Connected)).await?;
                    relay::carry(stream, &mut pieces, out).await?
                }
                Err(fault) => Err(fault),
            },
            op => {
                let (wanted, mut wants) = mpsc::channel(1);
                let mut blob = Blob { pieces: &mut pieces, appetite, wanted: &wanted };
                let doing = AssertUnwindSafe(guarded(host, caller, epoch, op, &mut blob)).catch_unwind();
                tokio::pin!(doing);
                let outcome = loop {
                    tokio::select! {
                        outcome = &mut doing => break outcome,
                        Some(from) = wants.recv() => answer(out, id, Ok(Reply::Wanted { from })).await?,
                    }
                };
                outcome.unwrap_or_else(|cause| Err(panicked(&*cause)))
            }
        };
        // Makes space for a reader that waits for a full queue of useless pieces.
        appetite.spoil();
        while pieces.try_recv().is_ok() {}
        host.waits("");
        current.store(0, Ordering::SeqCst);
        answer(out, id, outcome).await?;
    }
    // The reader has ended, and its own outcome explains why.
    pending().await
}

async fn take_lock(
    host: &Host,
    held: &mut Option<lock::Held>,
    holder: String,
    rank: lock::Rank,
) -> Result<Reply, OpError> {
    if let Some(lock) = held {
        let wanted = host.root.blocking(|root| Ok(lock::is_wanted(root))).await?;
        return Ok(Reply::Locked { epoch: lock.epoch, wanted });
    }
    host.waits("the lock of this host");
    let taken = host.root.blocking(move |root| {
        let taken = lock::take(root, &holder, rank)?;
        if taken.is_ok() {
            // The previous holder is gone, and the results of its checks are useless.
            clear_interrupted(root)?;
        }
        Ok(taken)
    });
    Ok(match taken.await? {
        Ok(lock) => Reply::Locked { epoch: held.insert(lock).epoch, wanted: false },
        Err(lock::Other { by, since, yields }) => Reply::Held { by, since, yields },
    })
}

/// Performs an operation, with the lock that it requires.
async fn guarded(host: &Host, caller: &Caller, epoch: u64, op: Op, blob: &mut Blob<'_>) -> Result<Reply, OpError> {
    let op = Box::pin(caller.admits(host, op)).await?;
    let enter = move |root: &Root| lock::enter(root, epoch);
    let _busy = if changes(&op) { Some(host.root.blocking(enter).await?) } else { None };
    Box::pin(perform(host, op, blob)).await
}

async fn answer<W: AsyncWrite + Unpin>(
    out: &Out<W>,
    id: u64,
    outcome: Result<Reply, OpError>,
) -> Result<(), ServeError> {
    let mut out = out.lock().await;
    match write_json(&mut *out, &Response::Answer { id, outcome }).await {
        Err(FrameError::TooLarge { length, .. }) => {
            let fault = failed(format!("the answer of {length} bytes does not fit into a frame"));
            Ok(write_json(&mut *out, &Response::Answer { id, outcome: Err(fault) }).await?)
        }
        outcome => Ok(outcome?),
    }
}
