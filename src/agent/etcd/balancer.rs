//! Pauses the balancer in front of etcd for a while, or drains a member from it.
//!
//! In: the unit of the balancer, the request, and its maximum duration. Out: nothing. A paused balancer keeps all
//! connections. A balancer that drains a member has ended the connections to it and sends no client there. The undo
//! is scheduled first and belongs to systemd alone: neither a killed hactl nor a lost connection leaves the balancer
//! in that state.

use crate::agent::host::Host;
use crate::agent::machine::processes::{start, started_at};
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{blocking, must, own_program, run};
use crate::agent::machine::units::{own_systemd, reloaded_ms, show_one};
use crate::agent::op_error::{Outcome, failed};
use crate::model::names::{HostName, UnitName};
use crate::protocol::{Balancing, ETCD_BALANCER_SOCKET};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long systemd may take to send a signal.
const ANSWER: Duration = Duration::from_secs(5);
/// No unit is paused for longer, whatever the request.
const MOST: Duration = Duration::from_secs(2);
const STOP: &str = "--signal=SIGSTOP";
const CONTINUE: &str = "--signal=SIGCONT";
/// The second signal is effective if the first one was sent before the signal that stops: that one has [`ANSWER`] to
/// be sent.
const LATER: &str = "sleep \"$1\"; shift; \"$@\"; sleep 6; \"$@\"";

/// No member is drained for longer, whatever the request, seconds.
const MOST_PASSED_S: u32 = 1800;
/// How long the balancer may take to answer, and to end the connections to a member.
const SOON: Duration = Duration::from_millis(500);
/// How long a balancer may take to apply a reloaded configuration. If it cannot, it keeps the earlier one.
const RELOADED: Duration = Duration::from_secs(1);
/// How long draining a member may take in total.
const ALTOGETHER: Duration = Duration::from_secs(3);
/// The precision of the start time of a process.
const ABOUT_MS: i64 = 50;
/// Asks for the process that answers and, in the same request, for the servers of the proxy `members`: of type 4,
/// all.
const LOOK: &str = "show info;show stat members 4 -1";
/// Between two polls.
const AGAIN_IN: Duration = Duration::from_millis(10);

/// Performs the request.
pub(crate) async fn balance(host: &Host, unit: &UnitName, how: Balancing) -> Outcome<()> {
    own_systemd(host)?;
    match how {
        Balancing::Pause { most_ms } => pause(unit, Duration::from_millis(most_ms.into())).await,
        Balancing::Resume => must(&["systemctl", "kill", CONTINUE, "--", unit.as_str()], ANSWER).await.map(drop),
        Balancing::PassOver { member, most_s } => pass_over(host, unit, &member, most_s.min(MOST_PASSED_S)).await,
        Balancing::PassTo { member } => pass_to(&host.root, &member).await,
    }
}

/// Suspends the processes.
async fn pause(unit: &UnitName, most: Duration) -> Outcome<()> {
    let after = format!("{:.3}", most.min(MOST).as_secs_f64());
    let mut later =
        vec!["systemd-run", "--quiet", "--collect", "--no-block", "--", "/bin/sh", "-c", LATER, "later", &after];
    later.extend(["systemctl", "kill", CONTINUE, "--", unit.as_str()]);
    must(&later, ANSWER).await?;
    must(&["systemctl", "kill", STOP, "--", unit.as_str()], ANSWER).await.map(drop)
}

/// Sends the clients of the balancer to other members.
async fn pass_over(host: &Host, unit: &UnitName, member: &HostName, most_s: u32) -> Outcome<()> {
    let balancer = show_one(unit).await?;
    if balancer.active() != "active" {
        // It has no clients.
        return Ok(());
    }
    // It survives every reload, and starts a worker for each.
    let master = balancer.main_process();
    let socket = host.root.own(ETCD_BALANCER_SOCKET);
    let until = Instant::now() + ALTOGETHER;
    loop {
        let (worker, stated) = newest_worker(host, unit, &socket).await?;
        // A member that its configuration no longer names has only previous connections.
        let others = others_up(&stated, member);
        if others == Some(0) {
            return Err(failed("the balancer in front of etcd has no other member that is up"));
        }
        if others.is_some() {
            later(member, most_s).await?;
            set(&socket, member, "maint").await?;
        }
        // A worker from before the last reload does not learn of it, and keeps its connections until it is
        // terminated.
        let workers = master.map(children).unwrap_or_default();
        let former = former(start(worker), workers.into_iter().map(|other| (other, start(other))));
        for (process, _) in &former {
            end(*process);
        }
        if let_go(&socket, worker, &former, member).await? {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(failed("the balancer in front of etcd is reloaded again and again"));
        }
    }
}

