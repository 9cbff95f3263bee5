//! Timestamps as text: milliseconds since 1970 to and from RFC 3339, and timestamps for file names. Nothing here reads
//! a clock.

use serde::{Deserialize as _, Deserializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

fn moment(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// The latest timestamp with a text: the end of the year 9999, milliseconds since 1970.
const LATEST_MS: i64 = 253_402_300_799_999;
/// The tolerated difference of clocks, milliseconds. A later timestamp is from a wrong clock, or forged.
const CLOCK_MS: i64 = 300_000;

/// Deserializes a timestamp from others, in milliseconds or seconds, limited to values that can be compared and
/// subtracted.
///
/// # Errors
/// A value that is not a number.
pub fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    i64::deserialize(from).map(|time| time.clamp(-LATEST_MS, LATEST_MS))
}

/// Whether a timestamp is in the future by more than a tolerated difference of clocks.
pub fn is_ahead(ms: i64, now_ms: i64) -> bool {
    ms > now_ms.saturating_add(CLOCK_MS)
}

/// Such as `2026-01-31T12:00:00.25Z`.
pub fn rfc3339(ms: i64) -> String {
    moment(ms).format(&Rfc3339).unwrap_or_default()
}

/// Such as `20260131T120000.250Z`: sorts by time, and no two in a row are equal.
pub fn file_timestamp(ms: i64) -> String {
    let shape = format_description!("[year][month][day]T[hour][minute][second].[subsecond digits:3]Z");
    moment(ms).format(&shape).unwrap_or_else(|_| ms.to_string())
}

/// The day in UTC, such as `2026-01-31`.
pub fn date(ms: i64) -> String {
    moment(ms).format(format_description!("[year]-[month]-[day]")).unwrap_or_default()
}

/// Reads RFC 3339, as Kubernetes writes it.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    millis(OffsetDateTime::parse(text, &Rfc3339).ok()?)
}

/// Milliseconds since 1970.
pub fn millis(moment: OffsetDateTime) -> Option<i64> {
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reported_timestamp_has_a_text_and_a_difference_to_any_other() {
        let read = |time: i64| bounded(serde::de::value::I64Deserializer::<serde::de::value::Error>::new(time));
        for lie in [i64::MAX, i64::MIN, LATEST_MS + 1] {
            let time = read(lie).unwrap();
            assert!(parse_rfc3339(&rfc3339(time.abs())).is_some() && time.checked_sub(-LATEST_MS).is_some(), "{lie}");
        }
        assert_eq!(read(1_763_708_101_123), Ok(1_763_708_101_123));
        assert!(is_ahead(CLOCK_MS + 1, 0) && !is_ahead(CLOCK_MS, 0) && !is_ahead(i64::MAX, i64::MAX));
    }

    #[test]
    fn timestamps_are_read_back_from_their_text() {
        let ms = 1_763_708_101_123;
        assert_eq!(parse_rfc3339(&rfc3339(ms)), Some(ms));
        assert_eq!(file_timestamp(ms), "20251121T065501.123Z");
    }
}
