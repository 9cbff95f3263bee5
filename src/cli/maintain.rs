//! `hactl maintain`.

use super::common::{Common, Needs, Said, ended, known, number_with_unit};
use crate::controllers::{Ended, MaintenanceError};
use crate::kube::KubeError;
use crate::model::desired::Desired;
use crate::model::event::Sink;
use crate::model::maintenance::{DrainPreview, DrainRequest, Maintenance, Stage, State, Wanted};
use crate::model::names::HostName;
use crate::report::harmless::{self, print, print_json};
use crate::report::{self, Exit, FailureKind, MaintenanceKind, Style, Verdict};
use crate::workflow::{self, Finish};
use clap::{Args, Subcommand};
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

/// Between two looks of `watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct MaintainArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Cordon and drain a Node, and keep it cordoned until the maintenance is finished
    #[command(after_help = "\
Examples:
  hactl maintain start w3 --reason 'replace sdb'
  hactl maintain start w3 --dry-run               show which pods leave, wait and stay, and what would refuse; change nothing
  hactl maintain start w3 --force-after 30m       delete a pod whose eviction was refused for 30 minutes
  hactl maintain start w3 --cordon-only           no new pods; the others stay

Where guards run (healing: watch or on), they drain the Node, and the command shows how far they are: they go on if it is
interrupted. Elsewhere the command drains it, and the same command continues. Exit codes: 0 drained; 1 pods did not leave
in time; 3 refused: pods would be lost, or the control plane cannot spare the host; 6 another process acts on it; 7 no API
server answers.")]
    Start(Start),
    /// Show all maintenances, or those of one Node
    #[command(
        visible_alias = "list",
        after_help = "\
Examples:
  hactl maintain status
  hactl maintain status w3
  hactl maintain status -o json | jq -r '.maintenances[] | [.node, .state] | @tsv'

Exit codes: 0; 4 the eviction of a pod is refused, or a drain was given up; 7 no API server answers."
    )]
    Status {
        /// Show only this Node
        #[arg(value_name = "NODE")]
        node: Option<HostName>,
    },
    /// Show them again every 2 seconds, until interrupted
    #[command(after_help = "Examples:\n  hactl maintain watch\n  hactl maintain watch w3")]
    Watch {
        /// Show only this Node
        #[arg(value_name = "NODE")]
        node: Option<HostName>,
    },
    /// End a maintenance and restore its Node
    #[command(after_help = "\
Examples:
  hactl maintain finish w3
  hactl maintain finish w3 --stay-cordoned    no new pods yet

A Node that was cordoned before the maintenance stays cordoned. Works from any machine with the state of the cluster.")]
    Finish {
        /// The Node, or the name of its maintenance
        #[arg(value_name = "NODE|NAME")]
        which: HostName,
        /// Leave the Node cordoned
        #[arg(long)]
        stay_cordoned: bool,
    },
    /// Call a maintenance off, restore its Node, and delete its object
    #[command(after_help = "Examples:\n  hactl maintain cancel w3")]
    Cancel {
        /// The Node, or the name of its maintenance
        #[arg(value_name = "NODE|NAME")]
        which: HostName,
    },
}

#[derive(Debug, Args)]
struct Start {
    /// The Node: a host of the inventory
    #[arg(value_name = "NODE")]
    node: HostName,
    /// Why: status and kubectl show it to others
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// The name of the maintenance [default: that of the Node]
    #[arg(long, value_name = "NAME")]
    name: Option<HostName>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only cordon: no new pods come, and those that run stay
    #[arg(long)]
    cordon_only: bool,
    #[command(flatten)]
    drain: DrainFlags,
    /// Leave the Node cordoned when the maintenance is finished
    #[arg(long)]
    stay_cordoned: bool,
}

/// How pods leave.
#[derive(Debug, Args)]
struct DrainFlags {
    /// Evict also pods that no controller creates again
    #[arg(long)]
    evict_unmanaged: bool,
    /// Take a host also from a control plane that cannot spare any, such as one of a single host
    #[arg(long)]
    allow_outage: bool,
    /// Leave the drain to the guards of the cluster, and do not wait for it
    #[arg(long)]
    no_wait: bool,
    /// Delete a pod, with its own grace period, whose eviction was refused for so long, a number with m, h or d
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_week)]
    force_after: Option<Duration>,
    /// Evict also pods that have to complete, after so long, a number with m, h or d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_month)]
    wait_completed: Option<Duration>,
    /// Give the drain up, and restore the Node, when it has lasted for so long, a number with m, h or d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_month)]
    give_up_after: Option<Duration>,
}

