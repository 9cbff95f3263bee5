//! Upgrades of Kubernetes: which components have another version than the inventory asks for, which changes are
//! refused, and the order of the others.
//!
//! A snapshot first, then API servers one host at a time, then their clients (controller managers, schedulers) one host
//! at a time, then kubelets: those of control-plane hosts one at a time, workers in batches. No component is ever newer
//! than an API server that it uses, and no two API servers are more than one minor version apart. Components with the
//! new version are left as they are, so the same command resumes an interrupted upgrade.

use super::configure;
use super::draft::Draft;
use super::rollout::{kubelets, said, version_of};
use super::steps::Steps;
use super::versions;
use crate::model::control_plane::{API_MANIFEST, API_SERVER, PROGRAMS};
use crate::model::desired::{Cni, Desired, Host, Role};
use crate::model::facts::{Etcd, Facts};
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, HowToRun, Precondition};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, Target};
use crate::model::units::{containerd_unit, kubelet_unit};
use crate::model::version::{KUBELET_MAY_LAG, MINORS, Version};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The versions of the control plane, by host and program, including those of manifests that can be rolled back.
fn shown<'a>(desired: &'a Desired, facts: &'a Facts) -> impl Iterator<Item = (&'a HostName, &'static str, Version)> {
    let found = desired.with(Role::ControlPlane).filter_map(move |host| Some((&host.name, facts.host(&host.name)?)));
    found.flat_map(|(name, found)| {
        PROGRAMS.into_iter().filter_map(move |program| Some((name, program, version_of(found, program)?)))
    })
}

/// The same without what can be rolled back: while manifests are on trial, only an API server that is ready counts.
fn running<'a>(desired: &'a Desired, facts: &'a Facts) -> impl Iterator<Item = (&'a HostName, &'static str, Version)> {
    shown(desired, facts).filter(move |(host, program, _)| {
        facts.host(host).is_some_and(|found| {
            !found.on_trial.contains(&FileSet::ControlPlane) || (*program == API_SERVER && said(found).is_some())
        })
    })
}

/// The version of Kubernetes, if only the default asks for it.
fn default_version(desired: &Desired) -> Option<Version> {
    Version::parse(&desired.versions.kubernetes).filter(|_| desired.versions.is_default)
}

/// Refuses a change to another minor version that only the default asks for. Once an API server has that version, there
/// is no way back, and the rest of the upgrade is not refused.
pub(super) fn judge_default(desired: &Desired, target: &Target, facts: &Facts) -> Result<(), Refusal> {
    let Some(wanted) = default_version(desired) else { return Ok(()) };
    let newest = running(desired, facts).min_by_key(|(.., runs)| Reverse(*runs));
    let other = match newest {
        Some((host, component, runs)) => (runs.minor != wanted.minor).then_some((host, component, runs)),
        None => {
            let others = shown(desired, facts).filter(|(.., runs)| runs.minor != wanted.minor);
            // Data of members cannot go back either.
            let member = || versions::other_member(desired, target, facts);
            let other = others.min_by_key(|(.., runs)| Reverse(*runs));
            other.or_else(|| member().map(|(host, runs)| (host, versions::ETCD, runs)))
        }
    };
    if let Some((host, component, runs)) = other {
        return Err(Refusal::VersionNotNamed { host: host.clone(), component: component.to_owned(), runs, wanted });
    }
    // Control planes that answer and have no manifest, with a member that answers: the bootstrap was interrupted.
    let hidden = desired.with(Role::ControlPlane).any(|host| facts.host(&host.name).is_none());
    let exists = matches!(facts.etcd, Etcd::HasQuorum(_) | Etcd::NoQuorum(_) | Etcd::Disputed(_));
    if exists && (hidden || !versions::a_member_answers(desired, facts)) {
        return judge_unknown(desired, facts);
    }
    Ok(())
}

/// Refuses the default for a cluster that is to start again, if no control plane shows which version it ran.
pub(super) fn judge_unknown(desired: &Desired, facts: &Facts) -> Result<(), Refusal> {
    match default_version(desired) {
        Some(wanted) if shown(desired, facts).next().is_none() => Err(Refusal::VersionUnknown { wanted }),
        _ => Ok(()),
    }
}

