//! The version rules of etcd and containerd; those of Kubernetes are in `upgrade`.
//!
//! In: the versions that members and Nodes report, and the parts of the bundle. Out: a refusal of unsupported changes,
//! and the members that are to change their version. etcd is upgraded one minor version at a time and never downgraded:
//! an older member cannot join a cluster that uses features of the newer version. containerd does not depend on other
//! hosts: it may skip versions, but an older one does not read data of a newer one.

use super::draft::Draft;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::Facts;
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use crate::model::target::Target;
use crate::model::version::Version;

pub(super) const ETCD: &str = "etcd";
const CONTAINERD: &str = "containerd";
/// How a Node names its runtime: `containerd://2.3.7`.
const SCHEME: &str = "containerd://";

/// The wanted version of a program on a host.
fn wanted(target: &Target, host: &HostName, program: &str) -> Option<Version> {
    let part = target.hosts.get(host)?.parts.iter().find(|part| part.name == program)?;
    Version::parse(&part.version)
}

/// The version that the member on a host reports.
fn member(facts: &Facts, host: &HostName) -> Option<Version> {
    Version::parse(&facts.host(host)?.etcd.as_ref()?.view.as_ref()?.version)
}

/// The version of the container runtime of a host, as its Node reports it.
fn runtime(facts: &Facts, host: &HostName) -> Option<Version> {
    let apis = facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref());
    let node = apis.flat_map(|api| &api.nodes).find(|node| node.name == host.as_str())?;
    Version::parse(node.runtime.strip_prefix(SCHEME)?)
}

/// The two versions, if the wanted etcd of a host cannot read data of this version because that is a newer minor
/// version.
pub(super) fn too_old_for(target: &Target, host: &HostName, of: &str) -> Option<(Version, Version)> {
    let (of, wanted) = (Version::parse(of)?, wanted(target, host, ETCD)?);
    (of.minor > wanted.minor).then_some((of, wanted))
}

/// Refuses unsupported changes of version.
pub(super) fn judge(desired: &Desired, target: &Target, facts: &Facts) -> Result<(), Refusal> {
    for host in desired.with(Role::Etcd) {
        let name = &host.name;
        let (Some(runs), Some(wanted)) = (member(facts, name), wanted(target, name, ETCD)) else { continue };
        let (host, component) = (name.clone(), ETCD.to_owned());
        match wanted.minor.after(runs.minor) {
            Some(0 | 1) => {}
            None if runs > wanted => return Err(Refusal::OlderMinor { host, component, runs, wanted }),
            _ => {
                let first = Some(runs.minor.next());
                return Err(Refusal::SkipsMinor { host, component, runs, wanted, first });
            }
        }
    }
    for host in desired.hosts.iter().filter(|host| host.is_node()) {
        let name = &host.name;
        let (Some(runs), Some(wanted)) = (runtime(facts, name), wanted(target, name, CONTAINERD)) else { continue };
        if wanted.minor < runs.minor {
            let (host, component) = (name.clone(), CONTAINERD.to_owned());
            return Err(Refusal::OlderMinor { host, component, runs, wanted });
        }
    }
    Ok(())
}

/// The first member with another minor version than the wanted one, and its version.
pub(super) fn other_member<'a>(
    desired: &'a Desired,
    target: &Target,
    facts: &Facts,
) -> Option<(&'a HostName, Version)> {
    let of = |host: &'a Host| Some((&host.name, member(facts, &host.name)?, wanted(target, &host.name, ETCD)?));
    let mut known = desired.with(Role::Etcd).filter_map(of);
    known.find_map(|(host, runs, wanted)| (runs.minor != wanted.minor).then_some((host, runs)))
}

/// Whether any member reports its version.
pub(super) fn a_member_answers(desired: &Desired, facts: &Facts) -> bool {
    desired.with(Role::Etcd).any(|host| member(facts, &host.name).is_some())
}

/// The current and the wanted version of the member on a host, if they differ.
pub(super) fn member_changes(d: &Draft, host: &Host) -> Option<(Version, Version)> {
    let (runs, wanted) = (member(d.facts, &host.name)?, wanted(d.target, &host.name, ETCD)?);
    (runs != wanted).then_some((runs, wanted))
}
