//! A control plane that runs in pods of its own cluster: handed over, through the failures that a static one survives,
//! and taken back.

use super::failures::power_cycle;
use super::support::{Hactl, wait_for};
use super::trials::nobody_failed;
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the control plane is handed over to pods of its cluster, and no connection fails",
        cut: true,
        run: handed_over,
    },
    Scenario { name: "a self-hosted control plane survives the loss of each host in turn", cut: false, run: each_off },
    Scenario { name: "a self-hosted control plane is back after all hosts were off", cut: true, run: all_off },
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
        name: "the control plane runs in static pods again, and no connection failed",
        cut: true,
        run: taken_back,
    },
];

const CONTROL: [&str; 3] = ["cp1", "cp2", "cp3"];
const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(300);
/// Until pods serve again after static pods did: each host lets them take over in its turn, of which a round has three.
const HOSTED: Duration = Duration::from_secs(600);
/// Between two new connections of a client.
const EVERY: Duration = Duration::from_millis(20);
const SETS: [&str; 3] = ["daemonset/kube-apiserver", "daemonset/kube-controller-manager", "daemonset/kube-scheduler"];

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

/// Whether all hosts run all components in pods.
fn is_hosted(hactl: &Hactl) -> bool {
    let status = in_one_line(&hactl.run(&["status"]));
    status.matches("DaemonSet, revision").count() == CONTROL.len()
        && !status.contains("static pods")
        && sets(hactl, "status.numberReady") == "3 3 3"
}

/// Waits until it is so, and `up` has nothing to do.
fn hosted_again(hactl: &Hactl, since: Instant) {
    wait_for("all hosts run their control plane in pods", HOSTED, || is_hosted(hactl));
    println!("        in pods on all hosts after {:.1?}", since.elapsed());
    hactl.up().ok().says("nothing to do");
}

fn endpoint_again(w: &World, since: Instant) {
    let api = w.api();
    wait_for("the endpoint serves a quorum read", HEAL, || api.get("/api/v1/namespaces/default").is_ok());
    println!("        the endpoint serves after {:.1?}", since.elapsed());
}

fn handed_over(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let hactl = own(w);
    hactl.run(&["plan"]).ok().says("hand the control plane over to pods of its DaemonSets");
    let (reading, begun) = (w.api().reads(EVERY), Instant::now());
    hactl.up().ok();
    println!("        up took {:.1?}", begun.elapsed());
    nobody_failed(&reading.end(), 0);
    hosted_again(&hactl, begun);
    let aside = w.on("cp1", "sudo ls /etc/kubernetes/manifests /etc/kubernetes/hosting");
    assert!(aside.contains("mode.json") && aside.matches("kube-").count() == 3, "{aside}");
    hactl.run(&["plan", "--exit-code"]).ok();
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
    for host in CONTROL {
        w.lab.kill(host).expect("the power can be cut");
    }
    let begun = Instant::now();
    for host in CONTROL {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    endpoint_again(w, begun);
    hosted_again(&hactl, begun);
    w.healthy(HEAL);
}

fn no_pods(w: &World) {
    let hactl = own(w);
    let begun = Instant::now();
    hactl.kubectl(&["-n", "kube-system", "delete", "pods", "-l", "hactl.dev/hosts", "--wait=false"]).ok();
    std::thread::sleep(Duration::from_secs(5));
    endpoint_again(w, begun);
    hosted_again(&hactl, begun);
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
    let reading = w.api().reads(EVERY);
    bad.up().exits(1).says("no-such-flag");
    nobody_failed(&reading.end(), 0);
    let hactl = own(w);
    hactl.up().ok();
    hosted_again(&hactl, Instant::now());
}

fn taken_back(w: &World) {
    let hactl = own(w);
    hosted_again(&hactl, Instant::now());
    w.hactl.run(&["plan"]).ok().says("run the control plane in static pods");
    let (reading, begun) = (w.api().reads(EVERY), Instant::now());
    w.hactl.up().ok();
    println!("        up took {:.1?}", begun.elapsed());
    nobody_failed(&reading.end(), 0);
    w.hactl.up().ok().says("nothing to do");
    assert_eq!(sets(&w.hactl, "metadata.name"), "");
    for host in CONTROL {
        let left = w.on(host, "sudo ls /etc/kubernetes/hosting /etc/systemd/system/hactl-hosting.service 2>/dev/null");
        assert!(!left.contains("kube-") && !left.contains("hactl-hosting"), "{host}: {left}");
        assert_eq!(w.on(host, "sudo ls /etc/kubernetes/manifests").matches("kube-").count(), 3, "{host}");
    }
    w.healthy(HEAL);
}
