//! Unauthenticated clients get nothing, and secrets appear only where they are used.

use super::bare_hosts::variant;
use super::{Scenario, World};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "clients without a valid certificate get nothing from any port of any host",
        cut: true,
        run: unauthenticated,
    },
    Scenario { name: "no secret appears in logs, command lines or temporary files", cut: true, run: nowhere },
    Scenario { name: "a support bundle has the evidence of reachable hosts and no secret", cut: false, run: bundle },
];

const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];
/// The ports that other machines can reach, with their programs. All other listeners are on loopback.
const OPEN: [(u16, &str); 5] =
    [(22, "sshd"), (2379, "etcd"), (2380, "etcd"), (6443, "kube-apiserver and haproxy"), (10250, "kubelet")];

/// The HTTP status that curl gets without verifying the server, `000` if TLS ended the connection.
fn code(url: &str, more: &[&str]) -> String {
    let argv = ["-sk", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"];
    let output = Command::new("curl").args(argv).args(more).arg(url).output().expect("curl can be started");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn unauthenticated(w: &World) {
    // A client with a certificate of its own CA, and a client with a certificate of the cluster: the kubelet's.
    let dir = w.lab.dir().join("strangers");
    fs::create_dir_all(&dir).expect("a folder");
    let own = super::tiny_tls::TestCa::new("strangers");
    fs::write(dir.join("own.pem"), format!("{}{}", own.key(), own.cert)).expect("a file");
    let kubelet = w.on("cp1", "sudo cat /var/lib/kubelet/pki/kubelet-client-current.pem 2>/dev/null || sudo cat /etc/kubernetes/pki/kubelet.key /etc/kubernetes/pki/kubelet.crt");
    assert!(kubelet.contains("PRIVATE KEY") && kubelet.contains("BEGIN CERTIFICATE"), "kubelet's credential");
    fs::write(dir.join("kubelet.pem"), kubelet).expect("a file");
    let with = |name: &str| dir.join(name).display().to_string();
    for host in HOSTS {
        let address = w.lab.address(host).expect("the lab has this host");
        let listeners = w.on(host, "sudo ss -Hltn | awk '{print $4}' | sort -u");
        for listener in listeners.lines() {
            let (at, port) = listener.rsplit_once(':').expect("an address and a port");
            let port: u16 = port.parse().expect("a port");
            let loopback = at.starts_with("127.") || at.starts_with("[::1]") || at.starts_with("[::ffff:127.");
            assert!(loopback || OPEN.iter().any(|(p, _)| *p == port), "{host} listens on {listener}: {listeners}");
        }
        for port in [2379, 2380] {
            for path in ["health", "version", "metrics", "members", "v3/kv/range"] {
                let url = format!("https://{address}:{port}/{path}");
                assert_eq!(code(&url, &[]), "000", "{url} without a certificate");
                assert_eq!(code(&url, &["--cert", &with("own.pem")]), "000", "{url} with a foreign certificate");
                assert_eq!(code(&url, &["--cert", &with("kubelet.pem")]), "000", "{url} with kubelet's certificate");
                assert_eq!(code(&format!("http://{address}:{port}/{path}"), &[]), "000", "{url} without TLS");
            }
        }
        let guarded = [
            (10250, &["pods", "metrics", "configz", "stats/summary", "logs/", "runningpods/", "debug/pprof/"][..]),
            (10257, &["metrics", "configz", "debug/pprof/", "flagz", "statusz"]),
            (10259, &["metrics", "configz", "debug/pprof/", "flagz", "statusz"]),
            (6443, &["api", "metrics", "version/", "openapi/v2", "debug/pprof/", "apis"]),
        ];
        for (port, paths) in guarded {
            for path in paths {
                let url = format!("https://{address}:{port}/{path}");
                for more in [&[][..], &["--cert", &with("own.pem")]] {
                    let got = code(&url, more);
                    assert!(matches!(got.as_str(), "401" | "403" | "000"), "{url} answers a foreign client with {got}");
                }
            }
        }
        // The control sockets of haproxy, and the sockets of containerd and kubelet.
        let sockets = w.on(host, "sudo find /run /var/run /var/lib/haproxy /var/lib/kubelet -xdev -type s \\( -path '*haproxy*' -o -path '*containerd*' -o -path '*kubelet*' -o -path '*hactl*' \\) -printf '%m %u %p\\n' 2>/dev/null | sort -u");
        for socket in sockets.lines() {
            let mode = u32::from_str_radix(socket.split(' ').next().unwrap_or(""), 8).expect("a mode");
            let folder = socket.rsplit(' ').next().expect("a path");
            let reached = w.on(host, &format!("test -w '{folder}' && echo reached"));
            assert!(mode & 0o006 == 0 || reached.is_empty(), "anybody on {host} can use {socket}");
        }
        assert!(sockets.contains("haproxy") && sockets.contains("containerd"), "{host}: {sockets}");
    }
}

/// The lines of the private keys in a text.
fn lines_of_keys(text: &str, whose: &str, all: &mut BTreeMap<String, String>) {
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("-----") {
            inside = line.contains("BEGIN") && line.contains("PRIVATE KEY");
        } else if inside && line.len() >= 30 {
            all.insert(line.to_owned(), whose.to_owned());
        }
    }
}

/// Every secret of the cluster, with its description.
fn secrets(w: &World) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let state = w.hactl.state(w.lab.name());
    for entry in fs::read_dir(&state).expect("the state is readable") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "key") {
            lines_of_keys(&fs::read_to_string(&path).expect("readable"), &path.display().to_string(), &mut all);
        }
    }
    for host in HOSTS {
        let keys = w.on(host, "sudo find /etc/kubernetes /etc/etcd /var/lib/kubelet/pki -type f -exec cat {} +");
        lines_of_keys(&keys, &format!("a key on {host}"), &mut all);
        let tokens = w.on(host, "sudo find /var/lib/kubelet/pods -path '*kubernetes.io~projected*' -name token -type f -exec sh -c 'cat \"$1\"; echo' - {} \\;");
        for token in tokens.lines().filter(|t| t.starts_with("eyJ")) {
            all.insert(token.to_owned(), format!("a service account's token on {host}"));
        }
    }
    let encryption = fs::read_to_string(state.join("encryption.key")).expect("the encryption key");
    all.insert(encryption.trim().to_owned(), "the encryption key".to_owned());
    let kubeconfig = fs::read_to_string(state.join("kubeconfig")).expect("the kubeconfig");
    let data = kubeconfig.lines().find_map(|l| l.trim().strip_prefix("client-key-data:")).expect("a key in it");
    all.insert(data.trim().to_owned(), "the administrator's key".to_owned());
    let identity = fs::read_to_string(state.join("identity.txt")).expect("the identity");
    let secret = identity.lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).expect("a key in it");
    all.insert(secret.to_owned(), "the identity".to_owned());
    assert!(all.len() > 40, "{} secrets were found", all.len());
    all
}

