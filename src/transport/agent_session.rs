//! An agent session: one `hactl host` process that serves one request at a time.
//!
//! In: a [`Wire`] (an SSH channel or the pipes of a child) and requests. Out: typed answers, what the host waits for
//! meanwhile, and a [`HostError`] for each fault of the other side: garbage, endless output, no heartbeat, a lost
//! connection. A session always reads, idle or not, because an unread SSH channel blocks its whole connection. After
//! a call that was cut short, the session is not [`AgentSession::usable`]: its pending answer would be mistaken for
//! the next one.

mod relay;

use super::error::HostError;
use super::wire::{Exit, ExitReport, Wire, printable};
use crate::protocol::frame::{Frame, FrameError, HEADER, read_frame, write_end, write_json};
use crate::protocol::{DEAD_AFTER_S, Op, OpError, Reply, Request, Response};
use crate::snapshot::Sealed;
use relay::Flow;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, Sleep, interval, sleep};

/// How often the host hears from us, so that it does not consider us gone.
const PING: Duration = Duration::from_secs(5);
/// How much is quoted of a process that does not speak the protocol.
const QUOTED: usize = 200;
/// How long more of such a greeting is waited for, for the quote.
const REST_OF_GARBAGE: Duration = Duration::from_millis(300);
/// Blob bytes per frame: large enough to make framing cheap, small enough for a smooth progress bar.
const PIECE: usize = 128 << 10;

/// The payload of a request.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Nothing.
    None,
    /// The zstd-compressed file that a delivery may ask for.
    Blob(PathBuf),
    /// The same, encrypted: it is decrypted while it is sent.
    Sealed(Sealed),
}

impl Payload {
    /// The file; none if there is no payload.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::None => None,
            Self::Blob(path) => Some(path),
            Self::Sealed(sealed) => Some(sealed.path()),
        }
    }

    /// Its content from a byte on, and its size in bytes. An offset beyond its end yields nothing.
    fn read(&self, from: u64) -> io::Result<(Box<dyn Read + Send>, u64)> {
        match self {
            Self::None => Ok((Box::new(io::empty()), 0)),
            Self::Blob(path) => {
                let mut file = std::fs::File::open(path)?;
                let total = file.metadata()?.len();
                file.seek(io::SeekFrom::Start(from))?;
                Ok((Box::new(file), total))
            }
            Self::Sealed(sealed) => Ok((sealed.read(from)?, sealed.opened())),
        }
    }
}

