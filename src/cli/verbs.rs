//! The verbs that work on a cluster.

use super::common::{Common, Limit, Needs, Output, Quiet, ended, failure_verdict};
use crate::model::names::{ClusterName, HostName};
use crate::model::refusal::Refusal;
use crate::report::harmless::{self, print, print_json};
use crate::report::{self, Exit, Reader, Style, Verdict};
use crate::workflow::{self, Ask, Choices, KubeconfigKind};
use clap::Args;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

/// Interval of `status --watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    leaving: Leaving,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Debug, Args)]
struct Leaving {
    /// Drain, remove and clean this host, which is no longer in the inventory; may be repeated
    #[arg(long, value_name = "NAME")]
    prune: Vec<HostName>,
    /// Confirm that this host is intentionally another machine, or was another host of this cluster; may be repeated
    #[arg(long, value_name = "NAME")]
    reassign: Vec<HostName>,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Exit with 5 if changes are pending
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    leaving: Leaving,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Repeat every 2 seconds, until interrupted
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Print a credential that no RBAC rule can restrict, valid for 8 hours; do not store it in a file
    #[arg(long)]
    break_glass: bool,
}

#[derive(Debug, Args)]
pub struct KubectlArgs {
    /// Arguments of kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

#[derive(Debug, Args)]
pub struct DownArgs {
    /// Delete data and snapshots instead of moving them aside
    #[arg(long)]
    wipe: bool,
}

/// Asks on the terminal, after erasing what is drawn there.
impl Ask for Arc<dyn Reader> {
    fn yes(&self, question: &str, what: &str) -> Result<(), Refusal> {
        self.pause();
        report::ask(question, what)
    }
    fn name(&self, cluster: &ClusterName, what: &str) -> Result<(), Refusal> {
        self.pause();
        report::ask_name(cluster, what)
    }
}

pub fn up(common: &Common, args: UpArgs) -> Exit {
    let reader = common.reader();
    let choices = Choices {
        limit: args.limit.hosts(),
        prune: args.leaving.prune,
        reassign: args.leaving.reassign.into_iter().collect(),
        ..common.choices()
    };
    let who = (args.limit.limit.as_slice(), choices.prune.as_slice());
    let result = common.run_leaving(who, reader.clone(), Needs::Most, async |session| {
        let summary = workflow::up(session, &choices, &reader).await?;
        reader.pause();
        if common.output == Output::Text {
            let style = Style::stdout(common.verbose);
            if summary.changed {
                print(&report::status_text(&session.desired, &summary.facts, &summary.checks, &style));
            }
            print(&report::times::next_steps(&summary.kubeconfig, common.named(), &style));
        }
        Ok(summary.changed)
    });
    let headline = |changed| match (changed, args.limit.limit.is_empty()) {
        (true, true) => "the cluster is what the inventory asks for",
        (true, false) => "the hosts of --limit are what the inventory asks for",
        (false, true) => "nothing to do",
        (false, false) => "nothing to do on the hosts of --limit",
    };
    ended(&reader, result.map(|changed| Verdict::ok(headline(changed))))
}

pub fn plan(common: &Common, args: &PlanArgs) -> Exit {
    let reader = common.reader();
    let choices = Choices {
        limit: args.limit.hosts(),
        prune: args.leaving.prune.clone(),
        reassign: args.leaving.reassign.iter().cloned().collect(),
        ..Choices::default()
    };
    let who = (args.limit.limit.as_slice(), choices.prune.as_slice());
    let mut pending = false;
    let planned = common.run_leaving(who, common.sink(&reader), Needs::Bundle, async |session| {
        let (plan, differences) = workflow::pending(session, &choices).await?;
        pending = args.exit_code && !plan.is_empty();
        let mut said = common.plan(&plan);
        said.object["files"] = report::differences_json(&differences);
        said.text += &report::differences_text(&differences, &Style::stdout(common.verbose));
        Ok(said)
    });
    match common.said(&reader, planned) {
        Exit::Done => Exit::of_plan(pending),
        exit => exit,
    }
}

pub fn status(common: &Common, args: &StatusArgs) -> Exit {
    let reader = common.reader();
    let json = common.json();
    let result = common.run(common.sink(&reader), Needs::Bundle, async |session| {
        loop {
            let status = workflow::status(session).await?;
            reader.pause();
            if args.watch && !json && std::io::stdout().is_terminal() {
                harmless::clear();
            }
            if json {
                print_json(&report::status_json(&session.desired, &status.facts, &status.checks));
            } else {
                let style = Style::stdout(common.verbose);
                print(&report::status_text(&session.desired, &status.facts, &status.checks, &style));
            }
            let code = Exit::of_checks(status.worst());
            if !args.watch || session.stop.is_cancelled() {
                return Ok(code);
            }
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                () = session.stop.cancelled() => return Ok(code),
            }
        }
    });
    result.unwrap_or_else(|verdict| ended(&reader, Err(verdict)))
}

pub fn kubeconfig(common: &Common, args: &KubeconfigArgs) -> Exit {
    let kind = if args.break_glass { KubeconfigKind::BreakGlass } else { KubeconfigKind::Administrator };
    let result = common.load(&Quiet).and_then(|loaded| {
        let places = common.places(&loaded);
        workflow::kubeconfig(&loaded.desired, &places, kind).map_err(|f| failure_verdict(&f))
    });
    let result = result.map(|credential| {
        if kind == KubeconfigKind::BreakGlass {
            let text = "break-glass credential: system:masters, not restricted by RBAC and not a named user in the \
                        audit log; valid for 8 hours. Delete it when you are done.";
            // Standard output carries the kubeconfig only.
            tell!("{text}");
        }
        print(credential.reveal());
        Exit::Done
    });
    result.unwrap_or_else(|verdict| common.end(&verdict))
}

pub fn kubectl(common: &Common, args: &KubectlArgs) -> Exit {
    let result = common.run(Arc::new(Quiet), Needs::Hosts, async |session| {
        workflow::kubectl(session, &args.arguments).await.map(Exit::Program)
    });
    result.unwrap_or_else(|verdict| common.end(&verdict))
}

pub fn down(common: &Common, args: &DownArgs) -> Exit {
    let (reader, choices) = (common.reader(), common.choices());
    let result = common.run(reader.clone(), Needs::Bundle, async |session| {
        let nothing = workflow::down(session, &choices, &reader, args.wipe).await?.is_empty();
        Ok(if nothing { "nothing to do: there is no cluster on any host" } else { "the cluster is down" })
    });
    ended(&reader, result.map(Verdict::ok))
}
