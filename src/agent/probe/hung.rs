//! Which components of this host run and do not answer. systemd calls a unit active while a signal has suspended its
//! processes or while they hang, and the kubelet takes minutes to end such an API server.
//!
//! In: units, and the address of the API server. Out: those that hang, each with the reason. A refused connection is
//! that of a component that starts or is down, and an error is an answer. A busy component may answer late, so it is
//! asked twice.

use super::api_server::api_server_processes;
use super::process::{self, Runs};
use super::{balancer, runtime};
use crate::agent::machine::processes::{is_stopped, started_at};
use crate::agent::machine::root::Root;
use crate::agent::machine::when::now_ms;
use crate::agent::plain_http::answers;
use crate::model::control_plane::API_SERVER;
use crate::model::names::UnitName;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// How long a component may take to answer, at first and when it is asked again: in all no longer than a run waits for
/// the answer of a host.
const TRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// Longer than each of them.
const LONGER: Duration = Duration::from_secs(60);
/// An API server listens some time before it serves, milliseconds.
const STARTS_MS: i64 = 60_000;

/// Those of them that hang, each with the reason as a clause: units by their names, the API server by that of its
/// program.
pub async fn hung(root: &Root, units: &[UnitName], api: Option<(IpAddr, u16)>) -> BTreeMap<String, String> {
    // The components of this machine must not answer for a test directory.
    if !root.is_host() {
        return BTreeMap::new();
    }
    let units = join_all(units.iter().map(|unit| async move { Some((unit.to_string(), of_unit(root, unit).await?)) }));
    let api = async { Some((API_SERVER.to_owned(), hung_api_server(root, api?).await?)) };
    let (units, api) = tokio::join!(units, api);
    units.into_iter().chain([api]).flatten().collect()
}

/// Why a unit does not answer. A unit that nobody can ask does not hang.
async fn of_unit(root: &Root, unit: &UnitName) -> Option<String> {
    let name = unit.as_str();
    let known = [runtime::KUBELET, balancer::HAPROXY, balancer::ETCD_BALANCER, balancer::KEEPALIVED];
    if !known.contains(&name) {
        return None;
    }
    let process = match process::of(name) {
        Runs::No => return None,
        suspended @ Runs::Suspended(_) => return Some(suspended.words(name)),
        Runs::As(process) => process,
    };
    for within in TRIES {
        let is_late = match name {
            runtime::KUBELET => late(within, answers(runtime::HEALTHZ, "/healthz", LONGER)).await,
            balancer::HAPROXY => late(within, balancer::endpoint(LONGER)).await,
            balancer::ETCD_BALANCER => late(within, balancer::socket(root, LONGER)).await,
            // keepalived serves nothing that could be asked.
            _ => false,
        };
        if !is_late {
            return None;
        }
    }
    Some(unanswered(name, process))
}

/// Why the API server at this address does not answer. A request without TLS needs no certificate: its own process
/// answers it with an error, whether etcd works or not.
pub async fn hung_api_server(root: &Root, (address, port): (IpAddr, u16)) -> Option<String> {
    let server = SocketAddr::new(address, port).to_string();
    let mut processes = Vec::new();
    for within in TRIES {
        if !late(within, answers(&server, "/livez", LONGER)).await {
            return None;
        }
        // To find its processes, all of the host are read: only now.
        processes = root.blocking(move |_| Ok(api_server_processes((address, port)))).await.ok()?;
        if let Some(process) = processes.iter().rfind(|process| is_stopped(**process)) {
            return Some(format!("process {process} of {API_SERVER} is suspended"));
        }
    }
    let newest = processes.last()?;
    let has_started = now_ms().saturating_sub(started_at(*newest)?) >= STARTS_MS;
    has_started.then(|| unanswered(API_SERVER, *newest))
}

async fn late<T>(within: Duration, asked: impl Future<Output = T>) -> bool {
    timeout(within, asked).await.is_err()
}

fn unanswered(component: &str, process: u32) -> String {
    let whole: Duration = TRIES.iter().sum();
    format!("{component} (process {process}) has not answered for {} s", whole.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_late_and_a_refused_connection_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = || answers(&address, "/livez", LONGER);
        // As of a suspended process: the kernel accepts the connection.
        assert!(late(Duration::from_millis(100), asked()).await);
        drop(listener);
        assert!(!late(LONGER, asked()).await);
    }

    #[tokio::test]
    async fn a_test_directory_is_not_answered_for_by_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let units: [UnitName; 2] = [runtime::KUBELET, balancer::HAPROXY].map(|name| name.parse().unwrap());
        let api = Some(([127, 0, 0, 1].into(), 6443));
        assert_eq!(hung(&Root::at(folder.path()), &units, api).await, BTreeMap::new());
    }
}
