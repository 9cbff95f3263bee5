//! The vault's identity, and the sealed copy of the vault that hosts keep.
//!
//! In: the vault, the inventory, the public keys in it. Out: an armored text that only its owners can open. Sealing draws random numbers,
//! so that the same text sealed twice differs: what was sealed last is kept, and sealed anew only when something in it changed. Else
//! every run would find the hosts' copies to be old.

use super::{StateDir, StateDirError, files, io_error, portable};
use crate::model::digester::Digester;
use crate::model::names::ClusterName;
use crate::model::secret::Secret;
use crate::snapshot::{Identities, Recipients, new_identity, public_of};
use std::path::PathBuf;

/// The secret key that opens everything that was sealed for this cluster.
pub const IDENTITY: &str = "identity.txt";
const SEALED: &str = "state.age";
/// SHA-256 over what was sealed and for whom.
const SEALED_OF: &str = "state.age.of";

impl StateDir {
    /// Where the identity lies.
    pub fn identity_path(&self) -> PathBuf {
        self.dir().join(IDENTITY)
    }

    /// The vault's own identity. A vault of before there were any gets one; a file that is gone is not replaced: what was sealed and lies
    /// elsewhere would be for a key that nobody has.
    ///
    /// # Errors
    /// A file that cannot be read or written, is gone, or holds no key.
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

    /// Everybody who can open what is sealed for this cluster: the vault's own identity, and the inventory's public keys.
    ///
    /// # Errors
    /// See [`StateDir::identity`].
    pub fn recipients(&self, named: &[String]) -> Result<Vec<String>, StateDirError> {
        let own = public_of(&self.identity()?);
        let mut all = own.map_err(|bad| StateDirError::Corrupt { path: self.identity_path(), why: bad.to_string() })?;
        all.extend(named.iter().filter(|key| !all.contains(key)).cloned().collect::<Vec<_>>());
        Ok(all)
    }

    /// The vault and the inventory, sealed; kept when the caller holds the vault, for only one may write.
    ///
    /// # Errors
    /// Keys that cannot be used; files that cannot be written.
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
        let sealed = to.text(&text).map_err(io_error("seal", &kept))?;
        if keep {
            self.replace(SEALED, &sealed)?;
            // What was noted last belongs to what was written last.
            self.replace(SEALED_OF, &format!("{of}\n"))?;
        }
        Ok(sealed)
    }
}