/// Waits until the member has no connections. False if another worker has replaced this one and does not know of the
/// request.
async fn let_go(socket: &Path, worker: u32, former: &[(u32, i64)], member: &HostName) -> Outcome<bool> {
    let begun = Instant::now();
    loop {
        let stated = ask(socket, LOOK).await?;
        if process(&stated) != Some(worker) {
            return Ok(false);
        }
        let (open, passed) = members(&stated)
            .find(|(name, ..)| *name == member.as_str())
            .map_or((0, true), |(_, open, status)| (open, status == "MAINT"));
        let left = former.iter().filter(|(process, since)| start(*process) == Some(*since)).count();
        if open == 0 && passed && left == 0 {
            return Ok(true);
        }
        if begun.elapsed() >= SOON {
            let what = format!("{open} connections to {member} and {left} previous workers remain after {SOON:?}");
            return Err(failed(what));
        }
        tokio::time::sleep(AGAIN_IN).await;
    }
}

/// Sends clients to the member again. A member that the configuration no longer names is ignored.
///
/// # Errors
/// The balancer does not do it.
pub async fn pass_to(root: &Root, member: &HostName) -> Outcome<()> {
    let socket = root.own(ETCD_BALANCER_SOCKET);
    if tell(&socket, "show info").await?.is_some() {
        set(&socket, member, "ready").await?;
    }
    if root.is_host() { forget(member).await } else { Ok(()) }
}

/// The unit that sends clients to a member again if nothing else does.
fn again(member: &HostName) -> String {
    format!("hactl-passes-over-{member}")
}

/// Schedules the undo with systemd.
async fn later(member: &HostName, most_s: u32) -> Outcome<()> {
    forget(member).await?;
    let (unit, after, me) = (again(member), format!("--on-active={most_s}"), own_program()?);
    let run = ["systemd-run", "--quiet", "--collect", "--unit", &unit, &after, "--timer-property=AccuracySec=1s", "--"];
    must(&[&run[..], &[&me, "host-pass-to", "--member", member.as_str()]].concat(), ANSWER).await.map(drop)
}

/// Cancels the scheduled undo; there may be none. An undo that runs already is left to finish.
async fn forget(member: &HostName) -> Outcome<()> {
    let timer = format!("{}.timer", again(member));
    run(&["systemctl", "stop", "--quiet", "--", &timer], ANSWER).await.map(drop)
}

/// The process that answers and its output, once it runs with the configuration that was loaded last: haproxy starts
/// it some time after systemd has requested the reload.
async fn newest_worker(host: &Host, unit: &UnitName, socket: &Path) -> Outcome<(u32, String)> {
    let reloaded = reloaded_ms(&host.root, unit);
    let begun = Instant::now();
    loop {
        let stated = ask(socket, LOOK).await?;
        let worker =
            process(&stated).ok_or_else(|| failed("the balancer in front of etcd does not report its process id"))?;
        let before = started_at(worker) < reloaded.map(|at| at - ABOUT_MS);
        if !before || begun.elapsed() >= RELOADED {
            return Ok((worker, stated));
        }
        tokio::time::sleep(AGAIN_IN).await;
    }
}

async fn set(socket: &Path, member: &HostName, state: &str) -> Outcome<()> {
    let said = ask(socket, &format!("set server members/{member} state {state}")).await?;
    match said.trim() {
        "" | "No such server." => Ok(()),
        said => Err(failed(format!("the balancer in front of etcd did not set {member} to {state}: {said}"))),
    }
}

async fn ask(socket: &Path, command: &str) -> Outcome<String> {
    let gone = || failed(format!("the balancer in front of etcd does not listen at {}", socket.display()));
    tell(socket, command).await?.ok_or_else(gone)
}

/// The answer of the balancer to a command; `None`: nothing listens.
async fn tell(socket: &Path, command: &str) -> Outcome<Option<String>> {
    let (socket, command) = (PathBuf::from(socket), format!("{command}\n"));
    blocking(move || {
        let mut stream = match UnixStream::connect(&socket) {
            Ok(stream) => stream,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
            Err(e) => return Err(failed(format!("could not talk to {}: {e}", socket.display()))),
        };
        let mut said = String::new();
        stream
            .set_read_timeout(Some(SOON))
            .and_then(|()| stream.write_all(command.as_bytes()))
            .and_then(|()| stream.read_to_string(&mut said))
            .map(|_| Some(said))
            .map_err(|e| failed(format!("the balancer at {} did not answer: {e}", socket.display())))
    })
    .await
}

/// The process that answers, from `show info`.
fn process(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("Pid: ")?.trim().parse().ok())
}

/// The rows of `show stat` about members: name, connections, status.
fn members(stat: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    let head = stat.lines().position(|line| line.starts_with("# "));
    let names = head.and_then(|at| stat.lines().nth(at)).unwrap_or_default();
    let column = |name: &str| names.trim_start_matches("# ").split(',').position(|n| n == name);
    let columns = [column("pxname"), column("svname"), column("scur"), column("status")];
    stat.lines().skip(head.map_or(usize::MAX, |at| at + 1)).filter_map(move |line| {
        let cells: Vec<&str> = line.split(',').collect();
        let [proxy, name, connections, status] = columns.map(|at| at.and_then(|at| cells.get(at).copied()));
        (proxy? == "members").then_some((name?, connections?.parse().ok()?, status?))
    })
}

/// The number of other members that receive clients; `None`: it does not know the member.
fn others_up(stat: &str, member: &HostName) -> Option<usize> {
    members(stat).find(|(name, ..)| *name == member.as_str())?;
    Some(members(stat).filter(|(name, _, status)| status.starts_with("UP") && *name != member.as_str()).count())
}

