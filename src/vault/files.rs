//! The vault's files: their names, how they are written so that nobody else can ever read them, how they are read back.
//!
//! In: [`Contents`] and a directory. Out: files of mode 0600 from their first byte on, flushed to disk; or contents
//! again, each damage named by its file.

use super::contents::{Authority, Contents, KeyPairPem};
use super::{VaultError, io_error};
use crate::model::names::ClusterName;
use crate::model::secret::Secret;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The cluster's name.
pub const CLUSTER: &str = "cluster";
/// What cannot be observed.
pub const JOURNAL: &str = "journal.jsonl";
/// Logs of runs.
pub const RUNS: &str = "runs";
const SERVICE_ACCOUNT: &str = "service-account";
const ENCRYPTION: &str = "encryption.key";
/// No file of a vault comes near this.
const LARGEST: u64 = 64 << 10;

fn authorities(contents: &Contents) -> [(&'static str, &Authority); 4] {
    [
        ("cluster-ca", &contents.cluster),
        ("etcd-ca", &contents.etcd),
        ("front-proxy-ca", &contents.front_proxy),
        ("signing-ca", &contents.signing),
    ]
}

/// Writes everything into a directory that does not exist yet.
pub fn write_contents(dir: &Path, cluster: &ClusterName, contents: &Contents) -> Result<(), VaultError> {
    make_private_dir(dir)?;
    make_private_dir(&dir.join(RUNS))?;
    put(&dir.join(".gitignore"), "*\n")?;
    put(&dir.join(CLUSTER), &format!("{cluster}\n"))?;
    for (name, authority) in authorities(contents) {
        put(&dir.join(format!("{name}.crt")), authority.cert_pem())?;
        put(&dir.join(format!("{name}.key")), authority.key().reveal())?;
    }
    put(&dir.join(format!("{SERVICE_ACCOUNT}.pub")), &contents.service_account.public)?;
    put(&dir.join(format!("{SERVICE_ACCOUNT}.key")), contents.service_account.private.reveal())?;
    put(&dir.join(ENCRYPTION), contents.encryption.reveal())
}

/// Reads everything back and checks it.
pub fn read_contents(dir: &Path) -> Result<Contents, VaultError> {
    let authority = |name: &str| {
        let (crt, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        let (cert_pem, key_pem) = (read_public(&crt)?, read_secret(&key)?);
        Authority::new(cert_pem, key_pem).map_err(|bad| {
            use super::BadAuthority::{Key, KeyMismatch};
            let path = if matches!(bad, Key | KeyMismatch) { key } else { crt };
            VaultError::Corrupt { path, why: bad.to_string() }
        })
    };
    Ok(Contents {
        cluster: authority("cluster-ca")?,
        etcd: authority("etcd-ca")?,
        front_proxy: authority("front-proxy-ca")?,
        signing: authority("signing-ca")?,
        service_account: read_service_account(dir)?,
        encryption: read_encryption(&dir.join(ENCRYPTION))?,
    })
}

fn read_service_account(dir: &Path) -> Result<KeyPairPem, VaultError> {
    let (public_path, path) = (dir.join(format!("{SERVICE_ACCOUNT}.pub")), dir.join(format!("{SERVICE_ACCOUNT}.key")));
    let (public, private) = (read_public(&public_path)?, read_secret(&path)?);
    let pair = rcgen::KeyPair::from_pem(private.reveal())
        .map_err(|_| VaultError::Corrupt { path, why: "it holds no readable private key".into() })?;
    if pair.public_key_pem().trim() != public.trim() {
        return Err(VaultError::Corrupt { path: public_path, why: "it is not the private key's public key".into() });
    }
    Ok(KeyPairPem { private, public })
}

fn read_encryption(path: &Path) -> Result<Secret<String>, VaultError> {
    use base64::Engine as _;
    let text = read_secret(path)?;
    let raw = base64::engine::general_purpose::STANDARD.decode(text.reveal().trim_end()).map(Secret::new);
    match raw {
        Ok(raw) if raw.reveal().len() == 32 => Ok(text),
        _ => Err(VaultError::Corrupt { path: path.to_owned(), why: "it is not 32 bytes in base64".into() }),
    }
}

/// Refuses a directory or file that others than its owner can use.
pub fn private(path: &Path, wanted: u32) -> Result<(), VaultError> {
    let meta = std::fs::metadata(path).map_err(|e| missing_or("look at", path, e))?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(VaultError::Open { path: path.to_owned(), mode, wanted });
    }
    Ok(())
}

/// Reads a file that is no secret.
pub fn read_public(path: &Path) -> Result<String, VaultError> {
    let file = File::open(path).map_err(|e| missing_or("open", path, e))?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => VaultError::Corrupt { path: path.to_owned(), why: "it is not text".into() },
        _ => io_error("read", path)(e),
    })?;
    Ok(text)
}

/// Reads a file that only its owner may read.
pub fn read_secret(path: &Path) -> Result<Secret<String>, VaultError> {
    private(path, 0o600)?;
    read_public(path).map(Secret::new)
}

fn missing_or(doing: &'static str, path: &Path, e: io::Error) -> VaultError {
    match e.kind() {
        io::ErrorKind::NotFound => VaultError::Missing { path: path.to_owned() },
        _ => io_error(doing, path)(e),
    }
}

/// Makes a file that did not exist, with its final mode from the start.
pub fn create_new(path: &Path, mode: u32) -> Result<File, VaultError> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(io_error("create", path))
}

/// Writes a new file of 0600.
pub fn put(path: &Path, text: &str) -> Result<(), VaultError> {
    let mut file = create_new(path, 0o600)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error("write", path))
}

fn make_private_dir(path: &Path) -> Result<(), VaultError> {
    DirBuilder::new().mode(0o700).create(path).map_err(io_error("create", path))
}

/// Makes a directory and those above it, private where they are new.
pub fn make_private_dirs(path: &Path) -> Result<(), VaultError> {
    DirBuilder::new().mode(0o700).recursive(true).create(path).map_err(io_error("create", path))
}

/// Flushes a directory's entries.
pub fn sync_dir(path: &Path) -> Result<(), VaultError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io_error("flush", path))
}
