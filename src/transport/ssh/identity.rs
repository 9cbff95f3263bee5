//! Reads an identity file and decides whether hactl can sign with it.
//!
//! In: a file in one of the formats that ssh-keygen and Vagrant write. Out: a key that signs, a key that only the SSH
//! agent can use, or the reason why neither.

use super::rsa::RsaKey;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{PrivateKey, PublicKey};
use std::io;
use std::path::{Path, PathBuf};

/// The content of an identity file.
pub(super) enum Identity {
    /// A key that signs.
    Key(Box<Key>),
    /// A key that only the agent can use, and why the file cannot be used.
    AgentOnly(Box<PublicKey>, &'static str),
}

/// A key that signs.
pub(super) enum Key {
    /// Any key but RSA.
    Plain(Box<PrivateKey>),
    /// An RSA key: another library signs with it.
    Rsa(Box<RsaKey>),
}

impl Key {
    /// The public key.
    pub(super) fn public(&self) -> &PublicKey {
        match self {
            Self::Plain(key) => key.public_key(),
            Self::Rsa(key) => key.public(),
        }
    }
}

/// `~/` is the home directory.
pub(super) fn expanded(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// Reads an identity file.
pub(super) fn read(path: &Path) -> Result<Identity, String> {
    let path = expanded(path);
    let text = zeroize::Zeroizing::new(std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::InvalidData => "it is not text".to_owned(),
        _ => error.to_string(),
    })?);
    let agent_only = |key: &PublicKey, why| Ok(Identity::AgentOnly(Box::new(key.clone()), why));
    let key = |key| Ok(Identity::Key(Box::new(key)));
    if let Ok(key) = PublicKey::from_openssh(&text) {
        return agent_only(&key, "it is a public key");
    }
    if text.contains("BEGIN OPENSSH PRIVATE KEY") {
        let found =
            PrivateKey::from_openssh(text.as_bytes()).map_err(|error| format!("it cannot be parsed: {error}"))?;
        return match found.key_data() {
            _ if found.is_encrypted() => agent_only(found.public_key(), "it has a passphrase"),
            KeypairData::Rsa(pair) => key(Key::Rsa(Box::new(RsaKey::from_openssh(pair)?))),
            _ => key(Key::Plain(Box::new(found))),
        };
    }
    if !text.contains("ENCRYPTED") {
        if let Some(rsa) = RsaKey::from_pem(&text) {
            return key(Key::Rsa(Box::new(rsa?)));
        }
        return match russh::keys::decode_secret_key(&text, None) {
            Ok(found) => key(Key::Plain(Box::new(found))),
            Err(error) => Err(format!("it cannot be parsed: {error}")),
        };
    }
    // The older formats do not contain the public key of an encrypted key; it is usually beside it.
    let mut beside = path.into_os_string();
    beside.push(".pub");
    match std::fs::read_to_string(&beside).ok().and_then(|text| PublicKey::from_openssh(&text).ok()) {
        Some(key) => agent_only(&key, "it has a passphrase"),
        None => {
            Err("it has a passphrase, and its public key is not beside it: convert it with ssh-keygen -p -f".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    fn generated(dir: &Path, name: &str, args: &[&str]) -> PathBuf {
        let path = dir.join(name);
        let status = Command::new("ssh-keygen").args(args).arg("-q").arg("-f").arg(&path).status().unwrap();
        assert!(status.success());
        path
    }

    fn public(path: &Path) -> PublicKey {
        let mut beside = path.to_owned().into_os_string();
        beside.push(".pub");
        PublicKey::from_openssh(&std::fs::read_to_string(beside).unwrap()).unwrap()
    }

    #[test]
    fn plain_agent_only_and_unreadable_identities_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let plain = generated(dir.path(), "plain", &["-t", "ed25519", "-N", ""]);
        assert!(matches!(read(&plain), Ok(Identity::Key(_))));
        let locked = generated(dir.path(), "locked", &["-t", "ed25519", "-N", "secret"]);
        assert!(matches!(read(&locked), Ok(Identity::AgentOnly(_, "it has a passphrase"))));
        let locked = generated(dir.path(), "rsa-locked", &["-t", "rsa", "-N", "secret", "-m", "PEM"]);
        assert!(matches!(read(&locked), Ok(Identity::AgentOnly(_, "it has a passphrase"))));
        assert!(matches!(read(&dir.path().join("plain.pub")), Ok(Identity::AgentOnly(..))));
        assert!(read(&dir.path().join("none")).is_err_and(|why| why.contains("no such file")));
        std::fs::write(dir.path().join("junk"), "junk").unwrap();
        assert!(read(&dir.path().join("junk")).is_err());
    }

    #[test]
    fn rsa_keys_of_all_formats_sign_and_show_the_public_half_that_ssh_keygen_shows() {
        let dir = tempfile::tempdir().unwrap();
        for format in ["RFC4716", "PEM", "PKCS8"] {
            let path = generated(dir.path(), format, &["-t", "rsa", "-b", "2048", "-N", "", "-m", format]);
            let Ok(Identity::Key(key)) = read(&path) else { panic!("{format} is read") };
            assert!(matches!(*key, Key::Rsa(_)), "{format}");
            assert_eq!(key.public().key_data(), public(&path).key_data(), "{format}");
        }
        let small = dir.path().join("small");
        let made =
            Command::new("openssl").args(["genrsa", "-traditional", "-out"]).arg(&small).arg("1024").output().unwrap();
        assert!(made.status.success());
        assert!(read(&small).is_err_and(|why| why.contains("2048")), "an RSA key that is too short");
    }
}
