//! systemd units: their state, running them with their current files, stopping them, and their logs.
//!
//! In: unit names. Out: [`UnitFact`]s, or a fault that carries the last lines of the unit's journal.

use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{must, run};
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, bad, failed, fault, tail, telling};
use crate::model::facts::UnitFact;
use crate::model::names::UnitName;
use crate::model::plan::HowToRun;
use crate::model::repair::Runs;
use crate::model::units::OLDEST_SYSTEMD;
use crate::protocol::{OpError, OpErrorKind};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long systemd may take to answer; on an overloaded host it takes many seconds.
const ANSWER: Duration = Duration::from_secs(60);
/// How long systemd may take to resume the processes of a unit.
const RESUME: Duration = Duration::from_secs(10);
/// How long a unit may take to become active, or to stop.
const TIMEOUT: Duration = Duration::from_secs(110);
/// A unit that has ended so often after its start will not come up.
const ENDS: u32 = 4;
const POLL: Duration = Duration::from_millis(50);
/// The time to stop for a program that should stop at once.
const GRACE: Duration = Duration::from_millis(300);
/// The directory of the administrator's units, and ours.
const ADMINISTRATORS: &str = "/etc/systemd/system";
/// The message if the precondition of a unit prevented its start. Only etcd has one.
const SKIPPED: &str = "was not started: its data is older than a recovery that the cluster made without it; `hactl \
                       up` moves the data aside and adds this host again";
/// The exit code of a precondition that does not hold.
const SAYS_NO: u32 = 1;
/// The message if the precondition could not be run, because its user or its program is missing.
const NOT_CHECKED: &str = "was not started: systemd could not run its precondition";
/// The properties that are read of a unit.
const PROPERTIES: &str = "--property=Id,LoadState,FragmentPath,NeedDaemonReload,DropInPaths,Type,Result,ActiveState,UnitFileState,Job,MainPID,NRestarts,ExecCondition,ExecMainStartTimestamp,ActiveEnterTimestamp,InactiveEnterTimestamp";

/// Whether it starts at boot.
const FILE_STATE: &str = "UnitFileState";

/// A unit as systemd shows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown(BTreeMap<String, String>);

