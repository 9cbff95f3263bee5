//! A value that must not be seen: keys, tokens, passwords.
//!
//! No `Debug`, `Display`, `Clone` or `Serialize`, so it cannot reach a log, a plan or an argument list by accident;
//! its memory is zeroed when it is dropped.

use zeroize::Zeroize;

/// Something secret. [`Secret::reveal`] is the only way in, and easy to search for.
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes a value into keeping.
    pub fn new(value: T) -> Self {
        Self(value)
    }
    /// The value itself, for the one place that must have it.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
