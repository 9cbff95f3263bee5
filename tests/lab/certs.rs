//! Certificates: how they are listed and how they are renewed.

use super::support::{Writer, wait_for};
use super::trials::{late, unnoticed};
use super::{Scenario, World, in_one_line};
use serde_json::Value;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "certs list shows the certificates of all hosts, and a renewed one is served at once",
        cut: true,
        run: one,
    },
    Scenario {
        name: "certs renew renews the certificates of a host and restarts no etcd, API server or kubelet",
        cut: false,
        run: all,
    },
    Scenario { name: "status reports a certificate that expires soon, and up renews it", cut: false, run: near },
];

fn listed(w: &World) -> Value {
    let ran = w.hactl.run(&["certs", "list", "-o", "json"]).ok();
    serde_json::from_str(&ran.out).expect("one object")
}

/// One certificate of one host.
fn certificate<'a>(list: &'a Value, host: &str, name: &str) -> &'a Value {
    let mut hosts = list["hosts"].as_array().expect("hosts").iter();
    let of = hosts.find(|of| of["name"] == host).expect("the host is listed");
    let mut all = of["certificates"].as_array().expect("certificates").iter();
    all.find(|c| c["name"] == name).unwrap_or_else(|| panic!("{host} has {name}: {of:#}"))
}

/// The serial of every certificate of every host. The remaining time would differ with every second.
fn serials(list: &Value) -> Vec<(&Value, &Value, &Value)> {
    let hosts = list["hosts"].as_array().expect("hosts");
    let of = |host: &'_ Value| host["certificates"].as_array().expect("certificates").len();
    assert!(hosts.iter().all(|host| of(host) > 0), "{list:#}");
    let all =
        hosts.iter().flat_map(|host| host["certificates"].as_array().into_iter().flatten().map(move |c| (host, c)));
    all.map(|(host, c)| (&host["name"], &c["name"], &c["serial"])).collect()
}

/// The serial of the certificate that a component presents.
fn presented(w: &World, host: &str, at: &str) -> String {
    let ask = format!("echo | sudo openssl s_client -connect {at} 2>/dev/null | openssl x509 -noout -serial");
    w.on(host, &ask).trim().to_lowercase()
}

fn one(w: &World) {
    w.hactl.up().ok();
    let before = listed(w);
    for name in ["apiserver", "etcd-server", "etcd-peer", "kubelet", "kubelet-serving", "cluster-ca", "signing-ca"] {
        let found = certificate(&before, "cp1", name);
        assert!(found["leftSeconds"].as_i64().expect("it is there") > 300 * 86_400, "{found:#}");
    }
    for name in ["apiserver", "etcd-server", "etcd-peer"] {
        assert_eq!(certificate(&before, "cp1", name)["presented"]["same"], true, "{name}");
    }
    assert_eq!(certificate(&before, "w1", "kubelet")["fate"], "kubelet");
    let own = before["administrator"]["certificates"].as_array().expect("the administrator's").len();
    assert_eq!(own, 6, "five CAs and a kubeconfig");
    w.hactl.run(&["certs", "list", "w1"]).ok().says("renewed by the kubelet");
    w.hactl.run(&["certs", "renew", "kubelet"]).exits(2).says("renews it automatically");
    w.hactl.run(&["certs", "renew", "apiservr"]).exits(2).says("there is no certificate apiservr");
    w.hactl.run(&["certs", "renew", "apiserver", "--dry-run"]).ok().says("issue 1 certificate");
    assert_eq!(serials(&listed(w)), serials(&before), "nothing was changed");

    let reading = w.api().reads(Duration::from_millis(20));
    w.hactl.run(&["certs", "renew", "apiserver"]).ok().says("1 certificate renewed on 1 host");
    unnoticed(w, &reading.end());
    let after = listed(w);
    let (old, new) = (certificate(&before, "cp1", "apiserver"), certificate(&after, "cp1", "apiserver"));
    assert_ne!(old["serial"], new["serial"]);
    assert_eq!(new["presented"]["same"], true, "{new:#}");
    let serial = new["serial"].as_str().expect("a serial");
    let at = new["presented"]["at"].as_str().expect("an address");
    assert_eq!(presented(w, "cp1", at), format!("serial={serial}"));
    w.hactl.kubectl(&["get", "nodes"]).ok().says("cp1");
    w.hactl.up().ok().says("nothing to do");
}

fn all(w: &World) {
    w.hactl.up().ok();
    let started = || w.on("cp1", "sudo pgrep -x 'etcd|kube-apiserver|kubelet' | sort | xargs -r ps -o lstart=,pid= -p");
    let (before, processes) = (listed(w), started());
    let (writer, reading) = (Writer::start(&w.api(), "w-certs"), w.api().reads(Duration::from_millis(20)));
    let ran = w.hactl.run(&["certs", "renew"]).ok();
    assert!(in_one_line(&ran).contains("stay valid until they expire"), "{}", ran.all());
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    let reads = reading.end();
    unnoticed(w, &reads);
    assert!(longest < late(&reads), "a write waited for {longest:?}");
    assert_eq!(started(), processes, "no etcd, API server or kubelet was restarted");
    let after = listed(w);
    for name in ["apiserver", "etcd-server", "etcd-peer", "scheduler", "controller-manager", "approver", "observer"] {
        let serial = |list: &Value| certificate(list, "cp1", name)["serial"].clone();
        assert_ne!(serial(&before), serial(&after), "{name}");
    }
    let kubelet = |list: &Value| certificate(list, "cp1", "kubelet")["serial"].clone();
    assert_eq!(kubelet(&before), kubelet(&after), "the kubelet renews this one itself");
    w.hactl.run(&["certs", "renew", "admin"]).ok();
    w.healthy(Duration::from_secs(120));
    w.hactl.up().ok().says("nothing to do");
}

fn near(w: &World) {
    w.hactl.up().ok();
    let ca = w.hactl.state(w.lab.name()).join("cluster-ca");
    let path = "/etc/kubernetes/pki/scheduler.crt";
    let pem = super::expired::reissued(&w.on("cp1", &format!("sudo cat {path}")), &ca, 20 * 24);
    let packed = super::expired::packed(&pem);
    w.on("cp1", &format!("echo {packed} | base64 -d | sudo tee {path} > /dev/null"));
    w.hactl.run(&["status"]).ok().says("scheduler on cp1 expires in 19 d");
    w.hactl.run(&["certs", "list"]).ok().says("due: it expires in 19 d");
    w.hactl.up().ok();
    wait_for("status no longer reports it", Duration::from_secs(60), || {
        !w.hactl.run(&["status"]).out.contains("expires in 19 d")
    });
    w.hactl.up().ok().says("nothing to do");
}
