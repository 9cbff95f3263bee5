//! Reads as much of the database file as its revision requires: the newest meta page, and the right edge of two
//! buckets.
//!
//! Format: bbolt's `internal/common`. Pages begin with id (8 bytes), flags (2), count (2) and overflow (4), all
//! little-endian as every supported machine writes them; pages 0 and 1 are meta pages, of which the one with the
//! higher transaction counts. etcd stores the applied raft index in bucket `meta` and every revision as a key of
//! bucket `key`: main revision, `_`, sub revision, big-endian.

use super::{DiskError, io, plain};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

pub(super) const MAGIC: u32 = 0xED0C_DAED;
pub(super) const VERSION: u32 = 2;
pub(super) const PAGE_HEADER: usize = 16;
pub(super) const ELEMENT: usize = 16;
pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
/// Deeper than the tree of the largest file.
pub(super) const DEEPEST: usize = 32;
/// A page with its overflow holds at least one value; etcd's largest are far below this.
pub(super) const LARGEST_PAGE: u64 = 64 << 20;
/// bbolt marks a value that is a bucket.
pub(super) const IS_BUCKET: u32 = 0x01;
/// Entries of a bucket that etcd keeps small: a cluster has seven members at most, and etcd ten buckets. Hundreds of
/// short ones fit into a bucket inside its parent.
const MOST_ENTRIES: usize = 1024;
const MOST_PAGES: usize = 64;
/// Bytes of such a bucket: the name and addresses of a member take a few hundred. Values in a crafted file may
/// overlap.
const MOST_BYTES: usize = 1 << 20;
/// How often a file that is being written is read again.
const TRIES: usize = 5;

/// The content of the database.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Store {
    pub consistent_index: u64,
    /// The term of that entry; 0 if the database does not have it, for example after a restore.
    pub term: u64,
    pub revision: i64,
    /// The value of each member of the list: JSON.
    pub members: Vec<Vec<u8>>,
}

/// Reads the database. The writer never changes a page that the newest meta page refers to, but may reuse it two
/// commits later: a file that has changed meanwhile is read again.
pub(super) fn read(path: &Path) -> Result<Store, DiskError> {
    let file = plain(File::options().read(true), path)?;
    let mut outcome =
        Err(DiskError::Damaged { path: path.to_owned(), at: 0, what: "it changes faster than it can be read" });
    for _ in 0..TRIES {
        let bolt = Bolt::open(&file, path)?;
        outcome = bolt.store();
        if Bolt::open(&file, path)?.meta.transaction == bolt.meta.transaction {
            return outcome;
        }
    }
    outcome
}

pub(super) struct Bolt<'a> {
    file: &'a File,
    path: &'a Path,
    pub(super) length: u64,
    pub(super) meta: Meta,
}

/// The content of a meta page.
#[derive(Clone, Copy)]
pub(super) struct Meta {
    pub page_size: u64,
    /// The root page of the bucket of buckets, and the number in the header of this bucket.
    pub root: u64,
    pub sequence: u64,
    /// The first page after all that were ever in use.
    pub high_water: u64,
    pub transaction: u64,
}

/// A page with its overflow.
pub(super) struct Page {
    pub(super) at: u64,
    pub(super) flags: u16,
    pub(super) count: usize,
    pub(super) bytes: Vec<u8>,
}

/// An element of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub flags: u32,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A bucket: a tree of pages, or a page inside the value of its parent.
pub(super) enum Bucket {
    Tree(u64),
    Inline(Page),
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    number(bytes, at).map(u16::from_le_bytes)
}
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_le_bytes)
}
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_le_bytes)
}

/// FNV-1a over 64 bits, the checksum of bbolt's meta pages.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A meta page, if it is whole.
fn meta(bytes: &[u8]) -> Option<Meta> {
    let body = bytes.get(PAGE_HEADER..PAGE_HEADER + 64)?;
    let whole = u32_at(body, 0)? == MAGIC && u32_at(body, 4)? == VERSION && u64_at(body, 56)? == fnv(&body[..56]);
    let page_size = u64::from(u32_at(body, 8)?);
    let plausible = (512..=1 << 20).contains(&page_size) && page_size.is_power_of_two();
    let (root, sequence) = (u64_at(body, 16)?, u64_at(body, 24)?);
    let (high_water, transaction) = (u64_at(body, 40)?, u64_at(body, 48)?);
    (whole && plausible).then_some(Meta { page_size, root, sequence, high_water, transaction })
}

