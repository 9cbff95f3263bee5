//! What all verbs share: the common flags, the runtime, interrupts, and how a failure becomes a verdict.

use super::event_log::EventLog;
use crate::component::{Bundle, BundleError};
use crate::inventory::{Loaded, Source};
use crate::model::desired::Desired;
use crate::model::event::{Event, Sink};
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::model::secret::Secret;
use crate::observe::Wait;
use crate::reconcile::Failure as Stop;
use crate::report::harmless::{print, print_json, tell};
use crate::report::{self, ConnectKind, Exit, FailureKind, NoPassword, OutputKind, Reader, Style, Verdict};
use crate::statedir::StateDir;
use crate::transport::{AT_ONCE, Access, HostError};
use crate::workflow::{Choices, Failure, Places, Session};
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// What a verb requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing, not even a reachable host.
    Nothing,
    /// The hosts.
    Hosts,
    /// The hosts, and the bundle of the wanted version.
    Bundle,
    /// The bundle, and the hosts that connect without delay; the workflow admits the stragglers.
    Most,
}

/// Flags of every verb.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// The inventory; `-` reads standard input, vagrant:DIR asks Vagrant about the machines in DIR
    #[arg(short, long, global = true, default_value = "./hactl.yaml", env = "HACTL_INVENTORY", value_name = "FILE")]
    pub inventory: PathBuf,
    /// How to show results
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Agree to disruptive steps in advance
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// The state directory, which holds this cluster's keys and journal [default: .hactl/CLUSTER beside the inventory]
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The store of bundles [default: $XDG_CACHE_HOME/hactl/bundles]
    #[arg(long, global = true, value_name = "DIR", env = "HACTL_BUNDLES")]
    pub bundles: Option<PathBuf>,
    /// Accept and record unknown SSH host keys; a changed key is still refused
    #[arg(long, global = true)]
    pub trust_first_use: bool,
    /// Timeout of each phase of logging in to a host: connection, key exchange, authentication, sudo
    #[arg(long, global = true, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub timeout: Duration,
    /// How many hosts hactl works on at once
    #[arg(long, global = true, default_value_t = AT_ONCE, value_name = "N", value_parser = at_least_one)]
    pub concurrency: usize,
    /// Ask once for the sudo password of the hosts
    #[arg(long, global = true)]
    pub ask_sudo_password: bool,
    /// Print more; -vv prints even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Hosts that the user confirmed to be powered off.
    #[arg(skip)]
    pub powered_off: Vec<String>,
}

/// The hosts that may be changed.
#[derive(Debug, Args)]
pub struct Limit {
    /// Change only these hosts; all others are still observed
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub limit: Vec<HostName>,
}

impl Limit {
    /// The limit in the form that the planner takes.
    pub fn hosts(&self) -> Option<BTreeSet<HostName>> {
        (!self.limit.is_empty()).then(|| self.limit.iter().cloned().collect())
    }
}

/// Discards events, because standard output carries one object or the output of another program.
pub struct Quiet;

impl Sink for Quiet {
    fn emit(&self, _: Event) {}
}

/// The current time for names of files, which then sort by time.
pub fn stamp() -> String {
    let format = time::macros::format_description!("[year][month][day]T[hour][minute][second]Z");
    time::OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

/// Parses a number with one of these units, from 1 to `most` of the smallest; `words` say which units there are, and
/// what the bounds are.
pub fn number_with_unit(text: &str, units: &[(&str, u64)], most: u64, words: [&str; 2]) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let (_, each) = units.iter().find(|(name, _)| *name == unit).ok_or(words[0])?;
    let all = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*each));
    all.filter(|all| (1..=most).contains(all)).ok_or_else(|| words[1].to_owned())
}

/// Parses a number with s, m or h (without a unit: seconds), up to one hour.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("", 1), ("s", 1), ("m", 60), ("h", 3600)];
    let seconds = number_with_unit(text, &units, 3600, ["write a number with s, m or h, such as 30s", "from 1s to 1h"]);
    seconds.map(Duration::from_secs)
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1000).contains(n)).ok_or_else(|| "from 1 to 1000".to_owned())
}

