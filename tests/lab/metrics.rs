//! The metrics of all components, on a cluster that is asked for them: read with the certificate for it, and with no other.

use super::dashboard::{dashboard, queries};
use super::guard::{CLEARED, asked};
use super::prometheus::{Prometheus, curl, rules};
use super::support::{Hactl, wait_for};
use super::{Scenario, World};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// On any cluster of three control-plane hosts.
pub const READ: &[Scenario] = &[Scenario {
    name: "metrics of every component are read with a certificate for it, and with no other one",
    cut: true,
    run: read_by_readers,
}];

/// On one with a worker.
pub const SCRAPED: &[Scenario] = &[Scenario {
    name: "Prometheus scrapes every component by the configuration of the documentation, and shows the dashboard",
    cut: false,
    run: scraped,
}];

const CONTROL: [&str; 3] = ["cp1", "cp2", "cp3"];
/// Each component on control-plane hosts, with the beginning of a line that only its metrics have.
const OF_CONTROL: [(&str, &str); 7] = [
    ("etcd", "etcd_server_has_leader 1"),
    ("etcd-balancer", "haproxy_backend_status{proxy=\"members\""),
    ("load-balancer", "haproxy_backend_status{proxy=\"api-servers\""),
    ("kube-scheduler", "scheduler_pending_pods{"),
    ("kube-controller-manager", "node_collector_"),
    ("containerd", "containerd_"),
    ("kube-proxy", "kubeproxy_sync_proxy_rules_"),
];
/// Panels of the dashboard that show only what has happened: faults, repairs and maintenances.
const EVENTS: [&str; 3] = ["Faults by host", "Repairs", "Maintenances of Nodes"];

/// hactl with this inventory, once `up` has nothing to do, and the files of a reader.
fn read_on(w: &World, more: &str) -> (Hactl, PathBuf) {
    let hactl = asked(w, more);
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    let folder = w.lab.dir().join("metrics");
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("the folder of the scenario before");
    }
    fs::create_dir(&folder).expect("a new folder");
    let to = folder.join("client");
    hactl.run(&["certs", "client", "--out", to.to_str().expect("UTF-8")]).ok();
    (hactl, folder)
}

