//! What all verbs share: the common flags, the runtime, interrupts, and how an end becomes words and an exit code.

use super::event_log::EventLog;
use crate::inventory::{Loaded, Source};
use crate::model::desired::Desired;
use crate::model::event::{Event, Sink};
use crate::model::names::HostName;
use crate::model::secret::Secret;
use crate::observe::Wait;
use crate::report::harmless::{print_json, tell};
use crate::report::{self, ConnectKind, FailureKind, NoPassword, OutputKind, Reader, Style, Verdict};
use crate::statedir::StateDir;
use crate::transport::{AT_ONCE, Access, HostError};
use crate::workflow::{Failure, Places, Session};
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

/// What a verb cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: not even a host that answers.
    Nothing,
    /// The hosts.
    Hosts,
    /// The bundle of the wanted version, too.
    Bundle,
    /// The bundle, and those hosts that are in before others hold them up: the workflow admits the others.
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
    /// Agree to what is disruptive in advance
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Where this cluster's keys and journal are kept [default: .hactl/CLUSTER beside the inventory]
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The store of bundles [default: $XDG_CACHE_HOME/hactl/bundles]
    #[arg(long, global = true, value_name = "DIR", env = "HACTL_BUNDLES")]
    pub bundles: Option<PathBuf>,
    /// Record the keys of hosts that are not known yet; a changed key is refused all the same
    #[arg(long, global = true)]
    pub trust_first_use: bool,
    /// How long each phase of getting in to a host may take: connecting, key exchange, login, sudo
    #[arg(long, global = true, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub timeout: Duration,
    /// How many hosts are worked on at once
    #[arg(long, global = true, default_value_t = AT_ONCE, value_name = "N", value_parser = at_least_one)]
    pub concurrency: usize,
    /// Ask once for the password that sudo wants on the hosts
    #[arg(long, global = true)]
    pub ask_sudo_password: bool,
    /// Say more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Hosts that are powered off, as a person says.
    #[arg(skip)]
    pub powered_off: Vec<String>,
}

/// The hosts that may be changed.
#[derive(Debug, Args)]
pub struct Limit {
    /// Look at all hosts, and change these alone
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub limit: Vec<HostName>,
}

impl Limit {
    /// As the planner takes it.
    pub fn hosts(&self) -> Option<BTreeSet<HostName>> {
        (!self.limit.is_empty()).then(|| self.limit.iter().cloned().collect())
    }
}

/// Takes events and shows none: standard output belongs to somebody else, or to one object.
pub struct Quiet;

impl Sink for Quiet {
    fn emit(&self, _: Event) {}
}

