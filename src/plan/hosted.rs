//! Hosts whose control plane runs in pods of `DaemonSets`: when static pods run there again, and when pods take over.
//!
//! In: the draft and a host. Out: its steps. Where nothing but manifests changes, pods with the new ones replace pods,
//! and the static pods in reserve follow. Static pods carry every other change: files on trial, their rollback and the
//! order of an upgrade are those of any other cluster, and pods take over at the end.

use super::conditions::Observed;
use super::configure::{apply, write};
use super::draft::Draft;
use super::steps::Steps;
use crate::model::control_plane::PROGRAMS;
use crate::model::desired::{Cni, Host, Role, Security};
use crate::model::hosting::{ADDON, Hosting, UNIT};
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, Precondition};
use crate::model::refusal::Refusal;
use crate::model::target::FileSet;
use crate::model::units::{kubelet_unit, unit};

/// Static pods run on a host before its API server gets another version.
pub(super) fn hold_first(d: &Draft, host: &Host) -> Steps {
    if d.rollout.api_first { hold(d, host) } else { Steps::default() }
}

/// Static pods run on a host before their manifests change, and where the inventory asks for no other.
pub(super) fn hold(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    let held = Condition::Held(name.clone());
    if !host.is(Role::ControlPlane) || d.holds(&held) || d.plans(&held) || d.rollout.pods.contains(name) {
        return Steps::default();
    }
    let why = if d.desired.hosting == Hosting::Static {
        "the inventory asks for static pods"
    } else if !d.differing(name, FileSet::ControlPlane).is_empty() {
        "its manifests change, and are tried as static pods"
    } else {
        return Steps::default();
    };
    let mut steps = Steps::default();
    let noted = steps.must(Action::Hold { host: name.clone() }, why, there(d, name)).guarded(tolerates(d, name));
    noted.turn = Some((vec![], held));
    steps
}

/// The images of the static pods, present and future: nothing is disturbed while they may still fail to come.
fn there(o: &Observed, name: &HostName) -> Vec<Condition> {
    let parts = o.host_target(name).parts.iter().filter(|part| PROGRAMS.contains(&part.name.as_str()));
    parts.map(|part| Condition::Imported(name.clone(), part.digest)).collect()
}

/// An API server that serves stops only while another one serves.
fn tolerates(o: &Observed, name: &HostName) -> Precondition {
    if o.serves_now(name) { Precondition::Tolerates { down: name.clone() } } else { Precondition::None }
}

/// Static pods run on a host that gives up its control plane, after these conditions.
pub(super) fn hold_last(o: &Observed, host: &HostName, requires: Vec<Condition>) -> Steps {
    let held = Condition::Held(host.clone());
    let mut steps = Steps::default();
    if !o.holds(&held) {
        let why = "its pods must not come back while the host gives up its control plane";
        let noted = steps.must(Action::Hold { host: host.clone() }, why, requires);
        noted.guarded(Precondition::Tolerates { down: host.clone() });
    }
    steps
}

/// The program that keeps a control plane on the host, or its removal once static pods run.
pub(super) fn keeper(d: &Draft, host: &Host) -> Steps {
    let (name, set) = (&host.name, FileSet::Hosting);
    let Some(wanted) = d.host_target(name).sets.get(&set) else { return Steps::default() };
    if wanted.unit.is_some() {
        return apply(d, name, set, vec![], vec![]);
    }
    if d.differing(name, set).is_empty() {
        return Steps::default();
    }
    let action = Action::StopUnit { host: name.clone(), unit: unit(UNIT) };
    let stopped = action.provides();
    let held = Condition::Held(name.clone());
    let mut steps = d.ensure(action, "the inventory no longer asks for it", vec![held.clone()]);
    steps.add(write(d, name, set, vec![stopped, held]));
    steps
}

/// Refuses to create `DaemonSets` whose pods something may deny. Where they exist, hosts keep static pods instead.
pub(super) fn judge(d: &Draft) -> Result<(), Refusal> {
    let exist = d.desired.hosts.iter().filter_map(|host| d.facts.host(&host.name)?.hosting.as_ref());
    if d.desired.hosting == Hosting::Static || d.facts.may_deny().is_empty() || exist.count() > 0 {
        return Ok(());
    }
    Err(Refusal::Preflight { problems: vec![format!("the control plane cannot move to DaemonSets: {}", denied(d))] })
}

