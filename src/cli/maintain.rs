//! `hactl maintain`.

use super::common::{Common, Needs, Said, ended, known, number_with_unit};
use super::roll_out::{Many, RolloutRequest, pause};
use crate::controllers::{Ended, MaintenanceError};
use crate::kube::KubeError;
use crate::model::desired::Desired;
use crate::model::event::Sink;
use crate::model::gate::{Approval, Gate};
use crate::model::maintenance::{
    DrainPreview, DrainRequest, Maintenance, RebootRequest, Stage, State, Through, Wanted, Work,
};
use crate::model::names::HostName;
use crate::model::rollout::{Rollout, RolloutState};
use crate::model::window::{MOST as MOST_WINDOWS, Window};
use crate::report::harmless::{self, print, print_json};
use crate::report::{self, Exit, FailureKind, MaintenanceKind, Style, Verdict};
use crate::workflow::{self, Finish, Finished, Meant};
use clap::builder::{PossibleValuesParser, TypedValueParser};
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
  hactl maintain start w3 --window '0 1 * * 6 4h Europe/Berlin'

Where guards run (healing: watch or on), they drain the Node, and the command shows how far they are: they go on if it is
interrupted. Elsewhere the command drains it, and the same command continues. Exit codes: 0 drained; 1 pods did not leave
in time; 3 refused: pods would be lost, or the control plane cannot spare the host; 6 another process acts on it; 7 no API
server answers.")]
    Start(Start),
    /// Drain Nodes, reboot their hosts, and restore each Node when it is ready again
    #[command(after_help = "\
Examples:
  hactl maintain reboot w3 --reason 'new kernel'
  hactl maintain reboot w3 --no-wait              leave it to the guards, and do not wait
  hactl maintain reboot w1 w2 w3 --max-unavailable 2
  hactl maintain reboot --all --only-if-required  every Node whose package manager asks for it, workers first
  hactl maintain reboot --selector pool=gpu --dry-run
  hactl maintain reboot --all --window '@daily 3h' --approval

Where guards run, they drain each Node, and the node agent on its host reboots it. Elsewhere the command does both for one
Node, over SSH. Hosts of the control plane reboot one at a time, and only while all others are well. A host that is not
back in time stays cordoned until it is, or until the maintenance is ended. Exit codes: as `start`; 0 all Nodes are ready
again; 1 also: a host is not back in time, or too many Nodes failed.")]
    Reboot(Reboot),
    /// Show all maintenances and rollouts, or those of one Node or rollout
    #[command(
        visible_alias = "list",
        after_help = "\
Examples:
  hactl maintain status
  hactl maintain status w3
  hactl maintain status reboot-20261129-041500    a rollout and the maintenances of its Nodes
  hactl maintain status -o json | jq -r '.maintenances[] | [.node, .state] | @tsv'

Exit codes: 0; 4 the eviction of a pod is refused, a drain was given up, or a host is not back in time; 7 no API server answers."
    )]
    Status {
        /// Show only this Node, or this rollout
        #[arg(value_name = "NODE|ROLLOUT")]
        node: Option<HostName>,
    },
    /// Show them again every 2 seconds, until interrupted
    #[command(after_help = "Examples:\n  hactl maintain watch\n  hactl maintain watch w3")]
    Watch {
        /// Show only this Node, or this rollout
        #[arg(value_name = "NODE|ROLLOUT")]
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
    /// Call a maintenance or a rollout off, restore its Nodes, and delete its object
    #[command(after_help = "Examples:\n  hactl maintain cancel w3\n  hactl maintain cancel reboot-20261129-041500")]
    Cancel {
        /// The Node, or the name of its maintenance or rollout
        #[arg(value_name = "NODE|NAME")]
        which: HostName,
    },
    /// Let a maintenance or a rollout begin that waits for approval
    #[command(after_help = "\
Examples:
  hactl maintain approve w3
  hactl maintain approve reboot-20261129-041500

What is approved cannot be changed afterwards. With kubectl it takes the verb approve on the object:
  kubectl patch nmt w3 --type merge -p '{\"spec\":{\"approved\":true}}'")]
    Approve {
        /// The Node, or the name of its maintenance or rollout
        #[arg(value_name = "NODE|NAME")]
        which: HostName,
    },
    /// Let no other Node of a rollout begin; what is under way goes on
    #[command(after_help = "Examples:\n  hactl maintain pause reboot-20261129-041500")]
    Pause {
        /// The rollout
        #[arg(value_name = "NAME")]
        name: HostName,
    },
    /// Let a rollout go on; without a name, all maintenances after a recovery of etcd
    #[command(after_help = "Examples:\n  hactl maintain resume reboot-20261129-041500\n  hactl maintain resume")]
    Resume {
        /// The rollout
        #[arg(value_name = "NAME")]
        name: Option<HostName>,
    },
}