/// The workers that are older than the one that answers, with their start times.
fn former(newest: Option<i64>, workers: impl IntoIterator<Item = (u32, Option<i64>)>) -> Vec<(u32, i64)> {
    let started = workers.into_iter().filter_map(|(worker, start)| Some((worker, start?)));
    started.filter(|(_, start)| newest.is_some_and(|newest| *start < newest)).collect()
}

fn children(process: u32) -> Vec<u32> {
    let stated = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    stated.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn end(process: u32) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // It may have ended already, which is the goal.
        let _ = kill_process(process, Signal::TERM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn a_directory_that_stands_for_a_host_balances_nothing_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new(Root::at(folder.path()));
        let unit: UnitName = "hactl-etcd-balancer.service".parse().unwrap();
        let member: HostName = "cp1".parse().unwrap();
        for how in [
            Balancing::Pause { most_ms: 1 },
            Balancing::Resume,
            Balancing::PassOver { member: member.clone(), most_s: 1 },
            Balancing::PassTo { member },
        ] {
            assert!(balance(&host, &unit, how).await.is_err());
        }
    }

    /// A balancer that answers its first client, and returns the request.
    fn balancer(at: &Path, answer: &'static str) -> std::thread::JoinHandle<String> {
        let listener = UnixListener::bind(at).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut asked).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            asked
        })
    }

    #[tokio::test]
    async fn a_member_is_set_with_commands_of_haproxy_and_a_refusal_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let member: HostName = "cp2".parse().unwrap();
        for (n, answer, fine) in [(0, "\n", true), (1, "No such server.\n\n", true), (2, "Permission denied\n", false)]
        {
            let socket = folder.path().join(n.to_string());
            let asked = balancer(&socket, answer);
            let set = set(&socket, &member, "maint").await;
            assert_eq!(asked.join().unwrap(), "set server members/cp2 state maint\n");
            assert_eq!(set.is_ok(), fine, "{answer:?}: {set:?}");
            assert!(fine || set.unwrap_err().what.contains("Permission denied"));
        }
    }

    #[tokio::test]
    async fn a_missing_listener_is_distinguished_from_one_that_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(tell(&folder.path().join("none"), "show info").await.unwrap(), None);
        let left = folder.path().join("left");
        drop(UnixListener::bind(&left).unwrap());
        assert_eq!(tell(&left, "show info").await.unwrap(), None, "the socket of a balancer that has ended");
        let mute = folder.path().join("mute");
        let _listener = UnixListener::bind(&mute).unwrap();
        assert!(tell(&mute, "show info").await.unwrap_err().what.contains("did not answer"));
    }

    #[test]
    fn only_workers_older_than_the_one_that_answers_are_ended() {
        assert_eq!(former(Some(100), [(7, Some(100)), (5, Some(90)), (6, Some(99))]), [(5, 90), (6, 99)]);
        assert_eq!(former(Some(100), [(7, Some(100)), (9, Some(101)), (8, None)]), [], "a new one stays");
        assert_eq!(former(None, [(5, Some(90))]), [], "the process that answers has ended meanwhile");
    }

    const TOLD: &str = "Name: HAProxy\nPid: 4711\nUptime_sec: 3\n\n\
                        # pxname,svname,qcur,qmax,scur,smax,status,\nmembers,cp1,0,0,66,70,UP,\nmembers,cp10,0,0,0,4,MAINT,\n\
                        members,cp3,0,0,0,4,DOWN 1/3,\nother,cp2,0,0,9,9,UP,\n\n";

    #[test]
    fn the_process_id_of_the_answering_worker_is_read() {
        assert_eq!(process(TOLD), Some(4711));
        assert_eq!(process("Name: HAProxy\n"), None);
    }

    #[test]
    fn a_member_is_passed_over_only_where_another_is_up() {
        let of = |name: &str| others_up(TOLD, &name.parse().unwrap());
        assert_eq!(of("cp1"), Some(0), "the others are down or drained");
        assert_eq!(of("cp10"), Some(1));
        assert_eq!(of("cp2"), None, "of another proxy");
        assert_eq!(others_up("", &"cp1".parse().unwrap()), None);
    }

    #[tokio::test]
    async fn a_member_is_released_once_the_same_worker_reports_no_connections_to_it() {
        let folder = tempfile::tempdir().unwrap();
        for (n, (member, worker, former, done)) in [
            ("cp10", 4711, vec![], Some(true)),
            ("cp10", 4712, vec![], Some(false)),
            ("cp2", 4711, vec![(u32::MAX, 1)], Some(true)),
        ]
        .into_iter()
        .enumerate()
        {
            let socket = folder.path().join(n.to_string());
            let asked = balancer(&socket, TOLD);
            let let_go = let_go(&socket, worker, &former, &member.parse().unwrap()).await.ok();
            assert_eq!(
                (let_go, asked.join().unwrap().as_str()),
                (done, "show info;show stat members 4 -1\n"),
                "{member}"
            );
        }
    }
}
