//! Object storage for copies of snapshots: addresses and access.
//!
//! In: the inventory's `snapshots.to` and `snapshots.s3`. Out: read by `snapshot/`, on the hosts that write there and
//! on the machine that lists and fetches.

use super::names::{ClusterName, Digest};
use super::secret::Secret;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use zeroize::Zeroize;

/// The scheme of addresses in object storage.
pub const SCHEME: &str = "s3://";
/// The region of object storage without regions, such as most servers that are not Amazon's.
pub const REGION: &str = "us-east-1";

/// A place in object storage: `s3://BUCKET` or `s3://BUCKET/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BucketUrl {
    /// The bucket.
    pub bucket: String,
    /// Prefix of all keys, without slashes at its ends; empty: none.
    pub prefix: String,
}

/// Not a place in object storage.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not s3://BUCKET/PREFIX")]
pub struct BadBucket(String);

impl FromStr for BucketUrl {
    type Err = BadBucket;
    fn from_str(text: &str) -> Result<Self, BadBucket> {
        let bad = || BadBucket(text.chars().take(200).collect());
        let rest = text.strip_prefix(SCHEME).ok_or_else(bad)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let part = |part: &str| !part.is_empty() && part.bytes().all(plain) && !matches!(part, "." | "..");
        // Amazon's limits of a bucket's name and of a key; a snapshot's name is at most 200 long.
        let named = (3..=63).contains(&bucket.len()) && part(bucket);
        let placed = prefix.is_empty() || (prefix.len() <= 500 && prefix.split('/').all(part));
        if named && placed { Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() }) } else { Err(bad()) }
    }
}

impl TryFrom<String> for BucketUrl {
    type Error = BadBucket;
    fn try_from(text: String) -> Result<Self, BadBucket> {
        text.parse()
    }
}

impl From<BucketUrl> for String {
    fn from(url: BucketUrl) -> String {
        url.to_string()
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "{SCHEME}{}{slash}{}", self.bucket, self.prefix)
    }
}

impl BucketUrl {
    /// The place of the snapshots of one cluster: clusters may have the same name, and must not delete each other's
    /// snapshots.
    #[must_use]
    pub fn of(&self, cluster: &ClusterName, authority: Digest) -> Self {
        let folder = folder(cluster, authority);
        let prefix = if self.prefix.is_empty() { folder } else { format!("{}/{folder}", self.prefix) };
        Self { bucket: self.bucket.clone(), prefix }
    }
    /// The last part of its prefix; of [`BucketUrl::of`], the cluster.
    pub fn folder(&self) -> &str {
        self.prefix.rsplit('/').next().unwrap_or(&self.prefix)
    }
    /// The key of a name below it.
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }
    /// The place and the name of an address: `s3://BUCKET/PREFIX/NAME`.
    ///
    /// # Errors
    /// No such place.
    pub fn file(url: &str) -> Result<(Self, String), BadBucket> {
        let bad = || BadBucket(url.chars().take(200).collect());
        let (place, name) = url.rsplit_once('/').ok_or_else(bad)?;
        if super::snapshot::is_name(name) { Ok((place.parse()?, name.to_owned())) } else { Err(bad()) }
    }
}

/// Distinguishes clusters of the same name: `CLUSTER-CA`.
pub fn folder(cluster: &ClusterName, authority: Digest) -> String {
    format!("{cluster}-{}", authority.short())
}

/// Where a copy of each snapshot is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Destination {
    /// A directory of the host, such as a mounted share. Absolute.
    Directory(PathBuf),
    /// Object storage.
    Bucket(BucketUrl),
}

impl TryFrom<String> for Destination {
    type Error = BadBucket;
    fn try_from(text: String) -> Result<Self, BadBucket> {
        if text.starts_with(SCHEME) { text.parse().map(Self::Bucket) } else { Ok(Self::Directory(text.into())) }
    }
}

impl From<Destination> for String {
    fn from(to: Destination) -> String {
        to.to_string()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Bucket(url) => write!(f, "{url}"),
        }
    }
}

/// Access to object storage, as in the inventory. The files are the administrator's, absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSettings {
    /// `https://HOST[:PORT]`; `None`: Amazon's own of that region.
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// The file with `ACCESS_KEY_ID:SECRET_ACCESS_KEY`.
    pub credentials: PathBuf,
    /// The file with the CAs of its certificate; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
}