impl Common {
    /// The reader of this run's events.
    pub fn reader(&self) -> Arc<dyn Reader> {
        let kind = match self.output {
            Output::Json => OutputKind::Json,
            Output::Text => OutputKind::Auto,
        };
        report::reader(kind, self.verbose)
    }

    /// The store of bundles.
    pub fn bundles(&self) -> PathBuf {
        self.bundles.clone().unwrap_or_else(crate::component::default_store)
    }

    /// Reads the inventory and emits its warnings.
    pub fn load(&self, sink: &dyn Sink) -> Result<Loaded, Verdict> {
        let source = Source::from(self.inventory.as_os_str());
        if let Source::Vagrant(dir) = &source {
            sink.note(format!("asking Vagrant about its machines in {}", dir.display()));
        }
        let loaded =
            crate::inventory::load(&source).map_err(|error| Verdict::of(&FailureKind::Inventory, Some(&error)))?;
        for warning in &loaded.warnings {
            sink.warn(warning.to_string());
        }
        Ok(loaded)
    }

    /// The inventory as the next command must name it, or `None` if that command finds it by default.
    pub fn named(&self) -> Option<&Path> {
        let usual = self.inventory == Path::new("./hactl.yaml");
        let by_environment =
            std::env::var_os("HACTL_INVENTORY").is_some_and(|given| given == self.inventory.as_os_str());
        (!usual && !by_environment).then_some(self.inventory.as_path())
    }

    /// Where the state and the bundles of this cluster are stored.
    pub fn places(&self, loaded: &Loaded) -> Places {
        let own = || StateDir::default_dir(&loaded.base, &loaded.desired.cluster);
        Places { state: self.state.clone().unwrap_or_else(own), bundles: self.bundles() }
    }

    /// Prints the verdict and returns the exit code; for verbs without a reader of events.
    pub fn end(&self, verdict: &Verdict) -> Exit {
        match self.output {
            Output::Json => print_json(&verdict.json()),
            Output::Text => tell(&verdict.text(&Style::stderr(self.verbose))),
        }
        verdict.exit
    }

    /// Whether results are for programs.
    pub fn json(&self) -> bool {
        self.output == Output::Json
    }

    /// The sink of a verb with one result: a program reads its object, not the events.
    pub fn sink(&self, reader: &Arc<dyn Reader>) -> Arc<dyn Sink> {
        if self.json() { Arc::new(Quiet) } else { reader.clone() }
    }

    /// The choices of a verb that is not limited to some hosts.
    pub fn choices(&self) -> Choices {
        Choices { yes: self.yes, ..Choices::default() }
    }

    /// A plan as a result.
    pub fn plan(&self, plan: &Plan) -> Said {
        let text = report::plan_text(plan, &Style::stdout(self.verbose));
        Said { object: report::plan_json(plan), text, last: None }
    }

    /// Shows the result of a verb and returns the exit code.
    pub fn said(&self, reader: &Arc<dyn Reader>, result: Result<Said, Verdict>) -> Exit {
        let Said { object, text, last } = match result {
            Ok(said) => said,
            Err(verdict) => return ended(reader, Err(verdict)),
        };
        reader.pause();
        if self.json() {
            print_json(&object);
        } else {
            print(&text);
            if let Some(verdict) = &last {
                reader.end(verdict);
            }
        }
        last.map_or(Exit::Done, |verdict| verdict.exit)
    }

    /// Connects, runs a workflow and closes. After the first interrupt nothing new starts; the second aborts.
    pub fn run<T, W>(&self, sink: Arc<dyn Sink>, needs: Needs, work: W) -> Result<T, Verdict>
    where
        W: AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    {
        self.run_checked(|_| Ok(()), sink, needs, work)
    }

    /// [`Common::run`] limited to some hosts, which must be in the inventory; also connects to the hosts of `--prune`.
    pub fn run_leaving<T>(
        &self,
        (limit, prune): (&[HostName], &[HostName]),
        sink: Arc<dyn Sink>,
        needs: Needs,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    ) -> Result<T, Verdict> {
        let prepare = |desired: &mut Desired, places: &Places| {
            known("--limit", limit, desired)?;
            let leaving = crate::workflow::leaving(places, desired, prune);
            desired.leaving = leaving.map_err(|failure| failure_verdict(&failure))?;
            Ok(())
        };
        self.run_prepared(prepare, sink, needs, work)
    }

