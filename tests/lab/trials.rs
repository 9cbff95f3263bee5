//! Settings that a component does not start with: the rollout stops at the first host, which is rolled back, and no
//! client notices.

use super::bare_hosts::variant;
use super::failures::{distinct, moves_since};
use super::recover::members;
use super::support::{GIVEN_BACK, Hactl, Probe, Reads, Writer, once_free, wait_for};
use super::{Scenario, World, in_one_line};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a flag that no API server starts with is rolled back on the first host, and no client notices",
        cut: true,
        run: api_server,
    },
    Scenario {
        name: "settings that scheduler, kubelet and etcd do not start with are rolled back on the first host",
        cut: false,
        run: others,
    },
    Scenario {
        name: "etcd members restart one after the other: no read fails, and no write waits for a lost proposal",
        cut: false,
        run: handed,
    },
    Scenario {
        name: "a run that is killed while balancers are paused leaves none of them paused",
        cut: false,
        run: killed_while_balancers_are_paused,
    },
    Scenario {
        name: "after a kill, balancers pass over a member until a timer ends it, and the next run resumes",
        cut: false,
        run: killed_while_passed_over,
    },
    Scenario {
        name: "after a kill during a trial, the next run rolls the host back, with the same or with fixed settings",
        cut: false,
        run: killed,
    },
];

/// Everything that a rollout could change on a host.
const FILES: &str = "sudo sh -c 'sha256sum /etc/kubernetes/manifests/* /etc/kubernetes/config/* /etc/systemd/system/kubelet.service \
                     /var/lib/kubelet/config.yaml /etc/etcd/*.env /etc/systemd/system/etcd.service 2>/dev/null; ls /var/lib/hactl/kept'";
/// A read is late when it takes longer than this on a machine without stalls.
pub const LATE: Duration = Duration::from_secs(1);
/// etcd reports a dropped proposal after this time at the earliest: five seconds, and then two elections.
const DROPPED: Duration = Duration::from_secs(5);
/// Slower reads are printed with their time.
const SLOW: Duration = Duration::from_millis(800);

/// The lab's inventory with this added to `extra`.
fn with(w: &World, extra: &str) -> Hactl {
    variant(w, "trial.yaml", |text| text.replace("extra: {", &format!("extra: {{{extra}, ")))
}

fn kubelet(w: &World, config: &str) -> Hactl {
    variant(w, "trial.yaml", |text| text.replace("kubelet: {config: {", &format!("kubelet: {{config: {{{config}, ")))
}

fn files(w: &World) -> Vec<String> {
    members(w).into_iter().map(|host| w.on(host, FILES)).collect()
}

/// `up` fails on one host and rolls it back; all hosts are as before.
fn is_rolled_back(w: &World, hactl: &Hactl, reason: &str) {
    let before = files(w);
    let begun = Instant::now();
    let ran = hactl.up().exits(1);
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    println!("        back after {:.1?}", begun.elapsed());
    let said = in_one_line(&ran);
    assert!(said.contains("the previous files were restored, and the host runs with them again"), "{}", ran.all());
    assert!(ran.all().contains(reason), "{reason:?} is the reason: {}", ran.all());
    assert!(said.contains("fix the setting in the inventory"), "{}", ran.all());
    assert_eq!(files(w), before, "every host has its previous files");
    assert!(begun.elapsed() < Duration::from_secs(100), "hactl does not wait for what cannot start");
    w.healthy(Duration::from_secs(60));
}

/// What a move of the VIP cuts off. Linux sends a segment without an answer again after 200 ms, then after 400 ms more and
/// 800 ms more, and a client is cut off when it does so after the move.
#[derive(Clone, Copy)]
pub struct CutOff {
    /// A request that was in flight for longer had failed before the move.
    pub in_flight: Duration,
    /// Requests that one move cuts off end within this time of one another.
    pub at_once: Duration,
}

/// By a holder that gives the VIP away: its clients send again for the second time at most.
pub const GIVEN_AWAY: CutOff = CutOff { in_flight: Duration::from_millis(400), at_once: Duration::from_millis(450) };
/// By a holder that gets no processor, and loses the VIP: its clients send again for the third time at most, after
/// 1.4 s. They share the machine that gives it none.
const LOST_IT: CutOff = CutOff { in_flight: Duration::from_millis(1800), at_once: Duration::from_millis(850) };
/// A holder that sends no advertisement for this long loses the VIP: three intervals of `advert_int`.
const ADVERTS_MISSED: Duration = Duration::from_millis(600);

