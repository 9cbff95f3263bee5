//! The steps of a guard on its own host: a frozen component is ended and started, space is freed, the time service is
//! restarted. None of them touches etcd's members or the values in it; the program that one of them starts does.
//!
//! In: a step for a kind of fault, decided by `plan/local_repair`; what a person wants of the guard. Out: done, or why
//! not. A step has the lock of the host, so that no run is active meanwhile; a run that a person starts waits for it.

use crate::agent::etcd::{lead, quota};
use crate::agent::host::Host;
use crate::agent::lock::{self, Rank};
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{must, run};
use crate::agent::machine::{files, processes, units, when};
use crate::agent::op_error::{Explain as _, Outcome, failed};
use crate::agent::parts::images;
use crate::agent::power;
use crate::agent::probe::{api_server_processes, hung, hung_api_server, is_suspended};
use crate::model::fault::{FaultKind, evidence};
use crate::model::healing::{GuardedHost, HEAL_UNIT, HEALED, Policy};
use crate::model::hold::{ANNOTATED, Annotated, HOLD, Hold};
use crate::model::names::{HostName, UnitName};
use crate::model::plan::HowToRun;
use crate::model::repair::{LocalStep, Power, RETRY, Runner, Runs, Switched, deed, runner};
use crate::model::units::{containerd_unit, unit};
use crate::protocol::{EtcdAsk, GuardAsk, OpError};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// The time for one step: after a minute, a person's run no longer waits for the lock.
const TIMEOUT: Duration = Duration::from_secs(50);
/// The time for a member to join again: copying a large store takes a while. systemd ends the program before.
const REJOINS: Duration = Duration::from_secs(46 * 60);
/// Journals are reduced to this size.
const JOURNALS: &str = "--vacuum-size=1G";
/// systemd's core dumps, and how long they are kept.
const DUMPS: &str = "/var/lib/systemd/coredump";
const DUMPS_FOR: Duration = Duration::from_secs(3 * 86_400);
/// The services that set the clock, by the names that distributions give them.
const TIME_SERVICES: [&str; 6] =
    ["chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service", "ntp.service", "ntpd.service"];
/// The largest hold that is read, bytes.
const LARGEST_HOLD: u64 = 64 << 10;
/// root, and its group.
const ROOT: (u32, u32) = (0, 0);
/// Renews the certificates of the host, under a lock of its own.
const RENEWAL: &str = "hactl-renew.service";

/// How the component of a fault runs; `None`: the fault is about none.
///
/// # Errors
/// systemd does not answer.
pub async fn runs(root: &Root, policy: &Policy, own: &GuardedHost, kind: FaultKind) -> Result<Option<Runs>, OpError> {
    let Some(runner) = runner(kind) else { return Ok(None) };
    if !root.is_host() {
        return Ok(Some(Runs::Absent));
    }
    Ok(Some(match runner {
        Runner::Unit(unit) => match units::show_one(&unit).await?.runs() {
            Runs::Since(_) if is_suspended(&unit) => Runs::Suspended,
            runs => runs,
        },
        Runner::ApiServer => {
            let own = (own.address, policy.api_port);
            let found = root.blocking(move |_| Ok(api_server_processes(own))).await?;
            // The newest process: an older one is ending.
            match found.last() {
                None => Runs::Absent,
                Some(pid) if processes::is_stopped(*pid) => Runs::Suspended,
                Some(pid) => processes::started_at(*pid).map_or(Runs::Absent, Runs::Since),
            }
        }
    }))
}

/// The lock of the host for one step.
#[derive(Debug)]
pub struct StepLock {
    _held: Option<lock::Held>,
}

/// Takes the lock of the host for a step; `Err` inside: the holder.
///
/// # Errors
/// The host cannot be locked.
pub async fn lock_for(root: &Root, kind: FaultKind, step: LocalStep) -> Result<Result<StepLock, String>, OpError> {
    // It takes a lock of its own.
    if step == LocalStep::RenewCertificates {
        return Ok(Ok(StepLock { _held: None }));
    }
    let holder = format!("the guard of this host ({})", deed(step, kind, None));
    let taken = root.blocking(move |root| lock::take(root, &holder, Rank::Resident)).await?;
    // The program takes this lock itself; it is not started while another run has it.
    let held = |held| StepLock { _held: (!matches!(step, LocalStep::Rejoin | LocalStep::Power)).then_some(held) };
    Ok(taken.map(held).map_err(|other| other.by))
}

