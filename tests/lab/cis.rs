//! The checks of the CIS Kubernetes Benchmark 1.12, on what runs. At both levels of hardening, each passes, or is as
//! the table of docs/security.md says.

mod documented;
mod evidence;
mod judge;
mod objects;
mod table;

use super::support::{Api, wait_for};
use super::{Scenario, World};
pub use documented::Level;
use evidence::{API, CONTROLLERS, ETCD, Host, KUBELET, PROXY, SCHEDULER};
use judge::{Ask, Verdict};
use objects::{Cluster, LISTS};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use table::CHECKS;

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "every check of the CIS benchmark passes or is as docs/security.md says",
    cut: true,
    run: by_default,
}];

/// A component that was restarted may have two processes for a moment, or none.
const SETTLED: Duration = Duration::from_secs(60);
/// The programs of a control-plane host, and of a worker.
const OF_CONTROL: [&str; 6] = [ETCD, API, CONTROLLERS, PROXY, SCHEDULER, KUBELET];
const OF_WORKERS: [&str; 2] = [PROXY, KUBELET];

fn by_default(w: &World) {
    w.hactl.up().ok();
    judged(w, Level::Default);
}

/// Judges every check on a cluster of this level.
pub fn judged(w: &World, level: Level) {
    let api = w.api();
    let hosts: Vec<Host> = w.lab.hosts().map(|name| seen(w, &api, name)).collect();
    let cluster = cluster(&api);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let documented = documented::read(&fs::read_to_string(document).expect("the documentation"));
    let (mut passed, mut other) = (0, Vec::new());
    for (id, (verdict, wrong)) in judge::verdicts(&hosts, &cluster) {
        let row = documented.get(id);
        let expected = row.map_or(Verdict::Pass, |row| row.at(level));
        passed += usize::from(verdict == Verdict::Pass);
        if verdict != expected {
            let why = row.map_or("not in its table", |row| row.why.as_str());
            other.push(format!("{id}: {verdict} ({}), by docs/security.md {expected} ({why})", wrong.join("; ")));
        }
    }
    assert!(other.is_empty(), "{} checks at the level {level:?}:\n{}", other.len(), other.join("\n"));
    know_their_flags(w, &hosts);
    let blind = judge::blind(&hosts, &cluster);
    assert!(blind.is_empty(), "these checks also pass once what they judge is weakened: {blind:?}");
    println!("        {passed} checks pass at the level {level:?}");
}

/// Runs a script without single quotes as root.
fn as_root(w: &World, host: &str, script: &str) -> String {
    assert!(!script.contains('\''), "{script}");
    w.on(host, &format!("sudo sh -c '{script}'"))
}

/// What a host shows once each of its programs runs once.
fn seen(w: &World, api: &Api, name: &str) -> Host {
    let runs = if name.starts_with("cp") { &OF_CONTROL[..] } else { &OF_WORKERS[..] };
    let mut host = Host::named(name);
    wait_for(&format!("{} run on {name}, each once", runs.join(", ")), SETTLED, || {
        host = Host::named(name);
        host.read(&as_root(w, name, &evidence::programs(&OF_CONTROL, &[ETCD, KUBELET])));
        let mut found: Vec<&str> = host.programs.iter().map(|program| program.name.as_str()).collect();
        found.sort_unstable();
        found == runs
    });
    host.kubelet = get(api, &format!("/api/v1/nodes/{name}/proxy/configz"))["kubeletconfig"].clone();
    let (files, folders) = host.places();
    host.read(&as_root(w, name, &evidence::modes(&files, &folders)));
    host
}

/// Each program that runs lists the flags by which it is judged: a flag under another name would count as unset.
fn know_their_flags(w: &World, hosts: &[Host]) {
    for program in OF_CONTROL {
        let host = hosts.iter().find(|host| host.program(program).is_some()).expect("a host runs it");
        // The kernel keeps 15 letters of a program's name.
        let name: String = program.chars().take(15).collect();
        let help = as_root(w, &host.name, &format!("/proc/$(pgrep -xo {name})/exe --help 2>&1"));
        let known: BTreeSet<&str> = help.split_whitespace().collect();
        for check in CHECKS.iter().filter(|check| check.program == program) {
            let Ask::Flags(flags, _) = check.ask else { continue };
            for flag in flags {
                let is_known = known.contains(format!("--{flag}").as_str());
                assert!(is_known, "{}: {program} has no --{flag}: {help}", check.id);
            }
        }
    }
}

