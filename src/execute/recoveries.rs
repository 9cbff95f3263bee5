//! The snapshots of recoveries on this machine: encrypted to the state's own identity, named after the recovery, and
//! kept until its end.
//!
//! In: the state directory, and a snapshot from a host or a file. Out: a complete snapshot with a note of its metadata,
//! or none. The steps of a recovery pass no values to each other: they store them here, so that an interrupted run can
//! resume. Nothing is stored in plain text: a copy of these files is useless without the identity.

use crate::model::blob::SnapshotBlob;
use crate::model::names::Digest;
use crate::model::secret::Secret;
use crate::snapshot::{Identities, Recipients, Sealed, SealedWriter, public_of};
use crate::transport::Payload;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The endings of the files: the note, the snapshot, and a plain-text snapshot of earlier versions.
const NOTE: &str = ".json";
const SEALED: &str = ".snapshot.age";
const OPEN: &str = ".snapshot.zst";

/// Their directory, and the identity that they are encrypted to.
#[derive(Debug, Clone)]
pub struct Recoveries {
    at: PathBuf,
    identity: PathBuf,
}

impl Recoveries {
    /// Those below a directory, encrypted to the identity in a file.
    pub fn of(dir: &Path, identity: &Path) -> Self {
        Self { at: dir.join("recovery"), identity: identity.to_owned() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.at
    }

    fn file(&self, id: &str, ending: &str) -> PathBuf {
        self.at.join(format!("{id}{ending}"))
    }

    fn identity(&self) -> io::Result<Secret<String>> {
        let text = fs::read_to_string(&self.identity);
        text.map(Secret::new).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.identity.display())))
    }

    /// The note of a complete snapshot.
    pub(super) fn noted(&self, id: &str) -> io::Result<Option<SnapshotBlob>> {
        match fs::read(self.file(id, NOTE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // It is written atomically, so hactl did not write one that cannot be parsed.
            text => Ok(serde_json::from_slice(&text?).ok()),
        }
    }

    /// The payload for a host; `None`: there is no snapshot.
    pub(super) fn payload(&self, id: &str, blob: &SnapshotBlob) -> io::Result<Option<Payload>> {
        let (sealed, open) = (self.file(id, SEALED), self.file(id, OPEN));
        match fs::metadata(&sealed) {
            Ok(found) => {
                let identities = Identities::parse(&self.identity()?).map_err(io::Error::other)?;
                let part = (0, found.len());
                Ok(Some(Payload::Sealed(Sealed::new(sealed, part, Arc::new(identities), blob.sent_size))))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(open.exists().then_some(Payload::Blob(open))),
            Err(error) => Err(error),
        }
    }

    /// The snapshot of a recovery that an earlier run took and fetched. It is read completely: after a power loss this
    /// machine may have its note but not its content, and then no host's data was replaced yet.
    ///
    /// # Errors
    /// An error of the file system, except that it does not exist; an identity that does not decrypt it, because it may
    /// be the only copy.
    pub fn taken(&self, id: &str) -> io::Result<Option<SnapshotBlob>> {
        let Some(taken) = self.noted(id)? else { return Ok(None) };
        let found = match self.payload(id, &taken)? {
            None | Some(Payload::None) => return Ok(None),
            Some(Payload::Blob(open)) => Digest::of_all(File::open(open)?, taken.sent_size)?,
            Some(Payload::Sealed(sealed)) => {
                match sealed.read(0).and_then(|all| Digest::of_all(all, taken.sent_size)) {
                    Ok(found) => found,
                    Err(error) if is_other_identity(&error) => return Err(error),
                    // It is truncated or damaged.
                    Err(_) => return Ok(None),
                }
            }
        };
        Ok((found == (taken.sent_digest, taken.sent_size)).then_some(taken))
    }

    /// Begins the snapshot of a recovery; it is encrypted while it is written. It counts only once it is finished and
    /// [`Recoveries::note`] has written its note.
    ///
    /// # Errors
    /// An error of the file system, or no identity to encrypt to.
    pub fn begin(&self, id: &str) -> io::Result<SealedWriter<File>> {
        let public = public_of(&self.identity()?).map_err(io::Error::other)?;
        let to = Recipients::parse(&public).map_err(io::Error::other)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.at)?;
        let mut options = OpenOptions::new();
        to.writer(options.write(true).create(true).truncate(true).mode(0o600).open(self.file(id, SEALED))?)
    }

    /// Writes the note that the snapshot of a recovery is complete.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn note(&self, id: &str, taken: &SnapshotBlob) -> io::Result<()> {
        let note = self.file(id, NOTE);
        let fresh = note.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(taken).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &note)?;
        File::open(&self.at)?.sync_all()
    }

    /// Syncs the snapshot to the disk, and removes its note if that fails: a file system reports such an error only
    /// once, so a later sync would succeed with data that is only in memory.
    pub(super) fn sync(&self, id: &str) -> io::Result<()> {
        let sealed = self.file(id, SEALED);
        let at = if sealed.exists() { sealed } else { self.file(id, OPEN) };
        let Err(error) = File::open(&at).and_then(|file| file.sync_all()) else { return Ok(()) };
        fs::remove_file(self.file(id, NOTE))?;
        Err(error)
    }

    /// Removes the snapshots of all recoveries but one: finished recoveries need none.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn forget(&self, but: Option<&str>) -> io::Result<()> {
        let entries = match fs::read_dir(&self.at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let id = [NOTE, SEALED, OPEN].iter().find_map(|ending| name.strip_suffix(ending));
            if id.is_some_and(|id| Some(id) != but) {
                fs::remove_file(self.at.join(&*name))?;
            }
        }
        Ok(())
    }
}

