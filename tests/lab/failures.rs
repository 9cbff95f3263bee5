//! Hosts that lose power, cables, disks and processes while a client keeps writing.

use super::leaving::move_leadership_to;
use super::shutdown::LOST;
use super::support::{Api, Probe, Reads, Writer, wait_for};
use super::trials::{LATE, late};
use super::{Scenario, World};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "each host in turn loses power under writes, and no acknowledged write is lost",
        cut: false,
        run: each_host,
    },
    Scenario { name: "a host that loses power under writes recovers automatically", cut: true, run: one_host },
    Scenario { name: "up brings back a host that lost its disks", cut: false, run: wiped },
    Scenario {
        name: "killed schedulers, controller managers and API servers restart, and another host leads",
        cut: false,
        run: processes,
    },
    Scenario {
        name: "connections that begin after an API server was killed do not fail",
        cut: false,
        run: killed_api_server,
    },
    Scenario {
        name: "while etcd elects a leader, balancers keep an API server and reads wait for the election at most",
        cut: false,
        run: leader_dies,
    },
    Scenario { name: "the endpoint answers within a second after the VIP holder loses power", cut: false, run: holder },
    Scenario {
        name: "a VIP that a reload of the network dropped is back within three seconds",
        cut: false,
        run: address_dropped,
    },
    Scenario { name: "up names a host whose cable is pulled", cut: false, run: cut_off },
    Scenario { name: "the cluster recovers when all hosts boot at once", cut: false, run: cold_start },
    Scenario {
        name: "the endpoint serves when all hosts but one boot, whichever is missing",
        cut: false,
        run: cold_start_without_one,
    },
    Scenario {
        name: "without a quorum, status names the newest data, and up refuses and names recover",
        cut: false,
        run: lost_quorum,
    },
    Scenario {
        name: "the documented manual procedure restores a quorum that is lost for good",
        cut: false,
        run: by_hand,
    },
];

const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];
const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);
/// Until another host leads: a Lease of 15 s has to expire, twice if the host of the old holder acquires it again.
pub const LEADS: Duration = Duration::from_secs(60);
/// Until systemd has started a service again, on a busy host: the longest `RestartSec` is five seconds.
const RESTARTED: Duration = Duration::from_secs(20);
/// How long a killed process may take to disappear.
const DYING: Duration = Duration::from_millis(300);
/// Announcements this close together belong to one move of the VIP, seconds: keepalived's `advert_int`.
const ONE_MOVE_S: f64 = 0.2;
/// Twice etcd's election timeout, and half a second until a member retries a read that the old leader did not answer.
const ELECTION: Duration = Duration::from_millis(2500);
/// How many writes of one client may fail: those at the API server whose member died, and one that the leader had
/// accepted.
const REFUSED: usize = 10;

/// A host is off for as long as leases last, under writes, and recovers automatically.
pub fn power_cycle(w: &World, host: &str, writes: &str) {
    let writer = Writer::start(&w.api(), writes);
    std::thread::sleep(Duration::from_secs(2));
    w.lab.kill(host).expect("the power can be cut");
    // Long enough for leases to expire: leadership must move within that time.
    std::thread::sleep(Duration::from_secs(18));
    let status = w.hactl.run(&["status"]).exits(4);
    for lease in ["one leading scheduler", "one leading controller manager"] {
        let line = status.out.lines().find(|l| l.contains(lease)).unwrap_or_default();
        assert!(!line.contains("has not renewed") && !line.contains(host), "{lease} after {host} died: {line}");
    }
    w.lab.start(host, BOOT).expect("the host boots");
    w.healthy(HEAL);
    let (written, longest) = writer.end();
    println!("        {host} off: {written} writes acknowledged, longest pause {longest:.1?}");
    assert!(longest < Duration::from_secs(15), "no write was acknowledged for {longest:?} while {host} was off");
}

fn each_host(w: &World) {
    for host in HOSTS {
        power_cycle(w, host, &format!("w-{host}"));
        w.hactl.up().ok().says("nothing to do");
    }
}

pub fn one_host(w: &World) {
    power_cycle(w, "cp1", "w-one");
    w.hactl.up().ok().says("nothing to do");
}