impl<'a> Bolt<'a> {
    pub(super) fn open(file: &'a File, path: &'a Path) -> Result<Self, DiskError> {
        let length = file.metadata().map_err(io(path))?.len();
        let read = |at: u64| {
            let mut bytes = [0; PAGE_HEADER + 64];
            file.read_exact_at(&mut bytes, at).ok().and_then(|()| meta(&bytes))
        };
        // The first page may be the one that was being written; then the second is at an offset of some page size.
        let first = read(0);
        let second = match first {
            Some(first) => read(first.page_size),
            None => (9..=20).map(|power| 1_u64 << power).find_map(|at| read(at).filter(|found| found.page_size == at)),
        };
        let newest = first.into_iter().chain(second).max_by_key(|found| found.transaction);
        let meta = newest.ok_or(DiskError::Damaged {
            path: path.to_owned(),
            at: 0,
            what: "neither of its meta pages is valid",
        })?;
        Ok(Self { file, path, length, meta })
    }

    pub(super) fn damaged(&self, at: u64, what: &'static str) -> DiskError {
        DiskError::Damaged { path: self.path.to_owned(), at, what }
    }

    pub(super) fn page(&self, id: u64) -> Result<Page, DiskError> {
        let at = id
            .checked_mul(self.meta.page_size)
            .ok_or_else(|| self.damaged(0, "a page is beyond the end of the file"))?;
        let mut head = [0; PAGE_HEADER];
        self.file.read_exact_at(&mut head, at).map_err(|_| self.damaged(at, "a page is beyond the end of the file"))?;
        let odd = || self.damaged(at, "a page has no valid header");
        let size = (u64::from(u32_at(&head, 12).ok_or_else(odd)?) + 1) * self.meta.page_size;
        if u64_at(&head, 0) != Some(id) || size > LARGEST_PAGE || at.saturating_add(size) > self.length {
            return Err(self.damaged(at, "a page does not have the id of its reference"));
        }
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| odd())?];
        self.file.read_exact_at(&mut bytes, at).map_err(io(self.path))?;
        Page::of(at, bytes).ok_or_else(odd)
    }

    fn store(&self) -> Result<Store, DiskError> {
        let top = self.top();
        let meta = self.bucket(&top, b"meta")?;
        let index = self.get(&meta, b"consistent_index")?;
        let index = index.and_then(|(value, _)| number(&value, 0)).map(u64::from_be_bytes);
        let term = self.get(&meta, b"term")?;
        let term = term.and_then(|(value, _)| number(&value, 0)).map_or(0, u64::from_be_bytes);
        let keys = self.bucket(&top, b"key")?;
        // A database without a key is at revision 1.
        let revision = match self.last(&keys)? {
            Some(key) => number(&key, 0).map(i64::from_be_bytes).filter(|_| key.get(8) == Some(&b'_')),
            None => Some(1),
        };
        let members = self.items(&self.bucket(&top, b"members")?)?.into_iter().map(|item| item.value).collect();
        let odd = || self.damaged(0, "it is not a database of etcd");
        let (consistent_index, revision) = (index.ok_or_else(odd)?, revision.ok_or_else(odd)?);
        Ok(Store { consistent_index, term, revision, members })
    }

    /// The bucket of buckets.
    pub(super) fn top(&self) -> Bucket {
        Bucket::Tree(self.meta.root)
    }

    /// All elements of a small bucket.
    pub(super) fn items(&self, bucket: &Bucket) -> Result<Vec<Item>, DiskError> {
        let mut found = Vec::new();
        let root = match bucket {
            Bucket::Inline(page) => {
                self.add(page, &mut found)?;
                return Ok(found);
            }
            Bucket::Tree(root) => *root,
        };
        let (mut left, mut looked) = (vec![root], 0);
        while let Some(id) = left.pop() {
            let page = self.page(id)?;
            looked += 1;
            if looked > MOST_PAGES || page.count > MOST_ENTRIES {
                return Err(self.endless(&page));
            }
            match page.flags {
                LEAF => self.add(&page, &mut found)?,
                BRANCH => left.extend((0..page.count).rev().filter_map(|index| page.child(index))),
                _ => return Err(self.damaged(page.at, "a page is neither branch nor leaf")),
            }
        }
        Ok(found)
    }

    fn endless(&self, page: &Page) -> DiskError {
        self.damaged(page.at, "a bucket that etcd keeps small is endless")
    }

    /// Adds the elements of a page, within the limits of a small bucket.
    fn add(&self, page: &Page, found: &mut Vec<Item>) -> Result<(), DiskError> {
        let mut bytes: usize = found.iter().map(|item| item.key.len() + item.value.len()).sum();
        for index in 0..page.count {
            let odd = || self.damaged(page.at, "a key or value is beyond the end of its page");
            let (key, value) = page.key(index).zip(page.value(index)).ok_or_else(odd)?;
            bytes += key.len() + value.len();
            if found.len() == MOST_ENTRIES || bytes > MOST_BYTES {
                return Err(self.endless(page));
            }
            let flags = if page.is(index, IS_BUCKET) { IS_BUCKET } else { 0 };
            found.push(Item { flags, key: key.to_vec(), value: value.to_vec() });
        }
        Ok(())
    }

    /// A bucket inside a bucket.
    pub(super) fn bucket(&self, parent: &Bucket, name: &[u8]) -> Result<Bucket, DiskError> {
        let (value, at) = self.get(parent, name)?.ok_or_else(|| self.damaged(0, "a bucket of etcd is missing"))?;
        self.inner(&value, at)
    }

    /// The bucket in this value.
    pub(super) fn inner(&self, value: &[u8], at: u64) -> Result<Bucket, DiskError> {
        match u64_at(value, 0) {
            Some(0) => {
                let page = value.get(16..).and_then(|bytes| Page::of(at, bytes.to_vec()));
                page.map(Bucket::Inline).ok_or_else(|| self.damaged(at, "a bucket is truncated"))
            }
            Some(root) => Ok(Bucket::Tree(root)),
            None => Err(self.damaged(at, "a bucket is truncated")),
        }
    }

    /// The value of a key, and its approximate offset in the file.
    fn get(&self, bucket: &Bucket, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>, DiskError> {
        // In a branch the child before the first one with a greater key; keys are in order.
        let pick =
            |page: &Page| (1..page.count).take_while(|i| page.key(*i).is_some_and(|k| k <= key)).last().unwrap_or(0);
        self.descend(bucket, &pick, &|page| {
            let index = (0..page.count).find(|i| page.key(*i) == Some(key))?;
            Some((page.value(index)?.to_vec(), page.at))
        })
    }

    /// The last key.
    pub(super) fn last(&self, bucket: &Bucket) -> Result<Option<Vec<u8>>, DiskError> {
        let pick = |page: &Page| page.count.saturating_sub(1);
        self.descend(bucket, &pick, &|page| page.key(page.count.checked_sub(1)?).map(<[u8]>::to_vec))
    }

    /// Descends from branch to branch, and searches the leaf page.
    fn descend<T>(
        &self,
        bucket: &Bucket,
        pick: &dyn Fn(&Page) -> usize,
        ask: &dyn Fn(&Page) -> Option<T>,
    ) -> Result<Option<T>, DiskError> {
        let mut id = match bucket {
            Bucket::Inline(page) => return Ok(ask(page)),
            Bucket::Tree(root) => *root,
        };
        for _ in 0..DEEPEST {
            let page = self.page(id)?;
            match page.flags {
                LEAF => return Ok(ask(&page)),
                BRANCH => {
                    let child = page.child(pick(&page));
                    id = child.ok_or_else(|| self.damaged(page.at, "a branch has no child"))?;
                }
                _ => return Err(self.damaged(page.at, "a page is neither branch nor leaf")),
            }
        }
        Err(self.damaged(0, "its tree is endless"))
    }
}