/// Access to object storage. No `Debug`: it holds a secret key.
pub struct Storage {
    /// `https://HOST[:PORT]`; `None`: Amazon's own of that region.
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// The access key id.
    pub key_id: String,
    /// The secret access key.
    pub key: Secret<String>,
    /// The CAs of its certificate, PEM; `None`: those that the system trusts.
    pub ca: Option<String>,
    /// The proxy; `None`: none.
    pub proxy: Option<String>,
    /// Hosts that are reached without it, as in `NO_PROXY`.
    pub no_proxy: String,
}

/// [`Storage`] as a file on a host, readable only by root.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    endpoint: Option<String>,
    region: String,
    access_key_id: String,
    secret_access_key: String,
    ca: Option<String>,
    proxy: Option<String>,
    #[serde(default)]
    no_proxy: String,
}

impl Drop for File {
    fn drop(&mut self) {
        self.secret_access_key.zeroize();
    }
}

impl Storage {
    /// The file that hosts get.
    pub fn to_file(&self) -> String {
        let file = File {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            access_key_id: self.key_id.clone(),
            secret_access_key: self.key.reveal().clone(),
            ca: self.ca.clone(),
            proxy: self.proxy.clone(),
            no_proxy: self.no_proxy.clone(),
        };
        let text = toml::to_string(&file).expect("texts are always TOML");
        format!("# Written by hactl: access to the object storage for snapshots. It contains a secret key.\n{text}")
    }
    /// Parses it; `None`: it has another content.
    pub fn from_file(text: &str) -> Option<Self> {
        let mut file: File = toml::from_str(text).ok()?;
        Some(Self {
            key_id: std::mem::take(&mut file.access_key_id),
            key: Secret::new(std::mem::take(&mut file.secret_access_key)),
            region: std::mem::take(&mut file.region),
            no_proxy: std::mem::take(&mut file.no_proxy),
            endpoint: file.endpoint.take(),
            ca: file.ca.take(),
            proxy: file.proxy.take(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_object_storage_is_a_bucket_and_a_prefix_that_climbs_nowhere() {
        for (text, bucket, prefix) in [
            ("s3://backup", "backup", ""),
            ("s3://backup/", "backup", ""),
            ("s3://backup.example/lab/one/", "backup.example", "lab/one"),
        ] {
            let url: BucketUrl = text.parse().unwrap();
            assert_eq!((url.bucket.as_str(), url.prefix.as_str()), (bucket, prefix), "{text}");
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
        for bad in [
            "s3://",
            "s3://ab",
            "backup",
            "/srv",
            "s3://a b c",
            "s3://backup/../x",
            "s3://backup//x",
            "s3://user@host/x",
        ] {
            assert!(bad.parse::<BucketUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_snapshot_has_one_address() {
        let at: BucketUrl = "s3://backup/dr".parse().unwrap();
        let name = "lab-20261122T060000Z-cp1.hactl";
        let whole = format!("{SCHEME}{}/{}", at.bucket, at.key(name));
        assert_eq!(BucketUrl::file(&whole).unwrap(), (at.clone(), name.to_owned()));
        let bare: BucketUrl = "s3://backup".parse().unwrap();
        assert_eq!(bare.key(name), name);
        for bad in ["s3://backup", "s3://backup/dr/", "s3://backup/dr/other.txt", name, "/mnt/x.hactl"] {
            assert!(BucketUrl::file(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_file_of_a_host_is_read_back_as_written() {
        let storage = Storage {
            endpoint: Some("https://minio.example:9000".to_owned()),
            region: REGION.to_owned(),
            key_id: "AKIA".to_owned(),
            key: Secret::new("s3cr3t".to_owned()),
            ca: None,
            proxy: None,
            no_proxy: String::new(),
        };
        let text = storage.to_file();
        let read = Storage::from_file(&text).expect("what was written can be read");
        assert_eq!((read.key_id.as_str(), read.key.reveal().as_str()), ("AKIA", "s3cr3t"));
        assert_eq!((read.endpoint.as_deref(), read.region.as_str()), (Some("https://minio.example:9000"), REGION));
        assert!(Storage::from_file(&text.replace("secretAccessKey", "secret")).is_none());
    }
}