impl Shown {
    fn get(&self, property: &str) -> &str {
        self.0.get(property).map_or("", String::as_str)
    }
    pub(crate) fn active(&self) -> &str {
        self.get("ActiveState")
    }
    /// Its main process, while it runs.
    pub(crate) fn main_process(&self) -> Option<u32> {
        self.get("MainPID").parse().ok().filter(|pid| *pid > 0)
    }
    /// Whether it can be stopped.
    fn up(&self) -> bool {
        matches!(self.active(), "active" | "activating" | "reloading" | "deactivating")
    }
    /// Whether it starts at the next boot because it was enabled.
    fn enabled(&self) -> bool {
        matches!(self.get(FILE_STATE), "enabled" | "enabled-runtime")
    }
    /// Whether it runs, or is going to run after the next boot.
    pub(crate) fn is_in_use(&self) -> bool {
        self.up() || self.enabled()
    }
    /// Its unit file.
    pub(crate) fn file(&self) -> &str {
        self.get("FragmentPath")
    }
    /// Whether systemd has a file for it.
    pub(crate) fn known(&self) -> bool {
        self.get("LoadState") != "not-found"
    }
    /// Whether systemd has yet to start or stop it: it does so when it has nothing else to do.
    pub(crate) fn is_queued(&self) -> bool {
        !self.get("Job").is_empty()
    }
    /// How it runs; a signal may have suspended its processes, which systemd does not know.
    pub(crate) fn runs(&self) -> Runs {
        let enabled = self.enabled() || self.get(FILE_STATE) == "static";
        match self.active() {
            _ if !self.known() => Runs::Absent,
            "active" | "reloading" => Runs::Since(self.started_ms()),
            "activating" | "deactivating" => Runs::Changing,
            _ if self.is_queued() => Runs::Changing,
            _ if !enabled => Runs::Disabled,
            "inactive" if self.skipped() => Runs::Fenced,
            "inactive" if self.get("Result") == "success" => {
                Runs::Stopped(when::parse_systemd(self.get("InactiveEnterTimestamp")).unwrap_or(0))
            }
            _ => Runs::Failed,
        }
    }
    /// Whether systemd has loaded another text than the one on the disk.
    fn stale(&self, unit: &UnitName) -> bool {
        // NeedDaemonReload does not detect a file of the administrator that now overrides that of a package.
        let ours = Path::new(ADMINISTRATORS).join(unit.as_str());
        self.get("LoadState") != "loaded"
            || self.get("NeedDaemonReload") != "no"
            || (ours.exists() && Path::new(self.get("FragmentPath")) != ours)
            || drop_ins(unit).iter().any(|path| !self.get("DropInPaths").split(' ').any(|known| known == path))
    }
    /// Whether its own precondition did not hold, which is neither a failure nor an exit.
    fn skipped(&self) -> bool {
        self.active() == "inactive" && self.get("Result") == "exec-condition"
    }
    /// Whether its precondition was checked, and does not hold, of a unit that is to run.
    pub(crate) fn is_fenced(&self) -> bool {
        self.enabled() && self.skipped() && self.skipped_for() == SKIPPED
    }
    /// The reason why a skipped unit did not start: its precondition did not hold, or could not be run.
    fn skipped_for(&self) -> &'static str {
        let code = self.get("ExecCondition").rsplit_once("status=").map(|(_, code)| code);
        let code = code.and_then(|code| code.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok());
        if code.is_none_or(|code| code == SAYS_NO) { SKIPPED } else { NOT_CHECKED }
    }
    /// How often systemd restarted it automatically since it was started.
    pub(crate) fn restarts(&self) -> u32 {
        self.get("NRestarts").parse().unwrap_or(0)
    }
    fn started_ms(&self) -> i64 {
        let since = if self.main_process().is_some() {
            "ExecMainStartTimestamp"
        } else if self.active() == "active" {
            // A timer, or a program that completed its work.
            "ActiveEnterTimestamp"
        } else {
            return 0;
        };
        when::parse_systemd(self.get(since)).unwrap_or(0)
    }
}

/// Our drop-ins of a unit.
fn drop_ins(unit: &UnitName) -> Vec<String> {
    // An unreadable directory counts as missing.
    let Ok(entries) = fs::read_dir(format!("{ADMINISTRATORS}/{unit}.d")) else { return Vec::new() };
    let paths = entries.flatten().map(|e| e.path().display().to_string());
    paths.filter(|path| path.ends_with(".conf")).collect()
}

/// The unit of a drop-in, if the file is one.
pub(crate) fn changed_by(path: &str) -> Option<UnitName> {
    let (folder, file) = path.strip_prefix(ADMINISTRATORS)?.strip_prefix('/')?.split_once('/')?;
    let unit = folder.strip_suffix(".d").filter(|_| file.ends_with(".conf") && !file.contains('/'))?;
    unit.parse().ok()
}

/// Makes systemd reload the drop-ins of units that run: nothing restarts, and they take effect at the next automatic
/// start. A unit that does not run is reloaded when it is started.
pub(crate) async fn read_again(host: &Host, units: &[UnitName]) -> Outcome<()> {
    if units.is_empty() || !host.root.is_host() {
        return Ok(());
    }
    let shown = show(units).await?;
    let due = |(unit, shown): (&UnitName, &Shown)| {
        matches!(shown.active(), "active" | "activating" | "reloading") && shown.stale(unit)
    };
    if units.iter().zip(&shown).any(due) {
        must(&["systemctl", "daemon-reload"], TIMEOUT).await?;
    }
    Ok(())
}

/// Makes systemd forget units whose own files were removed: a unit without a file must not be started from memory.
pub(crate) async fn forget(host: &Host, removed: &[String]) -> Outcome<()> {
    let ours = |path: &String| path.strip_prefix(ADMINISTRATORS).is_some_and(|rest| rest.starts_with('/'));
    if host.root.is_host() && removed.iter().any(ours) {
        must(&["systemctl", "daemon-reload"], TIMEOUT).await?;
    }
    Ok(())
}

