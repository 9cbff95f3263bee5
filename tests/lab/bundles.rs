//! Recovery bundles: taken by the hosts themselves, proven, and the whole cluster rebuilt from one and an identity.

use super::support::Ran;
use super::{Scenario, World, in_one_line};
use std::path::Path;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "each host takes its recovery bundles by itself, restores each for proof, and a damaged one is refused",
        cut: true,
        run: taken,
    },
    Scenario {
        name: "all hosts and the administrator's state are lost, and one bundle and an identity bring the cluster back",
        cut: true,
        run: all_lost,
    },
];

const BOOT: Duration = Duration::from_secs(60);

fn say(ran: Ran) -> Ran {
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    ran
}

fn taken(w: &World) {
    w.hactl.up().ok();
    // What the timers start; the member that leads has none yet, so that it takes its first as well.
    for host in ["cp1", "cp2", "cp3"] {
        let said = w.on(host, "sudo systemctl start hactl-snapshot && systemctl is-active hactl-snapshot.timer");
        assert_eq!(said.trim(), "active", "{host}: {}", w.on(host, "sudo journalctl -u hactl-snapshot -n 20 -o cat"));
    }
    let ran = say(w.hactl.run(&["snapshot", "list"])).ok();
    let has = |host: &&str| ran.out.contains(&format!("-{host}.hactl"));
    assert!(["cp1", "cp2", "cp3"].iter().all(has), "{}", ran.all());
    let again: Vec<String> = ["cp1", "cp2", "cp3"]
        .iter()
        .map(|host| w.on(host, "sudo systemctl start hactl-snapshot; sudo journalctl -u hactl-snapshot -n 4 -o cat"))
        .collect();
    let waits = again.iter().filter(|said| said.contains("this member leads")).count();
    assert_eq!(waits, 1, "those that follow take the next ones: {again:?}");
    say(w.hactl.run(&["status"])).ok().says("recovery bundles");
    let open = w.on(
        "cp1",
        "sudo stat -c %a /var/lib/hactl/snapshots /var/lib/hactl/state.age; sudo ls -A /var/lib/hactl/snapshots",
    );
    assert!(open.starts_with("700\n600\n") && !open.contains(".work") && !open.contains(".new"), "{open}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.hactl");
    let path = file.to_str().expect("a path of letters");
    say(w.hactl.run(&["snapshot", "take", "--to", path])).ok().says("restored for proof");
    say(w.hactl.run(&["snapshot", "verify", "--deep", path])).ok().says("is whole, and opens").says("restored on");
    w.hactl.run(&["snapshot", "verify"]).ok().says("is whole, and opens");
    let ran = say(w.hactl.run(&["recover", "--drill"])).ok();
    assert!(in_one_line(&ran).contains("works: fetched, opened and restored on cp"), "{}", ran.all());
    assert!(in_one_line(&w.hactl.run(&["status"]).ok()).contains("the last drill was"));
    let left = w.hactl.state(w.lab.name()).join("recovery");
    let left: Vec<_> = std::fs::read_dir(&left).expect("the folder is there").collect();
    assert!(left.is_empty(), "a drill leaves nothing open: {left:?}");

    let other = folder.path().join("other.txt");
    std::fs::write(&other, hactl::snapshot::new_identity().reveal()).expect("it can be written");
    let refused = w.hactl.run(&["snapshot", "verify", "--identity", other.to_str().expect("letters"), path]);
    assert!(in_one_line(&refused.exits(1)).contains("is not sealed to this identity"));
    let mut bytes = std::fs::read(&file).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).expect("it can be written");
    assert!(
        in_one_line(&w.hactl.run(&["snapshot", "verify", path]).exits(1)).contains("has changed since it was written")
    );
    std::fs::write(&file, &bytes[..middle]).expect("it can be written");
    assert!(in_one_line(&w.hactl.run(&["snapshot", "verify", path]).exits(1)).contains("is not whole"));

    // What keeps the hosts from taking one is told, and a run of `up` is none the worse for it.
    w.on("cp2", "sudo mv /var/lib/hactl/state.age /var/lib/hactl/away; sudo systemctl start hactl-snapshot");
    let worse = w.hactl.run(&["status"]);
    if worse.code != 4 {
        // It led, and left it to the others.
        w.hactl.run(&["snapshot", "take", "--host", "cp2"]).exits(1);
    }
    w.hactl.run(&["status"]).exits(4).says("recovery bundles").says("cp2");
    w.hactl.up().ok();
    w.hactl.run(&["snapshot", "take", "--host", "cp2"]).ok();
    w.hactl.run(&["status"]).ok();
    w.on("cp2", "sudo rm /var/lib/hactl/away");
}

