//! `hactl lab`: bare hosts on this machine, to try things and to break them.

use super::common::Common;
use crate::lab::{Base, HostState, Lab, LabError, Note, Spec, default_cache, default_root};
use crate::model::desired::Role;
use crate::process::ProcessError;
use crate::report::{Exit, FailureKind, Verdict};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Bare systemd hosts as LXC containers of this machine, with an inventory for `hactl up`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hactl lab up                            create three bare hosts and an inventory; print its path
  hactl up -i $(hactl lab inventory)      turn them into a cluster
  hactl lab kill cp1                      cut the power of cp1
  hactl lab wipe cp2                      erase the disks of cp2; it comes back bare
  hactl lab cut cp3                       disconnect cp3 from the network; `mend` reconnects it
  hactl lab down                          remove the lab completely")]
pub struct LabArgs {
    /// The verb
    #[command(subcommand)]
    pub verb: LabVerb,

    /// Name of the lab
    #[arg(long, global = true, default_value = "lab", value_name = "NAME")]
    pub name: String,

    /// The directory of all labs [default: $XDG_STATE_HOME/hactl/labs]
    #[arg(long, global = true, value_name = "DIR", env = "HACTL_LAB_DIR")]
    pub dir: Option<PathBuf>,
}

/// The verbs of the lab.
#[derive(Debug, Subcommand)]
pub enum LabVerb {
    /// Create the lab, or complete it: start hosts that are off, add new ones
    #[command(after_help = "Examples:
  hactl lab up
  hactl lab up --workers 2
  hactl lab --name b up --hosts 5
  hactl lab up --base debian-13                          Debian 13 on every host
  hactl lab up --base debian-12 --base cp2=debian-13     Debian 13 on cp2 only")]
    Up {
        /// Number of control-plane hosts, cp1..
        #[arg(long, default_value_t = 3, value_name = "N")]
        hosts: usize,
        /// Number of dedicated etcd hosts, etcd1..; the control-plane hosts then run no etcd
        #[arg(long, default_value_t = 0, value_name = "N")]
        etcd: usize,
        /// Number of dedicated load balancers, lb1..; the control-plane hosts then run none
        #[arg(long, default_value_t = 0, value_name = "N")]
        load_balancers: usize,
        /// Number of hosts with the role worker, w1..
        #[arg(long, default_value_t = 0, value_name = "N")]
        workers: usize,
        /// Number of hosts with the role spare, s1..
        #[arg(long, default_value_t = 0, value_name = "N")]
        spares: usize,
        /// Kubernetes version in the inventory
        #[arg(long, default_value = crate::inventory::DEFAULT_KUBERNETES, value_name = "VERSION")]
        kubernetes: String,
        /// System of each new host: debian-11, debian-12 or debian-13; HOST=BASE is for one host, and may be repeated
        #[arg(long, value_name = "BASE|HOST=BASE", default_value = Base::default().word(), value_parser = base)]
        base: Vec<(Option<String>, Base)>,
        /// Debian mirror for the base images, with debian and debian-security below it
        #[arg(long, value_name = "URL")]
        mirror: Option<String>,
        /// Seconds to wait for each host to answer
        #[arg(long, default_value_t = 90, value_name = "SECONDS")]
        boot_timeout: u64,
    },
    /// Remove the lab and everything that it created
    #[command(after_help = "Examples:\n  hactl lab down\n  hactl lab down --all --purge")]
    Down {
        /// Remove all labs of this machine
        #[arg(long)]
        all: bool,
        /// Also remove the cached base images that no lab uses; each takes a minute or more to build
        #[arg(long)]
        purge: bool,
        /// Keep the cached base images (the default)
        #[arg(long, conflicts_with = "purge")]
        keep_base: bool,
    },
    /// Show all labs and their hosts
    #[command(after_help = "Examples:\n  hactl lab list")]
    List,
    /// Create a network without hosts, for machines of another tool such as Vagrant; `down` removes it
    #[command(after_help = "Examples:\n  hactl lab --name vagrant network 200")]
    Network {
        /// The third octet: the network is 10.88.OCTET.0/24, and this machine is .1
        octet: u8,
    },
    /// Print the path of the lab's inventory
    #[command(after_help = "Examples:\n  hactl up -i $(hactl lab inventory)")]
    Inventory,
    /// Log in to a host as ops, or run a command there
    #[command(after_help = "Examples:\n  hactl lab ssh cp1\n  hactl lab ssh cp1 -- sudo journalctl -u etcd")]
    Ssh {
        /// The host
        host: String,
        /// The command; a shell if omitted
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Cut the power of a host
    #[command(after_help = "Examples:\n  hactl lab kill cp1")]
    Kill(OneHost),
    /// Power a host on, connected to the network
    #[command(after_help = "Examples:\n  hactl lab start cp1")]
    Start(OneHost),
    /// Disconnect a host from the network
    #[command(after_help = "Examples:\n  hactl lab cut cp1")]
    Cut(OneHost),
    /// Reconnect a host to the network
    #[command(after_help = "Examples:\n  hactl lab mend cp1")]
    Mend(OneHost),
    /// Cut the power of a host and erase its disks; it comes back bare, with its address and SSH host key
    #[command(after_help = "Examples:\n  hactl lab wipe cp2")]
    Wipe {
        /// The host
        host: String,
        /// Leave the host off
        #[arg(long)]
        stay_off: bool,
    },
}

#[derive(Debug, Args)]
pub struct OneHost {
    /// The host
    host: String,
}

/// How long `start` and `wipe` wait for a host.
const TIMEOUT: Duration = Duration::from_secs(90);

/// `BASE`, or `HOST=BASE`.
fn base(text: &str) -> Result<(Option<String>, Base), String> {
    let (host, word) = text.split_once('=').map_or((None, text), |(host, word)| (Some(host.to_owned()), word));
    let found = Base::ALL.into_iter().find(|base| base.word() == word);
    Ok((host, found.ok_or("write debian-11, debian-12 or debian-13, or HOST=debian-13 for one host")?))
}

/// Runs the verb and returns the exit code.
pub fn run(common: &Common, args: &LabArgs) -> Exit {
    act(args, common.json()).unwrap_or_else(|error| common.end(&Verdict::of(&FailureKind::Other, Some(&error))))
}

fn act(args: &LabArgs, json: bool) -> Result<Exit, LabError> {
    let root = match &args.dir {
        Some(dir) => std::path::absolute(dir).unwrap_or_else(|_| dir.clone()),
        None => default_root(),
    };
    let open = || Lab::open(&root, &args.name);
    let say = |note: &Note| tell!("{note}");
    match &args.verb {
        LabVerb::Up { hosts, etcd, load_balancers, workers, spares, kubernetes, base, mirror, boot_timeout } => {
            let spec = Spec::new(&args.name).machines(|role| match role {
                Role::ControlPlane => *hosts,
                Role::Etcd => *etcd,
                Role::LoadBalancer => *load_balancers,
                Role::Worker => *workers,
                Role::Spare => *spares,
            });
            let mut spec = spec.bases(base)?;
            spec.root = root;
            spec.kubernetes.clone_from(kubernetes);
            spec.mirror.clone_from(mirror);
            spec.timeout = Duration::from_secs(*boot_timeout);
            let begun = Instant::now();
            let lab = Lab::up(&spec, &say)?;
            tell!("lab {}: up in {:.1} s", lab.name(), begun.elapsed().as_secs_f64());
            say!("{}", lab.inventory().display());
        }
        LabVerb::Down { all, purge, keep_base: _ } => {
            let labs = match open() {
                _ if *all => Lab::all(&root)?,
                Ok(lab) => vec![lab],
                // Down already, so there is nothing to do.
                Err(LabError::NoLab { .. }) => Vec::new(),
                Err(e) => return Err(e),
            };
            if labs.is_empty() {
                tell!("there is no lab in {}", root.display());
            }
            for lab in &labs {
                lab.down(&say)?;
            }
            if *purge {
                Lab::purge(&root, &default_cache(), &say)?;
            }
        }
        LabVerb::Network { octet } => {
            let lab = Lab::network_alone(&root, &args.name, *octet, &say)?;
            say!("{}", lab.bridge());
        }
        LabVerb::List => list(&Lab::all(&root)?, json)?,
        LabVerb::Inventory => say!("{}", open()?.inventory().display()),
        LabVerb::Ssh { host, command } => return ssh(&open()?, host, command),
        LabVerb::Kill(OneHost { host }) => {
            open()?.kill(host)?;
            tell!("{host}: off");
        }
        LabVerb::Start(OneHost { host }) => start(&open()?, host)?,
        LabVerb::Cut(OneHost { host }) => {
            open()?.cut(host)?;
            tell!("{host}: disconnected");
        }
        LabVerb::Mend(OneHost { host }) => {
            open()?.mend(host)?;
            tell!("{host}: reconnected");
        }
        LabVerb::Wipe { host, stay_off } => {
            let lab = open()?;
            lab.wipe(host)?;
            tell!("{host}: off, its disks are erased");
            if !stay_off {
                start(&lab, host)?;
            }
        }
    }
    Ok(Exit::Done)
}

fn start(lab: &Lab, host: &str) -> Result<(), LabError> {
    let begun = Instant::now();
    lab.start(host, TIMEOUT)?;
    tell!("{host}: up at {} in {:.1} s", lab.address(host)?, begun.elapsed().as_secs_f64());
    Ok(())
}

fn ssh(lab: &Lab, host: &str, command: &[String]) -> Result<Exit, LabError> {
    let mut ssh = lab.ssh(host)?;
    ssh.args(command).stdin(Stdio::inherit());
    let status = ssh.status().map_err(|source| ProcessError::Spawn { command: format!("ssh {host}"), source })?;
    // 255 for a command that was ended by a signal.
    Ok(Exit::Program(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255)))
}

