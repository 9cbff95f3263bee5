//! Object storage for copies of snapshots: S3 of any provider.
//!
//! In: the access settings, and a bucket with a prefix. Out: snapshots uploaded, listed, fetched and deleted, or a
//! [`BucketError`] that is understandable without a manual of the protocol. Only some pieces are held in memory. A
//! snapshot is complete or absent: object storage shows a key only once all of it has arrived.

use super::file::{BundleError, MOST_END, claims_of};
use crate::model::bucket::{BucketUrl, SCHEME, Storage};
use crate::model::snapshot::{Claimed, is_name};
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::client::{Certificate, DnsFuture, DnsResolver, HttpError, HttpErrorKind};
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientOptions, ObjectStore as _, ObjectStoreExt as _, RetryConfig, WriteMultipart};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Bytes of one request. Object storage accepts none below 5 MiB but the last.
const PIECE: usize = 8 << 20;
/// How many of them are uploaded concurrently.
const AT_ONCE: usize = 2;
/// How long a connection may take, and one request with all its bytes.
const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(120);
/// How often a request is retried, and for how long.
const AGAIN: usize = 3;
const AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// More names than this in one prefix are not ours alone.
const MOST: usize = 100_000;

/// The kind of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketTrouble {
    /// Unreachable.
    Dark,
    /// The access key is rejected, or its permissions do not suffice.
    Refused,
    /// No such bucket, or no such snapshot in it.
    Missing,
    /// It has no free space.
    Full,
    /// Something else.
    Other,
}

/// Why object storage did not perform a request.
#[derive(Debug, thiserror::Error)]
#[error("{at} {why}")]
pub struct BucketError {
    /// The bucket.
    pub at: String,
    /// The kind.
    pub trouble: BucketTrouble,
    /// The rest of the sentence.
    pub why: String,
}

/// A snapshot in object storage, by its name alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The bucket and prefix.
    pub place: BucketUrl,
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

impl Stored {
    /// Its address: `s3://BUCKET/PREFIX/NAME`.
    pub fn url(&self) -> String {
        format!("{SCHEME}{}/{}", self.place.bucket, self.place.key(&self.name))
    }
}

/// A bucket and prefix, prepared for access.
pub struct Bucket {
    store: AmazonS3,
    at: BucketUrl,
}

