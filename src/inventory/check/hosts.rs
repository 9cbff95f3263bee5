//! Hosts: names, addresses, roles, SSH settings.

use super::kubernetes;
use super::text::{address, choice, name_or_address, port};
use super::validator::Validator;
use super::ways::{Given, Hop, Ways, hops};
use crate::inventory::at::{At, Key, Place};
use crate::inventory::openssh::Config;
use crate::inventory::problem::shorten;
use crate::inventory::schema::{self, Inventory, Texts};
use crate::model::desired::{Host, Role, SshTarget};
use crate::model::names::{BadName, HostName, PluginName};
use russh::keys::{Algorithm, HashAlg};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

const ROLES: [(&str, Role); 5] = [
    ("control-plane", Role::ControlPlane),
    ("etcd", Role::Etcd),
    ("load-balancer", Role::LoadBalancer),
    ("worker", Role::Worker),
    ("spare", Role::Spare),
];

/// A host and where its parts are written.
pub struct Placed {
    /// The host.
    pub host: Host,
    /// Where the host begins.
    pub start: Place,
    /// Place of its address.
    pub address: Place,
    /// Place of its roles.
    pub roles: Place,
    /// Place of its zone.
    pub zone: Place,
    /// Place of its power.
    pub power: Place,
    /// The port of its own sshd and where it is written; `None` when it is reached at another address.
    pub own_ssh: Option<(u16, Place)>,
}

/// All hosts.
pub struct Hosts {
    /// Each of them.
    pub list: Vec<Placed>,
    /// Place of the list.
    pub place: Place,
    /// Whether every role is valid; if not, a role that no host has proves nothing.
    pub roles_known: bool,
}

impl Hosts {
    /// The hosts that have a role.
    pub fn with(&self, role: Role) -> impl Iterator<Item = &Placed> {
        self.list.iter().filter(move |p| p.host.is(role))
    }
}

/// Placeholder for an address that was refused.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Whether an address is present and valid.
pub fn is_known(address: IpAddr) -> bool {
    address != NO_ADDRESS
}

/// Validates all hosts.
pub fn hosts(judge: &mut Validator<'_>, raw: &Inventory, top: Place) -> Hosts {
    let common = Common::new(judge, &raw.ssh);
    let mut hosts =
        Hosts { list: Vec::new(), place: raw.hosts.as_ref().map_or(top, |list| list.place), roles_known: true };
    let list = raw.hosts.iter().flat_map(|list| &list.value);
    let mut ways = Ways::new(common.configuration(judge), judge.home.as_deref(), judge.local_user);
    for (index, host) in list.enumerate() {
        let placed = one(judge, index, host, &common, &mut ways, &mut hosts.roles_known);
        hosts.list.push(placed);
    }
    ways.tell(judge, common.config_place.unwrap_or(hosts.place));
    if hosts.list.is_empty() {
        let remedy = "add your machines under `hosts:`; `hactl inventory init --hosts a,b,c FILE` writes an example";
        judge.refuse(hosts.place, "there are no hosts", "a list of hosts with name, address and roles", remedy);
    }
    twice(judge, raw, &hosts);
    hosts
}

/// Names, addresses and SSH destinations must be unique.
fn twice(judge: &mut Validator<'_>, raw: &Inventory, hosts: &Hosts) {
    let mut names: BTreeMap<&HostName, &Placed> = BTreeMap::new();
    let mut addresses: BTreeMap<IpAddr, &Placed> = BTreeMap::new();
    let mut doors: BTreeMap<(&str, u16, Vec<String>), &Placed> = BTreeMap::new();
    for (placed, written) in hosts.list.iter().zip(raw.hosts.iter().flat_map(|list| &list.value)) {
        let host = &placed.host;
        if let Some(first) = names.get(&host.name) {
            judge.refuse(
                written.value.name.as_ref().map_or(placed.start, |name| name.place),
                format!("two hosts are called {}; the other is on line {}", host.name, first.start.line),
                "a unique name for each host",
                "rename one: the name is the Node's and the etcd member's",
            );
        } else {
            names.insert(&host.name, placed);
        }
        if !is_known(host.address) {
            continue;
        }
        if let Some(first) = addresses.get(&host.address) {
            judge.refuse(
                placed.address,
                format!("{} and {} have the same address {}", first.host.name, host.name, host.address),
                "a unique address for each host",
                format!("correct this one or line {}", first.address.line),
            );
            continue;
        }
        addresses.insert(host.address, placed);
        let door = (host.ssh.host.as_str(), host.ssh.port, host.ssh.jump.iter().map(SshTarget::place).collect());
        if let Some(first) = doors.insert(door, placed) {
            judge.refuse(
                written.value.ssh.as_ref().map_or(placed.address, |ssh| ssh.place),
                format!(
                    "{} and {} are both reached at {}:{}",
                    first.host.name, host.name, host.ssh.host, host.ssh.port
                ),
                "a separate machine for each host",
                "correct ssh.host or ssh.port of one of them",
            );
        }
    }
}

