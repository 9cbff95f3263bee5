//! etcd without its majority: recovered from what is left, and from nothing else.

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
        name: "a recovery is undone, and the undoing, and each time what was there before is there again",
        cut: false,
        run: undone,
    },
    Scenario {
        name: "hosts that do not answer are not recovered from under, unless they are said to be off",
        cut: false,
        run: dark,
    },
    Scenario { name: "the fence keeps no healthy member from starting and restarts none", cut: true, run: harmless },
    Scenario {
        name: "a member whose keys are not those of the others is told and replaced, and so is one whose store is damaged",
        cut: false,
        run: odd,
    },
    Scenario { name: "an etcd that has reached its quota gets room, and says when it cannot", cut: false, run: full },
    Scenario { name: "recover killed at four moments is finished by the same command", cut: false, run: killed },
];

/// On five members.
pub const FIVE: &[Scenario] = &[Scenario {
    name: "three of five lost their disks, and the newer of the two that are left is taken, which is not the first",
    cut: false,
    run: five,
}];

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);

/// Two hosts lose their disks, one after the other: whatever is acknowledged in between is on the second and on the third.
pub fn lose_majority(w: &World) {
    w.lab.wipe("cp1").expect("the disks can be lost");
    std::thread::sleep(Duration::from_secs(3));
    w.lab.wipe("cp2").expect("the disks can be lost");
    for host in ["cp1", "cp2"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
}

/// What must not have changed by looking alone: the process of the survivor's member, and its files.
pub fn untouched(w: &World) -> String {
    w.on("cp3", "systemctl show -p MainPID --value etcd; sudo ls -d /var/lib/etcd/*; systemctl is-active kubelet")
}

fn recover(w: &World, arguments: &[&str]) -> Ran {
    let ran = w.hactl.run(&[&["recover"], arguments].concat());
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    ran
}

fn survivor(w: &World) {
    w.hactl.up().ok();
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover: all 3 members of etcd are healthy");
    let writer = Writer::start(&w.api(), "w-survivor");
    std::thread::sleep(Duration::from_secs(3));
    lose_majority(w);
    let before = untouched(w);
    w.hactl.up().exits(3).says("no quorum").says("hactl recover");
    recover(w, &["--dry-run"]).ok().says("cp3").says("cannot be known").says("nothing was changed");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    assert_eq!(untouched(w), before, "nothing changes before somebody agrees");
    let before = w.on("cp3", "sudo etcdutl version >/dev/null && echo there");
    assert_eq!(before.trim(), "there");
    recover(w, &["--yes"]).ok().says("etcd is recovered from cp3");
    let (written, longest) = writer.end();
    println!(
        "        {written} writes acknowledged, none lost; the longest pause, until it was recovered: {longest:.1?}"
    );
    w.hactl.up().ok().says("nothing to do");
    let left = w.on("cp3", "sudo ls /var/lib/etcd; sudo cat /var/lib/hactl/high-water");
    assert!(left.contains("member.moved-"), "the old data is there: {left}");
    assert!(!left.contains("hactl-recovery") && !left.contains("hactl-restoring"), "and nothing else is: {left}");
    let base: i64 = left.lines().last().and_then(|l| l.trim().parse().ok()).expect("a revision");
    let list = w.api().get("/api/v1/namespaces/default/configmaps?limit=1").expect("the API serves");
    let now: i64 = list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a revision");
    assert!(now >= base, "no revision comes twice: {now} after a leap to {base}");
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover");
}

fn undone(w: &World) {
    w.hactl.up().ok();
    let has = |name: &str| w.hactl.kubectl(&["get", "configmap", name, "-o", "name"]).code == 0;
    let make = |name: &str| drop(w.hactl.kubectl(&["create", "configmap", name]).ok());
    // What an earlier scenario recovered will do.
    if w.on("cp3", "sudo sh -c 'ls -d /var/lib/etcd/member.moved-*'").is_empty() {
        lose_majority(w);
        w.hactl.run(&["recover", "--yes"]).ok();
    }
    make("after");
    let before = untouched(w);
    recover(w, &["--undo", "--dry-run"]).ok().says("would go back").says("revisions").says("nothing was changed");
    w.hactl.run(&["recover", "--undo"]).exits(3).says("no terminal");
    assert_eq!(untouched(w), before, "nothing changes before somebody agrees");
    recover(w, &["--undo", "--yes"]).ok().says("etcd is recovered from cp3:member.moved-").says("are undone");
    assert!(!has("after"), "as it was when the majority was lost");
    w.hactl.up().ok().says("nothing to do");
    w.well().says("3 voters, quorum 2, 3 healthy");
    make("between");
    recover(w, &["--undo", "--yes"]).exits(3).says("an undo already");
    assert!(has("between"), "asked again it does not go back to where it came from");
    let moved = w.on("cp1", "sudo sh -c 'cd /var/lib/etcd; ls -d member.moved-* | tail -n 1'");
    let from = format!("cp1:{}", moved.trim());
    recover(w, &["--undo", "--yes", "--from", &from]).ok().says("etcd is recovered from cp1:member.moved-");
    assert!(has("after") && !has("between"), "as it was when the undo began");
    w.hactl.up().ok().says("nothing to do");
    w.hactl.kubectl(&["delete", "configmap", "after"]).ok();
}

fn odd(w: &World) {
    w.hactl.up().ok();
    w.hactl.kubectl(&["create", "configmap", "needle", "--from-literal=is=needle-of-all"]).ok();
    // Of the same length, so that the store stays one that etcd opens.
    w.on("cp2", "sudo systemctl stop etcd; sudo env LC_ALL=C sed -i s/needle-of-all/needle-of-cp2/g /var/lib/etcd/member/snap/db");
    w.on("cp2", "sudo chown etcd:etcd /var/lib/etcd/member/snap/db; sudo systemctl start etcd");
    wait_for("status tells that the members do not agree", HEAL, || {
        let status = w.hactl.run(&["status"]);
        status.out.contains("their data differs")
    });
    recover(w, &["--dry-run"]).ok().says("2 members agree").says("cp2 answers with other keys");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    recover(w, &["--yes"]).ok().says("cp2 joined anew with the keys of the others");
    w.well().says("3 with one hash");
    let read = format!("{ETCDCTL} get /registry/configmaps/default/needle --consistency=s | grep -ac needle-of-all");
    assert_eq!(w.on("cp2", &read).trim(), "1", "what the others have");

    w.on("cp2", "sudo systemctl stop etcd; sudo sh -c 'head -c 40000 /dev/zero > /var/lib/etcd/member/snap/db'");
    let damaged = w.hactl.run(&["plan", "--exit-code"]).exits(5);
    assert!(in_one_line(&damaged).contains("its data on cp2 is damaged"), "{}", damaged.all());
    w.hactl.up().ok();
    w.well().says("3 voters, quorum 2, 3 healthy").says("3 with one hash");
    w.hactl.up().ok().says("nothing to do");
    w.hactl.kubectl(&["delete", "configmap", "needle"]).ok();
}

fn five(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-five");
    std::thread::sleep(Duration::from_secs(2));
    // The first falls behind; four go on.
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
    let (before, _) = said.split_once(", and is taken").expect("one source is taken");
    assert!(before.rsplit("source ").next().is_some_and(|chosen| chosen.starts_with("cp2: ")), "{}", shown.all());
    recover(w, &["--yes"]).ok().says("etcd is recovered from cp2");
    let (written, longest) = writer.end();
    println!(
        "        {written} writes acknowledged, none lost; the longest pause, until it was recovered: {longest:.1?}"
    );
    w.well().says("5 voters, quorum 3, 5 healthy");
    w.hactl.up().ok().says("nothing to do");
}

/// What lies in etcd's data directory.
fn lies(w: &World, host: &str) -> String {
    let all = w.on(host, "sudo ls /var/lib/etcd");
    assert!(all.lines().any(|name| name == "member"), "{host}: {all}");
    all
}

fn dark(w: &World) {
    w.hactl.up().ok();
    let data: BTreeMap<&str, String> = ["cp1", "cp2"].map(|host| (host, lies(w, host))).into();
    let writer = Writer::start(&w.api(), "w-dark");
    std::thread::sleep(Duration::from_secs(3));
    w.lab.kill("cp1").expect("the power can be cut");
    std::thread::sleep(Duration::from_secs(3));
    w.lab.kill("cp2").expect("the power can be cut");
    let before = untouched(w);
    recover(w, &["--yes"]).exits(3).says("may still run").says("--confirm-powered-off cp1");
    assert_eq!(untouched(w), before, "a refusal changes nothing");
    let off = ["--confirm-powered-off", "cp1", "--confirm-powered-off", "cp2"];
    recover(w, &[&["--yes"], off.as_slice()].concat()).exits(1).says("etcd is recovered from cp3").says("cp1");
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    let writer = Writer::start(&w.api(), "w-back");
    come_back(w, &data);
    w.hactl.up().ok();
    let (written, longest) = writer.end();
    println!("        {written} writes while they came back, none lost; the longest pause: {longest:.1?}");
    w.well().says("3 voters, quorum 2, 3 healthy");
    for host in ["cp1", "cp2", "cp3"] {
        // As it lies on the disk; what systemd shows of a loaded unit may be what it was at the last boot.
        let next_boot = w.on(host, "systemctl is-enabled etcd kubelet");
        assert_eq!(next_boot, "enabled\nenabled\n", "{host}");
    }
    w.hactl.up().ok().says("nothing to do");
}

/// The two that were given up come back at the same time, which is a majority of the old cluster, and nobody has run `up` yet.
fn come_back(w: &World, data: &BTreeMap<&str, String>) {
    let begun = Instant::now();
    std::thread::scope(|both| {
        for host in ["cp1", "cp2"] {
            both.spawn(move || w.lab.start(host, BOOT).expect("the host boots"));
        }
    });
    for host in ["cp1", "cp2"] {
        let unit = || w.on(host, "systemctl show -p ActiveState -p SubState -p Result etcd");
        wait_for("etcd's fence decides", Duration::from_secs(60), || unit().contains("Result=exec-condition"));
        assert!(unit().contains("ActiveState=inactive\nSubState=dead"), "{host}: {}", unit());
        let said = w.on(host, "sudo journalctl -u etcd -b -o cat --no-pager");
        println!("{}", said.lines().map(|l| format!("        {host}: {l}")).collect::<Vec<_>>().join("\n"));
        assert!(said.contains("etcd stays down") && said.contains("`hactl up` takes this host in again"), "{said}");
    }
    println!("        both have decided {:.1?} after the power was back", begun.elapsed());
    w.hactl.run(&["status"]).exits(4).says("of before a recovery");
    // Their API servers come up by themselves: through the balancer beside them they must find what was recovered.
    let all = w.api();
    for host in ["cp1", "cp2"] {
        let own = all.at(w.lab.address(host).expect("a host of the lab"));
        wait_for("the host's own API server answers", HEAL, || own.get("/version").is_ok());
        let name = format!("through-{host}");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let path = "/api/v1/namespaces/default/configmaps";
        wait_for("it takes a write", HEAL, || own.post(path, &body).is_ok());
        all.get(&format!("{path}/{name}")).expect("what it took is what everybody sees");
        let newest = |api: &Api| -> i64 {
            let list = api.get(&format!("{path}?limit=1")).expect("it serves");
            list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a revision")
        };
        let (floor, seen) = (newest(&all), newest(&own));
        assert!(seen >= floor, "{host} shows revision {seen}, and {floor} was there before");
        println!(
            "        {host}: its API server answers as the endpoint does {:.1?} after the power was back",
            begun.elapsed()
        );
    }
    for host in ["cp1", "cp2"] {
        let unit = w.on(host, "systemctl is-active etcd; pgrep -x etcd");
        assert_eq!(unit, "inactive\n", "{host}: it stayed down");
        assert_eq!(lies(w, host), data[host], "{host}: its data is untouched");
    }
    let asked = w.on("cp1", "systemctl show -p NRestarts --value etcd");
    assert_eq!(asked.trim(), "0", "one look at a start, and no loop");
}

/// Without hactl on the host etcd starts all the same; with it the others are asked; a changed fence is read and restarts nothing.
fn harmless(w: &World) {
    w.hactl.up().ok();
    let said = w.on(
        "cp2",
        "p=$(grep -o '/[^\" ]*/hactl' /etc/systemd/system/etcd.service.d/10-fence.conf); sudo mv $p $p.away; \
         sudo systemctl restart etcd; systemctl is-active etcd; sudo mv $p.away $p; sudo systemctl restart etcd; \
         systemctl is-active etcd; sudo journalctl -u etcd -o cat -n 500 --no-pager | grep -E 'etcd starts|timeout: '",
    );
    println!("{}", said.lines().map(|l| format!("        cp2: {l}")).collect::<Vec<_>>().join("\n"));
    assert!(said.starts_with("active\nactive\n"), "{said}");
    assert!(said.contains("No such file") && said.matches("is of the same cluster").count() >= 2, "{said}");
    let state = || w.on("cp1", "systemctl show -p MainPID -p NeedDaemonReload etcd");
    w.on("cp1", "echo '# changed' | sudo tee -a /etc/systemd/system/etcd.service.d/10-fence.conf");
    let changed = state();
    assert!(changed.contains("NeedDaemonReload=yes"), "{changed}");
    w.hactl.up().ok().says("etcd fence");
    assert_eq!(state(), changed.replace("=yes", "=no"), "read again, by the same process");
}

fn killed(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-killed");
    std::thread::sleep(Duration::from_secs(3));
    lose_majority(w);
    for seconds in [1.0, 3.0, 5.0, 8.0_f32] {
        let mut child = w.hactl.command(&["recover", "--yes"]).spawn().expect("hactl can be started");
        std::thread::sleep(Duration::from_secs_f32(seconds));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }
    let begun = Instant::now();
    let mut last = recover(w, &["--yes"]);
    // The lock of a killed run is given back within seconds.
    while last.code == 6 && begun.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(500));
        last = recover(w, &["--yes"]);
    }
    last.ok();
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    writer.end();
}

