//! What has to be given before work begins: a window that is open, and the approval of a person.
//!
//! In: `windows`, `approval` and `approved` of an object of the API. Out: why it cannot begin now.

use super::window::{self, MOST, NextWindow, Opening, Window};
use serde_json::{Value, json};

/// Whether a person has to approve the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Approval {
    /// Nobody has to.
    #[default]
    NotRequired,
    /// Somebody has to.
    Required,
    /// Somebody has.
    Given,
}

/// What has to be given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// When work may begin; none: at any time.
    pub windows: Vec<Window>,
    /// Whether somebody has to approve it.
    pub approval: Approval,
}

/// Why work cannot begin now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// In words.
    pub why: String,
    /// The next window, if that is what it waits for.
    pub next_window: Option<NextWindow>,
}

impl Gate {
    /// Reads it from a `spec`; `required` is what `approval` is there if somebody has to approve.
    pub(super) fn of(spec: &Value, required: &str) -> Result<Self, String> {
        let windows = match &spec["windows"] {
            Value::Null => Vec::new(),
            windows => {
                let all = windows.as_array().filter(|all| all.len() <= MOST).ok_or("its windows cannot be read")?;
                all.iter().map(Window::of).collect::<Result<_, _>>()?
            }
        };
        let approval = match (spec["approval"].as_str(), spec["approved"] == true) {
            (None | Some("NotRequired"), _) => Approval::NotRequired,
            (Some(text), false) if text == required => Approval::Required,
            (Some(text), true) if text == required => Approval::Given,
            _ => return Err("its approval cannot be read".to_owned()),
        };
        Ok(Self { windows, approval })
    }

    /// The fields of a `spec`. What is not asked for is null: an older kind has none of them.
    pub(super) fn spec(&self, required: &str) -> [(&'static str, Value); 3] {
        let or_null = |is: bool, value: Value| if is { value } else { Value::Null };
        let windows: Vec<Value> = self.windows.iter().map(Window::spec).collect();
        [
            ("windows", or_null(!windows.is_empty(), json!(windows))),
            ("approval", or_null(self.approval != Approval::NotRequired, json!(required))),
            ("approved", or_null(self.approval == Approval::Given, json!(true))),
        ]
    }

    /// Why work cannot begin at a time; `None`: it can. `approve` is the command that approves it.
    pub fn closed(&self, now_ms: i64, approve: &str) -> Option<Closed> {
        let opening = match window::opening(&self.windows, now_ms) {
            Ok(opening) => opening,
            Err(why) => return Some(Closed { why, next_window: None }),
        };
        let next_window = match opening {
            Opening::Never => {
                return Some(Closed { why: "none of its windows ever opens".to_owned(), next_window: None });
            }
            Opening::Now => None,
            Opening::At(next) => Some(next),
        };
        let why = match (self.approval, &next_window) {
            (Approval::Required, _) => format!("nobody has approved it yet: {approve}"),
            (_, Some(next)) => format!("its next window opens at {next}"),
            (_, None) => return None,
        };
        Some(Closed { why, next_window })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPROVE: &str = "hactl maintain approve w3";

    #[test]
    fn approval_comes_before_the_window_and_both_have_to_be_given() {
        let gate = |approval| Gate { windows: vec!["0 1 * * * 1h".parse().unwrap()], approval };
        let (closed, open) = (0, 3_600_000);
        let why = |gate: &Gate, now| gate.closed(now, APPROVE).map(|closed| closed.why);
        let unapproved = Some(format!("nobody has approved it yet: {APPROVE}"));
        assert_eq!(why(&gate(Approval::Required), closed), unapproved);
        assert_eq!(why(&gate(Approval::Required), open), unapproved);
        let later = Some("its next window opens at Thu 1970-01-01 01:00 UTC".to_owned());
        assert_eq!(why(&gate(Approval::Given), closed), later);
        assert_eq!(why(&gate(Approval::Given), open), None);
        assert_eq!(why(&gate(Approval::NotRequired), open), None);
        assert_eq!(why(&Gate::default(), closed), None);
    }

    #[test]
    fn a_window_that_cannot_be_understood_never_opens_and_says_why() {
        for (window, why) in [
            (json!({"schedule": "x x x x x", "duration": "1h"}), "is no schedule"),
            (json!({"schedule": "0 1 * * *", "duration": "1h", "timeZone": "Mars/Olympus"}), "is no time zone"),
            (json!({"schedule": "0 1 31 4 *", "duration": "1h"}), "none of its windows ever opens"),
        ] {
            let gate = Gate::of(&json!({"windows": [window]}), "Required").unwrap();
            let closed = gate.closed(0, APPROVE).unwrap();
            assert!(closed.why.contains(why), "{}", closed.why);
        }
    }

    #[test]
    fn what_decides_and_cannot_be_read_is_an_error() {
        for spec in [
            json!({"windows": "always"}),
            json!({"windows": [{"schedule": "0 1 * * *"}]}),
            json!({"windows": [{"duration": "1h"}]}),
            json!({"windows": [{"schedule": "0 1 * * *", "duration": "1h", "timeZone": 1}]}),
            json!({"approval": "Perhaps"}),
        ] {
            assert!(Gate::of(&spec, "Required").is_err(), "{spec}");
        }
    }
}
