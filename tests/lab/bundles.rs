//! Snapshots: hosts take and test them, and one of them and an identity rebuild the whole cluster.

use super::bare_hosts::variant;
use super::recover::members;
use super::served::free;
use super::storage::{LOGIN, ObjectStorage, bucket};
use super::support::{Hactl, Ran, wait_for};
use super::tiny_tls::TestCa;
use super::{Scenario, World, in_one_line};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "each host's timer takes and test-restores snapshots, and a damaged one is refused",
        cut: false,
        run: taken,
    },
    Scenario {
        name: "each host's timer drills its newest snapshot, and one that does not restore is reported",
        cut: false,
        run: rehearsed,
    },
    Scenario {
        name: "copies go to object storage, and storage that is unreachable or denies the key is reported",
        cut: false,
        run: stored,
    },
    Scenario {
        name: "all hosts and the administrator's state are lost; object storage and an identity restore the cluster",
        cut: false,
        run: all_lost,
    },
    Scenario {
        name: "all hosts are lost, and snapshots on a share restore the cluster once it is mounted again",
        cut: false,
        run: mounted_again,
    },
];
/// On five members.
pub const FIVE: &[Scenario] = &[
    Scenario { name: "five members: each host's timer takes snapshots", cut: false, run: taken },
    Scenario { name: "five members: all hosts and the administrator's state are lost", cut: false, run: all_lost },
];

const BOOT: Duration = Duration::from_secs(60);

fn say(ran: Ran) -> Ran {
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    ran
}

/// The shortest interval: the first runs come one to two minutes after the timers start.
const OFTEN: &str = "snapshots: {every: 1m}\n";
/// Until the timers of all hosts have run; a snapshot gets a twentieth of a processor.
const TURNS: Duration = Duration::from_secs(300);

