//! Invalid input and wrong environments: the error is named with its remedy, and nothing is half done.

use super::bare_hosts::variant;
use super::{Scenario, World};
use std::fs;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a concurrent run names the holder of the lock", cut: true, run: second_run },
    Scenario { name: "hosts of another cluster are refused", cut: true, run: other_cluster },
    Scenario { name: "up creates no second state for a running cluster", cut: true, run: state_lost },
    Scenario { name: "unknown and changed host keys are refused", cut: true, run: host_keys },
    Scenario { name: "an unreadable key, a wrong user and a wrong port are named", cut: true, run: wrong_login },
    Scenario { name: "a version that is not in the bundle is refused", cut: true, run: version },
    Scenario { name: "a flipped bit is found in the store and on a host", cut: true, run: flipped_bit },
];

fn second_run(w: &World) {
    w.on("cp1", "sudo touch /etc/haproxy/haproxy.cfg && sudo sh -c 'echo >> /etc/haproxy/haproxy.cfg'");
    let mut first = w.hactl.command(&["up", "--yes"]).spawn().expect("hactl can be started");
    let mut held = false;
    while first.try_wait().expect("it can be asked").is_none() {
        let second = w.hactl.up();
        if second.code == 6 {
            assert!(second.err.contains("hactl up") && second.err.contains("process"), "{}", second.all());
            held = true;
            break;
        }
    }
    let first = first.wait_with_output().expect("it ends");
    assert!(held || first.status.code() == Some(6), "one of two concurrent runs names the holder of the lock");
    w.hactl.up().ok();
}

fn other_cluster(w: &World) {
    let other = variant(w, "other.yaml", |text| text.replace("cluster: t-main", "cluster: other"));
    let ran = other.up();
    assert!(ran.code == 3, "{}", ran.all());
    ran.says("t-main");
    let identity = w.on("cp1", "sudo cat /var/lib/hactl/cluster.json");
    assert!(identity.contains("t-main"), "{identity}");
}

fn state_lost(w: &World) {
    let state = w.lab.dir().join("elsewhere");
    w.hactl.run(&["up", "--yes", "--state", state.to_str().expect("UTF-8")]).exits(3).says("hactl state pull");
    assert!(!state.exists(), "no second CA was made");
}

fn host_keys(w: &World) {
    let known = fs::read_to_string(w.lab.known_hosts()).expect("readable");
    let empty = w.lab.dir().join("known_none");
    fs::write(&empty, "").expect("writable");
    let unknown = variant(w, "unknown.yaml", |t| t.replace("./known_hosts", "./known_none"));
    unknown.up().exits(1).says("SHA256:").says("--trust-first-use");
    let mut lines: Vec<&str> = known.lines().collect();
    let keys: Vec<String> = lines.iter().map(|l| l.split_once(' ').expect("a key").1.to_owned()).collect();
    let first = format!("{} {}", lines[0].split(' ').next().expect("a name"), keys[1]);
    lines[0] = &first;
    fs::write(w.lab.dir().join("known_swapped"), lines.join("\n") + "\n").expect("writable");
    let changed = variant(w, "changed.yaml", |t| t.replace("./known_hosts", "./known_swapped"));
    changed.run(&["up", "--yes", "--trust-first-use"]).exits(3).says("known_swapped:1");
}

fn wrong_login(w: &World) {
    variant(w, "nokey.yaml", |t| t.replace("./id_ed25519", "./no_such_key")).up().exits(2).says("no_such_key");
    variant(w, "nouser.yaml", |t| t.replace("user: ops", "user: nobody-here")).up().exits(1).says("nobody-here");
    variant(w, "noport.yaml", |t| t.replace("{user: ops,", "{user: ops, port: 2222,")).up().exits(1).says("2222");
}

fn version(w: &World) {
    let other = variant(w, "version.yaml", |t| t.replace(hactl::inventory::DEFAULT_KUBERNETES, "1.36.99"));
    other.up().exits(2).says("1.36.99").says("hactl bundle build");
}

fn flipped_bit(w: &World) {
    // On the host: a program that was changed after its installation is found and delivered again.
    let etcdctl = w.on("cp1", "readlink -f /usr/local/bin/etcdctl").trim().to_owned();
    assert!(etcdctl.contains("/parts/"), "programs are run from their content address: {etcdctl}");
    w.on("cp1", &format!("sudo sh -c 'printf X | dd of={etcdctl} bs=1 seek=4096 conv=notrunc'"));
    w.hactl.run(&["plan", "--exit-code"]).exits(5).says("etcdctl");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    // On this machine: a damaged copy of the store is refused.
    let store = w.lab.dir().join("bundles");
    let from = hactl::component::default_store();
    let copied = std::process::Command::new("cp").arg("-a").arg(&from).arg(&store).status().expect("cp runs");
    assert!(copied.success());
    let store_text = store.to_str().expect("UTF-8").to_owned();
    w.hactl.run(&["bundle", "verify", "--bundles", &store_text]).ok();
    let blob = fs::read_dir(store.join("blobs/sha256")).expect("blobs").next().expect("one").expect("readable").path();
    let mut bytes = fs::read(&blob).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&blob, bytes).expect("writable");
    let named = blob.file_name().expect("a name").to_string_lossy()[..12].to_owned();
    w.hactl.run(&["bundle", "verify", "--bundles", &store_text]).exits(1).says(&named);
    fs::remove_dir_all(&store).expect("removable");
}
