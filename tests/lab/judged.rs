//! Guards that judge: what is a person's, what is another healer's, and what no restart helps is reported and left
//! alone; a leader with a slow disk hands over the lead.

use super::guard::{CLEARED, SLACK, guarded, is_known, none};
use super::leaving::move_leadership_to;
use super::rejoin::serves;
use super::repairs::history;
use super::rolled_back::sh;
use super::support::{Hactl, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "an annotation holds a host, another healer and a crash loop are reported, and nothing is done about them",
        cut: false,
        run: left_alone,
    },
    Scenario {
        name: "a lost quorum is reported with whose data goes furthest, a cut between two hosts changes nothing, and a \
               leader with a slow disk hands over the lead",
        cut: false,
        run: judged,
    },
];

const HEALING: &str = "healing: {mode: on, after: {hostUnreachable: 30s, hostDead: 1m, notVoting: 20s}}";
/// A guard looks at the API every 15 s.
const API_LOOKS: Duration = Duration::from_secs(15);
/// For so long it is looked at that nothing happens.
const LOOKED: Duration = Duration::from_secs(30);
const BOOT: Duration = Duration::from_secs(60);

/// What medik8s installs, as far as a guard reads it.
const HEALTH_CHECK: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodehealthchecks.remediation.medik8s.io}
spec:
  group: remediation.medik8s.io
  names: {kind: NodeHealthCheck, plural: nodehealthchecks, singular: nodehealthcheck}
  scope: Cluster
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const CHECK: &str = r"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: control-plane}
spec: {selector: {matchLabels: {kubernetes.io/hostname: cp2}}}
";

/// A flag that the API server does not know: the kubelet starts it again and again.
const FLAG: &str = r#"cd /etc/kubernetes/manifests
sed -i "s/^\( *\)- kube-apiserver$/&\n\1- --no-such-flag/" kube-apiserver.yaml
grep -c no-such-flag kube-apiserver.yaml"#;

fn explained(hactl: &Hactl, host: &str) -> String {
    in_one_line(&hactl.run(&["guard", "explain", host]).exits(4))
}

fn frozen(w: &World, host: &str) -> bool {
    w.on(host, "ps -o stat= -C haproxy | grep -q ^T && echo frozen || true").contains("frozen")
}

fn left_alone(w: &World) {
    let hactl = guarded(w, HEALING);
    let before = history(&hactl);
    w.hactl.kubectl(&["annotate", "node", "cp2", "hold.hactl.dev/ops=disk swap"]).ok();
    wait_for("the guard of cp2 reads the hold", API_LOOKS + SLACK, || {
        hactl.run(&["status"]).all().contains("hold.hactl.dev/ops of the Node cp2")
    });
    w.on("cp2", "sudo systemctl kill --signal=SIGSTOP haproxy");
    wait_for("it reports the fault", SLACK, || is_known(&hactl, "cp2", "BalancerFrozen"));
    wait_for("its guard says that the host is held", SLACK, || {
        explained(&hactl, "cp2").contains("it does not restart haproxy.service: the host is held")
    });
    let since = Instant::now();
    while since.elapsed() < LOOKED {
        assert!(frozen(w, "cp2"), "a held host is not repaired");
        std::thread::sleep(Duration::from_secs(1));
    }
    w.hactl.kubectl(&["annotate", "node", "cp2", "hold.hactl.dev/ops-"]).ok();
    wait_for("it is repaired once the annotation is gone", API_LOOKS + SLACK, || !frozen(w, "cp2"));
    none(&hactl);
    assert_eq!(history(&hactl).len(), before.len() + 1);

    let folder = w.lab.dir();
    for (name, text) in [("nhc-kind.yaml", HEALTH_CHECK), ("nhc.yaml", CHECK)] {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("writable");
        wait_for("the API takes it", SLACK, || {
            w.hactl.kubectl(&["apply", "-f", path.to_str().expect("plain")]).code == 0
        });
    }
    wait_for("another healer is reported", CLEARED, || is_known(&hactl, "cp2", "ForeignHealer"));
    let said = explained(&hactl, "cp2");
    assert!(said.contains("the NodeHealthCheck control-plane selects its Node"), "{said}");
    assert!(!is_known(&hactl, "cp1", "ForeignHealer"), "it does not select cp1");
    w.hactl.kubectl(&["delete", "crd", "nodehealthchecks.remediation.medik8s.io"]).ok();

    sh(w, "cp3", FLAG);
    let since = Instant::now();
    wait_for("the crash loop is reported", Duration::from_secs(300), || is_known(&hactl, "cp3", "ApiCrashLoop"));
    println!("        a crash loop was reported after {:.1?}", since.elapsed());
    wait_for("its last words are shown", SLACK, || explained(&hactl, "cp3").contains("no-such-flag"));
    assert_eq!(history(&hactl).len(), before.len() + 1, "no restart helps, so there was none");
    hactl.up().ok();
    wait_for("the faults are over", Duration::from_secs(600), || hactl.run(&["guard", "status"]).code == 0);
    w.healthy(CLEARED);
    assert_eq!(history(&hactl).len(), before.len() + 1);
}

