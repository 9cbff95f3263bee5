//! One network attempt, and the classification of its failure.
//!
//! In: a place and an offset. Out: a stream of bytes, or a [`Trouble`]: final, or worth a retry. Every await has a
//! deadline; proxies are taken from the environment; a redirect from https to http is refused.

use super::super::error::BundleError;
use super::error::FetchError;
use super::mirror::Mirrors;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use oci_client::client::{BlobResponse, Client as Oci, ClientConfig, ClientProtocol};
use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};
use oci_client::{Reference, RegistryOperation, secrets::RegistryAuth};
use reqwest::header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE, RETRY_AFTER};
use reqwest::redirect::{Attempt, Policy};
use std::error::Error;
use std::io;
use std::time::Duration;

/// Timeouts and retries.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To connect.
    pub connect: Duration,
    /// For the next bytes of a connection. There is no total deadline.
    pub unreachable: Duration,
    /// Attempts without a new byte before it counts as failed.
    pub attempts: u32,
    /// Pause before the second attempt; doubled each time.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            unreachable: Duration::from_secs(30),
            attempts: 5,
            pause: Duration::from_millis(500),
        }
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum Trouble {
    /// A retry does not help.
    Final(Box<BundleError>),
    /// A retry may help.
    Again {
        /// The error.
        why: Why,
        /// The pause that the server asked for.
        after: Option<Duration>,
    },
}

/// A temporary error.
#[derive(Debug)]
pub enum Why {
    /// No data arrived.
    Silent,
    /// The connection was cut.
    Cut(String),
    /// No connection.
    Unreachable(String),
    /// The name was not resolved.
    Name(String),
    /// The server reported an error.
    Status(u16, String),
}

impl From<FetchError> for Trouble {
    fn from(error: FetchError) -> Self {
        Self::Final(Box::new(error.into()))
    }
}

impl From<BundleError> for Trouble {
    fn from(error: BundleError) -> Self {
        Self::Final(Box::new(error))
    }
}

impl From<Why> for Trouble {
    fn from(why: Why) -> Self {
        Self::Again { why, after: None }
    }
}

/// The source of bytes.
#[derive(Debug, Clone)]
pub enum Place {
    /// A file on a web server.
    Http(String),
    /// A blob of a registry, by repository and digest.
    Blob(Reference, String),
}

impl Place {
    /// For messages, and for the note beside a partial file.
    pub fn url(&self) -> String {
        match self {
            Self::Http(url) => url.clone(),
            Self::Blob(reference, digest) => {
                format!("{}/{}@{digest}", reference.resolve_registry(), reference.repository())
            }
        }
    }
}

/// An answer whose header has arrived.
pub struct Opened {
    /// Offset of its first byte.
    pub start: u64,
    /// Total size, if known.
    pub total: Option<u64>,
    /// Identifies this version of the content.
    pub validator: Option<String>,
    /// The bytes.
    pub body: BoxStream<'static, Result<Bytes, Trouble>>,
}

/// The HTTP clients and their settings.
pub struct Net {
    http: reqwest::Client,
    oci: Oci,
    /// Mirrors.
    pub mirrors: Mirrors,
    /// Timeouts and retries.
    pub timeout: Patience,
}