pub fn wiped(w: &World) {
    let writer = Writer::start(&w.api(), "w-wiped");
    w.wipe("cp2");
    w.hactl.run(&["plan", "--exit-code"]).exits(5).says("remove member").says("add learner").says("promote");
    w.hactl.run(&["up"]).exits(3).says("--yes");
    w.hactl.up().ok();
    writer.end();
    w.hactl.up().ok().says("nothing to do");
}

fn kill_process(w: &World, host: &str, name: &str) {
    let killed = w.on(host, &format!("sudo sh -c 'kill -KILL $(pgrep -x {name})' && echo killed"));
    assert_eq!(killed.trim(), "killed", "{name} runs on {host}");
}

/// Waits until a process runs: the kubelet may delay the restart of one that was killed repeatedly.
fn runs(w: &World, host: &str, name: &str) {
    let pgrep = format!("pgrep -x {name}");
    wait_for(&format!("{name} runs on {host}"), HEAL, || !w.on(host, &pgrep).trim().is_empty());
}

/// The holder of a leader election Lease, which is HOST_UUID, and how often it has changed.
pub fn lease(api: &Api, name: &str) -> Option<(String, u64)> {
    let lease = api.get(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}")).ok()?;
    let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    Some((holder.to_owned(), lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0)))
}

/// Kills the leading instance of a component, and its successors on the same host, until another host leads.
fn leader_moves(w: &World, component: &str, process: &str) {
    let api = w.api();
    let (holder, transitions) = lease(&api, component).expect("some instance leads");
    let host = holder.split('_').next().unwrap_or_default();
    kill_process(w, host, process);
    let again = format!("sudo pkill -KILL -x {process}");
    let mut now = None;
    let took = wait_for(&format!("another host than {host} leads with {component}"), LEADS, || {
        w.on(host, &again);
        now = lease(&api, component).filter(|(new, _)| new.split('_').next() != Some(host));
        now.is_some()
    });
    let (new, after) = now.expect("just found");
    println!("        {component}: {holder} was killed, {new} leads after {took:.1?}");
    assert!(after > transitions, "{component}: the Lease has changed {after} times, and {transitions} times before");
    runs(w, host, process);
    w.healthy(HEAL);
}

/// The services of each control-plane host.
const SERVICES: [&str; 9] = [
    "etcd",
    "containerd",
    "kubelet",
    "haproxy",
    "keepalived",
    "hactl-etcd-balancer",
    "hactl-vrrp-filter",
    "hactl-approver",
    "hactl-positions",
];

/// Kills each service of a host as the kernel does when memory is short: systemd starts it again.
fn services_restart(w: &World, host: &str) {
    let pid = |unit: &str| w.on(host, &format!("systemctl show -p MainPID --value {unit}")).trim().to_owned();
    for unit in SERVICES {
        let before = pid(unit);
        let killed = w.on(host, &format!("sudo kill -KILL {before} && echo killed"));
        assert_eq!(killed.trim(), "killed", "{unit} runs on {host}");
        let took = wait_for(&format!("systemd starts {unit} of {host}"), RESTARTED, || {
            let active = w.on(host, &format!("systemctl is-active {unit} || true"));
            active.trim() == "active" && pid(unit) != before
        });
        println!("        {unit} of {host} was killed and is active again after {took:.1?}");
    }
    w.healthy(HEAL);
}

fn processes(w: &World) {
    services_restart(w, holder_of(w));
    leader_moves(w, "kube-scheduler", "kube-scheduler");
    leader_moves(w, "kube-controller-manager", "kube-controller");
    for name in ["kube-scheduler", "kube-controller", "kube-apiserver"] {
        for host in HOSTS {
            runs(w, host, name);
            kill_process(w, host, name);
        }
        for host in HOSTS {
            runs(w, host, name);
        }
        w.healthy(HEAL);
    }
    w.hactl.up().ok().says("nothing to do");
}

/// The reads that failed although they began well before a process was killed, or well after. A dying process closes
/// its sockets a little later, and the kernel accepts connections for it until then: those few are lost.
fn failed_apart(reads: &Reads, killing: Duration, killed: Duration) -> Vec<&Probe> {
    let apart = |k: &Probe| k.0 > killed + DYING || k.0 + DYING < killing;
    reads.iter().filter(|k| k.2.is_some() && apart(k)).collect()
}

