//! Logs and databases in the format of etcd, made by hand, and everything that damage can do to them.

use super::bolt::fnv;
use super::wal::{Entry, HardState, Metadata, Record, Segment, Snapshot, kind, segment};
use super::*;
use proptest::prelude::*;
use prost::Message as _;
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::time::Duration;

mod rewriting;

/// Writes a segment.
struct Log {
    bytes: Vec<u8>,
    crc: u32,
    /// The end of each record.
    ends: Vec<usize>,
}

impl Log {
    fn begin(crc: u32) -> Self {
        let mut log = Self { bytes: Vec::new(), crc, ends: Vec::new() };
        log.frame(&Record { kind: Some(kind::CRC), crc: Some(crc), data: None });
        log.record(kind::METADATA, &Metadata { member: Some(0xa1), cluster: Some(0xc1) }.encode_to_vec())
    }
    fn frame(&mut self, record: &Record) {
        let body = record.encode_to_vec();
        let padding = (8 - body.len() % 8) % 8;
        let mut head = body.len() as u64;
        if padding > 0 {
            head |= (0x80 | padding as u64) << 56;
        }
        self.bytes.extend(head.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.extend(std::iter::repeat_n(0, padding));
        self.ends.push(self.bytes.len());
    }
    fn record(mut self, kind: i64, data: &[u8]) -> Self {
        self.crc = crc32c::crc32c_append(self.crc, data);
        self.frame(&Record { kind: Some(kind), crc: Some(self.crc), data: Some(data.to_vec()) });
        self
    }
    fn entry(self, term: u64, index: u64) -> Self {
        // Its payload is not read.
        let mut entry = Entry { term: Some(term), index: Some(index) }.encode_to_vec();
        entry.extend([0x22, 5]);
        entry.extend(b"hello");
        self.record(kind::ENTRY, &entry)
    }
    fn state(self, commit: u64) -> Self {
        self.record(kind::STATE, &HardState { term: Some(1), vote: Some(1), commit: Some(commit) }.encode_to_vec())
    }
    fn snapshot(self, term: u64, index: u64) -> Self {
        self.record(kind::SNAPSHOT, &Snapshot { index: Some(index), term: Some(term) }.encode_to_vec())
    }
    fn read(&self, is_newest: bool) -> Result<Segment, DiskError> {
        segment(self.bytes.as_slice(), self.bytes.len() as u64, Path::new("a.wal"), is_newest)
    }
}

fn sample() -> Log {
    Log::begin(0).snapshot(0, 0).entry(1, 1).state(1).entry(1, 2).entry(1, 3).entry(2, 3).state(2)
}

/// A file of pages, as bbolt writes them.
struct Pages {
    bytes: Vec<u8>,
}

const PAGE: usize = 4096;

impl Pages {
    fn put(&mut self, id: u64, flags: u16, body: &[u8], count: usize) {
        let at = usize::try_from(id).unwrap() * PAGE;
        let size = (16 + body.len()).next_multiple_of(PAGE);
        if self.bytes.len() < at + size {
            self.bytes.resize(at + size, 0);
        }
        self.bytes[at..at + 8].copy_from_slice(&id.to_le_bytes());
        self.bytes[at + 8..at + 10].copy_from_slice(&flags.to_le_bytes());
        self.bytes[at + 10..at + 12].copy_from_slice(&u16::try_from(count).unwrap().to_le_bytes());
        self.bytes[at + 12..at + 16].copy_from_slice(&u32::try_from(size / PAGE - 1).unwrap().to_le_bytes());
        self.bytes[at + 16..at + 16 + body.len()].copy_from_slice(body);
    }
    fn meta(&mut self, id: u64, root: u64, transaction: u64) {
        self.meta_with(id, [root, 0, 0, 9, transaction]);
    }
    /// Root page, its sequence, the page of the list of free pages, the page after the last one, and the transaction.
    fn meta_with(&mut self, id: u64, numbers: [u64; 5]) {
        let mut body = Vec::new();
        body.extend(0xED0C_DAED_u32.to_le_bytes());
        body.extend(2_u32.to_le_bytes());
        body.extend(u32::try_from(PAGE).unwrap().to_le_bytes());
        body.extend(0_u32.to_le_bytes());
        for number in numbers {
            body.extend(number.to_le_bytes());
        }
        body.extend(fnv(&body).to_le_bytes());
        self.put(id, 4, &body, 0);
    }
}

fn leaf(items: &[(&[u8], &[u8])]) -> Vec<u8> {
    elements(0, items)
}

/// Each with these flags; 1: it is a bucket.
fn elements(flags: usize, items: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut heads = Vec::new();
    let mut bodies = Vec::new();
    for (index, (key, value)) in items.iter().enumerate() {
        let position = (items.len() - index) * 16 + bodies.len();
        for number in [flags, position, key.len(), value.len()] {
            heads.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        bodies.extend_from_slice(key);
        bodies.extend_from_slice(value);
    }
    heads.extend(bodies);
    heads
}

fn branch(items: &[(&[u8], u64)]) -> Vec<u8> {
    let mut heads = Vec::new();
    let mut bodies = Vec::new();
    for (index, (key, page)) in items.iter().enumerate() {
        let position = (items.len() - index) * 16 + bodies.len();
        for number in [position, key.len()] {
            heads.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        heads.extend(page.to_le_bytes());
        bodies.extend_from_slice(key);
    }
    heads.extend(bodies);
    heads
}

fn revision(main: i64, sub: i64) -> Vec<u8> {
    [main.to_be_bytes().as_slice(), b"_", &sub.to_be_bytes()].concat()
}

/// A bucket inside the value of its parent.
fn inline(page: &[u8], count: u16) -> Vec<u8> {
    let head = [0_u64.to_le_bytes().as_slice(), &2_u16.to_le_bytes(), &count.to_le_bytes(), &[0; 4]].concat();
    [[0_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat(), head, page.to_vec()].concat()
}

/// Revisions 2 to 5 on two leaves below a branch; the applied index in a bucket inside its parent.
fn store() -> Pages {
    let mut pages = Pages { bytes: Vec::new() };
    let tree = |root: u64| [root.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let inner = leaf(&[(b"consistent_index", &77_u64.to_be_bytes()), (b"term", &3_u64.to_be_bytes())]);
    let listed: &[u8] =
        br#"{"id":161,"peerURLs":["https://10.0.0.1:2380"],"name":"cp1","clientURLs":["https://10.0.0.1:2379"]}"#;
    let learner: &[u8] = br#"{"id":162,"peerURLs":["https://10.0.0.2:2380"],"isLearner":true}"#;
    let members = inline(&leaf(&[(b"a1", listed), (b"a2", learner)]), 2);
    pages.meta(0, 3, 8);
    pages.meta(1, 3, 9);
    let buckets: [(&[u8], &[u8]); 4] =
        [(b"alarm", &tree(7)), (b"key", &tree(4)), (b"members", &members), (b"meta", &inline(&inner, 2))];
    pages.put(3, 2, &elements(1, &buckets), 4);
    pages.put(4, 1, &branch(&[(&revision(2, 0), 5), (&revision(4, 0), 6)]), 2);
    pages.put(5, 2, &leaf(&[(&revision(2, 0), b"a"), (&revision(3, 0), b"b")]), 2);
    let tombstone = [revision(5, 1).as_slice(), b"t"].concat();
    pages.put(6, 2, &leaf(&[(&revision(4, 0), b"c"), (&revision(5, 0), b"d"), (&tombstone, b"")]), 3);
    pages.put(7, 2, &leaf(&[]), 0);
    pages
}

/// A member's directory with these segments and this database.
fn member(segments: &[&Log], store: &Pages) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (wal, snap) = (dir.path().join("member/wal"), dir.path().join("member/snap"));
    fs::create_dir_all(&wal).unwrap();
    fs::create_dir_all(&snap).unwrap();
    for (number, log) in segments.iter().enumerate() {
        fs::write(wal.join(format!("{number:016x}-{:016x}.wal", number * 100)), &log.bytes).unwrap();
    }
    fs::write(wal.join("0.tmp"), b"space for the next one").unwrap();
    fs::write(snap.join("db"), &store.bytes).unwrap();
    dir
}

#[test]
fn the_positions_of_log_and_store_are_read_from_a_directory() {
    let dir = member(&[&sample()], &store());
    let fact = read(dir.path()).unwrap();
    assert_eq!((fact.member, fact.cluster.as_str()), (0xa1, "c1"));
    assert_eq!((fact.term, fact.index, fact.commit), (2, 3, 2), "the last version of a rewritten entry counts");
    assert_eq!((fact.revision, fact.applied), (Some(5), Some(77)));
    let members = fact.members.unwrap();
    let short: Vec<_> =
        members.iter().map(|(id, name, peer, learner)| (*id, name.as_str(), peer.as_str(), *learner)).collect();
    assert_eq!(short, [(161, "cp1", "https://10.0.0.1:2380", false), (162, "", "https://10.0.0.2:2380", true)]);
    assert_eq!(fact.flaws, Vec::<String>::new());
    assert!(fact.written_ms > 1_700_000_000_000);
}

#[test]
fn a_new_empty_segment_leaves_the_last_entry_in_the_previous_one() {
    let first = sample();
    let second = Log::begin(first.crc).state(3);
    let fact = read(member(&[&first, &second], &store()).path()).unwrap();
    assert_eq!((fact.term, fact.index, fact.commit), (2, 3, 3));
}

#[test]
fn a_snapshot_that_was_received_is_further_than_the_entries_before_it() {
    assert_eq!(sample().snapshot(2, 900).read(true).unwrap().last, Some((2, 900)));
    assert_eq!(sample().snapshot(1, 2).read(true).unwrap().last, Some((2, 3)), "one of its own is not");
}

#[test]
fn a_log_of_two_members_is_damaged() {
    let log = sample().record(kind::METADATA, &Metadata { member: Some(0xa2), cluster: Some(0xc1) }.encode_to_vec());
    assert!(matches!(log.read(true), Err(DiskError::Damaged { .. })));
}

#[test]
fn a_record_that_was_whole_once_is_damaged_and_one_that_was_never_written_to_its_end_was_cut_short() {
    // Field 4 of an entry: a payload of 1600 bytes.
    let carried = [[0x22, 0xc0, 0x0c].as_slice(), &[7; 1600]].concat();
    let entry = [Entry { term: Some(2), index: Some(4) }.encode_to_vec(), carried].concat();
    let mut log = sample().record(kind::ENTRY, &entry);
    assert_eq!(log.read(true).unwrap().last, Some((2, 4)));
    let (begin, end) = (log.ends[log.ends.len() - 2], log.bytes.len());
    let whole = log.bytes.clone();
    log.bytes[end - 20] ^= 1;
    let found = log.read(true).unwrap();
    assert_eq!(
        (found.damaged, found.cut_short, found.last),
        (true, false, Some((2, 3))),
        "the entries before it count"
    );
    log.bytes.clone_from(&whole);
    // A sector that the disk never wrote.
    let sector = (begin / 512 + 2) * 512;
    assert!(sector + 512 < end, "the record is longer than that");
    log.bytes[sector..sector + 512].fill(0);
    let found = log.read(true).unwrap();
    assert_eq!((found.damaged, found.cut_short, found.last), (false, true, Some((2, 3))));
    let dir = member(&[&log], &store());
    assert!(read(dir.path()).unwrap().flaws[0].contains("cut short"));
    log.bytes.clone_from(&whole);
    log.bytes[end - 20] ^= 1;
    let fact = read(member(&[&log], &store()).path()).unwrap();
    assert!(fact.damaged && fact.flaws[0].contains("etcd does not start from it"), "{:?}", fact.flaws);
}

#[test]
fn preallocated_space_ends_a_segment() {
    let mut log = sample();
    let whole = log.read(true).unwrap();
    log.bytes.extend([0; 4096]);
    assert_eq!(log.read(true).unwrap(), whole);
    assert_eq!(log.read(false).unwrap(), whole);
}

#[test]
fn a_store_that_cannot_be_read_is_a_flaw_and_the_log_counts_all_the_same() {
    let mut broken = store();
    broken.bytes.truncate(5000);
    broken.bytes[100] = 1;
    let fact = read(member(&[&sample()], &broken).path()).unwrap();
    assert_eq!((fact.term, fact.index, fact.revision), (2, 3, None));
    assert!(fact.flaws[0].contains("damaged"), "{:?}", fact.flaws);
}

#[test]
fn a_page_that_the_revision_does_not_need_is_found_damaged_by_a_look_at_all_pages() {
    let whole = member(&[&sample()], &store());
    let (closed, fact) = read_closed(whole.path(), CLOSED_WITHIN);
    assert_eq!((closed, fact.unwrap()), (true, read(whole.path()).unwrap()));
    for page in 3..=7 {
        let mut pages = store();
        pages.bytes[page * PAGE..(page + 1) * PAGE].fill(0);
        let dir = member(&[&sample()], &pages);
        let (closed, read) = read_closed(dir.path(), CLOSED_WITHIN);
        let fact = read.unwrap();
        assert_eq!((closed, fact.revision, fact.index), (true, None, 3), "page {page}");
        assert!(fact.flaws[0].contains("damaged at byte"), "{:?}", fact.flaws);
    }
    let mut pages = store();
    pages.bytes[5 * PAGE..6 * PAGE].fill(0);
    let dir = member(&[&sample()], &pages);
    assert_eq!(read(dir.path()).unwrap().revision, Some(5));
}

#[test]
fn a_database_that_a_process_has_open_is_not_taken_for_closed() {
    let dir = member(&[&sample()], &store());
    let db = dir.path().join("member/snap/db");
    let etcd = File::open(&db).unwrap();
    flock(&etcd, FlockOperation::LockExclusive).unwrap();
    assert!(walk::closed(&db, Duration::from_millis(50)).is_none());
    flock(&etcd, FlockOperation::Unlock).unwrap();
    let held = walk::closed(&db, Duration::from_millis(50)).unwrap();
    assert!(flock(&etcd, FlockOperation::NonBlockingLockExclusive).is_err(), "etcd waits meanwhile");
    drop(held);
    assert!(flock(&etcd, FlockOperation::NonBlockingLockExclusive).is_ok());
    assert!(walk::closed(&dir.path().join("none"), Duration::ZERO).is_none());
}

#[test]
fn the_meta_page_that_is_whole_and_newest_counts() {
    let mut pages = store();
    // The newest names an empty tree; once it is damaged, the previous one counts again.
    pages.meta(1, 7, 10);
    let dir = member(&[&sample()], &pages);
    assert_eq!(read(dir.path()).unwrap().revision, None);
    pages.bytes[PAGE + 30] ^= 1;
    let dir = member(&[&sample()], &pages);
    assert_eq!(read(dir.path()).unwrap().revision, Some(5));
    // The first one may be the damaged one as well.
    let mut pages = store();
    pages.bytes[30] ^= 1;
    let dir = member(&[&sample()], &pages);
    assert_eq!(read(dir.path()).unwrap().revision, Some(5));
}

#[test]
fn a_store_without_a_key_is_at_revision_one() {
    let mut pages = store();
    pages.put(4, 2, &leaf(&[]), 0);
    assert_eq!(read(member(&[&sample()], &pages).path()).unwrap().revision, Some(1));
}

#[test]
fn a_tree_that_leads_into_itself_has_an_end() {
    let mut pages = store();
    pages.put(4, 1, &branch(&[(&revision(2, 0), 4)]), 1);
    let fact = read(member(&[&sample()], &pages).path()).unwrap();
    assert!(fact.flaws[0].contains("endless"), "{:?}", fact.flaws);
}

#[test]
fn a_member_list_with_overlapping_values_takes_no_memory() {
    let mut pages = store();
    let tree = |root: u64| [root.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let inner = leaf(&[(b"consistent_index", &77_u64.to_be_bytes()), (b"term", &3_u64.to_be_bytes())]);
    let buckets: [(&[u8], &[u8]); 3] = [(b"key", &tree(4)), (b"members", &tree(8)), (b"meta", &inline(&inner, 2))];
    pages.put(3, 2, &leaf(&buckets), 3);
    let (count, size) = (60, 5 * PAGE);
    pages.put(8, 2, &[], count);
    let at = 8 * PAGE;
    pages.bytes.resize(at + 6 * PAGE, b'x');
    pages.bytes[at + 12..at + 16].copy_from_slice(&5_u32.to_le_bytes());
    for index in 0..count {
        let head: Vec<u8> =
            [0, (count - index) * 16, 0, size].iter().flat_map(|n| u32::try_from(*n).unwrap().to_le_bytes()).collect();
        let place = at + 16 + index * 16;
        pages.bytes[place..place + 16].copy_from_slice(&head);
    }
    let fact = read(member(&[&sample()], &pages).path()).unwrap();
    assert!(fact.flaws.iter().any(|flaw| flaw.contains("endless")), "{:?}", fact.flaws);
}

#[test]
fn a_folder_without_a_log_and_a_missing_folder_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(read(dir.path()), Err(DiskError::Io { .. })));
    fs::create_dir_all(dir.path().join("member/wal")).unwrap();
    assert!(matches!(read(dir.path()), Err(DiskError::NoLog { .. })));
}

/// Valid ends of a log after its first so many records.
fn prefixes(log: &Log) -> Vec<Option<(u64, u64)>> {
    let cut = |end: &usize| segment(&log.bytes[..*end], *end as u64, Path::new("a.wal"), false).unwrap().last;
    std::iter::once(None).chain(log.ends.iter().map(cut)).collect()
}

proptest! {
    #[test]
    fn a_truncated_log_yields_exactly_the_complete_records_before_the_cut(at in 0..400_usize) {
        let log = sample();
        let at = at.min(log.bytes.len());
        let found = segment(&log.bytes[..at], at as u64, Path::new("a.wal"), true).unwrap();
        let whole = log.ends.iter().filter(|end| **end <= at).count();
        prop_assert_eq!(found.last, prefixes(&log)[whole]);
    }

    #[test]
    fn a_flipped_bit_in_the_newest_segment_never_makes_entries_up(at in 0..400_usize, bit in 0..8_u8) {
        let mut log = sample();
        let truths = prefixes(&log);
        let at = at % log.bytes.len();
        // The one byte that no checksum covers, neither here nor in etcd: the kind of a record.
        let kinds: Vec<usize> = std::iter::once(0).chain(log.ends.iter().copied()).map(|begin| begin + 9).collect();
        prop_assume!(!kinds.contains(&at));
        log.bytes[at] ^= 1 << bit;
        if let Ok(found) = log.read(true) {
            prop_assert!(truths.contains(&found.last), "{:?}", found);
        }
    }

    #[test]
    fn a_flipped_bit_in_the_data_of_an_older_segment_is_damage(which in 0..7_usize, byte: usize, bit in 0..8_u8) {
        let mut log = sample();
        let begin = log.ends[which] + 8;
        let head = u64::from_le_bytes(log.bytes[begin - 8..begin].try_into().unwrap());
        let end = begin + usize::try_from(head & 0xffff).unwrap();
        // The data is the last field of a record.
        let data = Record::decode(&log.bytes[begin..end]).unwrap().data.unwrap().len();
        log.bytes[end - data + byte % data] ^= 1 << bit;
        let damaged = matches!(log.read(false), Err(DiskError::Damaged { .. }));
        prop_assert!(damaged, "record {}", which + 1);
    }

    #[test]
    fn a_damaged_store_is_read_or_refused_and_nothing_else(
        damage in proptest::collection::vec((0..8 * PAGE, any::<u8>()), 1..40),
        cut in proptest::option::of(0..8 * PAGE),
    ) {
        let mut pages = store();
        for (at, byte) in damage {
            pages.bytes[at] = byte;
        }
        if let Some(cut) = cut {
            pages.bytes.truncate(cut);
        }
        let dir = member(&[&sample()], &pages);
        let fact = read(dir.path()).unwrap();
        prop_assert_eq!(fact.revision.is_none() || fact.members.is_none(), !fact.flaws.is_empty());
        let (_, closed) = read_closed(dir.path(), CLOSED_WITHIN);
        let closed = closed.unwrap();
        prop_assert!(closed.revision.is_none() || closed == fact);
    }

    #[test]
    fn any_bytes_at_all_are_no_log(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let found = segment(bytes.as_slice(), bytes.len() as u64, Path::new("a.wal"), true);
        if let Ok(found) = found {
            prop_assert_eq!(found.last, None);
        }
    }
}

#[test]
fn a_log_all_of_whose_entries_are_noted_as_committed_reads_on_as_before() {
    // Half a record after the last complete one, as after a power loss, and space that etcd preallocates.
    for torn in [0, 5, 21] {
        let mut log = sample();
        log.bytes.extend((1..=torn).collect::<Vec<u8>>());
        log.bytes.resize(log.bytes.len() + 4096, 0);
        let dir = member(&[&log], &store());
        assert_eq!(commit_all(dir.path()).unwrap(), (2, 3));
        let fact = read(dir.path()).unwrap();
        assert_eq!((fact.term, fact.index, fact.commit), (2, 3, 3), "torn after {torn} bytes");
        assert!(fact.flaws.is_empty(), "{:?}", fact.flaws);
        let file = dir.path().join("member/wal/0000000000000000-0000000000000000.wal");
        assert_eq!(fs::metadata(file).unwrap().len(), log.bytes.len() as u64, "the preallocated space stays");
        assert_eq!(commit_all(dir.path()).unwrap(), (2, 3), "it is idempotent");
    }
}
