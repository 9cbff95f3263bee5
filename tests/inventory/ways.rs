//! Settings that are not in the inventory come from OpenSSH's configuration; options that hactl does not support are
//! refused with their line.

use super::{BASE, edited, with};
use hactl::inventory::{InventoryError, Loaded, Problem, parse_at_home};
use hactl::model::desired::{Agent, SshTarget};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const HOME: &str = "/home/me";

/// Loads an inventory for a user with these files below `~/.ssh`.
fn judged(inventory: &str, files: &[(&str, &str)]) -> Result<Loaded, InventoryError> {
    let files: BTreeMap<PathBuf, String> =
        files.iter().map(|(name, text)| (Path::new(HOME).join(".ssh").join(name), (*text).to_owned())).collect();
    parse_at_home(inventory, Path::new("/base"), Path::new(HOME), &files)
}

/// The SSH target of `cp1` with a configuration.
fn target(inventory: &str, config: &str) -> SshTarget {
    judged(inventory, &[("config", config)]).unwrap_or_else(|e| panic!("{e}")).desired.hosts[0].ssh.clone()
}

/// The refused options, as `file:line: what`.
fn refused(inventory: &str, files: &[(&str, &str)]) -> Vec<String> {
    match judged(inventory, files) {
        Err(InventoryError::Invalid(report)) => report.problems.iter().map(line).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    }
}

fn line(problem: &Problem) -> String {
    format!("{}:{}: {}", problem.file.trim_start_matches("/home/me/.ssh/"), problem.place.line, problem.what)
}

fn path(name: &str) -> PathBuf {
    Path::new(HOME).join(".ssh").join(name)
}

#[test]
fn the_file_sets_options_missing_in_the_inventory_and_the_defaults_come_last() {
    let config = "Host cp1\n  HostName 192.168.7.11\n  User ops\n  Port 2222\n  IdentityFile ~/.ssh/id_fleet\n";
    let found = target(BASE, config);
    assert_eq!(found.place(), "ops@192.168.7.11:2222");
    assert_eq!(found.identities, [path("id_fleet")]);
    let others = judged(BASE, &[("config", config)]).unwrap().desired.hosts[1].ssh.clone();
    assert_eq!(others, SshTarget::new("10.0.0.12", "root"), "the file does not mention cp2");
    let explicit = with("ssh: {user: admin, port: 22, identity: /keys/id}");
    let found = target(&explicit, config);
    assert_eq!(found.place(), "admin@192.168.7.11:22");
    assert_eq!((found.identity, found.identities), (Some("/keys/id".into()), vec![]));
}

#[test]
fn a_host_matches_by_its_name_and_address_or_else_by_its_ssh_host() {
    assert_eq!(target(BASE, "Host 10.0.0.*\n  User ops\n").user, "ops");
    assert_eq!(target(BASE, "Host cp?\n  User ops\n").user, "ops");
    assert_eq!(target(BASE, "Host * !cp1\n  User ops\n").user, "root", "excluded by one name is excluded");
    assert_eq!(target(BASE, "Host 10.0.0.* !10.0.0.11\n  User ops\n").user, "root");
    let named = edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    ssh: {host: cp1-mgmt}");
    let config =
        "Host cp1\n  User no\nHost 10.0.0.11\n  User no\nHost cp1-mgmt\n  User yes\n  HostName %h.example.org\n";
    assert_eq!(target(&named, config).place(), "yes@cp1-mgmt.example.org:22");
}

#[test]
fn the_first_value_wins_and_identities_add_up() {
    let config = "User first\nHost cp1\n  User second\n  IdentityFile ~/.ssh/a\nHost *\n  IdentityFile ~/.ssh/%r-%n\n  Port 99\n";
    let found = target(BASE, config);
    assert_eq!((found.user.as_str(), found.port), ("first", 99));
    assert_eq!(found.identities, [path("a"), path("first-cp1")]);
}

#[test]
fn included_files_are_read_in_place_and_their_host_blocks_end_with_them() {
    let files = [
        ("config", "Include conf.d/*.conf\nInclude missing\nUser late\nHost cp1\n  Include only-cp1\n  Port 24\n"),
        ("conf.d/10-a.conf", "Host cp1\n  User early\n"),
        ("conf.d/20-b.conf", "Host cp2\n  User other\n"),
        ("conf.d/readme", "This is no configuration.\n"),
        ("only-cp1", "Host *\n  IdentitiesOnly yes\n"),
    ];
    let hosts = judged(BASE, &files).unwrap().desired.hosts;
    let users: Vec<&str> = hosts.iter().map(|h| h.ssh.user.as_str()).collect();
    assert_eq!(users, ["early", "other", "late"]);
    assert_eq!((hosts[0].ssh.port, hosts[1].ssh.port), (24, 22));
    assert!(hosts[0].ssh.identities_only && !hosts[1].ssh.identities_only);
    let circle = refused(BASE, &[("config", "Include config\n")]);
    assert!(circle.iter().any(|p| p.contains("more than 16 deep")), "{circle:?}");
}

