//! The machine's mounts: removing a folder must never delete the files of a mount.

use super::error::{LabError, Result};
use super::files;
use std::path::{Path, PathBuf};

/// Fails if this process has a mount at or below a folder.
pub(crate) fn demand_none(folder: &Path) -> Result<()> {
    let table = files::read(Path::new("/proc/self/mountinfo"))?;
    match below(&table, folder).into_iter().next() {
        Some(path) => Err(LabError::Mounted { path }),
        None => Ok(()),
    }
}

fn below(table: &str, folder: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(decode);
    points.filter(|point| point.starts_with(folder)).collect()
}

/// The kernel writes space, tab, newline and backslash in octal.
fn decode(point: &str) -> PathBuf {
    let marks = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    marks.iter().fold(point.to_owned(), |text, (mark, char)| text.replace(mark, char)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_are_found_and_neighbours_are_not() {
        let table = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /x /labs/lab/hosts/cp1/data rw - ext4 /dev/a rw\n\
                     3 1 8:1 / /labs/lab2 rw - ext4 /dev/a rw\n4 1 8:1 / /a\\040b/c rw - ext4 /dev/a rw\n";
        assert_eq!(below(table, Path::new("/labs/lab")), [Path::new("/labs/lab/hosts/cp1/data")]);
        assert_eq!(below(table, Path::new("/a b")), [Path::new("/a b/c")]);
    }
}
