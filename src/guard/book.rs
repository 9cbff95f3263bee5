//! The records of repairs on this host, and what a person wrote there: a hold, and that attempts count no more.
//!
//! In: files of `/var/lib/hactl/guard`. Out: their content. The records are written before each step and after it; if
//! the disk is full they are in memory only, because a step may be what frees it.

use crate::agent::Root;
use crate::model::repair::{MOST_RECORDS, Outcome, RECORDS, RETRY, RepairRecord, Switched};
use std::fs;
use std::io::Read as _;
use std::path::Path;

/// The largest file that is read, bytes.
const LARGEST: u64 = 256 << 10;

/// The records of this host.
#[derive(Debug)]
pub(super) struct Book {
    /// `None`: only in memory.
    root: Option<Root>,
    records: Vec<RepairRecord>,
}

impl Book {
    /// As the last guard of this host left it. A line that cannot be read is skipped: it was torn by a power loss.
    pub fn open(root: &Root) -> Self {
        let text = read(&root.own(RECORDS)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let newest = lines.iter().skip(lines.len().saturating_sub(MOST_RECORDS));
        let records = newest.filter_map(|line| serde_json::from_str(line).ok()).collect();
        Self { root: Some(root.clone()), records }
    }

    /// Without a place on the disk.
    #[cfg(test)]
    pub fn in_memory() -> Self {
        Self { root: None, records: Vec::new() }
    }

    /// The records, the newest last.
    pub fn records(&self) -> &[RepairRecord] {
        &self.records
    }

    /// Records the beginning of an attempt.
    pub fn begin(&mut self, record: RepairRecord) -> Result<(), String> {
        self.records.push(record);
        let over = self.records.len().saturating_sub(MOST_RECORDS);
        self.records.drain(..over);
        self.write()
    }

    /// Records how attempts go on; `next` returns the outcome if it changes.
    pub fn go_on(&mut self, mut next: impl FnMut(&RepairRecord) -> Option<Outcome>) -> Result<(), String> {
        let mut changed = false;
        for record in &mut self.records {
            if let Some(outcome) = next(record) {
                (record.outcome, changed) = (outcome, true);
            }
        }
        if changed { self.write() } else { Ok(()) }
    }

    /// Notes what the newest attempt has done to the power of a host; the next change of an outcome writes it.
    pub fn switched(&mut self, switched: Switched) {
        if let Some(power) = self.records.last_mut().and_then(|record| record.power.as_mut()) {
            power.switched = switched;
        }
    }

    fn write(&self) -> Result<(), String> {
        let Some(root) = &self.root else { return Ok(()) };
        let path = root.own(RECORDS);
        let lines: Vec<String> = self.records.iter().filter_map(|record| serde_json::to_string(record).ok()).collect();
        let text = lines.join("\n") + "\n";
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder.and_then(|()| super::shared::replace(&path, text.as_bytes())).map_err(|error| {
            format!("cannot write {}: {error}; this repair is recorded in memory only", path.display())
        })
    }
}

/// The time before which attempts do not count, milliseconds since 1970.
pub(super) fn retry_ms(root: &Root) -> i64 {
    read(&root.own(RETRY)).and_then(|text| text.trim().parse().ok()).unwrap_or(i64::MIN)
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(LARGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fault::FaultKind;
    use crate::model::hold::{ANNOTATED, Annotated, HOLD, Hold};
    use crate::model::repair::LocalStep;

    fn record(begun_ms: i64) -> RepairRecord {
        let (kind, step) = (FaultKind::EtcdFrozen, LocalStep::Restart);
        RepairRecord { kind, step, begun_ms, after_ms: 1, outcome: Outcome::Open, power: None }
    }

    #[test]
    fn records_outlive_the_guard_and_a_torn_line_loses_only_itself() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let mut book = Book::open(&root);
        for n in 0..=MOST_RECORDS {
            book.begin(record(i64::try_from(n).unwrap())).unwrap();
        }
        book.go_on(|record| (record.begun_ms == 7).then_some(Outcome::Helped(9))).unwrap();
        let again = Book::open(&root);
        assert_eq!(again.records(), book.records());
        assert_eq!((again.records().len(), again.records()[0].begun_ms), (MOST_RECORDS, 1));
        let path = root.own(RECORDS);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(Book::open(&root).records().len(), MOST_RECORDS - 1);
        fs::write(&path, [0xff, 0, 1]).unwrap();
        assert_eq!(Book::open(&root).records(), []);
    }

    #[test]
    fn without_a_place_for_records_they_are_kept_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::create_dir_all(root.own("/var/lib/hactl")).unwrap();
        fs::write(root.own("/var/lib/hactl/guard"), "a file where the folder should be").unwrap();
        let mut book = Book::open(&root);
        assert!(book.begin(record(1)).unwrap_err().contains("in memory only"));
        assert_eq!(book.records().len(), 1);
        assert!(book.go_on(|_| Some(Outcome::Done)).is_err());
        assert_eq!(book.records()[0].outcome, Outcome::Done);
    }

    #[test]
    fn any_file_holds_until_its_end_and_a_retry_counts_from_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let own = "cp1".parse().unwrap();
        let hold = |now_ms| crate::agent::hold(&root, &own, now_ms);
        assert_eq!((hold(5), retry_ms(&root)), (None, i64::MIN));
        let path = root.own(HOLD);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for text in ["", "maintenance", "{}"] {
            fs::write(&path, text).unwrap();
            assert_eq!(hold(i64::MAX), Some(Hold::unnamed()), "{text:?}");
        }
        let named = Hold {
            by: "ops".to_owned(),
            reason: "disk swap".to_owned(),
            since_ms: 1,
            until_ms: Some(10),
            annotated: false,
        };
        fs::write(&path, serde_json::to_string(&named).unwrap()).unwrap();
        assert_eq!((hold(9), hold(10)), (Some(named), None));
        let annotated = Annotated { all: None, hosts: [(own.clone(), Hold::unnamed())].into() };
        fs::write(root.own(ANNOTATED), serde_json::to_string(&annotated).unwrap()).unwrap();
        assert_eq!(hold(10), Some(Hold::unnamed()), "the annotation still holds");
        fs::write(root.own(RETRY), "77\n").unwrap();
        assert_eq!(retry_ms(&root), 77);
    }
}
