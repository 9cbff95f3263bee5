//! The built binary against a real sshd and a real sudo: connections where sshd forwards nothing, and the command line
//! for hosts with unusual SSH access.

#![allow(clippy::unwrap_used)]

#[path = "support/sshd.rs"]
mod sshd;

use hactl::model::desired::SshTarget;
use hactl::model::names::Digest;
use hactl::model::target::{Part, Place};
use hactl::protocol::{FilePut, Op, Reply};
use hactl::transport::{Access, Agent as _, HostError, Machine, Payload};
use sshd::{PASSWORD, Setup, Sshd};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HACTL: &str = env!("CARGO_BIN_EXE_hactl");

fn access() -> Access {
    let mut access = Access::with(&[(std::env::consts::ARCH.to_owned(), HACTL.into())]).unwrap();
    access.agent = None;
    access
}

async fn connect(target: &SshTarget) -> Result<Machine, HostError> {
    Machine::connect(&"cp1".parse().unwrap(), target, &access()).await
}

/// Echoes all it receives, on a port of its own.
async fn echo() -> u16 {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.into_split();
                tokio::io::copy(&mut reader, &mut writer).await.ok();
            });
        }
    });
    port
}

/// Sends content through and reads it back.
async fn there_and_back(machine: &Machine, port: u16, connections: usize) {
    let forward = machine.forward(HERE, port).await.unwrap();
    let one = async |seed: u32| {
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| ((n ^ seed) % 249) as u8).collect();
        let (mut reader, mut writer) = TcpStream::connect(forward.address()).await.unwrap().into_split();
        let mut back = Vec::new();
        let writing = async {
            writer.write_all(&content).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let ((), read) = tokio::join!(writing, reader.read_to_end(&mut back));
        read.unwrap();
        assert!(back == content, "{} of {} bytes came back", back.len(), content.len());
    };
    let all = (0..u32::try_from(connections).unwrap()).map(one);
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn hactl_host_carries_connections_where_sshd_forwards_nothing() {
    for config in ["AllowTcpForwarding no", "DisableForwarding yes", "PermitOpen none"] {
        let sshd = Sshd::start(Setup { config, ..Setup::default() });
        let machine = connect(&sshd.target("root")).await.unwrap();
        there_and_back(&machine, echo().await, 3).await;
        machine.close().await;
    }
}

#[tokio::test]
async fn connections_are_carried_through_a_sudo_that_asks_for_a_password() {
    let sshd =
        Sshd::start(Setup { config: "AllowTcpForwarding no", sudoers: "ops ALL=(root) ALL", ..Setup::default() });
    let target = SshTarget { sudo_password: Some(sshd.password_file(PASSWORD)), ..sshd.target("ops") };
    let machine = connect(&target).await.unwrap();
    there_and_back(&machine, echo().await, 2).await;
}

#[tokio::test]
async fn a_connection_to_a_closed_port_yields_no_data_with_and_without_forwarding() {
    let (_held, free) = sshd::closed_port();
    for config in ["AllowTcpForwarding no", ""] {
        let sshd = Sshd::start(Setup { config, ..Setup::default() });
        let machine = connect(&sshd.target("root")).await.unwrap();
        let forward = machine.forward(HERE, free).await.unwrap();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(forward.address()).await.unwrap();
            let mut rest = Vec::new();
            // Closed or reset: no data arrives.
            stream.read_to_end(&mut rest).await.ok();
            assert!(rest.is_empty());
        }
    }
}

#[tokio::test]
async fn a_carried_connection_that_is_not_read_does_not_block_the_others() {
    let sshd = Sshd::start(Setup { config: "AllowTcpForwarding no", ..Setup::default() });
    let machine = connect(&sshd.target("root")).await.unwrap();
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let forward = machine.forward(HERE, listener.local_addr().unwrap().port()).await.unwrap();
    let idle = TcpStream::connect(forward.address()).await.unwrap();
    let (mut flood, _) = listener.accept().await.unwrap();
    let pouring = tokio::spawn(async move { while flood.write_all(&[b'x'; 8192]).await.is_ok() {} });
    there_and_back(&machine, echo().await, 1).await;
    // The flood is cut off in the end instead of being kept in memory.
    tokio::time::timeout(Duration::from_secs(30), pouring).await.expect("the flood ends").unwrap();
    drop(idle);
}

