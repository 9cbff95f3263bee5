//! The clock of the host, and the timestamps of systemd.

use crate::model::timestamp::millis;
pub(crate) use crate::model::timestamp::{file_timestamp, parse_rfc3339, rfc3339};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{SystemTime, UNIX_EPOCH};
use time::macros::format_description;

/// The time, milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// When a file or its attributes last changed, milliseconds since 1970.
pub(crate) fn changed_ms(file: &Metadata) -> i64 {
    file.ctime() * 1000 + file.ctime_nsec() / 1_000_000
}

/// Parses a timestamp of `systemctl show --timestamp=us+utc`, such as `Fri 2025-11-21 06:55:01.123456 UTC`.
pub(crate) fn parse_systemd(text: &str) -> Option<i64> {
    let rest = text.split_once(' ')?.1.strip_suffix(" UTC")?;
    let shape = format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond]");
    millis(time::PrimitiveDateTime::parse(rest, &shape).ok()?.assume_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_systemd_are_parsed() {
        assert_eq!(parse_systemd("Fri 2025-11-21 06:55:01.123456 UTC"), Some(1_763_708_101_123));
        assert_eq!(parse_systemd("n/a"), None);
        assert_eq!(parse_systemd(""), None);
    }
}
