//! Makes a database that of a new cluster, in place: its members, and a revision above all others.
//!
//! In: the database of a member that has applied its log, and a tiny one that etcd's tool restored as that of the new
//! cluster. Out: the first one with what the tool wrote into the second. The tool itself would copy the whole
//! database. It looks at no more than [`seed`] takes from a database: the bucket `meta` and the last key. It writes
//! members, `meta`, and one key after the last one (`etcdutl/snapshot/v3_snapshot.go` of etcd: `saveDB`,
//! `modifyLatestRevision`, `saveWALAndSnap`, `updateCIndex`).
//!
//! It is one transaction as bbolt writes it: new pages after all others, then the older meta page. No page that is in
//! use changes, so the database is unchanged until that page is written. Every branch keeps at least two children:
//! bbolt relies on that.

use super::bolt::{BRANCH, Bolt, Bucket, DEEPEST, IS_BUCKET, Item, LEAF, Meta, Page, u64_at};
use super::pages::Pages;
use super::{DiskError, plain, written};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Buckets that the tool writes. Others in a tiny database are only there because etcd needs them to exist.
const REPLACED: [&[u8]; 3] = [b"members", b"members_removed", b"meta"];
/// Of the revisions, which are far more than any other bucket has.
const KEYS: &[u8] = b"key";
/// bbolt makes a branch as large as one page, unless its keys are large; those of etcd are revisions.
const LARGEST_BRANCH: usize = 4 << 20;

/// A tiny database with as much of this one as etcd's tool looks at.
pub(super) fn seed(path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = plain(File::options().read(true), path)?;
    let bolt = Bolt::open(&file, path)?;
    let meta = contents(&bolt, b"meta")?;
    let last = bolt.last(&bolt.bucket(&bolt.top(), KEYS)?)?;
    let last = last.map(|key| Item { flags: 0, key, value: Vec::new() });
    let page_size = bolt.meta.page_size;
    let mut pages = Pages::after(2, page_size);
    let mut root = || {
        let keys = bucket(KEYS, pages.leaf(last.as_slice())?, 0);
        let meta = bucket(b"meta", pages.leaf(&meta)?, 0);
        pages.leaf(&[keys, meta])
    };
    let root = root().ok_or_else(|| bolt.damaged(0, TOO_LARGE))?;
    let size = usize::try_from(page_size).map_err(|_| bolt.damaged(0, TOO_LARGE))?;
    let mut bytes = Vec::new();
    for transaction in 0..2 {
        bytes.extend(Meta { page_size, root, sequence: 0, high_water: pages.next(), transaction }.bytes());
        bytes.resize(bytes.len().next_multiple_of(size), 0);
    }
    bytes.extend(pages.bytes);
    Ok(bytes)
}

const TOO_LARGE: &str = "a page is larger than those of etcd";

/// What etcd's tool wrote for the member of a new cluster.
#[derive(Debug)]
pub struct Identity {
    /// Its small buckets.
    buckets: Vec<(Vec<u8>, Vec<Item>)>,
    /// The key with the raised revision.
    newest: Item,
}

impl Identity {
    /// Reads the database that etcd's tool made of a [`seed`].
    ///
    /// # Errors
    /// A database that cannot be read, or is not such a one.
    pub fn of(path: &Path) -> Result<Self, DiskError> {
        let file = plain(File::options().read(true), path)?;
        let bolt = Bolt::open(&file, path)?;
        let missing = || bolt.damaged(0, "a bucket of etcd is missing");
        let mut buckets = Vec::new();
        for item in bolt.items(&bolt.top())? {
            let content = contents(&bolt, &item.key)?;
            buckets.push((item.key, content));
        }
        if REPLACED.iter().any(|name| buckets.iter().all(|(found, _)| found != name)) {
            return Err(missing());
        }
        let keys = buckets.iter().position(|(name, _)| name == KEYS).ok_or_else(missing)?;
        let (_, mut keys) = buckets.swap_remove(keys);
        let newest = keys.pop().ok_or_else(|| bolt.damaged(0, "its revision was not raised"))?;
        Ok(Self { buckets, newest })
    }

    /// Rewrites a database that no other process uses. It is not synced.
    ///
    /// # Errors
    /// A database that cannot be read or written, or that etcd would not write. Then it is as before, unless it could
    /// not be written.
    pub fn write(&self, file: &File, path: &Path) -> Result<(), DiskError> {
        let bolt = Bolt::open(file, path)?;
        let Meta { page_size, sequence, high_water, transaction, .. } = bolt.meta;
        let begin = high_water.checked_mul(page_size).filter(|end| high_water >= 2 && *end <= bolt.length);
        let begin = begin.ok_or_else(|| bolt.damaged(0, "its end is missing"))?;
        let next = transaction.checked_add(1).ok_or_else(|| bolt.damaged(0, "it has no transaction left"))?;
        let too_large = || bolt.damaged(0, TOO_LARGE);
        let mut buckets = bolt.items(&bolt.top())?;
        let mut pages = Pages::after(high_water, page_size);
        for (name, items) in &self.buckets {
            if REPLACED.contains(&name.as_slice()) || buckets.iter().all(|found| found.key != *name) {
                let root = pages.leaf(items).ok_or_else(too_large)?;
                put(&bolt, &mut buckets, name, root)?;
            }
        }
        let root = self.appended(&bolt, &mut pages)?;
        put(&bolt, &mut buckets, KEYS, root)?;
        if !buckets.is_sorted_by(|a, b| a.key < b.key) {
            return Err(bolt.damaged(0, "its buckets are not in order"));
        }
        let root = pages.leaf(&buckets).ok_or_else(too_large)?;
        let meta = Meta { page_size, root, sequence, high_water: pages.next(), transaction: next };
        file.write_all_at(&pages.bytes, begin).map_err(written(path))?;
        file.write_all_at(&meta.bytes(), meta.id() * page_size).map_err(written(path))
    }