    /// [`Common::run`] after a check of the inventory, before any host is contacted.
    pub fn run_checked<T>(
        &self,
        check: impl FnOnce(&Desired) -> Result<(), Verdict>,
        sink: Arc<dyn Sink>,
        needs: Needs,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    ) -> Result<T, Verdict> {
        self.run_prepared(|desired, _| check(desired), sink, needs, work)
    }

    fn run_prepared<T>(
        &self,
        prepare: impl FnOnce(&mut Desired, &Places) -> Result<(), Verdict>,
        sink: Arc<dyn Sink>,
        needs: Needs,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    ) -> Result<T, Verdict> {
        let mut loaded = self.load(&*sink)?;
        let places = self.places(&loaded);
        prepare(&mut loaded.desired, &places)?;
        if matches!(needs, Needs::Bundle | Needs::Most) {
            // Before any host is contacted.
            let opened = Bundle::open(&places.bundles, &loaded.desired.versions.kubernetes);
            opened.map_err(|error| no_bundle(error, &loaded.desired))?;
        }
        let event_log = Arc::new(EventLog::new(sink, places.state.clone()));
        let sink: Arc<dyn Sink> = event_log.clone();
        let sudo_password = self.sudo_password(&loaded.desired)?;
        let access = Access::this_binary().map(|mut access| {
            access.trust_first_use = self.trust_first_use;
            access.connect_timeout = self.timeout;
            access.powered_off.clone_from(&self.powered_off);
            access.at_once = self.concurrency;
            access.sudo_password = sudo_password;
            access
        });
        let stop = CancellationToken::new();
        block_on(async {
            let access = access.map_err(|error| failure_verdict(&Failure::Access(Box::new(error))))?;
            let worked = async {
                let inventory = (Arc::new(loaded.desired), loaded.attached, loaded.text);
                let mut session = Session::open(inventory, places, &access, sink.clone(), stop.clone()).await?;
                if needs != Needs::Most {
                    session.admit(Wait::ForAll).await?;
                }
                if needs != Needs::Nothing {
                    session.anybody().await?;
                }
                let result = work(&mut session).await;
                session.close().await;
                result
            };
            let result = tokio::select! {
                result = worked => result,
                // The agents end with their channels; a later run continues from the state on the hosts.
                () = second_interrupt(&stop, &sink) => Err(Stop::Interrupted { done: 0, left: 0 }.into()),
            };
            result.map_err(|failure| {
                let verdict = failure_verdict(&failure);
                if event_log.worked() { verdict.after_work() } else { verdict }
            })
        })
    }

    /// Asks for the sudo password, if requested and if a host uses sudo.
    fn sudo_password(&self, desired: &Desired) -> Result<Option<Arc<Secret<String>>>, Verdict> {
        let mut users: Vec<&str> = desired.hosts.iter().map(|h| h.ssh.user.as_str()).filter(|u| *u != "root").collect();
        users.sort_unstable();
        users.dedup();
        if !self.ask_sudo_password || users.is_empty() {
            return Ok(None);
        }
        match report::ask_password(&format!("Password of {} for sudo on the hosts:", users.join(", "))) {
            Ok(password) => Ok(Some(Arc::new(password))),
            Err(error) => Err(Verdict::of(&FailureKind::Usage, Some(&error)).with_hints([match error {
                NoPassword::NoTerminal => {
                    "for scripts, name a file with the password in the inventory: ssh: {sudo: {passwordFile: PATH}}"
                }
                _ => "run the same command again; no host was contacted",
            }])),
        }
    }
}

/// Refuses names of hosts that are not in the inventory; `by` is the flag that named them.
pub fn known(by: &str, names: &[HostName], desired: &Desired) -> Result<(), Verdict> {
    let unknown: Vec<&str> = names.iter().filter(|n| desired.host(n).is_none()).map(HostName::as_str).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let hosts: Vec<&str> = desired.hosts.iter().map(|h| h.name.as_str()).collect();
    let hint = format!("its hosts are {}", hosts.join(", "));
    Err(misused(format!("{by}: {} not in the inventory", unknown.join(", ")), &hint))
}

