//! An inventory from a Vagrantfile: its machines, as Vagrant reports them.
//!
//! In: the Vagrantfile's folder. Out: an inventory's text, or [`VagrantError`]. hactl runs Vagrant twice, for the
//! states of the machines and for the SSH settings of the running ones; it reads the addresses from the machines,
//! because Vagrant does not know them. A machine's name determines its role by the topology, unless a flag sets it.

mod memory;
mod network;
mod said;
mod text;

use super::topology::topology;
use crate::model::desired::Role;
use crate::model::names::{BadName, HostName};
use crate::process::{ProcessError, Run};
use ipnet::Ipv4Net;
use memory::{Known, Memory};
use network::Seen;
use said::{Machine, Way};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Default name of the cluster and of its state directory.
pub const CLUSTER: &str = "vagrant";
/// Vagrant starts Ruby with all its plugins, and providers check every machine.
const TIMEOUT: Duration = Duration::from_mins(2);
/// A machine that runs answers within seconds.
const LOGIN: Duration = Duration::from_secs(20);

/// Why there is no inventory; the path is the Vagrantfile's folder, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum VagrantError {
    /// No Vagrantfile.
    #[error("there is no Vagrantfile in {}\n  do: name the folder of one, as in `-i vagrant:DIR`", .0.display())]
    NoVagrantfile(PathBuf),
    /// No Vagrant.
    #[error(
        "Vagrant is not installed here; hactl needs it to find the machines of {}\n  \
         do: install it (`apt-get install -y vagrant`, and a provider such as vagrant-lxc), or use an inventory file",
        .0.display()
    )]
    NoVagrant(PathBuf),
    /// Vagrant failed, with this message.
    #[error(
        "Vagrant cannot list its machines in {}:\n{}\n  \
         do: make `vagrant status` work in that folder",
        .0.display(), .1
    )]
    Failed(PathBuf, String),
    /// It did not answer, or could not be run.
    #[error(
        "cannot run Vagrant in {}: {}\n  \
         do: check that `vagrant status` ends in that folder; another running Vagrant blocks it",
        .0.display(), .1
    )]
    Process(PathBuf, #[source] ProcessError),
    /// No machine exists yet.
    #[error("no machine of {} has been created yet\n  do: `vagrant up` in that folder", .0.display())]
    NothingMade(PathBuf),
    /// These machines, each with its state, were never seen running.
    #[error(
        "{} in {}: not running, and the address is unknown because hactl has not seen it running\n  \
         do: `vagrant up` in that folder, or remove the machine from the Vagrantfile",
        .1.join(", "), .0.display()
    )]
    NeverSeen(PathBuf, Vec<String>),
    /// A machine that runs cannot be logged in to: OpenSSH's message.
    #[error(
        "{machine} in {} is running, but SSH with Vagrant's settings fails: {said}\n  \
         do: make `vagrant ssh {machine}` work",
        .dir.display()
    )]
    NoLogin {
        /// The folder.
        dir: PathBuf,
        /// The machine.
        machine: String,
        /// OpenSSH's message.
        said: String,
    },
    /// No network in common: each machine with its addresses.
    #[error(
        "the machines of {} have no network in common: {}\n  \
         do: set an address in one network for each in the Vagrantfile: `machine.vm.network :private_network, ip: \
         \"10.88.200.11\"`",
        .0.display(), .1.join("; ")
    )]
    NoNetwork(PathBuf, Vec<String>),
    /// The names of these machines do not determine their roles.
    #[error(
        "{} in {}: the name does not determine the role of the machine\n  \
         do: set it with `hactl inventory import vagrant {} --role {}=worker > hactl.yaml` (roles: control-plane, \
         etcd, load-balancer, worker, spare), or name machines cp1, etcd1, lb1, w1",
        .1.join(", "), .0.display(), .0.display(), .1.first().map_or("", String::as_str)
    )]
    NoRole(PathBuf, Vec<String>),
    /// `--role` names a machine that does not exist.
    #[error("--role names {machine}, and {} has no such machine: it has {}", .dir.display(), .machines.join(", "))]
    NoSuchMachine {
        /// The folder.
        dir: PathBuf,
        /// The name.
        machine: String,
        /// The machines.
        machines: Vec<String>,
    },
    /// A machine's name cannot be a Node's.
    #[error(
        "the name of a machine of {} cannot be a Node's: {}\n  \
         do: rename it in the Vagrantfile",
        .0.display(), .1
    )]
    Name(PathBuf, #[source] BadName),
    /// This file with the recorded machines cannot be read.
    #[error(
        "{} is not a valid file of hactl: {}\n  \
         do: remove it; hactl finds running machines again",
        .0.display(), .1
    )]
    Memory(PathBuf, #[source] serde_json::Error),
    /// A file operation failed.
    #[error(
        "could not {action} {}: {source}\n  \
         do: make sure that you can write to Vagrant's folder there",
        .path.display()
    )]
    Io {
        /// The action.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VagrantError + use<> {
    let path = path.to_owned();
    move |source| VagrantError::Io { action, path, source }
}

