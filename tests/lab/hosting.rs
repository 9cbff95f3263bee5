//! A control plane that runs in pods of its own cluster: handed over, through the failures that a static one survives,
//! and taken back.

use super::failures::power_cycle;
use super::recover::lose_majority;
use super::shapes::{STACKED, inventory, vip};
use super::support::{GIVEN_BACK, Hactl, ReadLoop, Reads, once_free, wait_for};
use super::trials::nobody_failed_and_moved_at_most;
use super::upgrades::{LATEST, PREVIOUS, killed_in_its_midst, named};
use super::{Scenario, World, in_one_line};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const HANDED_OVER: Scenario = Scenario {
    name: "the control plane is handed over to pods of its cluster, and no connection fails",
    cut: false,
    run: handed_over,
};
const ALL_OFF: Scenario =
    Scenario { name: "a self-hosted control plane is back after all hosts were off", cut: false, run: all_off };
const TAKEN_BACK: Scenario = Scenario {
    name: "the control plane runs in static pods again, and no connection failed",
    cut: false,
    run: taken_back,
};

/// There and back, with everything between.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a flag of API servers in static pods changes host by host, and no connection fails",
        cut: false,
        run: changed_static,
    },
    Scenario {
        name: "a control plane of static pods is back after all hosts were off",
        cut: false,
        run: all_off_static,
    },
    HANDED_OVER,
    Scenario {
        name: "a flag of self-hosted API servers changes host by host, and no connection fails",
        cut: false,
        run: changed,
    },
    Scenario { name: "a self-hosted control plane survives the loss of each host in turn", cut: false, run: each_off },
    ALL_OFF,
    Scenario { name: "a self-hosted control plane is back after its pods were deleted", cut: false, run: no_pods },
    Scenario {
        name: "a self-hosted control plane is back after its DaemonSets were deleted",
        cut: false,
        run: no_sets,
    },
    Scenario {
        name: "a flag that does not work stops at the first host, which goes back, and no connection fails",
        cut: false,
        run: bad_flag,
    },
    Scenario {
        name: "a self-hosted control plane is back after two of three hosts were off, and the kubelet of the third started \
               again without an API",
        cut: false,
        run: two_off,
    },
    Scenario {
        name: "a host that lost its disks, or its Node, has a self-hosted control plane again by up",
        cut: false,
        run: lost_host,
    },
    Scenario {
        name: "a self-hosted control plane is back after its quorum was recovered, also from before it was self-hosted",
        cut: false,
        run: recovered,
    },
    Scenario {
        name: "nobody but administrators of hactl deletes a pod of the control plane, and a quota keeps static pods",
        cut: false,
        run: denied,
    },
    Scenario { name: "a self-hosted control plane is taken down and comes back", cut: false, run: down },
    TAKEN_BACK,
];

/// On one host. In the cut it runs as a suite of its own, beside those without hosts.
pub const ALONE: &[Scenario] =
    &[Scenario { name: "one self-hosted host alone survives a loss of power and of its pods", cut: false, run: alone }];

/// From an older version on bare hosts.
pub const UPGRADED: &[Scenario] = &[Scenario {
    name: "a self-hosted cluster is upgraded in a run that is killed and one that resumes it, and no connection fails",
    cut: false,
    run: upgraded,
}];

const CONTROL: [&str; 3] = ["cp1", "cp2", "cp3"];
const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(300);
/// Until pods serve again after static pods did: each host lets them take over in its turn, of which a round has three.
const HOSTED: Duration = Duration::from_secs(600);
/// How long a cold start may take, as a multiple of that with static pods.
const SLOWEST_START: f64 = 1.2;
/// Between two new connections of a client.
const EVERY: Duration = Duration::from_millis(20);
/// The same for one that only measures how long nobody serves.
const SOME: Duration = Duration::from_millis(250);
const SETS: [&str; 3] = ["daemonset/kube-apiserver", "daemonset/kube-controller-manager", "daemonset/kube-scheduler"];

