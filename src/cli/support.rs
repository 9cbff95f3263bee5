//! `hactl support-bundle`.

use super::common::{Common, Needs, Said, number_with_unit, stamp};
use crate::model::event::Event;
use crate::report::{Exit, Reader, Verdict};
use crate::support::Written;
use crate::workflow::{self, Supported, Wanted};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SupportArgs {
    /// The archive [default: hactl-support-CLUSTER-TIME.tar.zst in the current directory]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// How far back the journals go, in hours (h) or days (d)
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = hours)]
    since: u32,
}

/// Parses a number with h or d, up to a year.
fn hours(text: &str) -> Result<u32, String> {
    let words = ["write a number with h or d, such as 24h", "from 1h to 366d"];
    let hours = number_with_unit(text, &[("h", 1), ("d", 24)], 8784, words)?;
    u32::try_from(hours).map_err(|_| words[1].to_owned())
}

pub fn run(common: &Common, args: &SupportArgs) -> Exit {
    let reader = common.reader();
    let stamp = stamp();
    let result = common.run(common.sink(&reader), Needs::Nothing, async |session| {
        let folder = format!("hactl-support-{}-{stamp}", session.desired.cluster);
        let to = args.to.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.zst")));
        workflow::support(session, &Wanted { to, folder, hours: args.since }).await
    });
    let result = result.map(|done| {
        if !common.json() {
            remarks(&*reader, &done);
        }
        let Written { path, bytes, pages, struck } = &done.written;
        let object = json!({"path": path, "bytes": bytes, "pages": pages, "redacted": struck, "missing": done.missing});
        let size = bytes.div_ceil(1024);
        let last = Verdict::ok(format!("the support bundle is {} ({size} KiB)", path.display()));
        Said { object, text: String::new(), last: Some(last) }
    });
    common.said(&reader, result)
}

/// Reports what is missing, and what was redacted.
fn remarks(reader: &dyn Reader, done: &Supported) {
    for (host, why) in &done.missing {
        reader.emit(Event::Warning { text: format!("nothing of {host}: {why}") });
    }
    reader.emit(Event::Note {
        text: format!(
            "{} pages. Keys, tokens and passwords are redacted in {} places; names and addresses are not: review the \
             archive before you share it",
            done.written.pages, done.written.struck
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::hours;

    #[test]
    fn how_far_back_is_hours_or_days() {
        for (text, expected) in [("1h", 1), ("24h", 24), ("3d", 72), ("366d", 8784)] {
            assert_eq!(hours(text), Ok(expected), "{text}");
        }
        for text in ["", "0h", "24", "367d", "1w", "-1h", "99999999999h"] {
            assert!(hours(text).is_err(), "{text}");
        }
    }
}
