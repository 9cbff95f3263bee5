//! The report of this host's guard.
//!
//! In: the file that the guard writes every second. Out: a fact; a missing file is no report, and one that cannot be
//! read is said in words. Whether the report is recent and plausible is judged by the receiver.

use crate::agent::machine::root::Root;
use crate::model::guard_report::GuardFact;
use crate::model::healing::REPORT;
use std::fs::File;
use std::io::{ErrorKind, Read as _};

/// The largest report that is read.
const LARGEST: u64 = 256 << 10;

/// What the guard of this host reports.
pub fn fact(root: &Root) -> GuardFact {
    let mut text = Vec::new();
    let read = File::open(root.own(REPORT)).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut text));
    let unreadable = |why: String| GuardFact { report: None, trouble: format!("{REPORT} cannot be read: {why}") };
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => GuardFact::default(),
        Err(error) => unreadable(error.to_string()),
        Ok(length) if length as u64 > LARGEST => unreadable(format!("it is larger than {LARGEST} bytes")),
        Ok(_) => match serde_json::from_slice(&text) {
            Ok(report) => GuardFact { report: Some(report), trouble: String::new() },
            Err(error) => unreadable(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_report_is_none_and_an_unreadable_one_is_said() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        assert_eq!(fact(&root), GuardFact::default());
        let at = root.own(REPORT);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        let digest = "0".repeat(64);
        let good = format!(
            r#"{{"host":"cp1","at_ms":5,"started_ms":1,"release":"{digest}","policy":"{digest}","mode":"watch",
                "own":[],"presumed":[],"pending":[],"others":{{}},"a field of a later release":1}}"#
        );
        std::fs::write(&at, &good).unwrap();
        assert_eq!(fact(&root).report.map(|report| report.at_ms), Some(5));
        let large = format!("{good}{}", " ".repeat(256 << 10));
        for (text, why) in [("", "EOF"), ("{\"host\":", "EOF"), (large.as_str(), "larger than 262144 bytes")] {
            std::fs::write(&at, text).unwrap();
            let found = fact(&root);
            assert!(found.report.is_none() && found.trouble.contains(why), "{found:?}");
        }
        std::fs::remove_file(&at).unwrap();
        std::fs::create_dir(&at).unwrap();
        assert!(fact(&root).trouble.contains("cannot be read"));
    }
}