/// No read failed and none was late, whichever host holds the VIP.
pub fn unnoticed(w: &World, reads: &Reads) {
    unnoticed_but_for_moves(w, reads, 0);
}

/// The same while the VIP moves this many times.
pub fn unnoticed_but_for_moves(w: &World, reads: &Reads, moves: usize) {
    let (longest, slow) = nobody_failed(w, reads, moves);
    // A read waits for the host of the VIP, that of an API server, and that of etcd's leader, one after the other.
    let late = LATE + reads.three_stalled;
    assert!(longest < late, "a read took {longest:?}, and {late:?} is late: {slow}");
}

/// When a read is late: all hosts share this machine's processors, and a host that gets none serves nothing meanwhile.
pub fn late(reads: &Reads) -> Duration {
    LATE + reads.stalled
}

/// Checks that no read failed, except those that so many moves of the VIP cut off: one more if a host got no processor
/// for so long that it lost the VIP. Returns how long the longest read took, and a list of the slowest ones.
pub fn nobody_failed(w: &World, reads: &Reads, moves: usize) -> (Duration, String) {
    if reads.stalled >= ADVERTS_MISSED && reads.iter().any(|k| k.2.is_some()) {
        failed_at_moves_only(w, reads, moved(w, reads).min(moves + 1), LOST_IT)
    } else {
        failed_at_moves_only(w, reads, moves, GIVEN_AWAY)
    }
}

/// The same, and checks that the VIP moved at most so often, with the same exception. Returns how long the longest read
/// took.
pub fn nobody_failed_and_moved_at_most(w: &World, reads: &Reads, most: usize) -> Duration {
    let (most, moved) = (most + usize::from(reads.stalled >= ADVERTS_MISSED), moved(w, reads));
    assert!(moved <= most, "the VIP moved more than {most} times, stalls of {:.2?}", reads.stalled);
    failed_at_moves_only(w, reads, moved, LOST_IT).0
}

/// How often the VIP has moved since these reads began.
fn moved(w: &World, reads: &Reads) -> usize {
    let moves = moves_since(w, &members(w), reads.since);
    for line in &moves {
        println!("        the VIP moved: {line}");
    }
    distinct(&moves)
}