/// The timers of the hosts take the snapshots: nothing else starts the service.
fn by_timers(w: &World) {
    // The leader takes a snapshot only if it has none.
    let none = "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service; \
                sudo sh -c 'rm -f /var/lib/hactl/snapshots/*.hactl'";
    for host in members(w) {
        w.on(host, none);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    variant(w, "often.yaml", |text| text + OFTEN).up().ok();
    let ask = format!("sudo journalctl -u hactl-snapshot --since @{since} -o cat -q --no-pager");
    let taken = |host: &str| w.on(host, &ask).matches("test-restored in").count();
    let leaves = |host: &str| w.on(host, &ask).contains("this member is the leader");
    let took = wait_for("each timer takes a first snapshot", TURNS, || members(w).into_iter().all(|h| taken(h) > 0));
    println!("        each host's timer has taken a snapshot after {took:.1?}");
    wait_for("each timer runs again", TURNS, || members(w).into_iter().all(|h| taken(h) > 1 || leaves(h)));
    let leaders: Vec<&str> = members(w).into_iter().filter(|h| leaves(h)).collect();
    assert_eq!(leaders.len(), 1, "followers take the next snapshots: {leaders:?}");
    w.hactl.up().ok();
    let runs = |host: &str| w.on(host, "systemctl is-active hactl-snapshot").trim() == "activating";
    wait_for("no snapshot is being taken", TURNS, || !members(w).into_iter().any(runs));
}

fn taken(w: &World) {
    w.hactl.up().ok();
    by_timers(w);
    let ran = say(w.hactl.run(&["snapshot", "list"])).ok();
    let has = |host: &&str| ran.out.contains(&format!("-{host}.hactl"));
    assert!(members(w).iter().all(has), "{}", ran.all());
    say(w.well()).says("snapshots");
    let open = w.on(
        "cp1",
        "sudo stat -c %a /var/lib/hactl/snapshots /var/lib/hactl/state.age; sudo ls -A /var/lib/hactl/snapshots",
    );
    assert!(open.starts_with("700\n600\n") && !open.contains(".work") && !open.contains(".new"), "{open}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.hactl");
    let path = file.to_str().expect("a path of letters");
    say(w.hactl.run(&["snapshot", "take", "--to", path])).ok().says("test-restored in");
    say(w.hactl.run(&["snapshot", "verify", "--deep", path])).ok().says("is intact and decrypts").says("restored on");
    w.hactl.run(&["snapshot", "verify"]).ok().says("is intact and decrypts");
    let ran = say(w.hactl.run(&["recover", "--drill"])).ok();
    assert!(in_one_line(&ran).contains("works: fetched, decrypted and restored on cp"), "{}", ran.all());
    assert!(in_one_line(&w.well()).contains("the last drill with the owners' identity was"));
    let left = w.hactl.state(w.lab.name()).join("recovery");
    let left: Vec<_> = std::fs::read_dir(&left).expect("the folder is there").collect();
    assert!(left.is_empty(), "a drill leaves no files: {left:?}");

    let other = folder.path().join("other.txt");
    std::fs::write(&other, hactl::snapshot::new_identity().reveal()).expect("it can be written");
    let refused = w.hactl.run(&["snapshot", "verify", "--identity", other.to_str().expect("letters"), path]);
    assert!(in_one_line(&refused.exits(1)).contains("is not encrypted for this identity"));
    let mut bytes = std::fs::read(&file).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).expect("it can be written");
    assert!(
        in_one_line(&w.hactl.run(&["snapshot", "verify", path]).exits(1)).contains("has changed since it was written")
    );
    std::fs::write(&file, &bytes[..middle]).expect("it can be written");
    assert!(in_one_line(&w.hactl.run(&["snapshot", "verify", path]).exits(1)).contains("is not complete"));

    // A failed snapshot is reported, and `up` succeeds nevertheless.
    w.on("cp2", "sudo mv /var/lib/hactl/state.age /var/lib/hactl/away; sudo systemctl start hactl-snapshot");
    let worse = w.hactl.run(&["status"]);
    if worse.code != 4 {
        // It was the leader and left the snapshot to the others.
        w.hactl.run(&["snapshot", "take", "--host", "cp2"]).exits(1);
    }
    w.hactl.run(&["status"]).exits(4).says("snapshots").says("cp2");
    w.hactl.up().ok();
    w.hactl.run(&["snapshot", "take", "--host", "cp2"]).ok();
    w.well();
    w.on("cp2", "sudo rm /var/lib/hactl/away");
    pruned(w);
}

/// `snapshot prune` removes expired snapshots from the host and from the directories of copies, and reports a share
/// that is missing.
fn pruned(w: &World) {
    let base = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    let inventory = w.lab.dir().join("few.yaml");
    let few = "snapshots: {keep: {last: 1, daily: 0, weekly: 0}, to: [/srv/few]}\n";
    std::fs::write(&inventory, format!("{base}{few}")).expect("writable");
    let hactl = Hactl::new(inventory);
    for host in members(w) {
        w.on(
            host,
            "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service; sudo mkdir /srv/few; sudo sh -c 'cd /var/lib/hactl/snapshots; \
             cp *.hactl /srv/few/; f=$(ls *.hactl | head -n 1); cp $f /srv/few/$f.new; touch -d @1700000000 /srv/few/$f.new'",
        );
    }
    w.hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    hactl.up().ok();
    for host in members(w) {
        w.on(host, "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service");
    }
    let count = |host: &str| {
        let all = w.on(host, "sudo sh -c 'ls /var/lib/hactl/snapshots/*.hactl | wc -l; ls -A /srv/few | wc -l'");
        all.split_whitespace().map(|n| n.parse::<usize>().expect("a number")).collect::<Vec<_>>()
    };
    hactl.run(&["snapshot", "prune"]).ok().says("removed ");
    for host in members(w) {
        assert_eq!(count(host), [1, 1], "{host} keeps the newest snapshot and no partial file");
    }
    hactl.run(&["snapshot", "prune"]).ok().says("nothing to remove");
    hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    assert_eq!(count("cp1"), [1, 1], "the new snapshot replaces the old one");
    w.on("cp2", "sudo rm -r /srv/few");
    let shown = in_one_line(&hactl.run(&["snapshot", "prune"]).exits(1));
    assert!(shown.contains("cp2") && shown.contains("/srv/few does not exist; check that it is mounted"), "{shown}");
    w.hactl.up().ok();
    for host in members(w) {
        w.on(host, "sudo rm -rf /srv/few");
    }
}