/// What a path of the API returns: an API server that was restarted may still refuse connections.
fn get(api: &Api, path: &str) -> Value {
    let mut got = Err("not asked".to_owned());
    wait_for(path, SETTLED, || {
        got = api.get(path);
        got.is_ok()
    });
    got.expect("it was read")
}

fn cluster(api: &Api) -> Cluster {
    let mut cluster = Cluster { refused: refused(api), ..Cluster::default() };
    for (plural, path) in LISTS {
        let items = get(api, path)["items"].as_array().expect("a list has items").clone();
        // hactl creates no NetworkPolicy.
        assert!(!items.is_empty() || plural == "networkpolicies", "{path} is empty");
        cluster.lists.insert(plural, items);
    }
    cluster
}

/// The container's security context.
fn container(pod: &mut Value) -> &mut Value {
    &mut pod["spec"]["containers"][0]["securityContext"]
}

/// What each check wants to be refused: what the API server calls it, and a change to a pod that is admitted
/// everywhere.
const PODS: [(&str, &str, fn(&mut Value)); 14] = [
    ("5.2.1", "privileged (", privileged),
    ("5.2.2", "privileged (", privileged),
    ("5.2.3", "hostPID=true", |pod| pod["spec"]["hostPID"] = json!(true)),
    ("5.2.4", "hostIPC=true", |pod| pod["spec"]["hostIPC"] = json!(true)),
    ("5.2.5", "hostNetwork=true", |pod| pod["spec"]["hostNetwork"] = json!(true)),
    ("5.2.6", "allowPrivilegeEscalation != false", |pod| container(pod)["allowPrivilegeEscalation"] = json!(true)),
    ("5.2.7", "runAsNonRoot != true", |pod| pod["spec"]["securityContext"]["runAsNonRoot"] = json!(false)),
    // A container has NET_RAW if it does not drop it.
    ("5.2.8", "unrestricted capabilities", |pod| container(pod)["capabilities"] = Value::Null),
    ("5.2.9", "unrestricted capabilities", |pod| container(pod)["capabilities"]["add"] = json!(["CHOWN"])),
    ("5.2.10", "hostProcess (", |pod| {
        pod["spec"]["securityContext"]["windowsOptions"] = json!({"hostProcess": true});
        // It is not valid without.
        pod["spec"]["hostNetwork"] = json!(true);
    }),
    ("5.2.11", "hostPath", |pod| pod["spec"]["volumes"] = json!([{"name": "host", "hostPath": {"path": "/"}}])),
    ("5.2.12", "hostPort (", |pod| {
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8080, "hostPort": 8080}]);
    }),
    ("5.6.2", "seccompProfile (", |pod| pod["spec"]["securityContext"]["seccompProfile"] = Value::Null),
    ("5.6.3", "runAsNonRoot != true", |pod| {
        pod["spec"]["securityContext"] = Value::Null;
        *container(pod) = Value::Null;
    }),
];

fn privileged(pod: &mut Value) {
    // With a false `allowPrivilegeEscalation` it would not be valid.
    *container(pod) = json!({"privileged": true, "capabilities": {"drop": ["ALL"]}});
}

/// The checks whose pod is refused in a namespace without labels, for what the check is about.
fn refused(api: &Api) -> BTreeSet<&'static str> {
    let strict = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cis"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "one", "image": "registry.k8s.io/pause:3.10.1",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    assert_eq!(refusal(api, "a strict pod", &strict), None);
    let is_refused = |(id, what, weaken): &(&str, &str, fn(&mut Value))| {
        let mut pod = strict.clone();
        weaken(&mut pod);
        let why = refusal(api, id, &pod);
        assert!(why.iter().all(|why| why.contains(what)), "{id}: refused, and not for {what}: {why:?}");
        why.is_some()
    };
    PODS.into_iter().filter(is_refused).map(|(id, ..)| id).collect()
}

/// Why Pod Security refuses a pod, if it does. Nothing is created.
fn refusal(api: &Api, name: &str, pod: &Value) -> Option<String> {
    let begun = Instant::now();
    loop {
        match api.post("/api/v1/namespaces/default/pods?dryRun=All", pod) {
            Ok(_) => return None,
            Err(why) if why.contains("violates PodSecurity") => return Some(why),
            // An API server that was restarted may still refuse connections.
            Err(why) => assert!(begun.elapsed() < SETTLED, "{name}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