#[tokio::test]
async fn other_users_can_enter_the_directories_that_hactl_makes_where_the_login_user_has_a_umask_of_077() {
    let config = "ForceCommand umask 077; eval \"$SSH_ORIGINAL_COMMAND\"";
    let sshd = Sshd::start(Setup { mount: "size=256m", config, ..Setup::default() });
    let machine = connect(&sshd.target("root")).await.unwrap();
    let ask =
        async |op: Op, payload: Payload| machine.call(op, payload, Duration::from_secs(30), &|_| {}).await.unwrap();
    ask(Op::Lock { holder: "a test".to_owned() }, Payload::None).await;
    let (content, at) = (b"an image", sshd.path("image"));
    let sent = zstd::encode_all(content.as_slice(), 1).unwrap();
    fs::write(&at, &sent).unwrap();
    let part = Part {
        name: "coredns".to_owned(),
        version: "1.14.6".to_owned(),
        digest: Digest::of(content),
        size: content.len() as u64,
        sent_digest: Digest::of(&sent),
        sent_size: sent.len() as u64,
        place: Place::Image { reference: "registry.k8s.io/coredns/coredns:v1.14.6".to_owned() },
    };
    let folder = format!("/var/lib/hactl/parts/{}", part.digest.hex());
    assert!(matches!(ask(Op::Deliver(part), Payload::Blob(at)).await, Reply::Done));
    let (path, owner, content) = ("/var/lib/made/file".to_owned(), "root".to_owned(), "text\n".to_owned());
    let files = vec![FilePut { path, mode: 0o644, owner, content, check: None }];
    assert!(matches!(ask(Op::WriteFiles { files, remove: vec![], keep: None }, Payload::None).await, Reply::Done));

    let look = format!("umask; stat -c '%a %n' /var/lib/hactl /var/lib/hactl/parts {folder} /var/lib/made");
    let mut ssh = Command::new("ssh");
    ssh.args(["-q", "-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i"]).arg(sshd.path("id"));
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", sshd.path("known_hosts").display()));
    ssh.args(["-p", &sshd.port.to_string(), "root@127.0.0.1", &look]).stdin(Stdio::null());
    let expected = format!("0077\n755 /var/lib/hactl\n755 /var/lib/hactl/parts\n755 {folder}\n755 /var/lib/made\n");
    assert_eq!(ended(ssh.output().unwrap()), (0, expected));
}

/// A home directory with an inventory and an OpenSSH configuration that reaches one sshd through another.
struct Home {
    dir: tempfile::TempDir,
    hosts: [Sshd; 2],
}

impl Home {
    fn new(sudoers: &'static str) -> Self {
        let hosts = [Sshd::start(Setup::default()), Sshd::start(Setup { sudoers, ..Setup::default() })];
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".ssh")).unwrap();
        let mut known = String::new();
        for (host, name) in hosts.iter().zip(["gate", "cp1"]) {
            host.target("root");
            known.push_str(&fs::read_to_string(host.path("known_hosts")).unwrap());
            fs::copy(host.path("id"), dir.path().join(".ssh").join(name)).unwrap();
        }
        fs::write(dir.path().join(".ssh/fleet"), known).unwrap();
        let config = format!(
            "Include conf.d/*\nHost *\n  ServerAliveInterval 5\n  UserKnownHostsFile ~/.ssh/fleet\nHost gate\n  HostName 127.0.0.1\n  \
             Port {}\n  User root\n  IdentityFile ~/.ssh/gate\n",
            hosts[0].port
        );
        fs::write(dir.path().join(".ssh/config"), config).unwrap();
        fs::create_dir(dir.path().join(".ssh/conf.d")).unwrap();
        let cp1 = format!(
            "Host cp1\n  HostName 127.0.0.1\n  Port {}\n  User ops\n  IdentityFile ~/.ssh/none\n  IdentityFile ~/.ssh/%n\n  \
             ProxyJump gate\n",
            hosts[1].port
        );
        fs::write(dir.path().join(".ssh/conf.d/cp1"), cp1).unwrap();
        let inventory = "schema: 1\ncluster: lab\nendpoint: {vip: 10.0.0.100}\nhosts:\n  - name: cp1\n    address: 10.0.0.11\n    \
                         roles: [control-plane, etcd, load-balancer]\n";
        fs::write(dir.path().join("hactl.yaml"), inventory).unwrap();
        Self { dir, hosts }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.dir.path()).env("HOME", self.dir.path());
        command.env_remove("SSH_AUTH_SOCK").env_remove("HACTL_INVENTORY").stdin(Stdio::null());
        command
    }
    fn hactl(&self, arguments: &[&str]) -> (i32, String) {
        ended(self.command(HACTL.as_ref(), arguments).output().unwrap())
    }
}