/// Refuses unsupported changes: older minor versions, and skipped ones.
pub(super) fn judge(desired: &Desired, facts: &Facts) -> Result<(), Refusal> {
    let Some(wanted) = Version::parse(&desired.versions.kubernetes) else { return Ok(()) };
    let refuse = |host: &HostName, component: &str, runs: Version, may_lag: u32| {
        let (host, component) = (host.clone(), component.to_owned());
        match wanted.minor.after(runs.minor) {
            Some(ahead) if ahead <= may_lag => Ok(()),
            None if runs > wanted => Err(Refusal::OlderMinor { host, component, runs, wanted }),
            _ => {
                let first = Some(runs.minor.next()).filter(|next| MINORS.contains(next));
                Err(Refusal::SkipsMinor { host, component, runs, wanted, first })
            }
        }
    };
    running(desired, facts).try_for_each(|(host, program, runs)| refuse(host, program, runs, 1))?;
    kubelets(desired, facts).iter().try_for_each(|(host, runs)| refuse(host, "kubelet", *runs, KUBELET_MAY_LAG))
}

/// The change of version in words.
fn from_to(d: &Draft, program: &str, runs: Option<Version>) -> String {
    let wanted = &d.desired.versions.kubernetes;
    let from = runs.map_or_else(String::new, |runs| format!(" from {runs}"));
    format!("{program} changes{from} to {wanted}")
}

/// A snapshot before the first API server, and before the first etcd member, changes its version.
pub(super) fn save(d: &Draft) -> Steps {
    let mut members = d.changing().into_iter().filter(|host| host.is(Role::Etcd));
    let etcd = members.find_map(|host| versions::member_changes(d, &host));
    let changes = if !d.rollout.api.is_empty() && !d.rollout.begun {
        format!("Kubernetes changes to {}", d.desired.versions.kubernetes)
    } else if let Some((runs, wanted)) = etcd {
        format!("etcd changes from {runs} to {wanted}")
    } else {
        return Steps::default();
    };
    let follows = |host: &Host| {
        let view = d.facts.host(&host.name)?.etcd.as_ref()?.view.as_ref().filter(|view| view.linearizable)?;
        Some((view.leads(), host.name.clone()))
    };
    let members = d.changing().into_iter().filter(|host| host.is(Role::Etcd));
    // A snapshot of a follower does not delay the leader.
    let Some((_, host)) = members.filter_map(|host| follows(&host)).min_by_key(|(leads, _)| *leads) else {
        return Steps::default();
    };
    let mut requires = vec![
        Condition::Quorum,
        Condition::Certified(host.clone()),
        Condition::Configured(host.clone(), FileSet::State),
        Condition::Configured(host.clone(), FileSet::Snapshots),
    ];
    requires.extend(d.delivered(&host, &["etcd", "etcdutl"]));
    let why = format!("{changes}, and there is no snapshot of the last few minutes");
    d.ensure(Action::SaveBundle { host }, why, requires)
}

/// A kubelet that is stopped or does not answer cannot run a new manifest: it is started first, with its current files,
/// and the plan ends there.
pub(super) fn start_stopped(d: &Draft) -> Steps {
    let mut steps = Steps::default();
    let (mut woken, hosts) = (Vec::new(), d.changing());
    for host in hosts.iter().filter(|h| h.is(Role::ControlPlane)) {
        let name = &host.name;
        let waits = d.rollout.kubelets.contains_key(name) && !d.answers(name, &kubelet_unit());
        if waits && d.has_kubelet(name) && d.differing(name, FileSet::ControlPlane).iter().any(|p| p == API_MANIFEST) {
            let requires = vec![Condition::Running(name.clone(), containerd_unit())];
            steps.add(configure::run(d, name, FileSet::Kubelet, requires));
            woken.push(name.as_str());
        }
    }
    if !woken.is_empty() {
        let names = woken.join(", ");
        steps.horizon = Some(format!("the kubelet of {names} has to run before its API server can be upgraded"));
    }
    steps
}

