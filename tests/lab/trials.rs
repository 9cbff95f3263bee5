//! Settings that a component does not come up with: they stop at the first host, which goes back to what it had, and nobody notices.

use super::bare_hosts::variant;
use super::recover::members;
use super::support::{GIVEN_BACK, Hactl, Knocks, Probe, Writer, once_free, wait_for};
use super::{Scenario, World, in_one_line};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a flag that no API server comes up with stops at the first host, which goes back, and no client notices",
        cut: true,
        run: api_server,
    },
    Scenario {
        name: "what a scheduler, a kubelet and etcd do not come up with stops at the first host, which goes back",
        cut: false,
        run: others,
    },
    Scenario {
        name: "members are restarted one after the other: no reader notices, and of those who write nobody waits for who hands over the lead",
        cut: true,
        run: handed,
    },
    Scenario {
        name: "a run that is killed while the balancers stand still leaves none standing",
        cut: false,
        run: killed_while_balancers_stand,
    },
    Scenario {
        name: "a run that is killed while a member is passed over leaves it so until a timer ends it, and the next one goes on",
        cut: false,
        run: killed_while_passed_over,
    },
    Scenario {
        name: "killed while a host tries what does not come up, the same command goes back, and a mended one goes on",
        cut: false,
        run: killed,
    },
];

/// Everything that a rollout could change on a host.
const FILES: &str = "sudo sh -c 'sha256sum /etc/kubernetes/manifests/* /etc/kubernetes/config/* /etc/systemd/system/kubelet.service \
                     /var/lib/kubelet/config.yaml /etc/etcd/*.env /etc/systemd/system/etcd.service 2>/dev/null; ls /var/lib/hactl/kept'";
/// A connection is late when it takes longer, on a machine that has processors for all.
pub const LATE: Duration = Duration::from_secs(1);
/// No write that etcd has dropped is told so sooner: five seconds and two elections.
const DROPPED: Duration = Duration::from_secs(5);
/// Told, for whoever wonders when it was.
const SLOW: Duration = Duration::from_millis(800);

/// The lab's inventory with this put first into `extra`.
fn with(w: &World, extra: &str) -> Hactl {
    variant(w, "trial.yaml", |text| text.replace("extra: {", &format!("extra: {{{extra}, ")))
}

fn kubelet(w: &World, config: &str) -> Hactl {
    variant(w, "trial.yaml", |text| text.replace("kubelet: {config: {", &format!("kubelet: {{config: {{{config}, ")))
}

fn files(w: &World) -> Vec<String> {
    members(w).into_iter().map(|host| w.on(host, FILES)).collect()
}

/// `up` fails on one host, which is as it was afterwards, and so are the others.
fn goes_back(w: &World, hactl: &Hactl, told: &str) {
    let before = files(w);
    let begun = Instant::now();
    let ran = hactl.up().exits(1);
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    println!("        back after {:.1?}", begun.elapsed());
    let said = in_one_line(&ran);
    assert!(said.contains("the earlier files are back, and it runs by them again"), "{}", ran.all());
    assert!(ran.all().contains(told), "{told:?} tells why: {}", ran.all());
    assert!(said.contains("fix the setting in the inventory"), "{}", ran.all());
    assert_eq!(files(w), before, "every host has what it had");
    assert!(begun.elapsed() < Duration::from_secs(100), "nobody waits for what cannot come up");
    w.healthy(Duration::from_secs(60));
}

/// Those who are cut off by one move end within this of one another.
const AT_ONCE: Duration = Duration::from_millis(150);
/// Who was at it for longer had failed before.
const IN_FLIGHT: Duration = Duration::from_millis(400);

/// Nobody failed and nobody waited, whoever holds the endpoint's address.
pub fn unnoticed(knocks: &Knocks) {
    unnoticed_but_for_moves(knocks, 0);
}

/// The same where the endpoint's address moves so many times.
pub fn unnoticed_but_for_moves(knocks: &Knocks, moves: usize) {
    let (longest, slow) = nobody_failed(knocks, moves);
    assert!(longest < late(knocks), "somebody waited for {longest:?}, not for {:?}: {slow}", late(knocks));
}

/// When somebody is late: all hosts share this machine's processors, and while one gets none, what it serves waits.
pub fn late(knocks: &Knocks) -> Duration {
    LATE + knocks.stalled
}

