//! Against a real sshd and a real sudo: becoming root, certificates of users and hosts, chains of jump hosts.

use super::sshd::{PASSWORD, Setup, Sshd, keygen, sign};
use super::*;
use crate::transport::error::SudoTrouble;
use std::path::Path;

const ASKS: &str = "Defaults logfile=/var/lib/sudo.log\nops ALL=(root) ALL";

fn trouble(error: &HostError) -> &SudoTrouble {
    match error {
        HostError::NoSudo { trouble, .. } => trouble,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_user_becomes_root_by_sudo_or_gets_a_remedy() {
    let sshd = Sshd::start(Setup { sudoers: "ops ALL=(root) NOPASSWD: ALL", ..Setup::default() });
    let machine = connect(&sshd.target("ops"), &sshd.access()).await.unwrap();
    assert!(matches!(ask(&machine, observe()).await, Ok(Reply::Lines(_))));
    for sudoers in ["", "ops ALL=(root) ALL"] {
        let sshd = Sshd::start(Setup { sudoers, ..Setup::default() });
        let error = connect(&sshd.target("ops"), &sshd.access()).await.unwrap_err();
        assert_eq!(trouble(&error), &SudoTrouble::Queries);
        let hint = error.hint().unwrap();
        assert!(hint.contains("ops ALL=(root) NOPASSWD: ALL") && hint.contains("--ask-sudo-password"), "{hint}");
    }
}

#[tokio::test]
async fn sudo_gets_its_password_in_every_session_and_nothing_else_sees_it() {
    let sshd = Sshd::start(Setup { sudoers: ASKS, ..Setup::default() });
    let mut target = sshd.target("ops");
    target.sudo_password = Some(sshd.password_file(PASSWORD));
    let access = sshd.access();
    let machine = connect(&target, &access).await.unwrap();
    assert_eq!(machine.counters().execs, 3, "try, put there, start");
    assert!(matches!(ask(&machine, Op::Lock { holder: "me".into() }).await, Ok(Reply::Locked { epoch: 5, .. })));
    let calls = futures::future::join_all((0..10).map(|_| ask(&machine, move_aside()))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    // The pattern ends in a wildcard, so that the search does not find itself.
    let places = "/proc/[0-9]*/cmdline /proc/[0-9]*/environ /var/lib /run/hactl /dev/shm";
    let seen = sshd.run(&format!("grep -rlsa 'correct horse batter[y]' {places} | wc -l")).await;
    assert_eq!(seen.trim(), "0");
    let log = sshd.run("cat /var/lib/sudo.log").await;
    assert!(log.contains("COMMAND=") && !log.contains("incorrect") && !log.contains("horse"), "{log}");
    // A second connection needs no bootstrap and asks again.
    machine.close().await;
    assert_eq!(connect(&target, &access).await.unwrap().counters().execs, 1);
}

#[tokio::test]
async fn a_password_given_for_the_run_goes_before_the_file_of_the_inventory() {
    let sshd = Sshd::start(Setup { sudoers: ASKS, ..Setup::default() });
    let mut target = sshd.target("ops");
    target.sudo_password = Some(sshd.password_file("an older one"));
    let mut access = sshd.access();
    access.sudo_password = Some(Arc::new(crate::model::secret::Secret::new(PASSWORD.to_owned())));
    connect(&target, &access).await.unwrap();
}

#[tokio::test]
async fn a_sudo_that_does_not_ask_never_gets_the_password() {
    for sudoers in ["ops ALL=(root) NOPASSWD: ALL", "Defaults:ops !authenticate\nops ALL=(root) ALL"] {
        let sshd = Sshd::start(Setup { sudoers, ..Setup::default() });
        let mut target = sshd.target("ops");
        target.sudo_password = Some(sshd.password_file(PASSWORD));
        // The shell that plays the agent here takes every byte for a frame: a password among them would break it.
        let machine = connect(&target, &sshd.access()).await.unwrap();
        for _ in 0..3 {
            assert!(matches!(ask(&machine, observe()).await, Ok(Reply::Lines(_))));
        }
    }
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_on_one_host_and_nowhere_else() {
    let hosts = [(); 3].map(|()| Sshd::start(Setup { sudoers: ASKS, ..Setup::default() }));
    let access = hosts[0].access();
    let file = hosts[0].password_file("wrong");
    let targets = hosts.each_ref().map(|host| SshTarget { sudo_password: Some(file.clone()), ..host.target("ops") });
    let outcomes = futures::future::join_all(targets.iter().map(|target| connect(target, &access))).await;
    let errors: Vec<HostError> = outcomes.into_iter().map(|outcome| outcome.unwrap_err()).collect();
    let wrong = errors.iter().filter(|error| *trouble(error) == SudoTrouble::WrongPassword).count();
    let spared = errors.iter().filter(|error| matches!(trouble(error), SudoTrouble::NotTried { .. })).count();
    assert_eq!((wrong, spared), (1, 2), "{errors:?}");
    assert!(!format!("{errors:?}").contains("wrong\\n"));
    let mut attempts = 0;
    for host in &hosts {
        let log = host.run("sleep 0.1; cat /var/lib/sudo.log 2>/dev/null").await;
        attempts += log.matches("incorrect password attempt").count();
        assert!(!log.contains("2 incorrect"), "{log}");
    }
    assert_eq!(attempts, 1, "one attempt was logged in all");
    // The same run does not try again either.
    assert!(matches!(trouble(&connect(&targets[0], &access).await.unwrap_err()), SudoTrouble::NotTried { .. }));
}

#[tokio::test]
async fn a_command_forbidden_by_sudo_is_reported_with_the_sudoers_line_that_allows_it() {
    for (sudoers, expected, line) in [
        (
            "Defaults:ops requiretty\nops ALL=(root) NOPASSWD: ALL",
            SudoTrouble::NeedsTerminal,
            "Defaults:ops !requiretty",
        ),
        ("ops ALL=(root) NOPASSWD: /bin/true", SudoTrouble::Queries, "NOPASSWD: ALL"),
    ] {
        let sshd = Sshd::start(Setup { sudoers, ..Setup::default() });
        let error = connect(&sshd.target("ops"), &sshd.access()).await.unwrap_err();
        assert_eq!(trouble(&error), &expected, "{error}");
        assert!(error.hint().unwrap().contains(line), "{:?}", error.hint());
    }
    // With the password sudo reports the actual failure.
    for sudoers in ["ops ALL=(root) /bin/true", ""] {
        let sshd = Sshd::start(Setup { sudoers, ..Setup::default() });
        let mut target = sshd.target("ops");
        target.sudo_password = Some(sshd.password_file(PASSWORD));
        let error = connect(&target, &sshd.access()).await.unwrap_err();
        assert_eq!(trouble(&error), &SudoTrouble::NotAllowed, "{error}");
        assert!(error.hint().unwrap().contains("ops ALL=(root) ALL"), "{:?}", error.hint());
    }
}

#[tokio::test]
async fn a_path_that_sudo_prescribes_harms_nothing() {
    let sudoers = "Defaults secure_path=/nonexistent\nDefaults:ops env_reset\nops ALL=(root) NOPASSWD: ALL";
    let sshd = Sshd::start(Setup { sudoers, ..Setup::default() });
    let machine = connect(&sshd.target("ops"), &sshd.access()).await;
    // The agent played by the shell requires programs; hactl itself requires none. It is there, and it was started.
    let listing = sshd.run("ls /var/lib/hactl/bin | wc -l").await;
    assert_eq!(listing.trim(), "1", "{machine:?}");
}

#[tokio::test]
async fn a_password_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let sshd = Sshd::start(Setup { sudoers: ASKS, ..Setup::default() });
    let mut target = sshd.target("ops");
    let file = sshd.password_file(PASSWORD);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    target.sudo_password = Some(file);
    let error = connect(&target, &sshd.access()).await.unwrap_err();
    assert!(matches!(&error, HostError::SudoPassword { why, .. } if why.contains("chmod 600")), "{error}");
}

/// A key that requires a certificate to log in: the host trusts the CA `ca` and no key.
fn certified(sshd: &Sshd, name: &str, how: &[&str]) {
    let dir = sshd.path("");
    if !sshd.path("ca").exists() {
        keygen(&sshd.path("ca"), "ed25519");
    }
    keygen(&sshd.path(name), "ed25519");
    sign(&dir, how, name);
}

fn trusting() -> Sshd {
    let sshd = Sshd::start(Setup { config: "TrustedUserCAKeys @/ca.pub", ..Setup::default() });
    fs::write(sshd.path("authorized"), "").unwrap();
    sshd
}

#[tokio::test]
async fn a_certificate_beside_the_identity_opens_the_door() {
    let sshd = trusting();
    certified(&sshd, "mine", &["-n", "root"]);
    let mut target = sshd.target("root");
    target.identity = Some(sshd.path("mine"));
    connect(&target, &sshd.access()).await.unwrap();
    // Elsewhere, and named by OpenSSH's configuration.
    fs::rename(sshd.path("mine-cert.pub"), sshd.path("elsewhere.pub")).unwrap();
    assert!(matches!(connect(&target, &sshd.access()).await, Err(HostError::AuthFailed { .. })));
    target.certificates = vec![sshd.path("elsewhere.pub")];
    connect(&target, &sshd.access()).await.unwrap();
    // As one of several identities, some of which cannot be used.
    target.identity = None;
    target.identities = vec![sshd.path("none"), sshd.path("stranger"), sshd.path("mine")];
    connect(&target, &sshd.access()).await.unwrap();
}

#[tokio::test]
async fn an_unusable_certificate_is_not_offered_and_reported_with_its_reason() {
    let sshd = trusting();
    for (name, how, reason) in [
        ("old", &["-n", "root", "-V", "20200101:20200102"][..], "valid until 2020"),
        ("host", &["-h", "-n", "root"], "a host certificate"),
    ] {
        certified(&sshd, name, how);
        let mut target = sshd.target("root");
        target.identity = Some(sshd.path(name));
        let Err(HostError::AuthFailed { tried, .. }) = connect(&target, &sshd.access()).await else { panic!("let in") };
        assert!(tried[0].contains(reason) && tried.len() == 2, "{tried:?}");
    }
    fs::write(sshd.path("id-cert.pub"), "nonsense").unwrap();
    let Err(HostError::AuthFailed { tried, .. }) = connect(&sshd.target("root"), &sshd.access()).await else {
        panic!("let in")
    };
    assert!(tried[0].contains("cannot be parsed"), "{tried:?}");
}

#[tokio::test]
async fn an_agent_signs_for_a_certificate_beside_a_locked_key_and_for_its_own() {
    let sshd = trusting();
    certified(&sshd, "mine", &["-n", "root"]);
    let socket = sshd.path("agent");
    let run = |program: &str, args: &[&str]| {
        let mut command = std::process::Command::new(program);
        assert!(command.args(args).arg(sshd.path("mine")).env("SSH_AUTH_SOCK", &socket).status().unwrap().success());
    };
    let mut agent = std::process::Command::new("ssh-agent")
        .args([Path::new("-D"), Path::new("-a"), &socket])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !socket.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Moved while the key alone is added, or the agent takes the certificate as well.
    fs::rename(sshd.path("mine-cert.pub"), sshd.path("aside")).unwrap();
    run("ssh-add", &["-q"]);
    run("ssh-keygen", &["-q", "-p", "-P", "", "-N", "secret", "-f"]);
    fs::rename(sshd.path("aside"), sshd.path("mine-cert.pub")).unwrap();
    let mut target = sshd.target("root");
    target.agent = crate::model::desired::Agent::At(socket.clone());
    target.identity = Some(sshd.path("mine"));
    connect(&target, &sshd.access()).await.unwrap();
    target.identity = None;
    target.identities = vec![sshd.path("mine")];
    target.identities_only = true;
    connect(&target, &sshd.access()).await.unwrap();
    // The certificate in the agent requires no file at all.
    run("ssh-keygen", &["-q", "-p", "-P", "secret", "-N", "", "-f"]);
    run("ssh-add", &["-q", "-d"]);
    run("ssh-add", &["-q"]);
    target.identities.clear();
    target.identities_only = false;
    connect(&target, &sshd.access()).await.unwrap();
    target.agent = crate::model::desired::Agent::None;
    assert!(matches!(connect(&target, &sshd.access()).await, Err(HostError::AuthFailed { .. })));
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[tokio::test]
async fn a_host_is_verified_by_the_ca_that_signed_its_key() {
    let sshd = Sshd::start(Setup { names: "127.0.0.1", ..Setup::default() });
    let mut target = sshd.target("root");
    let (access, mut eager) = (sshd.access(), sshd.access());
    eager.trust_first_use = true;
    let ca = fs::read_to_string(sshd.path("ca.pub")).unwrap();
    let known = |name: &str, text: String| {
        fs::write(sshd.path(name), text).unwrap();
        vec![sshd.path(name)]
    };
    target.known_hosts = known("by-ca", format!("@cert-authority [127.0.0.1]:* {ca}"));
    connect(&target, &access).await.unwrap();
    target.known_hosts = known("by-ca-portless", format!("@cert-authority 127.0.0.? {ca}"));
    connect(&target, &access).await.unwrap();
    // Named by the inventory.
    target.known_hosts = known("nobody", String::new());
    target.host_ca =
        Some(russh::keys::PublicKey::from_openssh(&ca).unwrap().fingerprint(russh::keys::HashAlg::Sha256).to_string());
    connect(&target, &access).await.unwrap();
    assert_eq!(fs::read_to_string(sshd.path("nobody")).unwrap(), "", "a certified key needs no record");
    // Revoked: the host key itself, or the CA.
    for revoked in [&ca, &fs::read_to_string(sshd.path("host_ed25519.pub")).unwrap()] {
        target.known_hosts = known("revoked", format!("@revoked * {revoked}"));
        let error = connect(&target, &eager).await.unwrap_err();
        assert!(matches!(error, HostError::KeyRevoked { .. }), "{error}");
    }
    // The certificate of another CA is not accepted, and then it is no first connection either.
    keygen(&sshd.path("other"), "ed25519");
    target.host_ca = None;
    let other = fs::read_to_string(sshd.path("other.pub")).unwrap();
    target.known_hosts = known("other-ca", format!("@cert-authority * {other}"));
    let Err(HostError::UnknownKey { notes, .. }) = connect(&target, &eager).await else { panic!("let in") };
    assert!(notes[0].contains("not a CA on record"), "{notes:?}");
    // Its key may still be on record.
    let key = fs::read_to_string(sshd.path("host_ed25519.pub")).unwrap();
    target.known_hosts = known("both", format!("@cert-authority * {other}[127.0.0.1]:{} {key}", sshd.port));
    connect(&target, &access).await.unwrap();
}

#[tokio::test]
async fn a_certificate_for_another_host_or_another_time_is_not_accepted() {
    let sshd = Sshd::start(Setup { names: "10.0.0.1", ..Setup::default() });
    let mut target = sshd.target("root");
    let mut access = sshd.access();
    access.trust_first_use = true;
    let ca = fs::read_to_string(sshd.path("ca.pub")).unwrap();
    fs::write(sshd.path("by-ca"), format!("@cert-authority * {ca}")).unwrap();
    target.known_hosts = vec![sshd.path("by-ca")];
    let Err(HostError::UnknownKey { notes, .. }) = connect(&target, &access).await else { panic!("let in") };
    assert!(notes[0].contains("it is for 10.0.0.1, not for 127.0.0.1"), "{notes:?}");
    // The relevant name is the alias.
    target.key_alias = Some("10.0.0.1".into());
    connect(&target, &access).await.unwrap();
}

#[tokio::test]
async fn a_chain_of_jump_hosts_is_walked_and_a_broken_link_is_named_and_tried_once() {
    let hosts = [(); 3].map(|()| Sshd::start(Setup::default()));
    let mut targets = hosts.each_ref().map(|host| host.target("root"));
    let all: String = hosts.iter().map(|host| fs::read_to_string(host.path("known_hosts")).unwrap()).collect();
    fs::write(hosts[0].path("all"), all).unwrap();
    for target in &mut targets {
        target.known_hosts = vec![hosts[0].path("all")];
    }
    let [first, second, last] = targets;
    let way = SshTarget { jump: vec![first.clone(), second.clone()], ..last };
    let access = hosts[2].access();
    let machine = connect(&way, &access).await.unwrap();
    assert!(matches!(ask(&machine, observe()).await, Ok(Reply::Lines(_))));
    assert_eq!(access.jumps.open().await, 2);

    let access = hosts[2].access();
    let stranger = SshTarget { identity: Some(hosts[0].path("stranger")), ..first };
    let way = SshTarget { jump: vec![stranger.clone(), second], ..way };
    let both = futures::future::join(connect(&way, &access), connect(&way, &access)).await;
    for outcome in [both.0, both.1] {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains(&format!("the jump host {}", stranger.place())), "{error}");
        assert!(matches!(error.innermost(), HostError::AuthFailed { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_jump_host_that_forbids_forwarding_and_one_that_cannot_reach_the_host_get_different_errors() {
    for (config, stated) in [("AllowTcpForwarding no", "forwarding"), ("", "seen from")] {
        let bastion = Sshd::start(Setup { config, ..Setup::default() });
        let target = SshTarget { jump: vec![bastion.target("root")], ..SshTarget::new("127.0.0.1", "root") };
        let (_held, port) = super::sshd::closed_port();
        let error = connect(&SshTarget { port, ..target }, &bastion.access()).await.unwrap_err();
        match stated {
            "forwarding" => assert!(matches!(error, HostError::JumpForbidsForwarding { .. }), "{error}"),
            _ => assert!(matches!(&error, HostError::Unreachable { said, .. } if said.contains(stated)), "{error}"),
        }
    }
}