/// Changes one byte in the middle of a host's newest snapshot, and prints its path.
const FLIP: &str = r#"sudo sh -c 'f=$(ls /var/lib/hactl/snapshots/*.hactl | sort | tail -n 1); at=$(($(stat -c %s "$f") / 2)); byte=$(($(od -An -tu1 -j $at -N 1 "$f") ^ 1)); printf "\\$(printf %03o $byte)" | dd of="$f" bs=1 seek=$at conv=notrunc status=none; echo "$f"'"#;
/// Files that drills leave on a host, except the record of drills with the owners' identity.
const LEFT: &str =
    "sudo find /etc/systemd/system /var/lib/hactl /var/lib/systemd/timers -name '*drill*' -not -name drill.json";

/// Makes a host's timer find that it missed a run, as after a boot: the last run was two days ago.
const MISSED: &str = "sudo systemctl stop hactl-drill.timer; \
     sudo touch -d '2 days ago' /var/lib/systemd/timers/stamp-hactl-drill.timer; \
     sudo systemctl start hactl-drill.timer";

/// Waits for a drill that a host's timer starts, and returns the end of its journal.
fn drill(w: &World, host: &str) -> String {
    let journal = || w.on(host, "sudo journalctl -u hactl-drill -o cat -q --no-pager");
    let ends = |line: &&str| line.starts_with("Finished ") || line.starts_with("Failed to start ");
    let before = journal().lines().filter(ends).count();
    w.on(host, MISSED);
    wait_for("the timer's drill has ended", TURNS, || journal().lines().filter(ends).count() > before);
    w.on(host, "sudo journalctl -u hactl-drill -n 30 -o cat --no-pager")
}