impl Net {
    /// Creates the clients.
    pub fn new(mirrors: Mirrors, timeout: Patience) -> Result<Self, FetchError> {
        // The binary installs the provider at its start; tests do not.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let no_client = |why: String| FetchError::NoClient { why };
        let http = reqwest::Client::builder()
            .user_agent(concat!("hactl/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(timeout.connect)
            .redirect(Policy::custom(follow))
            .build()
            .map_err(|e| no_client(deepest(&e)))?;
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(mirrors.plain()),
            connect_timeout: Some(timeout.connect),
            read_timeout: Some(timeout.unreachable),
            platform_resolver: None,
            user_agent: concat!("hactl/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let oci = Oci::try_from(config).map_err(|e| no_client(e.to_string()))?;
        Ok(Self { http, oci, mirrors, timeout })
    }

    /// Requests a place from an offset on.
    pub async fn open(&self, place: &Place, from: u64, validator: Option<&str>, what: &str) -> Result<Opened, Trouble> {
        let timeout = self.timeout.connect + self.timeout.unreachable;
        let opened = async {
            match place {
                Place::Http(url) => self.open_http(url, from, validator, what).await,
                Place::Blob(reference, digest) => self.open_blob(reference, digest, from, what, &place.url()).await,
            }
        };
        tokio::time::timeout(timeout, opened).await.unwrap_or(Err(Why::Silent.into()))
    }

    async fn open_http(&self, url: &str, from: u64, validator: Option<&str>, what: &str) -> Result<Opened, Trouble> {
        let mut request = self.http.get(url);
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
            if let Some(validator) = validator {
                request = request.header(IF_RANGE, validator);
            }
        }
        let response = request.send().await.map_err(|e| of_request(url, &e))?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let (start, total) = match status {
            200 => (0, response.content_length()),
            206 => {
                let range = headers.get(CONTENT_RANGE).and_then(|v| content_range(v.to_str().ok()?));
                range.ok_or_else(|| not_understood(url, "it sends a part without its range"))?
            }
            // Nothing is left to send: the file is complete, or was the start of another version.
            416 if from > 0 => (from, Some(from)),
            _ => {
                // The server's message helps the reader, but is not worth waiting for.
                let text = tokio::time::timeout(self.timeout.unreachable, response.text()).await;
                return Err(of_status(
                    url,
                    what,
                    status,
                    &text.map_or_else(|_| String::new(), Result::unwrap_or_default),
                    &headers,
                ));
            }
        };
        let owned = url.to_owned();
        let body = match status {
            416 => futures::stream::empty().boxed(),
            _ => response.bytes_stream().map(move |piece| piece.map_err(|e| of_body(&owned, &e))).boxed(),
        };
        Ok(Opened { start, total, validator: validator_of(&headers), body })
    }

    async fn open_blob(
        &self,
        reference: &Reference,
        digest: &str,
        from: u64,
        what: &str,
        url: &str,
    ) -> Result<Opened, Trouble> {
        self.oci.store_auth_if_needed(reference.resolve_registry(), &RegistryAuth::Anonymous).await;
        let trouble = |e: OciDistributionError| of_registry(url, what, &e);
        let (start, stream) = if from == 0 {
            (0, self.oci.pull_blob_stream(reference, digest).await.map_err(trouble)?)
        } else {
            match self.oci.pull_blob_stream_partial(reference, digest, from, None).await.map_err(trouble)? {
                BlobResponse::Full(stream) => (0, stream),
                BlobResponse::Partial(stream) => (from, stream),
            }
        };
        // The client reports a wrong digest as an error at the end; hactl verifies the complete file anyway.
        let judged = |e: &io::Error| e.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<DigestError>);
        let body = stream.stream.take_while(move |piece| std::future::ready(!piece.as_ref().is_err_and(judged)));
        let body = body.map(|piece| piece.map_err(|e| Trouble::from(Why::Cut(deepest(&e))))).boxed();
        Ok(Opened { start, total: stream.content_length.map(|rest| start + rest), validator: None, body })
    }

    /// Gets an anonymous token if the registry requires one, so that a refusal is reported as such.
    pub async fn log_in(&self, reference: &Reference, what: &str) -> Result<(), Trouble> {
        let asked = self.oci.auth(reference, &RegistryAuth::Anonymous, RegistryOperation::Pull);
        self.answered(reference, what, asked).await.map(drop)
    }

    /// The raw manifest or index of a reference.
    pub async fn manifest(&self, reference: &Reference, what: &str, types: &[&str]) -> Result<Bytes, Trouble> {
        let asked = self.oci.pull_manifest_raw(reference, &RegistryAuth::Anonymous, types);
        self.answered(reference, what, asked).await.map(|(bytes, _)| bytes)
    }

    /// A registry's answer within the timeout.
    async fn answered<T>(
        &self,
        reference: &Reference,
        what: &str,
        asked: impl Future<Output = Result<T, OciDistributionError>>,
    ) -> Result<T, Trouble> {
        let answer = tokio::time::timeout(self.timeout.connect + self.timeout.unreachable, asked).await;
        answer.map_err(|_| Why::Silent)?.map_err(|error| of_registry(&reference.whole(), what, &error))
    }
}

fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let left_tls = attempt.url().scheme() == "http" && attempt.previous().iter().any(|u| u.scheme() == "https");
    if left_tls {
        return attempt.error("the server redirects from https to http");
    }
    if attempt.previous().len() > 10 {
        return attempt.error("the server redirects too often");
    }
    attempt.follow()
}

