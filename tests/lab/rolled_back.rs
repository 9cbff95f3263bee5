//! Disks of etcd hosts that were rolled back, copied from another host or swapped: no acknowledged write is lost, and
//! hactl repairs the member or names the mistake.

use super::recover::recover;
use super::support::wait_for;
use super::{Scenario, World, in_one_line};
use std::time::Duration;

/// On three hosts, in this order.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a member whose disk was rolled back stays down, and no acknowledged write is lost",
        cut: false,
        run: rolled_back,
    },
    Scenario { name: "every member starts after all hosts lose power at once", cut: false, run: cold_start },
    Scenario {
        name: "a host with a copy of another member's disk stays down, and up gives it a member of its own",
        cut: false,
        run: cloned,
    },
    Scenario { name: "status, up and recover name the swapped volumes of two hosts", cut: false, run: swapped },
    Scenario { name: "exchanged addresses of two hosts are refused with both names", cut: false, run: exchanged },
    Scenario {
        name: "a member that panics after an unrecorded rollback of its disk is found and replaced",
        cut: false,
        run: forgotten,
    },
    Scenario {
        name: "a member whose log conflicts with the new leader's is found and replaced",
        cut: false,
        run: contradicted,
    },
];

const BOOT: Duration = Duration::from_secs(90);
const SOON: Duration = Duration::from_secs(60);

pub fn sh(w: &World, host: &str, script: &str) -> String {
    w.on(host, &format!("sudo sh -c '{script}'"))
}

/// The positions that this host has recorded, as its file has them.
pub fn memory(w: &World, host: &str) -> String {
    sh(w, host, "cat /var/lib/hactl/positions.json")
}

fn up_and_healthy(w: &World) {
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(180));
}

fn configmap(w: &World, name: &str) {
    w.hactl.kubectl(&["create", "configmap", name]).ok();
}

/// Waits until etcd's fence has decided; returns its line in the journal.
pub fn stays_down(w: &World, host: &str) -> String {
    let unit = || w.on(host, "systemctl show -p Result -p ActiveState etcd");
    wait_for("etcd's fence decides", SOON, || unit().contains("Result=exec-condition"));
    let said = w.on(host, "sudo journalctl -u etcd -o cat --no-pager | grep \"etcd stays down\" | tail -n 1");
    println!("        {host}: {}", said.trim());
    said
}

/// `up` makes the host a member again, and `status` passes.
fn becomes_a_member_again(w: &World, host: &str) {
    w.hactl.up().ok();
    w.well().says("3 voters, quorum 2, 3 healthy");
    let aside = sh(w, host, "ls -d /var/lib/etcd/member.moved-* | wc -l");
    assert_ne!(aside.trim(), "0", "{host}: its previous data is archived");
    w.hactl.up().ok().says("nothing to do");
}

