//! Snapshots and states that somebody else made: they are named and never trusted.

use super::recover::members;
use super::support::{Hactl, Ran};
use super::{Scenario, World, in_one_line};
use hactl::model::names::Digest;
use hactl::model::secret::Secret;
use hactl::model::timestamp::file_timestamp;
use hactl::snapshot::Recipients;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a forged snapshot is named, fails verification and is not preferred to live data",
        cut: false,
        run: relabelled,
    },
    Scenario {
        name: "an unsigned snapshot needs a flag, and up issues a missing signing certificate",
        cut: false,
        run: unsigned,
    },
    Scenario {
        name: "state pull ignores a false state on a worker, and names a control-plane host that has one",
        cut: false,
        run: lied,
    },
];

const FOLDER: &str = "/var/lib/hactl/snapshots";

fn say(ran: Ran) -> Ran {
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    ran
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("soon enough")
}

/// Writes a file on a host that only root can read.
fn put(w: &World, host: &str, path: &str, bytes: &[u8]) {
    let mut ssh = w.lab.ssh(host).expect("the host exists");
    ssh.arg(format!("sudo sh -c 'umask 077; mkdir -p {FOLDER}; cat > {path}'")).stdin(Stdio::piped());
    let mut child = ssh.spawn().expect("ssh can be started");
    child.stdin.take().expect("piped").write_all(bytes).expect("the host takes it");
    assert!(child.wait().expect("it ends").success());
}

/// The same snapshot with a changed manifest; everything that needs no key is recomputed.
fn with_changed_manifest(bytes: &[u8], change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    let end = bytes.len() - 36;
    let size = u32::from_be_bytes(bytes[end..end + 4].try_into().expect("four bytes"));
    let begun = end - usize::try_from(size).expect("small");
    let mut manifest = serde_json::from_slice(&bytes[begun..end]).expect("JSON");
    change(&mut manifest);
    let text = serde_json::to_vec(&manifest).expect("JSON");
    let size = &u32::try_from(text.len()).expect("small").to_be_bytes();
    [&bytes[..begun], &text, size, Digest::of(&text).bytes()].concat()
}

