//! The `DaemonSets` of a self-hosted control plane, made from the rendered static pods: one source of flags for both.
//!
//! In: the manifests of the static pods of each host. Out: one object per component, the same for every host: what
//! differs between hosts comes from the environment of the pod.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use std::net::IpAddr;

use super::{RenderError, addons, yaml};
use crate::model::control_plane::PROGRAMS;
use crate::model::desired::Desired;
use crate::model::hosting::{
    ADDON, ADDRESS_VARIABLE, AWAIT_TURN, Component, Hosting, NODE_LABEL, NODE_LABEL_VALUE, POD_VARIABLE,
    PROGRAM_FOLDER, REVISION_VARIABLE,
};
use crate::model::labels::{HOSTS, REVISION};
use crate::model::names::Digest;
use crate::model::target::Addon;
use crate::protocol::FilePut;

/// The name of the volume with hactl, and of the container that waits with it.
const TURN: &str = "turn";

/// The add-on before any host is rendered: the names of its objects are known. None if the control plane is not
/// self-hosted.
///
/// # Errors
/// The manifest of its policy is no YAML.
pub(super) fn named(desired: &Desired) -> Result<Option<Addon>, RenderError> {
    if desired.hosting == Hosting::Static {
        return Ok(None);
    }
    let object = |program: &&str| json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": program, "namespace": "kube-system"}});
    let objects = PROGRAMS.iter().map(object).chain(addons::HOSTING.objects()?).collect();
    Ok(Some(Addon { name: ADDON.to_owned(), objects, needed_for_ready: false }))
}

/// The same with its objects, from the manifests of all hosts that have some; `None` without any.
///
/// # Errors
/// A manifest is no YAML.
pub fn complete(desired: &Desired, hosts: &[(IpAddr, &[FilePut])]) -> Result<Option<Addon>, RenderError> {
    let Some(addon) = named(desired)? else { return Ok(None) };
    let mut templates = Vec::new();
    for program in PROGRAMS {
        let mut of_hosts = Vec::new();
        for (address, files) in hosts {
            let Some(component) = component(program, *address, desired.api_port) else { continue };
            let Some(file) = files.iter().find(|file| file.path == component.manifest()) else { continue };
            of_hosts.push(template(component, yaml::parse(program, &file.content)?));
        }
        // Hosts of another distribution mount one more folder, which is made where it is missing.
        let Some(most) = of_hosts.into_iter().max_by_key(|template| (template.to_string().len(), template.to_string()))
        else {
            return Ok(None);
        };
        templates.push((program, most));
    }
    let all: Vec<&Value> = templates.iter().map(|(_, template)| template).collect();
    let revision = Digest::of(json!(all).to_string().as_bytes()).short();
    let sets = templates.into_iter().map(|(program, template)| daemon_set(program, template, &revision));
    let policy = addon.objects.into_iter().skip(PROGRAMS.len());
    Ok(Some(Addon {
        objects: sets.chain(policy).collect(),
        name: addon.name,
        needed_for_ready: addon.needed_for_ready,
    }))
}

fn component(program: &str, address: IpAddr, port: u16) -> Option<Component> {
    Component::all(address, port).into_iter().find(|component| component.program == program)
}

/// The pods of a `DaemonSet`, from a static pod. Without what only a static pod has (uid, priority as a number, the
/// digest of the files of one host), and without what belongs to one host.
fn template(component: Component, mut pod: Value) -> Value {
    let address = component.address.to_string();
    let own = component.is_api_server();
    let mut spec = pod["spec"].take();
    remove(&mut spec, "priority");
    let mut turn = Value::Null;
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        for word in container["command"].as_array_mut().into_iter().flatten() {
            let flag = word.as_str().and_then(|text| text.split_once('='));
            if own && let Some((flag, _)) = flag.filter(|(_, value)| *value == address) {
                *word = json!(format!("{flag}=$({ADDRESS_VARIABLE})"));
            }
        }
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            // With the network of the host, the address of the pod is that of the host.
            if own && let Some(get) = container.pointer_mut(&format!("/{probe}/httpGet")) {
                remove(get, "host");
            }
        }
        let given = container["env"].as_array().cloned().unwrap_or_default();
        container["env"] = Value::Array([variables(), given].concat());
        turn = turn_of(container, component);
        waits_first(container, component);
    }
    spec["initContainers"] = json!([turn]);
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({"name": TURN, "hostPath": {"path": PROGRAM_FOLDER, "type": "Directory"}}));
    }
    spec["nodeSelector"] = json!({NODE_LABEL: NODE_LABEL_VALUE});
    // A taint must not end a control plane.
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    let labels = json!({HOSTS: component.program, "tier": "control-plane"});
    json!({"metadata": {"labels": labels}, "spec": spec})
}

fn remove(value: &mut Value, key: &str) {
    value.as_object_mut().and_then(|map: &mut Map<String, Value>| map.remove(key));
}

/// The revision is filled in last: it is a digest of the rest.
fn variables() -> Vec<Value> {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    vec![
        field(ADDRESS_VARIABLE, "status.hostIP"),
        field(POD_VARIABLE, "metadata.uid"),
        json!({"name": REVISION_VARIABLE, "value": ""}),
    ]
}

/// The words that wait until nobody listens at the port of the component.
fn wait(component: Component) -> Vec<Value> {
    let address =
        if component.is_api_server() { format!("$({ADDRESS_VARIABLE})") } else { component.address.to_string() };
    let port = component.port.to_string();
    json!([format!("/{TURN}/hactl"), AWAIT_TURN, "--address", address, "--port", port])
        .as_array()
        .cloned()
        .unwrap_or_default()
}

fn program_mount() -> Value {
    json!({"name": TURN, "mountPath": format!("/{TURN}"), "readOnly": true})
}

/// The first container, which waits before the pod counts as started: only then do its probes begin.
fn turn_of(container: &Value, component: Component) -> Value {
    json!({
        "name": TURN,
        "image": container["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": wait(component),
        "env": variables(),
        "volumeMounts": [program_mount()],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}},
    })
}

/// A container that is started again waits, too: the first one of its pod does not run a second time, and without the
/// wait it would end at the port of a static pod for good.
fn waits_first(container: &mut Value, component: Component) {
    let command = container["command"].as_array().cloned().unwrap_or_default();
    container["command"] = Value::Array([wait(component), vec![json!("--")], command].concat());
    let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    container["volumeMounts"] = Value::Array([mounts, vec![program_mount()]].concat());
}

fn daemon_set(program: &str, mut template: Value, revision: &str) -> Value {
    template["metadata"]["annotations"] = json!({REVISION: revision});
    for list in ["containers", "initContainers"] {
        let containers = template["spec"][list].as_array_mut().into_iter().flatten();
        for variable in containers.flat_map(|container| container["env"].as_array_mut().into_iter().flatten()) {
            if variable["name"] == REVISION_VARIABLE {
                variable["value"] = json!(revision);
            }
        }
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": program, "namespace": "kube-system", "labels": {HOSTS: program}},
        "spec": {
            "selector": {"matchLabels": {HOSTS: program}},
            "revisionHistoryLimit": 5,
            "minReadySeconds": 30,
            // hactl replaces pods, host by host: the controller would replace a good pod that is not ready for a moment
            // by a bad one.
            "updateStrategy": {"type": "OnDelete"},
            "template": template,
        },
    })
}
