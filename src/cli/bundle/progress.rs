//! The progress of a bundle on standard error: one bar on a terminal, otherwise a line from time to time.

use crate::component::{Moment, Progress};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Interval between two progress lines where no bar can be drawn.
const BEAT: Duration = Duration::from_secs(15);

/// Shows the progress of one kind of work.
pub struct Shown {
    bar: Option<ProgressBar>,
    lines: bool,
    state: Mutex<State>,
}

struct State {
    /// Received and total bytes of each transfer.
    parts: BTreeMap<String, (u64, Option<u64>)>,
    stated: Instant,
}

impl Shown {
    /// A bar on a terminal, lines elsewhere, nothing for JSON output.
    pub fn new(json: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !json).then(|| ProgressBar::new(0).with_style(style()));
        let state = State { parts: BTreeMap::new(), stated: Instant::now() };
        Self { bar, lines: !terminal && !json, state: Mutex::new(state) }
    }

    /// Shows the progress of a download.
    pub fn moment(&self, moment: Moment<'_>) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match moment {
            Moment::At { url, what, done, total } => {
                state.parts.insert(url.to_owned(), (done, total));
                let (done, total) = state.sums();
                self.bytes(what, done, Some(total));
                if self.lines && state.stated.elapsed() > BEAT {
                    state.stated = Instant::now();
                    tell!("{} of {} so far; fetching {what}", HumanBytes(done), HumanBytes(total));
                }
            }
            Moment::Again { url, why, pause } => {
                self.say(&format!("{url}: {why}; retrying in {:.1} s", pause.as_secs_f64()));
            }
            Moment::Done { url, what, bytes } => {
                state.parts.insert(url.to_owned(), (bytes, Some(bytes)));
                if self.lines {
                    self.say(&format!("fetched {what}, {}, from {}", HumanBytes(bytes), host(url)));
                }
            }
        }
    }

    /// Shows the progress of compression.
    pub fn packed(&self, progress: Progress<'_>) {
        self.bytes(progress.component, progress.done, Some(progress.total));
    }

    /// Shows the progress of reading or writing one file.
    pub fn bytes(&self, what: &str, done: u64, total: Option<u64>) {
        if let Some(bar) = &self.bar {
            if let Some(total) = total {
                bar.set_length(total);
            }
            bar.set_position(done);
            bar.set_message(what.to_owned());
        }
    }

    /// Clears the bar.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None if self.lines => tell!("{text}"),
            None => {}
        }
    }
}

impl State {
    fn sums(&self) -> (u64, u64) {
        self.parts.values().fold((0, 0), |(d, t), (done, total)| (d + done, t + total.unwrap_or(*done)))
    }
}

/// The server of a URL or image reference.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