/// What the request gets; `None`: nothing, or an error.
fn get(url: &str, certificate: Option<&Path>, ca: Option<&Path>) -> Option<String> {
    let output = curl(url, certificate, ca).arg("--fail").output().expect("curl can be started");
    if !output.status.success() {
        println!("        {url}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn has(metrics: Option<&String>, line: &str) -> bool {
    metrics.is_some_and(|text| text.lines().any(|one| one.starts_with(line)))
}

fn read_by_readers(w: &World) {
    let (hactl, folder) = read_on(w, "metrics: on");
    let (reader, ca) = (folder.join("client/client"), folder.join("client/ca.crt"));
    let address = |host: &str| w.lab.address(host).expect("an address");
    let mut read: BTreeMap<&str, String> = BTreeMap::new();
    for host in CONTROL {
        for (word, line) in OF_CONTROL {
            let found = get(&format!("https://{}:10273/metrics/{word}", address(host)), Some(&reader), Some(&ca));
            assert!(has(found.as_ref(), line), "{host}, {word}: {found:?}");
            read.entry(word).or_default().push_str(&found.unwrap_or_default());
        }
        let found = get(&format!("https://{}:6443/metrics", address(host)), Some(&reader), Some(&ca));
        assert!(has(found.as_ref(), "apiserver_request_total{"), "{host}");
        read.entry("kube-apiserver").or_default().push_str(&found.unwrap_or_default());
    }
    let serving = folder.join("client/kubelet-ca.crt");
    for (job, path, line) in [
        ("kubelet", "metrics", "kubelet_node_name{"),
        ("containers", "metrics/cadvisor", "container_cpu_usage_seconds_total{"),
    ] {
        let found = get(&format!("https://{}:10250/{path}", address("cp1")), Some(&reader), Some(&serving));
        assert!(has(found.as_ref(), line), "{path}");
        read.insert(job, found.unwrap_or_default());
    }
    let guard = format!("https://{}:10273/metrics/guard", address("cp1"));
    assert_eq!(get(&guard, Some(&reader), Some(&ca)), None, "there are no guards");
    read.insert("coredns", of_coredns(w, &reader, &ca));
    all_served(&read);
    rights(&hactl);
    strangers(w, &folder);

    w.on("cp2", "sudo systemctl kill --signal=SIGSTOP etcd");
    let frozen = curl(&format!("https://{}:10273/metrics/etcd", address("cp2")), Some(&reader), None).output();
    w.on("cp2", "sudo systemctl kill --signal=SIGCONT etcd");
    let said = String::from_utf8_lossy(&frozen.expect("curl can be started").stdout).into_owned();
    assert_eq!(said, "etcd of this host does not answer: no answer within 8 s\n");

    let hactl = asked(w, "");
    hactl.up().ok();
    for host in CONTROL {
        let left = "sudo ss -Hltn 'sport = 10273 or sport = 6482 or sport = 1338'; ls -d /etc/hactl/metrics* \
                    /etc/systemd/system/hactl-metrics.service 2>/dev/null; true";
        assert_eq!(w.on(host, left).trim(), "/etc/hactl/metrics", "{host}: only the empty directory is left");
        assert_eq!(w.on(host, "sudo ls -A /etc/hactl/metrics").trim(), "", "{host}");
    }
    let roles = hactl.kubectl(&["get", "clusterroles,roles", "-A", "-o", "name"]).ok().out;
    assert!(!roles.contains("hactl:metrics"), "{roles}");
    w.healthy(CLEARED);
}

/// Each metric that the alert rules and the dashboard name is served by the component that they name.
fn all_served(read: &BTreeMap<&str, String>) {
    let is_missing = |line: &&str| {
        let (job, metric) = line.split_once('\t').expect("a job, a tab and a metric");
        let is_it = |one: &str| one.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']));
        read.get(job).is_none_or(|text| !text.lines().any(is_it))
    };
    let missing: Vec<&str> = include_str!("metrics.tsv").lines().filter(is_missing).collect();
    assert!(missing.is_empty(), "components do not serve {missing:?}");
}

/// The metrics of the pods of CoreDNS, through an API server.
fn of_coredns(w: &World, reader: &Path, ca: &Path) -> String {
    let base = format!("https://{}:6443/api/v1/namespaces/kube-system/pods", w.lab.address("cp1").expect("an address"));
    let list = get(&format!("{base}?labelSelector=k8s-app%3Dkube-dns"), Some(reader), Some(ca));
    let list: Value = serde_json::from_str(&list.expect("a list")).expect("JSON");
    let pods = list["items"].as_array().expect("a list");
    assert!(!pods.is_empty());
    let mut read = String::new();
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let found = get(&format!("{base}/{name}:9153/proxy/metrics"), Some(reader), Some(ca));
        assert!(has(found.as_ref(), "coredns_build_info{"), "{name}");
        read.push_str(&found.unwrap_or_default());
    }
    read
}

/// What the group may do in the API, and what not.
fn rights(hactl: &Hactl) {
    let may = |words: &[&str]| {
        let own = ["auth", "can-i", "--as=hactl:metrics:prometheus", "--as-group=hactl:metrics"];
        hactl.kubectl(&[&own[..], words].concat()).out.trim().to_owned()
    };
    assert_eq!(may(&["get", "nodes", "--subresource=metrics"]), "yes");
    assert_eq!(may(&["get", "pods", "--subresource=proxy", "-n", "kube-system"]), "yes");
    for words in [
        &["get", "secrets", "-n", "kube-system"][..],
        &["get", "nodes", "--subresource=proxy"],
        &["get", "pods", "-n", "default"],
        &["get", "pods", "--subresource=proxy", "-n", "default"],
        &["create", "pods", "--subresource=proxy", "-n", "kube-system"],
        &["create", "pods", "--subresource=exec", "-n", "kube-system"],
    ] {
        assert_eq!(may(words), "no", "{words:?}");
    }
}

/// Nobody else gets anything: without a certificate, or with that of a host.
fn strangers(w: &World, folder: &Path) {
    let url = format!("https://{}:10273/metrics/etcd", w.lab.address("cp1").expect("an address"));
    assert_eq!(get(&url, None, None), None);
    assert_eq!(get(&url.replace("https", "http"), None, None), None);
    let other = folder.join("client/client");
    assert!(get(&url, Some(&other), None).is_some(), "the same request with the certificate");
    for (cert, key) in [
        ("/etc/hactl/metrics/metrics.crt", "/etc/hactl/metrics/metrics.key"),
        ("/etc/kubernetes/pki/observer.crt", "/etc/kubernetes/pki/observer.key"),
    ] {
        let said = w.on("cp2", &format!("sudo curl -sk --max-time 10 --cert {cert} --key {key} {url}; echo \"($?)\""));
        assert!(said.starts_with('(') && said.trim() != "(0)", "{cert} of another host: {said}");
    }
    let anonymous = "curl -sk -o /dev/null -w '%{http_code}' https://127.0.0.1:10259/metrics";
    assert_eq!(w.on("cp1", anonymous).trim(), "403", "the scheduler itself");
}

fn scraped(w: &World) {
    let (hactl, folder) = read_on(w, "healing: watch\nmetrics: on");
    let mut example = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/prometheus-components.yaml"))
        .expect("the documentation");
    let address = |host: &str| w.lab.address(host).expect("an address").to_string();
    let endpoint = hactl.kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"]).ok().out;
    let endpoint = endpoint.trim().trim_start_matches("https://").trim_end_matches(":6443").to_owned();
    for (written, here) in [
        ("10.0.0.11:", format!("{}:", address("cp1"))),
        ("10.0.0.12:", format!("{}:", address("cp2"))),
        ("10.0.0.13:", format!("{}:", address("cp3"))),
        ("10.0.0.21:", format!("{}:", address("w1"))),
        ("10.0.0.100:", format!("{endpoint}:")),
    ] {
        assert!(example.contains(written), "docs/prometheus-components.yaml has {written}");
        example = example.replace(written, &here);
    }
    let jobs = example.matches("job_name: ").count();
    let prometheus = Prometheus::start(&folder, &example);
    // Eight on three hosts, of which two are also on the worker, and the API servers; two for each kubelet; CoreDNS.
    let targets = 8 * 3 + 2 + 3 + 2 * 4 + 2;
    wait_for("every target is up", Duration::from_secs(60), || prometheus.query("up == 1").len() == targets);
    assert_eq!(prometheus.query("count by (job) (up == 1)").len(), jobs);
    assert_eq!(prometheus.query("up == 0"), []);
    drilled(&hactl, &prometheus);
    rules(&prometheus, &["alerts.yaml", "alerts-components.yaml"]);
    shown(w, &hactl, &prometheus);
    assert_eq!(prometheus.query("ALERTS{alertstate=\"firing\"}"), [], "nothing is wrong");
    drop(prometheus);
    asked(w, "").up().ok();
    w.healthy(CLEARED);
}

/// A snapshot and a drill are in the metrics of guards, which look for both once a minute.
fn drilled(hactl: &Hactl, prometheus: &Prometheus) {
    hactl.run(&["snapshot", "take"]).ok();
    hactl.run(&["recover", "--drill"]).ok();
    for age in ["hactl_snapshot_age_seconds", "hactl_drill_age_seconds{identity=\"owners\",outcome=\"restored\"}"] {
        wait_for(age, Duration::from_secs(90), || !prometheus.query(&format!("{age} < 300")).is_empty());
    }
}

/// Asks CoreDNS for the name `cluster.local`. The answer is of no interest.
const LOOKS_UP: &str = r"\0\1\1\0\0\1\0\0\0\0\0\0\7cluster\5local\0\0\1\0\1";

/// Prometheus understands each query of the dashboard, and finds a number unless nothing has happened.
fn shown(w: &World, hactl: &Hactl, prometheus: &Prometheus) {
    let dns = ["-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"];
    let dns = hactl.kubectl(&dns).ok().out;
    let look_up = format!("bash -c \"printf '{LOOKS_UP}' >/dev/udp/{}/53\"", dns.trim());
    let queries = queries(&dashboard());
    assert!(EVENTS.iter().all(|panel| queries.iter().any(|(title, _)| title == panel)), "{queries:?}");
    for (panel, query) in &queries {
        let is_event = EVENTS.contains(&panel.as_str());
        let shows = || {
            // An idle cluster asks for no name and changes no Service, so it shows no duration of either.
            if query.contains("coredns_dns_") {
                w.on("cp1", &look_up);
            }
            if query.contains("kubeproxy_sync_") {
                hactl.kubectl(&["create", "service", "clusterip", "t-shown", "--tcp=80"]).ok();
                hactl.kubectl(&["delete", "service", "t-shown"]).ok();
            }
            prometheus.query(query).iter().any(|(_, value)| !value.is_nan()) || is_event
        };
        wait_for(&format!("{panel}: {query}"), Duration::from_secs(60), shows);
    }
    println!("        Prometheus answered {} queries of the dashboard", queries.len());
}
