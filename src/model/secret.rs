//! A value that must not be seen: keys, tokens, passwords.
//!
//! No `Debug`, `Display`, `Clone` or `Serialize`, so it cannot reach a log, a plan or an argument list by accident;
//! its memory is zeroed when it is dropped.

use zeroize::Zeroize;

/// A secret value. [`Secret::reveal`] is the only access, and easy to search for.
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }
    /// The value itself, for the code that needs it.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A key for secretbox.
#[derive(Clone)]
pub struct EncryptionKey<'a> {
    /// The prefix of everything encrypted with it, which identifies the key; unique to each key.
    pub name: String,
    /// 32 bytes in base64.
    pub key: &'a Secret<String>,
}
