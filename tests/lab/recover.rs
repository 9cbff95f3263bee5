//! etcd without a majority is recovered from the data that is left, and from nothing else.

use super::support::{Api, ETCDCTL, Ran, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a majority that lost its disks is recovered from the survivor without losing an acknowledged write",
        cut: true,
        run: survivor,
    },
    Scenario {
        name: "a recovery is undone, and the undo is undone, and each time the previous data is back",
        cut: false,
        run: undone,
    },
    Scenario {
        name: "recover refuses while hosts do not answer, unless they are confirmed to be powered off",
        cut: false,
        run: powered_off,
    },
    Scenario { name: "the fence blocks no healthy member, and a change of it restarts none", cut: true, run: harmless },
    Scenario {
        name: "a member with diverged keys is reported and replaced, and so is one with a damaged store",
        cut: false,
        run: odd,
    },
    Scenario {
        name: "under a CORRUPT alarm the API serves reads, status names recover, and recover clears the alarm",
        cut: false,
        run: alarm,
    },
];

/// On five members.
pub const FIVE: &[Scenario] = &[
    Scenario {
        name: "three of five lost their disks, and the newer of the two survivors is restored",
        cut: false,
        run: five,
    },
    Scenario {
        name: "five members: two lost their disks, and up adds them again under writes",
        cut: false,
        run: minority,
    },
    Scenario {
        name: "five members: three lost their disks without losing an acknowledged write",
        cut: false,
        run: survivor,
    },
    Scenario { name: "five members: a recovery is undone, and the undo is undone", cut: false, run: undone },
    Scenario {
        name: "five members: three do not answer, are confirmed to be off, and come back at once",
        cut: false,
        run: powered_off,
    },
    Scenario { name: "five members: the keys of one have diverged", cut: false, run: odd },
];

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);

/// The lab's hosts, each of them a member.
pub fn members(w: &World) -> Vec<&str> {
    w.lab.hosts().collect()
}

/// The first members, enough for a majority.
pub fn majority(w: &World) -> Vec<&str> {
    let members = members(w);
    members.iter().copied().take(members.len() / 2 + 1).collect()
}

/// A member that is not in that majority.
fn last(w: &World) -> &str {
    members(w).last().copied().expect("a lab has hosts")
}

/// What `status` says when all members are healthy.
pub fn all_healthy(w: &World) -> String {
    let count = members(w).len();
    format!("{count} voters, quorum {}, {count} healthy", count / 2 + 1)
}

/// A majority loses its disks, one host after the other: the remaining members have every write that is acknowledged in
/// between.
pub fn lose_majority(w: &World) {
    for host in majority(w) {
        w.lab.wipe(host).expect("the disks can be lost");
        std::thread::sleep(Duration::from_secs(3));
    }
    for host in majority(w) {
        w.lab.start(host, BOOT).expect("the host boots");
    }
}

