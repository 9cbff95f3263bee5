//! Why something could not be fetched, in words that name the place asked.
//!
//! In: what an attempt ran into. Out: one variant for each thing a person would do something else about.

use super::super::publishers::NoRelease;
use std::path::PathBuf;
use std::time::Duration;

/// Why a download ended without its file.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Nothing is known to fetch.
    #[error(transparent)]
    NoRelease(#[from] NoRelease),
    /// The client itself cannot be made.
    #[error("no connections can be made from this machine: {why}")]
    NoClient {
        /// What the library said.
        why: String,
    },
    /// The name of a server is not known.
    #[error("the name of the server is not known: {url}: {why}")]
    Name {
        /// What was asked for.
        url: String,
        /// What the resolver said.
        why: String,
    },
    /// The server's certificate is not trusted, or TLS failed otherwise.
    #[error("no secure connection to the server: {url}: {why}")]
    Tls {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answers.
    #[error("{url} cannot be reached, {}: {why}", tries(*.attempts))]
    Unreachable {
        /// What was asked for.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// What the last attempt ran into.
        why: String,
    },
    /// There is no such file or image.
    #[error("{url} is not there (404): {what} was not published, or not under this name")]
    NotFound {
        /// What was asked for.
        url: String,
        /// Which component and version.
        what: String,
    },
    /// The server wants credentials, or says no.
    #[error("{url} is not given to everybody ({status}): {why}")]
    Denied {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// What the server said.
        why: String,
    },
    /// The server answers with something else than the file.
    #[error("{url} answers {status}, {}: {why}", tries(*.attempts))]
    Status {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// How often it was tried.
        attempts: u32,
        /// What the server said.
        why: String,
    },
    /// The server stopped sending.
    #[error("{url} is too slow: nothing came for {} s, {}; {}", .timeout.as_secs_f32(), tries(*.attempts), held(*.have, *.of))]
    Slow {
        /// What was asked for.
        url: String,
        /// How long nothing came.
        timeout: Duration,
        /// How often it was tried.
        attempts: u32,
        /// Bytes that are kept.
        have: u64,
        /// Bytes of the whole, if known.
        of: Option<u64>,
    },
    /// The connection was cut again and again.
    #[error("{url} was cut short, {}; {}: {why}", tries(*.attempts), held(*.have, *.of))]
    Cut {
        /// What was asked for.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// Bytes that are kept.
        have: u64,
        /// Bytes of the whole, if known.
        of: Option<u64>,
        /// What the last attempt ran into.
        why: String,
    },
    /// The content is not what its checksum says.
    #[error("{url} has SHA-256 {found}, but {by} says {expected}")]
    Checksum {
        /// The file.
        url: String,
        /// Who says what it should be: the URL of the checksum, or a manifest.
        by: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The publisher says something else than at the first use.
    #[error("{what} was locked at its first use to SHA-256 {locked}, but is published with {published} now ({by})")]
    Moved {
        /// The file or image.
        what: String,
        /// What it was.
        locked: String,
        /// What it is said to be now.
        published: String,
        /// Who says so.
        by: String,
        /// The file with the locked digests.
        lock: PathBuf,
    },
    /// More came than there may be.
    #[error("{url} has more than {limit} bytes, which it cannot have")]
    TooLarge {
        /// What was asked for.
        url: String,
        /// The bound.
        limit: u64,
    },
    /// Something was published that is not what it should be.
    #[error("{url} is not understood: {why}")]
    NotUnderstood {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// An image is not there for this architecture.
    #[error("{image} is not published for linux/{architecture}; it is for {there}")]
    Platform {
        /// The image.
        image: String,
        /// What is wanted.
        architecture: String,
        /// What there is.
        there: String,
    },
}

fn tries(attempts: u32) -> String {
    if attempts == 1 { "tried once".to_owned() } else { format!("tried {attempts} times") }
}

fn held(have: u64, of: Option<u64>) -> String {
    match of {
        Some(of) => format!("{have} of {of} bytes are kept"),
        None => format!("{have} bytes are kept"),
    }
}
