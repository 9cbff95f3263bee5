//! Reads named members of a gzip-compressed tar.
//!
//! In: an archive with a verified checksum, the name of a member. Out: its bytes, for a callback. Nothing is unpacked
//! to disk: names in the archive are compared, never used as paths; links and devices are skipped.

use flate2::read::MultiGzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The largest member. kubelet and similar programs have 60 to 100 MB.
pub const LARGEST: u64 = 1 << 30;
/// The largest unpacked archive: a small file can be crafted to unpack without end.
const LARGEST_ARCHIVE: u64 = 4 << 30;

/// Calls `take` with a member and its size. `None`: the archive has no such file.
pub fn read<T>(
    archive: &Path,
    member: &str,
    take: &mut dyn FnMut(&mut dyn Read, u64) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let mut found = None;
    walk(archive, &mut |name, size, content| {
        if name != member {
            return Ok(true);
        }
        found = Some(take(content, size)?);
        Ok(false)
    })?;
    Ok(found)
}

/// The sizes of the given members; missing ones are omitted.
pub fn sizes(archive: &Path, members: &[String]) -> io::Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    walk(archive, &mut |name, size, _| {
        if members.iter().any(|m| m == name) {
            found.entry(name.to_owned()).or_insert(size);
        }
        Ok(found.len() < members.len())
    })?;
    Ok(found)
}

type Visit<'a> = &'a mut dyn FnMut(&str, u64, &mut dyn Read) -> io::Result<bool>;

/// Visits the regular files of an archive until `visit` stops.
fn walk(archive: &Path, visit: Visit<'_>) -> io::Result<()> {
    let plain = MultiGzDecoder::new(BufReader::new(File::open(archive)?)).take(LARGEST_ARCHIVE);
    let mut tar = tar::Archive::new(plain);
    // Raw entries: long names and other extensions are not resolved, because the wanted names are short.
    for entry in tar.entries()?.raw(true) {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let size = entry.header().entry_size()?;
        if size > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} has {size} bytes")));
        }
        if !visit(name.trim_start_matches("./"), size, &mut entry)? {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};

    /// An archive with the entries that a hostile one may have.
    fn archive(dir: &Path, entries: &[(&str, tar::EntryType, &[u8])]) -> std::path::PathBuf {
        let path = dir.join("a.tar.gz");
        let mut tar = tar::Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::fast()));
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            // The name as given: the library would refuse some.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            if matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link) {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            tar.append(&header, *content).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        path
    }

    fn content(path: &Path, member: &str) -> io::Result<Option<Vec<u8>>> {
        read(path, member, &mut |from, size| {
            let mut all = Vec::new();
            from.read_to_end(&mut all)?;
            assert_eq!(all.len() as u64, size);
            Ok(all)
        })
    }

    #[test]
    fn a_member_is_read_by_its_name_with_or_without_a_dot() {
        let dir = tempfile::tempdir().unwrap();
        let file = tar::EntryType::Regular;
        let path = archive(
            dir.path(),
            &[("./", tar::EntryType::Directory, b""), ("./bridge", file, b"B"), ("bin/ctr", file, b"C")],
        );
        assert_eq!(content(&path, "bridge").unwrap().unwrap(), b"B");
        assert_eq!(content(&path, "bin/ctr").unwrap().unwrap(), b"C");
        assert_eq!(content(&path, "ctr").unwrap(), None);
        let wanted = ["bridge".to_owned(), "bin/ctr".to_owned(), "gone".to_owned()];
        assert_eq!(
            sizes(&path, &wanted).unwrap().into_iter().collect::<Vec<_>>(),
            [("bin/ctr".into(), 1), ("bridge".into(), 1)]
        );
    }

    #[test]
    fn links_and_paths_that_climb_are_never_taken_for_a_member() {
        let dir = tempfile::tempdir().unwrap();
        let path = archive(
            dir.path(),
            &[
                ("etcd", tar::EntryType::Symlink, b""),
                ("etcd", tar::EntryType::Link, b""),
                ("../etcd", tar::EntryType::Regular, b"climbs"),
                ("/etcd", tar::EntryType::Regular, b"roots"),
            ],
        );
        assert_eq!(content(&path, "etcd").unwrap(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was unpacked");
    }

    #[test]
    fn an_archive_that_is_cut_or_claims_too_much_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let noise: Vec<u8> = (0..40_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let path = archive(dir.path(), &[("etcd", tar::EntryType::Regular, &noise)]);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(content(&path, "etcd").is_err());
        std::fs::write(&path, b"<html>").unwrap();
        assert!(content(&path, "etcd").is_err());
        let mut header = tar::Header::new_ustar();
        header.set_path("etcd").unwrap();
        header.set_size(LARGEST + 1);
        header.set_cksum();
        let mut gz = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        io::Write::write_all(&mut gz, header.as_bytes()).unwrap();
        gz.finish().unwrap();
        assert!(content(&path, "etcd").unwrap_err().to_string().contains("bytes"));
    }
}
