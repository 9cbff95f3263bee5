//! The rules of versions that etcd and containerd have of their own, beside those of Kubernetes (`upgrade`).
//!
//! In: what members and Nodes say that they are, and the parts that the bundle has. Out: a refusal of what their makers do not support, and
//! which members are about to become another version. etcd goes up one minor version at a time, and never down: a member of an older one
//! does not join a cluster that has begun to use what the newer one knows. containerd has no neighbours to agree with: it may skip versions,
//! and what a newer one wrote an older one does not read.

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

/// The version of a program that a host is to have.
fn wanted(target: &Target, host: &HostName, program: &str) -> Option<Version> {
    let part = target.hosts.get(host)?.parts.iter().find(|part| part.name == program)?;
    Version::parse(&part.version)
}

/// What the member on a host is, as it says itself.
fn member(facts: &Facts, host: &HostName) -> Option<Version> {
    Version::parse(&facts.host(host)?.etcd.as_ref()?.view.as_ref()?.version)
}

/// What the container runtime of a host is, as its Node shows it.
fn runtime(facts: &Facts, host: &HostName) -> Option<Version> {
    let apis = facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref());
    let node = apis.flat_map(|api| &api.nodes).find(|node| node.name == host.as_str())?;
    Version::parse(node.runtime.strip_prefix(SCHEME)?)
}

/// The etcd that a host is to have, where it does not read what another one wrote: that was of a newer minor version.
pub(super) fn too_old_for(target: &Target, host: &HostName, of: &str) -> Option<(Version, Version)> {
    let (of, wanted) = (Version::parse(of)?, wanted(target, host, ETCD)?);
    (of.minor > wanted.minor).then_some((of, wanted))
}

/// Refuses what leads through no supported state.
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

/// From which version to which the member on a host is about to go, if it is.
pub(super) fn member_changes(d: &Draft, host: &Host) -> Option<(Version, Version)> {
    let (runs, wanted) = (member(d.facts, &host.name)?, wanted(d.target, &host.name, ETCD)?);
    (runs != wanted).then_some((runs, wanted))
}