impl Page {
    fn of(at: u64, bytes: Vec<u8>) -> Option<Self> {
        let (flags, count) = (u16_at(&bytes, 8)?, usize::from(u16_at(&bytes, 10)?));
        Some(Self { at, flags, count, bytes })
    }

    /// The key of an element. In a leaf: flags, position, key size, value size; in a branch: position, key size, page.
    pub(super) fn key(&self, index: usize) -> Option<&[u8]> {
        let at = self.element(index)?;
        let skip = if self.flags == LEAF { 4 } else { 0 };
        let (position, size) = (u32_at(&self.bytes, at + skip)?, u32_at(&self.bytes, at + skip + 4)?);
        self.slice(at, position, size)
    }

    pub(super) fn value(&self, index: usize) -> Option<&[u8]> {
        let at = self.element(index)?;
        let (position, key) = (u32_at(&self.bytes, at + 4)?, u32_at(&self.bytes, at + 8)?);
        self.slice(at, position.checked_add(key)?, u32_at(&self.bytes, at + 12)?)
    }

    pub(super) fn child(&self, index: usize) -> Option<u64> {
        let at = self.element(index)?;
        u64_at(&self.bytes, at + 8)
    }

    /// Whether an element of a leaf has this flag.
    pub(super) fn is(&self, index: usize, flag: u32) -> bool {
        self.element(index).and_then(|at| u32_at(&self.bytes, at)).is_some_and(|flags| flags & flag != 0)
    }

    fn element(&self, index: usize) -> Option<usize> {
        (index < self.count).then_some(PAGE_HEADER + index * ELEMENT)
    }

    fn slice(&self, at: usize, position: u32, size: u32) -> Option<&[u8]> {
        let begin = at.checked_add(usize::try_from(position).ok()?)?;
        self.bytes.get(begin..begin.checked_add(usize::try_from(size).ok()?)?)
    }
}
