//! `hactl support-bundle`.

use super::common::{Common, Needs, Output, Quiet, number_and_unit, stamp};
use crate::model::event::{Event, Sink};
use crate::report::harmless::print_json;
use crate::report::{Exit, Reader, Verdict};
use crate::workflow::{self, Supported, Wanted};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

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
    let (number, unit) = number_and_unit(text);
    let each = match unit {
        "h" => 1,
        "d" => 24,
        _ => return Err("write a number with h or d, such as 24h".to_owned()),
    };
    match number.parse::<u32>().ok().and_then(|n| n.checked_mul(each)) {
        Some(hours @ 1..=8784) => Ok(hours),
        _ => Err("from 1h to 366d".to_owned()),
    }
}

pub fn run(common: &Common, args: &SupportArgs) -> Exit {
    let reader = common.reader();
    let json = common.output == Output::Json;
    let sink: Arc<dyn Sink> = if json { Arc::new(Quiet) } else { Arc::clone(&reader) as Arc<dyn Sink> };
    let stamp = stamp();
    let result = common.run(sink, Needs::Nothing, async |session| {
        let folder = format!("hactl-support-{}-{stamp}", session.desired.cluster);
        let to = args.to.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.zst")));
        workflow::support(session, &Wanted { to, folder, hours: args.since }).await
    });
    match result {
        Ok(done) if json => {
            // A closed pipe is not a failure.
            print_json(&object(&done));
            Exit::Done
        }
        Ok(done) => {
            tell(&*reader, &done);
            Exit::Done
        }
        Err(verdict) => {
            reader.end(&verdict);
            verdict.exit
        }
    }
}

fn object(done: &Supported) -> serde_json::Value {
    json!({
        "path": done.written.path,
        "bytes": done.written.bytes,
        "pages": done.written.pages,
        "redacted": done.written.struck,
        "missing": done.missing,
    })
}

/// Reports what is missing, what was redacted, and where the archive is.
fn tell(reader: &dyn Reader, done: &Supported) {
    let written = &done.written;
    for (host, why) in &done.missing {
        reader.emit(Event::Warning { text: format!("nothing of {host}: {why}") });
    }
    reader.emit(Event::Note {
        text: format!(
            "{} pages. Keys, tokens and passwords are redacted in {} places; names and addresses are not: review the \
             archive before you share it",
            written.pages, written.struck
        ),
    });
    let size = written.bytes.div_ceil(1024);
    reader.end(&Verdict::ok(format!("the support bundle is {} ({size} KiB)", written.path.display())));
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
