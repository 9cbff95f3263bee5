//! Encryption for the owners of a cluster, in the age format (age-encryption.org/v1), so that `age` itself can
//! decrypt the files of hactl.
//!
//! In: public keys (`age1...`) of the recipients, or an identity file (`AGE-SECRET-KEY-1...`) for the decryption.
//! Out: streams; an armored form for text files. Only X25519 keys: no passphrase to ask for at three in the morning,
//! no program to run.

use crate::model::secret::Secret;
use age::armor::{ArmoredReader, ArmoredWriter, Format};
use age::secrecy::ExposeSecret as _;
use age::stream::{StreamReader, StreamWriter};
use age::x25519::{Identity, Recipient};
use age::{DecryptError, Decryptor, Encryptor};
use std::io::{self, Read, Write};

/// Text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// An invalid public key.
    #[error("{0:?} is not an age public key (age1...)")]
    Public(String),
    /// An invalid line of an identity file.
    #[error("line {0} is not an age secret key (AGE-SECRET-KEY-1...)")]
    Secret(usize),
    /// No recipient, or no identity.
    #[error("it contains no key")]
    None,
}

/// The recipients of the encryption.
pub struct Recipients(Vec<Recipient>);

impl Recipients {
    /// Parses public keys; there must be one.
    ///
    /// # Errors
    /// Text that is not a key.
    pub fn parse(keys: &[String]) -> Result<Self, BadKey> {
        let one = |key: &String| key.parse().map_err(|_| BadKey::Public(key.chars().take(80).collect()));
        let keys: Vec<Recipient> = keys.iter().map(one).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(BadKey::None) } else { Ok(Self(keys)) }
    }

    /// Encrypts the written data into `to`; it must be finished, or it cannot be decrypted.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn writer<W: Write>(&self, to: W) -> io::Result<StreamWriter<W>> {
        let encryptor = Encryptor::with_recipients(self.0.iter().map(|r| r as &dyn age::Recipient));
        encryptor.map_err(io::Error::other)?.wrap_output(to)
    }

    /// A secret text, encrypted, as text.
    ///
    /// # Errors
    /// None that is known: it is written to memory.
    pub fn text(&self, secret: &Secret<String>) -> io::Result<String> {
        let armor = ArmoredWriter::wrap_output(Vec::new(), Format::AsciiArmor)?;
        let mut sealed = self.writer(armor)?;
        sealed.write_all(secret.reveal().as_bytes())?;
        let text = sealed.finish()?.finish()?;
        String::from_utf8(text).map_err(io::Error::other)
    }
}

/// Encrypts the data written into it; it must be finished, or it cannot be decrypted.
pub type SealedWriter<W> = StreamWriter<W>;

/// Whether an error says that something is encrypted for other identities.
pub fn is_other_identity(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(error.downcast_ref::<DecryptError>(), Some(DecryptError::NoMatchingKeys))
}

/// The identities for the decryption.
pub struct Identities(Vec<Identity>);

impl Identities {
    /// Parses an identity file: one secret key a line, besides empty lines and comments.
    ///
    /// # Errors
    /// A line that is not a key, or no key at all.
    pub fn parse(text: &Secret<String>) -> Result<Self, BadKey> {
        let lines = text.reveal().lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<Identity> =
            lines.map(|(at, line)| line.parse().map_err(|_| BadKey::Secret(at))).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(BadKey::None) } else { Ok(Self(keys)) }
    }

    /// Decrypts data that was encrypted for one of them.
    ///
    /// # Errors
    /// See [`DecryptError`]: not made by age, or for none of these.
    pub fn reader<R: Read>(&self, from: R) -> Result<StreamReader<R>, DecryptError> {
        Decryptor::new(from)?.decrypt(self.0.iter().map(|i| i as &dyn age::Identity))
    }

    /// Decrypts a text of at most so many bytes.
    ///
    /// # Errors
    /// As [`Identities::reader`], and data that is longer or not text.
    pub fn text(&self, sealed: &[u8], longest: u64) -> Result<Secret<String>, DecryptError> {
        let mut text = String::new();
        let read = self.reader(ArmoredReader::new(sealed))?.take(longest + 1).read_to_string(&mut text);
        let text = Secret::new(text);
        read?;
        if text.reveal().len() as u64 > longest {
            return Err(io::Error::other("it is longer than allowed").into());
        }
        Ok(text)
    }
}

/// A new identity file: the secret key, and its public key in a comment, as `age-keygen` writes it.
pub fn new_identity() -> Secret<String> {
    let identity = Identity::generate();
    Secret::new(format!("# public key: {}\n{}\n", identity.to_public(), identity.to_string().expose_secret()))
}

/// The public keys of an identity file.
///
/// # Errors
/// See [`Identities::parse`].
pub fn public_of(text: &Secret<String>) -> Result<Vec<String>, BadKey> {
    Ok(Identities::parse(text)?.0.iter().map(|i| i.to_public().to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Identities, Recipients) {
        let identity = new_identity();
        let public = public_of(&identity).expect("it was just made");
        (Identities::parse(&identity).expect("as well"), Recipients::parse(&public).expect("it is a key"))
    }

    #[test]
    fn encrypted_text_opens_only_with_its_own_identity() {
        let ((mine, to_me), (others, _)) = (pair(), pair());
        let sealed = to_me.text(&Secret::new("the keys".to_owned())).expect("memory");
        assert!(sealed.starts_with("-----BEGIN AGE ENCRYPTED FILE-----"));
        assert!(!sealed.contains("the keys"));
        assert_eq!(mine.text(sealed.as_bytes(), 100).map(|t| t.reveal().clone()).ok().as_deref(), Some("the keys"));
        assert!(matches!(others.text(sealed.as_bytes(), 100), Err(DecryptError::NoMatchingKeys)));
    }

    #[test]
    fn an_encrypted_text_is_not_decrypted_beyond_its_length() {
        let (mine, to_me) = pair();
        let sealed = to_me.text(&Secret::new("x".repeat(101))).expect("memory");
        assert!(mine.text(sealed.as_bytes(), 100).is_err());
    }

    #[test]
    fn an_identity_file_may_have_comments_and_is_refused_by_line() {
        let good = new_identity();
        let text = Secret::new(format!("# mine\n\n{}", good.reveal()));
        assert_eq!(public_of(&text).map(|keys| keys.len()), Ok(1));
        let bad = Secret::new(format!("{}age1notsecret\n", good.reveal()));
        assert_eq!(public_of(&bad), Err(BadKey::Secret(3)));
        assert_eq!(public_of(&Secret::new("# nothing\n".to_owned())), Err(BadKey::None));
        assert!(matches!(Recipients::parse(&["age1x".to_owned()]), Err(BadKey::Public(_))));
    }
}