/// Whether the API takes a token of a service account: who is known and not allowed is told 403, who is not known 401.
fn answer_to(w: &World, token: &str) -> String {
    let url = format!("https://{}:6443/api/v1/namespaces/default/secrets", w.lab.vip());
    w.on("cp1", &format!("curl -sk -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {token}' {url}"))
}

fn all_lost(w: &World) {
    w.hactl.up().ok();
    w.hactl.kubectl(&["create", "secret", "generic", "kept", "--from-literal=word=kept-in-the-bundle"]).ok();
    let token = w.hactl.kubectl(&["create", "token", "default", "--duration=2h"]).ok().out.trim().to_owned();
    assert_eq!(answer_to(w, &token), "403");
    let revision = w.hactl.kubectl(&["get", "secret", "kept", "-o", "jsonpath={.metadata.resourceVersion}"]).ok().out;
    let before: i64 = revision.trim().parse().expect("a revision");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.hactl");
    let (path, state) = (file.to_str().expect("letters"), w.hactl.state(w.lab.name()));
    w.hactl.run(&["snapshot", "take", "--to", path]).ok();
    w.hactl.kubectl(&["create", "configmap", "after-the-bundle"]).ok();
    let identity = folder.path().join("identity.txt");
    std::fs::copy(state.join("identity.txt"), &identity).expect("the identity is in the state");

    for host in ["cp1", "cp2", "cp3"] {
        w.lab.wipe(host).expect("the disks can be lost");
    }
    std::fs::rename(&state, folder.path().join("lost")).expect("the state can be lost");
    for host in ["cp1", "cp2", "cp3"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    say(w.hactl.run(&["recover", "--yes", "--from", path])).exits(1).says("identity");
    let identity = identity.to_str().expect("letters");
    w.hactl.run(&["recover", "--yes", "--from", path, "--identity", identity]).exits(1).says("state pull");
    say(w.hactl.run(&["state", "pull", "--identity", identity, "--from", path])).ok().says("the state is rebuilt");
    assert!(Path::new(&state).join("identity.txt").exists());
    w.hactl.up().exits(3);
    say(w.hactl.run(&["recover", "--dry-run", "--from", path])).ok().says("everything that was written since");
    say(w.hactl.run(&["recover", "--yes", "--from", path])).ok().says("etcd is recovered from lab.hactl");
    let left: Vec<_> = std::fs::read_dir(state.join("recovery")).expect("the folder is there").collect();
    assert!(left.is_empty(), "no snapshot lies open once a quorum has it: {left:?}");

    let kept = w.hactl.kubectl(&["get", "secret", "kept", "-o", "jsonpath={.data.word}@{.metadata.resourceVersion}"]);
    assert_eq!(kept.ok().out.trim(), format!("a2VwdC1pbi10aGUtYnVuZGxl@{before}"), "the Secret decrypts");
    assert_eq!(answer_to(w, &token), "403", "a service account's token is known still");
    w.hactl.kubectl(&["get", "configmap", "after-the-bundle"]).exits(1);
    let fresh = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.metadata.resourceVersion}"];
    w.hactl.kubectl(&["create", "configmap", "new"]).ok();
    let now = w.hactl.kubectl(&["get", "configmap", "new", "-o", "jsonpath={.metadata.resourceVersion}"]).ok().out;
    assert!(now.trim().parse::<i64>().expect("a revision") > 1_000_000_000, "{now} after {before}");
    w.hactl.kubectl(&fresh).ok();
    w.hactl.up().ok().says("nothing to do");
}