/// Checks that it says that etcd was recovered from a surviving host.
fn from_a_survivor(w: &World, ran: &Ran) {
    let lost = majority(w);
    let left = members(w).into_iter().filter(|host| !lost.contains(host));
    let said = in_one_line(ran);
    assert!(left.map(|host| format!("etcd is recovered from {host}:")).any(|s| said.contains(&s)), "{}", ran.all());
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The newest revision that this API server shows.
pub fn newest(api: &Api) -> i64 {
    let list = api.get(&format!("{CONFIG_MAPS}?limit=1")).expect("it serves");
    list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a revision")
}

/// State that a dry run or a refusal must not change: the process of a surviving member, and its files.
pub fn untouched(w: &World) -> String {
    w.on(last(w), "systemctl show -p MainPID --value etcd; sudo ls -d /var/lib/etcd/*; systemctl is-active kubelet")
}

pub fn recover(w: &World, arguments: &[&str]) -> Ran {
    let ran = w.hactl.run(&[&["recover"], arguments].concat());
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    ran
}

fn survivor(w: &World) {
    w.hactl.up().ok();
    w.hactl
        .run(&["recover", "--yes"])
        .ok()
        .says(&format!("nothing to recover: all {} members of etcd are healthy", members(w).len()));
    let writer = Writer::start(&w.api(), "w-survivor");
    std::thread::sleep(Duration::from_secs(3));
    let watched = newest(&w.api());
    lose_majority(w);
    let before = untouched(w);
    w.hactl.up().exits(3).says("no quorum").says("hactl recover");
    recover(w, &["--dry-run"]).ok().says(last(w)).says("cannot be known").says("nothing was changed");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    assert_eq!(untouched(w), before, "nothing changes without consent");
    let recovered = recover(w, &["--yes"]).ok().says("Secrets decrypt").says("earlier tokens are accepted");
    from_a_survivor(w, &recovered);
    let (written, longest) = writer.end();
    println!(
        "        {written} writes acknowledged, none lost; the longest pause, until it was recovered: {longest:.1?}"
    );
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={watched}");
    let answer = w.hactl.kubectl(&["get", "--raw", &watch]).all();
    assert!(answer.contains("too old resource version"), "an older watch must start again: {answer}");
    w.hactl.up().ok().says("nothing to do");
    let left = w.on(last(w), "sudo ls /var/lib/etcd; sudo cat /var/lib/hactl/high-water");
    assert!(left.contains("member.moved-"), "the old data is there: {left}");
    assert!(!left.contains("hactl-recovery") && !left.contains("hactl-restoring"), "no scratch data is left: {left}");
    let base: i64 = left.lines().last().and_then(|l| l.trim().parse().ok()).expect("a revision");
    let now = newest(&w.api());
    assert!(now >= base, "no revision is issued twice: {now} after a leap to {base}");
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover");
}

fn undone(w: &World) {
    w.hactl.up().ok();
    let has = |name: &str| w.hactl.kubectl(&["get", "configmap", name, "-o", "name"]).code == 0;
    let make = |name: &str| drop(w.hactl.kubectl(&["create", "configmap", name]).ok());
    // A recovery of an earlier scenario will do.
    if w.on(last(w), "sudo sh -c 'ls -d /var/lib/etcd/member.moved-*'").is_empty() {
        lose_majority(w);
        w.hactl.run(&["recover", "--yes"]).ok();
    }
    make("after");
    let before = untouched(w);
    recover(w, &["--undo", "--dry-run"]).ok().says("would go back").says("revisions").says("nothing was changed");
    w.hactl.run(&["recover", "--undo"]).exits(3).says("no terminal");
    assert_eq!(untouched(w), before, "nothing changes without consent");
    recover(w, &["--undo", "--yes"]).ok().says(":member.moved-").says("are undone");
    assert!(!has("after"), "as it was when the majority was lost");
    w.hactl.up().ok().says("nothing to do");
    w.well().says(&all_healthy(w));
    make("between");
    recover(w, &["--undo", "--yes"]).exits(3).says("itself an undo");
    assert!(has("between"), "a second undo changes nothing");
    let moved = w.on("cp1", "sudo sh -c 'cd /var/lib/etcd; ls -d member.moved-* | tail -n 1'");
    let from = format!("cp1:{}", moved.trim());
    recover(w, &["--undo", "--yes", "--from", &from]).ok().says("etcd is recovered from cp1:member.moved-");
    assert!(has("after") && !has("between"), "as it was when the undo began");
    w.hactl.up().ok().says("nothing to do");
    w.hactl.kubectl(&["delete", "configmap", "after"]).ok();
}

fn odd(w: &World) {
    w.hactl.up().ok();
    other_keys(w);
    wait_for("status reports that the members disagree", HEAL, || {
        let status = w.hactl.run(&["status"]);
        status.out.contains("their data differs")
    });
    recover(w, &["--dry-run"])
        .ok()
        .says(&format!("{} members agree", members(w).len() - 1))
        .says("cp2 answers with other keys");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    recover(w, &["--yes"]).ok().says("cp2 joined again with the keys of the others");
    w.well().says("with one hash");
    let read = format!("{ETCDCTL} get /registry/configmaps/default/needle --consistency=s | grep -ac needle-of-all");
    assert_eq!(w.on("cp2", &read).trim(), "1", "cp2 has the data of the others");

    w.on("cp2", "sudo systemctl stop etcd; sudo sh -c 'head -c 40000 /dev/zero > /var/lib/etcd/member/snap/db'");
    let damaged = w.hactl.run(&["plan", "--exit-code"]).exits(5);
    assert!(in_one_line(&damaged).contains("its data on cp2 is damaged"), "{}", damaged.all());
    w.hactl.up().ok();
    w.well().says(&all_healthy(w)).says("with one hash");
    w.hactl.up().ok().says("nothing to do");
    w.hactl.kubectl(&["delete", "configmap", "needle"]).ok();
}

/// Changes keys of one member, in a store that etcd still opens.
pub fn other_keys(w: &World) {
    w.hactl.kubectl(&["create", "configmap", "needle", "--from-literal=is=needle-of-all"]).ok();
    // Of the same length, so that etcd can still open the store.
    w.on("cp2", "sudo systemctl stop etcd; sudo env LC_ALL=C sed -i s/needle-of-all/needle-of-cp2/g /var/lib/etcd/member/snap/db");
    w.on("cp2", "sudo chown etcd:etcd /var/lib/etcd/member/snap/db; sudo systemctl start etcd");
}

fn alarm(w: &World) {
    w.hactl.up().ok();
    other_keys(w);
    // Members compare their keys at every compaction.
    let revision = newest(&w.api());
    w.on("cp1", &format!("{ETCDCTL} put /x y; {ETCDCTL} compact {revision}"));
    let alarms = || w.on("cp1", &format!("{ETCDCTL} alarm list"));
    wait_for("etcd raises its alarm", HEAL, || alarms().contains("CORRUPT"));
    // A balancer checks its API servers again within seconds, so this reads for longer.
    for _ in 0..10 {
        w.hactl.kubectl(&["get", "configmap", "needle"]).ok();
        std::thread::sleep(Duration::from_secs(1));
    }
    let status = in_one_line(&w.hactl.run(&["status"]));
    assert!(status.contains("CORRUPT") && status.contains("hactl recover"), "{status}");
    recover(w, &["--yes"]).ok().says("cp2 joined again with the keys of the others");
    assert_eq!(alarms().trim(), "", "no alarm is left, also none of a member that was replaced");
    w.well().says(&all_healthy(w)).says("with one hash");
    let needle = w.hactl.kubectl(&["get", "configmap", "needle", "-o", "jsonpath={.data.is}"]).ok();
    assert!(needle.out.contains("needle-of-all"), "{}", needle.all());
    w.hactl.up().ok().says("nothing to do");
    w.hactl.kubectl(&["delete", "configmap", "needle"]).ok();
}

fn five(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-five");
    std::thread::sleep(Duration::from_secs(2));
    // The first member falls behind while four continue.
    w.on("cp1", "sudo systemctl stop etcd");
    std::thread::sleep(Duration::from_secs(3));
    for host in ["cp3", "cp4", "cp5"] {
        w.lab.wipe(host).expect("the disks can be lost");
        std::thread::sleep(Duration::from_secs(2));
    }
    for host in ["cp3", "cp4", "cp5"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    let shown = recover(w, &["--dry-run"]).ok();
    let said = in_one_line(&shown);
    let (before, _) = said.split_once("; used: ").expect("one source is taken");
    assert!(before.rsplit("source ").next().is_some_and(|chosen| chosen.starts_with("cp2: ")), "{}", shown.all());
    recover(w, &["--yes"]).ok().says("etcd is recovered from cp2");
    let (written, longest) = writer.end();
    println!(
        "        {written} writes acknowledged, none lost; the longest pause, until it was recovered: {longest:.1?}"
    );
    w.well().says(&all_healthy(w));
    w.hactl.up().ok().says("nothing to do");
}

/// The files in etcd's data directory.
pub fn data_files(w: &World, host: &str) -> String {
    let all = w.on(host, "sudo ls /var/lib/etcd");
    assert!(all.lines().any(|name| name == "member"), "{host}: {all}");
    all
}

/// A majority that includes the VIP holder.
fn dead_with_the_holder(w: &World) -> Vec<&str> {
    let vip = format!(" {}/", w.lab.vip());
    let holds = |host: &str| w.on(host, "ip -4 addr").contains(&vip);
    let mut found = None;
    wait_for("a host holds the VIP", Duration::from_secs(20), || {
        found = members(w).into_iter().find(|host| holds(host));
        found.is_some()
    });
    let holder = found.expect("just found");
    let others = members(w).into_iter().filter(|host| *host != holder);
    std::iter::once(holder).chain(others).take(majority(w).len()).collect()
}

fn powered_off(w: &World) {
    w.hactl.up().ok();
    let dead = dead_with_the_holder(w);
    println!("        {} lose power; the first of them holds the VIP", dead.join(", "));
    let left: Vec<&str> = members(w).into_iter().filter(|host| !dead.contains(host)).collect();
    let data: BTreeMap<&str, String> = dead.iter().map(|host| (*host, data_files(w, host))).collect();
    let writer = Writer::start(&w.api(), "w-off");
    for host in &dead {
        std::thread::sleep(Duration::from_secs(3));
        w.lab.kill(host).expect("the power can be cut");
    }
    let state = || {
        w.on(left[0], "systemctl show -p MainPID --value etcd; sudo ls -d /var/lib/etcd/*; systemctl is-active kubelet")
    };
    let before = state();
    recover(w, &["--yes"]).exits(3).says("may still be running").says("--confirm-powered-off cp");
    assert_eq!(state(), before, "a refusal changes nothing");
    let off: Vec<&str> = dead.iter().flat_map(|host| ["--confirm-powered-off", *host]).collect();
    let recovered = recover(w, &[&["--yes"], off.as_slice()].concat()).exits(1).says(dead[0]);
    let said = in_one_line(&recovered);
    assert!(left.iter().any(|h| said.contains(&format!("etcd is recovered from {h}:"))), "{}", recovered.all());
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    let writer = Writer::start(&w.api(), "w-back");
    come_back(w, &data);
    w.hactl.up().ok();
    let (written, longest) = writer.end();
    println!("        {written} writes while they came back, none lost; the longest pause: {longest:.1?}");
    w.well().says(&all_healthy(w));
    for host in members(w) {
        // As stored on the disk: systemd may show a loaded unit as it was at the last boot.
        let next_boot = w.on(host, "systemctl is-enabled etcd kubelet");
        assert_eq!(next_boot, "enabled\nenabled\n", "{host}");
    }
    w.hactl.up().ok().says("nothing to do");
}

/// The abandoned hosts, a majority of the old cluster, come back at the same time, before anybody runs `up`.
fn come_back(w: &World, data: &BTreeMap<&str, String>) {
    let begun = Instant::now();
    std::thread::scope(|all| {
        for host in data.keys() {
            all.spawn(move || w.lab.start(host, BOOT).expect("the host boots"));
        }
    });
    for host in data.keys().copied() {
        let unit = || w.on(host, "systemctl show -p ActiveState -p SubState -p Result etcd");
        wait_for("etcd's fence decides", Duration::from_secs(60), || unit().contains("Result=exec-condition"));
        assert!(unit().contains("ActiveState=inactive\nSubState=dead"), "{host}: {}", unit());
        let said = w.on(host, "sudo journalctl -u etcd -b -o cat --no-pager");
        println!("{}", said.lines().map(|l| format!("        {host}: {l}")).collect::<Vec<_>>().join("\n"));
        assert!(said.contains("etcd stays down") && said.contains("`hactl up` takes this host in again"), "{said}");
    }
    println!("        all have decided {:.1?} after the power was back", begun.elapsed());
    // An API server that has just started is not ready at once.
    wait_for("the API serves again, and status reports their data", HEAL, || w.hactl.run(&["status"]).code == 4);
    w.hactl.run(&["status"]).says("predates a recovery");
    // Their API servers start automatically: through their local balancers they must reach the recovered cluster.
    let all = w.api();
    for host in data.keys().copied() {
        let own = all.at(w.lab.address(host).expect("a host of the lab"));
        wait_for("the host's own API server answers", HEAL, || own.get("/version").is_ok());
        let name = format!("through-{host}");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        wait_for("it accepts a write", HEAL, || own.post(CONFIG_MAPS, &body).is_ok());
        all.get(&format!("{CONFIG_MAPS}/{name}")).expect("the write is visible through the endpoint");
        let (floor, seen) = (newest(&all), newest(&own));
        assert!(seen >= floor, "{host} shows revision {seen}, and {floor} was there before");
        println!(
            "        {host}: its API server answers as the endpoint does {:.1?} after the power was back",
            begun.elapsed()
        );
    }
    for host in data.keys().copied() {
        let unit = w.on(host, "systemctl is-active etcd; pgrep -x etcd");
        assert_eq!(unit, "inactive\n", "{host}: it stayed down");
        assert_eq!(data_files(w, host), data[host], "{host}: its data is untouched");
        let has_it = w.on(host, "ip -4 addr").contains(&format!(" {}/", w.lab.vip()));
        assert!(!has_it, "{host}: the VIP stays where it was");
        let asked = w.on(host, "systemctl show -p NRestarts --value etcd");
        assert_eq!(asked.trim(), "0", "{host}: one decision at a start, and no restart loop");
    }
}

/// etcd starts without hactl on the host as well; with hactl, the fence asks the other members; a changed fence is
/// reloaded and restarts nothing.
fn harmless(w: &World) {
    w.hactl.up().ok();
    let said = w.on(
        "cp2",
        "since=$(date +%s); p=$(grep -o '/[^\" ]*/hactl' /etc/systemd/system/etcd.service.d/10-fence.conf); sudo mv $p $p.away; \
         sudo systemctl restart etcd; systemctl is-active etcd; sudo mv $p.away $p; sudo systemctl restart etcd; \
         systemctl is-active etcd; sudo journalctl -u etcd -o cat --since @$since --no-pager | grep -E 'etcd starts|timeout: '",
    );
    println!("{}", said.lines().map(|l| format!("        cp2: {l}")).collect::<Vec<_>>().join("\n"));
    assert!(said.starts_with("active\nactive\n"), "{said}");
    assert!(said.contains("No such file") && said.matches("is of the same cluster").count() >= 2, "{said}");
    let state = || w.on("cp1", "systemctl show -p MainPID -p NeedDaemonReload etcd");
    w.on("cp1", "echo '# changed' | sudo tee -a /etc/systemd/system/etcd.service.d/10-fence.conf");
    let changed = state();
    assert!(changed.contains("NeedDaemonReload=yes"), "{changed}");
    w.hactl.up().ok().says("etcd fence");
    assert_eq!(state(), changed.replace("=yes", "=no"), "reloaded, with the same process");
}

/// Two of five lose their disks: writes continue, and `up` alone adds both again.
fn minority(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-minority");
    std::thread::sleep(Duration::from_secs(2));
    let lost: Vec<&str> = members(w).into_iter().take(members(w).len() / 2).collect();
    for host in &lost {
        w.lab.wipe(host).expect("the disks can be lost");
    }
    for host in &lost {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    recover(w, &["--yes"]).ok().says("`hactl up` heals the others");
    w.hactl.up().ok();
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    assert!(longest < Duration::from_secs(20), "a majority was there all the time: {longest:?}");
    w.well().says(&all_healthy(w));
    w.hactl.up().ok().says("nothing to do");
}
