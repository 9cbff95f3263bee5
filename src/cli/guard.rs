//! `hactl guard`.

use super::common::{Common, Needs, Said, ended, known, number_with_unit};
use crate::model::check::Outcome;
use crate::model::desired::Desired;
use crate::model::guards::Guards;
use crate::model::healing::{Mode, is_guarded};
use crate::model::names::HostName;
use crate::model::plan::counted;
use crate::model::repair::RepairRecord;
use crate::protocol::GuardAsk;
use crate::reconcile::person;
use crate::report::harmless::{print, print_json};
use crate::report::{self, Exit, FailureKind, Style, Verdict};
use crate::workflow::{self, OfHosts};
use clap::{Args, Subcommand};
use serde_json::json;
use std::collections::BTreeMap;

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
    /// Let the guards repair nothing for a while; they still detect and report
    #[command(after_help = "\
Examples:
  hactl guard pause --for 4h --reason 'disk swap' --host cp2
  hactl guard pause --reason 'storage is being moved'    every host, until hactl guard resume

A hold is a file on each host. By hand, on a host: touch /var/lib/hactl/guard/hold.json
Exit codes: 0 every host is held; 4 some hosts did not answer, so their guards still repair.
Requires neither quorum nor the API, and works while another run has the lock.")]
    Pause {
        /// Only these hosts [default: all that have a guard]
        #[arg(long, value_name = "HOST", value_delimiter = ',')]
        host: Vec<HostName>,
        /// For how long, a number with m, h or d, up to 30d [default: until hactl guard resume]
        #[arg(long = "for", value_name = "DURATION", value_parser = lasting)]
        lasts: Option<u64>,
        /// Why: status shows it to others
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Let paused guards repair again
    #[command(after_help = "\
Examples:
  hactl guard resume
  hactl guard resume --host cp2

Exit codes: 0 done; 4 some hosts did not answer, so they are still held.")]
    Resume {
        /// Only these hosts [default: all that have a guard]
        #[arg(long, value_name = "HOST", value_delimiter = ',')]
        host: Vec<HostName>,
    },
    /// Let the guard of a host try again what it gave up
    #[command(after_help = "\
Examples:
  hactl guard retry cp3

First mend the cause: hactl guard explain cp3 shows what was tried.
Exit codes: 0 done; 4 the host did not answer.")]
    Retry {
        /// The host
        #[arg(value_name = "HOST")]
        host: HostName,
    },
    /// Show the repairs of all hosts
    #[command(after_help = "\
Examples:
  hactl guard history
  hactl guard history --since 24h
  hactl guard history -o json | jq -r '.repairs[] | [.host, .kind, .step, .outcome] | @tsv'

Each host keeps its last 200 repairs. Exit codes: 0 done; 4 some hosts did not answer.")]
    History {
        /// How far back, a number with m, h or d
        #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = lasting)]
        since: u64,
    },
}

/// Parses a number with m, h or d, up to thirty days, in seconds.
fn lasting(text: &str) -> Result<u64, String> {
    let units = [("m", 60), ("h", 3600), ("d", 86_400)];
    number_with_unit(text, &units, 2_592_000, ["write a number with m, h or d, such as 4h", "from 1m to 30d"])
}

pub fn run(common: &Common, args: &GuardArgs) -> Exit {
    match &args.verb {
        Verb::Status => show(common, None, false),
        Verb::Explain { host } => show(common, host.as_ref(), true),
        Verb::Pause { host, lasts, reason } => {
            let ask = GuardAsk::Pause { by: person(), reason: reason.clone(), lasts_s: *lasts };
            wish(common, host, &ask, &PAUSE)
        }
        Verb::Resume { host } => wish(common, host, &GuardAsk::Resume, &RESUME),
        Verb::Retry { host } => wish(common, std::slice::from_ref(host), &GuardAsk::Retry, &TRY),
        Verb::History { since } => history(common, *since),
    }
}

/// The words for a wish: what is done, and what that means where a host did not answer.
struct Words {
    done: &'static str,
    missing: &'static str,
}

const PAUSE: Words = Words { done: "repairs are paused on", missing: "its guard still repairs" };
const RESUME: Words = Words { done: "guards may repair again on", missing: "it is still held" };
const TRY: Words = Words { done: "earlier attempts no longer count on", missing: "they still count there" };

