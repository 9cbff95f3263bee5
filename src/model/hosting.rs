//! How the components of a control plane are delivered to its hosts: as static pods, or as pods of `DaemonSets` of the
//! cluster that they control, with the static pods in reserve.
//!
//! In: read by `inventory/`, and facts of hosts. Out: part of the desired state; what a host may do about its static
//! pods; how each component runs there.

use super::control_plane::{API_SERVER, ELECTED, ELECTED_PORTS, MANIFESTS, PROGRAMS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// The unit that keeps a control plane on its host.
pub const UNIT: &str = "hactl-hosting.service";
/// The folder of manifests that the kubelet does not read. It is on the file system of the kubelet's folder, so that a
/// rename moves a manifest between the two.
pub const FOLDER: &str = "/etc/kubernetes/hosting/";
/// What the host may do.
pub const MODE: &str = "/etc/kubernetes/hosting/mode.json";
/// The folder of the program that pods wait with. Its path is the same for every release of hactl: with another one, a
/// new release would replace the pods.
pub const PROGRAM_FOLDER: &str = "/var/lib/hactl/hosting";
/// The add-on of the `DaemonSets`.
pub const ADDON: &str = "hosting";
/// The label of Nodes that the pods run on. No kubelet may set a label with this prefix.
pub const NODE_LABEL: &str = "node-restriction.kubernetes.io/control-plane-hosting";
/// Its value.
pub const NODE_LABEL_VALUE: &str = "self";
/// The variable with the revision in the environment of such a pod.
pub const REVISION_VARIABLE: &str = "HACTL_REVISION";
/// The variable with the uid of the pod.
pub const POD_VARIABLE: &str = "HACTL_POD";
/// The variable with the address of the host.
pub const ADDRESS_VARIABLE: &str = "HOST_IP";
/// The command of a pod that waits until nobody listens at the port of its component.
pub const AWAIT_TURN: &str = "host-await-turn";
/// The longest revision and the longest uid that are read.
const LONGEST: usize = 64;

/// How a control plane is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosting {
    /// As static pods.
    #[default]
    Static,
    /// As pods of `DaemonSets`, with static pods in reserve.
    #[serde(rename = "self")]
    SelfHosted,
}

/// What a host may do about its static pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Static pods run, whatever else waits or serves.
    Held,
    /// A pod of this revision may take over.
    Workloads(String),
}

/// A pod of a `DaemonSet`, as its process shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The uid of the pod.
    pub uid: String,
    /// The revision of its template.
    pub revision: String,
}

/// Who listens at the port of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// The static pod, or another process of the program that is in no pod of a `DaemonSet`.
    Static,
    /// A pod of the `DaemonSet`.
    Workload(Workload),
    /// Another program.
    Other,
}

/// How one component runs on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentFact {
    /// Whether the kubelet may read its manifest.
    pub placed: bool,
    /// Whether its manifest is aside.
    pub aside: bool,
    /// Who listens at its port.
    pub server: Option<Server>,
    /// Whether it answers HTTP, with any status.
    pub answers: bool,
    /// The pod that waits for the port.
    pub waits: Option<Workload>,
}

impl ComponentFact {
    /// The pod that listens.
    pub fn workload(&self) -> Option<&Workload> {
        match &self.server {
            Some(Server::Workload(workload)) => Some(workload),
            _ => None,
        }
    }
    /// Whether a pod of this revision has taken over.
    pub fn is_hosted_by(&self, revision: &str) -> bool {
        !self.placed && self.answers && self.workload().is_some_and(|workload| workload.revision == revision)
    }
    /// Whether its manifest is in place, and no pod of a `DaemonSet` has the port.
    pub fn is_held(&self) -> bool {
        self.placed && self.workload().is_none()
    }
}

/// How the control plane runs on a host that has been self-hosted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostingFact {
    /// What the host may do; `None`: its file cannot be read, which counts as held.
    pub mode: Option<Mode>,
    /// Each component, by the name of its program.
    pub components: BTreeMap<String, ComponentFact>,
}