/// The time as names of files have it: they sort by it.
pub fn stamp() -> String {
    let format = time::macros::format_description!("[year][month][day]T[hour][minute][second]Z");
    time::OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

/// The digits that a text begins with, and what follows them.
pub fn number_and_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A number with s, m or h, or seconds; up to an hour.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = number_and_unit(text);
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("write a number with s, m or h, such as 30s".to_owned()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    match seconds {
        Some(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err("from 1s to 1h".to_owned()),
    }
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

    /// Reads the inventory and tells its warnings.
    pub fn load(&self, sink: &dyn Sink) -> Result<Loaded, Verdict> {
        let source = Source::from(self.inventory.as_os_str());
        if let Source::Vagrant(dir) = &source {
            sink.emit(Event::Note { text: format!("asking Vagrant about its machines in {}", dir.display()) });
        }
        let loaded =
            crate::inventory::load(&source).map_err(|error| Verdict::of(&FailureKind::Inventory, Some(&error)))?;
        for warning in &loaded.warnings {
            sink.emit(Event::Warning { text: warning.to_string() });
        }
        Ok(loaded)
    }

    /// The inventory as it must be named again by the next command: not where it is the usual one.
    pub fn named(&self) -> Option<&Path> {
        let usual = self.inventory == Path::new("./hactl.yaml");
        let by_environment =
            std::env::var_os("HACTL_INVENTORY").is_some_and(|given| given == self.inventory.as_os_str());
        (!usual && !by_environment).then_some(self.inventory.as_path())
    }

    /// Where things of this cluster are kept.
    pub fn places(&self, loaded: &Loaded) -> Places {
        let own = || StateDir::default_dir(&loaded.base, &loaded.desired.cluster);
        Places { state: self.state.clone().unwrap_or_else(own), bundles: self.bundles() }
    }

    /// Prints how it ended, and gives the exit code; for verbs without a reader of events.
    pub fn end(&self, verdict: &Verdict) -> u8 {
        match self.output {
            Output::Json => print_json(&verdict.json()),
            Output::Text => tell(&verdict.text(&Style::stderr(self.verbose))),
        }
        verdict.exit
    }

    /// Connects, runs a workflow, closes. The first interrupt starts nothing new, the second drops everything.
    pub fn run<T, W>(&self, sink: Arc<dyn Sink>, needs: Needs, work: W) -> Result<T, Verdict>
    where
        W: AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    {
        self.run_on(&[], sink, needs, work)
    }

    /// [`Common::run`] for some hosts, which the inventory must know.
    pub fn run_on<T, W>(&self, limit: &[HostName], sink: Arc<dyn Sink>, needs: Needs, work: W) -> Result<T, Verdict>
    where
        W: AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    {
        self.run_checked(|desired| known("--limit", limit, desired), sink, needs, work)
    }

    /// [`Common::run_on`], and hosts that may leave are entered as well.
    pub fn run_leaving<T, W>(
        &self,
        (limit, prune): (&[HostName], &[HostName]),
        sink: Arc<dyn Sink>,
        needs: Needs,
        work: W,
    ) -> Result<T, Verdict>
    where
        W: AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    {
        let prepare = |desired: &mut Desired, places: &Places| {
            known("--limit", limit, desired)?;
            let leaving = crate::workflow::leaving(places, desired, prune);
            desired.leaving = leaving.map_err(|failure| failure_verdict(&failure))?;
            Ok(())
        };
        self.run_prepared(prepare, sink, needs, work)
    }

    /// [`Common::run`] after a look at the inventory, before any host is touched.
    pub fn run_checked<T, W>(
        &self,
        check: impl FnOnce(&Desired) -> Result<(), Verdict>,
        sink: Arc<dyn Sink>,
        needs: Needs,
        work: W,
    ) -> Result<T, Verdict>
    where
        W: AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    {
        self.run_prepared(|desired, _| check(desired), sink, needs, work)
    }

    fn run_prepared<T, W>(
        &self,
        prepare: impl FnOnce(&mut Desired, &Places) -> Result<(), Verdict>,
        sink: Arc<dyn Sink>,
        needs: Needs,
        work: W,
    ) -> Result<T, Verdict>
    where
        W: AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    {
        let mut loaded = self.load(&*sink)?;
        let places = self.places(&loaded);
        prepare(&mut loaded.desired, &places)?;
        if matches!(needs, Needs::Bundle | Needs::Most) {
            // Before any host is touched.
            let opened = crate::component::Bundle::open(&places.bundles, &loaded.desired.versions.kubernetes);
            opened.map_err(|error| failure_verdict(&Failure::Bundle(error)))?;
        }
        let diary = Arc::new(EventLog::new(sink, places.state.clone()));
        let sink: Arc<dyn Sink> = Arc::clone(&diary) as Arc<dyn Sink>;
        let (desired, attached, inventory) = (Arc::new(loaded.desired), loaded.attached, loaded.text);
        let sudo_password = self.sudo_password(&desired)?;
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
                let mut session =
                    Session::open((desired, attached, inventory), places, &access, Arc::clone(&sink), stop.clone())
                        .await?;
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
                // The hosts' side ends with its channels; a later run converges from wherever this one stopped.
                () = second_interrupt(&stop, &sink) => Err(Failure::Interrupted { done: 0, left: 0 }),
            };
            result.map_err(|failure| {
                let verdict = failure_verdict(&failure);
                if diary.worked() { verdict.after_work() } else { verdict }
            })
        })
    }
}

