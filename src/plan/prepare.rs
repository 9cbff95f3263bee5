//! Stamping, preparing and filling a host: everything that needs nothing but the host itself.

use super::draft::Draft;
use crate::model::desired::Host;
use crate::model::plan::{Action, Mark};
use crate::model::target::Place;

/// The host learns which cluster it belongs to before anything else is written to it.
pub(super) fn stamp(d: &mut Draft, host: &Host) {
    let host = host.name.clone();
    d.ensure(Action::Stamp { host: host.clone() }, "it carries no cluster's stamp yet", vec![], Mark::Stamped(host));
}

/// Users, directories, kernel settings, packages.
pub(super) fn prepare(d: &mut Draft, host: &Host) {
    let name = host.name.clone();
    let gaps = d.look().gaps(&name);
    let stamped = vec![Mark::Stamped(name.clone())];
    d.ensure(
        Action::Prepare { host: name.clone(), gaps },
        "a kubelet and etcd need it",
        stamped.clone(),
        Mark::Prepared(name.clone()),
    );
    let wanted = &d.host_target(&name).packages;
    let missing: std::collections::BTreeSet<String> = wanted
        .iter()
        .filter(|(program, _)| d.host_facts(&name).is_some_and(|f| !f.programs.contains(*program)))
        .map(|(_, package)| package.clone())
        .collect();
    d.ensure(
        Action::InstallPackages { host: name.clone(), packages: missing.into_iter().collect() },
        "the host has not got them",
        stamped,
        Mark::Packaged(name),
    );
}

/// Parts by content address, and images into containerd.
pub(super) fn deliver(d: &mut Draft, host: &Host) {
    let name = &host.name;
    for part in &d.host_target(name).parts {
        let action = Action::Deliver { host: name.clone(), part: part.name.clone(), digest: part.digest };
        let why = format!("{} {} is not there, or not intact", part.name, part.version);
        let delivered = Mark::Delivered(name.clone(), part.digest);
        d.ensure(action, why, vec![Mark::Prepared(name.clone())], delivered.clone());
        if let Place::Image { reference } = &part.place {
            let action = Action::Import { host: name.clone(), reference: reference.clone(), digest: part.digest };
            let containerd = super::configure::containerd_unit();
            let needs = vec![delivered, Mark::Running(name.clone(), containerd)];
            d.ensure(action, "containerd has not got it", needs, Mark::Imported(name.clone(), part.digest));
        }
    }
}