/// The settings of the top-level `ssh`.
struct Common {
    shared: Given,
    port_place: Option<Place>,
    /// OpenSSH's configuration; `None`: none is read.
    config: Option<PathBuf>,
    config_place: Option<Place>,
}

impl Common {
    fn new(judge: &mut Validator<'_>, raw: &Key<schema::Ssh>) -> Self {
        let unset = schema::Ssh::default();
        let raw = raw.as_ref().map_or(&unset, |ssh| &ssh.value);
        let config = match raw.config.as_ref() {
            Some(word) if word.value == "none" => None,
            Some(path) => judge.path("ssh.config", path),
            None => judge.home.as_ref().map(|home| home.join(".ssh/config")),
        };
        let texts = [&raw.user, &raw.identity, &raw.known_hosts, &raw.host_ca, &raw.jump];
        Self {
            shared: shared(judge, texts, &raw.port, &raw.sudo),
            port_place: raw.port.as_ref().map(|p| p.place),
            config,
            config_place: raw.config.as_ref().map(|c| c.place),
        }
    }

    fn configuration(&self, judge: &Validator<'_>) -> Config {
        match &self.config {
            Some(path) => Config::read(path, judge.home.as_deref(), judge.disk),
            None => Config::default(),
        }
    }
}

/// The settings that may be common to all hosts.
fn shared(
    judge: &mut Validator<'_>,
    [login, identity, known_hosts, host_ca, hops]: [&Key<String>; 5],
    own_port: &Key<i64>,
    sudo: &Key<schema::Sudo>,
) -> Given {
    let password_file = sudo.as_ref().and_then(|sudo| sudo.value.password_file.as_ref());
    Given {
        user: login.as_ref().and_then(|u| user(judge, u)),
        port: own_port.as_ref().and_then(|p| port(judge, "ssh.port", p)),
        identity: identity.as_ref().and_then(|p| judge.path("ssh.identity", p)),
        known_hosts: known_hosts.as_ref().and_then(|p| judge.path("ssh.known_hosts", p)),
        host_ca: host_ca.as_ref().and_then(|a| authority(judge, a)),
        jump: hops.as_ref().and_then(|j| jump(judge, j)),
        sudo_password: password_file.and_then(|path| judge.path("ssh.sudo.passwordFile", path)),
        ..Given::default()
    }
}

fn one(
    judge: &mut Validator<'_>,
    index: usize,
    raw: &At<schema::Host>,
    common: &Common,
    ways: &mut Ways,
    roles_known: &mut bool,
) -> Placed {
    let start = raw.place;
    let raw = &raw.value;
    let name = name(judge, index, raw.name.as_ref(), start);
    let found = match raw.address.as_ref() {
        Some(text) => address(judge, &format!("the address of {name}"), text),
        None => {
            let remedy = "add a line such as `address: 10.0.0.11`";
            judge.none(
                start,
                format!("{name} has no address"),
                "the address that its components bind and advertise",
                remedy,
            )
        }
    };
    let roles = roles(judge, &name, raw.roles.as_ref(), start, roles_known);
    let labels = kubernetes::labels(judge, raw.labels.as_ref());
    let taints = kubernetes::taints(judge, raw.taints.as_ref());
    let zone = raw.zone.as_ref().and_then(|zone| zone_name(judge, zone));
    let standby = raw.standby.as_ref().is_some_and(|given| standby(judge, &name, given, &roles));
    let power = raw.power.as_ref().and_then(|given| power(judge, &name, given));
    let address = found.unwrap_or(NO_ADDRESS);
    let ssh = ways.to(&given(judge, &raw.ssh, common, &name, address));
    let own_port = raw.ssh.as_ref().and_then(|s| s.value.port.as_ref()).map(|p| p.place);
    let own_port = own_port.or(common.port_place).unwrap_or(start);
    let reached_elsewhere = ssh.host != address.to_string() || !ssh.jump.is_empty();
    let placed = Placed {
        start,
        address: raw.address.as_ref().map_or(start, |a| a.place),
        roles: raw.roles.as_ref().map_or(start, |r| r.place),
        zone: raw.zone.as_ref().map_or(start, |z| z.place),
        power: raw.power.as_ref().map_or(start, |p| p.place),
        own_ssh: (!reached_elsewhere).then_some((ssh.port, own_port)),
        host: Host { name, address, ssh, roles, zone, labels, taints, standby, power },
    };
    let node = placed.host.is_node() || placed.host.is(Role::Spare) || placed.host.roles.is_empty();
    if !node && (!placed.host.labels.is_empty() || !placed.host.taints.is_empty()) {
        judge.warn(
            raw.labels.as_ref().map_or(start, |l| l.place),
            format!("{} is not a Node: its labels and taints have no effect", placed.host.name),
            "labels and taints on hosts with the role control-plane or worker",
            "remove them, or add the role worker",
        );
    }
    placed
}

