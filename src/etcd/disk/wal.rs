//! The end of a write-ahead log: term and index of the last entry, and the known commit index.
//!
//! Format: etcd's `server/storage/wal`. Segments are named SEQUENCE-INDEX.wal. A record is a length of eight bytes,
//! little-endian, whose top byte is the length of the padding (0x80 | padding), then a `walpb.Record`. Its checksum,
//! CRC-32C, covers the data of all previous records in the segment, starting with the value in the segment's first
//! record. A length of zero is preallocated space.

use super::{DiskError, io, plain, written};
use prost::Message;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A longer record is invalid: etcd refuses far smaller requests.
const LARGEST: u64 = 256 << 20;

/// `walpb.Record`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Record {
    #[prost(int64, optional, tag = "1")]
    pub kind: Option<i64>,
    #[prost(uint32, optional, tag = "2")]
    pub crc: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub data: Option<Vec<u8>>,
}

/// Kinds of records.
pub(super) mod kind {
    pub const METADATA: i64 = 1;
    pub const ENTRY: i64 = 2;
    pub const STATE: i64 = 3;
    pub const CRC: i64 = 4;
    pub const SNAPSHOT: i64 = 5;
}

/// `etcdserverpb.Metadata`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(uint64, optional, tag = "1")]
    pub member: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub cluster: Option<u64>,
}

/// `raftpb.Entry` without its payload, and `walpb.Snapshot` without its configuration, in their own field numbers.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(uint64, optional, tag = "2")]
    pub term: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub index: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Snapshot {
    #[prost(uint64, optional, tag = "1")]
    pub index: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub term: Option<u64>,
}

/// `raftpb.HardState`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct HardState {
    #[prost(uint64, optional, tag = "1")]
    pub term: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub vote: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub commit: Option<u64>,
}

/// The position of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    pub member: u64,
    pub cluster: u64,
    /// Of the last entry, or of the snapshot after it.
    pub term: u64,
    pub index: u64,
    /// The last recorded commit index; entries beyond it may be committed, too.
    pub commit: u64,
    /// Whether the last record is incomplete.
    pub cut_short: bool,
    /// Whether a record is damaged that was complete once: etcd does not start from such a log.
    pub damaged: bool,
    /// The newest segment.
    pub newest: PathBuf,
    /// The end of its last complete record.
    pub at: u64,
    /// The checksum so far.
    pub crc: u32,
    /// The vote of the member in the last term that it knew, and that term.
    pub vote: (u64, u64),
}

/// The content of one segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub identity: Option<(u64, u64)>,
    pub last: Option<(u64, u64)>,
    pub state: Option<HardState>,
    pub cut_short: bool,
    pub damaged: bool,
    pub end: u64,
    pub crc: u32,
}

/// Reads the log in this directory from its end, back to its last entry.
pub(super) fn read(folder: &Path) -> Result<End, DiskError> {
    let mut segments: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io(folder))? {
        let path = entry.map_err(io(folder))?.path();
        if let Some(sequence) = sequence(&path) {
            segments.push((sequence, path));
        }
    }
    segments.sort();
    let newest =
        segments.last().map(|(_, path)| path.clone()).ok_or_else(|| DiskError::NoLog { path: folder.to_owned() })?;
    let mut all = Segment::default();
    for (_, path) in segments.iter().rev() {
        let file = plain(File::options().read(true), path)?;
        let length = file.metadata().map_err(io(path))?.len();
        let is_newest = path == &newest;
        let found = segment(BufReader::with_capacity(1 << 20, file), length, path, is_newest)?;
        if is_newest {
            (all.end, all.crc) = (found.end, found.crc);
        }
        all.identity = all.identity.or(found.identity);
        all.state = all.state.or(found.state);
        all.cut_short |= found.cut_short;
        all.damaged |= found.damaged;
        all.last = found.last;
        if all.last.is_some() && all.identity.is_some() {
            break;
        }
    }
    let (member, cluster) = all.identity.ok_or(DiskError::Damaged {
        path: newest.clone(),
        at: 0,
        what: "it does not contain the id of its member",
    })?;
    let (term, index) = all.last.unwrap_or_default();
    let state = all.state.unwrap_or_default();
    Ok(End {
        member,
        cluster,
        term,
        index,
        commit: state.commit(),
        cut_short: all.cut_short,
        damaged: all.damaged,
        newest,
        at: all.end,
        crc: all.crc,
        vote: (state.term(), state.vote()),
    })
}

/// The sequence number in a segment's name.
fn sequence(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".wal")?;
    let (sequence, index) = name.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    number(index)?;
    number(sequence)
}

