//! Which components of Kubernetes have another version than the inventory asks for.
//!
//! In: the versions that API servers, manifests and Nodes report. Out: a [`Rollout`], from which `upgrade` and
//! `configure` take the order of changes.

use super::conditions::Observed;
use crate::model::control_plane::{API_SERVER, ELECTED, PROGRAMS};
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{Facts, HostFacts};
use crate::model::names::HostName;
use crate::model::plan::Condition;
use crate::model::target::FileSet;
use crate::model::units::kubelet_unit;
use crate::model::version::Version;
use std::collections::{BTreeMap, BTreeSet};

/// The components with another version than the wanted one.
#[derive(Debug, Clone, Default)]
pub(super) struct Rollout {
    /// Whether API servers change first: one still has to change, and some component changes its version.
    pub api_first: bool,
    /// API servers with another version, and that version.
    pub api: BTreeMap<HostName, Version>,
    /// Whether an API server of the new version is ready already, and may have written data.
    pub begun: bool,
    /// Hosts whose kubelet waits until all control planes are upgraded, with its version if it is known.
    pub kubelets: BTreeMap<HostName, Option<Version>>,
    /// Self-hosted hosts on which pods with the new manifests replace pods, and nothing else changes that these read.
    pub pods: BTreeSet<HostName>,
}

/// The version that the API server of a host reports, if it is ready.
pub(super) fn said(facts: &HostFacts) -> Option<&str> {
    facts.api.as_ref().filter(|api| api.own_trouble.is_none()).map(|api| api.version.as_str())
}

/// The version of a component of the control plane: an API server reports it, for others it is in their manifests.
pub(super) fn version_of(facts: &HostFacts, program: &str) -> Option<Version> {
    let said = said(facts).filter(|_| program == API_SERVER);
    said.and_then(Version::parse).or_else(|| Version::parse(facts.versions.get(program)?))
}

/// The versions of kubelets, as their Nodes report them.
pub(super) fn kubelets(desired: &Desired, facts: &Facts) -> BTreeMap<HostName, Version> {
    let apis = facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref());
    let nodes = apis.flat_map(|api| &api.nodes);
    let known = nodes.filter_map(|node| Some((node.name.parse::<HostName>().ok()?, Version::parse(&node.version)?)));
    known.filter(|(name, _)| desired.host(name).is_some_and(Host::is_node)).collect()
}

impl Rollout {
    pub fn of(desired: &Desired, look: Observed<'_>) -> Self {
        let Some(wanted) = Version::parse(&desired.versions.kubernetes) else { return Self::default() };
        let planes = || desired.with(Role::ControlPlane).filter_map(|h| Some((&h.name, look.facts.host(&h.name)?)));
        let mut rollout = Self::default();
        let mut others = false;
        for (name, facts) in planes() {
            if let Some(runs) = version_of(facts, API_SERVER).filter(|runs| *runs != wanted) {
                rollout.api.insert(name.clone(), runs);
            }
            rollout.begun |= said(facts).and_then(Version::parse) == Some(wanted);
            others |= ELECTED.into_iter().filter_map(|program| version_of(facts, program)).any(|runs| runs != wanted);
        }
        let moves = others || !rollout.api.is_empty();
        rollout.api_first = moves && planes().any(|(name, _)| !look.holds(&Condition::ApiServer(name.clone())));
        let known = kubelets(desired, look.facts);
        for host in desired.hosts.iter().filter(|h| h.is_node() && look.facts.host(&h.name).is_some()) {
            let name = &host.name;
            let runs = known.get(name).copied();
            let starts_another = runs.is_some_and(|runs| runs != wanted);
            let other = moves || starts_another;
            // A new control-plane host needs its kubelet, of the new version, to start its control plane.
            let new = host.is(Role::ControlPlane) && !look.has_kubelet(name);
            // Stopped in the middle of its restart with new files: its start may restart the static pods that serve.
            let stopped = starts_another && !look.is_active(name, &kubelet_unit());
            let resumes = stopped && look.holds(&Condition::Serving(name.clone()));
            if other && !new && (look.kubelet_changes(name) || resumes) {
                rollout.kubelets.insert(name.clone(), runs);
            }
        }
        let planes = look.changing().into_iter().filter(|host| host.is(Role::ControlPlane)).map(|host| host.name);
        rollout.pods = planes.filter(|name| !rollout.changes_versions(name) && pods_replace(look, name)).collect();
        rollout
    }

    /// Whether a component that runs on this host gets another version.
    fn changes_versions(&self, name: &HostName) -> bool {
        self.api_first || self.kubelets.contains_key(name)
    }
}

/// What the pods of a host read, or what starts them.
const READ: [FileSet; 4] = [FileSet::Trust, FileSet::Runtime, FileSet::Kubelet, FileSet::ControlPlaneConfig];

/// Whether pods with new manifests can replace the pods of a self-hosted host, with the previous manifests in reserve
/// until they serve: another API server serves meanwhile, nothing may deny them, and no file that they read is on trial.
fn pods_replace(look: Observed<'_>, name: &HostName) -> bool {
    let Some((facts, revision)) = look.facts.host(name).zip(look.target.revision()) else { return false };
    let Some(hosting) = facts.hosting.as_ref().filter(|hosting| hosting.is_by_workloads()) else { return false };
    let calm = facts.on_trial.is_empty() && look.due(name).is_empty() && look.facts.may_deny().is_empty();
    let same = READ.iter().all(|set| look.differing(name, *set).is_empty());
    let differs = !look.differing(name, FileSet::ControlPlane).is_empty();
    // Pods of this revision stay, so they must have read what is there.
    let stays = |program: &str| hosting.components.get(program).is_some_and(|found| found.is_hosted_by(revision));
    let fresh = |program: &&str| !stays(program) || look.read_config(name, program);
    let others = look.reachable_with(Role::ControlPlane).into_iter().filter(|host| host.name != *name);
    calm && same
        && differs
        && !look.limited()
        && PROGRAMS.iter().all(fresh)
        && look.serves_now(name)
        && others.into_iter().any(|host| look.serves_now(&host.name))
        && [Condition::Api, Condition::Endpoint].iter().all(|condition| look.holds(condition))
}

/// Why manifests change, if they get another version.
pub(super) fn reason(desired: &Desired, facts: &HostFacts, paths: &[String]) -> Option<String> {
    let wanted = Version::parse(&desired.versions.kubernetes)?;
    let program = |path: &String| Some(path.rsplit('/').next()?.strip_suffix(".yaml")?.to_owned());
    let changes = |program: String| Some((version_of(facts, &program).filter(|runs| *runs != wanted)?, program));
    let mut changes: Vec<(Version, String)> = paths.iter().filter_map(program).filter_map(changes).collect();
    changes.sort_by(|a, b| a.1.cmp(&b.1));
    let (runs, _) = changes.first()?;
    let names: Vec<&str> = changes.iter().map(|(_, name)| name.as_str()).collect();
    let verb = if names.len() == 1 { "changes" } else { "change" };
    Some(format!("{} {verb} from {runs} to {wanted}", names.join(" and ")))
}
