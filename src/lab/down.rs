//! Removes a lab completely, also an incomplete one.

use super::Lab;
use super::error::{LabError, Result};
use super::files::{self, Lock};
use super::machine::{self, Machine};
use super::progress::{Note, Progress};
use super::record::{self, Record};
use super::{base, cgroup, mounts};
use std::path::Path;

/// LXC's folder of locks, followed by the path of the containers' folder.
const LXC_RUN: &str = "/run/lxc";

/// All steps of `lab down`, in order: the record is removed last, because the others need it.
pub(crate) fn down(lab: &Lab, progress: &dyn Progress) -> Result<()> {
    machine::check()?;
    let root = lab.dir.parent().unwrap_or(&lab.dir);
    let lock = Lock::take(&super::up::lock_of(root, lab.name()))?;
    // Hosts may have been added since the lab was opened.
    let now = Record::load(&lab.dir)?.unwrap_or_else(|| lab.record.clone());
    let lab = &Lab { dir: lab.dir.clone(), record: now };
    std::thread::scope(|threads| {
        let ended: Vec<_> = lab.each().map(|host| threads.spawn(move || host.kill())).collect();
        let ended: Vec<Result<()>> = ended.into_iter().map(super::join).collect();
        ended.into_iter().collect::<Result<()>>()
    })?;
    let network = lab.record.network();
    cgroup::clear(&network.cgroup())?;
    network.remove(lab.record.hosts.len())?;
    forget_lxc(&lab.dir.join("hosts"))?;
    mounts::demand_none(&lab.dir)?;
    // The record is removed last, so that a killed `down` can be run again.
    for name in files::names(&lab.dir)?.iter().filter(|name| *name != "lab.json") {
        files::remove(&lab.dir.join(name))?;
    }
    Machine::hold()?.leave(network.octet)?;
    files::remove(&lab.dir)?;
    lock.remove()?;
    // The folders that we created for the first lab, if they are empty.
    files::prune_ours(root);
    progress.on(&Note::Down { lab: lab.name().to_owned() });
    Ok(())
}

/// Removes LXC's locks of a lab's hosts.
fn forget_lxc(hosts: &Path) -> Result<()> {
    let run = Path::new(LXC_RUN);
    let locks = run.join("lock").join(hosts.strip_prefix("/").unwrap_or(hosts));
    files::remove(&locks)?;
    if let Some(above) = locks.parent() {
        files::prune(above, run);
    }
    Ok(())
}

/// Removes the cached bases that no lab uses.
pub(crate) fn purge(root: &Path, cache: &Path, progress: &dyn Progress) -> Result<()> {
    let used = || Ok(Lab::all(root)?.iter().flat_map(|lab| lab.record.all_bases()).cloned().collect());
    base::purge(cache, used, progress)
}

/// The lab of that name: by its record, else by the machine's register.
pub(crate) fn find(root: &Path, name: &str) -> Result<Lab> {
    record::check_name(name)?;
    let dir = root.join(name);
    if let Some(record) = Record::load(&dir)? {
        return Ok(Lab { dir, record });
    }
    let entry = machine::entries()?.into_iter().find(|entry| entry.dir == dir);
    let lab = entry.map(|entry| Lab { dir: entry.dir, record: entry.record });
    lab.ok_or_else(|| LabError::NoLab { name: name.to_owned(), root: root.to_owned() })
}
