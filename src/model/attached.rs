//! The contents of the files that the inventory names: CA certificates and logins of registries, and the user's own objects.
//!
//! In: read by `inventory/`. Out: rendered into files of hosts, and applied. Some of it is secret.

use super::secret::Secret;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The contents. `Debug` shows only counts, because some contents are secret.
#[derive(Default)]
pub struct Attached {
    /// Registry or mirror, or the scheme for object storage, to the PEM certificates of its CAs.
    pub authorities: BTreeMap<String, String>,
    /// Registry or mirror, or the scheme for object storage, to `user:password` in base64.
    pub logins: BTreeMap<String, Secret<String>>,
    /// The user's own objects, in the order of the list, the files and the documents.
    pub manifests: Vec<UserObject>,
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authorities, logins, objects) = (self.authorities.len(), self.logins.len(), self.manifests.len());
        write!(f, "Attached({authorities} CAs, {logins} logins, {objects} objects)")
    }
}

/// One object. No `Debug`: it may be a Secret.
#[derive(Clone)]
pub struct UserObject {
    /// The object, without fields that only a server sets.
    pub object: Value,
    /// Its file, as people write it.
    pub file: String,
    /// First line of its document.
    pub line: usize,
}
