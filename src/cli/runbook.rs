//! `hactl runbook`.

use super::common::{Common, Needs, Quiet, Said};
use super::snapshot::now_ms;
use crate::model::event::Sink;
use crate::report::runbook::About;
use crate::report::{Exit, Verdict};
use crate::workflow::{self, Unusable};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct RunbookArgs {
    /// Write the runbook to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

pub fn run(common: &Common, args: &RunbookArgs) -> Exit {
    let reader = common.reader();
    // Standard output carries the runbook only.
    let sink: Arc<dyn Sink> = if args.to.is_some() { common.sink(&reader) } else { Arc::new(Quiet) };
    let result = common.run(sink, Needs::Nothing, async |session| {
        let about =
            About { inventory: absolute(&common.inventory), state: absolute(&session.places.state), now_ms: now_ms() };
        let text = workflow::runbook(session, &about).await?;
        let unreachable: Vec<String> = session.unreachable.keys().map(ToString::to_string).collect();
        let object = json!({"markdown": text, "to": args.to, "silent": unreachable});
        let Some(to) = &args.to else { return Ok(Said { object, text, last: None }) };
        let failed = |source| Unusable::Io { doing: "write", path: to.clone(), source };
        std::fs::write(to, &text).map_err(failed)?;
        let missing =
            if unreachable.is_empty() { String::new() } else { format!(", without {}", unreachable.join(", ")) };
        let to = to.display();
        let headline = format!("the runbook is {to}{missing}: print it, and keep it outside the cluster");
        Ok(Said { object, text: String::new(), last: Some(Verdict::ok(headline)) })
    });
    common.said(&reader, result)
}

/// The absolute path, or the given one if that is unknown.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