    /// Appends the newest key to the tree of keys, and returns its new root. The key is on a leaf of its own, because
    /// the last leaf may have a value of megabytes.
    fn appended(&self, bolt: &Bolt<'_>, pages: &mut Pages) -> Result<u64, DiskError> {
        let too_large = || bolt.damaged(0, TOO_LARGE);
        let newest = &self.newest;
        let is_highest = |last: Option<&[u8]>| last.is_none_or(|last| last < newest.key.as_slice());
        let lower = || bolt.damaged(0, "its last revision is not below the raised one");
        let root = match bolt.bucket(&bolt.top(), KEYS)? {
            Bucket::Tree(root) => root,
            inline @ Bucket::Inline(_) => {
                let mut items = bolt.items(&inline)?;
                if !is_highest(items.last().map(|item| item.key.as_slice())) {
                    return Err(lower());
                }
                items.push(newest.clone());
                return pages.leaf(&items).ok_or_else(too_large);
            }
        };
        let (branches, leaf) = edge(bolt, root)?;
        let key = |index| leaf.key(index).ok_or_else(|| bolt.damaged(leaf.at, "a key is beyond the end of its page"));
        let last = leaf.count.checked_sub(1).map(key).transpose()?;
        if !is_highest(last) {
            return Err(lower());
        }
        let added = pages.leaf(std::slice::from_ref(newest)).ok_or_else(too_large)?;
        let Some((lowest, above)) = branches.split_last() else {
            // An empty root is replaced.
            if last.is_none() {
                return Ok(added);
            }
            let children = [(key(0)?.to_vec(), root), (newest.key.clone(), added)];
            return pages.branch(&children).ok_or_else(too_large);
        };
        if last.is_none() {
            return Err(bolt.damaged(leaf.at, "a leaf is empty"));
        }
        let mut children = children(bolt, lowest)?;
        children.push((newest.key.clone(), added));
        let mut root = pages.branch(&children).ok_or_else(too_large)?;
        for branch in above.iter().rev() {
            let mut children = self::children(bolt, branch)?;
            if let Some((_, last)) = children.last_mut() {
                *last = root;
            }
            root = pages.branch(&children).ok_or_else(too_large)?;
        }
        Ok(root)
    }
}

/// The elements of a small bucket in the bucket of buckets.
fn contents(bolt: &Bolt<'_>, name: &[u8]) -> Result<Vec<Item>, DiskError> {
    let items = bolt.items(&bolt.bucket(&bolt.top(), name)?)?;
    if items.iter().any(|item| item.flags != 0) {
        return Err(bolt.damaged(0, "a bucket of etcd contains a bucket"));
    }
    Ok(items)
}

/// The element of a bucket in the bucket of buckets.
fn bucket(name: &[u8], root: u64, sequence: u64) -> Item {
    let value = [root.to_le_bytes(), sequence.to_le_bytes()].concat();
    Item { flags: IS_BUCKET, key: name.to_vec(), value }
}

/// Gives a bucket this root page. A bucket that is missing is created.
fn put(bolt: &Bolt<'_>, buckets: &mut Vec<Item>, name: &[u8], root: u64) -> Result<(), DiskError> {
    let Some(old) = buckets.iter_mut().find(|item| item.key == name) else {
        let at = buckets.partition_point(|item| item.key.as_slice() < name);
        buckets.insert(at, bucket(name, root, 0));
        return Ok(());
    };
    let sequence = u64_at(&old.value, 8).filter(|_| old.flags == IS_BUCKET);
    *old = bucket(name, root, sequence.ok_or_else(|| bolt.damaged(0, "a bucket is truncated"))?);
    Ok(())
}

/// The branches on the right edge of a tree, from its root, and the last leaf.
fn edge(bolt: &Bolt<'_>, root: u64) -> Result<(Vec<Page>, Page), DiskError> {
    let (mut branches, mut id) = (Vec::new(), root);
    for _ in 0..DEEPEST {
        let page = bolt.page(id)?;
        match page.flags {
            LEAF => return Ok((branches, page)),
            BRANCH if page.bytes.len() <= LARGEST_BRANCH => {
                let child = page.count.checked_sub(1).and_then(|last| page.child(last));
                id = child.ok_or_else(|| bolt.damaged(page.at, "a branch has no child"))?;
                branches.push(page);
            }
            BRANCH => return Err(bolt.damaged(page.at, TOO_LARGE)),
            _ => return Err(bolt.damaged(page.at, "a page is neither branch nor leaf")),
        }
    }
    Err(bolt.damaged(0, "its tree is endless"))
}

/// The children of a branch.
fn children(bolt: &Bolt<'_>, branch: &Page) -> Result<Vec<(Vec<u8>, u64)>, DiskError> {
    let child = |index| Some((branch.key(index)?.to_vec(), branch.child(index)?));
    let all: Option<Vec<_>> = (0..branch.count).map(child).collect();
    all.ok_or_else(|| bolt.damaged(branch.at, "a child is beyond the end of its page"))
}
