//! Unusual access over SSH: sudo that asks for a password, sshd that forwards nothing, a jump host, a host CA instead
//! of known keys, an address for SSH only, and runs that change some hosts only.

use super::bare_hosts::variant;
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a cluster comes up where sudo asks for a password and sshd forwards nothing",
        cut: true,
        run: asked_and_unforwarded,
    },
    Scenario { name: "a wrong password for sudo is tried on one host only", cut: true, run: wrong_password },
    Scenario {
        name: "a host behind a jump host is reached through the OpenSSH configuration",
        cut: true,
        run: behind_another,
    },
    Scenario { name: "hosts are verified by the CA that signed their host keys", cut: true, run: host_ca },
    Scenario { name: "an RSA key file logs in, and an unknown one is refused by name", cut: false, run: rsa },
    Scenario {
        name: "a host may have one address for SSH and another for the cluster",
        cut: false,
        run: two_addresses,
    },
    Scenario { name: "a run that is limited to one host leaves the others as they are", cut: true, run: limited },
];

/// RSA keys as Vagrant and ssh-keygen write them; none of them is in an agent.
fn rsa(w: &World) {
    for format in ["PEM", "RFC4716"] {
        let key = w.lab.dir().join(format!("rsa-{format}"));
        let words = ["-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", format, "-f"];
        assert!(Command::new("ssh-keygen").args(words).arg(&key).status().expect("ssh-keygen runs").success());
        let other = variant(w, &format!("rsa-{format}.yaml"), |t| {
            t.replace("identity: ./id_ed25519", &format!("identity: ./rsa-{format}"))
        });
        let refused = in_one_line(&other.run(&["status"]));
        assert!(refused.contains(&format!("rsa-{format} (ssh-rsa SHA256:")), "the key is named: {refused}");
        let public = fs::read_to_string(key.with_extension("pub")).expect("its public half");
        for host in HOSTS {
            w.on(host, &format!("echo '{}' >> ~/.ssh/authorized_keys", public.trim()));
        }
        // The inventory names this key, so no other is offered.
        other.up().ok();
    }
}

const PASSWORD: &str = "correct horse battery staple";
/// Its hash as in /etc/shadow: sudo logs every command to the journal, so the password itself must not be in one.
const HASH: &str =
    "$6$hactltest$stEdL139XXmva/SV4Bb/4byUGlfmaYFJzw2gmWCSTFWckKKTqwg9Yp9xftaAa8/eb8OnJX4xlVIahYSxmHdUY.";
const HOSTS: [&str; 2] = ["cp1", "w1"];

/// Sets lines of sshd's configuration on every host, or removes them.
fn sshd(w: &World, lines: &str) {
    for host in HOSTS {
        let file = "/etc/ssh/sshd_config.d/00-ways.conf";
        w.on(host, &format!("sudo sh -c 'printf \"{lines}\" > {file} && sshd -t && systemctl restart ssh'"));
        // sshd restarts, and may refuse a connection meanwhile.
        let wanted = lines.replace("\\n", "\n");
        wait_for("sshd is back with its new lines", Duration::from_secs(20), || {
            w.on(host, &format!("cat {file}")).trim() == wanted.trim()
        });
    }
}

/// hactl as the user `asks`, whose sudo asks for a password, which is in a file.
fn asking(w: &World, name: &str, password: &str) -> Hactl {
    let file = w.lab.dir().join(format!("{name}.password"));
    fs::write(&file, format!("{password}\n")).expect("writable");
    let closed = Command::new("chmod").arg("600").arg(&file).status().expect("chmod runs");
    assert!(closed.success());
    variant(w, &format!("{name}.yaml"), |t| {
        t.replace("ssh: {user: ops,", &format!("ssh: {{user: asks, sudo: {{passwordFile: ./{name}.password}},"))
    })
}