/// What may deny the pods, in words.
fn denied(d: &Draft) -> String {
    let all: Vec<String> = d.facts.may_deny().into_iter().map(ToString::to_string).collect();
    format!("something may deny its pods: {}", all.join("; "))
}

/// Pods of the `DaemonSets` take over from the static pods of a host, or from older pods.
pub(super) fn hand_over(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    let mut steps = Steps::default();
    let Some(revision) = d.target.revision().filter(|_| host.is(Role::ControlPlane)) else { return steps };
    let hosted = Condition::Hosted(name.clone());
    let held = d.plans(&Condition::Held(name.clone()));
    if d.holds(&hosted) && !held {
        return steps;
    }
    if !d.facts.may_deny().is_empty() {
        steps.warnings.push(format!("{name} keeps static pods: {}", denied(d)));
        return steps;
    }
    let fact = d.facts.host(name).and_then(|facts| facts.hosting.as_ref());
    let why = match fact.map(|fact| fact.revision()) {
        _ if held => "its manifests have changed".to_owned(),
        None => "the inventory asks for it".to_owned(),
        Some(Some(other)) if other != revision => format!("its pods are to have revision {revision}, not {other}"),
        Some(None) => "its static pods are held".to_owned(),
        Some(Some(_)) => "not all its components run in pods of the DaemonSets".to_owned(),
    };
    let mut requires = d.api();
    requires.extend([
        Condition::Endpoint,
        Condition::Applied(ADDON.to_owned()),
        Condition::Serving(name.clone()),
        Condition::Running(name.clone(), kubelet_unit()),
    ]);
    requires.push(if d.rollout.pods.contains(name) {
        Condition::Configured(name.clone(), FileSet::ControlPlaneConfig)
    } else {
        Condition::Configured(name.clone(), FileSet::ControlPlane)
    });
    requires.extend(d.running(name, FileSet::Hosting));
    if d.desired.network.cni != Cni::None {
        requires.push(Condition::NodeReady(name.clone()));
    }
    let others = d.reachable_with(Role::ControlPlane).into_iter().map(|h| Condition::Serving(h.name));
    requires.extend(others.filter(|serving| d.plans(serving)));
    let action = Action::HandOver { host: name.clone(), revision: revision.to_owned() };
    let noted = steps.must(action, why, requires).guarded(Precondition::Tolerates { down: name.clone() });
    noted.turn = Some((vec![], hosted));
    if d.desired.with(Role::ControlPlane).count() == 1 {
        let text = format!("{name} has the only API server: the API is interrupted while its pods take over");
        steps.warnings.push(text);
    }
    // The plugin rewrites the pods of the control plane, too; static pods are not subject to it.
    if d.desired.control_plane.security == Security::Cis && !d.warnings.iter().any(|text| text == PULLED) {
        steps.warnings.push(PULLED.to_owned());
    }
    steps
}

/// The manifests in reserve on a host whose pods were replaced: they are those that have served until then.
pub(super) fn reserve(d: &Draft, host: &Host) -> Steps {
    if !d.rollout.pods.contains(&host.name) {
        return Steps::default();
    }
    let mut steps = write(d, &host.name, FileSet::ControlPlane, vec![Condition::Hosted(host.name.clone())]);
    // Should a static pod run here again by then, it restarts before the next host begins.
    for noted in &mut steps.steps {
        noted.turn = Some((vec![], noted.provides()));
    }
    steps
}

/// What hardening means for pods of the control plane.
const PULLED: &str = "with security: cis, pods of the control plane pull their images whenever they start: while no \
                      registry has them, static pods run instead";

/// What the deletion of the `DaemonSets` requires: static pods run on every host, also on one that does not answer now.
pub(super) fn all_held(o: &Observed) -> Vec<Condition> {
    o.desired.with(Role::ControlPlane).map(|host| Condition::Held(host.name.clone())).collect()
}