/// Where the logs, files and processes of a host contain one of these words. The words are passed on stdin only.
fn found_on(w: &World, host: &str, words: &BTreeMap<String, String>) -> String {
    let mut find = w.lab.ssh(host).expect("the host exists");
    find.arg(
        "words=$(mktemp /dev/shm/XXXXXX); cat > $words; \
         { sudo journalctl --no-pager -q | sudo grep -c -F -f $words | sed 's/^/journal: /'; \
           sudo grep -rlF -f $words /var/log /tmp /var/tmp /run/systemd /run/lock /var/lib/hactl /var/lib/containerd/io.containerd.grpc.v1.cri 2>/dev/null; \
           for p in /proc/[0-9]*; do sudo cat $p/cmdline $p/environ 2>/dev/null | tr '\\0' '\\n' | grep -qF -f $words && echo \"process $(cat $p/comm)\"; done; \
         } | grep -v '^journal: 0$'; rm -f $words",
    );
    let mut child = find.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh can be started");
    let text: String = words.keys().flat_map(|word| [word.as_str(), "\n"]).collect();
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the words go in");
    String::from_utf8_lossy(&child.wait_with_output().expect("it ends").stdout).into_owned()
}

/// Files below a folder that contain one of these words, with its description.
fn found_below(dir: &Path, words: &BTreeMap<String, String>, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found_below(&path, words, found);
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).expect("readable")).into_owned();
            let hits = words.iter().filter(|(word, _)| text.contains(word.as_str()));
            found.extend(hits.map(|(_, whose)| format!("{}: {whose}", path.display())));
        }
    }
}

