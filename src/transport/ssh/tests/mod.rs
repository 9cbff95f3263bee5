//! Against a real sshd: logins, refusals, tunnels, throughput, and a cut connection.

mod hostile;
mod played;
#[path = "../../../../tests/support/sshd.rs"]
mod sshd;
mod ways;

use super::super::agent::Agent as _;
use super::super::agent_session::{Payload, Progress};
use super::super::machine::Machine;
use super::*;
use crate::protocol::{EtcdAsk, Op, Reply};
use played::Cable;
use sshd::{Setup, Sshd, keygen};
use std::fs;
use std::net::Ipv4Addr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TIMEOUT: Duration = Duration::from_secs(20);

fn nobody(_: Progress) {}

fn name() -> crate::model::names::HostName {
    "cp1".parse().unwrap()
}

async fn connect(target: &SshTarget, access: &Access) -> Result<Machine, HostError> {
    Machine::connect(&name(), target, access).await
}

async fn ask(machine: &Machine, op: Op) -> Result<Reply, HostError> {
    machine.call(op, Payload::None, TIMEOUT, &nobody).await
}

fn observe() -> Op {
    Op::Observe(Box::default())
}

fn move_aside() -> Op {
    let nowhere = String::new;
    let (url, data_dir) = (nowhere(), "/var/lib/etcd".to_owned());
    Op::ArchiveData(EtcdAsk { url, data_dir, ca: nowhere(), cert: nowhere(), key: nowhere() })
}

fn seal() -> Op {
    Op::Seal { data_dir: "/var/lib/etcd".into(), cluster: "c".into() }
}

#[tokio::test]
async fn the_first_visit_puts_hactl_there_and_the_second_costs_one_exec() {
    let sshd = Sshd::start(Setup::default());
    let (target, access) = (sshd.target("root"), sshd.access());
    let machine = connect(&target, &access).await.unwrap();
    assert_eq!(machine.counters().execs, 3, "try, put there, start");
    machine.close().await;
    let machine = connect(&target, &access).await.unwrap();
    assert!(matches!(ask(&machine, Op::Lock { holder: "me".into() }).await, Ok(Reply::Locked { epoch: 5, .. })));
    assert!(machine.holds_lock());
    assert!(matches!(ask(&machine, observe()).await, Ok(Reply::Lines(l)) if l[0].contains("epoch:5")));
    assert_eq!(machine.counters().execs, 1);
    assert_eq!(machine.counters().connections, 1);
    let listing = sshd.run("ls -lR /var/lib/hactl/bin; ls -A /var/lib/hactl/bin | wc -l").await;
    assert!(listing.contains("-rwxr-xr-x 1 root root"), "{listing}");
    assert!(listing.ends_with("1\n"), "nothing is left behind: {listing}");
}

#[tokio::test]
async fn an_operation_that_is_given_up_ends_on_the_host_and_does_not_cost_the_lock() {
    let sshd = Sshd::start(Setup::default());
    let machine = connect(&sshd.target("root"), &sshd.access()).await.unwrap();
    ask(&machine, Op::Lock { holder: "me".into() }).await.unwrap();
    let outcome = machine.call(seal(), Payload::None, Duration::from_millis(500), &nobody).await;
    assert!(matches!(outcome, Err(HostError::TimedOut { .. })), "{outcome:?}");
    assert!(machine.holds_lock());
    // The next change runs elsewhere and carries the epoch.
    assert!(matches!(ask(&machine, move_aside()).await, Ok(Reply::Lines(l)) if l[0].contains("epoch:5")));
}

#[tokio::test]
async fn the_lock_is_released_before_the_connection_is_closed() {
    let sshd = Sshd::start(Setup::default());
    for locks in [false, true] {
        let machine = connect(&sshd.target("root"), &sshd.access()).await.unwrap();
        if locks {
            ask(&machine, Op::Lock { holder: "me".into() }).await.unwrap();
        }
        machine.close().await;
        assert!(!machine.holds_lock());
        let noted = sshd.run("ls /var/lib").await.contains("given-back");
        assert_eq!(noted, locks);
    }
}

