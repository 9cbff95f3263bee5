//! When work may begin: windows, which open by a crontab schedule in a time zone.
//!
//! In: `windows[]` of an object of the API, or a flag. Out: whether one is open, or when the next one opens. The time
//! zones are part of this program, so all hosts decide alike. A daily time that a change of the clocks leaves out opens
//! its window right after it, and one that comes twice opens it once. Several hours follow the clock.

use super::duration::{go_duration, in_go};
use super::timestamp::rfc3339;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The most windows of an object.
pub const MOST: usize = 16;
/// The longest schedule.
pub const LONGEST_SCHEDULE: usize = 100;
/// The longest name of a time zone.
pub const LONGEST_ZONE: usize = 64;
/// The time zone of a window that names none.
pub const UTC: &str = "UTC";
/// A window is open for so long at least, and at most, in minutes.
pub const OPEN_MIN: std::ops::RangeInclusive<u64> = 5..=10_080;
/// A schedule has so many fields, unless it is a name such as `@daily`.
const FIELDS: usize = 5;

/// A window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// When it opens, as in a crontab.
    schedule: String,
    /// The time zone of the schedule, by its name in the database of the IANA.
    time_zone: String,
    /// For how long it is open.
    lasts: Duration,
}

/// Whether work may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Now.
    Now,
    /// Then.
    At(NextWindow),
    /// Never: no time is one of the schedule.
    Never,
}

/// The next window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextWindow {
    /// When it opens, milliseconds since 1970.
    pub at_ms: i64,
    /// The same in its time zone, for people.
    words: String,
}

impl NextWindow {
    /// As the API has it.
    pub fn rfc3339(&self) -> String {
        rfc3339(self.at_ms)
    }
}

impl fmt::Display for NextWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Window {
    /// Reads one of an object of the API. Whether its schedule and its time zone are any is seen when they are used.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn of(window: &Value) -> Result<Self, String> {
        let text = |field: &str, most: usize| window[field].as_str().filter(|text| text.len() <= most);
        let schedule = text("schedule", LONGEST_SCHEDULE).ok_or("the schedule of a window cannot be read")?;
        let time_zone = match &window["timeZone"] {
            Value::Null => UTC,
            _ => text("timeZone", LONGEST_ZONE).ok_or("the timeZone of a window cannot be read")?,
        };
        let lasts = text("duration", LONGEST_SCHEDULE).and_then(go_duration);
        Ok(Self {
            schedule: schedule.to_owned(),
            time_zone: time_zone.to_owned(),
            lasts: lasts.ok_or("the duration of a window cannot be read")?,
        })
    }

    /// As an object of the API has it.
    pub(super) fn spec(&self) -> Value {
        json!({"schedule": self.schedule, "timeZone": self.time_zone, "duration": in_go(self.lasts)})
    }

    /// Whether it is open at a time, or when it opens after it.
    fn opening(&self, now_ms: i64) -> Result<Opening, String> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let schedule = parser
            .parse(&self.schedule)
            .map_err(|why| format!("{:?} is no schedule of a crontab: {why}", self.schedule))?;
        let zone = TimeZone::get(&self.time_zone)
            .map_err(|_| format!("{:?} is no time zone, such as Europe/Berlin", self.time_zone))?;
        let lasts_ms = i64::try_from(self.lasts.as_millis()).unwrap_or(i64::MAX);
        let at = |ms: i64| Timestamp::from_millisecond(ms).map_err(|why| why.to_string());
        // One that has opened since then is still open.
        let since = at(now_ms.saturating_sub(lasts_ms))?.to_zoned(zone);
        let Ok(opens) = schedule.find_next_occurrence(&since, false) else { return Ok(Opening::Never) };
        if opens.timestamp().as_millisecond() <= now_ms {
            return Ok(Opening::Now);
        }
        Ok(Opening::At(NextWindow {
            at_ms: opens.timestamp().as_millisecond(),
            words: format!("{} {}", words(&opens), self.time_zone),
        }))
    }
}

fn words(time: &Zoned) -> String {
    time.strftime("%a %Y-%m-%d %H:%M").to_string()
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.schedule, in_go(self.lasts), self.time_zone)
    }
}

impl FromStr for Window {
    type Err = String;

