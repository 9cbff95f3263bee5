//! The files of a state directory: their names, and how they are written and read, private from the start.
//!
//! In: [`Contents`] and a directory. Out: files of mode 0600 from their first byte on, synced to disk; or contents
//! again, or an error that names the damaged file.

use super::contents::{Authority, Contents, KeyPairPem};
use super::rotations::{self, KeyText, Rotations};
use super::{StateDirError, io_error};
use crate::model::names::ClusterName;
use crate::model::rotation::Rotatable;
use crate::model::secret::Secret;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The cluster's name.
pub const CLUSTER: &str = "cluster";
/// The journal of what cannot be observed.
pub const JOURNAL: &str = "journal.jsonl";
/// Logs of runs.
pub const RUNS: &str = "runs";
const SERVING: &str = Rotatable::KubeletServingCa.name();
const SERVICE_ACCOUNT: &str = "service-account";
const ENCRYPTION: &str = "encryption.key";
/// No file of a state directory comes near this size.
const LARGEST: u64 = 64 << 10;

fn authorities(contents: &Contents) -> impl Iterator<Item = (&'static str, &Authority)> {
    let always = [
        ("cluster-ca", &contents.cluster),
        ("etcd-ca", &contents.etcd),
        ("front-proxy-ca", &contents.front_proxy),
        ("signing-ca", &contents.signing),
    ];
    always.into_iter().chain(contents.kubelet_serving.as_ref().map(|authority| (SERVING, authority)))
}

/// The files of one CA or key: its public half, if it has one, and the key.
pub fn names(what: Rotatable) -> (Option<String>, String) {
    match what {
        Rotatable::ServiceAccount => (Some(format!("{SERVICE_ACCOUNT}.pub")), format!("{SERVICE_ACCOUNT}.key")),
        Rotatable::Encryption => (None, ENCRYPTION.to_owned()),
        authority => (Some(format!("{authority}.crt")), format!("{authority}.key")),
    }
}

/// Writes everything into a new directory.
pub fn write_contents(dir: &Path, cluster: &ClusterName, contents: &Contents) -> Result<(), StateDirError> {
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
    put(&dir.join(ENCRYPTION), contents.encryption.reveal())?;
    rotations::write_new(dir, contents)
}

/// Reads everything and checks it.
pub fn read_contents(dir: &Path) -> Result<Contents, StateDirError> {
    let found = rotations::read(dir)?;
    // After an interrupted run, this one file has all current values.
    let current = found.as_ref().and_then(|found| found.current.as_ref());
    let pair = |what: Rotatable| -> Result<KeyText, StateDirError> {
        if let Some(pair) = current.and_then(|current| rotations::take(current, what)) {
            return Ok(pair);
        }
        let (public, private) = names(what);
        let public = public.map_or(Ok(String::new()), |name| read_public(&dir.join(name)))?;
        Ok(KeyText { public, private: read_secret(&dir.join(private))? })
    };
    let authority = |what: Rotatable| {
        let KeyText { public, private } = pair(what)?;
        Authority::new(public, private).map_err(|bad| {
            use super::BadAuthority::{Key, KeyMismatch};
            let (crt, key) = names(what);
            let path = dir.join(if matches!(bad, Key | KeyMismatch) { key } else { crt.unwrap_or(key) });
            StateDirError::Corrupt { path, why: bad.to_string() }
        })
    };
    // A state directory from before kubelets had a CA of their own has neither of the two files; one alone is damage.
    let serving = match authority(Rotatable::KubeletServingCa) {
        Err(StateDirError::Missing { .. }) if !exists(dir, "crt")? && !exists(dir, "key")? => None,
        found => Some(found?),
    };
    let cluster = authority(Rotatable::ClusterCa)?;
    let never = Rotations::never(cluster.fingerprint());
    Ok(Contents {
        cluster,
        etcd: authority(Rotatable::EtcdCa)?,
        front_proxy: authority(Rotatable::FrontProxyCa)?,
        signing: authority(Rotatable::SigningCa)?,
        kubelet_serving: serving,
        service_account: service_account(dir, pair(Rotatable::ServiceAccount)?)?,
        encryption: encryption(dir, pair(Rotatable::Encryption)?.private)?,
        rotations: found.map_or(never, |found| found.rotations),
    })
}

