//! Looks at every page of a database that no process has open.
//!
//! In: the database file. Out: the first damage. bbolt keeps no checksums of its pages, so a changed value remains
//! unnoticed; but etcd reads the whole tree when it starts, and ends if a page is not what its parent expects. Format:
//! see `bolt.rs`.

use super::bolt::{BRANCH, Bolt, Bucket, IS_BUCKET, LEAF, Page};
use super::{DiskError, io, plain};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a process may have the database open: etcd that starts and ends again and again is between two starts by
/// then.
pub const CLOSED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the walk takes at most; etcd waits meanwhile. What is left is taken as undamaged.
const LASTS: Duration = Duration::from_secs(5);

/// Waits until no process has the database open, and prevents etcd from opening it as long as the file is open. `None`:
/// a process keeps it open, or there is none.
pub(super) fn closed(path: &Path, within: Duration) -> Option<File> {
    let file = plain(File::options().read(true), path).ok()?;
    let until = Instant::now() + within;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Some(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => sleep(LOOK_EVERY),
            Err(_) => return None,
        }
    }
}

/// Looks at every page.
///
/// # Errors
/// The first damage.
pub(super) fn walk(file: &File, path: &Path) -> Result<(), DiskError> {
    let bolt = Bolt::open(file, path)?;
    let until = Instant::now() + LASTS;
    let pages = file.metadata().map_err(io(path))?.len() / bolt.meta.page_size;
    let (mut left, mut seen) = (vec![bolt.meta.root], 0);
    while let Some(id) = left.pop() {
        seen += 1;
        if seen + left.len() as u64 > pages {
            return Err(bolt.damaged(0, "its tree is endless"));
        }
        if Instant::now() > until {
            return Ok(());
        }
        look(&bolt, &bolt.page(id)?, false, &mut left)?;
    }
    Ok(())
}

/// Looks at one page, and notes those below it.
fn look(bolt: &Bolt<'_>, page: &Page, is_inline: bool, left: &mut Vec<u64>) -> Result<(), DiskError> {
    let damaged = |what| bolt.damaged(page.at, what);
    let mut before: Option<&[u8]> = None;
    for index in 0..page.count {
        let key = page.key(index).ok_or_else(|| damaged("a key is beyond the end of its page"))?;
        if before.is_some_and(|before| before >= key) {
            return Err(damaged("the keys of a page are not in order"));
        }
        before = Some(key);
        match page.flags {
            BRANCH => left.push(page.child(index).ok_or_else(|| damaged("a branch has no child"))?),
            LEAF => {
                let value = page.value(index).ok_or_else(|| damaged("a value is beyond the end of its page"))?;
                if page.is(index, IS_BUCKET) {
                    match (is_inline, bolt.inner(value, page.at)?) {
                        (false, Bucket::Inline(inner)) => look(bolt, &inner, true, left)?,
                        (false, Bucket::Tree(root)) => left.push(root),
                        // bbolt stores only buckets without buckets inside a value.
                        (true, _) => return Err(damaged("a bucket is inside an inline bucket")),
                    }
                }
            }
            _ => {}
        }
    }
    if matches!(page.flags, BRANCH | LEAF) { Ok(()) } else { Err(damaged("a page is neither branch nor leaf")) }
}
