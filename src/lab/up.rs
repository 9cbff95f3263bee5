//! Creates or completes a lab: existing parts stay unchanged.

use super::Lab;
use super::error::{LabError, Result};
use super::files::{self, Lock};
use super::host::Host;
use super::machine::{self, Entry, Machine};
use super::network::{self, Network};
use super::progress::{Note, Progress};
use super::record::{self, Base, HostSpec, Record, Spec};
use super::{base, inventory, ssh};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// All steps of `lab up`, in order.
pub(crate) fn up(spec: &Spec, progress: &dyn Progress) -> Result<Lab> {
    spec.check()?;
    machine::check()?;
    let dir = spec.root.join(&spec.name);
    let _lock = Lock::take(&lock_of(&spec.root, &spec.name))?;
    let old = Record::load(&dir)?;
    if let Some(record) = &old {
        if record.alone() {
            return Err(LabError::OtherKind { name: spec.name.clone(), is: "a network without hosts" });
        }
        if let Some(base) = record.all_bases().find(|base| !base.is_dir()) {
            return Err(LabError::NoBase { name: spec.name.clone(), base: base.clone() });
        }
    }
    let lab = {
        // Held until the lab is recorded, so that `purge` does not remove its bases.
        let claim = base::ensure(&spec.cache, &lacking(spec, old.as_ref()), spec.mirror.as_deref(), progress)?;
        settle(spec, old.clone(), &claim.bases, None, progress)?
    };
    wire(&lab, progress)?;
    ssh::key(&lab.identity(), &format!("hactl-lab-{}", spec.name))?;
    let mut known = String::new();
    for host in lab.each() {
        host.prepare()?;
        let public = files::read(&host.key().with_extension("pub"))?;
        known.push_str(&ssh::known(host.name, host.address(), &public));
    }
    files::write(&lab.known_hosts(), 0o644, &known)?;
    inventory::write(old.as_ref(), &lab.record, &lab.dir, progress)?;
    power_on(&lab, spec, progress)?;
    Ok(lab)
}

/// The systems of new hosts that no host of the lab has.
fn lacking(spec: &Spec, old: Option<&Record>) -> BTreeSet<Base> {
    let known = old.map(|record| record.hosts.as_slice()).unwrap_or_default();
    let has = |host: &&HostSpec| known.iter().any(|other| other.name == host.name || other.base == host.base);
    spec.hosts.iter().filter(|host| !has(host)).map(|host| host.base).collect()
}

/// A network without hosts: recorded, in the register and on the machine like that of any lab.
pub(crate) fn network_alone(root: &Path, name: &str, octet: u8, progress: &dyn Progress) -> Result<Lab> {
    record::check_name(name)?;
    record::check_path(root)?;
    machine::check()?;
    let dir = root.join(name);
    let _lock = Lock::take(&lock_of(root, name))?;
    let old = Record::load(&dir)?;
    match &old {
        Some(record) if !record.alone() => {
            return Err(LabError::OtherKind { name: name.to_owned(), is: "a lab with hosts" });
        }
        Some(record) if record.octet != octet => {
            let by = format!("{name:?}, which already has the network 10.88.{}.0/24", record.octet);
            return Err(LabError::NetworkUsed { octet, by });
        }
        _ => {}
    }
    let spec = Spec { root: root.to_owned(), hosts: Vec::new(), ..Spec::new(name) };
    let lab = settle(&spec, old, &BTreeMap::new(), Some(octet), progress)?;
    wire(&lab, progress)?;
    Ok(lab)
}

/// Creates or completes the lab's network.
fn wire(lab: &Lab, progress: &dyn Progress) -> Result<()> {
    let network = lab.record.network();
    if !network.exists() {
        let bridge = network.bridge();
        progress.on(&Note::Network { bridge, network: network.cidr() });
    }
    network.make(&lab.record.name)
}

/// The lock file: one run at a time creates or removes a lab.
pub(crate) fn lock_of(root: &Path, name: &str) -> PathBuf {
    root.join(format!(".{name}.lock"))
}

