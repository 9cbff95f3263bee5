//! The verbs that work on a cluster.

use super::common::{Common, Output};
use crate::model::check::Outcome;
use crate::model::event::{Event, Sink};
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use crate::report::{self, Verdict};
use crate::workflow::{self, Ask, Choices, KubeconfigKind};
use clap::Args;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks of `status --watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct UpArgs {
    /// A host that left the inventory and may leave the cluster
    #[arg(long, value_name = "NAME")]
    prune: Vec<HostName>,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Exit with 5 when something is to be done
    #[arg(long)]
    exit_code: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Look again and again, until interrupted
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// A credential that no RBAC rule can take away, for 8 hours; keep it out of files
    #[arg(long)]
    break_glass: bool,
}

#[derive(Debug, Args)]
pub struct KubectlArgs {
    /// What kubectl is to do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

#[derive(Debug, Args)]
pub struct DownArgs {
    /// Delete data instead of moving it aside
    #[arg(long)]
    wipe: bool,
}

/// Asks on the terminal.
struct Terminal;

impl Ask for Terminal {
    fn yes(&self, question: &str) -> Result<bool, Refusal> {
        report::ask(question)
    }
    fn name(&self, question: &str, name: &str) -> Result<bool, Refusal> {
        report::ask_name(question, name)
    }
}

fn print(text: &str) {
    // A reader that went away (a closed pipe) is no failure of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn ended(common: &Common, result: Result<u8, Verdict>) -> u8 {
    match result {
        Ok(code) => code,
        Err(verdict) => common.end(&verdict),
    }
}

pub fn up(common: &Common, args: UpArgs) -> u8 {
    let sink = common.reader();
    let choices = Choices { yes: common.yes, prune: args.prune };
    let result = common.run(&sink, async |session| workflow::up(session, &choices, &Terminal).await);
    let result = result.map(|summary| {
        report::up_done(&summary.checks, summary.changed, &summary.kubeconfig, common.output == Output::Json);
        0
    });
    ended(common, result)
}

pub fn plan(common: &Common, args: &PlanArgs) -> u8 {
    let sink = common.reader();
    let result = common.run(&sink, async |session| workflow::pending(session).await).map(|plan| {
        if common.output == Output::Json {
            sink.emit(Event::Planned { plan: Box::new(plan.clone()) });
        } else {
            print(&report::plan_text(&plan, report::Style::stdout(common.verbose)));
        }
        if args.exit_code && !plan.is_empty() { 5 } else { 0 }
    });
    ended(common, result)
}

pub fn status(common: &Common, args: &StatusArgs) -> u8 {
    let sink: Arc<dyn Sink> = common.reader();
    let json = common.output == Output::Json;
    let result = common.run(&sink, async |session| {
        loop {
            let status = workflow::status(session).await?;
            if args.watch && !json && std::io::stdout().is_terminal() {
                print("\x1b[H\x1b[2J");
            }
            if json {
                print(&report::status_json(&session.desired, &status.facts, &status.checks));
            } else {
                let style = report::Style::stdout(common.verbose);
                print(&report::status_text(&session.desired, &status.facts, &status.checks, style));
            }
            let code = match status.worst() {
                Outcome::Pass | Outcome::Skip | Outcome::Warn => 0,
                Outcome::Fail => 4,
                Outcome::Down => 7,
            };
            if !args.watch || session.stop.is_cancelled() {
                return Ok(code);
            }
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                () = session.stop.cancelled() => return Ok(code),
            }
        }
    });
    ended(common, result)
}

pub fn kubeconfig(common: &Common, args: &KubeconfigArgs) -> u8 {
    let sink = common.reader();
    let kind = if args.break_glass { KubeconfigKind::BreakGlass } else { KubeconfigKind::Administrator };
    let result = common.load(&sink).and_then(|loaded| {
        let places = common.places(&loaded.desired);
        workflow::kubeconfig(&loaded.desired, &places, kind).map_err(|f| super::common::failure_verdict(&f))
    });
    let result = result.map(|credential| {
        if kind == KubeconfigKind::BreakGlass {
            let text = "break glass: system:masters, beyond RBAC and audit by name, valid for 8 hours; delete it when done";
            sink.emit(Event::Warning { text: text.to_owned() });
        }
        print(credential.reveal());
        0
    });
    ended(common, result)
}

pub fn kubectl(common: &Common, args: &KubectlArgs) -> u8 {
    let sink = report::quiet();
    let result = common.run(&sink, async |session| workflow::kubectl(session, &args.arguments).await);
    ended(common, result)
}

pub fn down(common: &Common, args: &DownArgs) -> u8 {
    let sink = common.reader();
    let choices = Choices { yes: common.yes, prune: vec![] };
    let result = common.run(&sink, async |session| workflow::down(session, &choices, &Terminal, args.wipe).await);
    let result = result.map(|plan| {
        if plan.is_empty() {
            sink.emit(Event::Note { text: "nothing to do: no host carries a cluster".to_owned() });
        }
        0
    });
    ended(common, result)
}