impl Bucket {
    /// Prepares the access.
    ///
    /// # Errors
    /// Invalid CAs or an invalid address.
    pub fn open(storage: &Storage, at: BucketUrl) -> Result<Self, BucketError> {
        let odd = |why: String| BucketError { at: at.to_string(), trouble: BucketTrouble::Other, why };
        let mut client = ClientOptions::new()
            .with_connect_timeout(CONNECT)
            .with_timeout(REQUEST)
            .with_allow_http(storage.endpoint.as_ref().is_some_and(|url| url.starts_with("http://")))
            .with_dns_resolver(std::sync::Arc::new(HostsOwn));
        if let Some(pem) = &storage.ca {
            let authorities = Certificate::from_pem_bundle(pem.as_bytes());
            let authorities =
                authorities.map_err(|e| odd(format!("cannot be reached: its CA cannot be parsed: {e}")))?;
            // With CAs of its own it trusts no other.
            client = authorities.into_iter().fold(client, ClientOptions::with_root_certificate);
            client = client.with_no_system_certificates(true);
        }
        if let Some(proxy) = &storage.proxy {
            client = client.with_proxy_url(proxy).with_proxy_excludes(&storage.no_proxy);
        }
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&at.bucket)
            .with_region(&storage.region)
            .with_access_key_id(&storage.key_id)
            .with_secret_access_key(storage.key.reveal())
            // Buckets with a legal hold require a checksum.
            .with_checksum_algorithm(Checksum::SHA256)
            // A bulk deletion would not report which object may not be deleted.
            .with_disable_bulk_delete(true)
            // Servers other than Amazon's have no host name for each bucket.
            .with_virtual_hosted_style_request(storage.endpoint.is_none() && !at.bucket.contains('.'))
            .with_client_options(client)
            .with_retry(RetryConfig {
                backoff: BackoffConfig::default(),
                max_retries: AGAIN,
                retry_timeout: AGAIN_WITHIN,
            });
        if let Some(endpoint) = &storage.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|e| odd(format!("cannot be reached: {e}")))?;
        Ok(Self { store, at })
    }

    /// The bucket and prefix.
    pub fn place(&self) -> &BucketUrl {
        &self.at
    }

    fn key(&self, name: &str) -> Key {
        Key::from(self.at.key(name))
    }

    fn error(&self, name: Option<&str>, error: &object_store::Error) -> BucketError {
        let (trouble, why) = words(error, name.is_some());
        let at = name.map_or_else(
            || self.at.to_string(),
            |name| Stored { place: self.at.clone(), name: name.to_owned(), bytes: 0 }.url(),
        );
        BucketError { at, trouble, why }
    }

    /// Uploads a file under a name, and verifies that all of it has arrived.
    ///
    /// # Errors
    /// See [`BucketError`].
    pub async fn put(&self, name: &str, from: &Path) -> Result<(), BucketError> {
        let error = |error: object_store::Error| self.error(None, &error);
        let read =
            |error: std::io::Error| self.here(&format!("received nothing: {} cannot be read: {error}", from.display()));
        let mut file = File::open(from).map_err(read)?;
        let bytes = file.metadata().map_err(read)?.len();
        let key = self.key(name);
        let first = piece(&mut file).map_err(read)?;
        if first.len() < PIECE {
            self.store.put(&key, first.into()).await.map_err(error)?;
        } else {
            let upload = self.store.put_multipart(&key).await.map_err(error)?;
            let mut writer = WriteMultipart::new_with_chunk_size(upload, PIECE);
            let sent = async {
                let mut next = first;
                while !next.is_empty() {
                    writer.put(next.into());
                    writer.wait_for_capacity(AT_ONCE).await.map_err(error)?;
                    next = piece(&mut file).map_err(read)?;
                }
                writer.wait_for_capacity(0).await.map_err(error)
            };
            if let Err(failed) = sent.await {
                // Uploaded pieces cost money until they are deleted; a failure to do so is no worse than the original
                // failure.
                let _ = writer.abort().await;
                return Err(failed);
            }
            writer.finish().await.map_err(error)?;
        }
        let arrived = self.store.head(&key).await.map_err(error)?.size;
        if arrived == bytes {
            return Ok(());
        }
        Err(self.here(&format!("has {arrived} bytes of {name}, which has {bytes} bytes")))
    }

    fn here(&self, why: &str) -> BucketError {
        BucketError { at: self.at.to_string(), trouble: BucketTrouble::Other, why: why.to_owned() }
    }

    /// Every snapshot below this prefix, by name.
    ///
    /// # Errors
    /// See [`BucketError`].
    pub async fn list(&self) -> Result<Vec<Stored>, BucketError> {
        let prefix = (!self.at.prefix.is_empty()).then(|| Key::from(self.at.prefix.as_str()));
        let mut all = self.store.list(prefix.as_ref());
        let mut found = Vec::new();
        while let Some(one) = all.try_next().await.map_err(|e| self.error(None, &e))? {
            let (place, name) = one.location.as_ref().rsplit_once('/').unwrap_or(("", one.location.as_ref()));
            if !is_name(name) {
                continue;
            }
            if found.len() == MOST {
                return Err(self.here("has too many snapshots; use a longer prefix"));
            }
            let place = BucketUrl { bucket: self.at.bucket.clone(), prefix: place.to_owned() };
            found.push(Stored { place, name: name.to_owned(), bytes: one.size });
        }
        Ok(found)
    }

    /// The manifest of a snapshot, without fetching the rest of it.
    ///
    /// # Errors
    /// [`BucketError`]; an incomplete snapshot is of the kind `Other`.
    pub async fn claims(&self, name: &str) -> Result<(Claimed, u64), BucketError> {
        let (key, error) = (self.key(name), |error: object_store::Error| self.error(Some(name), &error));
        let length = self.store.head(&key).await.map_err(error)?.size;
        let end = match length {
            // An empty object has no range.
            0 => Bytes::new(),
            _ => self.store.get_range(&key, length.saturating_sub(MOST_END)..length).await.map_err(error)?,
        };
        let claimed = claims_of(&end, length, Path::new(name)).map_err(|error| match error {
            BundleError::Other(_) => self.here(&format!("has a {name} that is not a snapshot of hactl")),
            other => self.here(&format!("has a snapshot that cannot be used: {other}")),
        })?;
        Ok((claimed, length))
    }

    /// Fetches so many bytes into a file: as many as the manifest of the snapshot allows.
    ///
    /// # Errors
    /// See [`BucketError`].
    pub async fn get(&self, name: &str, length: u64, to: &mut File) -> Result<(), BucketError> {
        let (key, error) = (self.key(name), |error: object_store::Error| self.error(Some(name), &error));
        let mut from = 0;
        while from < length {
            let until = length.min(from + PIECE as u64);
            let piece = self.store.get_range(&key, from..until).await.map_err(error)?;
            to.write_all(&piece).map_err(|e| self.here(&format!("has {name}, which cannot be written here: {e}")))?;
            from = until;
        }
        Ok(())
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// See [`BucketError`].
    pub async fn remove(&self, name: &str) -> Result<(), BucketError> {
        self.store.delete(&self.key(name)).await.map_err(|error| self.error(Some(name), &error))
    }
}

/// The next piece of a file; shorter than [`PIECE`] only at its end.
fn piece(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut piece = Vec::with_capacity(PIECE);
    file.take(PIECE as u64).read_to_end(&mut piece)?;
    Ok(piece)
}

/// Resolves names as the host itself does. hactl is linked without a libc that could load the name service modules of
/// the host.
#[derive(Debug)]
struct HostsOwn;