#[test]
fn match_lines_are_judged_as_far_as_they_can_be_known() {
    for (config, user) in [
        ("Match all\n  User m\n", "m"),
        ("Match host 10.0.0.*\n  User m\n", "m"),
        ("Match originalhost cp1\n  User m\n", "m"),
        ("Match !host cp1,10.0.0.11\n  User m\n", "root"),
        ("Host cp1\n  HostName gate\nMatch host gate\n  User m\n", "m"),
        ("Match user root\n  User m\n", "m"),
        ("Match localuser me\n  User m\n", "m"),
        ("Match localuser somebody\n  User m\n", "root"),
        // The result of the program does not matter: the line is not about these hosts.
        ("Match host *.corp exec \"vpn-is-up\"\n  ProxyCommand x\n", "root"),
        ("Match exec \"true\"\n  ServerAliveInterval 5\n", "root"),
    ] {
        assert_eq!(target(BASE, config).user, user, "{config}");
    }
    let unknown = refused(BASE, &[("config", "Host other\n  User x\nMatch exec \"vpn-is-up\"\n  User m\n")]);
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    assert!(
        unknown[0].starts_with("config:3: Match: hactl cannot tell") && unknown[0].contains("cp1, cp2, cp3"),
        "{unknown:?}"
    );
}

#[test]
fn jump_hosts_are_looked_up_by_their_own_names_and_chained() {
    let config = "\
Host cp*
  ProxyJump inner,gate2:2200
Host inner
  HostName 10.9.9.9
  User hop
  ProxyJump outer
Host gate2
  ProxyJump never-used
  IdentityFile ~/.ssh/gate
Host *
  UserKnownHostsFile ~/.ssh/fleet
";
    let found = target(&with("ssh: {user: ops, identity: /keys/id}"), config);
    assert_eq!(found.to_string(), "ops@10.0.0.11:22 through ops@outer:22, hop@10.9.9.9:22, ops@gate2:2200");
    assert_eq!(found.jump[1].identity, Some("/keys/id".into()), "the same as for the host behind it");
    assert_eq!((found.jump[2].identity.clone(), found.jump[2].identities.clone()), (None, vec![path("gate")]));
    assert!(found.jump.iter().all(|hop| hop.known_hosts[0] == path("fleet") && hop.jump.is_empty()));
    // The inventory takes precedence, also for a direct connection.
    assert_eq!(target(&with("ssh: {jump: none}"), config).jump, []);
    let own = target(&with("ssh: {jump: \"me@gate1,gate2\"}"), "Host gate1\n  Port 2201\n");
    assert_eq!(own.to_string(), "root@10.0.0.11:22 through me@gate1:2201, root@gate2:22");
    assert_eq!(target(BASE, "Host cp1\n  ProxyJump none\nHost cp*\n  ProxyJump gate\n").jump, []);
    // A bastion that is itself one of the hosts is reached directly.
    assert_eq!(target(&with("ssh: {jump: 10.0.0.11}"), "").jump, []);
}

#[test]
fn a_loop_of_jump_hosts_is_refused_with_its_line() {
    let circle = refused(BASE, &[("config", "Host *\n  ProxyJump gate\n")]);
    assert_eq!(circle.len(), 1, "{circle:?}");
    assert!(circle[0].starts_with("config:2: ProxyJump: the connection jumps through root@gate:22"), "{circle:?}");
    assert_eq!(refused(BASE, &[("config", "Host * !gate\n  ProxyJump gate\n")]), Vec::<String>::new());
}

#[test]
fn identity_and_host_key_options_are_honoured() {
    let config = "\
HostKeyAlias fleet
CertificateFile ~/.ssh/id-cert.pub
IdentityAgent ~/.ssh/agent.sock
GlobalKnownHostsFile /etc/fleet_hosts
StrictHostKeyChecking yes
ProxyCommand none
ProxyJump gate
KnownHostsCommand none
";
    let found = target(BASE, config);
    assert_eq!(found.key_alias.as_deref(), Some("fleet"));
    assert_eq!(found.certificates, [path("id-cert.pub")]);
    assert_eq!(found.agent, Agent::At(path("agent.sock")));
    assert_eq!(found.known_hosts, [path("known_hosts"), "/etc/fleet_hosts".into()]);
    assert_eq!(found.jump, [], "whichever of ProxyCommand and ProxyJump comes first");
    assert_eq!(target(BASE, "IdentityAgent none\n").agent, Agent::None);
    assert_eq!(target(BASE, "IdentityAgent SSH_AUTH_SOCK\n").agent, Agent::Environment);
}