/// etcd's quota, set so low that a few values reach it: lower than an inventory can. The second is below what they are.
const QUOTAS: [u64; 2] = [24_000_000, 12_000_000];

fn full(w: &World) {
    w.hactl.up().ok();
    let small = |bytes: u64| {
        format!(
            "sudo mkdir -p /etc/systemd/system/etcd.service.d; echo ETCD_QUOTA_BACKEND_BYTES={bytes} | sudo tee /etc/etcd/small.env; \
             printf '[Service]\\nEnvironmentFile=/etc/etcd/small.env\\n' | sudo tee /etc/systemd/system/etcd.service.d/90-small.conf"
        )
    };
    started_with(w, &small(QUOTAS[0]));
    w.healthy(HEAL);
    let fill = format!(
        "head -c 1000000 /dev/zero | tr '\\0' x > /tmp/x; n=0; while [ $n -lt 60 ]; do {ETCDCTL} put /filler/$n < /tmp/x 2>&1 \
         || break; n=$((n+1)); done"
    );
    let said = w.on("cp1", &fill);
    assert!(said.contains("database space exceeded"), "{said}");
    let told = w.hactl.run(&["status"]).exits(4);
    assert!(told.all().contains("NOSPACE") && told.all().contains("hactl recover"), "{}", told.all());
    recover(w, &["--dry-run"]).ok().says("nothing is lost");
    w.hactl.run(&["recover"]).exits(3).says("no terminal");
    recover(w, &["--yes"]).ok().says("takes writes again");
    w.hactl.kubectl(&["create", "configmap", "after-the-room"]).ok();
    w.healthy(HEAL);
    // What is stored now fills it: then the alarm stays, and it is said what to do.
    started_with(w, &small(QUOTAS[1]));
    wait_for("it is full", HEAL, || w.hactl.run(&["status"]).all().contains("NOSPACE"));
    recover(w, &["--yes"]).exits(3).says("still full");
    w.hactl.run(&["status"]).exits(4).says("NOSPACE");
    w.on("cp1", &format!("{ETCDCTL} del --prefix /filler/"));
    recover(w, &["--yes"]).ok().says("takes writes again");
    w.healthy(HEAL);
    w.hactl.run(&["recover", "--yes"]).ok().says("nothing to recover");
    started_with(w, "sudo rm /etc/systemd/system/etcd.service.d/90-small.conf /etc/etcd/small.env");
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

/// Changes what etcd is started with on every host, one at a time.
fn started_with(w: &World, change: &str) {
    for host in ["cp1", "cp2", "cp3"] {
        // Its unit is of the type notify: it is back when this returns, which it is only with a quorum.
        w.on(host, &format!("{change}; sudo systemctl daemon-reload; sudo systemctl restart etcd"));
    }
}