impl HostingFact {
    /// The revision that may take over.
    pub fn revision(&self) -> Option<&str> {
        match &self.mode {
            Some(Mode::Workloads(revision)) => Some(revision),
            Some(Mode::Held) | None => None,
        }
    }
    /// Whether static pods run, and no pod may take over.
    pub fn is_held(&self) -> bool {
        self.revision().is_none() && self.all(ComponentFact::is_held)
    }
    /// Whether pods of this revision have taken over all components.
    pub fn is_hosted_by(&self, revision: &str) -> bool {
        self.revision() == Some(revision) && self.all(|component| component.is_hosted_by(revision))
    }
    /// Whether a component is served by a pod that may serve it: its manifest in reserve needs no process.
    pub fn is_delegated(&self, program: &str) -> bool {
        let component = self.components.get(program);
        self.revision().zip(component).is_some_and(|(revision, component)| component.is_hosted_by(revision))
    }
    /// Whether pods serve all components, of whatever revision.
    pub fn is_by_workloads(&self) -> bool {
        self.revision().is_some()
            && self.all(|component| component.workload().is_some_and(|pod| component.is_hosted_by(&pod.revision)))
    }
    fn all(&self, is: impl Fn(&ComponentFact) -> bool) -> bool {
        PROGRAMS.iter().all(|program| self.components.get(*program).is_some_and(&is))
    }
    /// Why it cannot be, if it cannot: a component that does not exist, or names that no API server gives.
    pub fn impossible(&self) -> Option<String> {
        if let Some(unknown) = self.components.keys().find(|name| !PROGRAMS.contains(&name.as_str())) {
            return Some(format!("component {:?}", shortened(unknown)));
        }
        let revision = self.revision().into_iter();
        let workloads = self.components.values().flat_map(|c| c.workload().into_iter().chain(&c.waits));
        let mut names = revision.chain(workloads.flat_map(|workload| [workload.uid.as_str(), &workload.revision]));
        names.find(|name| !is_name(name)).map(|name| format!("pod or revision {:?}", shortened(name)))
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Whether it is a plain name, such as a uid or a revision.
pub fn is_name(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// A component by its program, and where it listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// The program.
    pub program: &'static str,
    /// Where it listens.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

impl Component {
    /// The components of a host whose API server listens there, in the order in which they are handed over: the API
    /// server comes after its clients.
    pub fn all(address: IpAddr, port: u16) -> [Self; 3] {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let [scheduler, manager] = ELECTED_PORTS;
        [
            Self { program: ELECTED[0], address: loopback, port: scheduler },
            Self { program: ELECTED[1], address: loopback, port: manager },
            Self { program: API_SERVER, address, port },
        ]
    }
    /// Whether it is the API server.
    pub fn is_api_server(&self) -> bool {
        self.program == API_SERVER
    }
    /// The manifest of its static pod, for the kubelet.
    pub fn manifest(&self) -> String {
        format!("{MANIFESTS}{}.yaml", self.program)
    }
    /// The same manifest, where the kubelet does not read it.
    pub fn aside(&self) -> String {
        format!("{FOLDER}{}.yaml", self.program)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program)
    }
}

/// Where the manifest at this path is when the kubelet does not read it; `None`: it is no manifest of a component.
pub fn aside(path: &str) -> Option<String> {
    let name = path.strip_prefix(MANIFESTS)?;
    PROGRAMS.contains(&name.strip_suffix(".yaml")?).then(|| format!("{FOLDER}{name}"))
}

/// The files of self-hosting that no set has: the mode, and manifests that are aside.
pub fn files() -> Vec<String> {
    let manifests = PROGRAMS.iter().map(|program| format!("{FOLDER}{program}.yaml"));
    manifests.chain([MODE.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::control_plane::SCHEDULER;

    #[test]
    fn only_manifests_of_components_have_a_place_aside() {
        assert_eq!(
            aside("/etc/kubernetes/manifests/kube-scheduler.yaml").as_deref(),
            Some("/etc/kubernetes/hosting/kube-scheduler.yaml")
        );
        for other in ["/etc/kubernetes/manifests/other.yaml", "/etc/hosts", "/etc/kubernetes/manifests/kube-scheduler"]
        {
            assert_eq!(aside(other), None);
        }
        for component in Component::all(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443) {
            assert_eq!(aside(&component.manifest()), Some(component.aside()));
            assert!(files().contains(&component.aside()));
        }
    }

    #[test]
    fn a_host_is_hosted_only_if_all_components_are_and_by_the_revision_that_may() {
        let component = |revision: &str| ComponentFact {
            aside: true,
            server: Some(Server::Workload(Workload { uid: "u".to_owned(), revision: revision.to_owned() })),
            answers: true,
            ..ComponentFact::default()
        };
        let all = |revision: &str| PROGRAMS.iter().map(|p| ((*p).to_owned(), component(revision))).collect();
        let mut fact = HostingFact { mode: Some(Mode::Workloads("a".to_owned())), components: all("a") };
        assert!(fact.is_hosted_by("a") && !fact.is_hosted_by("b") && !fact.is_held());
        assert!(fact.is_delegated(API_SERVER) && !fact.is_delegated("etcd"));
        fact.components.insert(SCHEDULER.to_owned(), ComponentFact { placed: true, ..component("a") });
        assert!(!fact.is_hosted_by("a") && !fact.is_delegated(SCHEDULER));
        let held = ComponentFact { placed: true, server: Some(Server::Static), ..ComponentFact::default() };
        fact.components = PROGRAMS.iter().map(|p| ((*p).to_owned(), held.clone())).collect();
        assert!(!fact.is_held(), "a pod may take over at any time");
        fact.mode = Some(Mode::Held);
        assert!(fact.is_held());
        fact.components.remove(SCHEDULER);
        assert!(!fact.is_held(), "nothing is known of a component");
    }

    #[test]
    fn names_that_nobody_gives_are_impossible() {
        let mode = |text: &str| HostingFact { mode: Some(Mode::Workloads(text.to_owned())), ..HostingFact::default() };
        assert_eq!(mode("0a1b").impossible(), None);
        for bad in ["", "a b", "\u{1b}[2J", &"a".repeat(65)] {
            assert!(mode(bad).impossible().is_some(), "{bad:?}");
        }
        let unknown = HostingFact { components: [("x".to_owned(), ComponentFact::default())].into(), mode: None };
        assert!(unknown.impossible().is_some());
    }
}
