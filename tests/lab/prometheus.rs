//! Metrics over the network: a real Prometheus, with the configuration and the rules of the documentation, reads them with
//! a certificate for it; no other certificate does.

use super::guard::{CLEARED, HEARD, SLACK, asked, guarded, none};
use super::served::{Server, free};
use super::support::{Hactl, wait_for};
use super::{Scenario, World};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "Prometheus scrapes all guards with its certificate, sees a fault and its repair, and no other client does",
    cut: false,
    run: scraped,
}];

const CONTROL: [&str; 3] = ["cp1", "cp2", "cp3"];
/// Until what happened before is out of every rate of the rules.
const CALM: Duration = Duration::from_secs(600);

/// Prometheus on loopback, ended when its value is dropped.
pub struct Prometheus {
    _server: Server,
    at: SocketAddr,
    log: PathBuf,
}

impl Prometheus {
    /// With a configuration of the documentation, the rules beside it, and the certificate in `folder/client`.
    pub fn start(folder: &Path, config: &str) -> Self {
        for rules in ["alerts.yaml", "alerts-components.yaml"] {
            fs::copy(documents().join(rules), folder.join(rules)).expect("writable");
        }
        let own = folder.join("client").display().to_string();
        let mut config = config.to_owned();
        for (example, here) in [("/etc/prometheus/hactl", own.as_str()), ("_interval: 15s", "_interval: 2s")] {
            assert!(config.contains(example), "the configuration has {example}");
            config = config.replace(example, here);
        }
        fs::write(folder.join("prometheus.yaml"), config).expect("writable");
        let program = std::env::var("PROMETHEUS").expect("PROMETHEUS names it: `make test-all` builds it");
        let (at, log) = (free(Ipv4Addr::LOCALHOST.into()), folder.join("log"));
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", folder.join("prometheus.yaml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={at}"));
        let prometheus = Self { _server: Server::start(command, at, &log), at, log };
        wait_for("Prometheus is ready", Duration::from_secs(60), || prometheus.ask("-/ready", "").0);
        prometheus
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether a request succeeds, and the answer.
    fn ask(&self, path: &str, query: &str) -> (bool, String) {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "--max-time", "10", "-G", "--data-urlencode"]);
        let output = curl.arg(format!("query={query}")).arg(format!("http://{}/{path}", self.at)).output();
        let output = output.expect("curl can be started");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn data(&self, path: &str, query: &str) -> Value {
        let (done, said) = self.ask(&format!("api/v1/{path}"), query);
        assert!(done, "{query}: {said}\n{}", self.said());
        let answer: Value = serde_json::from_str(&said).expect("JSON");
        answer["data"].clone()
    }

