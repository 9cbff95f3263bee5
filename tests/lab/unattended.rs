//! A cluster without an administrator: its hosts renew their own certificates.

use super::expired::{LEAVES, packed, reissued};
use super::support::{Writer, wait_for};
use super::trials::unnoticed;
use super::{Scenario, World, in_one_line};
use crate::support::Hactl;
use serde_json::Value;
use std::time::Duration;

/// Three control-plane hosts and a worker.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "hosts renew certificates unnoticed, one with expired ones recovers, and up removes the feature again",
    cut: false,
    run: unattended,
}];

const CONTROL: [&str; 3] = ["cp1", "cp2", "cp3"];
const BOOT: Duration = Duration::from_secs(60);
/// The timer's first run after a boot, and the time until the host serves again.
const BY_ITSELF: Duration = Duration::from_secs(240);
/// A minute after the timer was started, and some more.
const FIRST_RUN: Duration = Duration::from_secs(90);
/// The kubelet renews this one itself.
const KUBELETS: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// Ages the certificates of a host that hactl renews: each has this many hours left.
fn ages(w: &World, host: &str, left_hours: i64) {
    let state = w.hactl.state(w.lab.name());
    for (path, ca) in LEAVES.iter().filter(|(path, _)| *path != KUBELETS) {
        let pem = w.on(host, &format!("sudo cat {path}"));
        let text = packed(&reissued(&pem, &state.join(ca), left_hours));
        w.on(host, &format!("echo {text} | base64 -d | sudo tee {path} > /dev/null"));
    }
}

/// The certificates of a host: name, issuer, what renews it, seconds left.
fn listed(hactl: &Hactl, host: &str) -> Vec<(String, String, String, i64)> {
    let ran = hactl.run(&["certs", "list", host, "-o", "json"]).ok();
    let list: Value = serde_json::from_str(&ran.out).expect("one object");
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let all = list["hosts"][0]["certificates"].as_array().expect("certificates").iter();
    all.map(|c| (text(c, "name"), text(c, "signedBy"), text(c, "fate"), c["leftSeconds"].as_i64().unwrap_or(0)))
        .collect()
}

fn unattended(w: &World) {
    let path = w.lab.dir().join("unattended.yaml");
    let plain = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    let asked = |more: &str| std::fs::write(&path, format!("{plain}{more}\n")).expect("writable");
    asked("certificates: {unattended: 3y}");
    let hactl = Hactl::new(path.clone());
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    let issuers =
        |host: &str| listed(&hactl, host).into_iter().filter(|c| c.0.ends_with("-issuer")).collect::<Vec<_>>();
    for host in CONTROL {
        let found = issuers(host);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|(.., left)| *left > 3 * 365 * 86_400), "{found:?}");
    }
    let said = in_one_line(&hactl.run(&["status"]).ok());
    assert!(said.contains("hosts renew their own until 20"), "{said}");

    // The first run of each timer, so that none comes while the certificates are aged below.
    let has_run = |host: &str| w.on(host, "sudo journalctl -u hactl-renew -o cat --no-pager").contains("0 renewed");
    wait_for("the timer of every host has run once", FIRST_RUN, || CONTROL.iter().all(|host| has_run(host)));

    // All certificates have twenty days left, and clients read while they are renewed.
    let started = || w.on("cp1", "sudo pgrep -x 'etcd|kube-apiserver|kubelet' | sort | xargs -r ps -o lstart=,pid= -p");
    let before = started();
    let (reading, writer) = (w.api().reads(Duration::from_millis(20)), Writer::start(&w.api(), "w-unattended"));
    for host in CONTROL {
        ages(w, host, 20 * 24);
        w.on(host, "sudo systemctl start hactl-renew");
        let journal = w.on(host, "sudo journalctl -u hactl-renew -o cat --no-pager");
        assert!(journal.contains("11 certificates checked: 11 renewed, 0 could not be renewed"), "{journal}");
    }
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.2?}");
    unnoticed(w, &reading.end());
    assert_eq!(started(), before, "no etcd, API server or kubelet was restarted");
    for host in CONTROL {
        let all = listed(&hactl, host);
        let own: Vec<_> = all.iter().filter(|(_, _, fate, _)| fate == "host").collect();
        assert_eq!(own.len(), 11, "{all:?}");
        assert!(own.iter().all(|(_, by, _, left)| by.ends_with("-issuer") && *left > 300 * 86_400), "{own:?}");
    }
    hactl.up().ok().says("nothing to do");

    // A host was off until everything on it had expired; nobody runs hactl.
    ages(w, "cp2", -1);
    w.lab.kill("cp2").expect("the power can be cut");
    w.lab.start("cp2", BOOT).expect("the host boots");
    let took = wait_for("cp2 serves again automatically", BY_ITSELF, || {
        w.on("cp2", "curl -sko /dev/null -w '%{http_code}' https://$(hostname -I | cut -d' ' -f1):6443/readyz || true")
            .trim()
            == "200"
    });
    println!("        cp2 served again {took:.0?} after its boot, with its expired certificates renewed automatically");
    wait_for("status passes", BY_ITSELF, || hactl.run(&["status"]).code == 0);
    hactl.up().ok().says("nothing to do");

    // The issuers are removed; the certificates that they signed stay valid.
    asked("");
    let ran = hactl.up().ok();
    assert!(in_one_line(&ran).contains("stop hactl-renew.timer"), "{}", ran.all());
    for host in CONTROL {
        let left = w.on(host, "sudo find /etc/hactl /etc/systemd/system | grep -E 'issuer[.]|renew' || true");
        assert_eq!(left.trim(), "", "{host}");
        assert_eq!(w.on(host, "systemctl is-active hactl-renew.timer || true").trim(), "inactive");
    }
    hactl.up().ok().says("nothing to do");
    w.healthy(BY_ITSELF);
}
