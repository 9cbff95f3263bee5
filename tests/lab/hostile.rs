//! Hosts and users that mean no good, or whose disk is full: what they do to root, and to the runs that are to help.

use super::recover::recover;
use super::support::wait_for;
use super::{Scenario, World, in_one_line, with_pod};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "what etcd's user swaps for links in its directory leads root nowhere, and no scratch etcd is root's",
        cut: false,
        run: links,
    },
    Scenario {
        name: "a worker that says it is locked, or has another key, is left out of up and recover and named",
        cut: false,
        run: worker,
    },
    Scenario { name: "a host whose disk has no byte left is locked, told of and started again", cut: false, run: full },
    Scenario { name: "a host that forwards nothing is named where its pods find no names", cut: false, run: drops },
];

const HEAL: Duration = Duration::from_secs(180);

/// As user etcd, all the time: directories that root makes in its own are swapped for a link to somebody else's.
const SWAPS: &str = "sudo install -d -m 0700 /root/kept && sudo sh -c 'echo kept >/root/kept/db' && \
                     sudo systemd-run --quiet --unit=swaps --uid=etcd sh -c 'cd /var/lib/etcd; while :; do \
                     for at in hactl-recovery-* hactl-restoring-*; do [ -d \"$at\" ] && [ ! -L \"$at\" ] && mv \"$at\" .away && \
                     ln -s /root/kept \"$at\" && rm \"$at\" && mv .away \"$at\"; done; done' && echo done";
/// Puts a word before etcd and its tool: by which user they are run, and with what.
const TELL: &str = r##"sudo sh -ec ': >/run/ran; chmod 666 /run/ran; for t in etcd etcdutl; do real=$(readlink -f /usr/local/bin/$t); rm /usr/local/bin/$t;
    printf "#!/bin/sh\necho \$(id -un) $t \$* >>/run/ran\nexec $real \"\$@\"\n" >/usr/local/bin/$t; chmod 755 /usr/local/bin/$t; done'"##;

fn links(w: &World) {
    w.hactl.up().ok();
    // Who runs what a bundle is proven with.
    w.on("cp1", TELL);
    w.hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    let ran = w.on("cp1", "cat /run/ran");
    assert!(ran.contains("--unsafe-no-fsync") && ran.contains("etcdutl snapshot restore"), "{ran}");
    assert!(ran.lines().all(|line| line.starts_with("etcd ")), "{ran}");
    w.hactl.up().ok();
    assert!(w.on("cp1", "readlink /usr/local/bin/etcdutl").contains("/parts/"), "up has put the tool back");

    let before = "sudo sh -c 'stat -c \"%U %a %n\" /root/kept /root/kept/* /root /etc/shadow'";
    let started = w.on("cp1", SWAPS);
    assert_eq!(started.trim(), "done");
    let was = w.on("cp1", before);
    w.wipe("cp2");
    // It may fail for as long as somebody moves what it works on, and comes to its end when nobody does.
    let swapped = recover(w, &["--yes"]);
    println!("        while everything is swapped: exit {}", swapped.code);
    w.on("cp1", "sudo systemctl stop swaps; sudo rm -rf /var/lib/etcd/.away");
    assert_eq!(w.on("cp1", before), was, "nothing outside was given away, changed or removed");
    assert_eq!(w.on("cp1", "sudo cat /root/kept/db").trim(), "kept");
    if w.hactl.run(&["status"]).code == 7 {
        recover(w, &["--yes"]).ok();
    }
    w.hactl.up().ok();
    w.healthy(HEAL);
}

/// A certificate that a run has something to do about.
const TAKE_ONE: &str = "sudo rm /etc/kubernetes/pki/apiserver-etcd-client.crt && echo done";

