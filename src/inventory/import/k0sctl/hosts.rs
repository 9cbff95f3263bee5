//! `spec.hosts`: each machine with its role, its SSH settings, and k0sctl's other actions on it.
//!
//! In: the list. Out: hosts of the draft, and notes for unsupported settings (hooks, files, environments), one for all
//! hosts that have it.

use super::super::draft::{Draft, Host, Said, Ssh};
use super::super::node::{Node, truth};
use super::super::notes::{Notes, listed, short, table};
use super::super::shared;
use super::leave;
use crate::model::desired::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Keys without an equivalent in hactl.
const LEFT_OUT: &str = "\
hooks: commands before and after k0sctl's actions: hactl runs none on hosts
  run them with your own tool, before or after `hactl up`
files: files that k0sctl copies to the hosts: hactl copies only its own
  copy them with your own tool; images come from registries.mirrors, or a bundle
environment: environment variables for k0s; their values are not shown
  a proxy goes under `proxy`; other variables have no equivalent
dataDir kubeletRootDir: another directory for k0s or the kubelet: hactl has fixed ones, except etcd.dataDir
  mount a disk at /var/lib/etcd, /var/lib/containerd or /var/lib/kubelet if you need one
uploadBinary useExistingK0s k0sBinaryPath k0sInstallPath k0sDownloadURL os: a setting for the installation of k0s
  nothing: hactl copies its own components to the hosts";

/// Reads them.
pub fn hosts(spec: &Node, draft: &mut Draft, notes: &mut Notes) {
    let mut left: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut unnamed = Vec::new();
    let (mut controllers, mut workers) = (0, 0);
    for (index, node) in spec.items_of("hosts").iter().enumerate() {
        let path = format!("spec.hosts[{index}]");
        if node.is_true("reset") {
            notes.add(&path, "k0sctl would reset this host: left out", "nothing, or remove `reset` and import again");
            continue;
        }
        let role = node.word("role").unwrap_or_default();
        let mut roles: BTreeSet<Role> = match role {
            "controller" => [Role::ControlPlane, Role::Etcd].into(),
            "controller+worker" if !node.is_true("noTaints") => [Role::ControlPlane, Role::Etcd].into(),
            "controller+worker" | "single" => [Role::ControlPlane, Role::Etcd, Role::Worker].into(),
            "worker" => [Role::Worker].into(),
            _ => {
                notes.add(
                    format!("{path}.role"),
                    format!("unknown role {}: the host is left out", short(role)),
                    "write controller, controller+worker, single or worker",
                );
                continue;
            }
        };
        let Some(ssh) = way(node, &path, notes) else { continue };
        if roles.contains(&Role::ControlPlane) {
            controllers += 1;
        } else {
            workers += 1;
        }
        let reached = ssh.host.clone();
        let mut host = Host { place: path.clone(), ssh, ..Host::default() };
        let said = |key: &str| node.word(key).map(|text| Said::new(text, "", format!("{path}.{key}")));
        let numeric = |said: &Said| said.value.parse::<Ipv4Addr>().is_ok();
        host.address = said("privateAddress");
        if host.address.is_none() {
            // With an interface, the address for SSH may be another one, such as a public address.
            host.private_interface = said("privateInterface");
            host.address = reached.clone().filter(|said| host.private_interface.is_none() && numeric(said));
        }
        if host.address.as_ref().map(|said| &said.value) == reached.as_ref().map(|said| &said.value) {
            host.ssh.host = None;
        }
        let by_address = reached.filter(|said| !numeric(said)).map(|said| said.value);
        host.given = match node.word("hostname").map(ToOwned::to_owned).or(by_address) {
            Some(name) => name,
            None => {
                let (kind, number) =
                    if roles.contains(&Role::ControlPlane) { ("controller", controllers) } else { ("worker", workers) };
                let name = format!("{kind}-{number}");
                unnamed.push(name.clone());
                name
            }
        };
        flags(node, &path, &mut host, &mut roles, notes);
        host.roles = roles;
        for (key, value) in node.entries().iter().filter(|(_, value)| !value.is_empty()) {
            let read = "role ssh openSSH localhost winRM privateAddress privateInterface hostname noTaints \
                        installFlags reset";
            if !read.split(' ').any(|known| known == key) && value.as_bool() != Some(false) {
                left.entry(key).or_default().push(index);
            }
        }
        draft.hosts.push(host);
    }
    if !unnamed.is_empty() {
        notes.add(
            "spec.hosts",
            format!("the file has no names for hosts with only an address; here they are {}", listed(&unnamed, 8)),
            "nothing, or change hosts[].name before the first `hactl up`: the Nodes get these names",
        );
    }
    for (key, indices) in left {
        tell(key, &indices, notes);
    }
}