/// Nobody failed. How long whoever waited longest did, and who was slow.
fn nobody_failed(knocks: &Knocks, moves: usize) -> (Duration, String) {
    let failed = failed_but_for_moves(knocks, moves, IN_FLIGHT);
    let longest = knocks.iter().map(|k| k.1).max().unwrap_or_default();
    println!("        {} connections, {} failed, the longest took {longest:.2?}", knocks.len(), failed.len());
    let slow: Vec<String> =
        knocks.iter().filter(|k| k.1 > SLOW).map(|k| format!("{:.1?} at {:.1?}", k.1, k.0)).collect();
    let slow = slow.join(", ");
    if !slow.is_empty() {
        println!("        slow: {slow}");
    }
    assert!(failed.is_empty(), "{failed:?}");
    (longest, slow)
}

/// Who failed, where the endpoint's address moves so many times. A connection lives on the host that had the address when it was opened, so
/// whoever is in the midst of a request at that moment, for `in_flight` at most, is cut off, all at once; who comes before and after is served.
pub fn failed_but_for_moves(knocks: &[Probe], moves: usize, in_flight: Duration) -> Vec<&Probe> {
    let mut cut_off: Vec<Duration> = knocks.iter().filter(|k| k.2.is_some()).map(|k| k.0 + k.1).collect();
    cut_off.sort_unstable();
    let moments = cut_off.chunk_by(|a, b| b.saturating_sub(*a) < AT_ONCE).count();
    let failed: Vec<_> =
        knocks.iter().filter(|k| k.2.is_some()).filter(|k| moments > moves || k.1 > in_flight).collect();
    if !cut_off.is_empty() && failed.is_empty() {
        println!("        {} cut off in the midst as the address moved, at {cut_off:.2?}", cut_off.len());
    }
    failed
}

fn api_server(w: &World) {
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(60));
    let writer = Writer::start(&w.api(), "w-trial");
    let knocking = w.api().reads(Duration::from_millis(20));
    goes_back(w, &with(w, "kube-apiserver: {args: {event-ttl: soon}}"), "event-ttl");
    let knocks = knocking.end();
    unnoticed(&knocks);
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    assert!(longest < late(&knocks), "a write waited for {longest:?}");
    w.hactl.up().ok().says("nothing to do");
}

fn others(w: &World) {
    w.hactl.up().ok();
    goes_back(w, &with(w, "kube-scheduler: {args: {kube-api-burst: many}}"), "kube-api-burst");
    let knocking = w.api().reads(Duration::from_millis(20));
    goes_back(w, &kubelet(w, "evictionHard: {memory.available: little}"), "quantities");
    goes_back(w, &with(w, "etcd: {args: {max-txn-ops: many}}"), "many");
    unnoticed(&knocking.end());
    w.hactl.up().ok().says("nothing to do");
}

/// Writes that a leader drops while it hands over would wait for seven seconds each: several who write meet that soon, and many who read find
/// out whether a member that stops fails any. So many keep two processors busy with all three hosts: one round of the three may be late, whatever
/// the reason; what the machine says of itself stands beside it. Who fails is not forgiven.
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
        let (read, slow) = nobody_failed(&reads, 0);
        let paused = writers.into_iter().map(|writer| {
            let (written, longest) = writer.end_within(DROPPED);
            println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.2?}");
            longest
        });
        let longest = paused.chain([read]).max().filter(|longest| *longest >= late(&reads));
        rounds.extend(longest.map(|longest| format!("{longest:.2?}, who read: {slow}")));
    }
    assert!(rounds.len() < 2, "they waited again and again: {rounds:?}");
    w.hactl.up().ok();
}

/// Waits until a balancer on its host stands still, tells so, and tells when none does any more.
const STANDING: &str = "still() { ps -C haproxy -o stat= | grep -q T; }; i=0; \
                        while ! still; do i=$((i+1)); [ $i -lt 6000 ] || exit 1; sleep 0.01; done; \
                        echo stands; while still; do sleep 0.01; done; echo runs";
/// Balancers stand still for 0.8 s at most, and a busy host needs a moment to see to it.
const STANDS: Duration = Duration::from_secs(2);