fn killed_api_server(w: &World) {
    let api = w.api();
    for host in HOSTS {
        let reading = api.reads(Duration::from_millis(20));
        std::thread::sleep(Duration::from_secs(1));
        let before = reading.elapsed();
        kill_process(w, host, "kube-apiserver");
        let after = reading.elapsed();
        std::thread::sleep(Duration::from_secs(4));
        let reads = reading.end();
        let failed: Vec<_> = reads.iter().filter(|k| k.2.is_some()).collect();
        println!("        {host}: {} of {} new connections failed, {failed:?}", failed.len(), reads.len());
        let apart = failed_apart(&reads, before, after);
        assert!(apart.is_empty(), "new connections fail after {host}'s API server died: {apart:?}");
        assert!(failed.len() * 20 < reads.len(), "{} of {} new connections failed", failed.len(), reads.len());
        w.healthy(HEAL);
    }
}

fn leader_dies(w: &World) {
    let leader = HOSTS.into_iter().find(|h| leads(w, h)).expect("some member leads");
    let none =
        |host: &str| w.on(host, "sudo journalctl -t haproxy -o cat | grep -c 'api-servers has no server available'");
    let before = HOSTS.map(none);
    let (reading, writer) = (w.api().reads(Duration::from_millis(20)), Writer::start(&w.api(), "w-leader"));
    std::thread::sleep(Duration::from_secs(1));
    let killing = reading.elapsed();
    kill_process(w, leader, "etcd");
    let killed = reading.elapsed();
    wait_for("another member leads", Duration::from_secs(20), || HOSTS.into_iter().any(|h| leads(w, h)));
    std::thread::sleep(Duration::from_secs(4));
    let reads = reading.end();
    let failed: Vec<_> = reads.iter().filter(|k| k.2.is_some()).collect();
    let longest = reads.iter().map(|k| k.1).max().unwrap_or_default();
    println!("        {leader} led: {} of {} failed, longest {longest:.1?}", failed.len(), reads.len());
    let (written, refused, pause) = writer.account();
    println!("        {written} writes acknowledged, none lost, {refused} failed; the longest pause: {pause:.1?}");
    assert_eq!(before, HOSTS.map(none), "a balancer had no API server left although all of them run: {failed:?}");
    let apart = failed_apart(&reads, killing, killed);
    assert!(apart.is_empty(), "reads fail after {leader}'s member died: {apart:?}");
    assert!(failed.len() * 20 < reads.len(), "{} of {} reads failed", failed.len(), reads.len());
    let bound = ELECTION + late(&reads);
    assert!(longest < bound, "a read waited for {longest:?}, and an election takes less than {bound:?}");
    let bound = LOST + reads.stalled;
    assert!(pause < bound, "no write was acknowledged for {pause:?}, and a lost one ends before {bound:?}");
    assert!(refused <= REFUSED, "{refused} writes failed");
    w.healthy(HEAL);
}

/// Whether the member of this host reports that it is etcd's leader.
pub fn leads(w: &World, host: &str) -> bool {
    w.on(host, "curl -s http://127.0.0.1:2384/metrics").contains("\netcd_server_is_leader 1")
}

/// The host that holds the VIP.
pub fn holder_of(w: &World) -> &'static str {
    holder_among(w, &HOSTS)
}

/// The one of these hosts that holds the VIP.
pub fn holder_among(w: &World, hosts: &[&'static str]) -> &'static str {
    let vip = format!(" {}/", w.lab.vip());
    let mut found = None;
    wait_for("a host holds the VIP", Duration::from_secs(20), || {
        found = hosts.iter().copied().find(|h| w.on(h, "ip -4 addr").contains(&vip));
        found.is_some()
    });
    found.expect("just found")
}

/// Each time since then that one of these hosts took the VIP, as its keepalived logged it.
pub fn moves_since(w: &World, hosts: &[&str], since: SystemTime) -> Vec<String> {
    let since = since.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let ask = format!("sudo journalctl -u keepalived --since @{since} -o short-precise -q | grep -F 'Entering MASTER'");
    hosts.iter().flat_map(|host| w.on(host, &ask).lines().map(ToOwned::to_owned).collect::<Vec<_>>()).collect()
}

/// How many moves these are: when a holder falls silent, several hosts may announce themselves within the same
/// moment, and all but one of them withdraw.
pub fn distinct(moves: &[String]) -> usize {
    let seconds = |line: &String| -> Option<f64> {
        let clock = line.split_whitespace().nth(2)?;
        clock.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))
    };
    let mut times: Vec<f64> = moves.iter().map(|line| seconds(line).expect("journalctl prints the time")).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.chunk_by(|a, b| b - a < ONE_MOVE_S).count()
}