/// The user's flags.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// The API's virtual address.
    pub vip: Option<Ipv4Addr>,
    /// Roles of machines by name.
    pub roles: BTreeMap<String, Vec<Role>>,
}

/// The inventory of the machines in a Vagrantfile's folder.
///
/// # Errors
/// When Vagrant fails, a machine was never seen running, or names and networks are not sufficient.
pub fn inventory(dir: &Path, wishes: &Wishes) -> Result<String, VagrantError> {
    let dir = &std::path::absolute(dir).map_err(io_error("find", dir))?;
    if !dir.join("Vagrantfile").is_file() {
        return Err(VagrantError::NoVagrantfile(dir.clone()));
    }
    let data = dir.join(std::env::var_os("VAGRANT_DOTFILE_PATH").unwrap_or_else(|| ".vagrant".into()));
    let machines = status(dir)?;
    let before = memory::load(&data)?;
    let now = look(dir, &machines, &before)?;
    memory::save(&data, &before, &now)?;
    let roles = roles(dir, &machines, wishes)?;
    let hosts = machines
        .iter()
        .zip(roles)
        .filter_map(|(machine, roles)| now.get(&machine.name).map(|known| (machine, roles, known)));
    let hosts =
        hosts.map(|(machine, roles, known)| host(dir, &data, machine, roles, known)).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<Ipv4Net> = now.values().map(Known::net).collect();
    let draft = text::Draft {
        dir,
        cluster: wishes.cluster.as_deref().unwrap_or(CLUSTER),
        vip: wishes.vip.unwrap_or_else(|| free(&addresses)),
        containers: machines.iter().any(|machine| machine.provider == "lxc"),
        hosts,
    };
    Ok(text::render(&draft))
}

