//! Maintenances beside something else: `up`, another machine of the administrator, and the loss of the API server that
//! the acting guard uses.

use super::acting::{TAKEN_OVER, acts, complete, reaches};
use super::guard::{asked, guarded};
use super::maintain::{HEAL, apply, is_cordoned, kubectl, object};
use super::reboot::booted;
use super::refusals::{budget, created, deploy, pinned, running};
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line};
use serde_json::json;
use std::process::Command;
use std::time::Instant;

/// On one control-plane host and one worker.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the only control-plane host is taken if an outage is allowed, and given back from another machine",
        cut: false,
        run: elsewhere,
    },
    Scenario {
        name: "while the only worker is drained, up has nothing to do, and certificates of the other host are renewed",
        cut: false,
        run: renewed,
    },
];

/// On three control-plane hosts and one worker.
pub const AMONG_OTHERS: &[Scenario] = &[
    Scenario {
        name: "a drain goes on when the API server on the host of the guard that acts on it has ended",
        cut: false,
        run: unserved,
    },
    Scenario {
        name: "up changes no worker that is in maintenance, and a host reboots for one although up has just begun",
        cut: false,
        run: beside_up,
    },
];

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
const WATCH: &str = "healing: watch";

/// Guards, and a drain of the worker that a budget refuses.
fn blocked(w: &World) {
    created(w, "rules");
    deploy(w, ("rules", "web"), pinned(), json!({}));
    running(&w.api(), "rules", "web");
    budget(w, "web", "web");
    apply(w, &object("w1", "{nodeName: w1, stage: Drain}")).ok();
    reaches(w, "w1", "Blocked", TAKEN_OVER);
}

fn renewed(w: &World) {
    let hactl = asked(w, WATCH);
    hactl.up().ok();
    w.healthy(HEAL);
    hactl.run(&["maintain", "start", "w1", "--yes"]).ok().says("w1 is drained");
    let ran = hactl.up().ok();
    println!("        up took {:.1?} while the only worker is drained", ran.took);
    ran.says("nothing to do");
    let said = in_one_line(&hactl.run(&["status", "-v"]).ok());
    assert!(said.contains("1 waits until its Node is uncordoned"), "{said}");
    let said = in_one_line(&hactl.run(&["certs", "renew"]).ok());
    assert!(said.contains("w1 is left out: it is in maintenance (w1)"), "{said}");
    assert!(said.contains("certificates renewed on 1 host"), "{said}");
    assert!(is_cordoned(w));
    reaches(w, "w1", "Drained", TAKEN_OVER);
    hactl.run(&["maintain", "finish", "w1"]).ok().says("the maintenance of w1 is over");
    assert!(!is_cordoned(w));
    hactl.up().ok().says("nothing to do");
    kubectl(w, "delete nmt w1").ok();
    asked(w, "").up().ok();
    w.healthy(HEAL);
}

/// With guards, and another configuration of all kubelets.
fn changed(w: &World) -> Hactl {
    let path = w.lab.dir().join("beside.yaml");
    let plain = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    let text = plain.replace("{kubelet: {config: {", "{kubelet: {config: {maxPods: 99, ");
    assert_ne!(text, plain);
    std::fs::write(&path, format!("{text}{WATCH}\n")).expect("writable");
    Hactl::new(path)
}

fn most_pods(w: &World) -> String {
    kubectl(w, "get nodes cp1 cp2 cp3 w1 -o jsonpath={.items[*].status.capacity.pods}").ok().out
}

