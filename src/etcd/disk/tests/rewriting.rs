//! Laws of a database that is made that of a new cluster, on random databases.

use super::super::bolt::{BRANCH, Bolt, Bucket, IS_BUCKET, LEAF, Page, u64_at};
use super::*;
use std::collections::{BTreeMap, BTreeSet};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// How a bucket is stored.
#[derive(Clone, Debug)]
struct Stored {
    content: Content,
    /// The most elements of a page.
    width: usize,
    is_inline: bool,
    sequence: u64,
}

/// Names of the buckets of a database, and how they are stored.
type Buckets = BTreeMap<&'static str, Stored>;

/// Parts of at most so many elements, none of which is alone unless all are.
fn evenly<T>(items: &[T], width: usize) -> Vec<&[T]> {
    let parts = items.len().div_ceil(width).max(1);
    (0..parts).map(|part| &items[items.len() * part / parts..items.len() * (part + 1) / parts]).collect()
}

impl Pages {
    /// Adds a page; some pages before it are free.
    fn add(&mut self, flags: u16, body: &[u8], count: usize) -> u64 {
        let next = self.bytes.len() / PAGE;
        let id = (if next % 5 == 4 { next + 1 } else { next }) as u64;
        self.put(id, flags, body, count);
        id
    }
    fn tree(&mut self, flags: usize, content: &Content, width: usize) -> u64 {
        let items: Vec<(&[u8], &[u8])> = content.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let first = |part: &[(&[u8], &[u8])]| part.first().map_or_else(Vec::new, |(key, _)| key.to_vec());
        let leaves = evenly(&items, width).into_iter();
        let mut level: Vec<(Vec<u8>, u64)> =
            leaves.map(|part| (first(part), self.add(LEAF, &elements(flags, part), part.len()))).collect();
        while level.len() > 1 {
            let add = |part: &[(Vec<u8>, u64)]| {
                let children: Vec<(&[u8], u64)> = part.iter().map(|(key, id)| (&key[..], *id)).collect();
                (part[0].0.clone(), self.add(BRANCH, &branch(&children), part.len()))
            };
            level = evenly(&level, width).into_iter().map(add).collect();
        }
        level[0].1
    }
    /// A database of these buckets, whose bucket of buckets has this width.
    fn of(buckets: &Buckets, width: usize) -> Self {
        let mut pages = Self { bytes: vec![0; 2 * PAGE] };
        let mut top = Content::new();
        for (name, Stored { content, width, is_inline, sequence }) in buckets {
            let items: Vec<(&[u8], &[u8])> = content.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let mut value = if *is_inline {
                inline(&leaf(&items), u16::try_from(items.len()).unwrap())
            } else {
                [pages.tree(0, content, *width).to_le_bytes(), [0; 8]].concat()
            };
            value[8..16].copy_from_slice(&sequence.to_le_bytes());
            top.insert(name.as_bytes().to_vec(), value);
        }
        let root = pages.tree(1, &top, width);
        let end = (pages.bytes.len() / PAGE) as u64;
        // The older meta page has a list of free pages, as other programs write it. One free page follows, and one that
        // was never in use.
        pages.meta_with(0, [root, 5, end, end + 1, 8]);
        pages.meta_with(1, [root, 5, u64::MAX, end + 1, 9]);
        pages.bytes.resize(pages.bytes.len() + 2 * PAGE, 0xee);
        pages
    }
}

/// The content and the sequence of each bucket, after a look at all rules for pages.
fn all(path: &Path) -> BTreeMap<Vec<u8>, (u64, Content)> {
    let file = File::open(path).unwrap();
    walk::walk(&file, path).unwrap();
    let bolt = Bolt::open(&file, path).unwrap();
    let mut used = BTreeSet::new();
    let mut found = BTreeMap::new();
    for (key, (flags, value)) in tree(&bolt, &bolt.top(), &mut used) {
        assert_eq!(flags, IS_BUCKET);
        let bucket = bolt.inner(&value, 0).unwrap();
        let plain = |(key, (flags, value))| {
            assert_eq!(flags, 0);
            (key, value)
        };
        let content = tree(&bolt, &bucket, &mut used).into_iter().map(plain).collect();
        found.insert(key, (u64_at(&value, 8).unwrap(), content));
    }
    found
}