fn judged(w: &World) {
    let hactl = guarded(w, HEALING);
    quorum_lost(w, &hactl);
    parted(w, &hactl);
    slow_leader(w, &hactl);
    hactl.up().ok().says("nothing to do");
}

fn quorum_lost(w: &World, hactl: &Hactl) {
    let before = history(hactl);
    for host in ["cp1", "cp2"] {
        w.lab.kill(host).expect("the power can be cut");
    }
    let since = Instant::now();
    wait_for("the guard that is left reports it", Duration::from_secs(30) + SLACK, || {
        hactl.run(&["guard", "status"]).all().contains("EtcdQuorumLost")
    });
    println!("        a lost quorum was reported after {:.1?}", since.elapsed());
    wait_for("it says whose data goes furthest", SLACK, || {
        let said = in_one_line(&hactl.run(&["status"]));
        said.contains("cp1 and cp2 are not heard, and the other member does not serve; the data of cp3 goes furthest")
    });
    println!("        {}", in_one_line(&hactl.run(&["guard", "explain", "cp3"])));
    for host in ["cp1", "cp2"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    w.healthy(CLEARED);
    none(hactl);
    // A host that boots may restart its keepalived.
    let of_etcd =
        |all: Vec<[String; 3]>| all.into_iter().filter(|[_, kind, _]| kind.starts_with("Etcd")).collect::<Vec<_>>();
    assert_eq!(of_etcd(history(hactl)), of_etcd(before), "nothing was done about it");
}

/// cp1 and cp3 do not reach each other, while both reach cp2. cp1 leads.
fn parted(w: &World, hactl: &Hactl) {
    let before = history(hactl);
    move_leadership_to(w, "cp1");
    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-parted");
    let rule = |what: &str| {
        let from = w.lab.address("cp1").expect("an address");
        sh(w, "cp3", &format!("iptables {what} INPUT -s {from} -j DROP && echo done"));
    };
    rule("-I");
    wait_for("the guards report it", Duration::from_secs(30) + SLACK, || {
        ["cp1", "cp3"].iter().any(|host| is_known(hactl, host, "Partitioned"))
    });
    std::thread::sleep(LOOKED);
    assert_eq!(history(hactl), before, "nothing is done about it");
    rule("-D");
    none(hactl);
    w.healthy(CLEARED);
    let (written, longest) = writer.end_within(Duration::from_secs(30));
    println!("        {written} writes acknowledged in a cut between two of three, longest pause {longest:.1?}");
    assert_eq!(history(hactl), before, "and nothing afterwards");
}

/// strace that delays each sync of an etcd, as a slow disk does; ended when its value is dropped.
struct SlowDisk(Child);

impl SlowDisk {
    fn of(w: &World, host: &str) -> Self {
        let process = etcd_of(w, host);
        let delay = "inject=fdatasync,fsync:delay_enter=700ms";
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", delay, "-p", &process]);
        Self(strace.spawn().expect("strace is installed"))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // It lets its processes go on when it is ended by this signal.
        let ended = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        drop((ended, self.0.wait()));
    }
}

/// The process of the etcd of a host of this lab, as this machine sees it.
fn etcd_of(w: &World, host: &str) -> String {
    let address = format!("ETCD_LISTEN_PEER_URLS=https://{}:2380\0", w.lab.address(host).expect("an address"));
    let all = std::fs::read_dir("/proc").expect("readable").flatten();
    let numbers =
        all.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.parse::<u32>().is_ok());
    let is_it = |process: &String| {
        let read = |file: &str| std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        let says = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains(&address);
        read("comm") == b"etcd\n" && says(read("environ"))
    };
    numbers.into_iter().find(is_it).expect("its etcd runs")
}

fn slow_leader(w: &World, hactl: &Hactl) {
    let mut done = history(hactl);
    move_leadership_to(w, "cp2");
    let writer = Writer::every(Duration::from_millis(20), &w.api(), "w-slow");
    let slow = SlowDisk::of(w, "cp2");
    let since = Instant::now();
    let leads = || {
        let metrics = "curl -s -m 2 http://127.0.0.1:2384/metrics | grep '^etcd_server_is_leader ' || true";
        w.on("cp2", metrics).trim().ends_with(" 1")
    };
    wait_for("the lead is handed over", Duration::from_secs(180), || history(hactl).len() > done.len() && !leads());
    println!("        a slow leader handed over the lead after {:.1?}", since.elapsed());
    drop(slow);
    none(hactl);
    w.healthy(CLEARED);
    let (written, longest) = writer.end_within(Duration::from_secs(30));
    println!("        {written} writes acknowledged around a slow leader, longest pause {longest:.1?}");
    assert!(serves(w, "cp2"));
    done.push(["cp2", "EtcdSlowLeader", "helped"].map(str::to_owned));
    done.sort();
    assert_eq!(history(hactl), done, "nothing else was done");
}