fn rehearsed(w: &World) {
    w.hactl.up().ok();
    w.hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    let base = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    let inventory = w.lab.dir().join("drills.yaml");
    std::fs::write(&inventory, format!("{base}snapshots: {{drill: daily}}\n")).expect("writable");
    let hactl = Hactl::new(inventory);
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    for host in members(w) {
        assert_eq!(w.on(host, "systemctl is-active hactl-drill.timer").trim(), "active", "{host}");
        // Only the test takes snapshots from here on.
        w.on(host, "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service");
    }
    let well = || wait_for("all is well", Duration::from_secs(120), || hactl.run(&["status"]).code == 0);
    well();
    // The snapshot timer may have run meanwhile.
    w.on("cp1", "sudo rm -f /var/lib/hactl/drill-identity.txt");
    let said = drill(w, "cp1");
    assert!(said.contains("it is older than this host's identity for drills"), "{said}");
    well();

    for host in members(w) {
        hactl.run(&["snapshot", "take", "--host", host]).ok();
        assert_eq!(w.on(host, "sudo stat -c '%a %U' /var/lib/hactl/drill-identity.txt"), "600 root\n", "{host}");
        let said = drill(w, host);
        assert!(said.contains("keys, identical to when it was taken, in "), "{host}: {said}");
    }
    well();
    let shown = in_one_line(&say(hactl.run(&["status"])).ok());
    assert!(shown.contains("automatically restored its newest snapshot") && shown.contains(" ago: "), "{shown}");
    assert!(shown.contains("old at that time") && !shown.contains("not yet"), "{shown}");
    let status = hactl.run(&["status", "-o", "json"]).ok().out;
    let status: serde_json::Value = serde_json::from_str(&status).expect("one object");
    let own = |drill: &&serde_json::Value| drill["heldBy"] == "host" && drill["outcome"] == "restored";
    assert_eq!(status["drills"].as_array().expect("a list").iter().filter(own).count(), members(w).len(), "{status}");

    // A host can decrypt only etcd's part of its snapshots, and no key of the cluster.
    let folder = tempfile::tempdir().expect("a folder");
    let (file, identity) = (folder.path().join("lab.hactl"), folder.path().join("of-cp1.txt"));
    let path = file.to_str().expect("letters");
    hactl.run(&["snapshot", "take", "--host", "cp1", "--to", path]).ok();
    hactl.run(&["snapshot", "verify", path]).ok().says("is intact and decrypts");
    std::fs::write(&identity, w.on("cp1", "sudo cat /var/lib/hactl/drill-identity.txt")).expect("writable");
    let identity = identity.to_str().expect("letters");
    let refused = hactl.run(&["snapshot", "verify", "--identity", identity, path]).exits(1);
    assert!(in_one_line(&refused).contains("is not encrypted for this identity"), "{}", refused.all());
    say(hactl.run(&["recover", "--drill"])).ok();

    // A disk that corrupts data.
    let bad = w.on("cp2", FLIP);
    let said = drill(w, "cp2");
    assert!(said.contains("has changed since it was written"), "{said}");
    let shown = in_one_line(&say(hactl.run(&["status"])).exits(4));
    let name = bad.trim().rsplit('/').next().expect("a name");
    for words in ["snapshots", "cp2", name, "has changed since", "hactl snapshot take --host cp2"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    say(hactl.run(&["snapshot", "list"])).ok().says("drill of");
    hactl.run(&["snapshot", "take", "--host", "cp2"]).ok();
    drill(w, "cp2");
    well();
    w.on("cp2", &format!("sudo rm {}", bad.trim()));

    // Without the setting, nothing of it is left.
    let planned = in_one_line(&w.hactl.run(&["plan", "-v"]).ok());
    assert!(planned.contains("stop hactl-drill.timer"), "{planned}");
    w.hactl.up().ok();
    for host in members(w) {
        assert_eq!(w.on(host, LEFT).trim(), "", "{host}");
        assert_eq!(w.on(host, "systemctl is-active hactl-drill.timer || true").trim(), "inactive", "{host}");
    }
    w.hactl.up().ok().says("nothing to do");
    assert!(!in_one_line(&w.well()).contains("automatically"));
}

/// The HTTP status for a token of a service account: 403 if it is authenticated but not authorized, 401 if it is not
/// authenticated.
fn answer_to(w: &World, token: &str) -> String {
    let url = format!("https://{}:6443/api/v1/namespaces/default/secrets", w.lab.vip());
    w.on("cp1", &format!("curl -sk -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {token}' {url}"))
}

/// Object storage beside the hosts, and the inventory that sends copies there. The folder contains its buckets and its
/// TLS key.
struct Beside {
    folder: tempfile::TempDir,
    at: SocketAddr,
    pair: (String, String),
    hactl: Hactl,
}

impl Beside {
    fn new(w: &World) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (ca, at) = (TestCa::new("the storage's CA"), free(w.gateway()));
        bucket(&folder.path().join("buckets"), "backup");
        let base = std::fs::read_to_string(w.lab.inventory()).expect("readable");
        let more = format!(
            "snapshots:\n  keep: {{last: 1, daily: 0, weekly: 0}}\n  to: [s3://backup/dr]\n  s3: {{endpoint: \"https://{at}\", credentials: s3-key.txt, ca: s3-ca.crt}}\n"
        );
        let inventory = w.lab.dir().join("storage.yaml");
        std::fs::write(&inventory, format!("{base}{more}")).expect("writable");
        std::fs::write(w.lab.dir().join("s3-ca.crt"), &ca.cert).expect("writable");
        key(w, LOGIN.1);
        Self { folder, at, pair: ca.pair(w.gateway()), hactl: Hactl::new(inventory) }
    }
    fn start(&self) -> ObjectStorage {
        ObjectStorage::start(&self.folder.path().join("buckets"), self.at, (&self.pair.0, &self.pair.1))
    }
    /// Runs `up` with this inventory; from then on only the test takes snapshots.
    fn up(&self, w: &World) {
        self.hactl.up().ok();
        for host in members(w) {
            w.on(host, "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service");
        }
    }
    /// The URLs of cp1's snapshots there.
    fn of_cp1(&self) -> Vec<String> {
        let listed = self.hactl.run(&["snapshot", "list", "-o", "json"]).ok().out;
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("one object");
        let all = listed["objectStorage"]["s3://backup/dr"]["bundles"].as_array().expect("a list").clone();
        let own = all.iter().filter(|one| one["host"] == "cp1");
        own.map(|one| one["url"].as_str().expect("an address").to_owned()).collect()
    }
}