/// A host that got no processor for so long says nothing about a cluster: the machine stood still.
const STOOD_STILL: Duration = Duration::from_secs(2);

fn holder(w: &World) {
    let measured = (1..=3).any(|_| {
        let is_measured = holder_dies(w);
        w.healthy(HEAL);
        is_measured
    });
    assert!(measured, "the machine stood still in each of three measurements");
}

/// Cuts the power of the VIP holder, and switches it on again. Returns whether something was measured: not if the
/// machine stood still meanwhile.
fn holder_dies(w: &World) -> bool {
    let holder = holder_of(w);
    // If etcd's leader died as well, reads would wait for an election: that is another scenario.
    if leads(w, holder) {
        move_leadership_to(w, HOSTS.into_iter().find(|host| *host != holder).expect("there are three"));
    }
    let reading = w.api().reads(Duration::from_millis(20));
    std::thread::sleep(Duration::from_secs(1));
    w.lab.kill(holder).expect("the power can be cut");
    let off = reading.elapsed();
    std::thread::sleep(Duration::from_secs(6));
    let reads = reading.end();
    assert_ne!(holder_of(w), holder);
    w.lab.start(holder, BOOT).expect("the host boots");
    if reads.stalled >= STOOD_STILL {
        println!("        spoilt: a host got no processor for {:.1?}", reads.stalled);
        return false;
    }
    let (within, missed) = (late(&reads), |k: &&Probe| k.2.is_some() || k.1 >= LATE);
    // The host died before the call returned, and the first connection without an answer shows when.
    let died = reads.iter().find(missed).map_or(off, |k| k.0.min(off));
    let last = reads.iter().rev().find(missed).map_or(died, |k| k.0);
    let away = last.saturating_sub(died);
    println!("        {holder} died: for {away:.2?} new connections were not answered within {LATE:?}");
    let after: Vec<_> = reads.iter().filter(|k| k.0 >= died + within).collect();
    assert!(after.len() > 100, "{} connections came after it", after.len());
    let unanswered: Vec<_> = after.iter().filter(|k| k.2.is_some() || k.1 >= within).collect();
    assert!(unanswered.is_empty(), "the endpoint does not answer {within:?} after {holder} died: {unanswered:?}");
    true
}

/// What systemd-networkd and NetworkManager do when they reload: they remove every address that is not in their
/// configuration. (networkd itself does nothing in a container without udev.)
fn address_dropped(w: &World) {
    let holder = holder_of(w);
    let reading = w.api().reads(Duration::from_millis(20));
    std::thread::sleep(Duration::from_secs(1));
    let gone = reading.elapsed();
    let found = format!("ip -o -4 address show to {} | awk '{{print $4, \"dev\", $2}}'", w.lab.vip());
    let dropped = w.on(holder, &format!("sudo ip address del $({found}) && echo dropped"));
    assert_eq!(dropped.trim(), "dropped");
    std::thread::sleep(Duration::from_secs(5));
    let reads = reading.end();
    let failed = reads.iter().filter(|k| k.2.is_some()).map(|k| k.0.saturating_sub(gone));
    let last = failed.max().unwrap_or_default();
    println!("        {holder} dropped the VIP: the endpoint failed for {last:.1?}");
    assert!(last < Duration::from_secs(3), "the endpoint failed for {last:?} after {holder} dropped its address");
    holder_of(w);
    w.hactl.up().ok().says("nothing to do");
}