fn tell(key: &str, indices: &[usize], notes: &mut Notes) {
    let places: Vec<String> = indices.iter().take(12).map(ToString::to_string).collect();
    let more = if indices.len() > 12 { ",..." } else { "" };
    let place = format!("spec.hosts[{}{more}].{}", places.join(","), short(key));
    let meant = table(LEFT_OUT).find(|(keys, ..)| keys.split(' ').any(|known| known == key));
    let (_, what, remedy) = meant.unwrap_or((
        key,
        "hactl has no key for it",
        "check whether you need it; settings of Kubernetes go under `extra`",
    ));
    notes.add(place, format!("not carried over: {what}"), remedy);
}

/// Its SSH settings; `None`: hactl cannot reach it by SSH.
fn way(node: &Node, path: &str, notes: &mut Notes) -> Option<Ssh> {
    let found = ["ssh", "openSSH"].into_iter().find_map(|kind| Some((kind, node.get(kind)?)));
    let Some((kind, given)) = found else {
        let what = if node.get("winRM").is_some() {
            "a Windows host: hactl's hosts are Linux; left out"
        } else if node.get("localhost").is_some() {
            "it is k0sctl's own machine, and hactl reaches every host by SSH: left out"
        } else {
            "the host has neither ssh nor openSSH: left out"
        };
        notes.add(path, what, "if it belongs to the cluster, add it under hosts with the address of an SSH server");
        return None;
    };
    let path = format!("{path}.{kind}");
    let said = |key: &str| {
        let text = given.word(key)?;
        Some(Said::new(text, "", format!("{path}.{key}")))
    };
    let mut ssh = Ssh { host: said("address"), user: said("user"), port: port(given, &path, notes), ..Ssh::default() };
    if ssh.user.is_none() && kind == "ssh" {
        ssh.user = Some(Said::new("root", "", path.as_str()));
    }
    if let Some(key) = said("keyPath") {
        ssh.identity = identity(key, notes);
    }
    if let Some(key) = said("hostKey") {
        notes.add(
            &key.place,
            "the file contains the host key, and hactl uses its fingerprint",
            "put the key into known_hosts, or its fingerprint (`ssh-keygen -lf FILE`) under ssh.fingerprint",
        );
    }
    if let Some(bastion) = given.get("bastion") {
        ssh.jump = jump(bastion, &format!("{path}.bastion"), ssh.identity.as_ref(), notes);
    }
    if let Some(config) = said("configPath").filter(|_| kind == "openSSH") {
        notes.add(
            config.place,
            format!("an OpenSSH configuration other than ~/.ssh/config: {}", short(&config.value)),
            "set it for all hosts under ssh.config",
        );
    }
    options(given, &format!("{path}.options"), &mut ssh, notes);
    let known = "address user port keyPath hostKey bastion configPath options disableMultiplexing";
    leave(given, &path, known, notes);
    Some(ssh)
}

/// OpenSSH's options: the file of host keys has a key here; options that weaken their verification are reported.
fn options(given: &Node, path: &str, ssh: &mut Ssh, notes: &mut Notes) {
    let mut left: Vec<&str> = Vec::new();
    let mut unchecked = false;
    for (option, value) in given.entries_of("options") {
        let text = value.as_text().map(str::trim).unwrap_or_default();
        match option.to_ascii_lowercase().as_str() {
            "stricthostkeychecking" => unchecked |= truth(text) != Some(true),
            "userknownhostsfile" if matches!(text, "/dev/null" | "none") => unchecked = true,
            // Only one file without OpenSSH's variables.
            "userknownhostsfile" if !text.is_empty() && !text.contains(['$', '%', ' ', '\t']) => {
                let said = Said::new(text, "", format!("{path}.{}", short(option)));
                shared::relative("UserKnownHostsFile", &said, notes);
                ssh.known_hosts = Some(said);
            }
            _ => left.push(option),
        }
    }
    if !left.is_empty() {
        notes.add(
            path,
            format!("OpenSSH's options are not carried over: {}", listed(&left, 10)),
            "write those that you need into ~/.ssh/config, which hactl reads",
        );
    }
    if unchecked {
        shared::unverified(path, notes);
    }
}