type Elements = Vec<(Vec<u8>, (u32, Vec<u8>))>;

/// The elements of a tree. Their keys are in order and within those of their branches, each branch has two children or
/// more, all leaves are equally deep, and no page is in use twice or beyond the end.
fn tree(bolt: &Bolt<'_>, bucket: &Bucket, used: &mut BTreeSet<u64>) -> Elements {
    let (mut found, mut depths) = (Elements::new(), BTreeSet::new());
    match bucket {
        Bucket::Inline(page) => below(bolt, page, (0, &[]), used, (&mut found, &mut depths)),
        Bucket::Tree(root) => {
            below(bolt, &taken(bolt, *root, used), (0, &[]), used, (&mut found, &mut depths));
        }
    }
    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "all keys are in order");
    assert_eq!(depths.len(), 1, "all leaves are equally deep");
    found
}

fn taken(bolt: &Bolt<'_>, id: u64, used: &mut BTreeSet<u64>) -> Page {
    let page = bolt.page(id).unwrap();
    let overflow = page.bytes.len() / PAGE;
    for id in id..id + overflow as u64 {
        assert!((2..bolt.meta.high_water).contains(&id) && used.insert(id), "page {id}");
    }
    page
}

fn below(
    bolt: &Bolt<'_>,
    page: &Page,
    (depth, first): (usize, &[u8]),
    used: &mut BTreeSet<u64>,
    found: (&mut Elements, &mut BTreeSet<usize>),
) {
    assert!(page.count == 0 || page.key(0).unwrap() >= first, "a child begins with the key in its branch or above it");
    if page.flags == LEAF {
        found.1.insert(depth);
        let flags = |index| u32::from(page.is(index, IS_BUCKET));
        let item = |index| (page.key(index).unwrap().to_vec(), (flags(index), page.value(index).unwrap().to_vec()));
        found.0.extend((0..page.count).map(item));
        return;
    }
    assert!(page.flags == BRANCH && page.count >= 2, "a branch has two children or more");
    for index in 0..page.count {
        let child = taken(bolt, page.child(index).unwrap(), used);
        below(bolt, &child, (depth + 1, page.key(index).unwrap()), used, (&mut *found.0, &mut *found.1));
    }
}

fn stored(content: impl Strategy<Value = Content>) -> impl Strategy<Value = Stored> {
    (content, 3..9_usize, any::<bool>(), any::<u64>()).prop_map(|(content, width, is_inline, sequence)| Stored {
        content,
        width,
        is_inline,
        sequence,
    })
}

/// Mostly a few bytes; some take several pages.
fn value() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), prop_oneof![9 => 0..40_usize, 1 => 3000..14_000_usize]).prop_map(|(byte, size)| vec![byte; size])
}

fn content(most: usize) -> impl Strategy<Value = Content> {
    proptest::collection::btree_map(proptest::collection::vec(any::<u8>(), 1..12), value(), 0..most)
}

/// A database of etcd. Old ones lack some of the buckets.
fn buckets() -> impl Strategy<Value = Buckets> {
    let keys = proptest::collection::btree_map((2..900_i64, 0..3_i64, any::<bool>()), value(), 0..150);
    let keys = keys.prop_map(|all| {
        let key = |(main, sub, is_deleted)| [revision(main, sub), vec![b't'; usize::from(is_deleted)]].concat();
        all.into_iter().map(|(at, value)| (key(at), value)).collect::<Content>()
    });
    let small = || stored(content(12));
    let others = (stored(content(120)), proptest::option::of(small()), small(), proptest::option::of(small()));
    (stored(keys), small(), others).prop_map(|(keys, meta, (lease, cluster, members, removed))| {
        let must = [("key", keys), ("lease", lease), ("members", members), ("meta", meta)];
        let may = [("cluster", cluster), ("members_removed", removed)];
        must.into_iter().chain(may.into_iter().filter_map(|(name, stored)| Some((name, stored?)))).collect()
    })
}