/// Writes the file with the access key of the storage, as a person would.
fn key(w: &World, secret: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let file = w.lab.dir().join("s3-key.txt");
    std::fs::write(&file, format!("{}:{secret}\n", LOGIN.0)).expect("writable");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("ours");
}

fn stored(w: &World) {
    w.hactl.up().ok();
    let beside = Beside::new(w);
    let (hactl, server) = (&beside.hactl, beside.start());
    beside.up(w);
    let file = "/etc/hactl/object-storage/access.toml";
    assert_eq!(w.on("cp1", &format!("sudo stat -c '%a %U' {file}")), "600 root\n");
    say(hactl.run(&["snapshot", "take", "--host", "cp1"])).ok();
    say(hactl.run(&["snapshot", "list"])).ok().says(&format!("s3://backup/dr/{}-", w.lab.name()));
    let first = beside.of_cp1();
    assert_eq!(first.len(), 1, "{first:?}");
    hactl.run(&["snapshot", "verify", &first[0]]).ok().says("is intact and decrypts");
    hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    let second = beside.of_cp1();
    assert!(second.len() == 1 && second != first, "expired snapshots are removed there as well: {second:?}");

    drop(server);
    let refused = say(hactl.run(&["snapshot", "take", "--host", "cp1"])).exits(1);
    assert!(in_one_line(&refused).contains("does not answer: Connection refused"), "{}", refused.all());
    let shown = hactl.run(&["status"]).exits(4);
    assert!(
        in_one_line(&shown).contains("the snapshot is stored on this host, but its copies failed"),
        "{}",
        shown.all()
    );
    let server = beside.start();
    key(w, "another-key");
    beside.up(w);
    let refused = say(hactl.run(&["snapshot", "take", "--host", "cp1"])).exits(1);
    assert!(in_one_line(&refused).contains("denies the access key this operation: 403"), "{}", refused.all());
    say(hactl.run(&["snapshot", "list"])).ok().says("denies the access key this operation: 403");
    key(w, LOGIN.1);
    beside.up(w);
    hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    w.healthy(Duration::from_secs(60));

    // Without copies to object storage, no access key is left on the hosts.
    w.hactl.up().ok();
    assert_eq!(w.on("cp1", "sudo ls /etc/hactl/object-storage"), "");
    drop(server);
}