fn name(judge: &mut Validator<'_>, index: usize, raw: Option<&At<String>>, start: Place) -> HostName {
    let stand_in = || {
        format!("host-number-{}", index + 1).parse().expect("host-number- and a number satisfy the rule for host names")
    };
    let Some(name) = raw else {
        let what = format!("host number {} has no name", index + 1);
        judge.refuse(start, what, "the Node's name", "add a line such as `name: cp1`");
        return stand_in();
    };
    name.value.parse().unwrap_or_else(|error: BadName| {
        let remedy = if name.value.contains('.') {
            format!(
                "write {:?}; the name to connect to goes under ssh.host",
                name.value.split('.').next().unwrap_or("cp1")
            )
        } else {
            "choose another name; the machine's hostname does not change".to_owned()
        };
        let what = format!("{:?} cannot name a host: {}", shorten(&name.value), error.why);
        judge.refuse(name.place, what, "letters a-z, digits and '-', at most 63 of them", remedy);
        stand_in()
    })
}

fn roles(judge: &mut Validator<'_>, name: &HostName, raw: Option<&Texts>, start: Place, known: &mut bool) -> Vec<Role> {
    let expected = "some of control-plane, etcd, load-balancer, worker; or only spare";
    let Some(list) = raw.filter(|list| !list.value.is_empty()) else {
        *known = false;
        let what =
            if raw.is_some() { format!("the roles of {name} are empty") } else { format!("{name} has no roles") };
        let place = raw.map_or(start, |list| list.place);
        let remedy = "add `roles: [...]`, or `roles: [spare]` for a host that is not part of the cluster yet";
        judge.refuse(place, what, expected, remedy);
        return Vec::new();
    };
    let mut roles = Vec::new();
    for text in &list.value {
        match choice(judge, "role", text, &ROLES) {
            None => *known = false,
            Some(role) if roles.contains(&role) => {
                let what = format!("{name} has the role {role} twice");
                judge.refuse(text.place, what, "each role once", "remove one of them");
            }
            Some(role) => roles.push(role),
        }
    }
    if roles.contains(&Role::Spare) && roles.len() > 1 {
        *known = false;
        judge.refuse(
            list.place,
            format!("{name} is spare and has another role"),
            "only spare: reachable and prepared, but not part of the cluster",
            "remove spare, or the other roles",
        );
    }
    roles
}

/// Whether a host stands by for etcd.
fn standby(judge: &mut Validator<'_>, name: &HostName, given: &Texts, roles: &[Role]) -> bool {
    let mut stands_by = false;
    for text in &given.value {
        if text.value != Role::Etcd.to_string() {
            judge.refuse(
                text.place,
                format!("{name} cannot stand by for {:?}", shorten(&text.value)),
                "etcd",
                "everything else works on several hosts at the same time: give the host the role itself",
            );
        } else if roles.contains(&Role::Etcd) {
            let what = format!("{name} has the role etcd and stands by for it");
            judge.refuse(text.place, what, "one of the two", "remove the role etcd, or `standby`");
        } else {
            stands_by = true;
        }
    }
    stands_by
}

/// The plug-in that switches the power of a host.
fn power(judge: &mut Validator<'_>, name: &HostName, given: &At<schema::HostPower>) -> Option<PluginName> {
    let remedy = "write `power: {exec: NAME}`, and install the program as /etc/hactl/power.d/NAME on every etcd host";
    let Some(exec) = given.value.exec.as_ref() else {
        return judge.none(given.place, format!("the power of {name} has no exec"), "the name of a program", remedy);
    };
    exec.value.parse().map_or_else(
        |error: BadName| {
            let what = format!("{:?} cannot name a plug-in", shorten(&exec.value));
            judge.none(exec.place, what, error.why, remedy)
        },
        Some,
    )
}