/// A week, in minutes: the bound of the kind.
const WEEK_MIN: u64 = 10_080;
const MONTH_MIN: u64 = 43_200;

fn lasting(text: &str, most_min: u64, bounds: &str) -> Result<Duration, String> {
    let units = [("m", 1), ("h", 60), ("d", 1440)];
    let minutes = number_with_unit(text, &units, most_min, ["write a number with m, h or d, such as 30m", bounds])?;
    Ok(Duration::from_secs(minutes * 60))
}

fn up_to_a_week(text: &str) -> Result<Duration, String> {
    lasting(text, WEEK_MIN, "from 1m to 7d")
}

fn up_to_a_month(text: &str) -> Result<Duration, String> {
    lasting(text, MONTH_MIN, "from 1m to 30d")
}

pub fn run(common: &Common, args: &MaintainArgs) -> Exit {
    match &args.verb {
        Verb::Start(start) if start.dry_run => preview(common, start),
        Verb::Start(start) => begin(common, start),
        Verb::Status { node } => status(common, node.as_ref(), false),
        Verb::Watch { node } => status(common, node.as_ref(), true),
        Verb::Finish { which, stay_cordoned } => end(common, which, Finish::Complete(*stay_cordoned)),
        Verb::Cancel { which } => end(common, which, Finish::Cancel),
    }
}

impl Start {
    fn wanted(&self) -> Wanted {
        Wanted {
            node: self.node.clone(),
            stage: if self.cordon_only { Stage::Cordon } else { Stage::Drain },
            reason: self.reason.clone(),
            stays_cordoned: self.stay_cordoned,
            allow_outage: self.drain.allow_outage,
            drain: DrainRequest {
                evict_unmanaged: self.drain.evict_unmanaged,
                force_after: self.drain.force_after,
                wait_completed_for: self.drain.wait_completed,
                give_up_after: self.drain.give_up_after,
            },
        }
    }

    fn check(&self, desired: &Desired) -> Result<(), Verdict> {
        known("NODE", std::slice::from_ref(&self.node), desired)?;
        if self.drain.force_after.zip(self.drain.give_up_after).is_some_and(|(force, give_up)| force >= give_up) {
            let headline = "--force-after has to be shorter than --give-up-after".to_owned();
            return Err(Verdict { headline, ..Verdict::of(&FailureKind::Usage, None) });
        }
        Ok(())
    }
}

fn preview(common: &Common, start: &Start) -> Exit {
    let (reader, wanted) = (common.reader(), start.wanted());
    let check = |desired: &Desired| start.check(desired);
    let asked = common.run_checked(check, common.sink(&reader), Needs::Hosts, async |session| {
        workflow::would_maintain(session, &wanted).await
    });
    let said = asked.map(|preview| Said {
        object: report::preview_json(&wanted.node, &preview),
        text: report::preview_text(&wanted.node, &preview, &Style::stdout(common.verbose)),
        last: Some(Verdict::ok("nothing was changed")),
    });
    common.said(&reader, said)
}