fn all_lost(w: &World) {
    w.hactl.up().ok();
    let beside = Beside::new(w);
    let (hactl, _server) = (&beside.hactl, beside.start());
    beside.up(w);
    w.hactl.kubectl(&["create", "secret", "generic", "kept", "--from-literal=word=kept-in-the-bundle"]).ok();
    let token = w.hactl.kubectl(&["create", "token", "default", "--duration=2h"]).ok().out.trim().to_owned();
    assert_eq!(answer_to(w, &token), "403");
    let revision = w.hactl.kubectl(&["get", "secret", "kept", "-o", "jsonpath={.metadata.resourceVersion}"]).ok().out;
    let before: i64 = revision.trim().parse().expect("a revision");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.hactl");
    let (path, state) = (file.to_str().expect("letters"), w.hactl.state(w.lab.name()));
    hactl.run(&["snapshot", "take", "--to", path]).ok();
    w.hactl.kubectl(&["create", "configmap", "after-the-bundle"]).ok();
    let identity = folder.path().join("identity.txt");
    std::fs::copy(state.join("identity.txt"), &identity).expect("the identity is in the state");

    for host in members(w) {
        w.lab.wipe(host).expect("the disks can be lost");
    }
    let noted = super::authentic::fingerprint(&state);
    std::fs::rename(&state, folder.path().join("lost")).expect("the state can be lost");
    for host in members(w) {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    say(w.hactl.run(&["recover", "--yes", "--from", path])).exits(1).says("identity");
    let identity = identity.to_str().expect("letters");
    w.hactl.run(&["recover", "--yes", "--from", path, "--identity", identity]).exits(1).says("state pull");
    say(super::authentic::pull(hactl, identity, &noted)).ok().says("the state is rebuilt");
    assert!(Path::new(&state).join("identity.txt").exists());
    w.hactl.up().exits(3);
    w.hactl.run(&["recover", "--dry-run", "--from", path]).ok().says("everything that was written since");
    let ran = say(hactl.run(&["recover", "--dry-run"])).ok();
    assert!(in_one_line(&ran).contains(&format!("in s3://backup/dr/{}-", w.lab.name())), "{}", ran.all());
    assert!(in_one_line(&ran).contains("everything that was written since"), "{}", ran.all());
    say(hactl.run(&["recover", "--yes"])).ok().says(&format!("etcd is recovered from {}-", w.lab.name()));
    let left: Vec<_> = std::fs::read_dir(state.join("recovery")).expect("the folder is there").collect();
    assert!(left.is_empty(), "no file of the recovery is left: {left:?}");

    let kept = w.hactl.kubectl(&["get", "secret", "kept", "-o", "jsonpath={.data.word}@{.metadata.resourceVersion}"]);
    assert_eq!(kept.ok().out.trim(), format!("a2VwdC1pbi10aGUtYnVuZGxl@{before}"), "the Secret decrypts");
    assert_eq!(answer_to(w, &token), "403", "a service account's token is still valid");
    w.hactl.kubectl(&["get", "configmap", "after-the-bundle"]).exits(1);
    let fresh = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.metadata.resourceVersion}"];
    w.hactl.kubectl(&["create", "configmap", "new"]).ok();
    let now = w.hactl.kubectl(&["get", "configmap", "new", "-o", "jsonpath={.metadata.resourceVersion}"]).ok().out;
    assert!(now.trim().parse::<i64>().expect("a revision") > 1_000_000_000, "{now} after {before}");
    w.hactl.kubectl(&fresh).ok();
    hactl.up().ok().says("nothing to do");
    w.hactl.up().ok();
}