fn relabelled(w: &World) {
    w.hactl.up().ok();
    // The API authenticates an observer's certificate, but not a signer's.
    let address = w.lab.address("cp1").expect("it has one");
    let asked = |pair: &str| {
        let curl = "sudo curl -sk -o /dev/null -w %{http_code}";
        w.on("cp1", &format!("{curl} --cert {pair}.crt --key {pair}.key https://{address}:6443/version"))
    };
    assert_eq!(asked("/etc/kubernetes/pki/observer"), "200");
    assert_eq!(asked("/etc/etcd/pki/snapshot-signer"), "401", "its certificate authenticates nobody");
    assert_eq!(w.on("cp1", "sudo stat -c %a:%U /etc/etcd/pki/snapshot-signer.key").trim(), "600:root");

    let folder = tempfile::tempdir().expect("a folder");
    let (good, bad) = (folder.path().join("good.hactl"), folder.path().join("bad.hactl"));
    let (good_path, bad_path) = (good.to_str().expect("letters"), bad.to_str().expect("letters"));
    w.hactl.run(&["snapshot", "take", "--host", "cp1", "--to", good_path]).ok();
    w.hactl.kubectl(&["create", "configmap", "since-the-snapshot"]).ok();
    say(w.hactl.run(&["snapshot", "verify", good_path])).ok().says("by cp1");
    let whole = std::fs::read(&good).expect("it was fetched");
    let taken_ms = now_ms() + 60_000;
    let forged = with_changed_manifest(&whole, |manifest| {
        manifest["taken_ms"] = taken_ms.into();
        (manifest["point"]["term"], manifest["point"]["index"]) = (50.into(), 200_000.into());
        (manifest["point"]["revision"], manifest["point"]["high_water"]) = (90_000.into(), 90_000.into());
    });
    std::fs::write(&bad, &forged).expect("a folder of ours");
    let name = |host: &str| format!("{}-{}-{host}.hactl", w.lab.name(), file_timestamp(taken_ms).replace('.', ""));
    put(w, "cp1", &format!("{FOLDER}/{}", name("cp1")), &forged);
    // A genuine snapshot under the name of another host and another time.
    put(w, "cp2", &format!("{FOLDER}/{}", name("cp2")), &whole);
    let listed = in_one_line(&say(w.hactl.run(&["snapshot", "list"])).ok());
    assert!(listed.contains("in the FUTURE"), "{listed}");
    assert!(listed.contains(&format!("{} is FORGED: it was changed after it was signed", name("cp1"))), "{listed}");
    assert!(listed.contains(&format!("{} is FORGED: it is a snapshot of cp1 of", name("cp2"))), "{listed}");
    say(w.hactl.run(&["snapshot", "verify", bad_path])).exits(3).says("is forged");
    w.hactl.run(&["snapshot", "verify", "--accept-unsigned", bad_path]).exits(3).says("is forged");
    w.hactl.run(&["snapshot", "verify"]).ok().says("is intact and decrypts");

    for host in ["cp2", "cp3"] {
        w.wipe(host);
    }
    let said = say(w.hactl.run(&["recover", "--dry-run"])).ok();
    let text = in_one_line(&said);
    assert!(text.contains("source cp1: term") && text.contains("; used: "), "{text}");
    assert!(!text.contains("revision 90000") && text.contains("is forged"), "named, and not shown as a source: {text}");
    w.hactl.run(&["recover", "--dry-run", "--from", &name("cp1")]).exits(3).says("is forged");
    w.hactl.run(&["recover", "--dry-run", "--from", bad_path, "--accept-unsigned"]).exits(3).says("is forged");
    say(w.hactl.run(&["recover", "--yes"])).ok().says("etcd is recovered from cp1");
    w.hactl.kubectl(&["get", "configmap", "since-the-snapshot"]).ok();
    for host in ["cp1", "cp2"] {
        w.on(host, &format!("sudo rm -f {FOLDER}/{}", name(host)));
    }
    w.healthy(Duration::from_secs(120));
}

fn unsigned(w: &World) {
    w.hactl.up().ok();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.hactl");
    let path = file.to_str().expect("letters");
    // As an earlier hactl left the host.
    w.on("cp3", "sudo systemctl stop hactl-snapshot.timer; sudo rm /etc/etcd/pki/snapshot-signer.crt /etc/etcd/pki/snapshot-signer.key");
    w.hactl.run(&["snapshot", "take", "--host", "cp3", "--to", path]).ok();
    let listed = in_one_line(&say(w.hactl.run(&["snapshot", "list"])).ok());
    assert!(listed.contains("-cp3.hactl is not signed (made by an earlier hactl)"), "{listed}");
    let ran = say(w.hactl.run(&["snapshot", "verify", path])).exits(3);
    assert!(in_one_line(&ran).contains("--accept-unsigned"), "{}", ran.all());
    w.hactl.run(&["snapshot", "verify", "--accept-unsigned", path]).ok().says("the signature was removed");
    w.hactl.run(&["plan", "-v"]).ok().says("issue 1 certificate");
    w.hactl.up().ok();
    w.hactl.run(&["snapshot", "take", "--host", "cp3", "--to", path]).ok();
    w.hactl.run(&["snapshot", "verify", path]).ok().says("by cp3");
    w.hactl.up().ok().says("nothing to do");
}