    /// Reads `0 1 * * 6 4h Europe/Berlin`, and checks it.
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "write a schedule, how long it is open, and a time zone, such as \"0 1 * * 6 4h Europe/Berlin\"";
        let words: Vec<&str> = text.split_whitespace().collect();
        let fields = if text.trim_start().starts_with('@') { 1 } else { FIELDS };
        let (schedule, lasts, time_zone) = match words.split_at_checked(fields) {
            Some((schedule, [lasts])) => (schedule, *lasts, UTC),
            Some((schedule, [lasts, zone])) => (schedule, *lasts, *zone),
            _ => return Err(shape.to_owned()),
        };
        let lasts = go_duration(lasts).ok_or(shape)?;
        let minutes = lasts.as_secs() / 60;
        if !lasts.as_secs().is_multiple_of(60) || !OPEN_MIN.contains(&minutes) {
            return Err("a window is open for 5m to 168h".to_owned());
        }
        let window = Self { schedule: schedule.join(" "), time_zone: time_zone.to_owned(), lasts };
        match window.opening(0)? {
            Opening::Never => Err(format!("{:?} is never", window.schedule)),
            Opening::Now | Opening::At(_) => Ok(window),
        }
    }
}

/// Whether one of these is open, or which one opens next. Without any, work may begin at any time.
///
/// # Errors
/// One that cannot be understood, in words.
pub fn opening(windows: &[Window], now_ms: i64) -> Result<Opening, String> {
    if windows.is_empty() {
        return Ok(Opening::Now);
    }
    let mut next: Option<NextWindow> = None;
    for window in windows {
        match window.opening(now_ms)? {
            Opening::Now => return Ok(Opening::Now),
            Opening::At(opens) if next.as_ref().is_none_or(|next| opens.at_ms < next.at_ms) => next = Some(opens),
            Opening::At(_) | Opening::Never => {}
        }
    }
    Ok(next.map_or(Opening::Never, Opening::At))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn ms(zone: &str, (year, month, day): (i16, i8, i8), (hour, minute): (i8, i8)) -> i64 {
        let time = date(year, month, day).at(hour, minute, 0, 0).in_tz(zone).unwrap();
        time.timestamp().as_millisecond()
    }

    fn window(text: &str) -> Window {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn at(window: &Window, zone: &str, day: (i16, i8, i8), time: (i8, i8)) -> String {
        match opening(std::slice::from_ref(window), ms(zone, day, time)).unwrap() {
            Opening::Now => "now".to_owned(),
            Opening::At(next) => next.to_string(),
            Opening::Never => "never".to_owned(),
        }
    }

    #[test]
    fn a_window_is_open_from_its_time_for_as_long_as_it_lasts() {
        let (window, zone) = (window("0 1 * * 6 4h Europe/Berlin"), "Europe/Berlin");
        let saturday = (2026, 12, 5);
        assert_eq!(at(&window, zone, saturday, (0, 59)), "Sat 2026-12-05 01:00 Europe/Berlin");
        for open in [(1, 0), (3, 0), (4, 59)] {
            assert_eq!(at(&window, zone, saturday, open), "now");
        }
        assert_eq!(at(&window, zone, saturday, (5, 0)), "Sat 2026-12-12 01:00 Europe/Berlin");
    }

    #[test]
    fn an_hour_that_does_not_exist_opens_right_after_it_and_one_that_comes_twice_opens_once() {
        let (window, zone) = (window("30 2 * * * 1h Europe/Berlin"), "Europe/Berlin");
        // At 2:00 of this day it is 3:00.
        assert_eq!(at(&window, zone, (2027, 3, 28), (1, 59)), "Sun 2027-03-28 03:00 Europe/Berlin");
        assert_eq!(at(&window, zone, (2027, 3, 28), (3, 0)), "now");
        assert_eq!(at(&window, zone, (2027, 3, 28), (4, 0)), "Mon 2027-03-29 02:30 Europe/Berlin");
        // At 3:00 of this day it is 2:00 again.
        let first = ms(zone, (2027, 10, 31), (2, 30));
        let open = |after_min: i64| {
            opening(std::slice::from_ref(&window), first + after_min * 60_000).unwrap() == Opening::Now
        };
        assert!(open(0) && open(59) && !open(60) && !open(119));
    }

    #[test]
    fn the_next_of_several_windows_is_named() {
        let windows = [window("0 1 * * 6 4h"), window("0 22 * * mon,wed 2h America/New_York")];
        let now = ms("UTC", (2026, 12, 1), (12, 0));
        let Opening::At(next) = opening(&windows, now).unwrap() else { panic!("none is open") };
        assert_eq!(
            (next.to_string(), next.rfc3339()),
            ("Wed 2026-12-02 22:00 America/New_York".to_owned(), "2026-12-03T03:00:00Z".to_owned())
        );
        assert_eq!(opening(&[], now), Ok(Opening::Now));
    }

    #[test]
    fn what_is_no_window_is_refused_with_the_reason() {
        for (text, why) in [
            ("0 1 * * 6", "write a schedule"),
            ("0 1 * * 6 4h Europe/Berlin more", "write a schedule"),
            ("0 1 * * 6 soon", "write a schedule"),
            ("0 1 * * 6 4m", "5m to 168h"),
            ("0 1 * * 6 169h", "5m to 168h"),
            ("0 25 * * 6 4h", "is no schedule of a crontab"),
            ("0 1 * * 6 4h Europe/Atlantis", "is no time zone"),
            ("0 1 30 2 * 4h", "is never"),
        ] {
            let said = text.parse::<Window>().unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    /// With and without changes of the clocks, on both halves of the earth, by an hour and by less.
    const ZONES: [&str; 40] = [
        "UTC",
        "Europe/Berlin",
        "Europe/London",
        "Europe/Dublin",
        "Europe/Lisbon",
        "Europe/Moscow",
        "Europe/Athens",
        "Europe/Kiev",
        "Europe/Chisinau",
        "Atlantic/Azores",
        "Africa/Casablanca",
        "Africa/Cairo",
        "Africa/Lagos",
        "Asia/Jerusalem",
        "Asia/Beirut",
        "Asia/Gaza",
        "Asia/Tehran",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Asia/Tokyo",
        "Asia/Shanghai",
        "Australia/Sydney",
        "Australia/Adelaide",
        "Australia/Lord_Howe",
        "Australia/Perth",
        "Pacific/Auckland",
        "Pacific/Chatham",
        "Pacific/Kiritimati",
        "Pacific/Easter",
        "Pacific/Norfolk",
        "America/New_York",
        "America/Chicago",
        "America/Denver",
        "America/Los_Angeles",
        "America/Anchorage",
        "America/St_Johns",
        "America/Havana",
        "America/Santiago",
        "America/Asuncion",
        "America/Nuuk",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Minute by minute over three days around any time of forty years: a daily window opens once a day, and is
        /// open for as long as it lasts.
        #[test]
        fn a_daily_window_opens_once_a_day_whatever_the_clocks_do(
            zone in 0..ZONES.len(), hour in 0..24_u8, minute in 0..60_u8, day in 0..14_600_i64,
        ) {
            let window = window(&format!("{minute} {hour} * * * 30m {}", ZONES[zone]));
            let begin = day * 86_400_000;
            let is_open = |minute: i64| window.opening(begin + minute * 60_000).unwrap() == Opening::Now;
            let open: Vec<bool> = (0..3 * 1440).map(is_open).collect();
            let minutes = open.iter().filter(|open| **open).count();
            let opened = open.windows(2).filter(|pair| !pair[0] && pair[1]).count();
            // A day has 23 to 25 hours, and the first and the last window may be cut.
            prop_assert!((2..=4).contains(&opened), "{} times", opened);
            prop_assert!((60..=120).contains(&minutes), "{} minutes", minutes);
            for (minute, is_open) in open.iter().enumerate().filter(|(_, is_open)| !**is_open).step_by(97) {
                let now = begin + i64::try_from(minute).unwrap() * 60_000;
                let Opening::At(next) = window.opening(now).unwrap() else { panic!("it is closed: {is_open}") };
                prop_assert!(next.at_ms > now);
                prop_assert_eq!(window.opening(next.at_ms).unwrap(), Opening::Now);
                prop_assert!(window.opening(next.at_ms - 1).unwrap() != Opening::Now);
            }
        }

        #[test]
        fn a_window_is_read_as_it_was_written(minute in 0..60_u8, hours in 1..168_u64, zone in 0..ZONES.len()) {
            let window = window(&format!("{minute} 3 * * 1 {hours}h {}", ZONES[zone]));
            prop_assert_eq!(Window::of(&window.spec()).unwrap(), window.clone());
            prop_assert_eq!(window.to_string().parse::<Window>().unwrap(), window);
        }
    }
}
