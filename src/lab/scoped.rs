//! A lab for one test: removed when the test ends, also when it panics.

use super::{Lab, Result, Silent, Spec};
use crate::lab::Progress;
use std::ops::Deref;

/// If set, the lab of a test that panics is kept for inspection.
const KEEP: &str = "HACTL_LAB_KEEP";

/// A lab that is removed when it is dropped.
#[derive(Debug)]
pub struct Scoped(Lab);

impl Scoped {
    /// Creates the lab. An incomplete lab is removed before the error is returned.
    ///
    /// # Errors
    /// As [`Lab::up`].
    pub fn up(spec: &Spec, progress: &dyn Progress) -> Result<Self> {
        match Lab::up(spec, progress) {
            Ok(lab) => Ok(Self(lab)),
            Err(e) => {
                if let Ok(half) = Lab::open(&spec.root, &spec.name) {
                    // The first error is more useful than its consequences.
                    drop(half.down(&Silent));
                }
                Err(e)
            }
        }
    }
}

impl Deref for Scoped {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Drop for Scoped {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        if panics && std::env::var_os(KEEP).is_some() {
            return;
        }
        let ended = self.0.down(&Silent);
        // A leak fails the test that caused it, unless it fails already.
        assert!(ended.is_ok() || panics, "the lab of this test is not down: {ended:?}");
    }
}