/// An image of cp1's disk is restored after a write that only cp1 and cp3 acknowledged, and cp3 dies.
fn rolled_back(w: &World) {
    up_and_healthy(w);
    sh(
        w,
        "cp1",
        "systemctl stop etcd hactl-positions; rm -rf /root/old; mkdir /root/old; cp -a /var/lib/etcd /var/lib/hactl/positions.json /root/old/; \
         systemctl start etcd hactl-positions",
    );
    w.healthy(SOON);
    configmap(w, "before");
    let old = memory(w, "cp1");
    wait_for("cp2 has recorded more of cp1 than the image has", SOON, || {
        std::thread::sleep(Duration::from_secs(11));
        memory(w, "cp1") != old && memory(w, "cp2") != old
    });
    w.lab.cut("cp2").expect("the cable can be pulled");
    configmap(w, "w");
    sh(
        w,
        "cp1",
        "systemctl stop etcd kubelet hactl-positions; rm -rf /var/lib/etcd/*; cp -a /root/old/etcd/. /var/lib/etcd/; \
         cp -a /root/old/positions.json /var/lib/hactl/positions.json",
    );
    w.lab.kill("cp3").expect("the power can be cut");
    w.lab.mend("cp2").expect("the cable can be put back");
    wait_for("cp2 is back", SOON, || w.on("cp2", "systemctl is-active etcd").trim() == "active");
    sh(w, "cp1", "systemctl start --no-block etcd kubelet hactl-positions");
    let said = stays_down(w, "cp1");
    assert!(said.contains("its disk went back in time") && said.contains(":2379 remembers it"), "{said}");
    let shown = in_one_line(&w.hactl.run(&["status"]).exits(7));
    assert!(shown.contains("the disk of cp1 was rolled back") && shown.contains("hactl recover"), "{shown}");
    let refused = in_one_line(&w.hactl.up().exits(3));
    assert!(refused.contains("the disk of cp1 was rolled back"), "{refused}");

    w.lab.start("cp3", BOOT).expect("the host boots");
    let there = || w.hactl.kubectl(&["get", "configmap", "before", "w"]).code == 0;
    wait_for("the acknowledged writes are there", Duration::from_secs(120), there);
    let shown = in_one_line(&w.hactl.run(&["status"]).exits(4));
    assert!(shown.contains("the disk of cp1 was rolled back") && shown.contains("hactl up"), "{shown}");
    let plan = in_one_line(&w.hactl.run(&["plan"]).ok());
    assert!(plan.contains("the disk of cp1 was rolled back"), "{plan}");
    becomes_a_member_again(w, "cp1");
    assert!(there());
    sh(w, "cp1", "rm -rf /root/old");
}

