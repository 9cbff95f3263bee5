//! Durations and ages: in words, rounded, and as Kubernetes writes them.

use std::time::Duration;

/// Milliseconds in words such as `40 s`, `2 min 10 s`, `2 h 5 min`, `3 d 4 h`; a negative duration is `0 s`.
pub fn human_duration(ms: i64) -> String {
    match u64::try_from(ms / 1000).unwrap_or(0) {
        s @ ..60 => format!("{s} s"),
        s @ 60..3600 if s % 60 == 0 => format!("{} min", s / 60),
        s @ 60..3600 => format!("{} min {} s", s / 60, s % 60),
        s @ 3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Milliseconds as seconds with a tenth, rounded up: `6.1 s`.
pub fn seconds(ms: u64) -> String {
    let tenths = ms.div_ceil(100);
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// Longer than any bound of a duration in the API, and short enough for every clock.
pub(super) const YEAR_S: u64 = 31_536_000;

/// Reads a duration as Kubernetes writes it: `1h30m`, `90s`.
pub(super) fn go_duration(text: &str) -> Option<Duration> {
    let (mut seconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let (number, unit) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let each = match unit.chars().next()? {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(each)?)?;
        rest = &unit[1..];
    }
    (1..=YEAR_S).contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// Writes a duration as Kubernetes reads it.
pub(super) fn in_go(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::human_duration;

    #[test]
    fn a_duration_is_shown_in_its_two_largest_units() {
        for (s, words) in [
            (-5, "0 s"),
            (59, "59 s"),
            (130, "2 min 10 s"),
            (1800, "30 min"),
            (3599, "59 min 59 s"),
            (7500, "2 h 5 min"),
            (273_600, "3 d 4 h"),
        ] {
            assert_eq!(human_duration(s * 1000), words);
        }
    }
}
