//! Recovery bundles: one file from which a lost cluster can be rebuilt with nothing but its owner's age identity.
//!
//! In: a snapshot of etcd, the sealed state, a manifest. Out: a file that is whole or not there; read back piece by piece, each checked
//! against the manifest before it is believed. Whoever reads one takes it for hostile: lengths are compared with the file before
//! anything is read, and nothing is unpacked beyond what the manifest announces.
//!
//! The file: [`file::MAGIC`], the encrypted snapshot, the encrypted state, the manifest's seal (JSON), the manifest (JSON), its length (4
//! bytes, big endian), its SHA-256. What was cut short has no end, and shows at once. The seal is the manifest's signature with the
//! signer's certificate; it is missing where an earlier hactl wrote the file. A manifest is believed only after [`Trust`] has judged it:
//! whoever can write a file can claim anything.

mod authentic;
mod bucket;
mod file;
mod gentle;
mod room;
mod seal;
mod sealed;

pub use authentic::{Signer, Trust};
pub use bucket::{Bucket, BucketError, BucketTrouble, Stored};
pub use file::{Bundle, BundleError, LARGEST_BUNDLE, LARGEST_STATE, Writer};
pub use gentle::Gentle;
pub use room::check_room;
pub use seal::{BadKey, Identities, Recipients, SealedWriter, is_other_identity, new_identity, public_of};
pub use sealed::Sealed;
