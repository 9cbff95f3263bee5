//! Durations and ages in words, rounded.

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
