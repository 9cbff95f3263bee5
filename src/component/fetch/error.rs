//! Why a download failed, with the URL or image.
//!
//! In: the error of an attempt. Out: one variant for each case in which a person would act differently.

use super::super::publishers::NoRelease;
use std::path::PathBuf;
use std::time::Duration;

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// There is nothing to download for the given versions.
    #[error(transparent)]
    NoRelease(#[from] NoRelease),
    /// The HTTP client cannot be created.
    #[error("this machine cannot make connections: {why}")]
    NoClient {
        /// The library's error.
        why: String,
    },
    /// The server's name cannot be resolved.
    #[error("cannot resolve the server's name: {url}: {why}")]
    Name {
        /// The URL.
        url: String,
        /// The resolver's error.
        why: String,
    },
    /// The server's certificate is not trusted, or TLS failed otherwise.
    #[error("no secure connection to the server: {url}: {why}")]
    Tls {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server is unreachable.
    #[error("{url} cannot be reached, {}: {why}", tries(*.attempts))]
    Unreachable {
        /// The URL.
        url: String,
        /// Number of attempts.
        attempts: u32,
        /// The last error.
        why: String,
    },
    /// The file or image does not exist.
    #[error("{url} does not exist (404): {what} was not published, or not under this name")]
    NotFound {
        /// The URL.
        url: String,
        /// Component and version.
        what: String,
    },
    /// The server requires credentials or denies access.
    #[error("{url} is not public ({status}): {why}")]
    Denied {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's message.
        why: String,
    },
    /// The server answered with an error.
    #[error("{url} answers {status}, {}: {why}", tries(*.attempts))]
    Status {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// Number of attempts.
        attempts: u32,
        /// The server's message.
        why: String,
    },
    /// The server stopped sending.
    #[error("{url} is too slow: no data for {} s, {}; {}", .timeout.as_secs_f32(), tries(*.attempts), held(*.have, *.of))]
    Slow {
        /// The URL.
        url: String,
        /// How long no data arrived.
        timeout: Duration,
        /// Number of attempts.
        attempts: u32,
        /// Bytes that were kept.
        have: u64,
        /// Total size, if known.
        of: Option<u64>,
    },
    /// The connection broke too often.
    #[error("{url} was cut short, {}; {}: {why}", tries(*.attempts), held(*.have, *.of))]
    Cut {
        /// The URL.
        url: String,
        /// Number of attempts.
        attempts: u32,
        /// Bytes that were kept.
        have: u64,
        /// Total size, if known.
        of: Option<u64>,
        /// The last error.
        why: String,
    },
    /// The content does not match its checksum.
    #[error("{url} has SHA-256 {found}, but {by} says {expected}")]
    Checksum {
        /// The file.
        url: String,
        /// The source of the expected digest: the URL of the checksum, or a manifest.
        by: String,
        /// The expected digest.
        expected: String,
        /// The actual digest.
        found: String,
    },
    /// The publisher's content differs from the first use.
    #[error("{what} was locked at its first use to SHA-256 {locked}, but is now published with {published} ({by})")]
    Moved {
        /// The file or image.
        what: String,
        /// The locked digest.
        locked: String,
        /// The published digest.
        published: String,
        /// The source of the published digest.
        by: String,
        /// The file with the locked digests.
        lock: PathBuf,
    },
    /// The server sent more than the limit.
    #[error("{url} has more than {limit} bytes, the limit")]
    TooLarge {
        /// The URL.
        url: String,
        /// The limit.
        limit: u64,
    },
    /// The published content is invalid.
    #[error("{url} is invalid: {why}")]
    NotUnderstood {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The image does not exist for this architecture.
    #[error("{image} is not published for linux/{architecture}; published for: {there}")]
    Platform {
        /// The image.
        image: String,
        /// The required architecture.
        architecture: String,
        /// The published platforms.
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
