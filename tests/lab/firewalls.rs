//! Hosts whose firewalls allow only SSH: hactl names the missing rules, or opens the firewalls where it may.

use super::bare_hosts::variant;
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line, with_pod};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "closed firewalls stop a run, and the missing rules are shown as commands",
        cut: false,
        run: closed,
    },
    Scenario {
        name: "hactl opens the firewalls that it may manage, restores their rules, and closes them again",
        cut: false,
        run: managed,
    },
];

const QUIET: &str = "sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0";

/// ufw on a control-plane host and on the worker, firewalld on a second control-plane host, none on the third.
fn closed(w: &World) {
    for host in ["cp1", "w1"] {
        w.on(host, &format!("{QUIET} update; {QUIET} install --no-install-recommends ufw"));
        w.on(host, "sudo ufw allow 22/tcp && sudo ufw allow 9999/tcp comment 'mine' && sudo ufw --force enable");
        assert!(w.on(host, "sudo ufw status").contains("Status: active"), "ufw works on {host}");
    }
    w.on("cp2", &format!("{QUIET} update; {QUIET} install --no-install-recommends firewalld"));
    wait_for("firewalld works on cp2", Duration::from_secs(30), || {
        w.on("cp2", "sudo firewall-cmd --state 2>&1").contains("running")
    });
    let shown = in_one_line(&w.hactl.up().exits(3).says("Nothing was changed"));
    let address = |host: &str| w.lab.address(host).expect("the lab has this host");
    // VRRP is not among them: both firewalls are stateful, so a host that has sent adverts also receives them.
    for text in [
        "cp1: 2380/tcp for etcd's peers cannot be reached from cp2, cp3".to_owned(),
        format!("ufw allow proto tcp from {} to any port 2380", address("cp2")),
        "cp2: 2380/tcp for etcd's peers cannot be reached from cp1, cp3".to_owned(),
        "firewall-cmd --permanent --add-port=2380/tcp".to_owned(),
        "w1: 10250/tcp for the kubelet cannot be reached from cp1, cp2, cp3".to_owned(),
    ] {
        assert!(shown.contains(&text), "{text}: {shown}");
    }
}

fn managing(w: &World) -> Hactl {
    variant(w, "managed.yaml", |text| text + "firewall: manage\n")
}

fn ours(w: &World, host: &str) -> usize {
    w.on(host, "sudo ufw show added").lines().filter(|l| l.ends_with("comment 'hactl'")).count()
}

fn managed(w: &World) {
    let hactl = managing(w);
    let shown = in_one_line(&hactl.run(&["plan", "-v"]).ok());
    assert!(shown.contains("open in ufw: ") && shown.contains("open in firewalld: "), "{shown}");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    // Rules of the administrator stay, and other ports stay closed.
    let rules = w.on("cp1", "sudo ufw show added");
    assert!(rules.contains("ufw allow 9999/tcp comment 'mine'") && !rules.contains("2381"), "{rules}");

    // Pods behind either firewall reach the API server on cp1, through the firewalls of their own host and of cp1.
    let address = w.lab.address("cp1").expect("the lab has this host");
    for host in ["w1", "cp2"] {
        let connect = format!(
            "sudo nsenter -n -t $(pgrep -n coredns) bash -c 'exec 3<>/dev/tcp/{address}/6443 && echo through' 2>&1"
        );
        let through = || w.on(host, &connect).contains("through");
        with_pod(&hactl, host, || {
            wait_for("a pod reaches an API server of another host", Duration::from_secs(20), through);
        });
    }

    // A rule that somebody removed is restored, with either firewall.
    let from = w.lab.address("cp2").expect("the lab has this host");
    w.on("cp1", &format!("sudo ufw delete allow proto tcp from {from} to any port 2380"));
    w.on("cp2", "sudo firewall-cmd --permanent --delete-policy hactl && sudo firewall-cmd --reload");
    let shown = in_one_line(&hactl.run(&["plan", "--exit-code", "-v"]).exits(5));
    assert!(shown.contains(&format!("open in ufw: 2380/tcp from {from}")), "{shown}");
    let before = ours(w, "cp1");
    hactl.up().ok();
    assert_eq!(ours(w, "cp1"), before + 1);
    hactl.up().ok().says("nothing to do");

    hactl.run(&["down", "--wipe", "--yes"]).ok();
    for host in ["cp1", "w1"] {
        assert_eq!(ours(w, host), 0, "no rule of hactl is left on {host}");
    }
    assert!(w.on("cp1", "sudo ufw show added").contains("9999/tcp comment 'mine'"));
    // firewalld keeps a copy of the policy that was deleted by hand above, under a name that it does not read.
    let policies = w.on("cp2", "sudo sh -c 'ls /etc/firewalld/policies'");
    assert!(!policies.lines().any(|l| l.ends_with(".xml")), "no policy of hactl is left: {policies}");
}