fn failed_at_moves_only(w: &World, reads: &Reads, moves: usize, each: CutOff) -> (Duration, String) {
    let failed = failed_but_for_moves(reads, moves, each);
    let longest = reads.iter().map(|k| k.1).max().unwrap_or_default();
    println!("        {} connections, {} failed, the longest took {longest:.2?}", reads.len(), failed.len());
    let mut slow: Vec<_> = reads.iter().filter(|k| k.1 > SLOW).collect();
    slow.sort_by_key(|k| std::cmp::Reverse(k.1));
    let slow = slow.iter().take(20).map(|k| format!("{:.1?} at {:.1?}", k.1, k.0)).collect::<Vec<_>>().join(", ");
    if !slow.is_empty() {
        println!("        slow: {slow}");
    }
    if !failed.is_empty() {
        for host in members(w) {
            println!("        {host}: {}", w.on(host, &cut_off(reads.since)).trim());
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    (longest, slow)
}

/// Prints what the load balancer of a host logged of servers, and of connections that ended in another way than by both
/// sides.
fn cut_off(since: SystemTime) -> String {
    let since = since.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let lines = "grep -E ' is (UP|DOWN|stopping)| [sScCPRIL][CDRQTPL] [0-9]+/' | tail -n 30";
    format!("sudo journalctl -t haproxy --since @{since} -o short-precise -q | {lines}")
}

/// The reads that failed, except those that moves of the VIP cut off. A connection is bound to the host that had the
/// VIP when it was opened, so a move cuts off all requests in flight. Earlier and later requests are served.
pub fn failed_but_for_moves(reads: &[Probe], moves: usize, each: CutOff) -> Vec<&Probe> {
    let mut cut_off: Vec<Duration> = reads.iter().filter(|k| k.2.is_some()).map(|k| k.0 + k.1).collect();
    cut_off.sort_unstable();
    let cuts = cut_off.chunk_by(|a, b| b.saturating_sub(*a) < each.at_once).count();
    let failed: Vec<_> =
        reads.iter().filter(|k| k.2.is_some()).filter(|k| cuts > moves || k.1 > each.in_flight).collect();
    if !cut_off.is_empty() && failed.is_empty() {
        println!("        {} cut off as the VIP moved, at {cut_off:.2?}", cut_off.len());
    }
    failed
}

fn api_server(w: &World) {
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(60));
    let writer = Writer::start(&w.api(), "w-trial");
    let reading = w.api().reads(Duration::from_millis(20));
    is_rolled_back(w, &with(w, "kube-apiserver: {args: {event-ttl: soon}}"), "event-ttl");
    let reads = reading.end();
    unnoticed(w, &reads);
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    assert!(longest < late(&reads), "a write waited for {longest:?}");
    w.hactl.up().ok().says("nothing to do");
}

fn others(w: &World) {
    w.hactl.up().ok();
    is_rolled_back(w, &with(w, "kube-scheduler: {args: {kube-api-burst: many}}"), "kube-api-burst");
    let reading = w.api().reads(Duration::from_millis(20));
    is_rolled_back(w, &kubelet(w, "evictionHard: {memory.available: little}"), "quantities");
    is_rolled_back(w, &with(w, "etcd: {args: {max-txn-ops: many}}"), "many");
    unnoticed(w, &reading.end());
    w.hactl.up().ok().says("nothing to do");
}

/// A write that a leader drops during its handover would wait for seven seconds. Several writers hit that soon, and
/// many readers show whether a member that stops fails a read. That many clients keep two processors busy with all
/// three hosts, so one of the three rounds may be late for any reason; the stalls of the machine are printed beside it.
/// A failed read is never accepted.
fn handed(w: &World) {
    w.hactl.up().ok();
    let mut rounds = Vec::new();
    for most in [200, 201, 202] {
        let writers: Vec<_> = (0..3).map(|n| Writer::start(&w.api(), &format!("w-handed-{most}-{n}"))).collect();
        let reading = w.api().reads(Duration::from_millis(10));
        let ran = with(w, &format!("etcd: {{args: {{max-txn-ops: {most}}}}}")).up().ok();
        assert!(in_one_line(&ran).contains("transfer etcd's leadership to https://"), "{}", ran.all());
        assert!(!ran.all().contains("still sends clients"), "{}", ran.all());
        let reads = reading.end();
        let (read, slow) = nobody_failed(w, &reads, 0);
        let paused = writers.into_iter().map(|writer| {
            let (written, longest) = writer.end_within(DROPPED);
            println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.2?}");
            longest
        });
        let longest = paused.chain([read]).max().filter(|longest| *longest >= late(&reads));
        rounds.extend(longest.map(|longest| format!("{longest:.2?}, slow reads: {slow}")));
    }
    assert!(rounds.len() < 2, "clients were late in more than one round: {rounds:?}");
    w.hactl.up().ok();
}

/// Waits until a balancer on its host is paused, prints that, and prints when none is paused any more.
const PAUSED: &str = "still() { ps -C haproxy -o stat= | grep -q T; }; i=0; \
                        while ! still; do i=$((i+1)); [ $i -lt 6000 ] || exit 1; sleep 0.01; done; \
                        echo stands; while still; do sleep 0.01; done; echo runs";
/// Balancers are paused for 0.8 s at most, and a busy host needs some time to resume them.
const PAUSE: Duration = Duration::from_secs(2);