/// Refuses an unreadable file that a flag names, before any host is contacted.
pub fn there(by: &str, path: Option<&Path>) -> Result<(), Verdict> {
    let Some(path) = path else { return Ok(()) };
    let Err(error) = std::fs::metadata(path) else { return Ok(()) };
    let hint = "name an existing file; a relative path starts in the current directory";
    Err(misused(format!("{by}: cannot read {}: {error}", path.display()), hint))
}

/// A bundle cannot be opened. That it is the one of the default may be a surprise.
fn no_bundle(error: BundleError, desired: &Desired) -> Verdict {
    let there = match &error {
        BundleError::NoSuchVersion { there, .. } if desired.versions.is_default => Some(there.clone()),
        _ => None,
    };
    let mut verdict = failure_verdict(&Failure::Bundle(error));
    if let Some(there) = there {
        let version = match there.as_slice() {
            [only] => format!("\"{only}\""),
            _ => "...".to_owned(),
        };
        let hint = format!(
            "the inventory names no version, and this hactl uses its default: if the cluster runs another version, \
             write that one: versions: {{kubernetes: {version}}}"
        );
        verdict.hints.insert(0, hint);
    }
    verdict
}

fn misused(headline: String, hint: &str) -> Verdict {
    Verdict { headline, ..Verdict::of(&FailureKind::Usage, None).with_hints([hint]) }
}

/// The result of a verb: an object for programs; for people a text and its last line, if it has one.
pub struct Said {
    pub object: serde_json::Value,
    pub text: String,
    pub last: Option<Verdict>,
}

/// Shows how a run ended, and returns the exit code.
pub fn ended(reader: &Arc<dyn Reader>, result: Result<Verdict, Verdict>) -> Exit {
    let (Ok(verdict) | Err(verdict)) = result;
    reader.end(&verdict);
    verdict.exit
}

/// Runs async work on its own runtime.
pub fn block_on<T>(work: impl Future<Output = Result<T, Verdict>>) -> Result<T, Verdict> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Verdict::of(&FailureKind::Other, Some(&error)))?;
    let result = runtime.block_on(work);
    // Tasks that still wait for a lost host must not delay the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

/// Returns at the second interrupt; after the first one nothing new is started.
async fn second_interrupt(stop: &CancellationToken, sink: &Arc<dyn Sink>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.cancel();
        sink.warn("interrupted: starting nothing new and finishing the running steps (interrupt again to abort)");
        if tokio::signal::ctrl_c().await.is_ok() {
            return;
        }
    }
    // Without signals, only the work decides when it ends.
    std::future::pending::<()>().await;
}

/// Maps the failure of a workflow to its verdict.
pub fn failure_verdict(failure: &Failure) -> Verdict {
    let of = |kind: &FailureKind| Verdict::of(kind, Some(failure));
    match failure {
        Failure::Engine(stop) => stop_verdict(stop),
        Failure::Pki(crate::pki::PkiError::Brought { .. }) => of(&FailureKind::Inventory),
        Failure::NoState { .. } => of(&FailureKind::State).with_hints([
            "if the state directory is elsewhere, name it with --state DIR",
            "if it is lost: `hactl state pull --identity FILE`; add `--from SNAPSHOT` if no host has a copy",
        ]),
        Failure::NotRenewable(why) => super::certs::verdict(why, of(&FailureKind::Usage)),
        Failure::StateDir(_) | Failure::Pki(_) => of(&FailureKind::State),
        Failure::Bundle(BundleError::NoSuchVersion { wanted, .. }) => of(&FailureKind::Inventory).with_hints([
            &format!("download and pack it: `hactl bundle build --kubernetes {wanted}`"),
            "without internet access: `hactl bundle export` on a machine that has it, and `hactl bundle import` here",
        ]),
        Failure::Bundle(_) => of(&FailureKind::Bundle),
        Failure::Unverified { checks } => {
            let mut verdict = of(&FailureKind::Other);
            for check in checks {
                let place = check.host.as_ref().map(|h| format!("{h}: ")).unwrap_or_default();
                verdict.causes.push(format!("{place}{}: {}", check.name, check.detail));
                verdict.hints.extend(check.hint.clone());
            }
            verdict.hints.dedup();
            verdict
        }
        Failure::StillUp { .. } => {
            of(&FailureKind::Other).with_hints(["make these hosts reachable and run the same command again"])
        }
        Failure::Support(error) => {
            let verdict = of(&FailureKind::Other);
            match error {
                crate::support::SupportError::Exists(_) => {
                    verdict.with_hints(["name another file with --to FILE, or move this one away"])
                }
                crate::support::SupportError::Write { .. } => {
                    verdict.with_hints(["free some space there, or name another file with --to FILE"])
                }
                crate::support::SupportError::Blind(_) => verdict.with_hints([]),
            }
        }
        Failure::Recovery(unusable) => super::snapshot::verdict(unusable, of(&FailureKind::Other)),
        Failure::Maintenance(error) => super::maintain::verdict(error),
        Failure::NoMember => of(&FailureKind::Other).with_hints(["hactl status", "hactl recover --dry-run"]),
        Failure::NotConnected { .. } => {
            of(&FailureKind::Other).with_hints(["name another host, or make this one reachable"])
        }
        Failure::Access(_) | Failure::Local { .. } | Failure::Odd(_) => of(&FailureKind::Other),
    }
}

