//! A large database is restored on one host first, and the only host that is left has the snapshots of the others.

use super::guard::guarded;
use super::interrupted::killed_at;
use super::recover::{lose_majority, members, recover};
use super::support::{ETCDCTL, Writer};
use super::{Scenario, World, in_one_line};
use hactl::model::recovery::ALONE_FROM;
use hactl::model::snapshot::{FOLDER, PEERS};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a survivor with a large database is restored from its own data, also after a kill, and the others join it \
               while clients write",
        cut: false,
        run: large,
    },
    Scenario {
        name: "etcd hosts keep one another's newest snapshot, and the only one that is left recovers from a copy",
        cut: false,
        run: kept,
    },
];

/// Writes random values that no API server reads, until the database is large. A write may time out while another lab
/// uses the disk.
fn filled(w: &World) -> u64 {
    let keys = ALONE_FROM / 1_000_000 + 10;
    let put = format!(
        "put() {{ {ETCDCTL} put /filler/$n < /tmp/x >/dev/null; }}; n=0; while [ $n -lt {keys} ]; do \
         head -c 1000000 /dev/urandom > /tmp/x; put || put || put || exit 1; n=$((n+1)); done; rm -f /tmp/x; \
         sudo stat -c %s /var/lib/etcd/member/snap/db"
    );
    w.on("cp1", &put).trim().parse().expect("all keys are written")
}

fn large(w: &World) {
    w.hactl.up().ok();
    let bytes = filled(w);
    assert!(bytes >= ALONE_FROM, "{bytes}");
    let writer = Writer::start(&w.api(), "w-large");
    std::thread::sleep(Duration::from_secs(3));
    lose_majority(w);
    let proposed = recover(w, &["--dry-run"]).ok();
    let said = in_one_line(&proposed);
    assert!(said.contains("a new cluster of cp3, restored from its own data; it tolerates no failure"), "{said}");
    assert!(said.contains("`hactl up` adds cp1, cp2 again"), "{said}");
    // Before its data is replaced: hactl chooses again.
    killed_at(w, &[], |line| line.contains("✓ cp3") && line.contains("stop the kubelet"));
    let begun = Instant::now();
    recover(w, &["--yes"]).ok().says("etcd is recovered from cp3").says("Secrets decrypt");
    let (written, longest) = writer.end();
    let whole = begun.elapsed();
    println!(
        "        {written} writes acknowledged, none lost; the longest pause {longest:.1?}; whole after {whole:.1?}"
    );
    // What joins copies the data while it is written.
    assert!(longest < whole + Duration::from_secs(60));
    w.hactl.up().ok().says("nothing to do");
    for host in members(w) {
        let left = w.on(host, "sudo ls /var/lib/etcd; sudo ls /var/lib/hactl");
        assert!(!left.contains("hactl-recovery") && !left.contains("hactl-restoring"), "{host}: {left}");
        let count =
            w.on(host, &format!("{ETCDCTL} get --prefix /filler/ --keys-only --consistency=s | grep -c filler"));
        assert_eq!(count.trim(), (ALONE_FROM / 1_000_000 + 10).to_string(), "{host} has every key");
    }
    assert!(w.on("cp3", "sudo ls /var/lib/etcd").contains("member.moved-"), "the old data is there");
    w.on("cp1", &format!("{ETCDCTL} del --prefix /filler/"));
}

const BOOT: Duration = Duration::from_secs(60);

fn kept(w: &World) {
    let hactl = guarded(w, "healing: on");
    let copies = |on: &str| w.on(on, &format!("sudo ls {PEERS}"));
    let others = |on: &str| members(w).into_iter().filter(|other| *other != on).collect::<Vec<_>>();
    let has_all = |on: &str| others(on).iter().all(|other| copies(on).contains(&format!("-{other}.hactl")));
    for host in members(w) {
        assert_eq!(w.on(host, "systemctl is-active hactl-peer-snapshots.timer").trim(), "active", "{host}");
        hactl.run(&["snapshot", "take", "--host", host]).ok();
    }
    for host in members(w) {
        w.on(host, "sudo systemctl start hactl-peer-snapshots");
        assert!(has_all(host), "{host}: {}", copies(host));
    }
    let status = in_one_line(&hactl.run(&["status"]).ok());
    assert!(
        status.contains("no copy leaves the cluster") && status.contains("keep the newest of one another"),
        "{status}"
    );

    for host in members(w) {
        w.on(host, "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service");
    }
    hactl.kubectl(&["create", "secret", "generic", "kept", "--from-literal=word=kept-elsewhere"]).ok();
    hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    let newest = w.on("cp1", &format!("sudo sh -c 'cd {FOLDER} && ls *.hactl | tail -n 1'"));
    let newest = newest.trim();
    w.on("cp3", "sudo systemctl start hactl-peer-snapshots");
    let address = format!("cp3:{PEERS}/{newest}");
    let same = format!("sudo sha256sum {FOLDER}/{newest} {PEERS}/{newest} 2>/dev/null | cut -d' ' -f1");
    assert_eq!(w.on("cp1", &same), w.on("cp3", &same), "every byte");
    hactl.run(&["snapshot", "list"]).ok().says(PEERS);
    hactl.run(&["snapshot", "verify", &address]).ok().says("is intact and decrypts");

    // A host that can only send others what it has: the copies from before stay.
    w.on("cp1", &format!("sudo sh -c 'printf XXXX | dd of={FOLDER}/{newest} bs=1 seek=300 conv=notrunc status=none'"));
    w.on("cp2", &format!("sudo sh -c 'rm -f {PEERS}/*-cp1.hactl; systemctl start hactl-peer-snapshots'"));
    let said = w.on("cp2", "sudo journalctl -u hactl-peer-snapshots -n 20 -o cat --no-pager");
    assert!(said.contains("cp1: ") && said.contains("has changed since it was written"), "{said}");
    assert!(!copies("cp2").contains("-cp1.hactl"), "{}", copies("cp2"));

    for host in ["cp1", "cp2"] {
        w.lab.wipe(host).expect("the disks can be lost");
    }
    w.on(
        "cp3",
        &format!("sudo systemctl stop hactl-guard etcd; sudo sh -c 'rm -rf /var/lib/etcd/member {FOLDER}/*.hactl'"),
    );
    for host in ["cp1", "cp2"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    let proposed = in_one_line(&hactl.run(&["recover", "--dry-run"]).ok());
    assert!(proposed.contains(&format!("{newest} of cp1 in cp3:{PEERS}")), "{proposed}");
    let ran = hactl.run(&["recover", "--yes"]).ok();
    assert!(in_one_line(&ran).contains(&format!("etcd is recovered from {newest}")), "{}", ran.all());
    let word = hactl.kubectl(&["get", "secret", "kept", "-o", "jsonpath={.data.word}"]).ok().out;
    assert_eq!(word.trim(), "a2VwdC1lbHNld2hlcmU=", "the Secret decrypts");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
}
