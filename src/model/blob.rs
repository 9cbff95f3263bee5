//! A snapshot of etcd's data for the transfer between hosts: digests and sizes, and nothing that determines its use.
//!
//! In: made where a snapshot is compressed; or read from a manifest, a host's reply or the journal. Out: a value with
//! plausible sizes. Its path on a host is determined by the operation that delivers it, never by the sender of a
//! snapshot.

use super::desired::MOST_QUOTA_GIB;
use super::names::Digest;
use serde::{Deserialize, Serialize};

/// The largest snapshot, bytes: that of the largest database that an inventory can ask for. etcd checks the quota
/// before a write, so a database may be a little larger.
pub const LARGEST_SNAPSHOT: u64 = (MOST_QUOTA_GIB as u64 + 16) << 30;

/// The largest compressed form of one.
pub const LARGEST_SENT: u64 = largest_sent(LARGEST_SNAPSHOT);

/// A snapshot, by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct SnapshotBlob {
    /// SHA-256 of the content, uncompressed.
    pub digest: Digest,
    /// Size uncompressed, bytes.
    pub size: u64,
    /// SHA-256 of the compressed form, as sent.
    pub sent_digest: Digest,
    /// Size as sent, bytes.
    pub sent_size: u64,
}

/// Sizes that no snapshot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "implausible size of an etcd snapshot: {size} bytes, {sent_size} compressed; the largest has {LARGEST_SNAPSHOT}"
)]
pub struct ImplausibleSize {
    size: u64,
    sent_size: u64,
}

/// The largest compressed form of so many bytes: zstd makes incompressible content larger by less than this.
const fn largest_sent(size: u64) -> u64 {
    size + size / 128 + (1 << 20)
}

/// As text: manifests and journals of earlier versions described it as a part of a component bundle, with a name and a
/// place. A snapshot has one possible value of each; anything else is rejected.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    name: Snapshot,
    #[serde(default)]
    version: String,
    digest: Digest,
    size: u64,
    sent_digest: Digest,
    sent_size: u64,
    #[serde(default)]
    place: Snapshot,
}

/// The only value.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Snapshot {
    #[default]
    Snapshot,
}

impl TryFrom<Form> for SnapshotBlob {
    type Error = ImplausibleSize;
    fn try_from(form: Form) -> Result<Self, ImplausibleSize> {
        let Form { digest, size, sent_digest, sent_size, .. } = form;
        if size > LARGEST_SNAPSHOT || sent_size > largest_sent(size) {
            return Err(ImplausibleSize { size, sent_size });
        }
        Ok(Self { digest, size, sent_digest, sent_size })
    }
}

impl From<SnapshotBlob> for Form {
    fn from(blob: SnapshotBlob) -> Self {
        let SnapshotBlob { digest, size, sent_digest, sent_size } = blob;
        let (name, place) = (Snapshot::Snapshot, Snapshot::Snapshot);
        Self { name, version: String::new(), digest, size, sent_digest, sent_size, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn text(more: &[(&str, Value)]) -> String {
        let digest = Digest::of(b"x").hex();
        let mut whole = json!({"digest": digest, "size": 9, "sent_digest": digest, "sent_size": 7});
        for (key, value) in more {
            whole[key] = value.clone();
        }
        whole.to_string()
    }

    #[test]
    fn records_of_earlier_versions_are_read_and_those_with_another_place_are_not() {
        let read = |more: &[(&str, Value)]| serde_json::from_str::<SnapshotBlob>(&text(more));
        let digest = Digest::of(b"x");
        let blob = SnapshotBlob { digest, size: 9, sent_digest: digest, sent_size: 7 };
        assert_eq!(read(&[]).ok(), Some(blob));
        let before = [("name", json!("snapshot")), ("version", json!("lab-1-cp1.hactl")), ("place", json!("snapshot"))];
        assert_eq!(read(&before).ok(), Some(blob));
        for place in
            [json!({"program": {"link": "/usr/local/sbin/x"}}), json!({"program": {"link": null}}), json!("image")]
        {
            assert!(read(&[("place", place.clone())]).is_err(), "{place}");
        }
        assert!(read(&[("name", json!("etcd"))]).is_err());
        assert!(read(&[("link", json!("/usr/local/sbin/x"))]).is_err());
    }

    proptest! {
        #[test]
        fn only_sizes_that_can_be_true_are_read(size in any::<u64>(), sent_size in any::<u64>(), small in 0_u64..1 << 40) {
            for (size, sent_size) in [(size, sent_size), (small, sent_size), (size, small), (small, small)] {
                let read: Result<SnapshotBlob, _> =
                    serde_json::from_str(&text(&[("size", json!(size)), ("sent_size", json!(sent_size))]));
                if let Ok(blob) = read {
                    prop_assert!(blob.size <= LARGEST_SNAPSHOT && blob.sent_size <= largest_sent(blob.size));
                    let again = serde_json::to_string(&blob).expect("it is JSON");
                    prop_assert_eq!(serde_json::from_str::<SnapshotBlob>(&again).ok(), Some(blob));
                } else {
                    prop_assert!(size > LARGEST_SNAPSHOT || sent_size > size);
                }
            }
        }
    }
}