/// Writes the lab's record and adds it to the machine's register, before other parts of the lab exist.
fn settle(
    spec: &Spec,
    old: Option<Record>,
    bases: &BTreeMap<Base, PathBuf>,
    wanted: Option<u8>,
    progress: &dyn Progress,
) -> Result<Lab> {
    let dir = spec.root.join(&spec.name);
    let machine = Machine::hold()?;
    let entries = machine::entries()?;
    let ours = entries.iter().any(|entry| entry.dir == dir);
    let record = match old {
        Some(mut record) => {
            let octet = record.octet;
            let other = entries.iter().find(|entry| entry.record.octet == octet && entry.dir != dir);
            if let Some(other) = other {
                let by = format!("the lab in {}", other.dir.display());
                return Err(LabError::NetworkTaken { name: record.name, octet, by });
            }
            if !ours && network::used()?.contains(&octet) && !record.network().exists() {
                let by = "an address or a route of this machine (see `ip route`)".to_owned();
                return Err(LabError::NetworkTaken { name: record.name, octet, by });
            }
            for host in &spec.hosts {
                if record.hosts.iter().all(|known| known.name != host.name) {
                    record.hosts.push(host.clone());
                }
            }
            record.bases.extend(bases.clone());
            record
        }
        None => Record {
            name: spec.name.clone(),
            octet: match wanted {
                Some(octet) => unused(octet, &entries)?,
                None => free(&spec.root, &entries)?,
            },
            base: spec.hosts.first().and_then(|host| bases.get(&host.base)).cloned().unwrap_or_default(),
            bases: bases.clone(),
            kubernetes: spec.kubernetes.clone(),
            hosts: spec.hosts.clone(),
        },
    };
    if record.hosts.len() > super::record::MOST_HOSTS {
        let asked = record.hosts.len();
        return Err(LabError::BadSize { asked, most: super::record::MOST_HOSTS });
    }
    record.save(&dir)?;
    // It contains keys; its contents stay readable for the hosts' users, which see them through the overlay.
    files::chmod(&dir, 0o700)?;
    machine.enter(&Entry { dir: dir.clone(), record: record.clone() })?;
    machine.tune(progress)?;
    Ok(Lab { dir, record })
}

/// The first third octet that is not in use on this machine.
fn free(root: &Path, entries: &[Entry]) -> Result<u8> {
    let mut taken = network::used()?;
    taken.extend(entries.iter().map(|entry| entry.record.octet));
    for dir in files::folders(root)? {
        // Labs that are off since the machine's last boot.
        taken.extend(Record::load(&dir).ok().flatten().map(|record| record.octet));
    }
    let free = |octet: &u8| !taken.contains(octet) && !Network { octet: *octet }.exists();
    (0..=u8::MAX).find(free).ok_or(LabError::NoNetwork)
}

/// That network, if it is not in use.
fn unused(octet: u8, entries: &[Entry]) -> Result<u8> {
    let other = entries.iter().find(|entry| entry.record.octet == octet);
    let by = match other {
        Some(entry) => format!("the lab in {}", entry.dir.display()),
        None if (Network { octet }).exists() || network::used()?.contains(&octet) => {
            "an address or a route of this machine (see `ip route`)".to_owned()
        }
        None => return Ok(octet),
    };
    Err(LabError::NetworkUsed { octet, by })
}

/// Starts all hosts that are off, in parallel, and waits for all of them.
fn power_on(lab: &Lab, spec: &Spec, progress: &dyn Progress) -> Result<()> {
    std::thread::scope(|threads| {
        let start = |host: Host<'_>| -> Result<()> {
            let begun = Instant::now();
            host.settle()?;
            let already = host.runs()?;
            if !already {
                host.start()?;
            }
            let (name, address) = (host.name.to_owned(), host.address());
            // A host whose cable is cut keeps running; `up` neither plugs it in nor waits for it.
            if !already || host.network.plugged(host.index) != Some(false) {
                host.wait(spec.timeout)?;
            }
            progress.on(&if already {
                Note::Already { host: name, address }
            } else {
                Note::Up { host: name, address, took: begun.elapsed() }
            });
            Ok(())
        };
        let started: Vec<_> = lab.each().map(|host| threads.spawn(move || start(host))).collect();
        let ended: Vec<Result<()>> = started.into_iter().map(super::join).collect();
        ended.into_iter().collect()
    })
}