#[tokio::test]
async fn calls_at_once_share_one_connection_and_few_processes() {
    let sshd = Sshd::start(Setup::default());
    let machine = connect(&sshd.target("root"), &sshd.access()).await.unwrap();
    let calls = futures::future::join_all((0..20).map(|_| ask(&machine, move_aside()))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    let traffic = machine.counters();
    assert_eq!(traffic.connections, 1);
    assert!(traffic.execs <= 3 + 5, "{traffic:?}");
    machine.close().await;
    assert!(matches!(ask(&machine, observe()).await, Err(HostError::Lost { .. })));
}

#[tokio::test]
async fn a_host_that_allows_few_sessions_is_served_by_few_processes() {
    for config in ["MaxSessions 2", "MaxSessions 1"] {
        let sshd = Sshd::start(Setup { config, ..Setup::default() });
        let machine = connect(&sshd.target("root"), &sshd.access()).await.unwrap();
        ask(&machine, Op::Lock { holder: "me".into() }).await.unwrap();
        let calls = futures::future::join_all((0..20).map(|_| ask(&machine, move_aside()))).await;
        assert!(calls.iter().all(Result::is_ok), "{config}: {calls:?}");
        assert!(machine.holds_lock());
    }
}

#[tokio::test]
async fn two_first_visits_at_once_do_not_hurt_each_other() {
    let sshd = Sshd::start(Setup::default());
    let (target, access) = (sshd.target("root"), sshd.access());
    let both = tokio::join!(connect(&target, &access), connect(&target, &access));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
}

#[tokio::test]
async fn older_binaries_are_removed_but_for_two() {
    let sshd = Sshd::start(Setup::default());
    let make = "cd /var/lib && mkdir -p hactl/bin && cd hactl/bin && for n in 1 2 3 4; do d=$(printf $n | sha256sum | cut -c1-64); \
                mkdir $d; touch -d \"2020-01-0$n\" $d; done; mkdir not-ours";
    sshd.run(make).await;
    connect(&sshd.target("root"), &sshd.access()).await.unwrap();
    let left = sshd.run("ls /var/lib/hactl/bin | wc -l; ls -d /var/lib/hactl/bin/not-ours").await;
    assert_eq!(left, "4\n/var/lib/hactl/bin/not-ours\n", "two old ones, ours, and what is not ours");
}

#[tokio::test]
async fn a_binary_that_a_unit_or_a_change_of_one_runs_is_kept_however_old_it_is() {
    let sshd = Sshd::start(Setup::default());
    // Over the directory of this machine, only in the mount namespace of sshd.
    let make = "mount -t tmpfs tmpfs /etc/systemd/system && mkdir -p /etc/systemd/system/etcd.service.d /var/lib/hactl/bin && cd /var/lib/hactl/bin && \
                for n in 1 2 3 4 5 6; do d=$(printf $n | sha256sum | cut -c1-64); mkdir $d; touch -d \"2020-01-0$n\" $d; \
                case $n in 1) echo ExecStart=/$d/hactl > /etc/systemd/system/a.service ;; \
                2) echo ExecCondition=/$d/hactl > /etc/systemd/system/etcd.service.d/10-fence.conf ;; esac; done";
    sshd.run(make).await;
    connect(&sshd.target("root"), &sshd.access()).await.unwrap();
    let left = sshd
        .run("for n in 1 2 3 4 5 6; do ls -d /var/lib/hactl/bin/$(printf $n | sha256sum | cut -c1-64) && echo $n; done")
        .await;
    let kept: Vec<&str> = left.lines().filter(|l| l.len() == 1).collect();
    assert_eq!(kept, ["1", "2", "5", "6"], "what units run, and the newest two");
}

#[tokio::test]
async fn an_unknown_key_is_refused_with_its_fingerprint_unless_first_use_is_trusted() {
    let sshd = Sshd::start(Setup::default());
    let mut target = sshd.target("root");
    target.known_hosts = vec![sshd.path("empty")];
    let mut access = sshd.access();
    let Err(HostError::UnknownKey { key, .. }) = connect(&target, &access).await else { panic!("let in") };
    let shown =
        std::process::Command::new("ssh-keygen").arg("-lf").arg(sshd.path("host_ed25519.pub")).output().unwrap();
    let fingerprint = key.rsplit(' ').next().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().contains(fingerprint), "{key}");
    access.trust_first_use = true;
    connect(&target, &access).await.unwrap();
    access.trust_first_use = false;
    connect(&target, &access).await.unwrap();
    // Or pinned, whichever of its keys is pinned.
    for name in ["host_ed25519.pub", "host_ecdsa.pub"] {
        let key = russh::keys::PublicKey::read_openssh_file(sshd.path(name)).unwrap();
        target.known_hosts = vec![sshd.path("none")];
        target.fingerprint = Some(key.fingerprint(russh::keys::HashAlg::Sha256).to_string());
        connect(&target, &access).await.unwrap();
    }
    target.fingerprint = Some("SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into());
    assert!(matches!(connect(&target, &access).await, Err(HostError::KeyChanged { .. })));
}

#[tokio::test]
async fn a_changed_host_key_is_a_hard_stop() {
    let sshd = Sshd::start(Setup::default());
    let target = sshd.target("root");
    keygen(&sshd.path("another"), "ed25519");
    fs::remove_file(sshd.path("known_hosts")).unwrap();
    sshd.know(&fs::read_to_string(sshd.path("another.pub")).unwrap());
    let mut access = sshd.access();
    access.trust_first_use = true;
    let Err(HostError::KeyChanged { on_record, .. }) = connect(&target, &access).await else { panic!("let in") };
    assert!(on_record.ends_with("known_hosts:1"), "{on_record}");
}

#[tokio::test]
async fn a_host_shows_the_key_type_that_is_on_record() {
    let sshd = Sshd::start(Setup::default());
    let target = sshd.target("root");
    fs::remove_file(sshd.path("known_hosts")).unwrap();
    sshd.know(&fs::read_to_string(sshd.path("host_ecdsa.pub")).unwrap());
    connect(&target, &sshd.access()).await.unwrap();
}

#[tokio::test]
async fn a_failed_authentication_lists_the_tried_keys() {
    let sshd = Sshd::start(Setup::default());
    let mut target = sshd.target("root");
    let access = sshd.access();
    target.identity = Some(sshd.path("stranger"));
    let Err(HostError::AuthFailed { tried, accepted, .. }) = connect(&target, &access).await else { panic!("let in") };
    assert!(tried[0].contains("stranger") && accepted == ["publickey"], "{tried:?} {accepted:?}");
    target.identity = None;
    let Err(HostError::AuthFailed { tried, .. }) = connect(&target, &access).await else { panic!("let in") };
    assert!(tried.is_empty());
    // The default file is found without being named.
    fs::create_dir(sshd.path("dot-ssh")).unwrap();
    fs::copy(sshd.path("id"), sshd.path("dot-ssh/id_ed25519")).unwrap();
    connect(&target, &access).await.unwrap();
}

#[tokio::test]
async fn an_agent_signs_for_keys_that_a_file_does_not_open() {
    let sshd = Sshd::start(Setup::default());
    let socket = sshd.path("agent");
    let mut agent = std::process::Command::new("ssh-agent")
        .arg("-D")
        .arg("-a")
        .arg(&socket)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let run = |program: &str, args: &[&str]| {
        let path = sshd.path("locked");
        std::process::Command::new(program)
            .args(args)
            .arg(path)
            .env("SSH_AUTH_SOCK", &socket)
            .status()
            .unwrap()
            .success()
    };
    while !socket.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut access = sshd.access();
    access.agent = Some(socket.clone());
    let mut target = sshd.target("root");
    for kind in ["ed25519", "rsa"] {
        fs::remove_file(sshd.path("locked")).ok();
        assert!(run("ssh-keygen", &["-q", "-t", kind, "-N", "", "-f"]) && run("ssh-add", &["-q"]));
        assert!(run("ssh-keygen", &["-q", "-p", "-P", "", "-N", "secret", "-f"]));
        fs::copy(sshd.path("locked.pub"), sshd.path("authorized")).unwrap();
        target.identity = Some(sshd.path("locked"));
        connect(&target, &access).await.unwrap();
        target.identity = None;
        connect(&target, &access).await.unwrap();
        target.identity = Some(sshd.path("locked"));
        assert!(run("ssh-add", &["-q", "-d"]));
        let error = connect(&target, &access).await.unwrap_err();
        assert!(matches!(&error, HostError::IdentityUnreadable { why, .. } if why.contains("ssh-add")), "{error}");
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    target.identity = None;
    assert!(matches!(connect(&target, &access).await, Err(HostError::AgentUnavailable { .. })));
}

#[tokio::test]
async fn a_place_that_runs_no_programs_or_is_full_is_named() {
    let sshd = Sshd::start(Setup { mount: "noexec", ..Setup::default() });
    let error = connect(&sshd.target("root"), &sshd.access()).await.unwrap_err();
    assert!(matches!(error, HostError::NoExec { .. }), "{error}");
    let sshd = Sshd::start(Setup { mount: "size=512k", ..Setup::default() });
    let error = connect(&sshd.target("root"), &sshd.access()).await.unwrap_err();
    assert!(matches!(error, HostError::NoSpace { available: 1..=512, .. }), "{error}");
}

#[tokio::test]
async fn a_processor_there_is_no_binary_for_is_named() {
    let sshd = Sshd::start(Setup::default());
    let mut access = sshd.access();
    access.binaries[0].architecture = "s390x".into();
    let error = connect(&sshd.target("root"), &access).await.unwrap_err();
    assert!(matches!(&error, HostError::WrongArchitecture { host, .. } if host == std::env::consts::ARCH), "{error}");
}

#[tokio::test]
async fn an_account_without_a_shell_is_quoted() {
    let sshd = Sshd::start(Setup { shell: "/usr/sbin/nologin", ..Setup::default() });
    let error = connect(&sshd.target("ops"), &sshd.access()).await.unwrap_err();
    assert!(matches!(&error, HostError::Garbage { first } if first.contains("not available")), "{error}");
}

#[tokio::test]
async fn a_binary_that_does_not_start_says_why() {
    let sshd = Sshd::start(Setup::default());
    fs::write(sshd.path("fake"), "#!/bin/sh\necho out of order >&2\nexit 9\n").unwrap();
    let error = connect(&sshd.target("root"), &sshd.access()).await.unwrap_err();
    assert!(
        matches!(&error, HostError::BootstrapFailed { output } if output.contains("out of order") && output.contains('9')),
        "{error}"
    );
}

#[tokio::test]
async fn causes_of_a_failed_connection_are_distinguished() {
    let sshd = Sshd::start(Setup::default());
    let access = sshd.access();
    let mut target = sshd.target("root");
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    target.port = silent.local_addr().unwrap().port();
    let mut hasty = sshd.access();
    hasty.connect_timeout = Duration::from_millis(500);
    let error = connect(&target, &hasty).await.unwrap_err();
    assert!(matches!(error, HostError::Handshake { .. }), "{error}");
    let (_held, port) = sshd::closed_port();
    target.port = port;
    let error = connect(&target, &access).await.unwrap_err();
    assert!(matches!(error, HostError::Unreachable { barrier: Barrier::Refused, .. }), "{error}");
    target.host = "no-such-host.invalid".into();
    let error = connect(&target, &access).await.unwrap_err();
    assert!(matches!(error, HostError::Unreachable { barrier: Barrier::NoAddress, .. }), "{error}");
}

#[tokio::test]
async fn a_cable_cut_in_the_middle_of_a_call_is_a_loss_and_not_a_hang() {
    let sshd = Sshd::start(Setup::default());
    let cable = Cable::to(sshd.port).await;
    let mut target = sshd.target("root");
    target.port = cable.address.port();
    let mut access = sshd.access();
    access.trust_first_use = true;
    let machine = connect(&target, &access).await.unwrap();
    let cutting = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cable.cut();
    };
    let began = Instant::now();
    let (outcome, ()) = tokio::join!(ask(&machine, seal()), cutting);
    assert!(matches!(outcome, Err(HostError::Lost { .. })), "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(matches!(ask(&machine, observe()).await, Err(HostError::Lost { .. })));
}

/// Echoes all input, on a port of its own.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
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

#[tokio::test]
async fn a_tunnel_carries_both_directions_and_closes_with_its_forward() {
    let sshd = Sshd::start(Setup::default());
    let machine = connect(&sshd.target("root"), &sshd.access()).await.unwrap();
    let forward = machine.forward(Ipv4Addr::LOCALHOST.into(), echo().await).await.unwrap();
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 249) as u8).collect();
    let (mut reader, mut writer) = TcpStream::connect(forward.address()).await.unwrap().into_split();
    let mut back = Vec::new();
    let writing = async {
        writer.write_all(&content).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let ((), read) = tokio::join!(writing, reader.read_to_end(&mut back));
    read.unwrap();
    assert!(back == content, "half-closing brings everything back");
    let address = forward.address();
    drop(forward);
    let deadline = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).await.is_ok() {
        assert!(Instant::now() < deadline, "still open");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_reader_that_stops_reading_its_tunnel_does_not_hold_up_the_rest() {
    let sshd = Sshd::start(Setup::default());
    let machine = connect(&sshd.target("root"), &sshd.access()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let forward = machine.forward(Ipv4Addr::LOCALHOST.into(), listener.local_addr().unwrap().port()).await.unwrap();
    let idle = TcpStream::connect(forward.address()).await.unwrap();
    // The first connection is the probe, which sends nothing.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move { while stream.write_all(&[b'x'; 8192]).await.is_ok() {} });
        }
    });
    for _ in 0..20 {
        assert!(ask(&machine, observe()).await.is_ok());
    }
    drop(idle);
}

