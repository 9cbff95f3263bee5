//! The cluster's age identity, and the encrypted copy of the state directory that hosts keep.
//!
//! In: the state directory, the inventory and its public keys. Out: an armored age file for those recipients.
//! Encryption is randomised, so the result is stored and reused until the content changes. Otherwise every run would
//! find the hosts' copies outdated.

use super::{StateDir, StateDirError, files, io_error, portable};
use crate::model::digester::Digester;
use crate::model::names::ClusterName;
use crate::model::secret::Secret;
use crate::snapshot::{Identities, Recipients, new_identity, public_of};
use std::path::PathBuf;

/// The age identity that decrypts everything encrypted for this cluster.
pub const IDENTITY: &str = "identity.txt";
const SEALED: &str = "state.age";
/// SHA-256 of the content and the recipients.
const SEALED_OF: &str = "state.age.of";

impl StateDir {
    /// The path of the identity.
    pub fn identity_path(&self) -> PathBuf {
        self.dir().join(IDENTITY)
    }

    /// The cluster's identity. An older state directory without one gets one; a lost file is not replaced: what was
    /// encrypted for it elsewhere could never be decrypted.
    ///
    /// # Errors
    /// A file that cannot be read or written, is missing, or contains no key.
    pub fn identity(&self) -> Result<Secret<String>, StateDirError> {
        let path = self.identity_path();
        if !path.exists() {
            if self.dir().join(SEALED).exists() {
                return Err(StateDirError::Missing { path });
            }
            self.replace(IDENTITY, new_identity().reveal())?;
        }
        let text = files::read_secret(&path)?;
        match Identities::parse(&text) {
            Ok(_) => Ok(text),
            Err(bad) => Err(StateDirError::Corrupt { path, why: bad.to_string() }),
        }
    }

    /// The recipients of everything that is encrypted for this cluster: its own identity, and the inventory's public
    /// keys.
    ///
    /// # Errors
    /// See [`StateDir::identity`].
    pub fn recipients(&self, named: &[String]) -> Result<Vec<String>, StateDirError> {
        let own = public_of(&self.identity()?);
        let mut all = own.map_err(|bad| StateDirError::Corrupt { path: self.identity_path(), why: bad.to_string() })?;
        all.extend(named.iter().filter(|key| !all.contains(key)).cloned().collect::<Vec<_>>());
        Ok(all)
    }

    /// The state and the inventory, encrypted; stored only if the caller holds the lock.
    ///
    /// # Errors
    /// Invalid keys; files that cannot be written.
    pub fn sealed(
        &self,
        cluster: &ClusterName,
        inventory: &str,
        named: &[String],
        keep: bool,
    ) -> Result<String, StateDirError> {
        let recipients = self.recipients(named)?;
        let text = portable::carry(cluster, self.contents(), &self.identity()?, inventory);
        let of = {
            let mut sum = Digester::new(());
            sum.add(text.reveal().as_bytes());
            for key in &recipients {
                sum.add(key.as_bytes());
            }
            sum.so_far().hex()
        };
        let (kept, kept_of) = (self.dir().join(SEALED), self.dir().join(SEALED_OF));
        if files::read_public(&kept_of).is_ok_and(|found| found.trim_end() == of)
            && let Ok(sealed) = std::fs::read_to_string(&kept)
        {
            return Ok(sealed);
        }
        let unusable = |what: String| StateDirError::Corrupt { path: self.identity_path(), why: what };
        let to = Recipients::parse(&recipients).map_err(|bad| unusable(bad.to_string()))?;
        let sealed = to.text(&text).map_err(io_error("encrypt", &kept))?;
        if keep {
            self.replace(SEALED, &sealed)?;
            // The digest must belong to the copy that was written last.
            self.replace(SEALED_OF, &format!("{of}\n"))?;
        }
        Ok(sealed)
    }
}