/// Why, and what it is called.
#[derive(Debug, Args)]
pub struct About {
    /// Why: status and kubectl show it to others
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(super) reason: String,
    /// The name of the object [default: that of the Node, or the time]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<HostName>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Leave the Node cordoned at the end
    #[arg(long)]
    pub(super) stay_cordoned: bool,
    /// Begin only in a window: a crontab schedule, how long it is open, and a time zone [default: UTC]; may be repeated
    #[arg(long = "window", value_name = "WINDOW")]
    windows: Vec<Window>,
    /// Begin only when somebody has approved it; =each: each Node of a rollout by itself
    #[arg(long, value_name = "once|each", num_args = 0..=1, require_equals = true, default_missing_value = "once",
        value_parser = ["once", "each"])]
    approval: Option<String>,
}

impl About {
    /// What has to be given before it begins; `each`: whether each Node of a rollout is approved by itself.
    pub(super) fn gate(&self, each: bool) -> Gate {
        let approval = if each || self.approval.is_none() { Approval::NotRequired } else { Approval::Required };
        Gate { windows: self.windows.clone(), approval }
    }

    pub(super) fn approves_each(&self) -> bool {
        self.approval.as_deref() == Some("each")
    }

    pub(super) fn check(&self) -> Result<(), Verdict> {
        if self.windows.len() <= MOST_WINDOWS {
            return Ok(());
        }
        let headline = format!("--window can be given {MOST_WINDOWS} times");
        Err(Verdict { headline, ..Verdict::of(&FailureKind::Usage, None) })
    }
}

#[derive(Debug, Args)]
struct Start {
    /// The Node: a host of the inventory
    #[arg(value_name = "NODE")]
    node: HostName,
    #[command(flatten)]
    about: About,
    /// Only cordon: no new pods come, and those that run stay
    #[arg(long)]
    cordon_only: bool,
    /// Its host is off and stays off until the end: delete its pods, whatever their budgets say, and detach its volumes
    #[arg(long, conflicts_with = "cordon_only")]
    powered_off: bool,
    #[command(flatten)]
    drain: DrainFlags,
}

#[derive(Debug, Args)]
struct Reboot {
    /// The Nodes: hosts of the inventory
    #[arg(value_name = "NODE")]
    nodes: Vec<HostName>,
    #[command(flatten)]
    about: About,
    #[command(flatten)]
    many: Many,
    #[command(flatten)]
    drain: DrainFlags,
    /// How long a host may take until its Node is ready again, a number with m or h
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = up_to_four_hours)]
    back_within: Duration,
    /// Let guards repair a host that is not back in time
    #[arg(long)]
    then_heal: bool,
}