/// Only for inventories whose guards repair.
fn repairing(desired: &Desired) -> Result<(), Verdict> {
    match desired.healing.mode {
        Mode::Off => Err(off()),
        Mode::Watch => {
            let headline = "healing is watch in this inventory, so the guards repair nothing".to_owned();
            let hint = "write `healing: on` into the inventory, then run `hactl up`";
            Err(Verdict { headline, ..Verdict::of(&FailureKind::Usage, None) }.with_hints([hint]))
        }
        Mode::On => Ok(()),
    }
}

/// Brings a wish to some hosts, or to all that have a guard.
fn wish(common: &Common, hosts: &[HostName], ask: &GuardAsk, words: &Words) -> Exit {
    let reader = common.reader();
    let check = |desired: &Desired| {
        repairing(desired)?;
        hosts.iter().try_for_each(|host| guarded(host, desired))
    };
    let asked = common.run_checked(check, common.sink(&reader), Needs::Hosts, async |session| {
        Ok(workflow::wish(session, hosts, ask).await)
    });
    let said = asked.map(|answers| {
        let (done, missing) = parted(answers);
        let names: Vec<&str> = done.keys().map(HostName::as_str).collect();
        let object = json!({"hosts": done.keys().collect::<Vec<_>>(), "missing": missing});
        let headline = match names.as_slice() {
            [] => "no host answered".to_owned(),
            names => format!("{} {}", words.done, names.join(", ")),
        };
        let last = ending(headline, &missing, words.missing);
        Said { object, text: String::new(), last: Some(last) }
    });
    common.said(&reader, said)
}

type Missing = BTreeMap<HostName, String>;

/// The answers, and why the others are missing.
fn parted<T>(answers: OfHosts<T>) -> (BTreeMap<HostName, T>, Missing) {
    let (mut done, mut missing) = (BTreeMap::new(), Missing::new());
    for (host, answer) in answers {
        match answer {
            Ok(answer) => drop(done.insert(host, answer)),
            Err(unreachable) => drop(missing.insert(host, unreachable.why)),
        }
    }
    (done, missing)
}

/// How a run about several hosts ended.
fn ending(headline: String, missing: &Missing, means: &str) -> Verdict {
    if missing.is_empty() {
        return Verdict::ok(headline);
    }
    let causes = missing.iter().map(|(host, why)| format!("{host}: {why}; {means}")).collect();
    Verdict { exit: Exit::Degraded, code: "hosts-missing", causes, ..Verdict::ok(headline) }
}

fn history(common: &Common, since_s: u64) -> Exit {
    let reader = common.reader();
    let asked = common.run_checked(repairing, common.sink(&reader), Needs::Hosts, async |session| {
        Ok(workflow::repairs(session).await)
    });
    let said = asked.map(|answers| {
        let (found, missing) = parted(answers);
        let now = time::OffsetDateTime::now_utc();
        let back_s = i64::try_from(since_s).unwrap_or(i64::MAX);
        let from_ms = now.unix_timestamp().saturating_sub(back_s).saturating_mul(1000);
        let each = |(host, records): (HostName, Vec<_>)| records.into_iter().map(move |record| (host.clone(), record));
        let mut all: Vec<(HostName, RepairRecord)> = found.into_iter().flat_map(each).collect();
        all.retain(|(_, record)| record.begun_ms >= from_ms);
        all.sort_by_key(|(_, record)| record.begun_ms);
        let headline = if all.is_empty() { "no repair in this time".to_owned() } else { counted(all.len(), "repair") };
        let last = ending(headline, &missing, "its repairs are missing here");
        let text = report::history_text(&all, &Style::stdout(common.verbose));
        Said { object: report::history_json(&all), text, last: Some(last) }
    });
    common.said(&reader, said)
}

/// Shows the guards, or explains what they see and do.
fn show(common: &Common, host: Option<&HostName>, explained: bool) -> Exit {
    let reader = common.reader();
    let check = |desired: &Desired| match host {
        _ if desired.healing.mode == Mode::Off => Err(off()),
        Some(host) => guarded(host, desired),
        None => Ok(()),
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
    match (explained, common.json()) {
        (false, true) => print_json(&report::guards_json(&cluster, &guards)),
        (false, false) => print(&report::guards_text(&guards, &style)),
        (true, true) => print_json(&report::explained_json(&cluster, &guards, host)),
        (true, false) => print(&report::explained_text(&guards, host, &style)),
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
        .with_hints(["write `healing: watch` or `healing: on` into the inventory, then run `hactl up`"])
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
