//! Malicious users and hosts, and full disks: what they can do to root and to the runs that repair them.

use super::recover::recover;
use super::support::wait_for;
use super::{Scenario, World, in_one_line, with_pod};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "links that the etcd user swaps in do not mislead root, and no scratch etcd runs as root",
        cut: false,
        run: links,
    },
    Scenario {
        name: "a worker that is locked or has another host key is named by up and stops neither up nor recover",
        cut: false,
        run: worker,
    },
    Scenario { name: "up locks a host whose disk is full and starts its etcd again", cut: false, run: full },
    Scenario { name: "status names a FORWARD policy that drops the traffic of pods", cut: false, run: drops },
];

const HEAL: Duration = Duration::from_secs(180);

/// Runs as user etcd all the time: swaps directories that root makes in etcd's directory for links to a directory of
/// root.
const SWAPS: &str = "sudo install -d -m 0700 /root/kept && sudo sh -c 'echo kept >/root/kept/db' && \
                     sudo systemd-run --quiet --unit=swaps --uid=etcd sh -c 'cd /var/lib/etcd; while :; do \
                     for at in hactl-recovery-* hactl-restoring-*; do [ -d \"$at\" ] && [ ! -L \"$at\" ] && mv \"$at\" .away && \
                     ln -s /root/kept \"$at\" && rm \"$at\" && mv .away \"$at\"; done; done' && echo done";
/// Wraps etcd and etcdutl to record the user that runs them, and their arguments.
const RECORD: &str = r##"sudo sh -ec ': >/run/ran; chmod 666 /run/ran; for t in etcd etcdutl; do real=$(readlink -f /usr/local/bin/$t); rm /usr/local/bin/$t;
    printf "#!/bin/sh\necho \$(id -un) $t \$* >>/run/ran\nexec $real \"\$@\"\n" >/usr/local/bin/$t; chmod 755 /usr/local/bin/$t; done'"##;

fn links(w: &World) {
    w.hactl.up().ok();
    // The user that runs the programs which test a snapshot.
    w.on("cp1", RECORD);
    w.hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    let ran = w.on("cp1", "cat /run/ran");
    assert!(ran.contains("--unsafe-no-fsync") && ran.contains("etcdutl snapshot restore"), "{ran}");
    assert!(ran.lines().all(|line| line.starts_with("etcd ")), "{ran}");
    w.hactl.up().ok();
    assert!(w.on("cp1", "readlink /usr/local/bin/etcdutl").contains("/parts/"), "up has restored the tool");

    let before = "sudo sh -c 'stat -c \"%U %a %n\" /root/kept /root/kept/* /root /etc/shadow'";
    let started = w.on("cp1", SWAPS);
    assert_eq!(started.trim(), "done");
    let was = w.on("cp1", before);
    w.wipe("cp2");
    // Recovery may fail while its directories are swapped, and must succeed once that stops.
    let swapped = recover(w, &["--yes"]);
    println!("        recover while directories are swapped: exit {}", swapped.code);
    w.on("cp1", "sudo systemctl stop swaps; sudo rm -rf /var/lib/etcd/.away");
    assert_eq!(w.on("cp1", before), was, "nothing outside was changed or removed");
    assert_eq!(w.on("cp1", "sudo cat /root/kept/db").trim(), "kept");
    if w.hactl.run(&["status"]).code == 7 {
        recover(w, &["--yes"]).ok();
    }
    w.hactl.up().ok();
    w.healthy(HEAL);
}

/// Removes a certificate, so that a run has something to do.
const TAKE_ONE: &str = "sudo rm /etc/kubernetes/pki/apiserver-etcd-client.crt && echo done";

fn worker(w: &World) {
    w.hactl.up().ok();
    let works = |what: &str, expected: &str| {
        assert_eq!(w.on("cp1", TAKE_ONE).trim(), "done");
        let ran = w.hactl.up().exits(1);
        let said = in_one_line(&ran);
        assert!(said.contains(expected) && said.contains("w1"), "{what}: {said}");
        assert_eq!(
            w.on("cp1", "sudo test -s /etc/kubernetes/pki/apiserver-etcd-client.crt && echo there").trim(),
            "there",
            "{what}: the other hosts were repaired: {said}"
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

    // A timer restores its keys, because nobody can log in meanwhile.
    let swap = "sudo sh -c 'mkdir -p /root/keys && mv /etc/ssh/ssh_host_* /root/keys/ && ssh-keygen -qA && \
                systemd-run --quiet --on-active=120 sh -c \"cp -a /root/keys/. /etc/ssh/; systemctl restart ssh\" && systemctl restart ssh'";
    w.on("w1", swap);
    works("another key", "HAS CHANGED");
    wait_for("its own keys are back", Duration::from_secs(240), || w.on("w1", "echo in").contains("in"));
    w.hactl.up().ok();
    w.healthy(HEAL);
}

/// Puts hactl's own files on a host, its program too, on a disk of their own that has no byte left, without the lock
/// files of earlier versions. Parts and snapshots stay where they are.
const FILL: &str = "sudo sh -ec 'mkdir -p /mnt/was && mount --bind /var/lib/hactl /mnt/was && mount --make-private /mnt/was && \
                    mount -t tmpfs -o size=256m tmpfs /var/lib/hactl && cd /mnt/was && mkdir -p snapshots && \
                    for d in parts snapshots; do mkdir /var/lib/hactl/$d && mount --bind /mnt/was/$d /var/lib/hactl/$d; done && \
                    for f in *; do case $f in parts|snapshots|lock|busy) ;; *) cp -a $f /var/lib/hactl/ ;; esac; done; \
                    dd if=/dev/zero of=/var/lib/hactl/fill bs=4k 2>/dev/null || true; rm -f /run/hactl/lock /run/hactl/busy; \
                    test -d /var/lib/hactl/bin; echo x >/var/lib/hactl/one 2>/dev/null || echo full'";
const EMPTY: &str = "sudo sh -c 'cd /; for d in parts snapshots; do umount -l /var/lib/hactl/$d; done; umount -l /var/lib/hactl; umount -l /mnt/was'";

fn full(w: &World) {
    w.hactl.up().ok();
    assert!(w.on("cp2", FILL).contains("full"), "the disk of cp2 is full");
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