/// What etcd's tool makes of a seed.
fn restored(seed: &Path, new: &Content) -> Buckets {
    let seed = all(seed);
    let stored = |content: Content| Stored { content, width: 4, is_inline: true, sequence: 0 };
    let mut keys = seed[&b"key"[..]].1.clone();
    keys.insert(revision(1000, 0), Vec::new());
    let mut meta = seed[&b"meta"[..]].1.clone();
    meta.insert(b"scheduledCompactRev".to_vec(), revision(1000, 0));
    let none = || stored(Content::new());
    [("cluster", none()), ("key", stored(keys)), ("members", stored(new.clone())), ("members_removed", none())]
        .into_iter()
        .chain([("meta", stored(meta))])
        .collect()
}

fn write(dir: &Path, name: &str, pages: &Pages) -> PathBuf {
    let at = dir.join(name);
    fs::write(&at, &pages.bytes).unwrap();
    at
}

fn rewritten(large: &Path, small: &Path) -> Result<(), DiskError> {
    Identity::of(small)?.write(&File::options().read(true).write(true).open(large).unwrap(), large)
}

proptest! {
    #[test]
    fn a_rewritten_database_has_the_new_members_and_revision_and_all_else_as_before(
        buckets in buckets(), width in 3..12_usize, new in content(8), cut in 0..2_usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut pages = Pages::of(&buckets, width);
        // The file may end with the last page that was ever in use.
        pages.bytes.truncate(pages.bytes.len() - cut * PAGE);
        let large = write(dir.path(), "large", &pages);
        let before = all(&large);
        let seed = dir.path().join("seed");
        fs::write(&seed, super::seed(&large).unwrap()).unwrap();
        let tiny = all(&seed);
        prop_assert_eq!(&tiny[&b"meta"[..]].1, &buckets["meta"].content);
        let last = |content: &Content| content.keys().last().cloned();
        prop_assert_eq!(last(&tiny[&b"key"[..]].1), last(&buckets["key"].content));
        let small = write(dir.path(), "small", &Pages::of(&restored(&seed, &new), 9));
        // The page after the last one that is in use.
        let end = pages.bytes.len() - (1 - cut) * PAGE;
        let short = write(dir.path(), "short", &Pages { bytes: pages.bytes[..end - 1].to_vec() });
        prop_assert!(rewritten(&short, &small).is_err(), "its end is missing");
        rewritten(&large, &small).unwrap();

        let mut expected = before;
        let none = || (0, Content::new());
        let meta = all(&small).remove(&b"meta"[..]).unwrap().1;
        for (name, content) in [("meta", meta), ("members", new), ("members_removed", Content::new())] {
            expected.entry(name.into()).or_insert_with(none).1 = content;
        }
        expected.entry(b"cluster".to_vec()).or_insert_with(none);
        expected.get_mut(&b"key"[..]).unwrap().1.insert(revision(1000, 0), Vec::new());
        prop_assert_eq!(all(&large), expected);
        // All that was there, but one meta page.
        let after = fs::read(&large).unwrap();
        prop_assert!(after[PAGE..end] == pages.bytes[PAGE..end]);
        prop_assert!(rewritten(&large, &small).is_err(), "the revision is not above the last one again");
    }

    #[test]
    fn a_damaged_database_is_rewritten_or_left_as_it_is(
        buckets in buckets(),
        damage in proptest::collection::vec((any::<usize>(), 0..64_usize, any::<u8>()), 0..20),
        cut in proptest::option::of(any::<usize>()),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let small = write(dir.path(), "small", &Pages::of(&buckets, 9));
        let mut pages = Pages::of(&buckets, 9);
        // Mostly in the heads of pages.
        for (page, at, byte) in damage {
            let page = page % (pages.bytes.len() / PAGE);
            pages.bytes[page * PAGE + at] = byte;
            if page < 2 {
                // With a valid checksum.
                let sum = fnv(&pages.bytes[page * PAGE + 16..page * PAGE + 72]);
                pages.bytes[page * PAGE + 72..page * PAGE + 80].copy_from_slice(&sum.to_le_bytes());
            }
        }
        pages.bytes.truncate(cut.map_or(pages.bytes.len(), |cut| cut % pages.bytes.len()));
        let large = write(dir.path(), "large", &pages);
        let whole = rewritten(&large, &small);
        prop_assert!(whole.is_ok() || fs::read(&large).unwrap() == pages.bytes);
        // Neither is one that the tool would have made.
        let _ = (super::seed(&large), rewritten(&small, &large));
    }
}