fn zone_name(judge: &mut Validator<'_>, zone: &At<String>) -> Option<String> {
    let given = zone.value.as_str();
    let fine = given.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if given.len() <= 63 && fine && ends(given.chars().next()) && ends(given.chars().last()) {
        return Some(given.to_owned());
    }
    judge.none(
        zone.place,
        format!("{:?} cannot name a zone", shorten(given)),
        "letters, digits, '-', '_' and '.', at most 63: it becomes the label topology.kubernetes.io/zone",
        "choose another name",
    )
}

/// The inventory's SSH settings of a host.
fn given(
    judge: &mut Validator<'_>,
    raw: &Key<schema::HostSsh>,
    common: &Common,
    name: &HostName,
    address: IpAddr,
) -> Given {
    let unset = schema::HostSsh::default();
    let raw = raw.as_ref().map_or(&unset, |ssh| &ssh.value);
    let texts = [&raw.user, &raw.identity, &raw.known_hosts, &raw.host_ca, &raw.jump];
    let (own, common) = (shared(judge, texts, &raw.port, &raw.sudo), common.shared.clone());
    Given {
        name: name.to_string(),
        host: raw.host.as_ref().and_then(|h| name_or_address(judge, "ssh.host", h)),
        address: address.to_string(),
        fingerprint: raw.fingerprint.as_ref().and_then(|f| fingerprint(judge, f)),
        port: own.port.or(common.port),
        user: own.user.or(common.user),
        identity: own.identity.or(common.identity),
        known_hosts: own.known_hosts.or(common.known_hosts),
        host_ca: own.host_ca.or(common.host_ca),
        jump: own.jump.or(common.jump),
        sudo_password: own.sudo_password.or(common.sudo_password),
    }
}

fn is_user(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 32
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn user(judge: &mut Validator<'_>, text: &At<String>) -> Option<String> {
    if is_user(&text.value) {
        return Some(text.value.clone());
    }
    let what = format!("{:?} cannot be a user's name", shorten(&text.value));
    judge.none(text.place, what, "letters, digits, '-', '_' and '.', at most 32", "write only the login name")
}

/// `SHA256:` and a digest in base64, without padding.
fn sha256(text: &str) -> Option<String> {
    let digest = text.strip_prefix("SHA256:")?.trim_end_matches('=');
    let fine = digest.len() == 43 && digest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'));
    fine.then(|| format!("SHA256:{digest}"))
}

fn fingerprint(judge: &mut Validator<'_>, text: &At<String>) -> Option<String> {
    let found = sha256(&text.value);
    if found.is_none() {
        let remedy = "run `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host and copy the second word";
        judge.refuse(text.place, "this is not a host key's fingerprint", "SHA256: and 43 characters", remedy);
    }
    found
}

/// The fingerprint of an SSH CA, from its fingerprint or its key.
fn authority(judge: &mut Validator<'_>, text: &At<String>) -> Option<String> {
    let given = text.value.trim();
    if given.starts_with("SHA256:") && sha256(given).is_some() {
        return sha256(given);
    }
    let key = given.strip_prefix("@cert-authority ").map_or(given, |line| line.trim_start());
    match russh::keys::PublicKey::from_openssh(key) {
        Ok(key) if matches!(key.algorithm(), Algorithm::Ed25519 | Algorithm::Ecdsa { .. }) => {
            return Some(key.fingerprint(HashAlg::Sha256).to_string());
        }
        Ok(key) => judge.refuse(
            text.place,
            format!("hactl does not verify signatures of {} CAs", key.algorithm()),
            "an ed25519 or ECDSA key",
            "sign the host keys with such a CA as well, or pin each host's key (ssh.fingerprint)",
        ),
        Err(_) => judge.refuse(
            text.place,
            "this is not the public key of a host CA",
            "`ssh-ed25519 AAAA...`, the text of its .pub file, or SHA256: and 43 characters",
            "copy the line of the .pub file of the CA that signed the host keys (ssh-keygen -s NAME -h ...)",
        ),
    }
    None
}

/// `[user@]host[:port]`, several of them, or `none`.
fn jump(judge: &mut Validator<'_>, text: &At<String>) -> Option<Vec<Hop>> {
    match hops(&text.value) {
        Ok(hops) => Some(hops),
        Err(why) => {
            let what = format!("{:?} is not a jump host: {why}", shorten(&text.value));
            let remedy = "write something like ops@bastion.example.org; several are separated by commas";
            judge.none(text.place, what, "[user@]host[:port], or none", remedy)
        }
    }
}