/// How pods leave.
#[derive(Debug, Args)]
pub struct DrainFlags {
    /// Evict also pods that no controller creates again
    #[arg(long)]
    evict_unmanaged: bool,
    /// Which pods leave: daemonset: also those of DaemonSets; static: then also static pods, which the node agent holds
    #[arg(long, value_name = "WHICH", default_value = "default", value_parser = through())]
    through: Through,
    /// Take a host also from a control plane that cannot spare any, such as one of a single host
    #[arg(long)]
    pub(super) allow_outage: bool,
    /// Leave the drain to the guards of the cluster, and do not wait for it
    #[arg(long)]
    pub(super) no_wait: bool,
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

impl From<&DrainFlags> for DrainRequest {
    fn from(flags: &DrainFlags) -> Self {
        Self {
            through: flags.through,
            evict_unmanaged: flags.evict_unmanaged,
            force_after: flags.force_after,
            wait_completed_for: flags.wait_completed,
            give_up_after: flags.give_up_after,
        }
    }
}

/// As on the command line.
fn through() -> impl TypedValueParser<Value = Through> {
    PossibleValuesParser::new(["default", "daemonset", "static"]).map(|text| match text.as_str() {
        "static" => Through::Static,
        "daemonset" => Through::DaemonSet,
        _ => Through::Default,
    })
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

fn up_to_four_hours(text: &str) -> Result<Duration, String> {
    lasting(text, 240, "from 1m to 4h")
}

fn up_to_a_month(text: &str) -> Result<Duration, String> {
    lasting(text, MONTH_MIN, "from 1m to 30d")
}

pub fn run(common: &Common, args: &MaintainArgs) -> Exit {
    match &args.verb {
        Verb::Start(Start { node, about, cordon_only, powered_off, drain }) => {
            let stage = if *cordon_only { Stage::Cordon } else { Stage::Drain };
            Request::of((node, about), (drain, *powered_off), stage, Work::ByPerson).run(common)
        }
        Verb::Reboot(Reboot { nodes, about, many, drain, back_within, then_heal }) => {
            let work = Work::Reboot(RebootRequest { timeout: *back_within, then_heal: *then_heal });
            match nodes.first().filter(|_| !many.is_rollout(nodes) && !many.selects()) {
                Some(node) => Request::of((node, about), (drain, false), Stage::Drain, work).run(common),
                None => RolloutRequest { named: nodes, about, many, drain, work }.run(common),
            }
        }
        Verb::Approve { which } => approve(common, which),
        Verb::Pause { name } => pause(common, name, true),
        Verb::Resume { name: Some(name) } => pause(common, name, false),
        Verb::Resume { name: None } => resume(common),
        Verb::Status { node } => status(common, node.as_ref(), false),
        Verb::Watch { node } => status(common, node.as_ref(), true),
        Verb::Finish { which, stay_cordoned } => end(common, which, Finish::Complete(*stay_cordoned)),
        Verb::Cancel { which } => end(common, which, Finish::Cancel),
    }
}

/// What a person asks for.
struct Request<'a> {
    about: &'a About,
    wanted: Wanted,
    waits: bool,
}

impl<'a> Request<'a> {
    fn of(
        (node, about): (&HostName, &'a About),
        (drain, powered_off): (&DrainFlags, bool),
        stage: Stage,
        work: Work,
    ) -> Self {
        let wanted = Wanted {
            node: node.clone(),
            stage,
            reason: about.reason.clone(),
            work,
            stays_cordoned: about.stay_cordoned,
            allow_outage: drain.allow_outage,
            powered_off,
            drain: DrainRequest::from(drain),
            gate: about.gate(false),
        };
        Self { about, wanted, waits: !drain.no_wait }
    }

    fn check(&self, desired: &Desired) -> Result<(), Verdict> {
        known("NODE", std::slice::from_ref(&self.wanted.node), desired)?;
        self.about.check()?;
        let drain = &self.wanted.drain;
        if drain.force_after.zip(drain.give_up_after).is_some_and(|(force, give_up)| force >= give_up) {
            let headline = "--force-after has to be shorter than --give-up-after".to_owned();
            return Err(Verdict { headline, ..Verdict::of(&FailureKind::Usage, None) });
        }
        if drain.through == Through::Static && self.wanted.work != Work::ByPerson {
            let headline =
                "a host that reboots stops its static pods itself, so that --through static is of no use".to_owned();
            return Err(Verdict { headline, ..Verdict::of(&FailureKind::Usage, None) });
        }
        Ok(())
    }

    fn name(&self) -> &str {
        self.about.name.as_ref().unwrap_or(&self.wanted.node).as_str()
    }

    fn run(&self, common: &Common) -> Exit {
        if self.about.dry_run { preview(common, self) } else { begin(common, self) }
    }
}

fn preview(common: &Common, request: &Request<'_>) -> Exit {
    let (reader, wanted) = (common.reader(), &request.wanted);
    let check = |desired: &Desired| request.check(desired);
    let asked = common.run_checked(check, common.sink(&reader), Needs::Hosts, async |session| {
        workflow::would_maintain(session, (request.name(), wanted)).await
    });
    let said = asked.map(|preview| Said {
        object: report::preview_json(&wanted.node, &preview),
        text: report::preview_text(&wanted.node, &preview, &Style::stdout(common.verbose)),
        last: Some(Verdict::ok("nothing was changed")),
    });
    common.said(&reader, said)
}

fn begin(common: &Common, request: &Request<'_>) -> Exit {
    let (reader, choices, wanted) = (common.reader(), common.choices(), &request.wanted);
    let name = request.name();
    let sink: Arc<dyn Sink> = reader.clone();
    let shows = |preview: &DrainPreview| {
        if !common.json() {
            reader.pause();
            print(&report::preview_text(&wanted.node, preview, &Style::stdout(common.verbose)));
        }
    };
    let check = |desired: &Desired| request.check(desired);
    let result = common.run_checked(check, reader.clone(), Needs::Hosts, async |session| {
        workflow::maintain(session, (name, wanted, request.waits), (&choices, &reader), &shows).await
    });
    let node = &wanted.node;
    let finish = if name == node.as_str() { name.to_owned() } else { format!("{name} (its Node is {node})") };
    let verdict = result.and_then(|ended| match ended {
        Ended::Completed if wanted.work != Work::ByPerson => {
            Err(verdict(&MaintenanceError::CalledOff(name.to_owned())))
        }
        other => Ok(other),
    });
    let verdict = verdict.map(|ended| match ended {
        Ended::Accepted => {
            Verdict::ok(format!("the guards act on the maintenance of {node}. See: hactl maintain status {node}"))
        }
        Ended::Later(why) => {
            Verdict::ok(format!("the maintenance of {node} waits: {why}. See: hactl maintain status {node}"))
        }
        Ended::Idle => Verdict::ok(format!("the maintenance of {node} is announced")),
        Ended::Cordoned => {
            Verdict::ok(format!("{node} is cordoned. When you are done: hactl maintain finish {finish}"))
        }
        Ended::Rebooted if wanted.stays_cordoned => {
            Verdict::ok(format!("{node} has rebooted and is ready, and stays cordoned"))
        }
        Ended::Rebooted => Verdict::ok(format!("{node} has rebooted, and is ready and restored")),
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
    let verdict = result.map(|finished| match finished {
        Finished::Now(Meant::Node(node)) => Verdict::ok(format!("the maintenance of {node} is over")),
        Finished::Now(Meant::Rollout(name)) => {
            Verdict::ok(format!("the rollout {name} is called off, and its Nodes are restored"))
        }
        Finished::AfterResume(name) => {
            Verdict::ok(format!("{name} ends, and its Nodes are restored, after hactl maintain resume"))
        }
    });
    ended(&reader, verdict)
}

fn resume(common: &Common) -> Exit {
    let reader = common.reader();
    let result = common.run(reader.clone(), Needs::Hosts, async |session| workflow::resume_maintenances(session).await);
    let verdict = result.map(|waited| {
        Verdict::ok(if waited { "the guards act on maintenances again" } else { "maintenances wait for nothing" })
    });
    ended(&reader, verdict)
}

fn approve(common: &Common, which: &HostName) -> Exit {
    let reader = common.reader();
    let result = common.run(reader.clone(), Needs::Hosts, async |session| workflow::approve(session, which).await);
    let verdict = result.map(|meant| match meant {
        Meant::Node(node) => Verdict::ok(format!("the maintenance of {node} is approved")),
        Meant::Rollout(name) => Verdict::ok(format!("the rollout {name} is approved")),
    });
    ended(&reader, verdict)
}

fn status(common: &Common, node: Option<&HostName>, watches: bool) -> Exit {
    let reader = common.reader();
    let shows = |one: &Maintenance| {
        node.is_none_or(|node| *node == one.wanted.node || one.rollout.as_deref() == Some(node.as_str()))
    };
    let result = common.run(common.sink(&reader), Needs::Hosts, async |session| {
        loop {
            let (mut rollouts, (mut all, unread)) = workflow::maintenances(session).await?;
            all.retain(shows);
            rollouts.retain(|one| node.is_none_or(|node| node.as_str() == one.name));
            reader.pause();
            if watches && !common.json() && std::io::stdout().is_terminal() {
                harmless::clear();
            }
            show(common, (&rollouts, &all), &unread);
            let stopped = rollouts.iter().any(|one| one.state == Some(RolloutState::Stopped));
            let bad = stopped
                || all.iter().any(|one| matches!(one.state, Some(State::Blocked | State::Failed | State::Overdue)));
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

fn show(common: &Common, (rollouts, all): (&[Rollout], &[Maintenance]), unread: &[String]) {
    if common.json() {
        return print_json(&report::maintenances_json(rollouts, all, unread));
    }
    let now_ms = crate::model::timestamp::millis(OffsetDateTime::now_utc()).unwrap_or(0);
    let text = report::maintenances_text((rollouts, all), unread, now_ms, &Style::stdout(common.verbose));
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
        MaintenanceError::NotReady(_) => MaintenanceKind::NotReady,
        MaintenanceError::NotOff(_) => MaintenanceKind::NotOff,
        MaintenanceError::NoNodeAgent => MaintenanceKind::NoNodeAgent,
        MaintenanceError::StaticPodsHeld(_) => MaintenanceKind::StaticPodsHeld,
        MaintenanceError::WouldLose(_) => MaintenanceKind::WouldLose,
        MaintenanceError::GaveUp(_) => MaintenanceKind::GaveUp,
        MaintenanceError::Contested(_) => MaintenanceKind::Contested,
        MaintenanceError::NoneSelected => MaintenanceKind::NoneSelected,
        MaintenanceError::NoRollout(_) => MaintenanceKind::NoRollout,
        MaintenanceError::NotGated(_) => MaintenanceKind::NotGated,
        MaintenanceError::Recovered => MaintenanceKind::Recovered,
        MaintenanceError::Several { .. } => MaintenanceKind::Several,
        MaintenanceError::ApprovesEach(_) => MaintenanceKind::ApprovesEach,
        MaintenanceError::RolloutExists(_) => MaintenanceKind::RolloutExists,
        MaintenanceError::IsRollout(_) => MaintenanceKind::IsRollout,
        MaintenanceError::Stopped { .. } => MaintenanceKind::Stopped,
        MaintenanceError::CalledOff(_) => MaintenanceKind::CalledOff,
        MaintenanceError::OtherWork { .. } => MaintenanceKind::OtherWork,
        MaintenanceError::OfRollout { .. } => MaintenanceKind::OfRollout,
        MaintenanceError::Interrupted => return Verdict::of(&FailureKind::Interrupted, None),
        MaintenanceError::Api(KubeError::Unreachable { .. } | KubeError::TimedOut { .. }) => MaintenanceKind::Down,
        MaintenanceError::Api(_) => MaintenanceKind::Refused,
    };
    Verdict::of(&FailureKind::Maintenance(kind), Some(error))
}
