//! A bundle as one file, for places without a network: `export` writes it, `import` adds it to another store.
//!
//! In: a bundle, or a stream of bytes. Out: a tar with a fixed layout, or blobs and a lock. The layout, in this order:
//! `hactl-bundle.json`, the lock, each blob once, `checksum` with the SHA-256 of all bytes before it. Each blob is
//! checked against its digest before it gets its name in the store, and the bundle becomes visible only after the whole
//! file was read and checked. A repeated import takes only what is missing.

use super::bundle::Bundle;
use super::error::{BundleError, CarryError, FORMAT, io_error};
use super::lock::{self, Component, Lock};
use super::memory::Memory;
use super::pack;
use super::store::{self, Blob};
use super::tar::{self, Entry};

use crate::model::digester::Digester;
use crate::model::names::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const HEAD: &str = "hactl-bundle.json";
const LOCK: &str = "lock.json";
const CHECKSUM: &str = "checksum";

/// The first entry.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: u32,
    bundle: String,
    identity: Digest,
}

/// The part of the first entry that every format has.
#[derive(Debug, Deserialize)]
struct Format {
    format: u32,
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The bundle.
    pub lock: Lock,
    /// Size of the file.
    pub bytes: u64,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The bundle, as it is in the store.
    pub lock: Lock,
    /// Files that were in the store already.
    pub there: usize,
    /// Files that were added.
    pub taken: usize,
}

/// The distinct blobs of a bundle, in the order of delivery.
fn blobs(lock: &Lock) -> Vec<&Component> {
    let mut seen = std::collections::BTreeSet::new();
    lock.components.iter().filter(|c| seen.insert(c.digest)).collect()
}

fn blob_name(component: &Component) -> String {
    format!("blobs/sha256/{}.zst", component.digest.hex())
}

/// Writes a bundle. `progress` gets the bytes written so far and in total.
pub fn export(bundle: &Bundle, to: impl Write, progress: &dyn Fn(u64, u64)) -> Result<Exported, BundleError> {
    let lock = bundle.lock().clone();
    let written = |error: io::Error| io_error("write", Path::new("the bundle"))(error);
    let head = Head { format: FORMAT, bundle: lock.name(), identity: lock.identity() };
    let head = serde_json::to_vec(&head).map_err(|e| written(e.into()))?;
    let text = serde_json::to_vec_pretty(&lock).map_err(|e| written(e.into()))?;
    let total: u64 = blobs(&lock).iter().map(|c| tar::BLOCK + c.sent_size + tar::padding(c.sent_size)).sum();
    let mut to = Digester::new(to);
    enter(&mut to, HEAD, head.len() as u64, &mut head.as_slice()).map_err(written)?;
    enter(&mut to, LOCK, text.len() as u64, &mut text.as_slice()).map_err(written)?;
    for component in blobs(&lock) {
        let path = bundle.blob(&component.digest)?;
        let mut file = File::open(&path).map_err(io_error("open", &path))?;
        enter(&mut to, &blob_name(component), component.sent_size, &mut file).map_err(written)?;
        progress(to.count(), total);
    }
    let (mut to, checksum, before) = to.finish();
    let line = format!("{}\n", checksum.hex());
    let mut end = Vec::new();
    enter(&mut end, CHECKSUM, line.len() as u64, &mut line.as_bytes()).map_err(written)?;
    end.extend_from_slice(&tar::END);
    to.write_all(&end).and_then(|()| to.flush()).map_err(written)?;
    Ok(Exported { lock, bytes: before + end.len() as u64 })
}

fn enter(to: &mut impl Write, name: &str, size: u64, content: &mut impl Read) -> io::Result<()> {
    let header = tar::header(name, Entry::File(size)).ok_or(io::ErrorKind::InvalidInput)?;
    to.write_all(&header)?;
    if io::copy(&mut content.take(size), to)? != size {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file in the store became shorter"));
    }
    io::copy(&mut io::repeat(0).take(tar::padding(size)), to)?;
    Ok(())
}

/// A bundle that is being read.
struct Reader<R> {
    from: String,
    inner: Digester<R>,
}