#[tokio::test]
async fn hosts_behind_a_jump_host_are_reached_through_one_connection_to_it() {
    let (bastion, sshd) = (Sshd::start(Setup::default()), Sshd::start(Setup::default()));
    let mut target = sshd.target("root");
    // One file has both host keys, and one key logs in to both.
    bastion.target("root");
    let both = [&bastion, &sshd].map(|host| fs::read_to_string(host.path("known_hosts")).unwrap()).concat();
    fs::write(sshd.path("known_hosts"), both).unwrap();
    fs::copy(sshd.path("authorized"), bastion.path("authorized")).unwrap();
    target.jump = vec![SshTarget { port: bastion.port, ..target.clone() }];
    let access = sshd.access();
    let (one, two) = tokio::join!(connect(&target, &access), connect(&target, &access));
    assert!(matches!(ask(&one.unwrap(), observe()).await, Ok(Reply::Lines(_))));
    two.expect("the second host is reached as well");
    assert_eq!(access.jumps.open().await, 1);
}

/// MiB/s, up and down, of `SIZE` bytes each.
async fn speeds(session: &Session) -> (f64, f64) {
    const SIZE: usize = 128 << 20;
    let mib = f64::from(u32::try_from(SIZE >> 20).unwrap());
    let speed = |began: Instant| mib / began.elapsed().as_secs_f64();

    let mut wire = session.exec(&format!("head -c {SIZE} > /dev/null; echo done")).await.unwrap();
    let began = Instant::now();
    let piece = vec![7; 128 << 10];
    for _ in 0..SIZE / piece.len() {
        wire.writer.write_all(&piece).await.unwrap();
    }
    let mut word = String::new();
    wire.reader.read_to_string(&mut word).await.unwrap();
    let up = speed(began);

    let mut wire = session.exec(&format!("head -c {SIZE} /dev/zero")).await.unwrap();
    let began = Instant::now();
    let mut got = 0;
    let mut piece = vec![0; 128 << 10];
    while let Ok(read @ 1..) = wire.reader.read(&mut piece).await {
        got += read;
    }
    assert_eq!((word.as_str(), got), ("done\n", SIZE));
    (up, speed(began))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_sent_without_delay() {
    let sshd = Sshd::start(Setup::default());
    let session = Session::open(&sshd.target("root"), &sshd.access(), Arc::default()).await.unwrap();
    // A floor low enough for a busy machine, in the best of several attempts: windows too small would fail them all.
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let (up, down) = speeds(&session).await;
        if up.min(down) > 30.0 {
            return;
        }
        seen.push(format!("{up:.0} MiB/s up, {down:.0} MiB/s down"));
    }
    panic!("{seen:?}");
}