/// What is known of a call before it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The host waits for something.
    Waiting(String),
    /// Bytes of the blob were sent.
    Sent {
        /// Bytes sent, including those that the host had already.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

/// Receives what is known of a call before it is answered.
pub type Watch<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// How the process began.
#[derive(Debug)]
pub(super) enum Greeting {
    /// `hactl host` speaks.
    Hello,
    /// The program ended without output: most likely it is not installed.
    Ended { exit: Option<Exit>, said: String },
}

type Writer = Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>;
type Answer = (u64, Result<Reply, OpError>);

/// One `hactl host` process.
pub(crate) struct AgentSession {
    writer: Writer,
    answers: mpsc::Receiver<Answer>,
    beats: watch::Receiver<(u64, String)>,
    flow: Arc<Flow>,
    reader: Option<JoinHandle<HostError>>,
    pinger: JoinHandle<()>,
    exit_report: ExitReport,
    next_id: u64,
    clean: bool,
}

impl Drop for AgentSession {
    fn drop(&mut self) {
        // The tasks own the ends of the wire: they end the channel, and the channel ends the process.
        self.pinger.abort();
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

impl AgentSession {
    pub(super) fn over(wire: Wire) -> Self {
        Self::with_patience(wire, Duration::from_secs(DEAD_AFTER_S))
    }

    /// A session that is lost after this much time without a frame.
    fn with_patience(wire: Wire, timeout: Duration) -> Self {
        let (answered, answers) = mpsc::channel(4);
        let (beating, beats) = watch::channel((0, String::new()));
        let writer: Writer = Arc::new(Mutex::new(wire.writer));
        let flow = Arc::new(Flow::default());
        let ear = FrameReader::new(wire.reader, timeout);
        let reader = tokio::spawn(listen(ear, answered, beating, flow.clone(), wire.exit_report.clone()));
        let pinger = tokio::spawn(ping(writer.clone()));
        Self {
            writer,
            answers,
            beats,
            flow,
            reader: Some(reader),
            pinger,
            exit_report: wire.exit_report,
            next_id: 1,
            clean: true,
        }
    }

    /// Whether the next request may be sent here.
    pub(super) fn usable(&self) -> bool {
        self.clean && self.reader.as_ref().is_some_and(|reader| !reader.is_finished())
    }

    /// Waits until the agent speaks for the first time, or is known not to.
    pub(super) async fn greeting(&mut self) -> Result<Greeting, HostError> {
        if self.beats.changed().await.is_ok() {
            return Ok(Greeting::Hello);
        }
        match self.ended().await {
            HostError::Lost { .. } if self.exit_report.exited().is_some() => {
                Ok(Greeting::Ended { exit: self.exit_report.exited(), said: self.exit_report.said() })
            }
            error => Err(error),
        }
    }

    /// Sends one request. Its only deadline is that for missing heartbeats; dropping the future spoils the session.
    pub(super) async fn call(
        &mut self,
        epoch: u64,
        op: Op,
        payload: &Payload,
        watch: Watch<'_>,
    ) -> Result<Reply, HostError> {
        let id = self.next_id;
        self.next_id += 1;
        let fed = matches!(op, Op::Deliver(_) | Op::DeliverSnapshot { .. });
        let request = Request { id, epoch, op: Some(op) };
        self.clean = false;
        let outcome = self.exchange(id, &request, if fed { payload } else { &Payload::None }, watch).await;
        self.clean |= matches!(outcome, Ok(_) | Err(HostError::Op(_))) && self.reader.is_some();
        outcome
    }

    async fn exchange(
        &mut self,
        id: u64,
        request: &Request,
        payload: &Payload,
        watch: Watch<'_>,
    ) -> Result<Reply, HostError> {
        let writer = self.writer.clone();
        let sending = async { write_json(&mut *writer.lock().await, request).await };
        // A host that does not read sends no heartbeats either, which ends the reader; so sending has no deadline of
        // its own.
        let sent = tokio::select! {
            sent = sending => sent,
            early = self.answers.recv() => return Err(self.unasked(early).await),
        };
        if let Err(error) = sent {
            return Err(self.unsent(error).await);
        }
        match self.answer(id, watch).await? {
            Reply::Wanted { from } => {
                let Some(path) = payload.path() else {
                    return Err(HostError::Misanswered { what: "it requests a blob that was not offered".to_owned() });
                };
                self.send_payload(id, (payload, path), from, watch).await
            }
            reply => Ok(reply),
        }
    }

    /// Waits for the answer to `id`, and reports what the host waits for.
    async fn answer(&mut self, id: u64, watch: Watch<'_>) -> Result<Reply, HostError> {
        let mut said = String::new();
        loop {
            tokio::select! {
                biased;
                answer = self.answers.recv() => return match answer {
                    Some((of, outcome)) if of == id => outcome.map_err(HostError::Op),
                    other => Err(self.unasked(other).await),
                },
                Ok(()) = self.beats.changed() => {
                    let (of, on) = self.beats.borrow_and_update().clone();
                    if of == id && on != said {
                        watch(Progress::Waiting(on.clone()));
                        said = on;
                    }
                }
            }
        }
    }

    /// Sends the blob from `from` and waits for the result.
    async fn send_payload(
        &mut self,
        id: u64,
        (payload, path): (&Payload, &Path),
        from: u64,
        watch: Watch<'_>,
    ) -> Result<Reply, HostError> {
        let writer = self.writer.clone();
        let early = tokio::select! {
            sent = send_blob(&writer, payload.clone(), from, watch) => match sent {
                Ok(()) => None,
                Err(Unsent::Blob(source)) => return Err(HostError::BlobUnreadable { path: path.to_owned(), source }),
                Err(Unsent::Beyond { total }) => {
                    return Err(HostError::Misanswered { what: format!("it requests {} from byte {from} of {total}", path.display()) });
                }
                Err(Unsent::Frame(error)) => return Err(self.unsent(error).await),
            },
            early = self.answers.recv() => Some(early),
        };
        match early {
            None => match self.answer(id, watch).await? {
                Reply::Wanted { .. } => Err(HostError::Misanswered { what: "it requests the blob again".to_owned() }),
                reply => Ok(reply),
            },
            // The blob stays incomplete: the fault is the final answer of the host, and this session is spent.
            Some(Some((of, Err(fault)))) if of == id => {
                self.hang_up();
                Err(HostError::Op(fault))
            }
            Some(other) => Err(self.unasked(other).await),
        }
    }

    /// An answer that was not due, or the end of the session.
    async fn unasked(&mut self, answer: Option<Answer>) -> HostError {
        match answer {
            Some((id, _)) => HostError::Misanswered { what: format!("it answers request {id}, which is not open") },
            None => self.ended().await,
        }
    }

    /// A request could not be written: the reader knows more about the reason, if the stream broke.
    async fn unsent(&mut self, error: FrameError) -> HostError {
        match error {
            FrameError::TooLarge { length, .. } => HostError::TooLarge { length },
            FrameError::Encode(error) => {
                HostError::Misanswered { what: format!("the request cannot be written: {error}") }
            }
            _ => self.ended().await,
        }
    }

    async fn ended(&mut self) -> HostError {
        self.clean = false;
        match self.reader.take() {
            Some(reader) => {
                reader.await.unwrap_or_else(|_| HostError::Lost { why: "the session was closed".to_owned() })
            }
            None => HostError::Lost { why: "the session was closed before".to_owned() },
        }
    }

    fn hang_up(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }
}

/// Sends a heartbeat every few seconds. Ends with the session; a failing stream shows at the reader.
async fn ping(writer: Writer) {
    let mut tick = interval(PING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    loop {
        tick.tick().await;
        let ping = Request { id: 0, epoch: 0, op: None };
        if write_json(&mut *writer.lock().await, &ping).await.is_err() {
            return;
        }
    }
}

enum Unsent {
    Blob(io::Error),
    Beyond { total: u64 },
    Frame(FrameError),
}

async fn send_blob(writer: &Writer, payload: Payload, from: u64, watch: Watch<'_>) -> Result<(), Unsent> {
    let (mut content, total) = beside(move || payload.read(from)).await?;
    if from > total {
        return Err(Unsent::Beyond { total });
    }
    let mut done = from;
    // Held to the end: nothing may come between the pieces of a blob, and they count as heartbeats.
    let mut writer = writer.lock().await;
    let mut piece = vec![0; HEADER + PIECE];
    loop {
        let read;
        (content, piece, read) = beside(move || {
            let read = fill(&mut content, &mut piece[HEADER..])?;
            Ok((content, piece, read))
        })
        .await?;
        if read == 0 {
            break;
        }
        let [a, b, c, d] = u32::try_from(read).expect("a piece fits in 32 bits").to_be_bytes();
        piece[..HEADER].copy_from_slice(&[a, b, c, d, b'B']);
        writer.write_all(&piece[..HEADER + read]).await.map_err(|e| Unsent::Frame(e.into()))?;
        done += read as u64;
        watch(Progress::Sent { done, total });
    }
    write_end(&mut *writer).await.map_err(Unsent::Frame)
}

/// Reads and decrypts in a blocking task, concurrently with everything else.
async fn beside<T: Send + 'static>(read: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Unsent> {
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(Unsent::Blob)
}

fn fill(content: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match content.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads for as long as the session lives; the return value is why it ended.
async fn listen(
    mut ear: FrameReader,
    answered: mpsc::Sender<Answer>,
    beating: watch::Sender<(u64, String)>,
    flow: Arc<Flow>,
    exit_report: ExitReport,
) -> HostError {
    let mut spoke = false;
    loop {
        ear.recent.clear();
        let text = match read_frame(&mut ear).await {
            Ok(Some(Frame::Json(text))) => text,
            Ok(Some(Frame::Piece(_) | Frame::End)) if !flow.is_open() => return ear.garbage().await,
            Ok(Some(frame @ (Frame::Piece(_) | Frame::End))) => {
                match flow.bring(if let Frame::Piece(piece) = frame { Some(piece) } else { None }) {
                    Ok(()) => continue,
                    Err(error) => return error,
                }
            }
            Ok(None) => return lost(&exit_report, "it was closed without output"),
            Err(_) if ear.silent => return HostError::Silent { seconds: ear.timeout.as_secs() },
            Err(FrameError::Truncated { .. }) if spoke || ear.recent.is_empty() => {
                return lost(&exit_report, "it was cut in the middle of a message");
            }
            Err(FrameError::TooLarge { length, header }) if !header[..4].iter().all(|&b| text_like(b)) => {
                return HostError::TooLarge { length };
            }
            Err(FrameError::Stream(error)) => return lost(&exit_report, &error.to_string()),
            Err(_) => return ear.garbage().await,
        };
        let Ok(response) = serde_json::from_slice(&text) else { return ear.garbage().await };
        spoke = true;
        match response {
            Response::Heartbeat { id, on } => {
                beating.send_replace((id, printable(on.as_bytes(), 500)));
            }
            Response::Answer { id, outcome } => {
                // The first frame may be an answer.
                beating.send_modify(|_| ());
                if answered.try_send((id, outcome)).is_err() {
                    return HostError::Misanswered { what: "it sends answers without requests".to_owned() };
                }
            }
        }
    }
}

fn text_like(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace() || byte == 0x1b || byte >= 0x80
}

fn lost(exit_report: &ExitReport, otherwise: &str) -> HostError {
    let why = exit_report.sentence();
    HostError::Lost { why: if why.is_empty() { otherwise.to_owned() } else { why } }
}

/// A reader that detects missing heartbeats and keeps the beginning of the current frame, for the quote.
struct FrameReader {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    timeout: Duration,
    deadline: Pin<Box<Sleep>>,
    silent: bool,
    recent: Vec<u8>,
}

impl FrameReader {
    fn new(reader: Box<dyn AsyncRead + Send + Unpin>, timeout: Duration) -> Self {
        Self { reader, timeout, deadline: Box::pin(sleep(timeout)), silent: false, recent: Vec::new() }
    }

    async fn garbage(&mut self) -> HostError {
        let mut more = [0; QUOTED];
        let reading = async { while self.recent.len() < QUOTED && self.read(&mut more).await.is_ok_and(|n| n > 0) {} };
        // A shorter rest does: it is only for the quote.
        let _ = tokio::time::timeout(REST_OF_GARBAGE, reading).await;
        let text = if self.recent.len() > HEADER && matches!(self.recent[4], b'J' | b'B') {
            &self.recent[HEADER..]
        } else {
            &self.recent[..]
        };
        HostError::Garbage { first: printable(text, QUOTED) }
    }
}

impl AsyncRead for FrameReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.reader).poll_read(cx, buf) {
            Poll::Pending => match self.deadline.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) => {
                    self.silent = true;
                    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
                }
            },
            ready @ Poll::Ready(_) => {
                let received = &buf.filled()[before..];
                let room = QUOTED.saturating_sub(self.recent.len());
                self.recent.extend_from_slice(&received[..received.len().min(room)]);
                if !received.is_empty() {
                    let deadline = Instant::now() + self.timeout;
                    self.deadline.as_mut().reset(deadline);
                }
                ready
            }
        }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