/// Removes the drop-in directory of a unit with the last of our files; with files of others it stays.
pub(crate) fn folder_with_the_last(root: &Root, removed: &Path) {
    let folder = removed.parent().filter(|folder| folder.extension().is_some_and(|end| end == "d"));
    if let Some(folder) = folder.filter(|folder| folder.starts_with(root.own(ADMINISTRATORS))) {
        let _ = fs::remove_dir(folder);
    }
}

/// Asks systemd about several units at once.
pub(crate) async fn show(units: &[UnitName]) -> Outcome<Vec<Shown>> {
    if units.is_empty() {
        return Ok(Vec::new());
    }
    // Whole seconds would not show whether a unit started before or after its file was written.
    let mut argv = vec!["systemctl", "show", "--no-pager", "--timestamp=us+utc", PROPERTIES, "--"];
    argv.extend(units.iter().map(UnitName::as_str));
    let shown = parse(&must(&argv, ANSWER).await?);
    if shown.len() == units.len() {
        Ok(shown)
    } else {
        Err(failed(format!("systemctl described {} units when asked for {}", shown.len(), units.len())))
    }
}

fn parse(text: &str) -> Vec<Shown> {
    text.split("\n\n")
        .map(|block| {
            block.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
        })
        .filter(|block: &BTreeMap<_, _>| !block.is_empty())
        .map(Shown)
        .collect()
}

pub(crate) async fn show_one(unit: &UnitName) -> Outcome<Shown> {
    Ok(show(std::slice::from_ref(unit)).await?.pop().unwrap_or_default())
}

/// The same, with the enablement on the disk: for a loaded unit systemd shows the state when it read all files, and
/// with that a unit could be left disabled for the next boot.
async fn with_files(units: &[UnitName]) -> Outcome<Vec<Shown>> {
    let mut all = show(units).await?;
    let mut filed: Vec<&mut Shown> = all.iter_mut().filter(|shown| !shown.get(FILE_STATE).is_empty()).collect();
    if filed.is_empty() {
        return Ok(all);
    }
    let ids: Vec<String> = filed.iter().map(|shown| shown.get("Id").to_owned()).collect();
    let mut states = file_states(&ids).await?;
    if states.len() != filed.len() {
        // Before systemd 253 the command ends at the first unit whose file was removed. Then each is queried alone;
        // for that one systemd's memory counts.
        states.clear();
        for (id, shown) in ids.iter().zip(&filed) {
            let state = file_states(std::slice::from_ref(id)).await?.pop();
            states.push(state.unwrap_or_else(|| shown.get(FILE_STATE).to_owned()));
        }
    }
    for (shown, state) in filed.iter_mut().zip(states) {
        shown.0.insert(FILE_STATE.to_owned(), state);
    }
    Ok(all)
}

/// A line for each unit. The command fails if none is enabled, which is an answer, too.
async fn file_states(ids: &[String]) -> Outcome<Vec<String>> {
    let mut argv = vec!["systemctl", "is-enabled", "--"];
    argv.extend(ids.iter().map(String::as_str));
    Ok(run(&argv, ANSWER).await?.out.lines().map(|line| line.trim().to_owned()).collect())
}

/// The observed state of units; and the version of systemd instead, if it is too old. On a bare host that must be asked
/// first: an old one shows units that it does not have without a fault.
pub(crate) async fn facts(
    root: &Root,
    units: &[UnitName],
    is_bare: bool,
) -> Outcome<(BTreeMap<UnitName, UnitFact>, Option<u32>)> {
    if is_bare && let Some(old) = too_old().await {
        return Ok((BTreeMap::new(), Some(old)));
    }
    let shown = match with_files(units).await {
        Ok(shown) => shown,
        Err(fault) => return too_old().await.map(|old| (BTreeMap::new(), Some(old))).ok_or(fault),
    };
    let fact = |(unit, shown): (&UnitName, Shown)| {
        let reloaded = reloaded_ms(root, unit);
        let fact = UnitFact {
            active: shown.active().to_owned(),
            enabled: matches!(shown.get(FILE_STATE), "enabled" | "enabled-runtime" | "static" | "alias"),
            started_ms: shown.started_ms(),
            reloaded_ms: reloaded.unwrap_or(0),
        };
        (unit.clone(), fact)
    };
    Ok((units.iter().zip(shown).map(fact).collect(), None))
}

