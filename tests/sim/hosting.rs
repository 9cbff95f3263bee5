//! A self-hosted control plane in the simulated world: who runs on a host, static pods or pods.
//!
//! The manifests stay where they are in this world: which of the two runs is a state of the host. Pods and static pods
//! start as the kubelet does, from the same manifests.

use super::effect::need;
use super::make;
use super::member::Stop;
use super::world::{SimHost, World};
use hactl::model::control_plane::PROGRAMS;
use hactl::model::hosting::{ADDON, ComponentFact, HostingFact, Mode, Server, Workload};
use hactl::model::names::HostName;
use hactl::model::target::object_key;

/// Static pods are in place from now on, if the host was ever self-hosted. They run once its pods have ended.
pub fn hold(world: &mut World, host: &HostName) {
    if world.host(host).hosting.is_some() {
        world.host_mut(host).hosting = Some(Mode::Held);
    }
}

/// The pods of a host end, and its static pods run.
fn end_pods(world: &mut World, host: &HostName) {
    if world.host(host).taken.is_some() {
        restart(world, host);
        world.host_mut(host).taken = None;
    }
}

fn restart(world: &mut World, host: &HostName) {
    if world.api_serves(host) {
        world.disturbed.insert(host.clone());
    }
    world.host_mut(host).processes.clear();
    world.settle();
}

/// Pods of a revision take over.
pub fn hand_over(world: &mut World, host: &HostName, of: &str) -> Result<(), Stop> {
    need(world.labelled.contains(host), || format!("the Node {host} has no label"))?;
    need(world.applied(ADDON) && world.target.revision() == Some(of), || format!("there are no pods of {of}"))?;
    need(world.any_api() && world.host(host).runs("kubelet.service"), || format!("{host} gets no pods"))?;
    need(world.host(host).runs(make::KEEPS), || format!("nothing keeps a control plane on {host}"))?;
    restart(world, host);
    let found = world.host_mut(host);
    (found.hosting, found.taken) = (Some(Mode::Workloads(of.to_owned())), Some(of.to_owned()));
    Ok(())
}

/// Without its label a Node has no pods.
pub fn label(world: &mut World, host: &HostName, labelled: bool) -> Result<(), Stop> {
    need(world.any_api(), || "no API server answers".to_owned())?;
    if labelled {
        world.labelled.insert(host.clone());
    } else {
        world.labelled.remove(host);
        end_pods(world, host);
    }
    Ok(())
}

/// Without the objects, all pods would end in the same second.
pub fn no_pods_of(world: &World, key: &str) -> Result<(), Stop> {
    let has_pods = |host: &&HostName| world.host(host).taken.is_some();
    let left = world.hosts.keys().find(has_pods).filter(|_| key.ends_with("|hosting"));
    need(left.is_none(), || format!("{left:?} has pods of {key}"))
}

/// The report of a host.
pub fn fact(host: &SimHost) -> Option<HostingFact> {
    let component = |program: &&str| {
        let runs = host.on && host.processes.contains_key(*program);
        let pod = |revision: &String| Workload { uid: "u".to_owned(), revision: revision.clone() };
        let server = host.taken.as_ref().map_or(Server::Static, |revision| Server::Workload(pod(revision)));
        let placed = host.taken.is_none() || host.hosting == Some(Mode::Held);
        let fact = ComponentFact { placed, aside: !placed, server: runs.then_some(server), answers: runs, waits: None };
        ((*program).to_owned(), fact)
    };
    let components = PROGRAMS.iter().map(component).collect();
    host.hosting.clone().map(|mode| HostingFact { mode: Some(mode), components })
}

impl World {
    /// Whether all hosts of the control plane run it in pods of the wanted revision.
    pub fn is_self_hosted(&self) -> bool {
        let planes = self.with(hactl::model::desired::Role::ControlPlane);
        planes.into_iter().all(|host| self.holds(&hactl::model::plan::Condition::Hosted(host)))
    }

    /// Whether nothing of self-hosting is left.
    pub fn is_static(&self) -> bool {
        let fixed = |host: &SimHost| host.taken.is_none() && !host.files.contains_key(make::KEEPER);
        let left = self.objects.values().any(|object| object_key(object).ends_with("|hosting"));
        self.hosts.values().all(fixed) && self.labelled.is_empty() && !left
    }
}
