//! `hactl runbook`.

use super::common::{Common, Needs, Output, Quiet};
use super::snapshot::now_ms;
use super::verbs::ended;
use crate::model::event::Sink;
use crate::report::Exit;
use crate::report::Verdict;
use crate::report::harmless::{print, print_json};
use crate::report::runbook::About;
use crate::workflow::{self, Failure, Unusable};
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
    let told = args.to.is_some() && common.output == Output::Text;
    let sink: Arc<dyn Sink> = if told { Arc::clone(&reader) as Arc<dyn Sink> } else { Arc::new(Quiet) };
    let result = common.run(sink, Needs::Nothing, async |session| {
        let about =
            About { inventory: absolute(&common.inventory), state: absolute(&session.places.state), now_ms: now_ms() };
        let text = workflow::runbook(session, &about).await?;
        if let Some(to) = &args.to {
            let failed = |source| Unusable::Io { doing: "write", path: to.clone(), source };
            std::fs::write(to, &text).map_err(|error| Failure::from(failed(error)))?;
        }
        Ok((text, session.unreachable.keys().map(ToString::to_string).collect::<Vec<_>>()))
    });
    let result = result.map(|(text, unreachable)| {
        reader.pause();
        match (&args.to, common.output) {
            (to, Output::Json) => print_json(&json!({"markdown": text, "to": to, "silent": unreachable})),
            (None, Output::Text) => print(&text),
            (Some(to), Output::Text) => {
                let missing = if unreachable.is_empty() {
                    String::new()
                } else {
                    format!(", without {}", unreachable.join(", "))
                };
                reader.end(&Verdict::ok(format!(
                    "the runbook is {}{missing}: print it, and keep it outside the cluster",
                    to.display()
                )));
            }
        }
        Exit::Done
    });
    ended(&reader, result)
}

/// The absolute path, or the given one if that is unknown.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