impl Common {
    /// The password for sudo, asked for when that was wanted and somebody uses sudo.
    fn sudo_password(&self, desired: &Desired) -> Result<Option<Arc<Secret<String>>>, Verdict> {
        let mut users: Vec<&str> = desired.hosts.iter().map(|h| h.ssh.user.as_str()).filter(|u| *u != "root").collect();
        users.sort_unstable();
        users.dedup();
        if !self.ask_sudo_password || users.is_empty() {
            return Ok(None);
        }
        match report::ask_password(&format!("Password of {} for sudo on the hosts:", users.join(", "))) {
            Ok(password) => Ok(Some(Arc::new(password))),
            Err(error) => {
                let mut verdict = Verdict::of(&FailureKind::Usage, Some(&error));
                verdict.hints = vec![match error {
                    NoPassword::NoTerminal => {
                        "for scripts, name a file with the password in the inventory: ssh: {sudo: {passwordFile: PATH}}"
                    }
                    _ => "run the same command again; no host was touched",
                }
                .to_owned()];
                Err(verdict)
            }
        }
    }
}

/// Refuses names that are no hosts of the inventory; `by` is how they were given.
pub fn known(by: &str, names: &[HostName], desired: &Desired) -> Result<(), Verdict> {
    let unknown: Vec<&str> = names.iter().filter(|n| desired.host(n).is_none()).map(HostName::as_str).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let mut verdict = Verdict::of(&FailureKind::Usage, None);
    verdict.headline = format!("{by} names {}, which the inventory does not", unknown.join(", "));
    let hosts: Vec<&str> = desired.hosts.iter().map(|h| h.name.as_str()).collect();
    verdict.hints = vec![format!("its hosts are {}", hosts.join(", "))];
    Err(verdict)
}

/// Refuses a file that a flag names and that is not there, before any host is asked for anything.
pub fn there(by: &str, path: Option<&Path>) -> Result<(), Verdict> {
    let Some(path) = path else { return Ok(()) };
    let Err(error) = std::fs::metadata(path) else { return Ok(()) };
    let mut verdict = Verdict::of(&FailureKind::Usage, None);
    verdict.headline = format!("{by} names {}, which cannot be read: {error}", path.display());
    verdict.hints = vec!["name a file that is there; relative paths begin where the command is run".to_owned()];
    Err(verdict)
}

/// Runs async work on a runtime of its own.
pub fn block_on<T>(work: impl Future<Output = Result<T, Verdict>>) -> Result<T, Verdict> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(work);
            // Tasks that still wait on a lost host must not hold up the end.
            runtime.shutdown_timeout(Duration::from_millis(200));
            result
        }
        Err(error) => Err(Verdict::of(&FailureKind::Other, Some(&error))),
    }
}

/// Returns at the second interrupt; the first only asks that nothing new be started.
async fn second_interrupt(stop: &CancellationToken, sink: &Arc<dyn Sink>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.cancel();
        let text = "interrupted: nothing new is started; what runs is finished first (again to drop it)".to_owned();
        sink.emit(Event::Warning { text });
        if tokio::signal::ctrl_c().await.is_ok() {
            return;
        }
    }
    // Without signals there is nothing to wait for: the work alone decides when it ends.
    std::future::pending::<()>().await;
}