fn nowhere(w: &World) {
    // All verbosity that a person can turn on, in a run that has something to do.
    w.on("cp1", "sudo sh -c 'echo oops >> /etc/haproxy/haproxy.cfg'");
    let mut said = String::new();
    for arguments in [
        &["plan", "-vv"][..],
        &["plan", "-o", "json"],
        &["up", "--yes", "-vv"],
        &["up", "--yes", "-o", "json"],
        &["status", "-vv"],
        &["status", "-o", "json"],
    ] {
        said += &w.hactl.run(arguments).all();
    }
    let words = secrets(w);
    let hit = words.iter().find(|(word, _)| said.contains(word.as_str()));
    assert_eq!(hit.map(|(_, whose)| whose), None, "hactl printed a secret");
    let state = w.hactl.state(w.lab.name());
    let mut found = BTreeSet::new();
    found_below(&state.join("runs"), &words, &mut found);
    let journal = fs::read_to_string(state.join("journal.jsonl")).expect("the journal");
    found.extend(words.iter().filter(|(word, _)| journal.contains(word.as_str())).map(|(_, whose)| whose.clone()));
    assert_eq!(found, BTreeSet::new(), "the logs of runs contain secrets");
    for host in HOSTS {
        assert_eq!(found_on(w, host, &words), "", "secrets are exposed on {host}");
    }
    // The search finds what is there.
    let planted = words.keys().next().expect("a secret");
    w.on("cp2", &format!("echo '{planted}' > /tmp/planted"));
    assert!(found_on(w, "cp2", &words).contains("/tmp/planted"));
    w.on("cp2", "rm /tmp/planted; sudo journalctl --rotate -q; sudo journalctl --vacuum-time=1s -q; sudo sh -c 'truncate -s 0 /var/log/*.log' 2>/dev/null");
}

fn unpacked(path: &Path, to: &Path) {
    let file = fs::File::open(path).expect("the archive");
    tar::Archive::new(zstd::Decoder::new(file).expect("zstd")).unpack(to).expect("a tar");
}