/// Whether the key is wrong, and not the file.
fn is_other_identity(error: &io::Error) -> bool {
    error.get_ref().is_some_and(crate::snapshot::is_other_identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: &str = "identity.txt";
    use crate::snapshot::new_identity;

    struct World {
        folder: tempfile::TempDir,
        blob: SnapshotBlob,
    }

    const CONTENT: &[u8] = b"all keys and values, and the canary among them";

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(IDENTITY), new_identity().reveal()).expect("ours");
            let (digest, size) = (Digest::of(CONTENT), CONTENT.len() as u64);
            Self { folder, blob: SnapshotBlob { digest, size, sent_digest: digest, sent_size: size } }
        }
        fn recoveries(&self) -> Recoveries {
            Recoveries::of(self.folder.path(), &self.folder.path().join(IDENTITY))
        }
        fn keep(&self, id: &str) {
            let mut to = self.recoveries().begin(id).expect("there is an identity");
            to.write_all(CONTENT).expect("there is space");
            to.finish().expect("there is space");
        }
        fn taken(&self, id: &str) -> Option<SnapshotBlob> {
            self.recoveries().taken(id).expect("it can be read")
        }
    }

    #[test]
    fn a_snapshot_counts_as_taken_only_while_all_of_it_is_there() {
        let world = World::new();
        assert_eq!(world.taken("one"), None);
        world.keep("one");
        assert_eq!(world.taken("one"), None, "it has no note yet");
        world.recoveries().note("one", &world.blob).expect("it is noted");
        assert_eq!(world.taken("one"), Some(world.blob));
        let at = world.recoveries().file("one", SEALED);
        let sealed = fs::read(&at).expect("it is there");
        for lost in [&sealed[..5], &sealed[..sealed.len() - 1], &vec![0; sealed.len()][..], b""] {
            fs::write(&at, lost).expect("it is written");
            assert_eq!(world.taken("one"), None, "after a loss of power it holds {lost:?}");
        }
        fs::write(&at, &sealed).expect("it is written");
        fs::write(world.folder.path().join(IDENTITY), new_identity().reveal()).expect("ours");
        assert!(world.recoveries().taken("one").is_err(), "it may be the only copy, and another key decrypts it");
    }

    #[test]
    fn a_snapshot_is_never_stored_unencrypted_here_and_nothing_of_it_is_left_at_the_end() {
        let world = World::new();
        world.keep("one");
        world.recoveries().note("one", &world.blob).expect("it is noted");
        for entry in fs::read_dir(world.recoveries().path()).expect("ours").flatten() {
            let bytes = fs::read(entry.path()).expect("ours");
            let open = CONTENT.windows(8).any(|word| bytes.windows(8).any(|found| found == word));
            assert!(!open, "{:?} holds some of it", entry.path());
            let mode = std::os::unix::fs::MetadataExt::mode(&entry.metadata().expect("ours"));
            assert_eq!(mode & 0o777, 0o600);
        }
        let payload = world.recoveries().payload("one", &world.blob).expect("it opens").expect("it is there");
        let Payload::Sealed(sealed) = payload else { panic!("{payload:?}") };
        let mut fed = Vec::new();
        io::Read::read_to_end(&mut sealed.read(0).expect("it opens"), &mut fed).expect("it can be read");
        assert_eq!(fed, CONTENT);
        world.recoveries().forget(Some("one")).expect("ours");
        assert_eq!(world.taken("one"), Some(world.blob));
        world.recoveries().forget(None).expect("ours");
        assert_eq!(fs::read_dir(world.recoveries().path()).expect("ours").count(), 0);
    }

    #[test]
    fn a_recovery_begun_by_an_earlier_version_is_resumed_from_its_unencrypted_file() {
        let world = World::new();
        let recoveries = world.recoveries();
        fs::create_dir(recoveries.path()).expect("ours");
        fs::write(recoveries.file("one", OPEN), CONTENT).expect("ours");
        let hex = Digest::of(CONTENT).hex();
        let note = format!(
            r#"{{"name":"snapshot","version":"one","digest":"{hex}","size":46,"sent_digest":"{hex}","sent_size":46,"place":"snapshot"}}"#
        );
        fs::write(recoveries.file("one", NOTE), note).expect("ours");
        assert_eq!(world.taken("one"), Some(world.blob));
        recoveries.forget(None).expect("ours");
        assert_eq!(fs::read_dir(recoveries.path()).expect("ours").count(), 0, "and goes with it");
    }
}