/// The balancers are resumed neither by the process that is killed nor over a connection that ends with it.
fn killed_while_balancers_are_paused(w: &World) {
    w.hactl.up().ok();
    let changed = with(w, "etcd: {args: {max-txn-ops: 203}}");
    let mut watch = w.lab.ssh("cp1").expect("the host exists");
    let mut watch = watch.arg(PAUSED).stdout(Stdio::piped()).spawn().expect("ssh runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut next_line = move || lines.next().expect("another line comes").expect("it is read");
    let mut child = changed.command(&["up", "--yes"]).stdout(Stdio::null()).spawn().expect("hactl can be started");
    assert_eq!(next_line(), "stands");
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let killed = Instant::now();
    assert_eq!(next_line(), "runs");
    println!("        they ran again {:.2?} after hactl was killed", killed.elapsed());
    assert!(killed.elapsed() < PAUSE, "{:?}", killed.elapsed());
    assert!(watch.wait().expect("it ends").success());
    for host in members(w) {
        let still = w.on(host, "ps -C haproxy -o stat= | grep T");
        assert_eq!(still, "", "{host}: a balancer is paused");
        wait_for("the unit that resumed it is gone", Duration::from_secs(15), || {
            w.on(host, "systemctl list-units --all --no-legend 'run-*.service'").trim().is_empty()
        });
    }
    once_free(GIVEN_BACK, || changed.up()).ok();
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(60));
}

/// Prints the members that the host's etcd balancer sends no connection to.
const PASSED_OVER: &str = "sudo perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => \"/run/hactl-etcd-balancer.sock\") or die; \
                           print $s \"show stat members 4 -1\\n\"; while (<$s>) { @c = split /,/; print \"$c[1] \" if /,MAINT,/ }'";
/// Starts the service of every timer that ends it, and prints how many there are.
const END_IT: &str = "sudo sh -c 'for t in $(systemctl list-units --no-legend --plain \"hactl-passes-over-*.timer\" | cut -d\" \" -f1); do \
                      systemctl start ${t%.timer}.service; echo $t; done' | wc -l";

/// The hosts whose balancer passes over a member, with the names that `PASSED_OVER` prints.
fn passed_over(w: &World) -> Vec<(&str, String)> {
    let all = members(w).into_iter().map(|host| (host, w.on(host, PASSED_OVER).trim().to_owned()));
    all.filter(|(_, names)| !names.is_empty()).collect()
}

fn killed_while_passed_over(w: &World) {
    w.hactl.up().ok();
    assert!(passed_over(w).is_empty(), "{:?}", passed_over(w));
    let changed = with(w, "etcd: {args: {max-txn-ops: 204}}");
    let mut child = changed.command(&["up", "--yes"]).stdout(Stdio::null()).spawn().expect("hactl can be started");
    wait_for("a member is passed over", Duration::from_secs(60), || !w.on("cp1", PASSED_OVER).trim().is_empty());
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let over = passed_over(w);
    println!("        passed over after the kill: {over:?}");
    assert!(!over.is_empty(), "it was killed while a member was passed over");
    w.healthy(Duration::from_secs(60));
    let ended: usize =
        members(w).into_iter().map(|host| w.on(host, END_IT).trim().parse::<usize>().expect("a number")).sum();
    assert!(ended >= over.len(), "one timer each: {ended}");
    assert!(passed_over(w).is_empty(), "each timer has ended it: {:?}", passed_over(w));
    let reading = w.api().reads(Duration::from_millis(20));
    once_free(GIVEN_BACK, || changed.up()).ok();
    unnoticed(w, &reading.end());
    assert!(passed_over(w).is_empty(), "the run that restarts the member undoes it: {:?}", passed_over(w));
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(60));
    assert!(passed_over(w).is_empty(), "the run that restarts the member undoes it: {:?}", passed_over(w));
}

fn killed(w: &World) {
    w.hactl.up().ok();
    let before = files(w);
    let bad = with(w, "kube-apiserver: {args: {event-ttl: soon}}");
    for mended in [false, true] {
        let mut child = bad.command(&["up", "--yes"]).spawn().expect("hactl can be started");
        wait_for("a host keeps its previous files", Duration::from_secs(60), || {
            members(w).into_iter().any(|host| w.on(host, "sudo ls /var/lib/hactl/kept").contains("control-plane.json"))
        });
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let ran = once_free(GIVEN_BACK, || if mended { w.hactl.up() } else { bad.up() });
        if mended {
            ran.ok();
        } else {
            let ran = ran.exits(1);
            assert!(in_one_line(&ran).contains("the previous files were restored"), "{}", ran.all());
            assert!(!ran.all().contains("and 1 other step"), "other hosts wait for the one on trial: {}", ran.all());
        }
        assert_eq!(files(w), before, "every host has its previous files");
        w.healthy(Duration::from_secs(120));
        w.hactl.up().ok().says("nothing to do");
    }
}