/// Clients that open a connection every 20 ms.
struct Clients {
    reading: ReadLoop,
}

impl Clients {
    fn start(w: &World) -> Self {
        Self { reading: w.api().reads(EVERY) }
    }
    /// Checks that none of them failed.
    fn end(self, w: &World) {
        nobody_failed_and_moved_at_most(w, &self.reading.end(), 0);
    }
}

/// hactl with an inventory that asks for a self-hosted control plane, and these lines.
fn asked(w: &World, edit: impl Fn(String) -> String) -> Hactl {
    let path = w.lab.dir().join("hosting.yaml");
    let plain = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    std::fs::write(&path, edit(format!("{plain}hosting: self\n"))).expect("writable");
    Hactl::new(path)
}

fn own(w: &World) -> Hactl {
    asked(w, |text| text)
}

fn sets(hactl: &Hactl, field: &str) -> String {
    let path = format!("jsonpath={{.items[*].{field}}}");
    hactl.kubectl(&["-n", "kube-system", "get", "daemonsets", "-l", "hactl.dev/hosts", "-o", &path]).out
}

/// Whether so many hosts run all components in pods, and their API servers and Nodes are ready.
fn is_hosted(hactl: &Hactl, hosts: usize) -> bool {
    let status = in_one_line(&hactl.run(&["status"]));
    let all = if hosts == 1 { "1 host".to_owned() } else { format!("{hosts} hosts") };
    let passes = [
        format!("control plane in DaemonSets {all}, revision"),
        format!("API servers ready {hosts} of"),
        format!("nodes Ready {hosts} of"),
    ];
    passes.iter().all(|check| status.contains(&format!("✓ {check}")))
        && sets(hactl, "status.numberReady") == [hosts; 3].map(|count| count.to_string()).join(" ")
}

/// Waits until it is so, and `up` has nothing to do.
fn hosted_again(hactl: &Hactl, since: Instant) {
    wait_for("all hosts run their control plane in pods", HOSTED, || is_hosted(hactl, CONTROL.len()));
    println!("        in pods on all hosts after {:.1?}", since.elapsed());
    nothing_to_do(hactl);
}

/// Waits until every check passes, those of pods beside the control plane too, before `up` has nothing to do.
fn nothing_to_do(hactl: &Hactl) {
    hactl.healthy(HEAL);
    hactl.up().ok().says("nothing to do");
}

/// The file with a snapshot from before the hand-over.
fn of_before(w: &World) -> String {
    w.lab.dir().join("before-hosting.hactl").to_str().expect("a path of letters").to_owned()
}

fn endpoint_again(w: &World, since: Instant) -> Duration {
    let api = w.api();
    wait_for("the endpoint serves a quorum read", HEAL, || api.get("/api/v1/namespaces/default").is_ok());
    let took = since.elapsed();
    println!("        the endpoint serves after {took:.1?}");
    took
}