/// The content of a host's directory as one archive.
fn packed(w: &World, host: &str) -> Vec<u8> {
    let mut ssh = w.lab.ssh(host).expect("the host exists");
    let output = ssh.arg("sudo tar -C /mnt/backup -cf - .").output().expect("ssh can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Unpacks the archive on another host, as if the share were mounted there.
fn mounted(w: &World, host: &str, packed: &[u8]) {
    use std::io::Write as _;
    let mut ssh = w.lab.ssh(host).expect("the host exists");
    ssh.arg("sudo mkdir -p /mnt/backup && sudo tar -C /mnt/backup -xf -").stdin(std::process::Stdio::piped());
    let mut child = ssh.spawn().expect("ssh can be started");
    child.stdin.take().expect("piped").write_all(packed).expect("the host takes it");
    assert!(child.wait().expect("it ends").success());
}

fn mounted_again(w: &World) {
    w.hactl.up().ok();
    let base = std::fs::read_to_string(w.lab.inventory()).expect("readable");
    let inventory = w.lab.dir().join("share.yaml");
    std::fs::write(&inventory, format!("{base}snapshots: {{to: [/mnt/backup]}}\n")).expect("writable");
    let hactl = Hactl::new(inventory);
    for host in members(w) {
        w.on(host, "sudo mkdir -p /mnt/backup");
    }
    hactl.up().ok();
    for host in members(w) {
        w.on(host, "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service");
    }
    w.hactl.kubectl(&["create", "secret", "generic", "shared", "--from-literal=word=kept-on-the-share"]).ok();
    hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    w.hactl.kubectl(&["create", "configmap", "between-the-bundles"]).ok();
    hactl.run(&["snapshot", "take", "--host", "cp1"]).ok();
    say(hactl.run(&["snapshot", "list"])).ok().says(&format!("cp1:/mnt/backup/{}-", w.lab.name()));
    let listed = hactl.run(&["snapshot", "list", "-o", "json"]).ok().out;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("one object");
    let address =
        listed["directories"]["/mnt/backup"]["bundles"][0]["address"].as_str().expect("an address").to_owned();
    hactl.run(&["snapshot", "verify", &address]).ok().says("is intact and decrypts");
    hactl.run(&["recover", "--drill", "--from", &address]).ok();

    let (share, folder) = (packed(w, "cp1"), tempfile::tempdir().expect("a folder"));
    let state = w.hactl.state(w.lab.name());
    let identity = folder.path().join("identity.txt");
    std::fs::copy(state.join("identity.txt"), &identity).expect("the identity is in the state");
    for host in members(w) {
        w.lab.wipe(host).expect("the disks can be lost");
    }
    let noted = super::authentic::fingerprint(&state);
    std::fs::rename(&state, folder.path().join("lost")).expect("the state can be lost");
    for host in members(w) {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    // The newest snapshot is damaged, which is noticed only when it is fetched.
    mounted(w, "cp2", &share);
    let damage = "sudo sh -c 'f=$(ls /mnt/backup/*-cp1.hactl | tail -n 1); printf XXXX | dd of=$f bs=1 seek=300 conv=notrunc status=none; ls -l $f'";
    println!("        {}", w.on("cp2", damage).trim());
    let identity = identity.to_str().expect("letters");
    let ran = say(super::authentic::pull(&hactl, identity, &noted)).ok().says("the state is rebuilt");
    assert!(in_one_line(&ran).contains("trying the next best snapshot"), "{}", ran.all());
    let ran = say(hactl.run(&["recover", "--dry-run"])).ok();
    let text = in_one_line(&ran);
    assert!(text.contains("of cp1 in cp2:/mnt/backup: term "), "{}", ran.all());
    assert!(text.contains("/mnt/backup does not exist; check that it is mounted (on cp1, cp3)"), "{}", ran.all());
    // The directories for copies of the snapshot that is taken at the end.
    for host in ["cp1", "cp3"] {
        w.on(host, "sudo mkdir -p /mnt/backup");
    }
    let ran = say(hactl.run(&["recover", "--yes"])).ok().says(&format!("etcd is recovered from {}-", w.lab.name()));
    assert!(in_one_line(&ran).contains("trying the next best snapshot"), "{}", ran.all());
    let word = w.hactl.kubectl(&["get", "secret", "shared", "-o", "jsonpath={.data.word}"]).ok().out;
    assert_eq!(word.trim(), "a2VwdC1vbi10aGUtc2hhcmU=", "the Secret decrypts");
    w.hactl.kubectl(&["get", "configmap", "between-the-bundles"]).exits(1).says("NotFound");
    hactl.up().ok().says("nothing to do");
    w.hactl.up().ok();
}