impl<R: Read> Reader<R> {
    fn cut(&self, within: &str) -> CarryError {
        CarryError::CutShort { from: self.from.clone(), at: self.inner.count(), within: within.to_owned() }
    }
    fn tampered(&self, why: String) -> CarryError {
        CarryError::Tampered { from: self.from.clone(), why }
    }
    fn exact(&mut self, buffer: &mut [u8], within: &str) -> Result<(), BundleError> {
        match self.inner.read_exact(buffer) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut(within).into()),
            Err(e) => Err(io_error("read", Path::new(&self.from))(e)),
        }
    }
    /// Reads the header of the next entry, which must have this name; returns its size.
    fn expect(&mut self, name: &str) -> Result<u64, BundleError> {
        let mut block = [0; 512];
        self.exact(&mut block, name)?;
        match tar::read_header(&block) {
            Some((found, Entry::File(size))) if found == name => Ok(size),
            Some((found, _)) => Err(self.tampered(format!("{found} is in the place of {name}")).into()),
            None => Err(self.tampered(format!("the header of {name} is invalid")).into()),
        }
    }
    fn padding(&mut self, size: u64, within: &str) -> Result<(), BundleError> {
        let mut rest = vec![0; usize::try_from(tar::padding(size)).unwrap_or(0)];
        self.exact(&mut rest, within)
    }
    /// A small entry, completely.
    fn text(&mut self, name: &str, largest: u64) -> Result<Vec<u8>, BundleError> {
        let size = self.expect(name)?;
        if size > largest {
            return Err(self.tampered(format!("{name} has {size} bytes")).into());
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        self.exact(&mut text, name)?;
        self.padding(size, name)?;
        Ok(text)
    }
    /// Copies this many bytes of an entry.
    fn pour(&mut self, size: u64, to: &mut impl Write, place: &Path, within: &str) -> Result<(), BundleError> {
        let mut left = size;
        let mut piece = vec![0; 1 << 17];
        while left > 0 {
            let want = usize::try_from(left.min(piece.len() as u64)).unwrap_or(piece.len());
            match self.inner.read(&mut piece[..want]) {
                Ok(0) => return Err(self.cut(within).into()),
                Ok(count) => {
                    to.write_all(&piece[..count]).map_err(io_error("write", place))?;
                    left -= count as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(io_error("read", Path::new(&self.from))(e)),
            }
        }
        self.padding(size, within)
    }
}

/// Imports a bundle. `from` names the stream in messages. `expected` is the required identity; `replace` allows it to
/// replace another bundle of the same version.
pub fn import(
    store: &Path,
    stream: impl Read,
    from: &str,
    expected: Option<Digest>,
    replace: bool,
    progress: &dyn Fn(&str, u64),
) -> Result<Carried, BundleError> {
    let mut reader = Reader { from: from.to_owned(), inner: Digester::new(stream) };
    let mut lock = begin(&mut reader)?;
    let identity = lock.identity();
    if let Some(expected) = expected.filter(|expected| *expected != identity) {
        let (found, expected) = (identity.hex(), expected.hex());
        return Err(CarryError::Unexpected { from: from.to_owned(), found, expected }.into());
    }
    let _guard = pack::enter(store)?;
    let place = store::lock_path(store, &lock.name());
    if let (Ok(there), false) = (Lock::read(&place), replace)
        && there.identity() != identity
    {
        let (bundle, there, coming) = (lock.name(), there.identity().hex(), identity.hex());
        return Err(CarryError::Different { bundle, there, coming, from: from.to_owned() }.into());
    }
    let mut memory = Memory::load(store);
    let mut lies: BTreeMap<Digest, Blob> = BTreeMap::new();
    let mut there = 0;
    for component in blobs(&lock) {
        progress(&component.name, reader.inner.count());
        let (blob, was_there) = take(store, &mut reader, component, &memory)?;
        there += usize::from(was_there);
        memory.note_packed(store, &blob)?;
        lies.insert(blob.digest, blob);
    }
    end(&mut reader)?;
    // The store may have the same content compressed differently, and other bundles name those bytes.
    for component in &mut lock.components {
        if let Some(blob) = lies.get(&component.digest) {
            (component.sent_digest, component.sent_size) = (blob.sent_digest, blob.sent_size);
        }
    }
    memory.save(store)?;
    pack::publish(store, &lock)?;
    Ok(Carried { taken: lies.len() - there, lock, there })
}

/// The entries before the blobs.
fn begin<R: Read>(reader: &mut Reader<R>) -> Result<Lock, BundleError> {
    let mut block = [0; 512];
    reader.exact(&mut block, "its beginning")?;
    let not = |why: &str| CarryError::NotABundle { from: reader.from.clone(), why: why.to_owned() };
    let Some((name, Entry::File(size))) = tar::read_header(&block) else {
        return Err(not("it does not start like one").into());
    };
    if name != HEAD || size > 4096 {
        return Err(not(&format!("it starts with {name}")).into());
    }
    let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
    reader.exact(&mut text, HEAD)?;
    reader.padding(size, HEAD)?;
    // A later format may have more fields; its number comes first.
    let broken = |why: String| CarryError::Tampered { from: reader.from.clone(), why: format!("{HEAD}: {why}") };
    let format: Format = serde_json::from_slice(&text).map_err(|e| broken(e.to_string()))?;
    if format.format != FORMAT {
        return Err(CarryError::Newer { from: reader.from.clone(), format: format.format }.into());
    }
    let head: Head = serde_json::from_slice(&text).map_err(|e| broken(e.to_string()))?;
    let text = reader.text(LOCK, lock::LARGEST)?;
    let lock = Lock::parse(&text).map_err(|why| reader.tampered(format!("{LOCK}: {why}")))?;
    if (lock.name(), lock.identity()) != (head.bundle, head.identity) {
        return Err(reader.tampered(format!("{LOCK} does not match {HEAD}")).into());
    }
    if !lock.kubernetes.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-')) {
        return Err(reader.tampered(format!("{} is not a version", lock.name())).into());
    }
    Ok(lock)
}