    /// The samples that a query finds, each with its instance.
    pub fn query(&self, query: &str) -> Vec<(String, f64)> {
        let data = self.data("query", query);
        let samples = data["result"].as_array().expect("a vector").iter();
        let one = |sample: &Value| {
            let value = sample["value"][1].as_str().expect("a number").parse().expect("a number");
            (sample["metric"]["instance"].as_str().unwrap_or_default().to_owned(), value)
        };
        let mut found: Vec<_> = samples.map(one).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    fn finds(&self, query: &str, within: Duration, count: usize) {
        let took =
            wait_for(&format!("Prometheus finds {count} of {query}"), within, || self.query(query).len() == count);
        println!("        Prometheus found {query} after {took:.1?}");
    }
}

fn scraped(w: &World) {
    let hactl = guarded(w, "healing: {mode: on, metrics: host}");
    hactl.run(&["snapshot", "take"]).ok();
    let folder = w.lab.dir().join("prometheus");
    fs::create_dir(&folder).expect("a new folder");
    issued(&hactl, &folder);
    without_rights(&hactl);

    let addresses = CONTROL.map(|host| w.lab.address(host).expect("an address").to_string());
    let targets = addresses.each_ref().map(|address| format!("{address}:10272"));
    let config = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/prometheus.yaml"));
    let config = config.expect("the documentation");
    let example = "['10.0.0.11:10272', '10.0.0.12:10272', '10.0.0.13:10272']";
    assert!(config.contains(example), "docs/prometheus.yaml has {example}");
    let prometheus = Prometheus::start(&folder, &config.replace(example, &json!(targets).to_string()));
    let each = |value: f64| targets.iter().map(|target| (target.clone(), value)).collect::<Vec<_>>();
    wait_for("Prometheus scrapes every guard", HEARD, || prometheus.query("up{job=\"hactl\"}") == each(1.0));
    assert_eq!(prometheus.query("hactl_guard_up"), each(1.0));
    wait_for("each guard has asked its member", SLACK, || prometheus.query("hactl_failures_tolerated") == each(1.0));
    assert_eq!(prometheus.query("hactl_snapshot_interval_seconds"), each(900.0));
    assert_eq!(prometheus.query("hactl_certificate_days > 300").len(), 3);
    assert_eq!(prometheus.query("sum by (instance) (hactl_guard_repairs_total)"), each(0.0));
    rules(&prometheus, &["alerts.yaml"]);
    strangers(w, &folder, &addresses[0]);

    hactl.run(&["guard", "pause", "--for", "1h", "--reason", "a test"]).ok();
    w.on("cp2", "sudo systemctl kill --signal=SIGSTOP haproxy");
    let frozen = "hactl_faults{host=\"cp2\",kind=\"BalancerFrozen\",class=\"confirmed\"} == 1";
    prometheus.finds(frozen, Duration::from_secs(5) + SLACK, 1);
    prometheus.finds("hactl_held_back{kind=\"BalancerFrozen\"} == 1", SLACK, 1);
    prometheus.finds("ALERTS{alertname=\"HactlGuardPaused\",alertstate=\"pending\"}", SLACK, 3);
    hactl.run(&["guard", "resume"]).ok();
    let helped =
        "increase(hactl_guard_repairs_total{kind=\"BalancerFrozen\",step=\"restart\",outcome=\"helped\"}[5m]) > 0";
    prometheus.finds(helped, CLEARED, 1);
    prometheus.finds("hactl_faults", CLEARED, 0);
    assert_eq!(prometheus.query("up{job=\"hactl\"}"), each(1.0));
    drop(prometheus);

    none(&hactl);
    let hactl = asked(w, "");
    hactl.up().ok();
    for host in CONTROL {
        assert_eq!(w.on(host, "sudo ss -Hltn 'sport = 10272'").trim(), "", "{host}");
    }
    w.healthy(CLEARED);
}

/// `certs client` writes three files, and no file twice.
fn issued(hactl: &Hactl, folder: &Path) {
    let (client, other) = (folder.join("client"), folder.join("other"));
    let to = client.to_str().expect("UTF-8");
    hactl.run(&["certs", "client", "--out", to]).ok().says("the certificate of prometheus is in").says("valid until");
    let key = fs::read_to_string(client.join("client.key")).expect("a key");
    assert_eq!(fs::metadata(client.join("client.key")).expect("a key").permissions().mode() & 0o777, 0o600);
    hactl.run(&["certs", "client", "--out", to]).exits(3).says("already exists and was not changed");
    assert_eq!(fs::read_to_string(client.join("client.key")).expect("a key"), key);
    hactl.run(&["certs", "client", "--out", to, "--group", "system:masters"]).exits(2);
    hactl.run(&["certs", "client", "--out", to, "--name", "system:admin"]).exits(2);
    let ran = hactl.run(&["certs", "client", "--out", other.to_str().expect("UTF-8"), "-o", "json"]).ok();
    let object: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.all()));
    assert_eq!(object["group"], "hactl:metrics");
    for file in ["certificate", "key", "ca"] {
        assert!(Path::new(object[file].as_str().expect("a path")).is_file(), "{object}");
    }
}

