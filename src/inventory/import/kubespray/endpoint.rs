//! Kubespray's endpoint: kube-vip, an external balancer, or one on every Node.
//!
//! In: the variables of a control-plane host. Out: one endpoint, and a note for each of the others: hactl has one.

use super::super::ansible::scope::Scope;
use super::super::draft::{Draft, Said, Way};
use super::super::node::Node;
use super::super::notes::{Notes, listed, short};

/// The default port.
const PORT: u16 = 6443;

/// Reads it.
pub fn endpoint(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    let api = scope.port(&["kube_apiserver_port"], notes);
    draft.api_port = api.clone().filter(|port| port.value != PORT);
    let domain = scope.text("apiserver_loadbalancer_domain_name", notes);
    draft.endpoint_name = domain.filter(|said| said.value != "lb-apiserver.kubernetes.local");
    if scope.is_true("kube_vip_services_enabled", notes) == Some(true) {
        notes.add(
            place_of(scope, "kube_vip_services_enabled"),
            "kube-vip assigns addresses to Services there; hactl has no equivalent",
            "install MetalLB, kube-vip or Cilium's load balancer as a manifest",
        );
    }
    let kube_vip = kube_vip(scope, notes);
    let Outside { address, port } = outside(scope, notes);
    let local = scope.is_true("loadbalancer_apiserver_localhost", notes);
    let local_port = scope.port(&["loadbalancer_apiserver_port"], notes);
    if let Some((vip, interface)) = kube_vip {
        both(scope, local, "the virtual address", notes);
        let elsewhere = address.filter(|address| address.value != vip.value);
        if let Some(address) = &elsewhere {
            let port = port.as_ref().or(api.as_ref()).map_or(PORT, |port| port.value);
            notes.endpoint(
                &address.place,
                format!(
                    "clients use {} there (loadbalancer_apiserver), and here kube-vip's address is the endpoint",
                    short(&address.value)
                ),
                format!("use --external {}:{port} to make that the endpoint", short(&address.value)),
            );
        }
        draft.endpoint = Some(Way::Vip(vip));
        draft.interface = interface;
        // The port of another address is not this one's.
        draft.endpoint_port = port.filter(|_| elsewhere.is_none()).or(api).filter(|port| port.value != PORT);
    } else if let Some(address) = address {
        both(scope, local, "the balancer of loadbalancer_apiserver", notes);
        let port = port.or(api).map_or(PORT, |port| port.value);
        let to = format!("{}:{port}", address.value);
        draft.endpoint = Some(Way::External(Said::new(to, "loadbalancer_apiserver", address.place)));
    } else {
        if let Some(port) = port {
            notes.endpoint(
                port.place,
                "loadbalancer_apiserver has a port and no address: left out",
                "use --external HOST:PORT to make your own balancer the endpoint",
            );
        }
        of_every_node(scope, draft, local, local_port.or(api), notes);
    }
    draft.sans = scope.list("supplementary_addresses_in_ssl_keys", notes);
}

/// The address that kube-vip manages for the control plane, with its interface.
fn kube_vip(scope: &Scope<'_>, notes: &mut Notes) -> Option<(Said, Option<Said>)> {
    let enabled = scope.is_true("kube_vip_enabled", notes) == Some(true);
    let of_control_plane = scope.is_true("kube_vip_controlplane_enabled", notes) != Some(false);
    let address = scope.text("kube_vip_address", notes);
    let interface = scope.text("kube_vip_interface", notes);
    match address {
        Some(address) if enabled && of_control_plane => Some((address, interface)),
        address => {
            for said in [address, interface].into_iter().flatten() {
                notes.add(
                    &said.place,
                    format!("{} is not carried over: kube-vip manages no address of the control plane", said.key),
                    "use --vip ADDRESS for an address managed by hactl; its interface goes under endpoint.interface",
                );
            }
            None
        }
    }
}

/// An external balancer.
#[derive(Default)]
struct Outside {
    address: Option<Said>,
    port: Option<Said<u16>>,
}

fn outside(scope: &Scope<'_>, notes: &mut Notes) -> Outside {
    let found = scope.node("loadbalancer_apiserver", notes).filter(|var| !var.node.is_empty());
    let Some(var) = found else { return Outside::default() };
    let inside = |key: &str| {
        let text = var.node.word(key)?;
        Some(Said::<String>::new(text, format!("loadbalancer_apiserver.{key}"), &*var.place))
    };
    let unread = |(key, node): &&(String, Node)| !matches!(key.as_str(), "address" | "port") && !node.is_empty();
    let unread: Vec<&String> = var.node.entries().iter().filter(unread).map(|(key, _)| key).collect();
    if !var.node.is_map() {
        notes.endpoint(
            &var.place,
            "loadbalancer_apiserver is not a mapping with an address: left out",
            "use --external HOST:PORT to make your own balancer the endpoint",
        );
    } else if !unread.is_empty() {
        notes.add(
            &var.place,
            format!("keys of loadbalancer_apiserver not carried over: {}", listed(&unread, 10)),
            "check whether your balancer needs them",
        );
    }
    let port = inside("port").and_then(|said| match said.value.parse::<u16>() {
        Ok(port @ 1..) => Some(Said::new(port, said.key, said.place)),
        _ => {
            notes.add(
                &said.place,
                format!("{} is not a port: {}", said.key, short(&said.value)),
                "write a number from 1 to 65535 at the endpoint of the new inventory",
            );
            None
        }
    });
    Outside { address: inside("address"), port }
}

/// A balancer on every Node, or none.
fn of_every_node(
    scope: &Scope<'_>,
    draft: &mut Draft,
    local: Option<bool>,
    port: Option<Said<u16>>,
    notes: &mut Notes,
) {
    let place = scope.raw("loadbalancer_apiserver_localhost").map(|var| var.place.clone());
    if local == Some(false) {
        notes.endpoint(
            place.unwrap_or_default(),
            "there is no load balancer there: all clients depend on the API server of the first control-plane host",
            "choose an endpoint: --vip, --external or --local",
        );
        return;
    }
    if place.is_none() {
        notes.endpoint(
            &draft.file,
            "no endpoint is set, so every Node runs its own balancer, as with Kubespray",
            "use --vip ADDRESS or --external HOST:PORT for an address that people can use too",
        );
    }
    draft.endpoint = Some(Way::Local(Said::new(
        (),
        "loadbalancer_apiserver_localhost",
        place.unwrap_or_else(|| draft.file.clone()),
    )));
    draft.endpoint_port = port.filter(|port| port.value != PORT);
}

/// Reports a balancer on every Node that another endpoint replaces.
fn both(scope: &Scope<'_>, local: Option<bool>, by: &str, notes: &mut Notes) {
    if local == Some(true) {
        notes.endpoint(
            place_of(scope, "loadbalancer_apiserver_localhost"),
            format!("there is a balancer on every Node and {by} as well: here the endpoint is {by}"),
            "nothing, or use --local for the balancer on every Node",
        );
    }
}

/// Where a variable is set.
pub fn place_of(scope: &Scope<'_>, key: &str) -> String {
    scope.raw(key).map(|var| var.place.clone()).unwrap_or_default()
}