fn beside_up(w: &World) {
    let hactl = guarded(w, WATCH);
    blocked(w);
    let other = changed(w);
    let said = in_one_line(&other.up().ok());
    assert!(said.contains("w1 is left out: it is in maintenance (w1)"), "{said}");
    wait_for("the other hosts have changed", HEAL, || most_pods(w) == "99 99 99 110");
    reaches(w, "w1", "Blocked", TAKEN_OVER);
    assert!(is_cordoned(w));
    kubectl(w, "-n rules delete pdb web").ok();
    reaches(w, "w1", "Drained", TAKEN_OVER);
    complete(w, "w1");
    reaches(w, "w1", "Completed", TAKEN_OVER);
    kubectl(w, "delete nmt w1").ok();
    other.up().ok();
    wait_for("the worker has changed", HEAL, || most_pods(w) == "99 99 99 99");

    // `up` changes all back, and the host is to reboot meanwhile.
    let before = booted(w, "w1");
    let begun = Instant::now();
    let up = hactl.command(&["up", "--yes"]).spawn().expect("hactl can be started");
    let up = std::thread::spawn(move || (up.wait_with_output().expect("it ends"), begun.elapsed()));
    let ran = hactl.run(&["maintain", "reboot", "w1", "--yes"]);
    let took = begun.elapsed();
    let (up, up_took) = up.join().expect("it ends");
    println!("        up took {up_took:.1?}, and the reboot {took:.1?}");
    let said = String::from_utf8_lossy(&up.stdout).into_owned() + &String::from_utf8_lossy(&up.stderr);
    assert!(up.status.success(), "{said}; {}", ran.all());
    ran.ok().says("w1 has rebooted, and is ready and restored");
    assert_ne!(booted(w, "w1"), before);
    assert!(!is_cordoned(w));
    // It has left the worker out, if the maintenance was there first.
    hactl.up().ok();
    wait_for("all hosts are as before", HEAL, || most_pods(w) == "110 110 110 110");
    kubectl(w, "delete nmt w1").ok();
    kubectl(w, "delete namespace rules").ok();
    asked(w, "").up().ok();
    w.healthy(HEAL);
}

/// hactl of another machine, with a copy of the inventory, of what it names, and of the state of the cluster.
fn copied(w: &World) -> Hactl {
    let folder = w.lab.dir().join("elsewhere");
    std::fs::create_dir_all(&folder).expect("writable");
    let (from, state) = (w.lab.inventory(), w.hactl.state(w.lab.name()));
    let files = [&from, &w.lab.identity(), &w.lab.known_hosts(), &state.parent().expect("a folder").to_owned()];
    let copied = Command::new("cp").arg("-r").args(files).arg(&folder).status();
    assert!(copied.expect("cp can be started").success());
    Hactl::new(folder.join(from.file_name().expect("a file")))
}

fn elsewhere(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let cordoned = |host: &str| kubectl(w, &format!("get node {host} -o jsonpath={{.spec.unschedulable}}")).ok().out;
    w.hactl.run(&["maintain", "start", "cp1", "--yes", "--allow-outage"]).ok().says("cp1 is drained");
    assert_eq!((cordoned("cp1"), cordoned("w1")), ("true".to_owned(), String::new()));
    let pods = "-n kube-system get pods -l k8s-app=kube-dns --field-selector spec.nodeName=cp1 -o name";
    assert_eq!(kubectl(w, pods).ok().out, "");
    let other = copied(w);
    other.run(&["maintain", "finish", "cp1"]).ok().says("the maintenance of cp1 is over");
    assert_eq!(cordoned("cp1"), "");

    other.run(&["maintain", "start", "w1", "--yes", "--stay-cordoned"]).ok().says("w1 is drained");
    w.hactl.run(&["maintain", "finish", "w1"]).ok().says("the maintenance of w1 is over");
    assert_eq!(cordoned("w1"), "true");
    kubectl(w, "uncordon w1").ok();
    kubectl(w, "delete nmt cp1 w1").ok();
    std::fs::remove_dir_all(w.lab.dir().join("elsewhere")).expect("it is there");
    w.hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
}

fn unserved(w: &World) {
    guarded(w, WATCH);
    blocked(w);
    let host = acts(w).expect("a guard acts");
    assert_eq!(w.on(&host, &format!("sudo mv {MANIFEST} /root/ && echo moved")).trim(), "moved");
    wait_for("its API server has ended", HEAL, || w.on(&host, "pgrep -x kube-apiserver").trim().is_empty());
    let begun = Instant::now();
    kubectl(w, "-n rules delete pdb web").ok();
    reaches(w, "w1", "Drained", TAKEN_OVER);
    println!("        {host} acted before, {:?} does now; drained after {:.1?}", acts(w), begun.elapsed());
    complete(w, "w1");
    reaches(w, "w1", "Completed", TAKEN_OVER);
    assert!(!is_cordoned(w));
    assert_eq!(w.on(&host, &format!("sudo mv /root/kube-apiserver.yaml {MANIFEST} && echo moved")).trim(), "moved");
    w.healthy(HEAL);
    kubectl(w, "delete nmt w1").ok();
    kubectl(w, "delete namespace rules").ok();
    let plain = asked(w, "");
    plain.up().ok();
    plain.up().ok().says("nothing to do");
    w.healthy(HEAL);
}
