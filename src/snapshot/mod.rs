//! Snapshots: one file from which a lost cluster can be rebuilt with nothing but the age identity of its owner.
//!
//! In: a snapshot of etcd, the encrypted state, a manifest. Out: a file that is complete or absent; read piece by
//! piece, each verified against the manifest before it is used. A file is treated as hostile: lengths are compared
//! with the file before anything is read, and nothing is unpacked beyond the announced size.
//!
//! The file: [`file::MAGIC`], the encrypted snapshot, the encrypted state, the signature of the manifest (JSON), the
//! manifest (JSON), its length (4 bytes, big endian), its SHA-256. A truncated file has no end, which is detected at
//! once. The signature comes with the certificate of the signer; it is missing in files of earlier versions of hactl.
//! A manifest is trusted only after [`Trust`] has verified it: any process that can write a file can claim anything.

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