/// The kubelets that waited: those of control-plane hosts one at a time, workers in batches, drained before another
/// minor version.
pub(super) fn roll_kubelets(d: &Draft) -> Steps {
    let mut steps = Steps::default();
    let waiting = d.rollout.kubelets.clone();
    let (mut planes, workers): (Vec<Host>, Vec<Host>) =
        d.changing().into_iter().filter(|h| waiting.contains_key(&h.name)).partition(|h| h.is(Role::ControlPlane));
    // Hosts whose API server is not ready come first: it may have to serve for the others.
    let serves = |host: &Host| d.facts.host(&host.name).and_then(|found| said(found)).is_some();
    planes.sort_by_key(serves);
    let mut turn = d.turn.clone();
    for host in &planes {
        let mut requires = served(d, host, waiting[&host.name]);
        let configured = Condition::Configured(host.name.clone(), FileSet::Kubelet);
        let running = Condition::Running(host.name.clone(), kubelet_unit());
        requires.extend(turn.replace(running));
        steps.add(roll(d, host, waiting[&host.name], requires, configured));
    }
    let wanted = Version::parse(&d.desired.versions.kubernetes);
    let settings = d.desired.upgrade;
    let mut before: Vec<Condition> = turn.into_iter().collect();
    for batch in batches(d, &mut steps, workers) {
        let mut healed = Vec::new();
        for host in &batch {
            let name = &host.name;
            let runs = waiting[name];
            let mut requires = served(d, host, runs);
            requires.extend(before.iter().cloned());
            let minor = runs.map(|v| v.minor) != wanted.map(|v| v.minor);
            let drained = minor && d.registered(name) && d.answers(name, &kubelet_unit());
            let running = Condition::Running(name.clone(), kubelet_unit());
            if drained {
                let action = Action::Drain { host: name.clone(), within_s: settings.drain_timeout_s };
                let why = "its kubelet gets another minor version, which may restart its pods";
                requires = vec![steps.must(action, why, requires).provides()];
            }
            let configured = Condition::Configured(name.clone(), FileSet::Kubelet);
            steps.add(roll(d, host, runs, requires, configured));
            if drained {
                let action = Action::Uncordon { host: name.clone() };
                healed.push(steps.must(action, "it was drained for the upgrade", vec![running]).provides());
            } else {
                healed.push(running);
            }
        }
        before = healed;
    }
    steps
}

/// Workers that get their kubelets at the same time. Workers that are not Ready, for whatever reason, count towards the
/// limit; one that waits for its kubelet and is not Ready costs nothing.
fn batches(d: &Draft, steps: &mut Steps, workers: Vec<Host>) -> Vec<Vec<Host>> {
    let most = usize::try_from(d.desired.upgrade.max_unavailable).unwrap_or(1).max(1);
    // Without a CNI of its own, hactl does not wait for Nodes to be Ready.
    let ready = |d: &Draft, host: &Host| {
        d.desired.network.cni == Cni::None || d.holds(&Condition::NodeReady(host.name.clone()))
    };
    let serves = |host: &Host| ready(d, host) && d.maintenances(&host.name).is_empty();
    let away =
        |host: &&Host| host.is_node() && !host.is(Role::ControlPlane) && d.registered(&host.name) && !serves(host);
    let waits = |host: &Host| workers.iter().any(|other| other.name == host.name);
    let away: Vec<String> =
        d.desired.hosts.iter().filter(away).filter(|host| !waits(host)).map(|host| host.name.to_string()).collect();
    let (here, gone): (Vec<Host>, Vec<Host>) = workers.into_iter().partition(|host| ready(d, host));
    let free = most.saturating_sub(away.len());
    let mut batches: Vec<Vec<Host>> = gone.chunks(most).map(<[Host]>::to_vec).collect();
    if free > 0 {
        batches.extend(here.chunks(free).map(<[Host]>::to_vec));
    } else if !here.is_empty() {
        let (names, be) = (away.join(", "), if away.len() == 1 { "is" } else { "are" });
        steps.warnings.push(format!(
            "{} of the workers keep their current kubelets: {names} {be} not Ready or in maintenance, and \
             `upgrade.workers.maxUnavailable` is {most}. Bring {names} back, or remove it, and run the same command \
             again",
            here.len()
        ));
    }
    batches
}