/// Performs a step, under its lock.
///
/// # Errors
/// The step failed.
pub async fn repair(
    root: &Root,
    policy: &Policy,
    own: &GuardedHost,
    (kind, step, to): (FaultKind, LocalStep, Option<HostName>),
    _lock: &StepLock,
) -> Result<(), OpError> {
    let host = &Host::new(root.clone());
    units::own_systemd(host)?;
    match (step, runner(kind)) {
        (LocalStep::Start | LocalStep::Restart, Some(Runner::Unit(unit))) => {
            // The containers of containerd go on without it.
            let all = !matches!(kind, FaultKind::RuntimeFrozen | FaultKind::KubeletFrozen | FaultKind::NodeMissing);
            units::kill_and_start(host, &unit, all, TIMEOUT).await?;
        }
        (LocalStep::Start | LocalStep::Restart, Some(Runner::ApiServer)) => {
            let own = (own.address, policy.api_port);
            host.root.blocking(move |_| end(&api_server_processes(own))).await?;
        }
        (LocalStep::Start | LocalStep::Restart, None) => return Err(failed("nothing runs what has this fault")),
        (LocalStep::Rejoin, _) => heal(&host.root, None).await?,
        (LocalStep::Power, _) => {
            let host_of = to.ok_or_else(|| failed("no host is named"))?;
            heal(&host.root, Some(Power { host: host_of, switched: Switched::Nothing })).await?;
        }
        (LocalStep::FreeSpace, _) => free_space(host).await?,
        (LocalStep::FreeEtcdSpace, _) => quota::free_space(host, &EtcdAsk::own(&policy.etcd_data_dir)).await?,
        (LocalStep::HandOverLead, _) => {
            let to = to.as_ref().and_then(|to| policy.guard(to));
            let to = to.ok_or_else(|| failed("no member with a faster disk serves any more"))?;
            lead::hand_over(host, policy, (own, to), TIMEOUT).await?;
        }
        (LocalStep::RestartTimeService, _) => restart_time_service().await?,
        (LocalStep::RenewCertificates, _) => {
            must(&["systemctl", "start", RENEWAL], TIMEOUT).await?;
        }
        // Units stop in their order: the VIP leaves the host first. What cannot be stopped is killed after a while.
        (LocalStep::Reboot, _) => {
            must(&["systemctl", "reboot"], TIMEOUT).await?;
        }
    }
    Ok(())
}

/// The hold of a person, if there is one: by a file on the host, or by an annotation. A file that exists holds, whatever it says: in a hurry, a person may have made it by hand.
pub fn hold(root: &Root, own: &HostName, now_ms: i64) -> Option<Hold> {
    let path = root.own(HOLD);
    if let Err(error) = fs::symlink_metadata(&path)
        && error.kind() == ErrorKind::NotFound
    {
        return annotated(root).hold(own).cloned();
    }
    let mut text = String::new();
    let read = fs::File::open(&path).and_then(|file| file.take(LARGEST_HOLD).read_to_string(&mut text));
    let named = read.ok().and_then(|_| serde_json::from_str::<Hold>(&text).ok());
    let held = named.unwrap_or_else(Hold::unnamed).in_one_line();
    if held.holds(now_ms) { Some(held) } else { annotated(root).hold(own).cloned() }
}

/// The holds by annotations, as the guard of this host last read them; none if they are unreadable.
pub fn annotated(root: &Root) -> Annotated {
    let mut text = String::new();
    let read = fs::File::open(root.own(ANNOTATED)).and_then(|file| file.take(LARGEST_HOLD).read_to_string(&mut text));
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Writes what a person wants of the guard of this host.
pub(super) async fn obey(host: &Host, ask: GuardAsk) -> Outcome<()> {
    let writing = move |root: &Root| {
        let now_ms = when::now_ms();
        let write = |path: &'static str, text: String| {
            let path = root.own(path);
            let folder = path.parent().unwrap_or(&path);
            fs::create_dir_all(folder).explain("create", folder)?;
            files::write_one(path, text.as_bytes(), 0o600, ROOT)
        };
        match ask {
            GuardAsk::Resume => files::remove(&root.own(HOLD)),
            GuardAsk::Retry => write(RETRY, now_ms.to_string()),
            GuardAsk::Pause { by, reason, lasts_s } => {
                let lasts_ms = lasts_s.and_then(|s| i64::try_from(s).ok()?.checked_mul(1000));
                let until_ms = lasts_ms.map(|ms| now_ms.saturating_add(ms));
                let hold = Hold { by, reason, since_ms: now_ms, until_ms, annotated: false }.in_one_line();
                write(HOLD, serde_json::to_string(&hold).unwrap_or_default())
            }
        }
    };
    host.root.blocking(writing).await
}

/// Makes a unit run with its current files.
pub(super) async fn run_unit(host: &Host, unit: &UnitName, how: HowToRun, no_wait: bool) -> Outcome<()> {
    units::own_systemd(host)?;
    let asked = async {
        host.waits(format!("{unit} to answer"));
        is_hung(&host.root, unit).await
    };
    units::run_unit(host, unit, decided(how, asked).await?, no_wait).await
}

/// How a unit is run now. One that is to be restarted because it did not answer is asked again first: minutes may have
/// passed since the plan was made, and a busy unit may answer by now. Then nothing interrupts it.
async fn decided(how: HowToRun, is_hung: impl Future<Output = Outcome<bool>>) -> Outcome<HowToRun> {
    if how != HowToRun::RestartIfHung {
        return Ok(how);
    }
    // One that ended meanwhile is started.
    Ok(if is_hung.await? { HowToRun::Restart } else { HowToRun::Start })
}

