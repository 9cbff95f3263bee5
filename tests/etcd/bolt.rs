//! Reads a database of bbolt completely: the second reader of its kind, so that the first one cannot hide a fault.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The sequence number and the keys of each bucket.
pub type Content = BTreeMap<String, (u64, BTreeMap<Vec<u8>, Vec<u8>>)>;

/// Everything in the newest version of a database. Each page is in use at most once, and all are below the high-water
/// mark.
pub fn content(path: &Path) -> Content {
    let bytes = fs::read(path).unwrap();
    let size = usize::try_from(number(&bytes, 24, 4)).unwrap();
    let newest = [0, size].into_iter().max_by_key(|meta| number(&bytes, meta + 64, 8)).unwrap();
    let mut file = Pages { bytes: &bytes, size, free: vec![true; place(&bytes, newest + 56)] };
    let mut top = Vec::new();
    file.tree(place(&bytes, newest + 32), &mut top);
    let mut found = Content::new();
    for (name, value) in top {
        let mut all = Vec::new();
        match place(&value, 0) {
            0 => file.page(&value[16..], &mut all),
            root => file.tree(root, &mut all),
        }
        assert!(all.is_sorted_by(|a, b| a.0 < b.0), "all keys are in order");
        found.insert(String::from_utf8(name).unwrap(), (number(&value, 8, 8), all.into_iter().collect()));
    }
    found
}

/// A number of so many bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn place(bytes: &[u8], at: usize) -> usize {
    usize::try_from(number(bytes, at, 8)).unwrap()
}

struct Pages<'a> {
    bytes: &'a [u8],
    size: usize,
    /// Whether each page is not in use, as far as is known.
    free: Vec<bool>,
}

impl Pages<'_> {
    fn tree(&mut self, id: usize, all: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        let page = &self.bytes[id * self.size..];
        assert_eq!(place(page, 0), id);
        let overflow = usize::try_from(number(page, 12, 4)).unwrap();
        for page in id..=id + overflow {
            assert!(std::mem::replace(&mut self.free[page], false), "page {page} is in use twice");
        }
        self.page(page, all);
    }
    fn page(&mut self, page: &[u8], all: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        let is_leaf = number(page, 8, 2) == 2;
        for at in (0..usize::try_from(number(page, 10, 2)).unwrap()).map(|index| 16 + index * 16) {
            let field = |field| usize::try_from(number(page, at + field, 4)).unwrap();
            if is_leaf {
                let (key, value) = page[at + field(4)..][..field(8) + field(12)].split_at(field(8));
                all.push((key.to_vec(), value.to_vec()));
            } else {
                self.tree(place(page, at + 8), all);
            }
        }
    }
}