/// Cuts the power of all hosts, and returns how long the endpoint does not serve.
fn none_has_power(w: &World) -> Duration {
    for host in CONTROL {
        w.lab.kill(host).expect("the power can be cut");
    }
    let begun = Instant::now();
    for host in CONTROL {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    endpoint_again(w, begun)
}

/// The file with the seconds of a cold start with static pods.
fn static_start(w: &World) -> PathBuf {
    w.lab.dir().join("cold-start-of-static-pods")
}

fn all_off_static(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let took = none_has_power(w);
    std::fs::write(static_start(w), took.as_secs_f64().to_string()).expect("writable");
    w.healthy(HEAL);
}

fn handed_over(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let _ = std::fs::remove_file(of_before(w));
    w.hactl.run(&["snapshot", "take", "--to", &of_before(w)]).ok();
    let hactl = own(w);
    hactl.run(&["plan"]).ok().says("hand the control plane over to pods of its DaemonSets");
    let (clients, begun) = (Clients::start(w), Instant::now());
    hactl.up().ok();
    println!("        up took {:.1?}", begun.elapsed());
    clients.end(w);
    hosted_again(&hactl, begun);
    let aside = w.on("cp1", "sudo ls /etc/kubernetes/manifests /etc/kubernetes/hosting");
    assert!(aside.contains("mode.json") && aside.matches("kube-").count() == 3, "{aside}");
    hactl.run(&["plan", "--exit-code"]).ok();
}

/// Changes a flag of all API servers by an inventory made from that of hactl, and changes it back.
fn rolled_out(w: &World, hactl: &Hactl, what: &str) {
    let path = w.lab.dir().join("changed.yaml");
    let plain = std::fs::read_to_string(hactl.inventory()).expect("readable");
    let changed = plain.replace("extra: {", "extra: {kube-apiserver: {args: {v: 3}}, ");
    assert_ne!(changed, plain);
    std::fs::write(&path, changed).expect("writable");
    for (hactl, way) in [(&Hactl::new(path), "there"), (hactl, "back")] {
        let (clients, begun) = (Clients::start(w), Instant::now());
        hactl.up().ok();
        println!("        {what}: a flag of all API servers, {way}, took {:.1?}", begun.elapsed());
        clients.end(w);
    }
}

fn changed_static(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    rolled_out(w, &w.hactl, "static pods");
}

fn changed(w: &World) {
    let hactl = own(w);
    rolled_out(w, &hactl, "DaemonSets");
    hosted_again(&hactl, Instant::now());
}

fn each_off(w: &World) {
    let hactl = own(w);
    for host in CONTROL {
        let begun = Instant::now();
        power_cycle(w, host, &format!("w-hosting-{host}"));
        hosted_again(&hactl, begun);
    }
}

fn all_off(w: &World) {
    let hactl = own(w);
    let begun = Instant::now();
    let took = none_has_power(w).as_secs_f64();
    hosted_again(&hactl, begun);
    w.healthy(HEAL);
    if let Ok(text) = std::fs::read_to_string(static_start(w)) {
        let ratio = took / text.parse::<f64>().expect("seconds");
        println!("        a cold start takes {ratio:.2}x of that with static pods");
        assert!(ratio <= SLOWEST_START, "{ratio:.2}x");
    }
}

/// Deletes all pods of the control plane, and waits until none of them serves any more.
fn delete_pods(hactl: &Hactl) {
    let pods = ["-n", "kube-system", "get", "pods", "-l", "hactl.dev/hosts", "-o", "jsonpath={.items[*].metadata.uid}"];
    let uids = || hactl.kubectl(&pods).out;
    let before = uids();
    hactl.kubectl(&["-n", "kube-system", "delete", "pods", "-l", "hactl.dev/hosts", "--wait=false"]).ok();
    wait_for("other pods exist", HEAL, || {
        let now = uids();
        !now.is_empty() && now.split_whitespace().all(|uid| !before.contains(uid))
    });
}

/// Says when the last of these reads failed. Pods that were deleted serve for some seconds.
fn served_again(reads: &Reads) {
    let failed = reads.iter().filter(|read| read.2.is_some());
    let last = failed.map(|(at, took, _)| *at + *took).max().expect("without pods, nobody served for a while");
    println!("        the endpoint serves after {last:.1?}");
}

fn no_pods(w: &World) {
    let hactl = own(w);
    let (reading, begun) = (w.api().reads(SOME), Instant::now());
    delete_pods(&hactl);
    hosted_again(&hactl, begun);
    served_again(&reading.end());
}

fn no_sets(w: &World) {
    let hactl = own(w);
    let begun = Instant::now();
    hactl.kubectl(&[&["-n", "kube-system", "delete", "--wait=false"][..], &SETS[..]].concat()).ok();
    std::thread::sleep(Duration::from_secs(5));
    endpoint_again(w, begun);
    wait_for("every host has an API server", HEAL, || {
        let said = CONTROL.map(|host| w.on(host, "sudo ls /etc/kubernetes/manifests"));
        said.iter().all(|files| files.contains("kube-apiserver.yaml"))
    });
    hactl.run(&["status"]).says("control plane in DaemonSets");
    hactl.up().ok();
    hosted_again(&hactl, begun);
}

fn bad_flag(w: &World) {
    let bad = asked(w, |text| text.replace("extra: {", "extra: {kube-apiserver: {args: {no-such-flag: yes}}, "));
    let clients = Clients::start(w);
    bad.up().exits(1).says("no-such-flag");
    clients.end(w);
    let hactl = own(w);
    hactl.up().ok();
    hosted_again(&hactl, Instant::now());
}

fn two_off(w: &World) {
    let hactl = own(w);
    let [alone, others @ ..] = CONTROL;
    for host in others {
        w.lab.kill(host).expect("the power can be cut");
    }
    let api = w.api();
    wait_for("the API answers no request without a quorum", HEAL, || api.get("/api/v1/namespaces/default").is_err());
    w.on(alone, "sudo systemctl restart kubelet");
    assert_eq!(
        w.on(alone, "sudo pkill -KILL -x kube-apiserver && sudo pkill -KILL -x kube-scheduler && echo killed"),
        "killed\n"
    );
    let begun = Instant::now();
    for host in others {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    endpoint_again(w, begun);
    hosted_again(&hactl, begun);
}

fn lost_host(w: &World) {
    let hactl = own(w);
    let begun = Instant::now();
    w.wipe("cp2");
    hactl.up().ok();
    println!("        up took {:.1?} after the loss of the disks", begun.elapsed());
    hosted_again(&hactl, begun);
    let begun = Instant::now();
    hactl.kubectl(&["delete", "node", "cp3"]).ok();
    let places = || w.on("cp3", "sudo ls /etc/kubernetes/manifests").matches("kube-").count();
    wait_for("static pods run where the Node is gone", HEAL, || places() == CONTROL.len());
    hactl.up().ok();
    hosted_again(&hactl, begun);
    w.healthy(HEAL);
}

fn recovered(w: &World) {
    let hactl = own(w);
    lose_majority(w);
    let begun = Instant::now();
    hactl.run(&["recover", "--yes"]).ok();
    println!("        recovered after {:.1?}", begun.elapsed());
    hactl.up().ok();
    hosted_again(&hactl, begun);
    // Of a snapshot from before the hand-over, nothing knows the pods that serve now.
    let begun = Instant::now();
    hactl.run(&["recover", "--yes", "--undo", "--from", &of_before(w)]).ok().says("before-hosting.hactl");
    println!("        recovered from before the hand-over after {:.1?}", begun.elapsed());
    hactl.up().ok();
    hosted_again(&hactl, begun);
    w.healthy(HEAL);
}

fn denied(w: &World) {
    let hactl = own(w);
    let pods = ["-n", "kube-system", "get", "pods", "-l", "hactl.dev/hosts=kube-scheduler", "-o", "name"];
    let pod = hactl.kubectl(&pods).ok().out.lines().next().expect("there is one").to_owned();
    let stranger = ["--as=someone", "--as-group=system:authenticated", "-n", "kube-system"];
    let may = ["create", "clusterrolebinding", "someone", "--clusterrole=cluster-admin", "--user=someone"];
    hactl.kubectl(&may).ok();
    for change in [&["delete", &pod, "--wait=false"][..], &["label", SETS[0], "a=b"], &["label", &pod, "a=b"]] {
        hactl.kubectl(&[&stranger[..], change].concat()).exits(1).says("change its inventory and run `hactl up`");
    }
    hactl.kubectl(&["delete", "clusterrolebinding", "someone"]).ok();

    hactl.kubectl(&["-n", "kube-system", "create", "quota", "small", "--hard=pods=50"]).ok();
    let status = in_one_line(&hactl.run(&["status"]).ok());
    assert!(status.contains("ResourceQuota small in kube-system limits what pods may use"), "{status}");
    let changed = asked(w, |text| text.replace("extra: {", "extra: {kube-scheduler: {args: {v: 3}}, "));
    let said = in_one_line(&changed.up().ok());
    assert!(said.contains("keeps static pods: something may deny its pods: ResourceQuota small"), "{said}");
    hactl.kubectl(&["-n", "kube-system", "delete", "quota", "small"]).ok();
    let begun = Instant::now();
    own(w).up().ok();
    hosted_again(&hactl, begun);
}

fn down(w: &World) {
    let hactl = own(w);
    hactl.run(&["down", "--yes"]).ok();
    for host in CONTROL {
        let left = w.on(host, "sudo sh -c 'ls /etc/kubernetes/hosting /var/lib/hactl/hosting; ss -tln' 2>/dev/null");
        assert!(!left.contains("kube-") && !left.contains("mode.json") && !left.contains(":6443"), "{host}: {left}");
    }
    let begun = Instant::now();
    hactl.up().ok();
    println!("        up took {:.1?}", begun.elapsed());
    hosted_again(&hactl, begun);
    w.healthy(HEAL);
}

fn alone(w: &World) {
    inventory(w, &vip(w), &[("cp1", STACKED, "")]);
    let hactl = own(w);
    let said = in_one_line(&hactl.up().ok());
    assert!(said.contains("the API is interrupted while its pods take over"), "{said}");
    hactl.up().ok().says("nothing to do");
    let is_back = |what: &str, begun: Instant| {
        wait_for("the host runs its control plane in pods", HOSTED, || is_hosted(&hactl, 1));
        println!("        {what}: in pods after {:.1?}", begun.elapsed());
        nothing_to_do(&hactl);
    };
    w.lab.kill("cp1").expect("the power can be cut");
    let begun = Instant::now();
    w.lab.start("cp1", BOOT).expect("the host boots");
    endpoint_again(w, begun);
    is_back("power", begun);
    let (reading, begun) = (w.api().reads(SOME), Instant::now());
    delete_pods(&hactl);
    is_back("pods", begun);
    served_again(&reading.end());
}

fn upgraded(w: &World) {
    asked(w, |text| named(&text, PREVIOUS, "")).up().ok();
    let hactl = own(w);
    assert!(is_hosted(&hactl, CONTROL.len()), "{}", hactl.run(&["status"]).all());
    let clients = Clients::start(w);
    killed_in_its_midst(w, &hactl, LATEST);
    let begun = Instant::now();
    once_free(GIVEN_BACK, || hactl.up()).ok();
    println!("        up took {:.1?} after the kill", begun.elapsed());
    clients.end(w);
    hosted_again(&hactl, begun);
    assert_eq!(sets(&hactl, "spec.template.spec.containers[0].image").matches(LATEST).count(), SETS.len());
    w.healthy(HEAL);
}

fn taken_back(w: &World) {
    let hactl = own(w);
    hosted_again(&hactl, Instant::now());
    w.hactl.run(&["plan"]).ok().says("run the control plane in static pods");
    let (clients, begun) = (Clients::start(w), Instant::now());
    w.hactl.up().ok();
    println!("        up took {:.1?}", begun.elapsed());
    clients.end(w);
    w.hactl.up().ok().says("nothing to do");
    assert_eq!(sets(&w.hactl, "metadata.name"), "");
    for host in CONTROL {
        let left = w.on(host, "sudo ls /etc/kubernetes/hosting /etc/systemd/system/hactl-hosting.service 2>/dev/null");
        assert!(!left.contains("kube-") && !left.contains("hactl-hosting"), "{host}: {left}");
        assert_eq!(w.on(host, "sudo ls /etc/kubernetes/manifests").matches("kube-").count(), 3, "{host}");
    }
    w.healthy(HEAL);
}
