//! Identity, preparation and parts of a host: everything that depends only on the host itself.

use super::draft::Draft;
use crate::model::control_plane::{API_SERVER, CONTROLLER_MANAGER, SCHEDULER};
use crate::model::desired::Host;
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition};
use crate::model::target::{FileSet, Place};
use crate::model::units::containerd_unit;
use std::collections::BTreeSet;

/// The host gets the cluster's identity before anything else, and the stage of each rotation before files of a later
/// stage. From then on it refuses an older state, so the encrypted state is stored on hosts first.
pub(super) fn cluster_id(d: &mut Draft, host: &Host) {
    let name = host.name.clone();
    let (mut why, mut requires) = ("the host belongs to no cluster yet", Vec::new());
    let found = d.host_facts(&name).and_then(|facts| facts.cluster_id.as_ref());
    if found.is_some_and(|cluster_id| {
        cluster_id.same_cluster(&d.intent.cluster_id) && cluster_id.stages == d.intent.cluster_id.stages
    }) {
        why = "its identity does not name the host and the machine yet";
    } else if has_cluster_id(d, &name) {
        why = "it does not know this stage of the rotation yet";
        let keep = d.changing().into_iter().filter(|h| d.host_target(&h.name).sets.contains_key(&FileSet::State));
        requires.extend(keep.map(|h| Condition::Configured(h.name, FileSet::State)));
    }
    d.ensure(Action::WriteClusterId { host: name }, why, requires);
}

/// The condition for files of a later stage of a rotation on a host of this cluster: the host knows that stage. A new
/// host gets its identity before it is prepared.
pub(super) fn received(d: &Draft, host: &HostName) -> Option<Condition> {
    has_cluster_id(d, host).then(|| Condition::ClusterIdWritten(host.clone()))
}

/// Whether the host belongs to this cluster already.
fn has_cluster_id(d: &Draft, host: &HostName) -> bool {
    let found = d.host_facts(host).and_then(|facts| facts.cluster_id.as_ref());
    found.is_some_and(|cluster_id| cluster_id.same_cluster(&d.intent.cluster_id))
}

/// Users, directories, kernel settings, packages.
pub(super) fn prepare(d: &mut Draft, host: &Host) {
    let name = host.name.clone();
    let gaps = d.gaps(&name);
    let stamped = if has_cluster_id(d, &name) { vec![] } else { vec![Condition::ClusterIdWritten(name.clone())] };
    d.ensure(Action::Prepare { host: name.clone(), gaps }, "the kubelet and etcd need it", stamped.clone());
    let wanted = &d.host_target(&name).packages;
    let lacks = |program: &String| d.host_facts(&name).is_some_and(|f| !f.programs.contains(program));
    let missing: BTreeSet<&String> = wanted.iter().filter(|(p, _)| lacks(p)).map(|(_, package)| package).collect();
    let packages = missing.into_iter().cloned().collect();
    d.ensure(Action::InstallPackages { host: name, packages }, "they are not installed", stamped);
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
pub(super) fn deliver_first(d: &mut Draft, host: &Host) {
    deliver(d, host, |part| FIRST.contains(&part), None);
}

/// Tools for people: of no use before the endpoint is ready.
const LAST: [&str; 3] = ["kubectl", "etcdctl", "etcdutl"];

/// All other parts. Before the host's API server is up, they would only delay it.
pub(super) fn deliver_rest(d: &mut Draft, host: &Host) {
    let rising = |d: &Draft, mark: Condition| (d.plans(&mark) && !d.serves_now(&host.name)).then_some(mark);
    let manifests = rising(d, Condition::Configured(host.name.clone(), FileSet::ControlPlane));
    deliver(d, host, |part| !FIRST.contains(&part) && !LAST.contains(&part) && part != "coredns", manifests);
    // No pod uses cluster DNS before there are Nodes for pods.
    let serving = rising(d, Condition::Serving(host.name.clone()));
    deliver(d, host, |part| part == "coredns", serving);
    let endpoint = rising(d, Condition::Endpoint);
    deliver(d, host, |part| LAST.contains(&part), endpoint);
}

/// Only the tools that a recovery needs.
pub(super) fn deliver_tools(d: &mut Draft, host: &Host, tools: &[&str]) {
    deliver(d, host, |part| tools.contains(&part), None);
}

/// Parts by content address, and images into containerd.
fn deliver(d: &mut Draft, host: &Host, which: impl Fn(&str) -> bool, after: Option<Condition>) {
    let name = &host.name;
    let turn = d.delivery_turn(name, after.is_none());
    for part in d.host_target(name).parts.iter().filter(|p| which(&p.name)) {
        let action = Action::Deliver { host: name.clone(), part: part.name.clone(), digest: part.digest };
        let why = format!("{} {} is missing or damaged", part.name, part.version);
        let requires =
            std::iter::once(Condition::Prepared(name.clone())).chain(after.clone()).chain(turn.clone()).collect();
        d.ensure(action, why, requires);
        if let Place::Image { reference } = &part.place {
            let action = Action::Import { host: name.clone(), reference: reference.clone(), digest: part.digest };
            let delivered = Condition::Delivered(name.clone(), part.digest);
            let requires = vec![delivered, Condition::Running(name.clone(), containerd_unit())];
            d.ensure(action, "containerd does not have it", requires);
        }
    }
}
