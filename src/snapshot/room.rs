//! Whether a file system has space for an announced file: checked before the first byte is written.

use std::io;
use std::path::Path;

/// The reserve, bytes.
const RESERVE: u64 = 64 << 20;

/// Fails unless so many more bytes fit. A file system that does not report its free space is tried by writing.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`], with both numbers.
pub fn check_room(at: &Path, bytes: u64) -> io::Result<()> {
    let free = at
        .ancestors()
        .find_map(|at| rustix::fs::statvfs(if at.as_os_str().is_empty() { Path::new(".") } else { at }).ok());
    let free = free.map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    let needed = bytes.saturating_add(RESERVE);
    match free {
        Some(free) if free < needed => {
            let what = format!("{} MiB are required there, but {} MiB are free", needed.div_ceil(1 << 20), free >> 20);
            Err(io::Error::new(io::ErrorKind::StorageFull, what))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_fit_is_refused_with_both_numbers_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("not/there/yet");
        let error = check_room(&at, u64::MAX).expect_err("no disk is so large");
        assert!(error.kind() == io::ErrorKind::StorageFull && error.to_string().contains("MiB are free"), "{error}");
        assert!(check_room(&at, 1).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 0);
    }
}