/// The version of systemd, if it is too old.
async fn too_old() -> Option<u32> {
    version(&must(&["systemctl", "--version"], ANSWER).await.ok()?).filter(|version| *version < OLDEST_SYSTEMD)
}

/// The version of systemd, as `systemctl --version` shows it.
fn version(text: &str) -> Option<u32> {
    text.strip_prefix("systemd ")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The file with the time of the last reload; systemd records none, and a reboot, which deletes it, restarts the
/// unit.
fn reload_stamp(root: &Root, unit: &UnitName) -> PathBuf {
    root.own("/run/hactl/reloaded").join(unit.as_str())
}

/// When it was last reloaded, milliseconds since 1970.
pub(crate) fn reloaded_ms(root: &Root, unit: &UnitName) -> Option<i64> {
    fs::read_to_string(reload_stamp(root, unit)).ok()?.trim().parse().ok()
}

/// A test directory has no systemd, and that of this machine must not answer for it.
pub(crate) fn own_systemd(host: &Host) -> Outcome<()> {
    if host.root.is_host() { Ok(()) } else { Err(bad("a test directory has no systemd")) }
}

/// Reloads changed unit files and enables the unit at boot; does only what is required, because every reload of
/// systemd costs a quarter of a second of processor time.
async fn enable(unit: &UnitName) -> Outcome<()> {
    let shown = with_files(std::slice::from_ref(unit)).await?.pop().unwrap_or_default();
    // Packages are installed with their service masked until the next boot; see `packages`.
    let mask = Path::new("/run/systemd/system").join(unit.as_str());
    if fs::read_link(&mask).is_ok_and(|to| to == Path::new("/dev/null")) {
        must(&["systemctl", "unmask", "--runtime", "--quiet", unit.as_str()], TIMEOUT).await?;
    } else if shown.stale(unit) {
        must(&["systemctl", "daemon-reload"], TIMEOUT).await?;
    }
    if !matches!(shown.get(FILE_STATE), "enabled" | "static" | "generated") {
        must(&["systemctl", "enable", "--quiet", "--no-reload", unit.as_str()], ANSWER).await?;
    }
    if shown.active() == "failed" {
        // A unit that failed too often in a row would refuse to start again for a while.
        must(&["systemctl", "reset-failed", unit.as_str()], ANSWER).await?;
    }
    Ok(())
}

/// Makes a unit run with its current files.
pub(crate) async fn run_unit(host: &Host, unit: &UnitName, how: HowToRun, no_wait: bool) -> Outcome<()> {
    own_systemd(host)?;
    host.waits(format!("{unit} to become active"));
    enable(unit).await?;
    let verb = match how {
        HowToRun::Start => "start",
        HowToRun::Restart | HowToRun::RestartIfHung => "restart",
        HowToRun::Reload => "reload-or-restart",
    };
    if how.restarts() {
        resume(unit).await?;
    }
    let until = Instant::now() + TIMEOUT;
    // Before the reload: files written later may not have been read.
    let asked_ms = when::now_ms();
    if no_wait {
        must(&["systemctl", verb, "--no-block", unit.as_str()], ANSWER).await?;
        return Ok(());
    }
    let ran = run(&["systemctl", verb, unit.as_str()], TIMEOUT).await;
    match ran {
        Err(late) if late.kind == OpErrorKind::TimedOut => {
            return Err(blame(unit, OpErrorKind::TimedOut, "has not become active yet").await);
        }
        Err(other) => return Err(other),
        Ok(ran) if !ran.ok() && !known(unit).await? => return Err(ran.fault(&format!("systemctl {verb} {unit}"))),
        Ok(_) => {}
    }
    settle(unit, until).await?;
    if how == HowToRun::Reload {
        let stamp = reload_stamp(&host.root, unit);
        let folder = stamp.parent().unwrap_or(&stamp);
        fs::create_dir_all(folder).explain("create", folder)?;
        fs::write(&stamp, asked_ms.to_string()).explain("write", &stamp)?;
    }
    Ok(())
}

/// Resumes the processes of a unit: a suspended one ends by no signal but SIGKILL, which systemd sends only after its
/// timeout. Without a process the command fails, and there is nothing to resume.
async fn resume(unit: &UnitName) -> Outcome<()> {
    match run(&["systemctl", "kill", "--signal=CONT", unit.as_str()], RESUME).await {
        // A busy systemd must not use up the time of the restart, which ends a suspended process as well, only later.
        Err(late) if late.kind == OpErrorKind::TimedOut => Ok(()),
        ran => ran.map(drop),
    }
}

async fn known(unit: &UnitName) -> Outcome<bool> {
    Ok(show_one(unit).await?.known())
}

/// Waits until a unit is active; one that failed or ended is a fault.
async fn settle(unit: &UnitName, until: Instant) -> Outcome<()> {
    loop {
        let shown = show_one(unit).await?;
        match shown.active() {
            "active" => return Ok(()),
            "inactive" if shown.get("Type") == "oneshot" && shown.get("Result") == "success" => return Ok(()),
            "failed" => return Err(blame(unit, OpErrorKind::Failed, "failed").await),
            "inactive" if shown.skipped() => return Err(blame(unit, OpErrorKind::Failed, shown.skipped_for()).await),
            "inactive" => return Err(blame(unit, OpErrorKind::Failed, "ended as soon as it was started").await),
            _ if shown.restarts() >= ENDS => return Err(blame(unit, OpErrorKind::Failed, "ends again and again").await),
            _ if Instant::now() > until => {
                return Err(blame(unit, OpErrorKind::TimedOut, "has not become active yet").await);
            }
            // It restarts automatically after a failure: it may require something that is just coming up.
            _ => sleep(POLL).await,
        }
    }
}

/// A fault about a unit, with the end of its journal.
pub(crate) async fn blame(unit: &UnitName, kind: OpErrorKind, what: &str) -> OpError {
    let lines =
        match run(&["journalctl", "-u", unit.as_str(), "-n", "100", "-o", "cat", "--no-pager", "-q"], ANSWER).await {
            Ok(ran) => tail(&telling(&ran.out)),
            Err(error) => vec![format!("(its journal could not be read: {})", error.what)],
        };
    OpError { tail: lines, ..fault(kind, format!("{unit} {what}")) }
}

/// Stops and disables units in the given order; one that does not exist counts as stopped.
pub(crate) async fn stop(host: &Host, units: &[UnitName]) -> Outcome<()> {
    if units.is_empty() {
        return Ok(());
    }
    own_systemd(host)?;
    let shown = with_files(units).await?;
    for (unit, shown) in units.iter().zip(&shown) {
        if shown.up() {
            host.waits(format!("{unit} to stop"));
            if let Err(fault) = must(&["systemctl", "stop", unit.as_str()], TIMEOUT).await {
                return Err(OpError { tail: blame(unit, fault.kind, "").await.tail, ..fault });
            }
        }
        if shown.enabled() {
            must(&["systemctl", "disable", "--quiet", "--no-reload", unit.as_str()], ANSWER).await?;
        }
        if shown.active() == "deactivating" {
            // A unit that was killed while it stopped has failed; systemd may have forgotten others already.
            run(&["systemctl", "reset-failed", unit.as_str()], ANSWER).await?;
        }
        if shown.active() == "failed" {
            must(&["systemctl", "reset-failed", unit.as_str()], ANSWER).await?;
        }
    }
    Ok(())
}

/// Stops units at once: each gets SIGTERM, and SIGKILL after a short time. Only for units that lose nothing by it.
/// They stay enabled.
pub(crate) async fn end_now(host: &Host, units: &[UnitName]) -> Outcome<()> {
    own_systemd(host)?;
    for unit in units {
        if !show_one(unit).await?.up() {
            continue;
        }
        must(&["systemctl", "stop", "--no-block", unit.as_str()], ANSWER).await?;
        let grace = Instant::now() + GRACE;
        while show_one(unit).await?.up() {
            if Instant::now() > grace {
                // It may have ended by now; the stop below shows whether it has.
                run(&["systemctl", "kill", "--signal=KILL", unit.as_str()], ANSWER).await?;
                break;
            }
            sleep(POLL).await;
        }
    }
    Ok(())
}

/// Kills the main process of a unit, or `all` of its processes, and starts it; a suspended process ignores everything
/// but this signal. A unit without a process is started.
pub(crate) async fn kill_and_start(host: &Host, unit: &UnitName, all: bool, within: Duration) -> Outcome<()> {
    own_systemd(host)?;
    let until = Instant::now() + within;
    let shown = show_one(unit).await?;
    if shown.up() {
        let whom = if all { "--kill-who=all" } else { "--kill-who=main" };
        must(&["systemctl", "kill", whom, "--signal=KILL", unit.as_str()], ANSWER).await?;
        // A start of a unit that is still active would change nothing.
        let old = shown.main_process();
        while show_one(unit).await.is_ok_and(|now| now.active() == "active" && now.main_process() == old) {
            if Instant::now() > until {
                return Err(fault(OpErrorKind::TimedOut, format!("the processes of {unit} do not end")));
            }
            sleep(POLL).await;
        }
    } else if shown.active() == "failed" {
        must(&["systemctl", "reset-failed", unit.as_str()], ANSWER).await?;
    }
    must(&["systemctl", "start", "--no-block", unit.as_str()], ANSWER).await?;
    loop {
        let now = show_one(unit).await?;
        match now.runs() {
            Runs::Since(_) => return Ok(()),
            Runs::Changing if Instant::now() < until => sleep(POLL).await,
            Runs::Changing => return Err(blame(unit, OpErrorKind::TimedOut, "has not become active yet").await),
            Runs::Fenced => return Err(blame(unit, OpErrorKind::Failed, now.skipped_for()).await),
            _ => return Err(blame(unit, OpErrorKind::Failed, "does not start").await),
        }
    }
}

/// Starts a unit without waiting; restarts a running one if its settings have `changed`.
pub(crate) async fn launch(host: &Host, unit: &UnitName, changed: bool) -> Outcome<()> {
    own_systemd(host)?;
    let anew = changed && matches!(state(unit).await?.as_str(), "active" | "activating");
    enable(unit).await?;
    must(&["systemctl", if anew { "restart" } else { "start" }, "--no-block", unit.as_str()], ANSWER).await.map(|_| ())
}

/// Why a started unit does not run, although it did not fail.
pub(crate) async fn not_begun(unit: &UnitName) -> OpError {
    match show_one(unit).await {
        Ok(shown) if shown.skipped() => blame(unit, OpErrorKind::Failed, shown.skipped_for()).await,
        Ok(_) => blame(unit, OpErrorKind::Failed, "was not started: a condition of its unit does not hold").await,
        Err(fault) => fault,
    }
}

/// The present ActiveState of a unit.
pub(crate) async fn state(unit: &UnitName) -> Outcome<String> {
    Ok(show_one(unit).await?.active().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_whose_check_said_no_is_skipped_and_neither_failed_nor_at_work() {
        let text = "Id=etcd.service\nActiveState=inactive\nResult=exec-condition\n\n\
                    Id=etcd.service\nActiveState=activating\nResult=exec-condition\n\n\
                    Id=etcd.service\nActiveState=inactive\nResult=success\n";
        assert_eq!(parse(text).iter().map(Shown::skipped).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn a_unit_that_a_person_stopped_or_disabled_differs_from_one_that_failed() {
        let of =
            |text: &str| parse(&format!("Id=x.service\nLoadState=loaded\nUnitFileState=enabled\n{text}\n"))[0].runs();
        let at = "Fri 2025-11-21 06:55:01.500000 UTC";
        let ms = 1_763_708_101_500;
        let active = format!("ActiveState=active\nMainPID=7\nExecMainStartTimestamp={at}");
        let stopped = format!("ActiveState=inactive\nResult=success\nInactiveEnterTimestamp={at}");
        let cases = [
            (active.as_str(), Runs::Since(ms)),
            (stopped.as_str(), Runs::Stopped(ms)),
            ("ActiveState=failed\nResult=signal", Runs::Failed),
            ("ActiveState=inactive\nResult=exec-condition", Runs::Fenced),
            ("ActiveState=inactive\nResult=success\nUnitFileState=disabled", Runs::Disabled),
            ("ActiveState=failed\nUnitFileState=masked", Runs::Disabled),
            ("ActiveState=activating", Runs::Changing),
            ("ActiveState=failed\nResult=signal\nJob=70", Runs::Changing),
            ("ActiveState=failed\nResult=signal\nJob=", Runs::Failed),
            ("ActiveState=inactive\nLoadState=not-found", Runs::Absent),
        ];
        for (text, runs) in cases {
            assert_eq!(of(text), runs, "{text}");
        }
    }

    #[test]
    fn a_check_that_could_not_run_is_distinguished_from_one_that_failed() {
        let of = |status: &str| {
            let check = "{ path=/bin/sh ; argv[]=/bin/sh -c exit status=3 ; ignore_errors=no ; pid=7 ; code=exited ; ";
            parse(&format!("Id=etcd.service\nExecCondition={check}status={status} }}\n"))[0].skipped_for()
        };
        assert_eq!(of("1"), SKIPPED);
        assert_eq!(of("216"), NOT_CHECKED, "systemd's own code for a missing group");
        assert_eq!(parse("Id=etcd.service\n")[0].skipped_for(), SKIPPED, "a systemd that does not report it");
    }

    #[test]
    fn the_version_of_systemd_is_read_as_each_distribution_writes_it() {
        for (text, number) in [
            ("systemd 252 (252.39-1~deb12u1)\n+PAM +AUDIT\n", Some(252)),
            ("systemd 239 (239-82.el8)\n", Some(239)),
            ("systemd 245 (245.4-4ubuntu3.24)\n", Some(245)),
            ("systemd 249\n", Some(249)),
            ("", None),
            ("upstart 1.13.2\n", None),
        ] {
            assert_eq!(version(text), number, "{text}");
        }
    }

    #[test]
    fn a_file_changes_a_unit_only_from_the_folder_of_its_name() {
        let unit = |path: &str| changed_by(path).map(|unit| unit.to_string());
        assert_eq!(unit("/etc/systemd/system/etcd.service.d/10-fence.conf").as_deref(), Some("etcd.service"));
        for other in [
            "/etc/systemd/system/etcd.service",
            "/etc/systemd/system/etcd.service.d/10-fence.txt",
            "/etc/systemd/system/etcd.service.wants/a.conf",
            "/etc/systemd/system/a.service.d/b/c.conf",
            "/etc/haproxy/haproxy.cfg",
        ] {
            assert_eq!(unit(other), None, "{other}");
        }
    }

    #[test]
    fn a_running_unit_says_since_when_and_an_ended_one_does_not() {
        let text = "Id=etcd.service\nActiveState=active\nMainPID=77\nExecMainStartTimestamp=Fri 2025-11-21 06:55:01.500000 UTC\n\n\
                    Id=x.service\nActiveState=failed\nMainPID=0\nExecMainStartTimestamp=Fri 2025-11-21 06:55:01.500000 UTC\n\n\
                    Id=x.timer\nActiveState=active\nActiveEnterTimestamp=Fri 2025-11-21 06:55:01.500000 UTC\n";
        let started: Vec<i64> = parse(text).iter().map(Shown::started_ms).collect();
        assert_eq!(started, [1_763_708_101_500, 0, 1_763_708_101_500]);
    }
}
