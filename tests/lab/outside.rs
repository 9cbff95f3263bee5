//! Snapshots from untrusted sources, whose manifests lie: hosts that verify them must not change.

use super::support::{GIVEN_BACK, once_free};
use super::{Scenario, World, in_one_line};
use hactl::model::names::Digest;
use hactl::snapshot::Recipients;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "verifying a snapshot that somebody else made changes no host", cut: false, run: checked },
    Scenario { name: "a snapshot with a false size or date fills no disk and is not chosen", cut: false, run: claimed },
];

const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];
const MAGIC: &[u8] = b"hactl recovery bundle 1\n";

/// The pieces of a snapshot file.
struct Pieces {
    sealed: Vec<u8>,
    state: Vec<u8>,
    manifest: Value,
}

impl Pieces {
    fn read(at: &Path) -> Self {
        let bytes = fs::read(at).expect("the file is there");
        let end = bytes.len() - 36;
        let length = u32::from_be_bytes(bytes[end..end + 4].try_into().expect("four bytes")) as usize;
        let manifest: Value = serde_json::from_slice(&bytes[end - length..end]).expect("a manifest is JSON");
        let count = |of: &str| usize::try_from(manifest[of]["bytes"].as_u64().expect("a number")).expect("small");
        let (sealed, state) = bytes[MAGIC.len()..].split_at(count("sealed"));
        Self { sealed: sealed.to_vec(), state: state[..count("state")].to_vec(), manifest }
    }

    fn write(&self, at: &Path) {
        let text = serde_json::to_vec(&self.manifest).expect("JSON");
        let length = u32::try_from(text.len()).expect("small").to_be_bytes();
        let sum = Digest::of(&text);
        let all = [MAGIC, &self.sealed, &self.state, &text, &length, sum.bytes()].concat();
        fs::write(at, all).expect("the folder is ours");
    }

    /// Replaces the etcd snapshot, encrypted to the recipients of this cluster: reading the public keys on a host is
    /// enough for that.
    fn replace(&mut self, content: &[u8], to: &[String]) {
        let packed = zstd::encode_all(content, 3).expect("memory");
        let mut encrypted = Recipients::parse(to).expect("public keys").writer(Vec::new()).expect("memory");
        encrypted.write_all(&packed).expect("memory");
        self.sealed = encrypted.finish().expect("memory");
        let snapshot = &mut self.manifest["snapshot"];
        snapshot["digest"] = json!(Digest::of(content).hex());
        snapshot["size"] = json!(content.len());
        snapshot["sent_digest"] = json!(Digest::of(&packed).hex());
        snapshot["sent_size"] = json!(packed.len());
        self.manifest["sealed"] = json!({"digest": Digest::of(&self.sealed).hex(), "bytes": self.sealed.len()});
    }
}

/// Every file of every host in the directories of programs, settings and temporary files, except what the lock of a
/// run, etcd and the recorded positions of members change.
fn trees(w: &World) -> Vec<String> {
    let list = "sudo find /usr /etc /opt /root /home /var/lib/hactl /var/tmp -xdev ! -path /var/lib/hactl/lock ! -path /var/lib/hactl/busy \
                ! -path /var/lib/hactl/positions.json ! -path /var/lib/hactl -printf '%p %y %m %U %s %l %T@\\n' | sort";
    HOSTS.iter().map(|host| w.on(host, list)).collect()
}

fn the_same(w: &World, before: &[String], what: &str) {
    for ((host, before), after) in HOSTS.iter().zip(before).zip(trees(w)) {
        assert!(before.lines().count() > 1000, "{host} is listed");
        let changed: Vec<_> = similar_lines(before, &after);
        assert!(changed.is_empty(), "{what} changed {host}: {changed:#?}");
    }
}

/// Lines that only one of the two texts has.
fn similar_lines(one: &str, other: &str) -> Vec<String> {
    let (a, b): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
        (one.lines().collect(), other.lines().collect());
    a.symmetric_difference(&b).map(ToString::to_string).collect()
}

/// Stands in for sudo on a host that lies: a line of Perl edits every answer of `hactl host`.
const LIAR: &str = r#"#!/usr/bin/perl
$a="@ARGV"; exec '/usr/bin/sudo',@ARGV unless $a=~m{/hactl host$};
open($o,'-|')//die or exec '/usr/bin/sudo',@ARGV; binmode $o; binmode STDOUT; $|=1;
$r=do{local(@ARGV,$/)=('/etc/lie');<>};
sub get{my($n,$p)=(shift,'');while(length$p<$n){read($o,$p,$n-length$p,length$p)||exit}$p}
for(;;){($n,$k)=unpack'Na',get(5);$_=get($n);eval$r if$k eq'J';print pack('Na',length,$k).$_}
"#;

fn put(w: &World, host: &str, path: &str, text: &str) {
    let mut ssh = w.lab.ssh(host).expect("the host exists");
    let ssh = ssh.arg(format!("sudo tee {path} >/dev/null; sudo chmod 755 {path}"));
    let mut child = ssh.stdin(Stdio::piped()).spawn().expect("ssh can be started");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the host reads it");
    assert!(child.wait().expect("it ends").success());
}