fn asked_and_unforwarded(w: &World) {
    for host in HOSTS {
        w.on(
            host,
            &format!(
                "sudo useradd -m -s /bin/bash -p '{HASH}' asks; sudo sh -c 'cp -r /home/ops/.ssh /home/asks/; \
                 chown -R asks: /home/asks/.ssh; echo \"asks ALL=(root) ALL\" > /etc/sudoers.d/asks; chmod 440 /etc/sudoers.d/asks'"
            ),
        );
    }
    sshd(w, "AllowTcpForwarding no\\n");
    let hactl = asking(w, "asks", PASSWORD);
    hactl.up().ok().says("nodes Ready");
    hactl.up().ok().says("nothing to do");
    hactl.kubectl(&["get", "nodes", "-o", "name"]).ok().says("node/w1");
    hactl.kubectl(&["logs", "-n", "kube-system", "-l", "k8s-app=kube-dns", "--tail=5"]).ok();
    // The password is stored nowhere: no log, no journal, no argument, no environment.
    for host in HOSTS {
        let found = w.on(
            host,
            "sudo sh -c 'grep -rlsa \"correct horse batter[y]\" /var/log /run/log /tmp /var/tmp /etc \
             /proc/[0-9]*/cmdline /proc/[0-9]*/environ; journalctl -a --no-pager | grep -c \"correct horse batter[y]\"'",
        );
        assert_eq!(found.trim(), "0", "on {host}");
    }
    let kept =
        Command::new("grep").args(["-rls", PASSWORD]).arg(hactl.state(w.lab.name())).output().expect("grep runs");
    assert_eq!(String::from_utf8_lossy(&kept.stdout), "");
    sshd(w, "");
    w.hactl.up().ok().says("nothing to do");
}

fn wrong_password(w: &World) {
    let failures = |host: &str| {
        w.on(host, "sudo journalctl -a --no-pager | grep -c 'asks : .* incorrect password attempt'").trim().to_owned()
    };
    let before = HOSTS.map(failures);
    asking(w, "wrong", "not this one")
        .run(&["status"])
        .exits(1)
        .says("hactl tried it once")
        .says("the password was not tried here");
    let after = HOSTS.map(failures);
    let count = |all: &[String; 2]| all.iter().map(|n| n.parse::<u32>().expect("a count")).sum::<u32>();
    assert_eq!(count(&after) - count(&before), 1, "{before:?} {after:?}");
}

/// Runs hactl with this `~/.ssh/config`.
fn at_home(w: &World, name: &str, config: &str, inventory: &Hactl, arguments: &[&str]) -> (i32, String) {
    let home = w.lab.dir().join(name);
    fs::create_dir_all(home.join(".ssh")).expect("writable");
    fs::write(home.join(".ssh/config"), config).expect("writable");
    let mut command = inventory.command(arguments);
    let output = command.env("HOME", &home).env_remove("SSH_AUTH_SOCK").output().expect("hactl can be started");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

fn behind_another(w: &World) {
    let address = |host: &str| w.lab.address(host).expect("it has one");
    let (key, known) = (w.lab.identity(), w.lab.known_hosts());
    let config = format!(
        "Host cp1 w1 {}\n  User ops\n  IdentityFile {}\n  UserKnownHostsFile {}\nHost cp1\n  ProxyJump w1\nHost w1\n  HostName {}\n",
        address("w1"),
        key.display(),
        known.display(),
        address("w1"),
    );
    let plain = variant(w, "by-config.yaml", |t| {
        t.replace("ssh: {user: ops, identity: ./id_ed25519, known_hosts: ./known_hosts, config: none}\n", "")
    });
    // Its default place is below the home directory, which is another one here.
    let store = hactl::component::default_store().display().to_string();
    let (code, text) = at_home(w, "home", &config, &plain, &["inventory", "check"]);
    assert!(code == 0 && text.contains(&format!("through ops@{}:22", address("w1"))), "{text}");
    let (code, text) = at_home(w, "home", &config, &plain, &["up", "--yes", "--bundles", &store]);
    assert!(code == 0 && text.contains("nothing to do"), "{text}");
    let logins = w.on("cp1", "sudo journalctl -u ssh -n 20 --no-pager");
    assert!(logins.contains(&format!("Accepted publickey for ops from {}", address("w1"))), "{logins}");
    // A jump host must allow forwarding: there is no `hactl host` on it that could carry connections.
    sshd(w, "AllowTcpForwarding no\\n");
    let (code, text) = at_home(w, "home", &config, &plain, &["status", "--bundles", &store]);
    assert!(code != 0 && text.contains("the jump host") && text.contains("AllowTcpForwarding"), "{text}");
    sshd(w, "");
}

fn run(dir: &Path, program: &str, arguments: &[&str]) {
    let status = Command::new(program).current_dir(dir).args(arguments).status().expect("it can be started");
    assert!(status.success(), "{program} {arguments:?}");
}

fn host_ca(w: &World) {
    let dir = w.lab.dir().join("host-ca");
    fs::create_dir_all(&dir).expect("writable");
    for name in ["ca", "other"] {
        run(&dir, "ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", name]);
    }
    for host in HOSTS {
        let public = w.on(host, "cat /etc/ssh/ssh_host_ed25519_key.pub");
        fs::write(dir.join("key.pub"), public).expect("writable");
        let address = w.lab.address(host).expect("it has one").to_string();
        run(&dir, "ssh-keygen", &["-q", "-s", "ca", "-h", "-I", host, "-n", &address, "key.pub"]);
        let certificate = fs::read_to_string(dir.join("key-cert.pub")).expect("readable");
        w.on(host, &format!("echo '{}' | sudo tee /etc/ssh/host-cert.pub", certificate.trim()));
    }
    sshd(w, "HostCertificate /etc/ssh/host-cert.pub\\n");
    fs::write(w.lab.dir().join("known_none"), "").expect("writable");
    let by = |name: &str| {
        let key = fs::read_to_string(dir.join(format!("{name}.pub"))).expect("readable");
        variant(w, &format!("by-{name}.yaml"), |t| {
            t.replace("known_hosts: ./known_hosts,", &format!("known_hosts: ./known_none, hostCA: \"{}\",", key.trim()))
        })
    };
    by("ca").up().ok().says("nothing to do");
    by("other").run(&["up", "--yes", "--trust-first-use"]).exits(1).says("is not a CA on record");
    assert_eq!(fs::read_to_string(w.lab.dir().join("known_none")).expect("readable"), "", "nothing was recorded");
    sshd(w, "");
}