/// Whether a file of the kubelet serving CA exists.
fn exists(dir: &Path, ending: &str) -> Result<bool, StateDirError> {
    let path = dir.join(format!("{SERVING}.{ending}"));
    path.try_exists().map_err(io_error("read", &path))
}

fn service_account(dir: &Path, pair: KeyText) -> Result<KeyPairPem, StateDirError> {
    let KeyText { public, private } = pair;
    let corrupt = |name: String, why: &str| StateDirError::Corrupt { path: dir.join(name), why: why.to_owned() };
    let (public_name, name) = names(Rotatable::ServiceAccount);
    let pair = rcgen::KeyPair::from_pem(private.reveal())
        .map_err(|_| corrupt(name.clone(), "it holds no readable private key"))?;
    if pair.public_key_pem().trim() != public.trim() {
        return Err(corrupt(public_name.unwrap_or(name), "it is not the private key's public key"));
    }
    Ok(KeyPairPem { private, public })
}

fn encryption(dir: &Path, text: Secret<String>) -> Result<Secret<String>, StateDirError> {
    use base64::Engine as _;
    let raw = base64::engine::general_purpose::STANDARD.decode(text.reveal().trim_end()).map(Secret::new);
    match raw {
        Ok(raw) if raw.reveal().len() == 32 => Ok(text),
        _ => Err(StateDirError::Corrupt { path: dir.join(ENCRYPTION), why: "it is not 32 bytes in base64".into() }),
    }
}

/// Refuses a directory or file that users other than its owner can access.
pub fn private(path: &Path, wanted: u32) -> Result<(), StateDirError> {
    let meta = std::fs::metadata(path).map_err(|e| missing_or("read", path, e))?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(StateDirError::Open { path: path.to_owned(), mode, wanted });
    }
    Ok(())
}

/// Reads a file that is not secret.
pub fn read_public(path: &Path) -> Result<String, StateDirError> {
    let file = File::open(path).map_err(|e| missing_or("open", path, e))?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => StateDirError::Corrupt { path: path.to_owned(), why: "it is not text".into() },
        _ => io_error("read", path)(e),
    })?;
    Ok(text)
}

/// Reads a file that only its owner may read.
pub fn read_secret(path: &Path) -> Result<Secret<String>, StateDirError> {
    private(path, 0o600)?;
    read_public(path).map(Secret::new)
}

fn missing_or(doing: &'static str, path: &Path, e: io::Error) -> StateDirError {
    match e.kind() {
        io::ErrorKind::NotFound => StateDirError::Missing { path: path.to_owned() },
        _ => io_error(doing, path)(e),
    }
}

/// Creates a new file, with its final mode from the start.
pub fn create_new(path: &Path, mode: u32) -> Result<File, StateDirError> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(io_error("create", path))
}

/// Writes a new file of mode 0600.
pub fn put(path: &Path, text: &str) -> Result<(), StateDirError> {
    let mut file = create_new(path, 0o600)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error("write", path))
}

fn make_private_dir(path: &Path) -> Result<(), StateDirError> {
    DirBuilder::new().mode(0o700).create(path).map_err(io_error("create", path))
}

/// Creates a directory and its parents; new ones are private.
pub fn make_private_dirs(path: &Path) -> Result<(), StateDirError> {
    DirBuilder::new().mode(0o700).recursive(true).create(path).map_err(io_error("create", path))
}

/// Syncs a directory's entries to disk.
pub fn sync_dir(path: &Path) -> Result<(), StateDirError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io_error("flush", path))
}