fn claimed(w: &World) {
    w.hactl.up().ok();
    for host in HOSTS {
        w.hactl.run(&["snapshot", "take", "--host", host]).ok();
    }
    put(w, "cp2", "/etc/lie", r#"s/(-cp2\.hactl","bytes":)\d+/${1}1125899906842624/g"#);
    put(w, "cp2", "/usr/local/bin/sudo", LIAR);
    let refused = || in_one_line(&w.hactl.run(&["snapshot", "verify", "--host", "cp2"]).exits(1));
    let said = refused();
    assert!(
        said.contains("cp2 is not believed: it says of") && said.contains("1125899906842624, which cannot be"),
        "{said}"
    );
    put(w, "cp2", "/etc/lie", r#"s/(-cp2\.hactl","bytes":)\d+/${1}562949953421312/g"#);
    let said = refused();
    assert!(said.contains("cp2 reports a snapshot of 562949953421312 bytes"), "{said}");
    let left = fs::read_dir(w.hactl.state(w.lab.name()).join("recovery")).into_iter().flatten().count();
    assert_eq!(left, 0, "nothing was written here");
    put(w, "cp2", "/etc/lie", r#"s/"taken_ms":\d+/"taken_ms":9223372036854775807/g"#);
    let ran = w.hactl.run(&["snapshot", "verify"]).ok();
    assert!(!in_one_line(&ran).contains("-cp2.hactl"), "a snapshot of the future is not the newest: {}", ran.all());
    w.hactl.run(&["snapshot", "list"]).ok();
    w.on("cp2", "sudo rm /usr/local/bin/sudo /etc/lie");
    w.well();
}

fn checked(w: &World) {
    w.hactl.up().ok();
    // A snapshot that a timer takes is a change as well, but not one of the check.
    for host in HOSTS {
        w.on(host, "sudo systemctl stop hactl-snapshot.timer hactl-snapshot.service");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let path = |of: &PathBuf| of.to_str().expect("a path of letters").to_owned();
    let honest = at("honest.hactl");
    w.hactl.run(&["snapshot", "take", "--to", &path(&honest)]).ok();
    let before = trees(w);

    let forged = at("forged.hactl");
    let mut pieces = Pieces::read(&honest);
    for place in [json!({"program": {"link": "/usr/local/sbin/pwned"}}), json!({"program": {"link": null}})] {
        pieces.manifest["snapshot"]["place"] = place;
        pieces.write(&forged);
        for arguments in
            [&["snapshot", "verify", &path(&forged)][..], &["snapshot", "verify", "--deep", &path(&forged)]]
        {
            let ran = w.hactl.run(arguments).exits(1);
            assert!(in_one_line(&ran).contains("has changed since it was written"), "{}", ran.all());
        }
        the_same(w, &before, "a manifest that names a place");
    }

    // A foreign program, which the manifest does not declare as one.
    let settings: Value = serde_json::from_str(&w.on("cp1", "sudo cat /etc/hactl/snapshots.json")).expect("settings");
    let to: Vec<String> = serde_json::from_value(settings["recipients"].clone()).expect("public keys");
    let mut pieces = Pieces::read(&honest);
    pieces.replace(b"#!/bin/sh\nid > /var/tmp/pwned\n", &to);
    pieces.write(&forged);
    let ran = w.hactl.run(&["snapshot", "verify", "--deep", "--accept-unsigned", &path(&forged)]).exits(1);
    assert!(in_one_line(&ran).contains("restore the snapshot as a test"), "it reached the host: {}", ran.all());
    the_same(w, &before, "a snapshot that is a program");
    // A snapshot with a false size.
    let mut pieces = Pieces::read(&honest);
    pieces.manifest["snapshot"]["size"] = json!(1_u64 << 50);
    pieces.write(&forged);
    w.hactl.run(&["snapshot", "verify", "--deep", &path(&forged)]).exits(1);
    the_same(w, &before, "a snapshot of a petabyte");

    let ran = w.hactl.run(&["snapshot", "verify", "--deep", &path(&honest)]).ok().says("restored on");
    the_same(w, &before, "a check that went well");
    println!("        verify --deep: {:.1} s", ran.took.as_secs_f32());

    // The next check removes what a killed one left, on whichever host it runs.
    for tenths in 1..=8 {
        let mut killed = w.hactl.command(&["snapshot", "verify", "--deep", &path(&honest)]);
        let mut killed = killed.spawn().expect("hactl can be started");
        std::thread::sleep(Duration::from_millis(100 * tenths));
        // It may have ended already.
        let _ = killed.kill();
        killed.wait().expect("it ended");
    }
    for host in HOSTS {
        w.on(host, "sudo install -d -m 700 /var/lib/hactl/checks/of-a-run-that-is-gone; sudo touch /var/lib/hactl/checks/of-a-run-that-is-gone/snapshot");
    }
    once_free(GIVEN_BACK, || w.hactl.run(&["snapshot", "verify", "--deep", &path(&honest)])).ok();
    the_same(w, &before, "checks that were killed at several times, and one after them,");
    for host in HOSTS {
        w.on(host, "sudo systemctl start hactl-snapshot.timer");
    }
    assert!(w.hactl.run(&["plan"]).ok().out.contains("Nothing to do"));
}