/// Whether a unit has processes and does not answer, asked as for an observation.
async fn is_hung(root: &Root, unit: &UnitName) -> Outcome<bool> {
    if *unit == containerd_unit() {
        return images::list(root).await.map(|(_, trouble)| trouble.is_some());
    }
    Ok(!hung(root, std::slice::from_ref(unit), None).await.is_empty())
}

/// Ends the processes of the API server at this address if it still does not answer: the kubelet may have done that
/// since the plan was made.
pub(super) async fn end_hung_api_server(host: &Host, at: (IpAddr, u16)) -> Outcome<()> {
    units::own_systemd(host)?;
    host.waits("the API server to answer");
    if hung_api_server(&host.root, at).await.is_none() {
        return Ok(());
    }
    let ending = move |_: &Root| {
        end_all(&api_server_processes(at));
        Ok(())
    };
    host.root.blocking(ending).await
}

/// Ends the processes of an API server; that there is none is a failure.
fn end(found: &[u32]) -> Outcome<()> {
    if found.is_empty() {
        return Err(failed("the API server has no process"));
    }
    end_all(found);
    Ok(())
}

/// Ends processes at once; the kubelet starts the container again.
fn end_all(found: &[u32]) {
    for pid in found {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            // It may have ended already, which is the goal.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Starts the program by which the member joins again, or by which the power of a host is switched, and waits for its
/// end.
async fn heal(root: &Root, power: Option<Power>) -> Outcome<()> {
    let asking = move |root: &Root| {
        power::ask(root, power.as_ref())?;
        files::remove(&root.own(HEALED))
    };
    root.blocking(asking).await?;
    let ran = run(&["systemctl", "start", "--wait", HEAL_UNIT], REJOINS).await?;
    if ran.ok() {
        return Ok(());
    }
    // systemd knows only that it failed.
    let said = root.blocking(|root| Ok(fs::read_to_string(root.own(HEALED)).unwrap_or_default())).await?;
    let why = evidence(&said);
    Err(if why.is_empty() { ran.fault(&format!("systemctl start {HEAL_UNIT}")) } else { failed(why) })
}

/// Reduces the journals and deletes old core dumps.
async fn free_space(host: &Host) -> Outcome<()> {
    host.root.blocking(old_dumps).await?;
    must(&["journalctl", "--quiet", JOURNALS], TIMEOUT).await.map(|_| ())
}

fn old_dumps(root: &Root) -> Outcome<()> {
    let folder = root.below(DUMPS);
    // Most hosts have none.
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    for entry in entries.flatten() {
        let old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > DUMPS_FOR);
        if entry.metadata().is_ok_and(|meta| meta.is_file() && meta.modified().is_ok_and(old)) {
            fs::remove_file(entry.path()).explain("delete", &entry.path())?;
        }
    }
    Ok(())
}

/// Restarts the service that sets the clock, if one runs.
async fn restart_time_service() -> Outcome<()> {
    let all: Vec<UnitName> = TIME_SERVICES.into_iter().map(unit).collect();
    for unit in &all {
        if units::show_one(unit).await?.active() == "active" {
            let ran = run(&["systemctl", "restart", unit.as_str()], TIMEOUT).await?;
            return if ran.ok() { Ok(()) } else { Err(ran.fault(&format!("systemctl restart {unit}"))) };
        }
    }
    Err(failed(format!("none of {} runs", TIME_SERVICES.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_core_dumps_are_deleted_and_young_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let folder = root.own(DUMPS);
        fs::create_dir_all(&folder).unwrap();
        for (name, days) in [("old", 4), ("young", 2)] {
            let file = fs::File::create(folder.join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(days * 86_400)).unwrap();
        }
        fs::create_dir(folder.join("folder")).unwrap();
        old_dumps(&root).unwrap();
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["folder", "young"]);
    }

    #[tokio::test]
    async fn a_unit_is_restarted_for_a_missing_answer_only_if_it_still_does_not_answer() {
        for (is_hung, expected) in [(true, HowToRun::Restart), (false, HowToRun::Start)] {
            assert_eq!(decided(HowToRun::RestartIfHung, async { Ok(is_hung) }).await, Ok(expected));
        }
        for how in [HowToRun::Start, HowToRun::Restart, HowToRun::Reload] {
            assert_eq!(decided(how, async { Err(failed("it was asked")) }).await, Ok(how));
        }
        let unknown = failed("systemd does not answer");
        assert_eq!(decided(HowToRun::RestartIfHung, async { Err(unknown.clone()) }).await, Err(unknown.clone()));
    }

    #[test]
    fn no_process_of_this_machine_is_the_api_server_of_a_host_that_it_is_not() {
        assert_eq!(api_server_processes(([192, 0, 2, 7].into(), 6443)), Vec::<u32>::new());
        assert!(end(&[]).is_err());
    }
}
