//! The three readers of one stream: live bars on a terminal, plain lines elsewhere, JSON lines on request.
//!
//! In: events, from any task. Out: results on standard output, failures on standard error. A reader never blocks work
//! longer than a write takes, and an output that is closed or full never stops work.

use super::bars::picture;
use super::exit::Exit;
use super::harmless::{self, StandardOutput};
use super::json;
use super::lines::Reporter;
use super::live::Live;
use super::style::{Style, size};
use super::verdict::Verdict;
use crate::model::event::{Event, Sink};
use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where a reader writes to.
pub type Output = Box<dyn Write + Send>;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputKind {
    /// Bars on a terminal, else plain lines.
    #[default]
    Auto,
    /// Plain lines, even on a terminal.
    Text,
    /// JSON lines.
    Json,
}

/// A sink that shows events.
pub trait Reader: Sink {
    /// Erases the live display until the next event, and writes pending output. Called before a question is asked.
    fn pause(&self);
    /// Ends the run: pauses, then shows the verdict.
    fn end(&self, verdict: &Verdict);
}

/// The reader for this process's output.
pub fn reader(kind: OutputKind, verbosity: u8) -> Arc<dyn Reader> {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let terminal = io::stdout().is_terminal() && io::stderr().is_terminal() && !dumb;
    match kind {
        OutputKind::Json => Arc::new(JsonReader::new(Box::new(StandardOutput))),
        OutputKind::Auto if terminal => Arc::new(BarReader::new(
            Box::new(StandardOutput),
            Box::new(|| size(io::stdout())),
            Style::stdout(verbosity),
        )),
        OutputKind::Auto | OutputKind::Text => {
            Arc::new(LineReader::new(Box::new(StandardOutput), Box::new(io::stderr()), Style::stdout(verbosity)))
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Readers hold text only, so a panicking thread loses at most one line.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes filtered text. A failed output is no reason to stop work on hosts half-way; standard output remembers it.
fn put(out: &mut dyn Write, text: &str) {
    raw(out, &harmless::text(text));
}

/// Writes unfiltered text, which contains cursor movements.
fn raw(out: &mut dyn Write, text: &str) {
    if !text.is_empty() && out.write_all(text.as_bytes()).is_ok() {
        out.flush().ok();
    }
}

/// JSON lines.
pub struct JsonReader {
    since: Instant,
    inner: Mutex<(json::Lines, Output)>,
}

impl JsonReader {
    /// Writes to `out`.
    pub fn new(out: Output) -> Self {
        Self { since: Instant::now(), inner: Mutex::new((json::Lines::default(), out)) }
    }
}

impl Sink for JsonReader {
    fn emit(&self, event: Event) {
        let mut inner = locked(&self.inner);
        let (lines, out) = &mut *inner;
        if let Some(line) = lines.on(self.since.elapsed(), &event) {
            put(out.as_mut(), &format!("{line}\n"));
        }
    }
}

impl Reader for JsonReader {
    fn pause(&self) {}
    fn end(&self, verdict: &Verdict) {
        put(locked(&self.inner).1.as_mut(), &format!("{}\n", json::Lines::end(self.since.elapsed(), verdict)));
    }
}

/// Plain lines.
pub struct LineReader {
    since: Instant,
    inner: Mutex<(Reporter, Output, Output)>,
}

impl LineReader {
    /// Writes to `out`, and the verdict on a failure to `err`.
    pub fn new(out: Output, err: Output, style: Style) -> Self {
        Self { since: Instant::now(), inner: Mutex::new((Reporter::new(style, true), out, err)) }
    }
}

impl Sink for LineReader {
    fn emit(&self, event: Event) {
        let mut inner = locked(&self.inner);
        let (reporter, out, _) = &mut *inner;
        put(out.as_mut(), &reporter.on(self.since.elapsed(), &event));
    }
}

impl Reader for LineReader {
    fn pause(&self) {
        let mut inner = locked(&self.inner);
        let (reporter, out, _) = &mut *inner;
        put(out.as_mut(), &reporter.flush(self.since.elapsed()));
    }
    fn end(&self, verdict: &Verdict) {
        self.pause();
        let mut inner = locked(&self.inner);
        let (reporter, out, err) = &mut *inner;
        let text = verdict.text(reporter.style());
        let text = reporter.spaced(&format!("\n{text}"));
        put(if verdict.exit == Exit::Done { out.as_mut() } else { err.as_mut() }, &text);
    }
}

/// Live bars, with the permanent output above them.
pub struct BarReader {
    since: Instant,
    screen: Arc<Mutex<Screen>>,
    /// Dropped to end the redrawing thread.
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

type Size = Box<dyn Fn() -> Option<(usize, usize)> + Send>;

struct Screen {
    reporter: Reporter,
    live: Live,
    out: Output,
    size: Size,
    paused: bool,
}

impl Screen {
    fn show(&mut self, at: Duration, kept: &str) {
        let size = (self.size)().unwrap_or((80, 24));
        self.reporter.resize(size.0);
        let lines =
            if self.paused { Vec::new() } else { picture(&self.reporter.progress, at, size, self.reporter.style()) };
        raw(self.out.as_mut(), &self.live.draw(kept, &lines, size.0));
    }
}

impl BarReader {
    /// Draws on the terminal `out`; `size` returns its columns and rows.
    pub fn new(out: Output, size: Size, style: Style) -> Self {
        let since = Instant::now();
        let screen = Screen { reporter: Reporter::new(style, false), live: Live::default(), out, size, paused: true };
        let screen = Arc::new(Mutex::new(screen));
        let (stop, stopped) = channel::<()>();
        let shared = Arc::downgrade(&screen);
        let redraw = move || {
            while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                let Some(screen) = shared.upgrade() else { return };
                let mut screen = locked(&screen);
                if !screen.paused {
                    screen.show(since.elapsed(), "");
                }
            }
        };
        // Without the thread, the display still follows every event; only the spinners stop.
        let thread = std::thread::Builder::new().name("bars".to_owned()).spawn(redraw).ok();
        Self { since, screen, stop: Mutex::new(Some(stop)), thread: Mutex::new(thread) }
    }
}

impl Sink for BarReader {
    fn emit(&self, event: Event) {
        let at = self.since.elapsed();
        let mut screen = locked(&self.screen);
        let kept = screen.reporter.on(at, &event);
        let starts = matches!(event, Event::Phase { .. } | Event::Started { .. });
        let resumes = screen.paused && starts;
        screen.paused &= !starts;
        // Permanent output is written at once. The display waits for its next tick, because a hundred hosts start many
        // steps at once.
        if !kept.is_empty() || resumes {
            screen.show(at, &kept);
        }
    }
}

impl Reader for BarReader {
    fn pause(&self) {
        let at = self.since.elapsed();
        let mut screen = locked(&self.screen);
        screen.paused = true;
        let kept = screen.reporter.flush(at);
        screen.show(at, &kept);
    }
    fn end(&self, verdict: &Verdict) {
        self.pause();
        let mut screen = locked(&self.screen);
        let text = verdict.text(screen.reporter.style());
        let text = screen.reporter.spaced(&format!("\n{text}"));
        screen.show(self.since.elapsed(), &text);
    }
}

impl Drop for BarReader {
    fn drop(&mut self) {
        // A run that ended without a verdict (a panic) must not leave bars behind.
        locked(&self.stop).take();
        if let Some(thread) = locked(&self.thread).take() {
            thread.join().ok();
        }
        let mut screen = locked(&self.screen);
        screen.paused = true;
        screen.show(self.since.elapsed(), "");
    }
}
