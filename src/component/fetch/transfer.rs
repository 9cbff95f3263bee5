//! Downloads one file with retries.
//!
//! In: a place, and the expected digest. Out: a file with exactly this content. An attempt resumes where the previous
//! one ended; only attempts without new bytes are counted.

use super::super::error::BundleError;
use super::error::FetchError;
use super::net::{Net, Opened, Patience, Place, Trouble, Why};
use super::part::Part;
use crate::model::names::Digest;
use futures::StreamExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An event during a download.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// Progress of a file.
    At {
        /// URL or image.
        url: &'a str,
        /// Component and version.
        what: &'a str,
        /// Bytes so far.
        done: u64,
        /// Total size, if known.
        total: Option<u64>,
    },
    /// An attempt failed and will be repeated.
    Again {
        /// URL or image.
        url: &'a str,
        /// The error.
        why: &'a str,
        /// Time until the next attempt.
        pause: Duration,
    },
    /// A file is complete and matches its digest.
    Done {
        /// URL or image.
        url: &'a str,
        /// Component and version.
        what: &'a str,
        /// Its size.
        bytes: u64,
    },
}

/// A file to download.
#[derive(Debug, Clone)]
pub struct Job {
    /// Component and version, for messages.
    pub what: String,
    /// Its place.
    pub place: Place,
    /// Its expected digest.
    pub digest: Digest,
    /// The source of the digest.
    pub by: String,
    /// Size, if a trusted source states it.
    pub size: Option<u64>,
    /// Upper limit of its size.
    pub limit: u64,
}

/// Counts attempts, waits between them, and gives up in the end.
pub struct Retries<'a> {
    timeout: &'a Patience,
    url: String,
    failed: u32,
    most: u64,
}

impl<'a> Retries<'a> {
    /// No attempts yet.
    pub fn new(timeout: &'a Patience, url: String) -> Self {
        Self { timeout, url, failed: 0, most: 0 }
    }

