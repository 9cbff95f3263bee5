//! Pages to be written to a database, or that are one.
//!
//! In: elements, and where the pages begin. Out: their bytes. Format: see `bolt.rs`; bbolt writes it in
//! `internal/common` (`WriteInodeToPage`, `Meta.Write`). A page may be larger than bbolt makes it, with overflow: bbolt
//! reads it, and splits it when it next writes it. There are no lists of free pages: etcd writes none either
//! (`NoFreelistSync`), and searches the tree for its pages when it opens a database.

use super::bolt::{BRANCH, ELEMENT, Item, LARGEST_PAGE, LEAF, MAGIC, Meta, PAGE_HEADER, VERSION, fnv};

const META: u16 = 0x04;
/// Instead of the page with the list of free pages.
const NO_FREE_LIST: u64 = u64::MAX;

/// Pages, one after the other.
pub(super) struct Pages {
    page_size: u64,
    first: u64,
    pub(super) bytes: Vec<u8>,
}

impl Pages {
    /// No page yet; the first one will have this id.
    pub(super) fn after(first: u64, page_size: u64) -> Self {
        Self { page_size, first, bytes: Vec::new() }
    }

    /// The id of the next page.
    pub(super) fn next(&self) -> u64 {
        self.first + self.bytes.len() as u64 / self.page_size
    }

    /// Adds a leaf, and returns its id; `None`: it would be too large.
    pub(super) fn leaf(&mut self, items: &[Item]) -> Option<u64> {
        let (mut heads, mut bodies) = (Vec::new(), Vec::new());
        for (index, Item { flags, key, value }) in items.iter().enumerate() {
            heads.extend(flags.to_le_bytes());
            for number in [(items.len() - index) * ELEMENT + bodies.len(), key.len(), value.len()] {
                heads.extend(u32::try_from(number).ok()?.to_le_bytes());
            }
            bodies.extend_from_slice(key);
            bodies.extend_from_slice(value);
        }
        self.page(LEAF, items.len(), &[heads, bodies].concat())
    }

    /// The same for a branch, of the first keys and the ids of its children.
    pub(super) fn branch(&mut self, children: &[(Vec<u8>, u64)]) -> Option<u64> {
        let (mut heads, mut bodies) = (Vec::new(), Vec::new());
        for (index, (key, id)) in children.iter().enumerate() {
            for number in [(children.len() - index) * ELEMENT + bodies.len(), key.len()] {
                heads.extend(u32::try_from(number).ok()?.to_le_bytes());
            }
            heads.extend(id.to_le_bytes());
            bodies.extend_from_slice(key);
        }
        self.page(BRANCH, children.len(), &[heads, bodies].concat())
    }

    fn page(&mut self, flags: u16, count: usize, body: &[u8]) -> Option<u64> {
        let id = self.next();
        let pages = ((PAGE_HEADER + body.len()) as u64).div_ceil(self.page_size);
        let size = usize::try_from(pages * self.page_size).ok().filter(|_| pages * self.page_size <= LARGEST_PAGE)?;
        let end = self.bytes.len() + size;
        self.bytes.extend(header(id, flags, u16::try_from(count).ok()?, u32::try_from(pages - 1).ok()?));
        self.bytes.extend_from_slice(body);
        self.bytes.resize(end, 0);
        Some(id)
    }
}

fn header(id: u64, flags: u16, count: u16, overflow: u32) -> Vec<u8> {
    [&id.to_le_bytes()[..], &flags.to_le_bytes(), &count.to_le_bytes(), &overflow.to_le_bytes()].concat()
}

impl Meta {
    /// The id of its page.
    pub(super) fn id(&self) -> u64 {
        self.transaction % 2
    }

    /// The beginning of its page; the remainder means nothing.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut body = [MAGIC.to_le_bytes(), VERSION.to_le_bytes()].concat();
        // The page size takes four bytes; flags follow it, and none are in use.
        let Self { page_size, root, sequence, high_water, transaction } = *self;
        for number in [page_size, root, sequence, NO_FREE_LIST, high_water, transaction] {
            body.extend(number.to_le_bytes());
        }
        body.extend(fnv(&body).to_le_bytes());
        [header(self.id(), META, 0, 0), body].concat()
    }
}