/// In the API, the group may do what everybody may who is authenticated, and nothing else.
fn without_rights(hactl: &Hactl) {
    let may = |user: &str, group: &str| {
        let (user, group) = (format!("--as={user}"), format!("--as-group={group}"));
        let ran = hactl.kubectl(&["auth", "can-i", "--list", &user, &group]).ok();
        let mut lines: Vec<String> = ran.out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let of_reader = may("hactl:metrics:prometheus", "hactl:metrics");
    assert!(of_reader.len() > 3, "{of_reader:?}");
    assert_eq!(of_reader, may("somebody", "some:group"));
}

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// Every alert rule in these files of the documentation is loaded and evaluated, and at some moment none is true. One that
/// always is only fires once its time has passed.
pub fn rules(prometheus: &Prometheus, files: &[&str]) {
    let of = |file: &&str| fs::read_to_string(documents().join(file)).expect("readable").matches("- alert: ").count();
    let named: usize = files.iter().map(of).sum();
    wait_for("every rule is evaluated", SLACK, || {
        let data = prometheus.data("rules", "");
        let groups = data["groups"].as_array().expect("groups").iter();
        let rules: Vec<&Value> = groups.flat_map(|group| group["rules"].as_array().expect("rules")).collect();
        assert!(rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
        named > 0 && rules.len() == named && rules.iter().all(|rule| rule["health"] == "ok")
    });
    wait_for("no rule is true", CALM, || prometheus.query("ALERTS").is_empty());
}

/// A request for a URL, with the certificate of these names and the CA in a file.
pub fn curl(url: &str, certificate: Option<&Path>, ca: Option<&Path>) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", url]);
    match ca {
        Some(ca) => curl.arg("--cacert").arg(ca),
        None => curl.arg("-k"),
    };
    if let Some(of) = certificate {
        curl.arg("--cert").arg(of.with_extension("crt")).arg("--key").arg(of.with_extension("key"));
    }
    curl
}

/// Whatever else the cluster CA stands behind reads nothing.
fn strangers(w: &World, folder: &Path, address: &str) {
    let url = format!("https://{address}:10272/metrics");
    let state = w.hactl.state(w.lab.name());
    let get = |url: &str, with: Option<&Path>| {
        let output = curl(url, with, None).output().expect("curl can be started");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let file = |name: &str, content: &[u8]| {
        fs::write(folder.join(name), content).expect("writable");
        folder.join(name)
    };
    let (done, metrics) = get(&url, Some(&folder.join("client/client")));
    assert!(done && metrics.contains("hactl_guard_up 1"), "the same client with its certificate: {metrics}");

    let kubeconfig = fs::read_to_string(state.join("kubeconfig")).expect("the kubeconfig");
    let kubeconfig: Value = serde_saphyr::from_str(&kubeconfig).expect("YAML");
    let data = |path: &str| {
        let text = kubeconfig.pointer(path).and_then(Value::as_str).expect("the kubeconfig has it");
        STANDARD.decode(text).expect("base64")
    };
    file("admin.crt", &data("/users/0/user/client-certificate-data"));
    let admin = file("admin.key", &data("/users/0/user/client-key-data"));

    // What somebody gets who may approve certificate signing requests.
    let (leaf, key) = approved(&w.hactl);
    let signing = fs::read_to_string(state.join("signing-ca.crt")).expect("the signing intermediate");
    file("approved.crt", format!("{leaf}{signing}").as_bytes());
    let approved = file("approved.key", key.as_bytes());
    file("alone.crt", leaf.as_bytes());
    let alone = file("alone.key", key.as_bytes());
    for known in [&admin, &approved] {
        let (done, said) = get(&format!("https://{address}:6443/api"), Some(known));
        assert!(done && said.contains("APIVersions"), "the API server knows {}: {said}", known.display());
    }
    for with in [None, Some(&admin), Some(&approved), Some(&alone), Some(&approved)] {
        let got = get(&url, with.map(PathBuf::as_path));
        assert_eq!(got, (false, String::new()), "{with:?}");
    }
    assert_eq!(get(&url.replace("https", "http"), None), (false, String::new()));
    let guard = "--cert /etc/hactl/guard/guard.crt --key /etc/hactl/guard/guard.key";
    let said = w.on("cp2", &format!("sudo curl -sk --max-time 10 {guard} {url}; echo \"($?)\""));
    assert!(said.starts_with('(') && said.trim() != "(0)", "the guard of another host: {said}");

    let journal = w.on("cp1", "sudo journalctl -u hactl-guard -o cat --no-pager");
    let of_group = format!("a connection from {} was refused: its certificate is not of group", w.gateway());
    assert_eq!(journal.matches(&of_group).count(), 1, "once: {journal}");
}

/// A certificate of the group, through the API, and its key.
fn approved(hactl: &Hactl) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "hactl:metrics:prometheus");
    params.distinguished_name.push(DnType::OrganizationName, "hactl:metrics");
    let request = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "t-metrics"},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "client auth"],
            "request": STANDARD.encode(request),
        },
    });
    let path = hactl.inventory.with_file_name("csr.json");
    fs::write(&path, object.to_string()).expect("writable");
    hactl.kubectl(&["create", "-f", path.to_str().expect("UTF-8")]).ok();
    hactl.kubectl(&["certificate", "approve", "t-metrics"]).ok();
    let mut signed = String::new();
    wait_for("the request is signed", Duration::from_secs(40), || {
        signed = hactl.kubectl(&["get", "csr", "t-metrics", "-o", "jsonpath={.status.certificate}"]).ok().out;
        !signed.is_empty()
    });
    hactl.kubectl(&["delete", "csr", "t-metrics"]).ok();
    let leaf = STANDARD.decode(signed.trim()).expect("base64");
    (String::from_utf8(leaf).expect("PEM"), key.serialize_pem())
}
