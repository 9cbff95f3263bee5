//! Hosts with firewalls that let in nothing but SSH: told by rule, or opened by hactl where it is allowed to.

use super::bare_hosts::variant;
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line, with_pod};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "closed firewalls stop a run, and the rules that lack are told in their words",
        cut: false,
        run: told,
    },
    Scenario {
        name: "firewalls that hactl may manage are opened, kept so, and closed again",
        cut: false,
        run: managed,
    },
];

const QUIET: &str = "sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0";

/// ufw on a control-plane host and on the worker, firewalld on another, nothing on the third.
fn told(w: &World) {
    for host in ["cp1", "w1"] {
        w.on(host, &format!("{QUIET} update; {QUIET} install --no-install-recommends ufw"));
        w.on(host, "sudo ufw allow 22/tcp && sudo ufw allow 9999/tcp comment 'mine' && sudo ufw --force enable");
        assert!(w.on(host, "sudo ufw status").contains("Status: active"), "ufw works on {host}");
    }
    w.on("cp2", &format!("{QUIET} update; {QUIET} install --no-install-recommends firewalld"));
    wait_for("firewalld works on cp2", Duration::from_secs(30), || {
        w.on("cp2", "sudo firewall-cmd --state 2>&1").contains("running")
    });
    let told = in_one_line(&w.hactl.up().exits(3).says("Nothing was changed"));
    let address = |host: &str| w.lab.address(host).expect("the lab has this host");
    // VRRP is not among them: who has sent some is let through in return by the state that both firewalls keep.
    for text in [
        "cp1: 2380/tcp for etcd's peers cannot be reached from cp2, cp3".to_owned(),
        format!("ufw allow proto tcp from {} to any port 2380", address("cp2")),
        "cp2: 2380/tcp for etcd's peers cannot be reached from cp1, cp3".to_owned(),
        "firewall-cmd --permanent --add-port=2380/tcp".to_owned(),
        "w1: 10250/tcp for the kubelet cannot be reached from cp1, cp2, cp3".to_owned(),
    ] {
        assert!(told.contains(&text), "{text}: {told}");
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
    let told = in_one_line(&hactl.run(&["plan", "-v"]).ok());
    assert!(told.contains("open in ufw: ") && told.contains("open in firewalld: "), "{told}");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    // What people let in stays, and what nobody asked for stays closed.
    let rules = w.on("cp1", "sudo ufw show added");
    assert!(rules.contains("ufw allow 9999/tcp comment 'mine'") && !rules.contains("2381"), "{rules}");

    // The API server on cp1 is asked by pods behind either firewall, over their own hosts and through that of cp1.
    let address = w.lab.address("cp1").expect("the lab has this host");
    for host in ["w1", "cp2"] {
        let knock = format!(
            "sudo nsenter -n -t $(pgrep -n coredns) bash -c 'exec 3<>/dev/tcp/{address}/6443 && echo through' 2>&1"
        );
        let through = || w.on(host, &knock).contains("through");
        with_pod(&hactl, host, || {
            wait_for("a pod reaches an API server of another host", Duration::from_secs(20), through);
        });
    }

    // A rule that somebody took out is put back, on either.
    let from = w.lab.address("cp2").expect("the lab has this host");
    w.on("cp1", &format!("sudo ufw delete allow proto tcp from {from} to any port 2380"));
    w.on("cp2", "sudo firewall-cmd --permanent --delete-policy hactl && sudo firewall-cmd --reload");
    let told = in_one_line(&hactl.run(&["plan", "--exit-code", "-v"]).exits(5));
    assert!(told.contains(&format!("open in ufw: 2380/tcp from {from}")), "{told}");
    let before = ours(w, "cp1");
    hactl.up().ok();
    assert_eq!(ours(w, "cp1"), before + 1);
    hactl.up().ok().says("nothing to do");

    hactl.run(&["down", "--wipe", "--yes"]).ok();
    for host in ["cp1", "w1"] {
        assert_eq!(ours(w, host), 0, "nothing of ours is let in on {host} any more");
    }
    assert!(w.on("cp1", "sudo ufw show added").contains("9999/tcp comment 'mine'"));
    // firewalld keeps a copy of what was deleted by hand above, under a name that it does not read.
    let policies = w.on("cp2", "sudo sh -c 'ls /etc/firewalld/policies'");
    assert!(!policies.lines().any(|l| l.ends_with(".xml")), "nothing of ours is left: {policies}");
}