fn begin(common: &Common, start: &Start) -> Exit {
    let (reader, choices, wanted) = (common.reader(), common.choices(), start.wanted());
    let name = start.name.as_ref().unwrap_or(&start.node).as_str();
    let sink: Arc<dyn Sink> = reader.clone();
    let shows = |preview: &DrainPreview| {
        if !common.json() {
            reader.pause();
            print(&report::preview_text(&wanted.node, preview, &Style::stdout(common.verbose)));
        }
    };
    let check = |desired: &Desired| start.check(desired);
    let result = common.run_checked(check, reader.clone(), Needs::Hosts, async |session| {
        workflow::maintain(session, (name, &wanted, !start.drain.no_wait), (&choices, &reader), &shows).await
    });
    let node = &wanted.node;
    let finish = if name == node.as_str() { name.to_owned() } else { format!("{name} (its Node is {node})") };
    let verdict = result.map(|ended| match ended {
        Ended::Accepted => {
            Verdict::ok(format!("the guards act on the maintenance of {node}. See: hactl maintain status {node}"))
        }
        Ended::Idle => Verdict::ok(format!("the maintenance of {node} is announced")),
        Ended::Cordoned => {
            Verdict::ok(format!("{node} is cordoned. When you are done: hactl maintain finish {finish}"))
        }
        Ended::Completed => {
            Verdict::ok(format!("the maintenance of {node} was ended meanwhile, and {node} is restored"))
        }
        Ended::Drained(notes) => {
            let headline = format!("{node} is drained. Work on it, then: hactl maintain finish {finish}");
            for note in notes {
                sink.note(note);
            }
            Verdict::ok(headline)
        }
    });
    ended(&reader, verdict)
}

fn end(common: &Common, which: &HostName, how: Finish) -> Exit {
    let (reader, choices) = (common.reader(), common.choices());
    let result = common.run(reader.clone(), Needs::Hosts, async |session| {
        workflow::finish(session, which, how, (&choices, &reader)).await
    });
    let verdict = result.map(|node| Verdict::ok(format!("the maintenance of {node} is over")));
    ended(&reader, verdict)
}

fn status(common: &Common, node: Option<&HostName>, watches: bool) -> Exit {
    let reader = common.reader();
    let shows = |one: &Maintenance| node.is_none_or(|node| *node == one.wanted.node);
    let result = common.run(common.sink(&reader), Needs::Hosts, async |session| {
        loop {
            let (mut all, unread) = workflow::maintenances(session).await?;
            all.retain(shows);
            reader.pause();
            if watches && !common.json() && std::io::stdout().is_terminal() {
                harmless::clear();
            }
            show(common, &all, &unread);
            let bad = all.iter().any(|one| matches!(one.state, Some(State::Blocked | State::Failed)));
            let exit = if bad { Exit::Degraded } else { Exit::Done };
            if !watches {
                return Ok(exit);
            }
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                () = session.stop.cancelled() => return Ok(exit),
            }
        }
    });
    result.unwrap_or_else(|verdict| ended(&reader, Err(verdict)))
}

fn show(common: &Common, all: &[Maintenance], unread: &[String]) {
    if common.json() {
        return print_json(&report::maintenances_json(all, unread));
    }
    let now_ms = crate::model::timestamp::millis(OffsetDateTime::now_utc()).unwrap_or(0);
    let text = report::maintenances_text(all, unread, now_ms, &Style::stdout(common.verbose));
    print(if text.is_empty() { "no Node is in maintenance\n" } else { &text });
}

/// Maps why a maintenance does not go on to its verdict.
pub(super) fn verdict(error: &MaintenanceError) -> Verdict {
    let kind = match error {
        MaintenanceError::NotServed => MaintenanceKind::NotServed,
        MaintenanceError::None(_) => MaintenanceKind::NoSuch,
        MaintenanceError::NoNode(_) => MaintenanceKind::NoNode,
        MaintenanceError::OtherNode { .. } => MaintenanceKind::OtherNode,
        MaintenanceError::Balancer(_) => MaintenanceKind::Balancer,
        MaintenanceError::NotSpared(_) => MaintenanceKind::NotSpared,
        MaintenanceError::Held { .. } => MaintenanceKind::Held,
        MaintenanceError::NotRestored(_) => MaintenanceKind::NotRestored,
        MaintenanceError::NoGuard => MaintenanceKind::NoGuard,
        MaintenanceError::WouldLose(_) => MaintenanceKind::WouldLose,
        MaintenanceError::GaveUp(_) => MaintenanceKind::GaveUp,
        MaintenanceError::Contested(_) => MaintenanceKind::Contested,
        MaintenanceError::Interrupted => return Verdict::of(&FailureKind::Interrupted, None),
        MaintenanceError::Api(KubeError::Unreachable { .. } | KubeError::TimedOut { .. }) => MaintenanceKind::Down,
        MaintenanceError::Api(_) => MaintenanceKind::Refused,
    };
    Verdict::of(&FailureKind::Maintenance(kind), Some(error))
}
