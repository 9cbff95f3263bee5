//! Moments as text: milliseconds since 1970 to and from RFC 3339, and stamps that fit into a file name. The clock is others' to read.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

fn moment(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Such as `2026-01-31T12:00:00.25Z`.
pub fn rfc3339(ms: i64) -> String {
    moment(ms).format(&Rfc3339).unwrap_or_default()
}

/// Such as `20260131T120000.250Z`: sorts by time, and no two in a row are equal.
pub fn stamp(ms: i64) -> String {
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
    fn moments_survive_their_text() {
        let ms = 1_763_708_101_123;
        assert_eq!(parse_rfc3339(&rfc3339(ms)), Some(ms));
        assert_eq!(stamp(ms), "20251121T065501.123Z");
    }
}