/// Unreachable API servers whose Nodes report a kubelet of an older minor version: they may be as old when they come
/// back. Clients of the endpoint may reach them, so components that must not be newer wait for them.
pub(super) fn older_and_unreachable(d: &Draft) -> Vec<Condition> {
    let wanted = Version::parse(&d.desired.versions.kubernetes).map(|wanted| wanted.minor);
    let known = kubelets(d.desired, d.facts);
    let older = |name: &HostName| known.get(name).zip(wanted).is_some_and(|(runs, wanted)| runs.minor < wanted);
    let unreachable =
        d.desired.with(Role::ControlPlane).map(|host| &host.name).filter(|name| d.facts.host(name).is_none());
    unreachable.filter(|name| older(name)).map(|name| Condition::ApiServer(name.clone())).collect()
}

/// What must be ready before a kubelet gets this version: every API server that it may use, with the other static pods
/// of its host.
fn served(d: &Draft, host: &Host, runs: Option<Version>) -> Vec<Condition> {
    let wanted = Version::parse(&d.desired.versions.kubernetes);
    let minor = runs.map(|v| v.minor) != wanted.map(|v| v.minor);
    let mut requires = Vec::new();
    for plane in d.desired.with(Role::ControlPlane).map(|h| &h.name) {
        let marks = [Condition::ApiServer(plane.clone()), Condition::Serving(plane.clone())];
        let planned = marks.iter().any(|mark| d.plans(mark));
        // An unreachable API server may come back with its old version, and clients of the endpoint may reach it.
        if planned || plane == &host.name || (minor && !host.is(Role::ControlPlane)) {
            requires.extend(marks);
        }
    }
    requires
}

/// The new files of one kubelet, and its start with them.
fn roll(d: &Draft, host: &Host, runs: Option<Version>, requires: Vec<Condition>, configured: Condition) -> Steps {
    let name = &host.name;
    let files = configure::before_kubelet(d, name, requires.clone());
    let mut steps = configure::write(d, name, FileSet::Kubelet, files);
    let active = d.is_active(name, &kubelet_unit());
    let ready = d.desired.network.cni != Cni::None || d.holds(&Condition::NodeReady(name.clone()));
    let action = Action::UpgradeKubelet {
        host: name.clone(),
        version: d.desired.versions.kubernetes.clone(),
        how: if active { HowToRun::Restart } else { HowToRun::Start },
        ready,
    };
    let mut requires = [requires, configure::kubelet_needs(d, host)].concat();
    requires.push(configured);
    let why = from_to(d, "kubelet", runs);
    // Another kubelet may restart the API server.
    let precondition =
        if host.is(Role::ControlPlane) { Precondition::Tolerates { down: name.clone() } } else { Precondition::None };
    let noted = steps.must(action, why, requires).guarded(precondition);
    noted.step.rollback = vec![FileSet::Kubelet];
    noted.turn = host.is(Role::ControlPlane).then(|| (vec![], noted.provides()));
    steps
}

/// Uncordons Nodes that hactl drained and that this plan does not need drained.
pub(super) fn open(d: &Draft) -> Steps {
    let hosts: BTreeSet<HostName> = d.changing().into_iter().filter(Host::is_node).map(|h| h.name).collect();
    let closed = hosts.into_iter().filter(|name| !d.plans(&Condition::Schedulable(name.clone())));
    let open = |name: HostName| {
        let mut requires = d.api();
        requires.extend(Some(Condition::NodeReady(name.clone())).filter(|ready| d.plans(ready)));
        requires.extend(Some(Condition::Running(name.clone(), kubelet_unit())).filter(|running| d.plans(running)));
        let why = "hactl drained it, and the reason for that is gone";
        d.ensure(Action::Uncordon { host: name }, why, requires)
    };
    closed.map(open).collect()
}