fn list(labs: &[Lab], as_json: bool) -> Result<(), LabError> {
    if as_json {
        let one = |lab: &Lab| {
            Ok(json!({
                "name": lab.name(), "dir": lab.dir(), "network": lab.network(), "vip": lab.vip(),
                "inventory": lab.inventory(), "hosts": lab.states()?,
            }))
        };
        say!("{:#}", labs.iter().map(one).collect::<Result<serde_json::Value, LabError>>()?);
        return Ok(());
    }
    if labs.is_empty() {
        tell!("no labs: `hactl lab up` creates one");
        return Ok(());
    }
    say!("{:<16} {:<16} {:<16} {:<10} {:<8} ROLES", "LAB", "HOST", "ADDRESS", "BASE", "STATE");
    for lab in labs {
        if lab.hosts().next().is_none() {
            say!("{:<16} {:<16} {:<16} {:<10} {:<8} -", lab.name(), "-", lab.network(), "-", "network");
        }
        for host in lab.states()? {
            let roles = host.roles.iter().map(Role::to_string).collect::<Vec<_>>().join(", ");
            let (name, base) = (lab.name(), host.base.word());
            say!("{name:<16} {:<16} {:<16} {base:<10} {:<8} {roles}", host.name, host.address, word(&host));
        }
    }
    Ok(())
}

fn word(host: &HostState) -> &'static str {
    match (host.running, host.cut) {
        (false, _) => "off",
        (true, true) => "cut",
        (true, false) => "running",
    }
}
