//! The file that `inventory init` writes: complete, and commented so that it can be edited without a manual.
//!
//! In: the user's flags. Out: YAML text that passes every rule.

use super::defaults::DEFAULT_KUBERNETES;
use crate::model::names::{BadName, ClusterName, HostName};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The user's flags.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Its name.
    pub cluster: Option<String>,
    /// The virtual address.
    pub vip: Option<String>,
    /// Hosts: addresses, names, or NAME=ADDRESS.
    pub hosts: Vec<String>,
}

/// Why a starter file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A name violates a rule.
    #[error("{0}")]
    Name(#[from] BadName),
    /// A text is not an address.
    #[error("{what} {text:?} is not an IPv4 address")]
    Address {
        /// The flag.
        what: &'static str,
        /// The text.
        text: String,
    },
}

/// A starter file, and what its reader must still edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starter {
    /// The YAML.
    pub text: String,
    /// The keys to edit.
    pub edit: Vec<String>,
}

/// Writes a starter file.
pub fn starter(start: &Start) -> Result<Starter, StartError> {
    let mut edit = Vec::new();
    let cluster: ClusterName = start.cluster.as_deref().unwrap_or("lab").parse()?;
    let mut hosts: Vec<(HostName, Option<Ipv4Addr>)> = Vec::new();
    for (index, text) in start.hosts.iter().enumerate() {
        hosts.push(host(index, text)?);
    }
    if hosts.is_empty() {
        edit.push("hosts: the names and addresses of your machines".to_owned());
        for index in 0..3_u8 {
            hosts.push((format!("cp{}", index + 1).parse()?, Some(Ipv4Addr::new(192, 0, 2, 11 + index))));
        }
    }
    let vip = match start.vip.as_deref() {
        Some(text) => {
            text.parse::<Ipv4Addr>().map_err(|_| StartError::Address { what: "--vip", text: text.to_owned() })?
        }
        None => {
            edit.push("endpoint.vip: a free address of the hosts' network, outside any DHCP range".to_owned());
            free_address(&hosts)
        }
    };
    if hosts.iter().any(|(_, address)| address.is_none()) {
        edit.push("hosts[].address: certificates and etcd require addresses, not names".to_owned());
    }
    edit.push("ssh.user and ssh.identity: the login user and its key".to_owned());
    Ok(Starter { text: render(&cluster, vip, &hosts), edit })
}

fn host(index: usize, text: &str) -> Result<(HostName, Option<Ipv4Addr>), StartError> {
    let text = text.trim();
    let address = |text: &str| text.parse::<Ipv4Addr>().ok();
    if let Some((name, rest)) = text.split_once('=') {
        let found = address(rest).ok_or_else(|| StartError::Address { what: "--hosts", text: rest.to_owned() })?;
        return Ok((name.parse()?, Some(found)));
    }
    match address(text) {
        Some(found) => Ok((format!("cp{}", index + 1).parse()?, Some(found))),
        None => Ok((text.parse()?, None)),
    }
}

/// An address near those of the hosts that no host has.
fn free_address(hosts: &[(HostName, Option<Ipv4Addr>)]) -> Ipv4Addr {
    let taken: Vec<Ipv4Addr> = hosts.iter().filter_map(|(_, address)| *address).collect();
    let [a, b, c, _] = taken.first().copied().unwrap_or(Ipv4Addr::new(192, 0, 2, 1)).octets();
    (1..=254)
        .rev()
        .map(|d| Ipv4Addr::new(a, b, c, d))
        .find(|ip| *ip != Ipv4Addr::new(a, b, c, 254) && !taken.contains(ip))
        .unwrap_or(Ipv4Addr::new(192, 0, 2, 100))
}

fn render(cluster: &ClusterName, vip: Ipv4Addr, hosts: &[(HostName, Option<Ipv4Addr>)]) -> String {
    let taken: Vec<Ipv4Addr> = hosts.iter().filter_map(|(_, address)| *address).chain([vip]).collect();
    let mut spare = (11..=254).map(|d| Ipv4Addr::new(192, 0, 2, d)).filter(|ip| !taken.contains(ip));
    let mut text = format!(
        "\
# Inventory of the cluster {cluster}. `hactl inventory check FILE` validates it, `hactl up -i FILE` applies it.
# Every key is explained in docs/inventory.md; `hactl inventory schema` prints a JSON Schema for editors.
schema: 1
cluster: {cluster}

versions:
  kubernetes: \"{DEFAULT_KUBERNETES}\"              # always in quotes

# Where clients reach the API: an address that no machine has. It moves between the load balancers.
# With a load balancer of your own write `external: api.example.org:6443` instead.
endpoint:
  vip: {vip}

# SSH to the hosts; hactl takes missing settings from ~/.ssh/config. The user is root, or may use sudo.
ssh:
  user: root
  # identity: ~/.ssh/id_ed25519        # default: the agent and the usual files
  # known_hosts: ./known_hosts         # default: ~/.ssh/known_hosts

# name: the Node's name. address: components bind it and put it into certificates.
# roles: control-plane, etcd, load-balancer, worker; or only spare. An odd number of etcd members: 3 or 5.
hosts:
"
    );
    let voters = match hosts.len() {
        0..=2 => 1,
        3 | 4 => 3,
        _ => 5,
    };
    for (index, (name, address)) in hosts.iter().enumerate() {
        let roles = if hosts.len() == 1 {
            "control-plane, etcd, load-balancer, worker"
        } else if index < voters.max(3) && index < 5 {
            if index < voters { "control-plane, etcd, load-balancer" } else { "control-plane, load-balancer" }
        } else {
            "worker"
        };
        let note = if address.is_some() { "" } else { "                # edit: its real address" };
        let address = address.or_else(|| spare.next()).unwrap_or(Ipv4Addr::new(192, 0, 2, 1));
        let _ = write!(text, "  - name: {name}\n    address: {address}{note}\n    roles: [{roles}]\n");
        if index == 0 {
            text.push_str("    # ssh: {host: cp1.mgmt, port: 2222}   # if SSH uses another address\n");
            text.push_str("    # zone: rack-a\n");
        }
    }
    text.push_str(
        "
# Ranges for pods and services: they must not overlap with your networks.
network:
  pods: 10.244.0.0/16                    # each Node gets a /24
  services: 10.96.0.0/12

# Each etcd host takes a snapshot every 15 minutes, and keeps the newest of the others. Copies outside the cluster
# survive the loss of all hosts: name a mounted share or object storage (docs/disaster-recovery.md).
snapshots:
  to: []                                 # for example [/mnt/backup, s3://backups/hactl]

# Guards on the hosts of the control plane detect faults and report them in `hactl status`; with `on` they also
# repair their own host (docs/healing.md). `watch` only reports, `off` removes them.
healing: on
",
    );
    text
}