/// `bytes 5-9/10` is (5, 10).
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}

/// A strong entity tag, or else the date. `None` if the server does not support ranges.
fn validator_of(headers: &HeaderMap) -> Option<String> {
    if headers.get(ACCEPT_RANGES).is_some_and(|v| v.as_bytes() == b"none") {
        return None;
    }
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).map(ToOwned::to_owned);
    text(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| text(LAST_MODIFIED))
}

fn not_understood(url: &str, why: &str) -> Trouble {
    FetchError::NotUnderstood { url: url.to_owned(), why: why.to_owned() }.into()
}

/// The beginning of a server's message.
fn excerpt(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    let words = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() { "no message".to_owned() } else { words }
}

fn of_status(url: &str, what: &str, status: u16, text: &str, headers: &HeaderMap) -> Trouble {
    let (url, why) = (url.to_owned(), excerpt(text));
    match status {
        404 | 410 => FetchError::NotFound { url, what: what.to_owned() }.into(),
        401 | 403 | 407 => FetchError::Denied { url, status, why }.into(),
        408 | 429 | 500..=599 => {
            let after = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.trim().parse().ok());
            Trouble::Again { why: Why::Status(status, why), after: after.map(Duration::from_secs) }
        }
        _ => FetchError::Status { url, status, attempts: 1, why }.into(),
    }
}

/// A request without an answer.
fn of_request(url: &str, error: &reqwest::Error) -> Trouble {
    let why = deepest(error);
    if error.is_redirect() {
        return not_understood(url, &why);
    }
    if let Some(tls) = tls(error) {
        return FetchError::Tls { url: url.to_owned(), why: tls }.into();
    }
    if error.is_timeout() {
        return Why::Unreachable("no connection in time".to_owned()).into();
    }
    if said(error, "dns error") {
        return Why::Name(why).into();
    }
    if error.is_connect() { Why::Unreachable(why).into() } else { Why::Cut(why).into() }
}

fn of_body(url: &str, error: &reqwest::Error) -> Trouble {
    match tls(error) {
        Some(why) => FetchError::Tls { url: url.to_owned(), why }.into(),
        None if error.is_timeout() => Why::Silent.into(),
        None => Why::Cut(deepest(error)).into(),
    }
}

fn of_registry(url: &str, what: &str, error: &OciDistributionError) -> Trouble {
    use OciErrorCode as Code;
    match error {
        OciDistributionError::RequestError(error) => of_request(url, error),
        OciDistributionError::UnauthorizedError { .. } => of_status(url, what, 401, "", &HeaderMap::new()),
        OciDistributionError::AuthenticationFailure(why) => of_status(url, what, 401, why, &HeaderMap::new()),
        OciDistributionError::ServerError { code, message, .. } => {
            of_status(url, what, *code, message, &HeaderMap::new())
        }
        OciDistributionError::RegistryError { envelope, .. } => {
            let status = match envelope.errors.first().map(|e| &e.code) {
                Some(Code::ManifestUnknown | Code::NameUnknown | Code::NotFound) => 404,
                Some(Code::BlobUnknown | Code::ManifestBlobUnknown) => 404,
                Some(Code::Unauthorized) => 401,
                Some(Code::Denied) => 403,
                Some(Code::Toomanyrequests) => 429,
                _ => 400,
            };
            of_status(url, what, status, &envelope.to_string(), &HeaderMap::new())
        }
        OciDistributionError::DigestError(DigestError::VerificationError { expected, actual }) => {
            let plain = |digest: &str| digest.strip_prefix("sha256:").unwrap_or(digest).to_owned();
            FetchError::Checksum {
                url: url.to_owned(),
                by: "the registry".to_owned(),
                expected: plain(expected),
                found: plain(actual),
            }
            .into()
        }
        OciDistributionError::IoError(error) => Why::Cut(deepest(error)).into(),
        other => not_understood(url, &excerpt(&other.to_string())),
    }
}

/// The innermost error of a chain: the system's.
fn deepest(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    excerpt(&last.to_string())
}

fn said(error: &(dyn Error + 'static), words: &str) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.to_string().contains(words) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The error of TLS itself, however deeply nested: I/O errors do not return their inner error as their source.
fn tls(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(excerpt(&found.to_string()));
        }
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match carried {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}