#[test]
fn unsupported_options_are_refused_with_their_line_and_only_where_they_apply() {
    for (text, expected) in [
        ("ProxyCommand ssh -W %h:%p gate", "does not run programs to reach a host"),
        ("PKCS11Provider /usr/lib/p11.so", "smart cards"),
        ("KnownHostsCommand /bin/keys %H", "does not run programs to get host keys"),
        ("RevokedHostKeys /etc/revoked", "only from known_hosts"),
        ("BindAddress 10.0.0.1", "source address that the system chooses"),
        ("CanonicalizeHostname yes", "complete host names"),
        ("PubkeyAuthentication no", "only with keys and certificates"),
        ("IdentityFile ~/.ssh/%C", "the token %C"),
        ("IdentityFile ${HOME}/id", "environment variables"),
        ("IdentityFile keys/id", "current directory"),
        ("HostName", "it has no value"),
        ("HostName \"open", "a quote is not closed"),
        ("HostName a b;c", ""),
        ("HostName -oX", "neither a name nor an address"),
        ("Port ssh", "this is not a port"),
        ("User -oX", "cannot be a user's name"),
        ("ProxyJump a:b:c@", "not a chain of jump hosts"),
        ("Hostnaem gate", "unknown option Hostnaem"),
    ] {
        let elsewhere = format!("Host elsewhere\n  {text}\n");
        assert_eq!(refused(BASE, &[("config", &elsewhere)]), Vec::<String>::new(), "{text}");
        let here = refused(BASE, &[("config", &format!("# mine\nHost cp2\n  {text}\n"))]);
        if expected.is_empty() {
            assert!(here.is_empty(), "{here:?}");
            continue;
        }
        assert_eq!(here.len(), 1, "{text}: {here:?}");
        assert!(here[0].starts_with("config:3: ") && here[0].contains(expected), "{text}: {here:?}");
        assert!(here[0].ends_with("(it applies to cp2)"), "{here:?}");
        let error = judged(BASE, &[("config", &format!("Host cp2\n  {text}\n"))]).unwrap_err().to_string();
        assert!(error.contains("ssh: {config: none}") && error.contains('^'), "{error}");
        assert_eq!(refused(&with("ssh: {config: none}"), &[("config", text)]), Vec::<String>::new());
    }
    assert_eq!(
        refused(BASE, &[("config", "IgnoreUnknown Host?aem\nHostnaem gate\nUseKeychain yes\n")]),
        Vec::<String>::new()
    );
}

#[test]
fn options_that_the_inventory_sets_are_not_refused_in_the_file() {
    let config = "ProxyCommand nc %h %p\nPort ssh\nUser %u\n";
    let decided = with("ssh: {jump: none, port: 22, user: ops}");
    assert_eq!(refused(&decided, &[("config", config)]), Vec::<String>::new());
}

#[test]
fn the_file_cannot_weaken_host_key_verification_and_a_warning_says_so() {
    for config in ["StrictHostKeyChecking no\n", "StrictHostKeyChecking accept-new\n", "UserKnownHostsFile /dev/null\n"]
    {
        let loaded = judged(BASE, &[("config", config)]).unwrap();
        let warnings: Vec<String> = loaded.warnings.iter().map(line).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("config:1: ") && warnings[0].contains("hactl"), "{warnings:?}");
        let known = &loaded.desired.hosts[0].ssh.known_hosts;
        assert!(known.is_empty() || known[0] == path("known_hosts"), "{known:?}");
    }
}

#[test]
fn another_file_is_read_where_the_inventory_names_one_and_none_where_it_says_so() {
    let files = [("config", "User mine\n"), ("fleet", "User fleet\n")];
    let user = |inventory: &str| judged(inventory, &files).unwrap().desired.hosts[0].ssh.user.clone();
    assert_eq!(user(BASE), "mine");
    assert_eq!(user(&with("ssh: {config: ~/.ssh/fleet}")), "fleet");
    assert_eq!(user(&with("ssh: {config: none}")), "root");
}

#[test]
fn a_host_ca_is_named_by_its_key_or_by_its_fingerprint() {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJzIz7O8ImsuoMwJJx0IMii5kHwb2Ha8F9Osk2f16wM3";
    let by_key = target(&with(&format!("ssh: {{hostCA: \"{key} ca@example.org\"}}")), "").host_ca.unwrap();
    assert_eq!(target(&with(&format!("ssh: {{hostCA: \"{by_key}\"}}")), "").host_ca, Some(by_key.clone()));
    assert_eq!(target(&with(&format!("ssh: {{hostCA: \"@cert-authority {key}\"}}")), "").host_ca, Some(by_key));
}

#[test]
fn two_hosts_with_the_same_address_in_the_file_are_refused() {
    let problems = refused(BASE, &[("config", "Host cp1 cp2\n  HostName 192.168.7.11\n")]);
    assert!(problems.iter().any(|p| p.contains("cp1 and cp2 are both reached at 192.168.7.11:22")), "{problems:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_configuration_makes_hactl_panic(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("Host *".to_owned()), Just("Match host * exec x".to_owned()), Just("Match".to_owned()),
                Just("ProxyJump cp1,cp2".to_owned()), Just("ProxyJump %h".to_owned()), Just("Include *".to_owned()),
                Just("HostName %%%h%".to_owned()), Just("IdentityFile ~".to_owned()), Just("UserKnownHostsFile none ~/x".to_owned()),
                any::<String>(),
            ],
            0..12,
        )
    ) {
        let _ = judged(BASE, &[("config", &lines.join("\n"))]).map_err(|error| error.to_string());
    }
}