/// Maps the failure of the engine to its verdict.
fn stop_verdict(stop: &Stop) -> Verdict {
    let of = |kind: &FailureKind| Verdict::of(kind, Some(stop));
    match stop {
        Stop::Refused(refusal) => Verdict::of(&FailureKind::Refused(refusal.clone()), None),
        Stop::Render(_) => of(&FailureKind::Inventory),
        Stop::Manifests { problems } => {
            let mut verdict = Verdict::of(&FailureKind::Inventory, None)
                .with_hints(["rename or remove these objects: hactl manages its own objects and would revert them"]);
            verdict.causes.extend_from_slice(problems);
            verdict
        }
        Stop::Host { host, error } => host_verdict(host, error),
        Stop::NoHost { hosts } => match hosts.as_slice() {
            [] => of(&FailureKind::Other),
            [(host, error), others @ ..] => {
                let mut verdict = host_verdict(host, error);
                verdict.causes.extend(others.iter().map(|(host, error)| format!("{host}: {error}")));
                verdict
            }
        },
        Stop::Steps { failed, done, host, what, why, rolled_back } => {
            let (host, what) = (host.clone(), what.clone());
            let kind = FailureKind::Step { host, what, failed: *failed, done: *done, rolled_back: *rolled_back };
            let mut verdict = Verdict::of(&kind, None);
            verdict.causes.push(why.clone());
            verdict
        }
        Stop::Interrupted { done, left } => {
            let causes = vec![format!("{done} steps are done, {left} were not started")];
            Verdict { causes, ..of(&FailureKind::Interrupted) }
        }
        Stop::Authority(_) | Stop::Api(_) => of(&FailureKind::Other),
    }
}

fn host_verdict(host: &HostName, error: &HostError) -> Verdict {
    let kind = match error.innermost() {
        HostError::UnknownKey { .. } => ConnectKind::UnknownKey,
        HostError::KeyChanged { .. } => ConnectKind::ChangedKey,
        HostError::KeyRevoked { .. } => ConnectKind::RevokedKey,
        HostError::AuthFailed { .. } | HostError::AgentUnavailable { .. } | HostError::IdentityUnreadable { .. } => {
            ConnectKind::Login
        }
        HostError::Expired { .. } => ConnectKind::Expired,
        HostError::NoSudo { .. } | HostError::SudoPassword { .. } => ConnectKind::Root,
        HostError::Lost { .. } | HostError::Silent { .. } => ConnectKind::Lost,
        HostError::Unreachable { .. } | HostError::TimedOut { .. } | HostError::JumpForbidsForwarding { .. } => {
            ConnectKind::Unreachable
        }
        _ => ConnectKind::Helper,
    };
    let verdict = Verdict::of(&FailureKind::Connect { host: host.clone(), kind }, Some(error));
    // The error names the file and the user; the table only knows the kind.
    match error.hint() {
        Some(hint) => verdict.with_hints([&hint]),
        None => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_number_with_a_unit_and_seconds_without() {
        for (text, seconds) in [("10", 10), ("30s", 30), ("2m", 120), ("1h", 3600)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "0s", "2h", "10 s", "-1", "ten", "1d", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(at_least_one("0").is_err() && at_least_one("1001").is_err() && at_least_one("32") == Ok(32));
    }
}