/// Runs Vagrant and returns its standard output.
fn ask(dir: &Path, words: &[&str]) -> Result<String, VagrantError> {
    let mut command = Command::new("vagrant");
    command.args(words).current_dir(dir).env("VAGRANT_CHECKPOINT_DISABLE", "1");
    // These have precedence over the current directory: the user may have set them for other machines.
    command.env("VAGRANT_CWD", dir).env_remove("VAGRANT_VAGRANTFILE");
    let asked = Run::from(command).timeout(TIMEOUT).output();
    let output = asked.map_err(|source| match &source {
        ProcessError::Spawn { source: why, .. } if why.kind() == io::ErrorKind::NotFound => {
            VagrantError::NoVagrant(dir.to_owned())
        }
        _ => VagrantError::Process(dir.to_owned(), source),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = said::error(&output.stdout).unwrap_or_else(|| crate::process::tail(&output.stderr));
    Err(VagrantError::Failed(dir.to_owned(), said))
}

/// The machines, of which at least one exists.
fn status(dir: &Path) -> Result<Vec<Machine>, VagrantError> {
    let machines = said::machines(&ask(dir, &["status", "--machine-readable"])?);
    if machines.iter().any(Machine::is_made) { Ok(machines) } else { Err(VagrantError::NothingMade(dir.to_owned())) }
}

/// The records of all machines: new ones of running machines, the recorded ones of the others and of running machines
/// that do not answer. Such a machine is still a host of the cluster, and the cluster's commands report it.
fn look(dir: &Path, machines: &[Machine], before: &Memory) -> Result<Memory, VagrantError> {
    let running: Vec<&str> = machines.iter().filter(|m| m.runs()).map(|m| m.name.as_str()).collect();
    let mut now: Memory = Memory::new();
    if !running.is_empty() {
        let mut words = vec!["ssh-config"];
        words.extend(&running);
        let ways = said::ways(&ask(dir, &words)?);
        let asked: Vec<(&str, &Way)> =
            running.iter().filter_map(|name| ways.get(*name).map(|way| (*name, way))).collect();
        now = seen(dir, &asked, before)?;
    }
    // If a lab was created again in another network, the previous records are void.
    let network = now.values().next().map(|known| known.net().trunc());
    let known = |name: &String| before.get(name).filter(|k| network.is_none_or(|n| k.net().trunc() == n));
    let unknown = |m: &&Machine| !now.contains_key(&m.name) && known(&m.name).is_none();
    let missing: Vec<String> =
        machines.iter().filter(unknown).map(|m| format!("{} ({})", m.name, m.state.replace('_', " "))).collect();
    if !missing.is_empty() {
        return Err(VagrantError::NeverSeen(dir.to_owned(), missing));
    }
    for machine in machines {
        if let (None, Some(known)) = (now.get(&machine.name), known(&machine.name)) {
            now.insert(machine.name.clone(), known.clone());
        }
    }
    Ok(now)
}

/// The records of running machines, without recorded machines that do not answer.
fn seen(dir: &Path, machines: &[(&str, &Way)], before: &Memory) -> Result<Memory, VagrantError> {
    let said: Vec<Result<String, VagrantError>> = std::thread::scope(|threads| {
        let asked: Vec<_> = machines.iter().map(|(name, way)| threads.spawn(move || login(dir, name, way))).collect();
        asked.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (mut seen, mut ways) = (Vec::new(), Vec::new());
    for ((name, way), said) in machines.iter().zip(said) {
        let known = before.get(*name);
        match said {
            Err(_) if known.is_some() => {}
            said => {
                let (login, addresses) = (way.host.parse().ok(), said::addresses(&said?));
                seen.push(Seen { name, login, before: known.map(|known| known.address), addresses });
                ways.push((*way).clone());
            }
        }
    }
    if seen.is_empty() {
        return Ok(Memory::new());
    }
    match network::common(&seen) {
        Some(found) => {
            let known = |((seen, way), at): ((&Seen<'_>, Way), Ipv4Net)| {
                (seen.name.to_owned(), Known { address: at.addr(), prefix: at.prefix_len(), way })
            };
            Ok(seen.iter().zip(ways).zip(found).map(known).collect())
        }
        // All are recorded: the cluster's commands report problems with their network.
        None if seen.iter().all(|seen| seen.before.is_some()) => Ok(Memory::new()),
        None => {
            let one = |seen: &Seen<'_>| {
                let all: Vec<String> = seen.addresses.iter().map(Ipv4Net::to_string).collect();
                format!("{} has {}", seen.name, all.join(" and "))
            };
            Err(VagrantError::NoNetwork(dir.to_owned(), seen.iter().map(one).collect()))
        }
    }
}

/// A machine's addresses as it reports them. This login uses Vagrant's settings, without host key verification, and
/// does nothing else; hactl's own connections verify host keys.
fn login(dir: &Path, name: &str, way: &Way) -> Result<String, VagrantError> {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR"]);
    ssh.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-p"]);
    ssh.arg(way.port.to_string());
    if let Some(identity) = &way.identity {
        ssh.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(identity);
    }
    ssh.args(["-l", &way.user, "--", &way.host, "ip -4 -o addr show scope global"]);
    Run::from(ssh).timeout(LOGIN).ok().map_err(|error| {
        let said = match error {
            ProcessError::Failed { tail, .. } => tail.lines().last().unwrap_or_default().to_owned(),
            other => other.to_string(),
        };
        VagrantError::NoLogin { dir: dir.to_owned(), machine: name.to_owned(), said }
    })
}

/// The roles of each machine.
fn roles(dir: &Path, machines: &[Machine], wishes: &Wishes) -> Result<Vec<Vec<Role>>, VagrantError> {
    let names = || machines.iter().map(|m| m.name.clone()).collect::<Vec<String>>();
    if let Some(machine) = wishes.roles.keys().find(|name| machines.iter().all(|m| m.name != **name)) {
        return Err(VagrantError::NoSuchMachine { dir: dir.to_owned(), machine: machine.clone(), machines: names() });
    }
    let by_name = |machine: &Machine| match machines {
        // A single machine is the whole cluster, whatever its name.
        [_] => Some(Role::ControlPlane),
        _ => topology().role_of(&machine.name),
    };
    let there: Vec<Role> = machines
        .iter()
        .flat_map(|m| wishes.roles.get(&m.name).cloned().unwrap_or_else(|| by_name(m).into_iter().collect()))
        .collect();
    let roles: Vec<Option<Vec<Role>>> = machines
        .iter()
        .map(|m| wishes.roles.get(&m.name).cloned().or_else(|| by_name(m).map(|role| topology().roles(role, &there))))
        .collect();
    let silent = machines.iter().zip(&roles).filter(|(_, roles)| roles.is_none());
    let silent: Vec<String> = silent.map(|(machine, _)| machine.name.clone()).collect();
    if silent.is_empty() {
        Ok(roles.into_iter().flatten().collect())
    } else {
        Err(VagrantError::NoRole(dir.to_owned(), silent))
    }
}

/// A machine as a host of the inventory; its host keys are in the folder that Vagrant empties when it destroys the
/// machine.
fn host(
    dir: &Path,
    data: &Path,
    machine: &Machine,
    roles: Vec<Role>,
    known: &Known,
) -> Result<text::Host, VagrantError> {
    let name = machine.name.to_ascii_lowercase().replace(['_', '.'], "-");
    let name: HostName = name.parse().map_err(|source| VagrantError::Name(dir.to_owned(), source))?;
    let folder = data.join("machines").join(&machine.name).join(&machine.provider);
    let known_hosts = folder.join("hactl_known_hosts");
    if !known_hosts.exists() {
        std::fs::create_dir_all(&folder).map_err(io_error("make", &folder))?;
        std::fs::write(&known_hosts, "").map_err(io_error("write", &known_hosts))?;
    }
    let mut way = known.way.clone();
    // Vagrant deletes the key of a machine that it destroys.
    way.identity = way.identity.filter(|identity| machine.runs() || identity.exists());
    let off = (!machine.runs()).then(|| machine.state.replace('_', " "));
    Ok(text::Host { name: name.to_string(), address: known.address, roles, way, known_hosts, off })
}

/// The topology's API address in the machines' network, or another one that no machine has.
fn free(taken: &[Ipv4Net]) -> Ipv4Addr {
    let network = taken.first().copied().unwrap_or(Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 24));
    let (base, hosts) = (u32::from(network.network()), u32::from(network.hostmask()));
    let wanted = u32::from(topology().vip);
    // Neither the network address nor the broadcast address; the first and the last host are often routers.
    let all = std::iter::once(wanted).chain((2..hosts.saturating_sub(1).min(65_534)).rev());
    let mut all = all.filter(|at| *at > 1 && at.saturating_add(1) < hosts).map(|at| Ipv4Addr::from(base | at));
    let not_free = |address: &Ipv4Addr| *address == VIRTUALBOX_DHCP || taken.iter().any(|t| t.addr() == *address);
    all.find(|address| !not_free(address)).unwrap_or(Ipv4Addr::from(base | wanted))
}

/// The DHCP server in VirtualBox's default host-only network.
const VIRTUALBOX_DHCP: Ipv4Addr = Ipv4Addr::new(192, 168, 56, 100);

#[cfg(test)]
mod tests {
    use super::*;

    fn machines(names: &[&str]) -> Vec<Machine> {
        let one = |name: &&str| Machine { name: (*name).to_owned(), provider: "lxc".into(), state: "running".into() };
        names.iter().map(one).collect()
    }

    #[test]
    fn names_determine_roles_and_one_machine_is_the_whole_cluster() {
        let stated = |names: &[&str]| roles(Path::new("/v"), &machines(names), &Wishes::default());
        let all = [Role::ControlPlane, Role::Etcd, Role::LoadBalancer];
        assert_eq!(stated(&["cp1", "w1"]).unwrap(), [all.to_vec(), vec![Role::Worker]]);
        assert_eq!(stated(&["default"]).unwrap(), [all.to_vec()]);
        assert_eq!(
            stated(&["cp1", "etcd1"]).unwrap(),
            [vec![Role::ControlPlane, Role::LoadBalancer], vec![Role::Etcd]]
        );
        let error = stated(&["cp1", "alice", "bob"]).unwrap_err().to_string();
        assert!(
            error.starts_with("alice, bob in /v: the name does not determine") && error.contains("--role alice=worker"),
            "{error}"
        );
    }

    #[test]
    fn explicit_roles_take_precedence() {
        let wish = |name: &str, roles: &[Role]| Wishes {
            roles: [(name.to_owned(), roles.to_vec())].into(),
            ..Wishes::default()
        };
        let stated =
            roles(Path::new("/v"), &machines(&["cp1", "alice"]), &wish("alice", &[Role::Etcd, Role::Worker])).unwrap();
        assert_eq!(stated, [vec![Role::ControlPlane, Role::LoadBalancer], vec![Role::Etcd, Role::Worker]]);
        let error = roles(Path::new("/v"), &machines(&["cp1"]), &wish("eve", &[Role::Worker])).unwrap_err().to_string();
        assert_eq!(error, "--role names eve, and /v has no such machine: it has cp1");
    }

    #[test]
    fn the_virtual_address_is_no_machines() {
        let of = |text: &str, prefix| Ipv4Net::new(text.parse().unwrap(), prefix).unwrap();
        let chosen = |all: &[Ipv4Net]| free(all).to_string();
        assert_eq!(chosen(&[of("10.88.200.11", 24), of("10.88.200.12", 24)]), "10.88.200.100");
        assert_eq!(chosen(&[of("10.88.200.100", 24), of("10.88.200.12", 24)]), "10.88.200.253");
        assert_eq!(chosen(&[of("192.168.57.18", 28), of("192.168.57.29", 28)]), "192.168.57.28", "within the network");
        assert_eq!(chosen(&[of("192.168.56.11", 24)]), "192.168.56.253", "not the DHCP server there");
    }
}
