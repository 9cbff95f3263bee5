//! Clock readings as the vocabulary wants them: milliseconds since 1970, RFC 3339, and stamps that fit into a file name.

use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// The host's clock, milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

fn moment(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Such as `2026-01-31T12:00:00.25Z`.
pub(super) fn rfc3339(ms: i64) -> String {
    moment(ms).format(&Rfc3339).unwrap_or_default()
}

/// Such as `20260131T120000.250Z`: sorts by time, and no two in a row are equal.
pub(super) fn stamp(ms: i64) -> String {
    let shape = format_description!("[year][month][day]T[hour][minute][second].[subsecond digits:3]Z");
    moment(ms).format(&shape).unwrap_or_else(|_| ms.to_string())
}

/// Reads RFC 3339, as Kubernetes writes it.
pub(super) fn parse_rfc3339(text: &str) -> Option<i64> {
    millis(OffsetDateTime::parse(text, &Rfc3339).ok()?)
}

/// Reads what `systemctl show --timestamp=us+utc` writes, such as `Fri 2025-11-21 06:55:01.123456 UTC`.
pub(super) fn parse_systemd(text: &str) -> Option<i64> {
    let rest = text.split_once(' ')?.1.strip_suffix(" UTC")?;
    let shape = format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond]");
    millis(time::PrimitiveDateTime::parse(rest, &shape).ok()?.assume_utc())
}

fn millis(moment: OffsetDateTime) -> Option<i64> {
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_survive_their_text() {
        let ms = 1_763_708_101_123;
        assert_eq!(parse_rfc3339(&rfc3339(ms)), Some(ms));
        assert_eq!(stamp(ms), "20251121T065501.123Z");
        assert_eq!(parse_systemd("Fri 2025-11-21 06:55:01.123456 UTC"), Some(ms));
        assert_eq!(parse_systemd("n/a"), None);
        assert_eq!(parse_systemd(""), None);
    }
}
