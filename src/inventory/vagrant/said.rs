//! Parsers for the output of Vagrant and its machines: machine-readable status, OpenSSH configuration, addresses.
//!
//! In: their output. Out: machines, their SSH settings, addresses. Unknown lines are ignored, because Vagrant and its
//! plugins add more of them with every version.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A machine of a Vagrantfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    /// Its name in the Vagrantfile.
    pub(super) name: String,
    /// Its provider: lxc, libvirt, virtualbox.
    pub(super) provider: String,
    /// Its state in the provider's terms.
    pub(super) state: String,
}

impl Machine {
    /// Whether it can be logged in to.
    pub(super) fn runs(&self) -> bool {
        self.state == "running"
    }
    /// Whether the machine has been created.
    pub(super) fn is_made(&self) -> bool {
        self.state != "not_created"
    }
}

/// Vagrant's SSH settings of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Way {
    /// Name or address.
    pub(super) host: String,
    /// Port of sshd.
    pub(super) port: u16,
    /// User.
    pub(super) user: String,
    /// Private key file, the first if there are several.
    pub(super) identity: Option<PathBuf>,
}

/// The machines of `vagrant status --machine-readable`, in the Vagrantfile's order: `TIME,MACHINE,TYPE,DATA...`.
pub(super) fn machines(text: &str) -> Vec<Machine> {
    let mut found: Vec<Machine> = Vec::new();
    for line in text.lines() {
        let words: Vec<String> = line.split(',').map(plain).collect();
        let [_, name, kind, data, ..] = words.as_slice() else { continue };
        if name.is_empty() || !matches!(kind.as_str(), "provider-name" | "state") {
            continue;
        }
        if found.iter().all(|machine| machine.name != *name) {
            found.push(Machine { name: name.clone(), provider: String::new(), state: String::new() });
        }
        for machine in found.iter_mut().filter(|machine| machine.name == *name) {
            let field = if kind == "state" { &mut machine.state } else { &mut machine.provider };
            field.clone_from(data);
        }
    }
    found
}

/// Vagrant's error message in its machine-readable output.
pub(super) fn error(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let words: Vec<String> = line.split(',').map(plain).collect();
        match words.as_slice() {
            [_, _, kind, _, said @ ..] if kind == "error-exit" && !said.is_empty() => {
                Some(said.join(",").trim().to_owned())
            }
            _ => None,
        }
    })
}

/// A field without Vagrant's escapes.
fn plain(word: &str) -> String {
    word.replace("%!(VAGRANT_COMMA)", ",").replace("\\n", "\n").replace("\\r", "")
}

/// The SSH settings of `vagrant ssh-config`, by machine.
pub(super) fn ways(text: &str) -> BTreeMap<String, Way> {
    let mut found = BTreeMap::new();
    let mut name: Option<String> = None;
    for line in text.lines() {
        let Some((key, value)) = line.trim().split_once(char::is_whitespace) else { continue };
        let value = value.trim().trim_matches('"');
        if key.eq_ignore_ascii_case("Host") {
            let way = Way { host: String::new(), port: 22, user: "vagrant".to_owned(), identity: None };
            found.insert(value.to_owned(), way);
            name = Some(value.to_owned());
            continue;
        }
        let Some(way) = name.as_ref().and_then(|name| found.get_mut(name)) else { continue };
        match key.to_ascii_lowercase().as_str() {
            "hostname" => value.clone_into(&mut way.host),
            "user" => value.clone_into(&mut way.user),
            "port" => way.port = value.parse().unwrap_or(way.port),
            "identityfile" if way.identity.is_none() => way.identity = Some(PathBuf::from(value)),
            _ => {}
        }
    }
    found.retain(|_, way| !way.host.is_empty());
    found
}

/// Name prefixes of interfaces for a machine's own containers, which do not reach other machines.
const INSIDE: [&str; 8] = ["cni", "flannel", "docker", "veth", "br-", "virbr", "kube-", "cali"];

/// The addresses of `ip -4 -o addr show scope global`, without secondary ones, such as virtual addresses.
pub(super) fn addresses(text: &str) -> Vec<Ipv4Net> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let interface = line.split_whitespace().nth(1)?;
        if INSIDE.iter().any(|name| interface.starts_with(name)) {
            return None;
        }
        let address: Ipv4Net = words.by_ref().skip_while(|word| *word != "inet").nth(1)?.parse().ok()?;
        let secondary = words.any(|word| word == "secondary");
        (!secondary).then_some(address)
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_listed_with_provider_and_state_in_the_vagrantfiles_order() {
        let text = "1,w1,metadata,provider,lxc\n1,w1,provider-name,lxc\n1,w1,state,running\n1,w1,state-human-long,a%!(VAGRANT_COMMA) b\n\
                    2,cp1,provider-name,lxc\n2,cp1,state,not_created\n3,,ui,info,Current machine states:\\n\\nw1 running (lxc)\n";
        let found = machines(text);
        assert_eq!(found.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["w1", "cp1"]);
        assert_eq!((found[0].provider.as_str(), found[0].runs(), found[1].is_made()), ("lxc", true, false));
    }

    #[test]
    fn vagrants_own_error_is_taken_from_its_output() {
        let text = "1,,ui,error,x\n1,,error-exit,Vagrant::Errors::NoDefaultProvider,No usable default provider%!(VAGRANT_COMMA)\\nsorry.\n";
        assert_eq!(error(text).as_deref(), Some("No usable default provider,\nsorry."));
        assert_eq!(error("1,cp1,state,running\n"), None);
    }

    #[test]
    fn an_ssh_connection_has_the_first_key_without_quotes() {
        let text = "Host cp1\n  HostName 127.0.0.1\n  User vagrant\n  Port 2222\n  IdentityFile \"/a b/key\"\n  IdentityFile /c\n\nHost cp2\n  User x\n";
        let found = ways(text);
        let way =
            Way { host: "127.0.0.1".into(), port: 2222, user: "vagrant".into(), identity: Some("/a b/key".into()) };
        assert_eq!(found, BTreeMap::from([("cp1".to_owned(), way)]));
    }

    #[test]
    fn addresses_that_wander_or_are_for_pods_alone_are_none_of_the_machine() {
        let text = "2: eth0    inet 10.0.2.15/24 brd 10.0.2.255 scope global dynamic eth0\\       valid_lft 1sec\n\
                    3: eth1    inet 10.88.200.11/24 brd 10.88.200.255 scope global eth1\\ x\n\
                    3: eth1    inet 10.88.200.100/24 scope global secondary eth1\\ x\n\
                    4: flannel.1    inet 10.244.0.0/32 scope global flannel.1\\ x\n\
                    5: cni0    inet 10.244.0.1/24 brd 10.244.0.255 scope global cni0\\ x\n";
        let found: Vec<_> = addresses(text)
            .into_iter()
            .map(|a| (a.addr().to_string(), a.network().to_string(), a.prefix_len()))
            .collect();
        let expected = [("10.0.2.15", "10.0.2.0", 24), ("10.88.200.11", "10.88.200.0", 24)];
        assert_eq!(found, expected.map(|(ip, network, prefix)| (ip.to_owned(), network.to_owned(), prefix)));
    }
}