/// One blob: from the stream into the store; skipped if it is there already.
fn take<R: Read>(
    store: &Path,
    reader: &mut Reader<R>,
    component: &Component,
    memory: &Memory,
) -> Result<(Blob, bool), BundleError> {
    let name = blob_name(component);
    let within = format!("{} {}", component.name, component.version);
    let size = reader.expect(&name)?;
    if size != component.sent_size {
        return Err(reader.tampered(format!("{within} has {size} bytes instead of {}", component.sent_size)).into());
    }
    let place = store::blob_path(store, &component.digest);
    let wanted = (component.digest, component.size);
    let known = memory.known(store, component.digest, component.size);
    let there = known.or_else(|| store::measure(&place, component.size).ok());
    if let Some(there) = there.filter(|there| (there.digest, there.size) == wanted) {
        reader.pour(size, &mut io::sink(), &place, &within)?;
        return Ok((there, true));
    }
    let fresh: PathBuf = store::blobs(store).join(format!("{}.tmp", component.digest.hex()));
    let mut file = File::create(&fresh).map_err(io_error("create", &fresh))?;
    reader.pour(size, &mut file, &fresh, &within)?;
    file.sync_all().map_err(io_error("write", &fresh))?;
    let found = store::measure(&fresh, component.size);
    let whole = found
        .as_ref()
        .is_ok_and(|found| (found.digest, found.size) == wanted && found.sent_digest == component.sent_digest);
    match found {
        Ok(found) if whole => {
            std::fs::rename(&fresh, &place).map_err(io_error("create", &place))?;
            Ok((found, false))
        }
        _ => {
            std::fs::remove_file(&fresh).map_err(io_error("remove", &fresh))?;
            Err(reader.tampered(format!("{within} does not match its digest")).into())
        }
    }
}

/// The entry after the blobs: the checksum of everything before it.
fn end<R: Read>(reader: &mut Reader<R>) -> Result<(), BundleError> {
    let sum = reader.inner.so_far();
    let text = reader.text(CHECKSUM, 65)?;
    if String::from_utf8_lossy(&text).trim_end() != sum.hex() {
        return Err(reader.tampered("its checksum does not match".to_owned()).into());
    }
    let mut zeros = tar::END;
    reader.exact(&mut zeros, "its end")?;
    Ok(())
}