impl DnsResolver for HostsOwn {
    fn resolve(&self, name: &str) -> DnsFuture {
        let name = name.to_owned();
        Box::pin(async move {
            let asked =
                tokio::process::Command::new("getent").args(["ahosts", "--", &name]).kill_on_drop(true).output();
            let said = asked.await.map_err(|e| format!("getent cannot be run to find {name}: {e}"))?;
            let found = addresses(&String::from_utf8_lossy(&said.stdout));
            if found.is_empty() { Err(format!("the name {name} cannot be resolved here").into()) } else { Ok(found) }
        })
    }
}

/// The addresses in the output of `getent ahosts`: one line for each address and kind of socket.
fn addresses(text: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    rest.split_once(to).map(|(inside, _)| inside)
}

/// Codes of servers without free space: Amazon's own, `MinIO`'s, Ceph's and `Versity`'s.
const FULL: [&str; 5] =
    ["QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientCapacity", "TooMuchData"];

/// Explains an error. Servers answer in XML, with a code and a sentence.
fn words(error: &object_store::Error, one: bool) -> (BucketTrouble, String) {
    use object_store::Error;
    let text = error.to_string();
    let code = between(&text, "<Code>", "</Code>").map(plain);
    let said = between(&text, "<Message>", "</Message>").map(plain).filter(|said| !said.is_empty());
    let said = match (&code, said) {
        (Some(code), Some(said)) => format!(" ({code}: {said})"),
        (Some(code), None) => format!(" ({code})"),
        (None, _) => String::new(),
    };
    let status = between(&text, "status code: ", " ").and_then(|status| status.parse::<u16>().ok());
    let no_room = status == Some(507) || code.as_deref().is_some_and(|code| FULL.contains(&code));
    match error {
        _ if code.as_deref() == Some("RequestTimeTooSkewed") => (
            BucketTrouble::Refused,
            "rejects the access key: its clock and the local clock differ by more than 15 min".to_owned(),
        ),
        _ if no_room => (BucketTrouble::Full, format!("has no space left{said}")),
        Error::PermissionDenied { .. } => {
            (BucketTrouble::Refused, format!("denies the access key this operation: 403{said}"))
        }
        Error::Unauthenticated { .. } => (BucketTrouble::Refused, format!("rejects the access key: 401{said}")),
        Error::NotFound { .. } => match code.as_deref() {
            Some("NoSuchBucket") => (BucketTrouble::Missing, format!("does not exist: no such bucket{said}")),
            None | Some("NoSuchKey") if one => (BucketTrouble::Missing, "does not exist".to_owned()),
            _ => (BucketTrouble::Other, format!("answers 404{said}")),
        },
        _ => match status {
            Some(status) => (BucketTrouble::Other, format!("answers {status}{said}")),
            None if silent(error) => (BucketTrouble::Dark, format!("does not answer: {}", plain(&root(error)))),
            None => (BucketTrouble::Other, format!("cannot be used: {}{said}", plain(&root(error)))),
        },
    }
}

/// Whether there was no answer at all, or not in time.
fn silent(error: &object_store::Error) -> bool {
    let mut inner: Option<&dyn std::error::Error> = Some(error);
    while let Some(one) = inner {
        if let Some(http) = one.downcast_ref::<HttpError>() {
            return !matches!(http.kind(), HttpErrorKind::Decode);
        }
        inner = one.source();
    }
    false
}

/// The innermost cause, without the wrapping of the library.
fn root(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// The answer of a server, as one line that is safe for a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn an_error_of_a_server_is_shown_in_words() {
        let denied = object_store::Error::PermissionDenied {
            path: "x".to_owned(),
            source: "status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code><Message>wrong\u{1b} key</Message>".into(),
        };
        let (trouble, why) = words(&denied, false);
        assert_eq!(trouble, BucketTrouble::Refused);
        assert_eq!(why, "denies the access key this operation: 403 (SignatureDoesNotMatch: wrong  key)");
        let skewed = generic("status code: 403 : <Code>RequestTimeTooSkewed</Code>");
        assert!(words(&skewed, false).1.contains("clock"), "{}", words(&skewed, false).1);
        for text in ["status code: 507 Insufficient Storage: ", "status code: 400 : <Code>QuotaExceeded</Code>"] {
            assert_eq!(words(&generic(text), false).0, BucketTrouble::Full, "{text}");
        }
        let redirected = words(&generic("Received redirect without LOCATION"), false);
        assert_eq!((redirected.0, redirected.1.starts_with("cannot be used: ")), (BucketTrouble::Other, true));
        assert_eq!(words(&generic("status code: 500 Internal: "), false).1, "answers 500");
    }

    #[test]
    fn each_address_of_a_name_counts_once() {
        let text = "192.0.2.7       STREAM s3.example\n192.0.2.7       DGRAM  \n2001:db8::7     STREAM \nodd\n";
        let wanted: Vec<IpAddr> = vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        assert_eq!(addresses(text), wanted);
    }
}