fn ended(output: Output) -> (i32, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// The first verb that needs hosts and no bundle; it connects, and then fails because there is no state.
const GET_IN: [&str; 3] = ["kubectl", "--", "version"];
const GOT_IN: &str = "there is no state";

#[test]
fn a_host_is_reached_through_the_openssh_configuration() {
    let home = Home::new("ops ALL=(root) NOPASSWD: ALL");
    let (code, text) = home.hactl(&["inventory", "check"]);
    assert_eq!(code, 0, "{text}");
    let route = format!("ops@127.0.0.1:{} through root@127.0.0.1:{}", home.hosts[1].port, home.hosts[0].port);
    assert!(text.contains(&route), "{text}");
    let (_, text) = home.hactl(&GET_IN);
    assert!(text.contains(GOT_IN), "{text}");
    // An option that hactl does not support stops it before it contacts a host, with its line.
    let cp1 =
        fs::read_to_string(home.path(".ssh/conf.d/cp1")).unwrap().replace("ProxyJump gate", "ProxyCommand nc %h %p");
    fs::write(home.path(".ssh/conf.d/cp1"), cp1).unwrap();
    for verb in [&["inventory", "check"][..], &GET_IN] {
        let (code, text) = home.hactl(verb);
        assert!(code == 2 && text.contains("conf.d/cp1:7:") && text.contains("ProxyCommand"), "{code} {text}");
    }
    let (_, json) = home.hactl(&["inventory", "check", "-o", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer.pointer("/errors/0/line").and_then(serde_json::Value::as_u64), Some(7), "{json}");
}

#[test]
fn a_sudo_password_is_asked_for_and_not_shown() {
    let home = Home::new("Defaults logfile=/var/lib/sudo.log\nops ALL=(root) ALL");
    let (code, text) = home.hactl(&GET_IN);
    assert!(code == 1 && text.contains("--ask-sudo-password"), "{text}");
    let asking = [&["--ask-sudo-password"][..], &GET_IN].concat();
    // Without a terminal, hactl does not ask, and does not read standard input.
    let mut setsid = vec!["-w", HACTL];
    setsid.extend(&asking);
    let (code, text) = ended(home.command("setsid".as_ref(), &setsid).output().unwrap());
    assert!(code == 2 && text.contains("passwordFile"), "{code} {text}");
    for (typed, expected) in [(PASSWORD, GOT_IN), ("not this one", "hactl tried it once")] {
        let line = format!("{HACTL} {}", asking.join(" "));
        let mut terminal = home.command("script".as_ref(), &["-qec", &line, "/dev/null"]);
        let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut shown = Vec::new();
        // Input before the prompt is discarded, as in other programs.
        let mut typed = Some(typed);
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = stdout.read(&mut piece) {
            shown.extend_from_slice(&piece[..read]);
            let asked = shown.windows(15).any(|w| w == b"Password of ops");
            if let Some(typed) = typed.take_if(|_| asked) {
                writeln!(stdin, "{typed}").unwrap();
            }
        }
        child.wait().unwrap();
        let text = String::from_utf8_lossy(&shown);
        assert!(text.contains(expected) && !text.contains(PASSWORD) && !text.contains("not this one"), "{text}");
    }
    // From a file, named by the inventory.
    let inventory = fs::read_to_string(home.path("hactl.yaml")).unwrap();
    fs::write(home.path("hactl.yaml"), format!("{inventory}ssh: {{sudo: {{passwordFile: ./password}}}}\n")).unwrap();
    let (code, text) = home.hactl(&GET_IN);
    assert!(code == 2 && text.contains("passwordFile names"), "{text}");
    fs::copy(home.hosts[1].password_file(PASSWORD), home.path("password")).unwrap();
    let (_, text) = home.hactl(&GET_IN);
    assert!(text.contains(GOT_IN), "{text}");
}

#[test]
fn limits_with_unknown_hosts_and_invalid_flag_values_are_usage_errors() {
    let home = Home::new("");
    for verb in ["up", "plan"] {
        let (code, text) = home.hactl(&[verb, "--limit", "cp1,cp7", "--limit", "w9"]);
        assert!(
            code == 2 && text.contains("--limit: cp7, w9 not in the inventory") && text.contains("its hosts are cp1"),
            "{text}"
        );
    }
    for (flag, value) in [("--concurrency", "0"), ("--timeout", "0s"), ("--timeout", "soon"), ("--limit", "CP_1")] {
        let (code, text) = home.hactl(&["up", flag, value]);
        assert!(code == 2 && text.contains(flag), "{code} {text}");
    }
}