fn two_addresses(w: &World) {
    let network = w.lab.network();
    let near = |last: u8| format!("{}.{last}", network.rsplit_once('.').expect("an address").0);
    let (own, other) = (w.lab.address("cp1").expect("it has one").to_string(), near(211));
    let device = w.on("cp1", &format!("ip -o -4 addr show to {own} | cut -d' ' -f2")).trim().to_owned();
    w.on("cp1", &format!("sudo ip addr add {other}/32 dev {device}"));
    let known = fs::read_to_string(w.lab.known_hosts()).expect("readable");
    let line = known.lines().find(|l| l.starts_with(&format!("{own},"))).expect("cp1 is known").to_owned();
    fs::write(w.lab.dir().join("known_two"), line.replacen(&own, &other, 1) + "\n" + &known).expect("writable");
    let hactl = variant(w, "two.yaml", |t| {
        t.replace("./known_hosts", "./known_two")
            .replace(&format!("    address: {own}\n"), &format!("    address: {own}\n    ssh: {{host: {other}}}\n"))
    });
    hactl.run(&["inventory", "check"]).ok().says(&format!("ops@{other}:22"));
    hactl.up().ok().says("nothing to do");
    w.on("cp1", &format!("sudo ip addr del {other}/32 dev {device}"));
}

fn limited(w: &World) {
    let file = "/etc/containerd/config.toml";
    let digest = |host: &str| w.on(host, &format!("sudo sha256sum {file}"));
    for host in HOSTS {
        w.on(host, &format!("sudo sh -c 'echo \"# by hand\" >> {file}'"));
    }
    let before = HOSTS.map(digest);
    w.hactl.run(&["up", "--yes", "--limit", "nobody"]).exits(2).says("its hosts are cp1, w1");
    w.hactl.run(&["plan", "-v", "--limit", "w1"]).ok().says("nothing is planned for cp1");
    w.hactl.run(&["up", "--yes", "--limit", "w1", "--concurrency", "1"]).ok().says("the hosts of --limit");
    let after = HOSTS.map(digest);
    assert!(before[0] == after[0] && before[1] != after[1], "{before:?} {after:?}");
    w.hactl.run(&["plan", "--exit-code"]).exits(5).says("cp1");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
}
