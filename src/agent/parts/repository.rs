//! The packages of a bundle, as a repository that apt-get uses for one installation.
//!
//! In: a delivered part, a tar of packages and their index. Out: a folder that only root may enter, and the options
//! with which apt-get uses it and nothing else. The folder is removed with the value.
//!
//! The index has no signature, and apt-get trusts it: apt verified these packages with the keys of the distribution
//! when the bundle was built, and the digest of the part is the one that the bundle has for it. Even so, the tar may
//! put files into this folder only, and no more bytes than the part has.

use super::unpacked;
use crate::agent::host::Host;
use crate::agent::machine::files::{fresh_folder, remove_all};
use crate::agent::op_error::{Explain, Outcome, bad, ensure_space, fault};
use crate::model::target::{Part, Place};
use crate::protocol::{OpError, OpErrorKind};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) const FOLDER: &str = "/var/lib/hactl/repository";
/// The index of a repository of apt.
const INDEX: &str = "Packages";
/// The folders that apt-get fills.
const CACHES: [&str; 2] = ["lists", "cache"];

/// A repository on the disk.
#[derive(Debug)]
pub(crate) struct Repository(PathBuf);

impl Repository {
    /// The repository of a delivered part.
    pub(crate) async fn of(host: &Host, part: &Part) -> Outcome<Self> {
        if part.place != Place::Packages {
            return Err(bad(format!("{} has no packages", part.name)));
        }
        host.waits("the packages of the bundle to be unpacked");
        let part = part.clone();
        let unpacking = host.root.blocking(move |root| {
            let folder = root.own(FOLDER);
            ensure_space(&folder, part.size)?;
            Self::unpack(folder, unpacked(root, &part)?.take(part.size))
        });
        unpacking.await
    }

    fn unpack(folder: PathBuf, tar: impl Read) -> Outcome<Self> {
        fresh_folder(&folder)?;
        // From here on it is removed if anything fails.
        let repository = Self(folder);
        let at = &repository.0;
        let mut archive = tar::Archive::new(tar);
        let unread = |error: io::Error| corrupt(format!("they cannot be read: {error}"));
        for entry in archive.entries().map_err(unread)? {
            let mut entry = entry.map_err(unread)?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if entry.header().entry_type() != tar::EntryType::Regular || !is_plain(&name) {
                return Err(corrupt(format!("{:?} is no package", name.chars().take(100).collect::<String>())));
            }
            let path = at.join(name);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).explain("create", &path)?;
            io::copy(&mut entry, &mut file).explain("write", &path)?;
        }
        for cache in CACHES {
            fresh_folder(&at.join(cache))?;
        }
        let sources = repository.sources();
        fs::write(&sources, format!("deb [trusted=yes] file:{} ./\n", at.display())).explain("write", &sources)?;
        Ok(repository)
    }

    fn sources(&self) -> PathBuf {
        self.0.join("sources.list")
    }

    /// The options with which apt-get uses this repository alone, whatever the host's settings are.
    pub(crate) fn options(&self) -> Vec<String> {
        let [lists, cache] = CACHES.map(|folder| self.0.join(folder));
        let set = |name: &str, to: &Path| format!("{name}={}", to.display());
        let none = Path::new("/dev/null");
        let options = [
            set("Dir::Etc::SourceList", &self.sources()),
            set("Dir::Etc::SourceParts", none),
            set("Dir::Etc::Preferences", none),
            set("Dir::Etc::PreferencesParts", none),
            set("Dir::State::Lists", &lists),
            set("Dir::Cache", &cache),
            // The user as which apt otherwise reads a repository may not enter this one.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ];
        options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect()
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next run.
        let _ = remove_all(&self.0);
    }
}

fn corrupt(why: impl std::fmt::Display) -> OpError {
    fault(OpErrorKind::Corrupt, format!("the packages of the bundle are damaged: {why}"))
}

/// Whether it is the index, or the file of a package: a name without any path, and without what apt-get escapes.
fn is_plain(name: &str) -> bool {
    let is_package = |stem: &str| {
        stem.starts_with(|first: char| first.is_ascii_alphanumeric())
            && stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
    };
    name == INDEX || name.strip_suffix(".deb").is_some_and(is_package)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tar::EntryType;

    /// A tar with these entries, whatever their names are.
    fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_ustar();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..6].copy_from_slice(b"passwd");
            header.set_entry_type(*kind);
            header.set_mode(0o4777);
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, content.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn apt_gets_the_files_in_a_folder_of_root_and_the_folder_goes_with_the_value() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("repository");
        fs::create_dir(&at).unwrap();
        fs::write(at.join("left.deb"), "by a killed installation").unwrap();
        let file = EntryType::Regular;
        let all = [("Packages", file, "Package: haproxy\n"), ("libstdc++6.deb", file, "6"), ("haproxy.deb", file, "h")];
        let repository = Repository::unpack(at.clone(), archive(&all).as_slice()).unwrap();
        let mut names: Vec<String> =
            fs::read_dir(&at).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["Packages", "cache", "haproxy.deb", "libstdc++6.deb", "lists", "sources.list"]);
        assert_eq!(fs::read_to_string(at.join("Packages")).unwrap(), "Package: haproxy\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&at), mode(&at.join("haproxy.deb"))), (0o700, 0o600));
        let sources = fs::read_to_string(at.join("sources.list")).unwrap();
        assert_eq!(sources, format!("deb [trusted=yes] file:{} ./\n", at.display()));
        assert!(repository.options().contains(&format!("Dir::Etc::SourceList={}/sources.list", at.display())));
        drop(repository);
        assert!(!at.exists());
    }

    #[test]
    fn a_tar_with_anything_but_plain_packages_is_refused_and_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("repository");
        let (file, good) = (EntryType::Regular, ("haproxy.deb", EntryType::Regular, "h"));
        let odd = [
            ("../haproxy.deb", file),
            ("/etc/haproxy.deb", file),
            ("pool/haproxy.deb", file),
            ("./haproxy.deb", file),
            (".deb", file),
            ("-o.deb", file),
            ("a b.deb", file),
            ("a%2fb.deb", file),
            ("sources.list", file),
            ("lists", EntryType::Directory),
            ("link.deb", EntryType::Symlink),
            ("link.deb", EntryType::Link),
            ("pipe.deb", EntryType::Fifo),
        ];
        for (name, kind) in odd {
            let fault = Repository::unpack(at.clone(), archive(&[good, (name, kind, "")]).as_slice()).unwrap_err();
            assert_eq!(fault.kind, OpErrorKind::Corrupt, "{name}: {fault:?}");
        }
        let whole = archive(&[good, ("keepalived.deb", file, "k")]);
        for short in [&whole[..700], &whole[..1300]] {
            assert!(Repository::unpack(at.clone(), short).is_err(), "it ends after {} bytes", short.len());
        }
        assert!(Repository::unpack(at.clone(), archive(&[good, good]).as_slice()).is_err(), "one name twice");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left");
    }
}
