//! Faults of bare hosts: preflight checks find them, or a run survives them, and then the same command converges.

use super::founding::up_when_free;
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a port and an address in use are reported together before anything is changed",
        cut: true,
        run: taken,
    },
    Scenario {
        name: "closed ports, dropped packets and another Kubernetes are reported before anything is changed",
        cut: false,
        run: closed_ports,
    },
    Scenario {
        name: "a service of others stops up while it is in use, and what they left is not lost by up or down --wipe",
        cut: false,
        run: others,
    },
    Scenario { name: "up names the sudoers line that a user without sudo lacks", cut: true, run: no_sudo },
    Scenario { name: "a host that answers garbage or without end is named within a minute", cut: false, run: garbage },
    Scenario { name: "a disk that fills up during a transfer is reported", cut: false, run: full_disk },
    Scenario {
        name: "after an interrupt no further step starts, and the steps that are left are reported",
        cut: false,
        run: interrupted,
    },
];

/// A copy of the inventory in the same folder, changed by `edit`.
pub fn variant(w: &World, name: &str, edit: impl Fn(String) -> String) -> Hactl {
    let path = w.lab.dir().join(name);
    fs::write(&path, edit(fs::read_to_string(w.lab.inventory()).expect("readable"))).expect("writable");
    Hactl::new(path)
}

fn taken(w: &World) {
    w.on("cp2", "sudo systemd-run --unit=squatter systemd-socket-activate -l 2379 /bin/cat");
    wait_for("port 2379 of cp2 is in use", Duration::from_secs(10), || w.on("cp2", "ss -ltn").contains(":2379 "));
    let (vip, network) = (w.lab.vip(), w.lab.network());
    // This machine answers at that address, and it is none of the hosts.
    let gateway = format!("{}.1", network.rsplit_once('.').expect("an address").0);
    let text = |t: String| t.replace(&format!("vip: {vip}"), &format!("vip: {gateway}"));
    let ran = variant(w, "taken.yaml", text).up().exits(3).says("Nothing was changed");
    ran.says("cp2: port 2379 is in use by")
        .says("systemd-socket")
        .says(&format!("{gateway} is in use"))
        .says("2 problems");
    w.on("cp2", "sudo systemctl stop squatter");
    assert_eq!(w.on("cp2", "ls /etc/kubernetes /etc/etcd 2>/dev/null"), "", "nothing was written");
}

fn closed_ports(w: &World) {
    let address = |host: &str| w.lab.address(host).expect("the lab has this host");
    // A firewall on cp2 that drops etcd's peers, one on cp3 that drops VRRP, a path to cp1 that silently drops large
    // packets, and an MTU that differs.
    w.on("cp2", "sudo iptables -I INPUT -p tcp --dport 2380 -j DROP");
    w.on("cp3", "sudo iptables -I INPUT -p 112 -j DROP");
    w.on("cp1", "sudo iptables -I INPUT -p tcp --dport 6443 -m length --length 1300:65535 -j DROP");
    let mtu = "sudo ip link set dev $(ip -br -4 addr | awk '/10\\.88\\./ {print $1}' | cut -d@ -f1) mtu";
    w.on("cp1", &format!("{mtu} 1380"));
    w.on("cp3", "sudo mkdir -p /etc/rancher/k3s");
    let ran = w.hactl.up().exits(3).says("Nothing was changed");
    let reported = in_one_line(&ran);
    for text in [
        "cp2: 2380/tcp for etcd's peers cannot be reached from cp1, cp3",
        &format!("iptables -I INPUT -p tcp -s {} --dport 2380 -j ACCEPT", address("cp1")),
        "cp3: IP protocol 112 (VRRP) for keepalived cannot be reached from cp1, cp2",
        "cp3: is or was part of another Kubernetes cluster: k3s (/etc/rancher/k3s)",
        "cp1: 6443/tcp for the API server cannot be reached from cp2, cp3: connected, but large packets are dropped",
        "cp1: its interface has an MTU of 1380, but that of",
    ] {
        assert!(reported.contains(text), "{text}: {reported}");
    }
    assert!(ran.took < Duration::from_secs(30), "a preflight took {:?}", ran.took);
    w.hactl.run(&["plan"]).ok().says("`up` will refuse: cp2: 2380/tcp");
    for host in ["cp1", "cp2", "cp3"] {
        w.on(host, "sudo iptables -F INPUT");
    }
    w.on("cp3", "sudo rm -r /etc/rancher");
    w.on("cp1", &format!("{mtu} 1400"));
    let plan = w.hactl.run(&["plan"]).ok();
    assert!(!plan.all().contains("will refuse"), "{}", plan.all());
    assert_eq!(w.on("cp2", "ls /etc/kubernetes /etc/etcd 2>/dev/null"), "", "nothing was written");
}

