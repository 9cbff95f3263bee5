//! Identity, preparation and parts of a host: everything that depends only on the host itself.

use super::conditions::Observed;
use super::draft::Draft;
use super::steps::Steps;
use crate::model::components::PACKAGES;
use crate::model::control_plane::{API_SERVER, CONTROLLER_MANAGER, SCHEDULER};
use crate::model::desired::Host;
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, Place, missing_packages};
use crate::model::units::containerd_unit;
use std::collections::BTreeSet;

/// The distribution of a host and the packages that it lacks, if the bundle has to provide these and does not. A host
/// with all programs lacks none.
fn unavailable(o: &Observed, host: &HostName) -> Option<(String, BTreeSet<String>)> {
    let (target, facts) = (o.host_target(host), o.facts.host(host)?);
    let is_provided = target.bundled.is_none() || target.parts.iter().any(|part| part.place == Place::Packages);
    let missing: BTreeSet<String> = missing_packages(&target.packages, &facts.programs).cloned().collect();
    (!is_provided && !missing.is_empty()).then(|| (facts.distribution(), missing))
}

/// Refuses hosts that lack packages which the bundle does not have.
pub(super) fn judge_packages(d: &Draft) -> Result<(), Refusal> {
    let lacks = |host: Host| {
        let (distribution, packages) = unavailable(d, &host.name)?;
        Some((host.name, distribution, packages))
    };
    let hosts: Vec<_> = d.changing().into_iter().filter_map(lacks).collect();
    let bundled = hosts.iter().filter_map(|(host, ..)| d.host_target(host).bundled.as_ref());
    let there = bundled.flatten().cloned().collect();
    if hosts.is_empty() { Ok(()) } else { Err(Refusal::NoPackages { hosts, there }) }
}

/// The host gets the cluster's identity before anything else, and the stage of each rotation before files of a later
/// stage. From then on it refuses an older state, so the encrypted state is stored on hosts first.
pub(super) fn cluster_id(d: &Draft, host: &Host) -> Steps {
    let name = host.name.clone();
    let (mut why, mut requires) = ("the host belongs to no cluster yet", Vec::new());
    let found = d.facts.host(&name).and_then(|facts| facts.cluster_id.as_ref());
    if d.is_ours(&name) && found.is_some_and(|cluster_id| cluster_id.stages == d.intent.cluster_id.stages) {
        why = "its identity does not name the host and the machine yet";
    } else if d.is_ours(&name) {
        why = "it does not know this stage of the rotation yet";
        let keep = d.changing().into_iter().filter(|h| d.host_target(&h.name).sets.contains_key(&FileSet::State));
        requires.extend(keep.map(|h| Condition::Configured(h.name, FileSet::State)));
    }
    d.ensure(Action::WriteClusterId { host: name }, why, requires)
}

/// The condition for files of a later stage of a rotation on a host of this cluster: the host knows that stage. A new
/// host gets its identity before it is prepared.
pub(super) fn received(o: &Observed, host: &HostName) -> Option<Condition> {
    o.is_ours(host).then(|| Condition::ClusterIdWritten(host.clone()))
}

/// Users, directories, kernel settings, packages.
pub(super) fn prepare(d: &Draft, host: &Host) -> Steps {
    let name = host.name.clone();
    let gaps = d.gaps(&name);
    let stamped = if d.is_ours(&name) { vec![] } else { vec![Condition::ClusterIdWritten(name.clone())] };
    let action = Action::Prepare { host: name.clone(), gaps };
    let mut steps = d.ensure(action, "the kubelet and etcd need it", stamped.clone());
    if d.holds(&Condition::Packaged(name.clone())) || unavailable(d, &name).is_some() {
        return steps;
    }
    // From the bundle, if the host has them among its parts.
    steps.add(deliver(d, host, |part| part == PACKAGES, None));
    let requires = [stamped, d.delivered(&name, &[PACKAGES])].concat();
    let wanted = &d.host_target(&name).packages;
    let lacks = |program: &String| d.facts.host(&name).is_some_and(|f| !f.programs.contains(program));
    let missing: BTreeSet<&String> = wanted.iter().filter(|(p, _)| lacks(p)).map(|(_, package)| package).collect();
    let packages = missing.into_iter().cloned().collect();
    steps.must(Action::InstallPackages { host: name, packages }, "they are not installed", requires);
    steps
}

/// Parts that an API server needs to start. On a host that has none yet, everything else comes after it.
const FIRST: [&str; 10] = [
    "etcd",
    "containerd",
    "containerd-shim-runc-v2",
    "runc",
    "ctr",
    "kubelet",
    "pause",
    API_SERVER,
    CONTROLLER_MANAGER,
    SCHEDULER,
];

/// Parts that everything else waits for.
pub(super) fn deliver_first(d: &Draft, host: &Host) -> Steps {
    deliver(d, host, |part| FIRST.contains(&part), None)
}

/// Tools for people: of no use before the endpoint is ready.
const LAST: [&str; 3] = ["kubectl", "etcdctl", "etcdutl"];

/// All other parts. Before the host's API server is up, they would only delay it.
pub(super) fn deliver_rest(d: &Draft, host: &Host) -> Steps {
    let rising = |mark: Condition| (d.plans(&mark) && !d.serves_now(&host.name)).then_some(mark);
    let manifests = rising(Condition::Configured(host.name.clone(), FileSet::ControlPlane));
    let rest = |part: &str| !FIRST.contains(&part) && !LAST.contains(&part) && !["coredns", PACKAGES].contains(&part);
    // No pod uses cluster DNS before there are Nodes for pods.
    let serving = rising(Condition::Serving(host.name.clone()));
    let dns = deliver(d, host, |part| part == "coredns", serving);
    let tools = deliver(d, host, |part| LAST.contains(&part), rising(Condition::Endpoint));
    Steps::from_iter([deliver(d, host, rest, manifests), dns, tools])
}

/// Only the tools that a recovery needs.
pub(super) fn deliver_tools(d: &Draft, host: &Host, tools: &[&str]) -> Steps {
    deliver(d, host, |part| tools.contains(&part), None)
}

/// Parts by content address, and images into containerd. In an upgrade hosts get them one after the other, unless they
/// wait for something else.
fn deliver(d: &Draft, host: &Host, which: impl Fn(&str) -> bool, after: Option<Condition>) -> Steps {
    let name = &host.name;
    let in_turn = after.is_none() && !(d.rollout.api.is_empty() && d.rollout.kubelets.is_empty());
    let turn = if in_turn { d.delivery_turn(name) } else { Vec::new() };
    let mut steps = Steps { receiver: in_turn.then(|| name.clone()), ..Steps::default() };
    for part in d.host_target(name).parts.iter().filter(|p| which(&p.name)) {
        let action = Action::Deliver { host: name.clone(), part: part.name.clone(), digest: part.digest };
        let why = format!("{} {} is missing or damaged", part.name, part.version);
        let requires =
            std::iter::once(Condition::Prepared(name.clone())).chain(after.clone()).chain(turn.clone()).collect();
        steps.add(d.ensure(action, why, requires));
        if let Place::Image { reference } = &part.place {
            let action = Action::Import { host: name.clone(), reference: reference.clone(), digest: part.digest };
            let delivered = Condition::Delivered(name.clone(), part.digest);
            let requires = vec![delivered, Condition::Running(name.clone(), containerd_unit())];
            steps.add(d.ensure(action, "containerd does not have it", requires));
        }
    }
    steps
}