/// Somebody else's state, encrypted to the owners of this one, which claims to be the latest state of this cluster.
fn foreign_state(state: &Path, cluster: &str) -> String {
    let cluster = cluster.parse().expect("a name");
    let own = hactl::statedir::StateDir::open(state, &cluster).expect("it can be read").expect("it is there");
    let brought = hactl::pki::brought::Brought::default();
    let mut contents = hactl::pki::found(&cluster, brought, time::OffsetDateTime::now_utc()).expect("keys can be made");
    (contents.rotations.founded, contents.rotations.stages) = (own.contents().publics().founded, 999_999);
    let to = Recipients::parse(&own.recipients(&[]).expect("the identity is there")).expect("keys");
    let text = hactl::statedir::carry(&cluster, &contents, &Secret::new("AGE-SECRET-KEY-1".to_owned()), "");
    to.text(&text).expect("memory")
}

/// The fingerprint of the CA in a state directory, as people note it.
pub fn fingerprint(state: &Path) -> String {
    let path = state.join("cluster-ca.crt");
    let openssl = ["x509", "-noout", "-fingerprint", "-sha256", "-in", path.to_str().expect("letters")];
    let output = std::process::Command::new("openssl").args(openssl).output().expect("openssl can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().split_once('=').expect("a fingerprint").1.to_owned()
}

/// Rebuilds a lost state with the fingerprint that a person noted.
pub fn pull(hactl: &Hactl, identity: &str, fingerprint: &str) -> Ran {
    hactl.run(&["state", "pull", "--identity", identity, "--yes", "--fingerprint", fingerprint])
}

fn lied(w: &World) {
    w.hactl.up().ok();
    let (name, state) = (w.lab.name(), w.hactl.state(w.lab.name()));
    let folder = tempfile::tempdir().expect("a folder");
    let lie = foreign_state(&state, name);
    let (noted, identity) = (fingerprint(&state), folder.path().join("identity.txt"));
    let ours = std::fs::read_to_string(state.join("cluster-ca.crt")).expect("it is there");
    std::fs::copy(state.join("identity.txt"), &identity).expect("the identity is in the state");
    let identity = identity.to_str().expect("letters");
    let away = folder.path().join("lost");
    std::fs::rename(&state, &away).expect("the state can be lost");

    put(w, "w1", "/var/lib/hactl/state.age", lie.as_bytes());
    let ran = say(w.hactl.run(&["state", "pull", "--identity", identity, "--yes"])).exits(3);
    let (text, plain) = (in_one_line(&ran), noted.replace(':', "").to_lowercase());
    assert!(text.contains(&plain) && text.contains("--fingerprint"), "{text}");
    assert!(
        text.contains(&format!(
            "all {} etcd and control-plane hosts",
            members(w).iter().filter(|h| h.starts_with("cp")).count()
        )),
        "{text}"
    );
    assert!(!state.exists(), "nothing was made");
    say(pull(&w.hactl, identity, &noted)).ok().says("the state is rebuilt");
    assert_eq!(std::fs::read_to_string(state.join("cluster-ca.crt")).expect("it is there"), ours);
    std::fs::remove_dir_all(&state).expect("it can be removed");

    put(w, "cp2", "/var/lib/hactl/state.age", lie.as_bytes());
    let ran = say(w.hactl.run(&["state", "pull", "--identity", identity, "--yes"])).exits(3);
    assert!(in_one_line(&ran).contains("unrelated CAs") && ran.all().contains("cp2"), "{}", ran.all());
    say(pull(&w.hactl, identity, &noted)).ok().says("the state is rebuilt");
    assert_eq!(std::fs::read_to_string(state.join("cluster-ca.crt")).expect("it is there"), ours);
    std::fs::remove_dir_all(&state).expect("it can be removed");
    let unknown = "00".repeat(32);
    say(pull(&w.hactl, identity, &unknown)).exits(3).says("no state was found");

    // The original comes back, because the journal of a rebuilt state has fewer entries.
    std::fs::rename(&away, &state).expect("it comes back");
    w.on("w1", "sudo rm /var/lib/hactl/state.age");
    w.on("cp2", "sudo rm /var/lib/hactl/state.age");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
}