fn others(w: &World) {
    let shop = "defaults\\n mode http\\n timeout client 5s\\n timeout server 5s\\n timeout connect 5s\\n\
                frontend shop\\n bind :8080\\n monitor-uri /\\n";
    w.on("cp1", "sudo apt-get install -y --no-install-recommends haproxy");
    // As its package installed it, it serves nothing.
    let plan = w.hactl.run(&["plan"]).ok();
    assert!(!plan.all().contains("[services-free]"), "{}", plan.all());
    w.on("cp1", &format!("printf '{shop}' | sudo tee /etc/haproxy/haproxy.cfg; sudo systemctl restart haproxy"));
    w.on("cp2", "sudo mkdir -p /var/lib/containerd/theirs; sudo touch /var/lib/containerd/theirs/data");
    let answers = || w.on("cp1", "curl -s -o /dev/null -w '%{http_code}' localhost:8080/");
    assert_eq!(answers().trim(), "200");
    let refused = "cp1: haproxy.service was not set up by hactl and is in use (/etc/haproxy/haproxy.cfg)";
    w.hactl.up().exits(3).says("Nothing was changed").says(refused).says("[services-free]");
    assert_eq!(answers().trim(), "200");
    w.on("cp1", "sudo systemctl disable --now haproxy");
    let plan = w.hactl.run(&["plan"]).ok();
    assert!(!plan.all().contains("will refuse"), "{}", plan.all());
    plan.says("cp1: not hactl's, and no service uses it: /etc/haproxy/haproxy.cfg")
        .says("cp2: not empty before hactl: /var/lib/containerd");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    let kept = || w.on("cp1", "cat /etc/haproxy/haproxy.cfg.before-hactl");
    assert!(kept().contains("frontend shop"));
    w.hactl.run(&["down", "--wipe", "--yes"]).ok();
    assert!(kept().contains("frontend shop"));
    let theirs = w.on("cp2", "sudo find /var/lib -path '*wiped-*/theirs/data'");
    assert_eq!(theirs.lines().count(), 1, "{theirs}");
    super::founding::bare_again(w);
}

fn no_sudo(w: &World) {
    for host in ["cp1", "cp2", "cp3"] {
        w.on(
            host,
            "sudo sh -c 'useradd -m plain; cp -r /home/ops/.ssh /home/plain/; chown -R plain: /home/plain/.ssh'",
        );
    }
    let ran = variant(w, "plain.yaml", |t| t.replace("user: ops", "user: plain")).up().exits(1);
    ran.says("sudo").says("NOPASSWD");
    for host in ["cp1", "cp2", "cp3"] {
        w.on(host, "sudo userdel -r plain");
    }
}

fn garbage(w: &World) {
    // Installs `hactl host` there.
    w.hactl.run(&["plan"]).ok();
    let program = w.on("cp1", "sudo sh -c 'ls -d /var/lib/hactl/bin/*/hactl'").trim().to_owned();
    assert!(program.ends_with("/hactl"), "{program}");
    w.on("cp1", &format!("sudo mv {program} {program}.good"));
    for script in ["echo hello", "exec yes", "exec cat /dev/zero", "exit 0", "exec sleep 600"] {
        w.on("cp1", &format!("sudo sh -c 'printf \"#!/bin/sh\\n{script}\\n\" > {program}; chmod 755 {program}'"));
        let ran = w.hactl.run(&["plan"]);
        assert!(ran.err.contains("cp1") || ran.out.contains("cp1"), "{script}: {}", ran.all());
        assert!(ran.took < Duration::from_secs(60), "{script}: {}", ran.all());
        assert!(!ran.all().contains("panicked"), "{script}: {}", ran.all());
    }
    w.on("cp1", &format!("sudo mv {program}.good {program}"));
    w.hactl.run(&["plan"]).ok();
}

fn full_disk(w: &World) {
    w.on("cp3", "sudo sh -c 'mkdir -p /var/lib/hactl/parts && mount -t tmpfs -o size=90m tmpfs /var/lib/hactl/parts'");
    let ran = w.hactl.up().exits(1);
    ran.says("cp3").says("no space left").says("MiB");
    w.on("cp3", "sudo umount /var/lib/hactl/parts");
    up_when_free(w);
}

fn interrupted(w: &World) {
    super::founding::bare_again(w);
    let mut child = w.hactl.command(&["up", "--yes", "-o", "json"]).spawn().expect("hactl can be started");
    let pid = child.id();
    let out = child.stdout.take().expect("it is piped");
    let mut lines = Vec::new();
    let mut reported = false;
    for line in BufReader::new(out).lines() {
        let line = line.expect("it writes text");
        if !reported && line.contains("\"event\":\"done\"") {
            let sent = std::process::Command::new("kill").args(["-INT", &pid.to_string()]).status();
            assert!(sent.expect("kill runs").success());
            reported = true;
        }
        lines.push(line);
    }
    let status = child.wait().expect("it ends");
    let all = lines.join("\n");
    let at = lines.iter().position(|l| l.contains("interrupted:")).unwrap_or_else(|| panic!("not reported: {all}"));
    let started = lines[at..].iter().filter(|l| l.contains("\"event\":\"started\"")).count();
    assert_eq!(started, 0, "something was started after the interrupt: {all}");
    assert_eq!(status.code(), Some(1), "{all}");
    let last = lines.last().expect("a verdict");
    assert!(last.contains("\"code\":\"interrupted\"") && last.contains("were not started"), "{last}");
    up_when_free(w);
}