fn bundle(w: &World) {
    let dir = w.lab.dir().join("support");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder");
    // Lines that careless programs log.
    let mut words = secrets(w);
    let canaries = [
        ("canary-password-1", "password=canary-password-1"),
        ("canary-bearer-2", "Authorization: Bearer canary-bearer-2"),
        ("canary-url-3", "proxy is http://me:canary-url-3@192.0.2.1:3128"),
        ("canary-json-4", "{\"client_secret\": \"canary-json-4\"}"),
    ];
    for (canary, line) in canaries {
        w.on("cp1", &format!("echo '{line}' | systemd-cat -t careless -p warning"));
        words.insert(canary.to_owned(), "a canary".to_owned());
    }
    // Secrets that only the administrator has: hosts cannot recognise them, so they are redacted on this side.
    let state = w.hactl.state(w.lab.name());
    for file in ["encryption.key", "etcd-ca.key", "identity.txt"] {
        let text = fs::read_to_string(state.join(file)).expect("it is in the state");
        for line in text.lines().filter(|line| line.len() >= 30 && !line.starts_with(['-', '#'])) {
            w.on("cp2", &format!("echo 'careless: {line}' | systemd-cat -t careless -p warning"));
        }
    }
    // A key of the host and the token of a pod, in logs to which programs of the cluster would write them.
    w.on("cp1", "sudo systemd-cat -t careless -p warning cat /etc/kubernetes/pki/apiserver.key");
    w.on("cp1", "for t in $(sudo find /var/lib/kubelet/pods -name token -type f | head -1); do sudo sh -c \"echo got \\$(cat $t) >> $(sudo find /var/log/pods/kube-system_*/ -name '*.log' | head -1)\"; done");
    w.lab.kill("cp3").expect("the power can be cut");
    let to = dir.join("all.tar.zst");
    let path = to.display().to_string();
    let ran = w.hactl.run(&["support-bundle", "--to", &path]).ok().says("nothing of cp3").says("the support bundle is");
    println!("        {} s, {} KiB", ran.took.as_secs_f32(), fs::metadata(&to).expect("it is there").len() / 1024);
    assert_eq!(fs::metadata(&to).expect("it is there").permissions().mode() & 0o777, 0o600);
    w.hactl.run(&["support-bundle", "--to", &path]).exits(1).says("exists already").says("--to");
    unpacked(&to, &dir);
    let root = fs::read_dir(&dir).expect("readable").flatten().find(|e| e.path().is_dir()).expect("one folder").path();
    let mut found = BTreeSet::new();
    found_below(&root, &words, &mut found);
    assert_eq!(found, BTreeSet::new(), "secrets are in the archive");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(read("README.txt").contains("cp3") && read("hosts/cp3/nothing.txt").contains("cp3 sent nothing"));
    assert!(read("cluster/status.txt").contains("cp3"), "{}", read("cluster/status.txt"));
    assert!(read("cluster/plan.txt").len() > 20 && read("administrator/inventory.yaml").contains("endpoint:"));
    serde_json::from_str::<serde_json::Value>(&read("cluster/facts.json")).expect("facts stay JSON");
    serde_json::from_str::<serde_json::Value>(&read("cluster/api/nodes.json")).expect("Nodes stay JSON");
    assert!(read("hosts/cp1/units/etcd.service.log").lines().count() > 20);
    assert!(read("hosts/cp1/system/processes").contains("kube-apiserver"));
    // They were collected, and are redacted in place.
    let warnings = read("hosts/cp1/system/warnings.log");
    for redacted in ["password=[redacted]", "Authorization: Bearer [redacted]", "http://[redacted]@192.0.2.1"] {
        assert!(warnings.contains(redacted), "{redacted} is not in {warnings}");
    }
    assert!(read("hosts/cp2/system/nftables").contains("table"));
    assert!(read("hosts/cp1/files/etc/haproxy/haproxy.cfg").contains("backend"));
    let pods: Vec<_> =
        fs::read_dir(root.join("hosts/cp1/pods")).expect("pods").flatten().map(|e| e.file_name()).collect();
    assert!(pods.iter().any(|p| p.to_string_lossy().contains("kube-apiserver")), "{pods:?}");
    let json =
        w.hactl.run(&["support-bundle", "-o", "json", "--to", &dir.join("json.tar.zst").display().to_string()]).ok();
    let object: serde_json::Value = serde_json::from_str(&json.out).expect("one object");
    assert!(object["redacted"].as_u64().is_some_and(|n| n > 6) && object["missing"]["cp3"].is_string(), "{object}");
    w.lab.start("cp3", Duration::from_secs(60)).expect("the host boots");
    w.healthy(Duration::from_secs(120));

    // No host answers there: the archive still has what this side knows.
    let nobody = variant(w, "nobody.yaml", |text| text.replace("user: ops,", "user: ops, port: 9,"));
    let to = dir.join("nobody.tar.zst");
    let ran = nobody.run(&["support-bundle", "--to", &to.display().to_string()]).ok();
    ran.says("nothing of cp1").says("nothing of cp3").says("no host answers");
    let folder = dir.join("nobody");
    unpacked(&to, &folder);
    let root = fs::read_dir(&folder).expect("readable").flatten().next().expect("one folder").path();
    assert!(fs::read_dir(root.join("administrator/runs")).expect("logs of runs").count() > 0);
    assert!(root.join("cluster/status.txt").exists() && root.join("hosts/cp2/nothing.txt").exists());
}