/// Reads one segment of this length. If the newest one ends in an invalid record, it was truncated or is damaged
/// there.
pub(super) fn segment(mut from: impl Read, length: u64, path: &Path, is_newest: bool) -> Result<Segment, DiskError> {
    let damaged = |at: u64, what: &'static str| DiskError::Damaged { path: path.to_owned(), at, what };
    let mut found = Segment::default();
    let (mut at, mut crc, mut begun) = (0_u64, 0_u32, false);
    let mut buffer = Vec::new();
    loop {
        let mut head = [0_u8; 8];
        if length - at < 8 {
            break;
        }
        from.read_exact(&mut head).map_err(io(path))?;
        let head = u64::from_le_bytes(head);
        if head == 0 {
            break;
        }
        let size = head & 0x00ff_ffff_ffff_ffff;
        let padding = if head >> 63 == 1 { (head >> 56) & 7 } else { 0 };
        let whole = size.saturating_add(padding);
        let end_of_this = (at + 8).saturating_add(whole);
        if size > LARGEST || end_of_this > length {
            if is_newest {
                found.cut_short = true;
                break;
            }
            return Err(damaged(at, "a record is longer than the file"));
        }
        buffer.clear();
        let wanted = usize::try_from(whole).map_err(|_| damaged(at, "a record is longer than memory"))?;
        buffer.resize(wanted, 0);
        from.read_exact(&mut buffer).map_err(io(path))?;
        let record = usize::try_from(size).ok().and_then(|size| Record::decode(buffer.get(..size)?).ok());
        let checked = record.filter(|record| {
            let said = record.crc();
            // The first record of a segment carries the checksum of the previous ones.
            if record.kind == Some(kind::CRC) {
                !begun || said == crc
            } else {
                crc32c::crc32c_append(crc, record.data()) == said
            }
        });
        let Some(record) = checked else {
            if is_newest {
                found.cut_short = torn(&buffer, at + 8);
                found.damaged = !found.cut_short;
                break;
            }
            return Err(damaged(at, "the checksum of a record does not match"));
        };
        (crc, begun) = (record.crc(), true);
        note(&mut found, &record).ok_or_else(|| damaged(at, "a record does not match its kind"))?;
        at = end_of_this;
        (found.end, found.crc) = (at, crc);
    }
    Ok(found)
}

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// Whether a record that begins here was being written when power failed: one of its sectors was never written. This
/// is etcd's own rule, by which it drops such a record and refuses any other with a wrong checksum.
fn torn(record: &[u8], begins: u64) -> bool {
    let into = usize::try_from(begins % SECTOR as u64).unwrap_or(0);
    let (first, rest) = record.split_at(record.len().min(SECTOR - into));
    std::iter::once(first).chain(rest.chunks(SECTOR)).any(|sector| sector.iter().all(|byte| *byte == 0))
}

/// Applies a record; `None` if it cannot be parsed.
fn note(found: &mut Segment, record: &Record) -> Option<()> {
    let data = record.data();
    match record.kind {
        Some(kind::METADATA) => {
            let said = Metadata::decode(data).ok()?;
            let said = (said.member.unwrap_or_default(), said.cluster.unwrap_or_default());
            // A log belongs to one member from its beginning to its end.
            if *found.identity.get_or_insert(said) != said {
                return None;
            }
        }
        Some(kind::ENTRY) => {
            // Entries after a rewritten one are no longer part of the log: the last written is the last.
            let entry = Entry::decode(data).ok()?;
            found.last = Some((entry.term.unwrap_or_default(), entry.index.unwrap_or_default()));
        }
        Some(kind::SNAPSHOT) => {
            let said = Snapshot::decode(data).ok()?;
            let (term, index) = (said.term.unwrap_or_default(), said.index.unwrap_or_default());
            // A received snapshot replaces a log that had fallen behind it.
            if index > 0 && found.last.is_none_or(|(_, last)| index > last) {
                found.last = Some((term, index));
            }
        }
        Some(kind::STATE) => found.state = Some(HardState::decode(data).ok()?),
        Some(kind::CRC) => {}
        _ => return None,
    }
    Some(())
}

/// Marks all entries as committed in the log of a COPY: a member that is started alone drops uncommitted entries, and
/// an entry that a majority had may be among them.
///
/// # Errors
/// A log that cannot be read or written.
pub(super) fn commit_all(folder: &Path) -> Result<End, DiskError> {
    let end = read(folder)?;
    let (term, vote) = if end.vote.0 >= end.term { end.vote } else { (end.term, 0) };
    let state = HardState { term: Some(term), vote: Some(vote), commit: Some(end.index) }.encode_to_vec();
    let crc = crc32c::crc32c_append(end.crc, &state);
    let record = Record { kind: Some(kind::STATE), crc: Some(crc), data: Some(state) }.encode_to_vec();
    let mut bytes = frame(&record);
    let path = &end.newest;
    let file = plain(File::options().write(true), path)?;
    let length = file.metadata().map_err(io(path))?.len();
    // After the last complete record there may be part of another; then come zeroes, as etcd itself leaves them.
    bytes.extend_from_slice(&[0; 8]);
    file.set_len(end.at).map_err(written(path))?;
    file.write_all_at(&bytes, end.at).map_err(written(path))?;
    file.set_len(length.max(end.at + bytes.len() as u64)).map_err(written(path))?;
    file.sync_all().map_err(written(path))?;
    Ok(end)
}

/// A record with its length and its padding.
fn frame(record: &[u8]) -> Vec<u8> {
    let padding = (8 - record.len() % 8) % 8;
    let flagged = if padding == 0 { 0 } else { (0x80 | padding as u64) << 56 };
    let mut bytes = (record.len() as u64 | flagged).to_le_bytes().to_vec();
    bytes.extend_from_slice(record);
    bytes.resize(bytes.len() + padding, 0);
    bytes
}