/// Who lets the balancers run again is neither the process that is killed nor a connection that ends with it.
fn killed_while_balancers_stand(w: &World) {
    w.hactl.up().ok();
    let changed = with(w, "etcd: {args: {max-txn-ops: 203}}");
    let mut watch = w.lab.ssh("cp1").expect("the host exists");
    let mut watch = watch.arg(STANDING).stdout(Stdio::piped()).spawn().expect("ssh runs");
    let mut told = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut tells = move || told.next().expect("it goes on").expect("it is read");
    let mut child = changed.command(&["up", "--yes"]).stdout(Stdio::null()).spawn().expect("hactl can be started");
    assert_eq!(tells(), "stands");
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let killed = Instant::now();
    assert_eq!(tells(), "runs");
    println!("        they ran again {:.2?} after hactl was killed", killed.elapsed());
    assert!(killed.elapsed() < STANDS, "{:?}", killed.elapsed());
    assert!(watch.wait().expect("it ends").success());
    for host in members(w) {
        let still = w.on(host, "ps -C haproxy -o stat= | grep T");
        assert_eq!(still, "", "{host}: a balancer stands still");
        wait_for("whoever let it run is gone", Duration::from_secs(15), || {
            w.on(host, "systemctl list-units --all --no-legend 'run-*.service'").trim().is_empty()
        });
    }
    once_free(GIVEN_BACK, || changed.up()).ok();
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(60));
}

/// Prints the members that the host's balancer in front of etcd sends nobody to.
const PASSED_OVER: &str = "sudo perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => \"/run/hactl-etcd-balancer.sock\") or die; \
                           print $s \"show stat members 4 -1\\n\"; while (<$s>) { @c = split /,/; print \"$c[1] \" if /,MAINT,/ }'";
/// Has every timer that is to end it do so now, and prints how many there are.
const END_IT: &str = "sudo sh -c 'for t in $(systemctl list-units --no-legend --plain \"hactl-passes-over-*.timer\" | cut -d\" \" -f1); do \
                      systemctl start ${t%.timer}.service; echo $t; done' | wc -l";

/// Whether any member is passed over on a host, by the words that `END_IT` and `PASSED_OVER` print.
fn passed_over(w: &World) -> Vec<(&str, String)> {
    let told = members(w).into_iter().map(|host| (host, w.on(host, PASSED_OVER).trim().to_owned()));
    told.filter(|(_, names)| !names.is_empty()).collect()
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
    assert!(!over.is_empty(), "it was killed in the midst");
    w.healthy(Duration::from_secs(60));
    let ended: usize =
        members(w).into_iter().map(|host| w.on(host, END_IT).trim().parse::<usize>().expect("a number")).sum();
    assert!(ended >= over.len(), "a timer each: {ended}");
    assert!(passed_over(w).is_empty(), "each timer has ended it: {:?}", passed_over(w));
    let knocking = w.api().reads(Duration::from_millis(20));
    once_free(GIVEN_BACK, || changed.up()).ok();
    unnoticed(&knocking.end());
    assert!(passed_over(w).is_empty(), "whoever restarts a member undoes it: {:?}", passed_over(w));
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(60));
    assert!(passed_over(w).is_empty(), "whoever restarts a member undoes it: {:?}", passed_over(w));
}

fn killed(w: &World) {
    w.hactl.up().ok();
    let before = files(w);
    let bad = with(w, "kube-apiserver: {args: {event-ttl: soon}}");
    for mended in [false, true] {
        let mut child = bad.command(&["up", "--yes"]).spawn().expect("hactl can be started");
        wait_for("a host keeps what was replaced", Duration::from_secs(60), || {
            members(w).into_iter().any(|host| w.on(host, "sudo ls /var/lib/hactl/kept").contains("control-plane.json"))
        });
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let ran = once_free(GIVEN_BACK, || if mended { w.hactl.up() } else { bad.up() });
        if mended {
            ran.ok();
        } else {
            let ran = ran.exits(1);
            assert!(in_one_line(&ran).contains("the earlier files are back"), "{}", ran.all());
            assert!(!ran.all().contains("and 1 other step"), "the others wait for who is on trial: {}", ran.all());
        }
        assert_eq!(files(w), before, "every host has what it had");
        w.healthy(Duration::from_secs(120));
        w.hactl.up().ok().says("nothing to do");
    }
}