fn cold_start(w: &World) {
    up_and_healthy(w);
    configmap(w, "cold");
    std::thread::sleep(Duration::from_secs(11));
    for host in ["cp1", "cp2", "cp3"] {
        assert!(memory(w, host).matches("\"member\"").count() == 3, "{host}: {}", memory(w, host));
        w.lab.kill(host).expect("the power can be cut");
    }
    for host in ["cp1", "cp2", "cp3"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    w.healthy(Duration::from_secs(180));
    for host in ["cp1", "cp2", "cp3"] {
        let said = w.on(host, "sudo journalctl -u etcd -b -o cat --no-pager | grep -E \"etcd (starts|stays)\"");
        println!("        {host}: {}", said.trim());
        assert!(said.contains("etcd starts") && !said.contains("stays down"), "{host}: {said}");
    }
    w.hactl.kubectl(&["get", "configmap", "cold"]).ok();
    w.hactl.up().ok().says("nothing to do");
}

/// Copies the data directory of a host, whose member is stopped meanwhile, to another host.
fn copy(w: &World, from: &str, to: &str) {
    sh(w, to, "systemctl stop etcd; rm -rf /var/lib/etcd/member");
    let tar = "sudo systemctl stop etcd; sudo tar -C /var/lib/etcd -cf - member; sudo systemctl start --no-block etcd";
    let mut taken = w.lab.ssh(from).expect("the host exists");
    let mut taken = taken.arg(tar).stdout(std::process::Stdio::piped()).spawn().expect("ssh can be started");
    let mut given = w.lab.ssh(to).expect("the host exists");
    let given = given.arg("sudo tar -C /var/lib/etcd -xf -").stdin(taken.stdout.take().expect("a pipe")).status();
    assert!(given.expect("ssh can be started").success() && taken.wait().expect("it ends").success());
}

fn cloned(w: &World) {
    up_and_healthy(w);
    copy(w, "cp1", "cp2");
    wait_for("cp1 is back", SOON, || w.on("cp1", "systemctl is-active etcd").trim() == "active");
    sh(w, "cp2", "systemctl start --no-block etcd");
    let said = stays_down(w, "cp2");
    assert!(said.contains("this disk is a copy of that one") || said.contains("the member of this host is"), "{said}");
    let shown = in_one_line(&w.hactl.run(&["status"]).exits(4));
    assert!(shown.contains("the disk of cp2 holds the etcd data of cp1"), "{shown}");
    becomes_a_member_again(w, "cp2");

    // Without the fence both run with one member ID, and the copy publishes its own name for it.
    copy(w, "cp1", "cp3");
    wait_for("cp1 is back", SOON, || w.on("cp1", "systemctl is-active etcd").trim() == "active");
    sh(
        w,
        "cp3",
        "mv /etc/systemd/system/etcd.service.d/10-fence.conf /root/; systemctl daemon-reload; systemctl start --no-block etcd",
    );
    wait_for("the copy runs", SOON, || w.on("cp3", "sudo ss -Htln sport = :2380").contains(":2380"));
    becomes_a_member_again(w, "cp3");
}

fn swapped(w: &World) {
    up_and_healthy(w);
    let swap = || {
        for (host, other) in [("cp2", "cp3"), ("cp3", "cp2")] {
            sh(w, host, "systemctl stop etcd");
            sh(w, host, &format!("mv /var/lib/etcd/member /var/lib/etcd/of-{host}"));
            let tar = format!("sudo tar -C /var/lib/etcd -cf - of-{host}");
            let mut taken = w.lab.ssh(host).expect("the host exists");
            let mut taken = taken.arg(tar).stdout(std::process::Stdio::piped()).spawn().expect("ssh can be started");
            let mut given = w.lab.ssh(other).expect("the host exists");
            let given =
                given.arg("sudo tar -C /var/lib/etcd -xf -").stdin(taken.stdout.take().expect("a pipe")).status();
            assert!(given.expect("ssh can be started").success() && taken.wait().expect("it ends").success());
        }
        for (host, other) in [("cp2", "cp3"), ("cp3", "cp2")] {
            sh(w, host, &format!("mv /var/lib/etcd/of-{other} /var/lib/etcd/member; rm -rf /var/lib/etcd/of-{host}"));
            sh(w, host, "systemctl start --no-block etcd");
        }
    };
    swap();
    for host in ["cp2", "cp3"] {
        assert!(stays_down(w, host).contains("the member of this host is"));
    }
    let words = "cp2 has the etcd disk of cp3, and cp3 that of cp2: swap the volumes back";
    for verb in [&["status"][..], &["up", "--yes"], &["recover", "--dry-run"]] {
        let said = in_one_line(&w.hactl.run(verb));
        assert!(said.contains(words), "{verb:?}: {said}");
    }
    swap();
    w.well().says("3 voters, quorum 2, 3 healthy");
    w.hactl.up().ok().says("nothing to do");
}

fn exchanged(w: &World) {
    up_and_healthy(w);
    let path = w.lab.inventory();
    let text = std::fs::read_to_string(&path).expect("the inventory is readable");
    let at = |host: &str| format!("address: {}", w.lab.address(host).expect("a host of the lab"));
    let between = text.replace(&at("cp1"), "address: of-cp3").replace(&at("cp3"), &at("cp1"));
    std::fs::write(&path, between.replace("address: of-cp3", &at("cp3"))).expect("the inventory is writable");
    for verb in [&["plan"][..], &["up", "--yes"]] {
        let said = in_one_line(&w.hactl.run(verb).exits(3));
        assert!(said.contains("is cp3, but the inventory calls it cp1") && said.contains("--reassign cp1"), "{said}");
    }
    std::fs::write(&path, text).expect("the inventory is writable");
    w.hactl.up().ok().says("nothing to do");
    // The cluster identity that an earlier version wrote gets the names that it lacks.
    let stamp = "/var/lib/hactl/cluster.json";
    w.on("cp2", r#"sudo perl -0pi -e 's/,\s*"(host|machine)": "[^"]*"//g' /var/lib/hactl/cluster.json"#);
    let before = sh(w, "cp2", &format!("cat {stamp}"));
    assert!(before.contains("\"ca\"") && !before.contains("cp2"), "{before}");
    w.hactl.up().ok().says("write the cluster's identity");
    assert!(sh(w, "cp2", &format!("cat {stamp}")).contains("cp2"));
}

/// Removes all recorded positions, from etcd and from files, and stops recording them.
fn without_memory(w: &World) {
    for host in ["cp1", "cp2", "cp3"] {
        sh(w, host, "systemctl stop hactl-positions; rm -f /var/lib/hactl/positions.json");
    }
    let forget = "etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/etcd/pki/ca.crt --cert /etc/etcd/pki/observer.crt \
                  --key /etc/etcd/pki/observer.key del --prefix /hactl/positions/";
    sh(w, "cp1", &format!("PATH=$PATH:/usr/local/bin:$(dirname $(readlink -f /usr/local/bin/etcd)) {forget}"));
}

fn forgotten(w: &World) {
    up_and_healthy(w);
    without_memory(w);
    sh(w, "cp3", "systemctl stop etcd; rm -rf /root/old; cp -a /var/lib/etcd/member /root/old; systemctl start etcd");
    for n in 0..40 {
        configmap(w, &format!("more-{n}"));
    }
    sh(
        w,
        "cp3",
        "systemctl stop etcd; rm -rf /var/lib/etcd/member; mv /root/old /var/lib/etcd/member; systemctl start --no-block etcd",
    );
    let panics = "sudo journalctl -u etcd --since -60s -o cat --no-pager | grep -c \"is out of range\"";
    wait_for("raft panics", SOON, || !matches!(w.on("cp3", panics).trim(), "" | "0"));
    let shown = in_one_line(&w.hactl.run(&["status"]).exits(4));
    assert!(shown.contains("the member on cp3 runs but cannot catch up") && shown.contains("tocommit("), "{shown}");
    becomes_a_member_again(w, "cp3");
}

/// The first case without recorded positions: the write is lost, and the member that has it conflicts with the new
/// leader.
fn contradicted(w: &World) {
    up_and_healthy(w);
    without_memory(w);
    sh(w, "cp1", "systemctl stop etcd; rm -rf /root/old; cp -a /var/lib/etcd /root/old; systemctl start etcd");
    w.healthy(SOON);
    sh(w, "cp1", "systemctl stop hactl-positions");
    w.lab.cut("cp2").expect("the cable can be pulled");
    configmap(w, "lost");
    sh(
        w,
        "cp1",
        "systemctl stop etcd kubelet; rm -rf /var/lib/etcd/*; cp -a /root/old/. /var/lib/etcd/; rm -rf /root/old",
    );
    w.lab.kill("cp3").expect("the power can be cut");
    w.lab.mend("cp2").expect("the cable can be put back");
    sh(w, "cp1", "systemctl start etcd kubelet");
    wait_for("cp1 and cp2 serve again", Duration::from_secs(120), || {
        w.hactl.kubectl(&["create", "configmap", "went-on", "--dry-run=server"]).code == 0
    });
    w.lab.start("cp3", BOOT).expect("the host boots");
    // If the new leader's log is shorter than cp3's, raft is stuck; otherwise cp3 continues with the write that only it
    // has.
    let mut shown = String::new();
    let stuck = "the member on cp3 runs but cannot catch up: it has a leader";
    wait_for("status names it", Duration::from_secs(180), || {
        shown = in_one_line(&w.hactl.run(&["status"]));
        shown.contains(stuck) || shown.contains("their data differs")
    });
    if shown.contains(stuck) {
        becomes_a_member_again(w, "cp3");
    } else {
        recover(w, &["--yes"]).ok().says("cp3 joined again with the keys of the others");
        w.healthy(SOON);
    }
    assert_ne!(w.hactl.kubectl(&["get", "configmap", "lost"]).code, 0, "the write that only cp3 had is gone");
}
