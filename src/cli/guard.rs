//! `hactl guard`.

use super::common::{Common, Needs, ended, known};
use crate::model::check::Outcome;
use crate::model::desired::Desired;
use crate::model::guards::Guards;
use crate::model::healing::{Mode, is_guarded};
use crate::model::names::HostName;
use crate::report::harmless::{print, print_json};
use crate::report::{self, Exit, FailureKind, Style, Verdict};
use crate::workflow;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct GuardArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show each guard: whether it works, which others it hears, its clock, and the faults of its host
    #[command(after_help = "\
Examples:
  hactl guard status
  hactl guard status -o json | jq -r '.faults[] | [.host, .kind, .evidence] | @tsv'

Exit codes: 0 all guards work and report no fault; 4 one does not work, or reports a fault.
Requires neither quorum nor the API.")]
    Status,
    /// Explain what the guards see of each host: faults with evidence, faults that are not reported yet, who can confirm
    #[command(after_help = "\
Examples:
  hactl guard explain
  hactl guard explain cp1    only this host
  hactl guard explain -o json

Exit codes: as `guard status`, for all hosts. Requires neither quorum nor the API.")]
    Explain {
        /// Explain only this host [default: all that have a guard]
        #[arg(value_name = "HOST")]
        host: Option<HostName>,
    },
}

pub fn run(common: &Common, args: &GuardArgs) -> Exit {
    let reader = common.reader();
    let check = |desired: &Desired| match &args.verb {
        _ if desired.healing.mode == Mode::Off => Err(off()),
        Verb::Explain { host: Some(host) } => guarded(host, desired),
        Verb::Status | Verb::Explain { host: None } => Ok(()),
    };
    let asked = common.run_checked(check, common.sink(&reader), Needs::Hosts, async |session| {
        Ok((session.desired.cluster.clone(), workflow::guards(session).await))
    });
    let (cluster, guards) = match asked.and_then(|(cluster, guards)| Ok((cluster, guards.ok_or_else(off)?))) {
        Ok(found) => found,
        Err(verdict) => return ended(&reader, Err(verdict)),
    };
    reader.pause();
    let style = Style::stdout(common.verbose);
    match (&args.verb, common.json()) {
        (Verb::Status, true) => print_json(&report::guards_json(&cluster, &guards)),
        (Verb::Status, false) => print(&report::guards_text(&guards, &style)),
        (Verb::Explain { host }, true) => print_json(&report::explained_json(&cluster, &guards, host.as_ref())),
        (Verb::Explain { host }, false) => print(&report::explained_text(&guards, host.as_ref(), &style)),
    }
    Exit::of_checks(worst(&guards))
}

/// The worst of the checks. A host that does not answer counts here: nothing is known of its guard.
fn worst(guards: &Guards) -> Outcome {
    let checks = crate::observe::of_guards(guards);
    let worst = checks.iter().map(|check| check.outcome).max().unwrap_or(Outcome::Pass);
    if guards.working().count() < guards.guards.len() { worst.max(Outcome::Fail) } else { worst }
}

fn off() -> Verdict {
    let headline = "healing is off in this inventory, so the hosts have no guards".to_owned();
    Verdict { headline, ..Verdict::of(&FailureKind::Usage, None) }
        .with_hints(["write `healing: watch` into the inventory, then run `hactl up`"])
}

fn guarded(host: &HostName, desired: &Desired) -> Result<(), Verdict> {
    known("HOST", std::slice::from_ref(host), desired)?;
    let guarded: Vec<&HostName> =
        desired.hosts.iter().filter(|one| is_guarded(desired, one)).map(|one| &one.name).collect();
    if guarded.contains(&host) {
        return Ok(());
    }
    let headline = format!("{host} has no guard, because it runs no part of the control plane");
    let names: Vec<&str> = guarded.into_iter().map(HostName::as_str).collect();
    let hint = format!("the hosts with guards are {}", names.join(", "));
    Err(Verdict { headline, ..Verdict::of(&FailureKind::Usage, None) }.with_hints([&hint]))
}
