//! etcd's unit and settings, and the balancer of a control-plane host, in front of etcd and of API servers.

use serde::Serialize;

use super::{CIPHERS, Setting, in_url};
use crate::model::desired::{Desired, Host, Role, SERVES};
use crate::model::metrics::ETCD_BALANCER;
use crate::model::ports::KUBELETS_API;
use crate::model::recovery::STAYS_DOWN;
use crate::model::version::KUBELET_MAY_LAG;
use crate::protocol::{ETCD_BALANCER_SOCKET, EtcdAsk};
use crate::render::input::minor;
use crate::render::{Input, RenderError};

/// For `etcd/etcd.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    data_dir: String,
    home_is_empty: bool,
    program: String,
}

pub(crate) fn unit(input: &Input<'_>) -> Result<Unit, RenderError> {
    // A directory that `ProtectHome` hides may nevertheless be a disk for data.
    let home_is_empty = !["/home", "/root"].iter().any(|home| input.desired.etcd.data_dir.starts_with(home));
    Ok(Unit { data_dir: data_dir(input), home_is_empty, program: input.program("etcd")? })
}

/// For `etcd/10-fence.conf`.
#[derive(Debug, Serialize)]
pub(crate) struct Fence {
    program: String,
    data_dir: String,
    address: String,
    stays_down: u8,
}

pub(crate) fn fence(input: &Input<'_>) -> Fence {
    Fence {
        program: input.hactl_path.to_owned(),
        data_dir: data_dir(input),
        address: in_url(input.host.address),
        stays_down: STAYS_DOWN,
    }
}

/// For `etcd/etcd.env`.
#[derive(Debug, Serialize)]
pub(crate) struct Env {
    name: String,
    data_dir: String,
    address: String,
    ciphers: String,
    quota_bytes: u64,
    trusts: String,
    extra: Vec<Setting>,
}

pub(crate) fn env(input: &Input<'_>) -> Env {
    let extra = input.desired.extra.args.get("etcd").into_iter().flatten();
    Env {
        name: input.host.name.to_string(),
        data_dir: data_dir(input),
        address: in_url(input.host.address),
        ciphers: CIPHERS.join(","),
        quota_bytes: u64::from(input.desired.etcd.quota_gib) << 30,
        trusts: input.trust.etcd(),
        // A later line of an environment file takes precedence, so these are last.
        extra: extra
            .map(|(name, value)| Setting {
                name: format!("ETCD_{}", name.replace('-', "_").to_uppercase()),
                value: value.clone(),
            })
            .collect(),
    }
}

/// How a host reaches its member, whether it is to have one or still has one.
pub fn own_etcd(desired: &Desired) -> EtcdAsk {
    EtcdAsk::own(desired.etcd.data_dir.display().to_string())
}

fn data_dir(input: &Input<'_>) -> String {
    input.desired.etcd.data_dir.display().to_string()
}

/// For `etcd-balancer/haproxy.cfg`.
#[derive(Debug, Serialize)]
pub(crate) struct Balancer {
    socket: &'static str,
    etcd_trusts: String,
    members: Vec<Server>,
    api_trusts: String,
    api_servers: Vec<Server>,
    api_port: u16,
    kubelets_api: u16,
    serves: &'static str,
    minors: String,
    /// The port of its metrics, if they are served.
    metrics: Option<u16>,
}

#[derive(Debug, Serialize)]
struct Server {
    name: String,
    address: String,
}

pub(crate) fn balancer(input: &Input<'_>) -> Balancer {
    let servers = |serves: fn(&Host) -> bool| {
        let hosts = nearest_first(input, serves).into_iter();
        hosts.map(|host| Server { name: host.name.to_string(), address: in_url(host.address) }).collect()
    };
    let kubelet = minor(&input.desired.versions.kubernetes);
    let minors: Vec<String> = (kubelet..=kubelet + KUBELET_MAY_LAG).map(|minor| minor.to_string()).collect();
    Balancer {
        socket: ETCD_BALANCER_SOCKET,
        etcd_trusts: input.trust.etcd(),
        members: servers(Host::may_vote),
        api_trusts: input.trust.servers(),
        api_servers: servers(|host| host.is(Role::ControlPlane)),
        api_port: input.desired.api_port,
        kubelets_api: KUBELETS_API,
        serves: SERVES,
        minors: minors.join("|"),
        metrics: input.desired.metrics.then_some(ETCD_BALANCER),
    }
}

/// The members or the API servers in the order of preference of this host: its own, then those of its zone, then the
/// others. Within each group they follow the order of the inventory, starting after this host, so that the clients of a
/// failed one do not all use the same other one.
fn nearest_first<'a>(input: &Input<'a>, serves: fn(&Host) -> bool) -> Vec<&'a Host> {
    let here = input.desired.hosts.iter().position(|h| h.name == input.host.name).unwrap_or(0);
    let count = input.desired.hosts.len();
    let mut servers: Vec<(bool, bool, usize, &Host)> = input
        .desired
        .hosts
        .iter()
        .enumerate()
        .filter(|(_, host)| serves(host))
        .map(|(at, host)| {
            let near = host.zone.is_some() && host.zone == input.host.zone;
            (host.name != input.host.name, !near, (at + count - here) % count, host)
        })
        .collect();
    servers.sort_by_key(|(other, far, distance, _)| (*other, *far, *distance));
    servers.into_iter().map(|(.., host)| host).collect()
}
