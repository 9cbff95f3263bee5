//! Probes that ask API servers. Of the own one, any answer counts: one that answers with an error works; its dependency
//! does not.

use super::{Found, Seen};
use crate::agent::machine::processes::{is_stopped, start};
use crate::agent::machine::root::Root;
use crate::agent::machine::wipe::pods_of;
use crate::agent::pki::tls;
use crate::agent::web::Web;
use crate::model::control_plane::API_SERVER;
use crate::model::fault::FaultKind;
use crate::model::healing::{GuardedHost, Policy};
use crate::model::ports::KUBELETS_API;
use crate::model::target::KUBELET_CLIENT;
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::timeout;

/// How long it may take: under load it answers late.
const WITHIN: Duration = Duration::from_secs(4);
/// One that works answers sooner.
const AT_ONCE: Duration = Duration::from_millis(500);
const CA: &str = "/etc/kubernetes/pki/ca.crt";
const CERT: &str = "/etc/kubernetes/pki/observer.crt";
const KEY: &str = "/etc/kubernetes/pki/observer.key";

/// The processes of this host's API server, by its address and port, the oldest first: a pod of a user may run another one.
pub fn api_server_processes((address, port): (IpAddr, u16)) -> Vec<u32> {
    let flags = [format!("--advertise-address={address}"), format!("--secure-port={port}")];
    let ours = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
        flags.iter().all(|flag| words.contains(&flag.as_bytes()))
    };
    let found = pods_of(&[API_SERVER.to_owned()]);
    let mut found: Vec<u32> =
        found.into_iter().filter_map(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok()).filter(ours).collect();
    found.sort_by_key(|pid| start(*pid));
    found
}

/// Whether it answers.
pub(super) async fn look(root: &Root, policy: &Policy, host: &GuardedHost) -> Seen {
    // Before its certificates are installed there is no API server.
    let tls = tls::client(root, CA, Some((CERT, KEY))).ok()?;
    let web = Web::new(tls, &host.address.to_string(), policy.api_port, WITHIN).ok()?;
    let answer = web.get("/livez", WITHIN);
    tokio::pin!(answer);
    let answered = match timeout(AT_ONCE, &mut answer).await {
        Ok(answered) => answered,
        // To find the processes, all of the host are read: only then.
        Err(_) => match suspended(root, (host.address, policy.api_port)).await {
            Some(pid) => Err(format!("process {pid} of {API_SERVER} is suspended")),
            None => answer.await,
        },
    };
    Some(answered.err().map(|why| Found::new(FaultKind::ApiFrozen, why)).into_iter().collect())
}

/// The newest of the processes that is suspended.
async fn suspended(root: &Root, at: (IpAddr, u16)) -> Option<u32> {
    let found = root.blocking(move |_| Ok(api_server_processes(at).into_iter().rfind(|pid| is_stopped(*pid))));
    found.await.ok()?
}

/// Whether the Node of this host exists, by an API server that the kubelet of this host uses.
pub(super) async fn node(root: &Root, host: &GuardedHost) -> Seen {
    let tls = tls::client(root, CA, Some((KUBELET_CLIENT, KUBELET_CLIENT))).ok()?;
    let web = Web::new(tls, "127.0.0.1", KUBELETS_API, WITHIN).ok()?;
    let (status, body) = web.get(&format!("/api/v1/nodes/{}", host.name), WITHIN).await.ok()?;
    judged(status, &body)
}

/// Any other answer than these two says nothing about the Node.
fn judged(status: u16, body: &[u8]) -> Seen {
    let body: Value = serde_json::from_slice(body).ok()?;
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    match status {
        200 if text("/kind") == Some("Node") => Some(vec![]),
        404 if text("/reason") == Some("NotFound") && text("/details/kind") == Some("nodes") => {
            Some(vec![Found::new(FaultKind::NodeMissing, "an API server says that its Node is not found")])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_answer_about_the_node_tells_whether_it_exists() {
        let missing = json!({"kind": "Status", "reason": "NotFound", "details": {"name": "cp1", "kind": "nodes"}});
        let kinds = |status, body: &Value| {
            let seen = judged(status, body.to_string().as_bytes())?;
            Some(seen.into_iter().map(|found| found.kind).collect::<Vec<_>>())
        };
        assert_eq!(kinds(200, &json!({"kind": "Node"})), Some(vec![]));
        assert_eq!(kinds(404, &missing), Some(vec![FaultKind::NodeMissing]));
        assert_eq!(kinds(403, &missing), None, "the kubelet may not read it");
        assert_eq!(kinds(404, &json!({"kind": "Status", "reason": "NotFound"})), None, "no such resource");
        assert_eq!(kinds(200, &json!({"kind": "Status"})), None);
        assert_eq!(judged(404, b"404 page not found").map(|seen| seen.len()), None);
    }
}