fn cut_off(w: &World) {
    w.lab.cut("cp3").expect("the cable can be pulled");
    w.hactl.up().exits(1).says("cp3");
    w.hactl.run(&["status"]).exits(4).says("cp3");
    w.lab.mend("cp3").expect("the cable can be plugged in");
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

fn cold_start(w: &World) {
    for host in HOSTS {
        w.lab.kill(host).expect("the power can be cut");
    }
    for host in HOSTS {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

fn cold_start_without_one(w: &World) {
    for missing in HOSTS {
        for host in HOSTS {
            w.lab.kill(host).expect("the power can be cut");
        }
        for host in HOSTS.into_iter().filter(|h| *h != missing) {
            w.lab.start(host, BOOT).expect("the host boots");
        }
        let api = w.api();
        let took =
            wait_for("the endpoint serves a quorum read", HEAL, || api.get("/api/v1/namespaces/default").is_ok());
        println!("        without {missing}: served after {took:.1?}");
        w.lab.start(missing, BOOT).expect("the host boots");
        w.healthy(HEAL);
    }
}

/// The position that a running member reports: its raft index, and the revision of its store.
fn said_by_member(w: &World, host: &str) -> (u64, u64) {
    let files = "--cacert=/etc/etcd/pki/ca.crt --cert=/etc/etcd/pki/observer.crt --key=/etc/etcd/pki/observer.key";
    let shown = w.on(host, &format!("sudo etcdctl --endpoints=https://127.0.0.1:2379 {files} endpoint status -w json"));
    let shown: Value = serde_json::from_str(&shown).unwrap_or_else(|e| panic!("{host}: {e}: {shown}"));
    let status = &shown[0]["Status"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{host}: {shown}"));
    (number(&status["raftIndex"]), number(&status["header"]["revision"]))
}

/// `status` finds the newest data in the files, also where no member runs: cp1's member stops before further writes.
fn newest_data(w: &World) {
    w.on("cp1", "sudo systemctl stop etcd");
    let writer = Writer::start(&w.api(), "w-newest");
    std::thread::sleep(Duration::from_secs(3));
    writer.end();
    w.lab.kill("cp2").expect("the power can be cut");
    let status = w.hactl.run(&["status"]).exits(7).says("no quorum").says("newest").says("OLDER");
    println!("{}", status.out.lines().skip_while(|l| !l.starts_with("ETCD")).take(6).collect::<Vec<_>>().join("\n"));
    let status = w.hactl.run(&["status", "-o", "json"]).exits(7);
    let status: Value = serde_json::from_str(&status.out).expect("one object");
    let evidence = status["etcd"]["evidence"].as_array().expect("no quorum answers");
    let disk = |host: &str| &evidence.iter().find(|e| e["host"] == host).expect("every host of etcd")["disk"];
    let end = |host: &str| (disk(host)["term"].as_u64(), disk(host)["entry"].as_u64());
    assert_eq!((&disk("cp1")["newest"], &disk("cp3")["newest"]), (&Value::Bool(false), &Value::Bool(true)), "{status}");
    assert!(disk("cp2").is_null(), "{status}");
    assert!(end("cp1") < end("cp3") && disk("cp1")["revision"].as_i64() < disk("cp3")["revision"].as_i64(), "{status}");
    // The log extends beyond the committed entries: the last writer gets no answer and tries again.
    let (index, revision) = said_by_member(w, "cp3");
    let entry = end("cp3").1.expect("a number");
    assert!((index..index + 100).contains(&entry), "the member says {index}: {status}");
    assert_eq!(disk("cp3")["revision"].as_u64(), Some(revision), "the file says what the member says: {status}");
    assert_eq!(disk("cp3")["flaws"], serde_json::json!([]), "{status}");
}

fn lost_quorum(w: &World) {
    newest_data(w);
    w.lab.kill("cp1").expect("the power can be cut");
    w.hactl.up().exits(3).says("no quorum").says("hactl recover").says("cp3");
    w.hactl.run(&["status"]).exits(7).says("no quorum");
    w.lab.start("cp1", BOOT).expect("the host boots");
    w.lab.start("cp2", BOOT).expect("the host boots");
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

fn by_hand(w: &World) {
    let documented = include_str!("../../docs/troubleshooting.md");
    let block = documented.split_once("```sh\n").and_then(|(_, rest)| rest.split_once("```")).expect("a script").0;
    let script: String = block.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
    let writer = Writer::start(&w.api(), "w-by-hand");
    std::thread::sleep(Duration::from_secs(3));
    writer.end();
    w.wipe("cp1");
    w.wipe("cp2");
    w.hactl.up().exits(3).says("no quorum").says("docs/troubleshooting.md");
    let output = w.lab.ssh("cp3").expect("the host exists").arg(format!("sudo sh -c '{script}' 2>&1")).output();
    let output = output.expect("ssh can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    w.hactl.run(&["plan", "--exit-code"]).exits(5).says("add learner");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    let there = w.api().get("/api/v1/namespaces/default/configmaps/w-by-hand-0");
    assert!(there.is_ok(), "what was written before is there: {there:?}");
}