fn worker(w: &World) {
    w.hactl.up().ok();
    let works = |what: &str, told: &str| {
        assert_eq!(w.on("cp1", TAKE_ONE).trim(), "done");
        let ran = w.hactl.up().exits(1);
        let said = in_one_line(&ran);
        assert!(said.contains(told) && said.contains("w1"), "{what}: {said}");
        assert_eq!(
            w.on("cp1", "sudo test -s /etc/kubernetes/pki/apiserver-etcd-client.crt && echo there").trim(),
            "there",
            "{what}: what the others lacked was done: {said}"
        );
        let recovered = recover(w, &["--yes"]).ok();
        assert!(recovered.all().contains("nothing to recover"), "{what}: {}", recovered.all());
    };
    w.on("w1", "sudo systemd-run --quiet --unit=held flock /run/hactl/lock sleep infinity");
    wait_for("the lock is held", Duration::from_secs(10), || {
        !w.on("w1", "sudo flock -n /run/hactl/lock true || echo held").is_empty()
    });
    works("held", "another run holds its lock");
    w.on("w1", "sudo systemctl stop held");
    w.hactl.up().ok();

    // Its keys come back by themselves: nobody gets in meanwhile.
    let swap = "sudo sh -c 'mkdir -p /root/keys && mv /etc/ssh/ssh_host_* /root/keys/ && ssh-keygen -qA && \
                systemd-run --quiet --on-active=120 sh -c \"cp -a /root/keys/. /etc/ssh/; systemctl restart ssh\" && systemctl restart ssh'";
    w.on("w1", swap);
    works("another key", "HAS CHANGED");
    wait_for("its own keys are back", Duration::from_secs(240), || w.on("w1", "echo in").contains("in"));
    w.hactl.up().ok();
    w.healthy(HEAL);
}

/// What hactl itself keeps on a host on a disk of its own, its program too, without a byte left, and without the files that earlier versions locked.
/// Parts and snapshots stay where they are.
const FILL: &str = "sudo sh -ec 'mkdir -p /mnt/was && mount --bind /var/lib/hactl /mnt/was && mount --make-private /mnt/was && \
                    mount -t tmpfs -o size=256m tmpfs /var/lib/hactl && cd /mnt/was && mkdir -p snapshots && \
                    for d in parts snapshots; do mkdir /var/lib/hactl/$d && mount --bind /mnt/was/$d /var/lib/hactl/$d; done && \
                    for f in *; do case $f in parts|snapshots|lock|busy) ;; *) cp -a $f /var/lib/hactl/ ;; esac; done; \
                    dd if=/dev/zero of=/var/lib/hactl/fill bs=4k 2>/dev/null || true; rm -f /run/hactl/lock /run/hactl/busy; \
                    test -d /var/lib/hactl/bin; echo x >/var/lib/hactl/one 2>/dev/null || echo full'";
const EMPTY: &str = "sudo sh -c 'cd /; for d in parts snapshots; do umount -l /var/lib/hactl/$d; done; umount -l /var/lib/hactl; umount -l /mnt/was'";

fn full(w: &World) {
    w.hactl.up().ok();
    assert!(w.on("cp2", FILL).contains("full"), "the disk of cp2 has no room");
    w.on("cp2", "sudo systemctl stop etcd");
    w.hactl.run(&["status"]).says("cp2");
    let ran = w.hactl.up();
    let said = in_one_line(&ran);
    let runs = w.on("cp2", "systemctl is-active etcd");
    w.on("cp2", EMPTY);
    assert!(ran.code == 0 && runs.trim() == "active", "{runs}: {said}");
    assert!(!said.contains("could not take the lock"), "{said}");
    w.hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
}

fn drops(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    w.on("w1", "sudo iptables -P FORWARD DROP");
    let mut said = String::new();
    with_pod(&w.hactl, "w1", || {
        wait_for("the policy is named", Duration::from_secs(60), || {
            said = in_one_line(&w.hactl.run(&["status"]));
            said.contains("FORWARD chain is DROP")
        });
    });
    w.on("w1", "sudo iptables -P FORWARD ACCEPT");
    assert!(said.contains("iptables -P FORWARD ACCEPT") && !said.contains("ethtool"), "{said}");
    w.healthy(HEAL);
}