    /// After a failed attempt that left `have` bytes: waits for the next one, or gives up.
    pub async fn after(
        &mut self,
        trouble: Trouble,
        have: u64,
        of: Option<u64>,
        tell: &(dyn Fn(Moment<'_>) + Sync),
    ) -> Result<(), BundleError> {
        let (why, after) = match trouble {
            Trouble::Final(error) => return Err(*error),
            Trouble::Again { why, after } => (why, after),
        };
        // A server that ignores ranges and always breaks at the same byte sends nothing new either.
        if have > self.most {
            self.most = have;
            self.failed = 0;
        }
        self.failed += 1;
        if self.failed >= self.timeout.attempts {
            return Err(self.give_up(why, have, of).into());
        }
        let doubled = self.timeout.pause.saturating_mul(1 << (self.failed - 1).min(10));
        let pause = after.unwrap_or(doubled).min(LONGEST_PAUSE);
        tell(Moment::Again { url: &self.url, why: &words(&why), pause });
        sleep(pause).await;
        Ok(())
    }

    fn give_up(&self, why: Why, have: u64, of: Option<u64>) -> FetchError {
        let (url, attempts) = (self.url.clone(), self.failed);
        match why {
            Why::Silent => FetchError::Slow { url, timeout: self.timeout.unreachable, attempts, have, of },
            Why::Cut(why) => FetchError::Cut { url, attempts, have, of, why },
            Why::Unreachable(why) => FetchError::Unreachable { url, attempts, why },
            Why::Name(why) => FetchError::Name { url, why },
            Why::Status(status, why) => FetchError::Status { url, status, attempts, why },
        }
    }
}

fn words(why: &Why) -> String {
    match why {
        Why::Silent => "no data arrives".to_owned(),
        Why::Cut(why) => format!("cut short: {why}"),
        Why::Unreachable(why) => format!("cannot be reached: {why}"),
        Why::Name(why) => format!("cannot resolve its name: {why}"),
        Why::Status(status, why) => format!("it answers {status}: {why}"),
    }
}

/// Repeats an attempt of which nothing is kept until it succeeds, or until [`Retries`] gives up.
pub async fn repeated<T, F: Future<Output = Result<T, Trouble>>>(
    net: &Net,
    url: String,
    tell: &(dyn Fn(Moment<'_>) + Sync),
    attempt: impl Fn() -> F,
) -> Result<T, BundleError> {
    let mut tries = Retries::new(&net.timeout, url);
    loop {
        match attempt().await {
            Ok(found) => return Ok(found),
            Err(trouble) => tries.after(trouble, 0, None, tell).await?,
        }
    }
}

/// A small text, such as a published checksum.
pub async fn text(
    net: &Net,
    url: &str,
    what: &str,
    largest: u64,
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<String, BundleError> {
    let place = &Place::Http(url.to_owned());
    let content = repeated(net, place.url(), tell, || async move {
        let mut content = Vec::new();
        let mut opened = net.open(place, 0, None, what).await?;
        while let Some(piece) = next(net, &mut opened).await? {
            content.extend_from_slice(&piece);
            if content.len() as u64 > largest {
                return Err(FetchError::TooLarge { url: url.to_owned(), limit: largest }.into());
            }
        }
        Ok(content)
    });
    Ok(String::from_utf8_lossy(&content.await?).into_owned())
}

/// The next bytes of an answer.
async fn next(net: &Net, opened: &mut Opened) -> Result<Option<bytes::Bytes>, Trouble> {
    match tokio::time::timeout(net.timeout.unreachable, opened.body.next()).await {
        Err(_) => Err(Why::Silent.into()),
        Ok(piece) => piece.transpose(),
    }
}

/// The file of a job, its size, and whether anything was transferred for it.
pub async fn get(
    net: &Net,
    dir: &Path,
    job: &Job,
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<(PathBuf, u64, bool), BundleError> {
    let mut part = Part::open(dir, job.digest)?;
    let (looked, found) = off(part, Part::finished).await?;
    part = looked;
    if let Some((path, size)) = found {
        return Ok((path, size, false));
    }
    let url = job.place.url();
    let mut tries = Retries::new(&net.timeout, url.clone());
    let mut of = job.size;
    let mut continued = part.len() > 0;
    loop {
        if let Err(trouble) = attempt(net, job, &mut part, &mut of, tell).await {
            tries.after(trouble, part.len(), of, tell).await?;
            continued |= part.len() > 0;
            continue;
        }
        let (looked, found) = off(part, Part::digest).await?;
        part = looked;
        if found == job.digest {
            let (path, size) = part.finish()?;
            tell(Moment::Done { url: &url, what: &job.what, bytes: size });
            return Ok((path, size, true));
        }
        part.discard()?;
        // Parts of two different versions do not match. Once more, from the start.
        if !std::mem::take(&mut continued) {
            let (expected, found) = (job.digest.hex(), found.hex());
            return Err(FetchError::Checksum { url, by: job.by.clone(), expected, found }.into());
        }
    }
}

/// Runs file I/O outside the network threads.
async fn off<T: Send + 'static>(
    part: Part,
    read: impl FnOnce(&Part) -> Result<T, BundleError> + Send + 'static,
) -> Result<(Part, T), BundleError> {
    let done = tokio::task::spawn_blocking(move || {
        let result = read(&part);
        (part, result)
    });
    match done.await {
        Ok((part, result)) => result.map(|value| (part, value)),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn attempt(
    net: &Net,
    job: &Job,
    part: &mut Part,
    of: &mut Option<u64>,
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<(), Trouble> {
    let url = job.place.url();
    if job.size == Some(part.len()) {
        return Ok(());
    }
    if job.size.is_some_and(|size| part.len() > size) {
        part.discard()?;
    }
    let from = part.len();
    let mut opened = net.open(&job.place, from, part.validator(&url).as_deref(), &job.what).await?;
    if opened.start > from {
        let why = "it sends another part than requested".to_owned();
        return Err(FetchError::NotUnderstood { url, why }.into());
    }
    let total = opened.total.or(*of);
    *of = total;
    let limit = job.size.unwrap_or(job.limit);
    if opened.total.is_some_and(|total| total > limit) {
        return Err(FetchError::TooLarge { url, limit }.into());
    }
    part.begin(opened.start, &url, opened.validator.take())?;
    tell(Moment::At { url: &url, what: &job.what, done: part.len(), total });
    while let Some(piece) = next(net, &mut opened).await? {
        if part.len() + piece.len() as u64 > limit {
            part.discard()?;
            return Err(FetchError::TooLarge { url, limit }.into());
        }
        part.add(&piece)?;
        tell(Moment::At { url: &url, what: &job.what, done: part.len(), total });
    }
    match job.size.or(opened.total) {
        Some(size) if part.len() < size => Err(Why::Cut("the answer ended early".to_owned()).into()),
        _ => Ok(()),
    }
}