/// A port, in a mapping that may have one.
pub fn port(given: &Node, path: &str, notes: &mut Notes) -> Option<Said<u16>> {
    let text = given.get("port").and_then(Node::as_text)?;
    match text.trim().parse::<u16>() {
        Ok(port @ 1..) => Some(Said::new(port, "", format!("{path}.port"))),
        _ => {
            notes.add(
                format!("{path}.port"),
                format!("{} is not a port: left out", short(text)),
                "write a number from 1 to 65535 into the new inventory",
            );
            None
        }
    }
}

fn identity(key: Said, notes: &mut Notes) -> Option<Said> {
    if std::path::Path::new(&key.value).extension().is_some_and(|end| end == "pub") {
        notes.add(
            &key.place,
            "it names a public key, for the agent: left out",
            "load the private key into the agent, which hactl uses, or name its file under ssh.identity",
        );
        return None;
    }
    if key.value.contains('$') {
        notes.add(
            &key.place,
            "the path contains a variable, which hactl does not read: left out",
            "write the full path under ssh.identity",
        );
        return None;
    }
    shared::relative("keyPath", &key, notes);
    Some(key)
}

fn jump(bastion: &Node, path: &str, identity: Option<&Said>, notes: &mut Notes) -> Option<Said> {
    let address = bastion.word("address")?;
    // k0sctl's default, which differs from that of the host behind it.
    let user = bastion.word("user").unwrap_or("root");
    let port = bastion.word("port").filter(|port| *port != "22").map(|port| format!(":{port}")).unwrap_or_default();
    if let Some(key) = bastion.word("keyPath")
        && identity.is_none_or(|said| said.value != key)
    {
        notes.add(
            format!("{path}.keyPath"),
            format!("the bastion has its own key, and hactl would use that of the host behind it: {}", short(key)),
            format!("write into ~/.ssh/config: Host {}, below it IdentityFile {}", short(address), short(key)),
        );
    }
    if bastion.word("hostKey").is_some() {
        notes.add(
            format!("{path}.hostKey"),
            "the file contains the bastion's host key, and hactl expects it in known_hosts",
            "put the key into known_hosts",
        );
    }
    leave(bastion, path, "address user port keyPath hostKey", notes);
    Some(Said::new(format!("{user}@{address}{port}"), "", path))
}

/// Labels and taints in k0s' flags; other flags are only reported by name.
fn flags(node: &Node, path: &str, host: &mut Host, roles: &mut BTreeSet<Role>, notes: &mut Notes) {
    let place = format!("{path}.installFlags");
    let mut left = Vec::new();
    let words: Vec<&str> = node.items_of("installFlags").iter().filter_map(Node::as_text).collect();
    let mut words = words.iter().flat_map(|words| words.split_whitespace()).peekable();
    while let Some(word) = words.next() {
        let (flag, inline) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
        let takes = matches!(flag, "--labels" | "--taints");
        let value = match inline {
            Some(value) => value,
            None if takes => words.next().unwrap_or_default(),
            None => "",
        };
        let value = value.trim_matches(['"', '\'']);
        match flag {
            "--labels" => {
                for (key, value) in value.split(',').filter_map(|pair| pair.split_once('=')) {
                    let said = Said::new(value, "", place.as_str());
                    if key == "topology.kubernetes.io/zone" {
                        host.zone = Some(Said { key: key.to_owned(), ..said });
                    } else {
                        host.labels.insert(key.to_owned(), said);
                    }
                }
            }
            "--taints" => host
                .taints
                .extend(value.split(',').filter(|t| !t.is_empty()).map(|taint| Said::new(taint, "", place.as_str()))),
            "--no-taints" if inline != Some("false") => {
                roles.insert(Role::Worker);
            }
            "--enable-worker" | "--no-taints" => {}
            flag if flag.starts_with('-') => left.push(flag.to_owned()),
            _ => {}
        }
    }
    if !left.is_empty() {
        notes.add(
            place,
            format!("flags of k0s without an equivalent: {}", listed(&left, 10)),
            "check whether you need them; settings of Kubernetes go under `extra`",
        );
    }
}