/// Maps a workflow's failure to the one table of words and exit codes.
pub fn failure_verdict(failure: &Failure) -> Verdict {
    let of = |kind: &FailureKind| Verdict::of(kind, Some(failure));
    match failure {
        Failure::Refused(refusal) => Verdict::of(&FailureKind::Refused(refusal.clone()), None),
        Failure::Pki(crate::pki::PkiError::Brought { .. }) | Failure::Render(_) => of(&FailureKind::Inventory),
        Failure::NoState { .. } => {
            let mut verdict = of(&FailureKind::State);
            verdict.hints = vec![
                "if it lies elsewhere, name the place with --state DIR".to_owned(),
                "if it is lost: `hactl state pull --identity FILE`, with `--from BUNDLE` when no host has one any more"
                    .to_owned(),
            ];
            verdict
        }
        Failure::NotRenewable(why) => super::certs::verdict(why, of(&FailureKind::Usage)),
        Failure::StateDir(_) | Failure::Pki(_) => of(&FailureKind::State),
        Failure::Bundle(crate::component::BundleError::NoSuchVersion { wanted, .. }) => {
            let mut verdict = of(&FailureKind::Inventory);
            verdict.hints = vec![
                format!("download and pack it: `hactl bundle build --kubernetes {wanted}`"),
                "without a way out: `hactl bundle export` on a machine that has it, and `hactl bundle import` here"
                    .to_owned(),
            ];
            verdict
        }
        Failure::Bundle(_) => of(&FailureKind::Bundle),
        Failure::Manifests { problems } => {
            let mut verdict = Verdict::of(&FailureKind::Inventory, None);
            verdict.causes.extend(problems.iter().cloned());
            verdict.hints =
                vec!["rename or remove these objects: what hactl applies itself it keeps as it is".to_owned()];
            verdict
        }
        Failure::Host { host, error } => host_verdict(host, error),
        Failure::NoHost { hosts } => match hosts.as_slice() {
            [] => of(&FailureKind::Other),
            [(host, error), others @ ..] => {
                let mut verdict = host_verdict(host, error);
                for (host, error) in others {
                    verdict.causes.push(format!("{host}: {error}"));
                }
                verdict
            }
        },
        Failure::Steps { failed, done, host, what, why, put_back } => {
            let (host, what) = (host.clone(), what.clone());
            let kind = FailureKind::Step { host, what, failed: *failed, done: *done, put_back: *put_back };
            let mut verdict = Verdict::of(&kind, None);
            verdict.causes.push(why.clone());
            verdict
        }
        Failure::Interrupted { done, left } => {
            let mut verdict = of(&FailureKind::Interrupted);
            verdict.causes = vec![format!("{done} steps are done, {left} were not started")];
            verdict
        }
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
            let mut verdict = of(&FailureKind::Other);
            verdict.hints = vec!["make these hosts reachable and run the same command again".to_owned()];
            verdict
        }
        Failure::Support(error) => {
            let mut verdict = of(&FailureKind::Other);
            verdict.hints = match error {
                crate::support::SupportError::Exists(_) => {
                    vec!["name another file with --to FILE, or move this one away".to_owned()]
                }
                crate::support::SupportError::Write { .. } => {
                    vec!["make room there, or name another place with --to FILE".to_owned()]
                }
                crate::support::SupportError::Blind(_) => vec![],
            };
            verdict
        }
        Failure::Recovery(unusable) => super::snapshot::verdict(unusable, of(&FailureKind::Other)),
        Failure::NoMember => {
            let mut verdict = of(&FailureKind::Other);
            verdict.hints = vec!["hactl status".to_owned(), "hactl recover --dry-run".to_owned()];
            verdict
        }
        Failure::NotConnected { .. } => {
            let mut verdict = of(&FailureKind::Other);
            verdict.hints = vec!["name another host, or make this one reachable".to_owned()];
            verdict
        }
        Failure::Access(_) | Failure::Api(_) | Failure::Local { .. } | Failure::Odd(_) => of(&FailureKind::Other),
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
        HostError::NoSudo { .. } | HostError::SudoPassword { .. } => ConnectKind::Root,
        HostError::Lost { .. } | HostError::Silent { .. } => ConnectKind::Lost,
        HostError::Unreachable { .. } | HostError::TimedOut { .. } | HostError::JumpForbidsForwarding { .. } => {
            ConnectKind::Unreachable
        }
        _ => ConnectKind::Helper,
    };
    let mut verdict = Verdict::of(&FailureKind::Connect { host: host.clone(), kind }, Some(error));
    // The error knows the very file and user; the table knows the kind alone.
    if let Some(hint) = error.hint() {
        verdict.hints = vec![hint];
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patience_is_a_number_with_a_unit_and_seconds_without() {
        for (text, seconds) in [("10", 10), ("30s", 30), ("2m", 120), ("1h", 3600)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "0s", "2h", "10 s", "-1", "ten", "1d", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(at_least_one("0").is_err() && at_least_one("1001").is_err() && at_least_one("32") == Ok(32));
    }
}
