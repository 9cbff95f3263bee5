//! Approves kubelet serving certificate requests; runs on every control-plane host as a systemd unit of its own.
//!
//! In: files (certificates, keys, the names allowed for each Node) and an API server. Out: approvals, and log lines
//! that name each approved or skipped request with the reason. Several instances do no harm: the second approval of a
//! request is a conflict. The approver polls every few seconds instead of watching: a list from the API server's cache
//! is cheap, and there is no watch to lose.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::client::read;
use super::csr::{Allowed, Decision, SIGNER, decide};
use super::{Client, KubeError, issued};

/// Time between two polls.
const EVERY: Duration = Duration::from_secs(3);
/// Time limit of one poll, including its approvals.
const TIMEOUT: Duration = Duration::from_secs(20);
/// After this many polls the files are read again, because certificates are renewed while the unit runs.
const LOOKS_PER_READING: u32 = 100;

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The API server's URL.
    pub server: String,
    /// CA certificate.
    pub ca: PathBuf,
    /// Client certificate.
    pub cert: PathBuf,
    /// Client key.
    pub key: PathBuf,
    /// Names allowed for each Node: `{"nodes": {"cp1": ["DNS:cp1", "IP:10.0.0.1"]}}`.
    pub allow: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowFile {
    nodes: Allowed,
}

/// Runs forever; returns only if its files cannot be used, so that systemd logs the error and restarts the unit.
pub async fn run(settings: &Settings, mut say: impl FnMut(&str)) -> Result<(), KubeError> {
    let mut stated = BTreeSet::new();
    loop {
        let (client, allowed) = open(settings)?;
        for _ in 0..LOOKS_PER_READING {
            if let Err(error) = look(&client, &allowed, &mut stated, &mut say).await {
                say(&error.to_string());
                if !error.is_transient() {
                    // The certificate may have been renewed: read the files again, but not in a tight loop.
                    sleep(EVERY).await;
                    break;
                }
            }
            sleep(EVERY).await;
        }
    }
}

fn open(settings: &Settings) -> Result<(Client, Allowed), KubeError> {
    let allow: AllowFile = serde_json::from_str(&read(&settings.allow)?)
        .map_err(|error| KubeError::Garbled { what: settings.allow.display().to_string(), why: error.to_string() })?;
    let files = [settings.ca.as_path(), &settings.cert, &settings.key];
    Ok((Client::with_files(&settings.server, files)?, allow.nodes))
}

/// Handles all pending requests once. `stated` holds the names of requests that were logged already.
async fn look(
    client: &Client,
    allowed: &Allowed,
    stated: &mut BTreeSet<String>,
    say: &mut impl FnMut(&str),
) -> Result<(), KubeError> {
    let until = Instant::now() + TIMEOUT;
    let query = format!("resourceVersion=0&fieldSelector=spec.signerName%3D{}", SIGNER.replace('/', "%2F"));
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut present = BTreeSet::new();
    for csr in client.list(path, &query, until).await? {
        let name = csr.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        // The user name comes from the request: it must not break a line of the journal.
        let user = csr.pointer("/spec/username").and_then(Value::as_str).unwrap_or_default().escape_debug().to_string();
        present.insert(name.clone());
        match decide(&csr, allowed) {
            Decision::Settled => {
                if let Some(how) = issued::difference(&csr).filter(|_| stated.insert(name.clone())) {
                    // `<1>` is the journal's second highest priority (alert).
                    say(&format!(
                        "<1>{name} of {user}  was approved, but the issued certificate differs from the request: {how}"
                    ));
                }
            }
            Decision::Approve => match client.replace(&approved(csr), "approval", until).await {
                Ok(_) => say(&format!("approved {name} of {user}")),
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error),
            },
            Decision::Leave(why) => {
                if stated.insert(name.clone()) {
                    say(&format!("did not approve {name} of {user}: {why}"));
                }
            }
        }
    }
    // Requests are deleted after an hour; forget those that are gone.
    stated.retain(|name| present.contains(name));
    Ok(())
}

fn approved(mut csr: Value) -> Value {
    // Items of a list carry neither apiVersion nor kind.
    csr["apiVersion"] = json!("certificates.k8s.io/v1");
    csr["kind"] = json!("CertificateSigningRequest");
    csr["status"]["conditions"] = json!([{
        "type": "Approved",
        "status": "True",
        "reason": issued::REASON,
        "message": "requested by the kubelet of this Node, for its own names and addresses",
    }]);
    csr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_allowed_node_names_is_read_strictly() {
        let good: AllowFile = serde_json::from_str(r#"{"nodes": {"cp1": ["DNS:cp1", "IP:10.0.0.1"]}}"#).unwrap();
        assert_eq!(good.nodes["cp1"], ["DNS:cp1", "IP:10.0.0.1"]);
        assert!(serde_json::from_str::<AllowFile>(r#"{"nodes": {}, "more": 1}"#).is_err());
    }

    #[test]
    fn an_approval_has_a_reason_and_keeps_the_request() {
        let csr = approved(json!({"metadata": {"name": "csr-1", "resourceVersion": "5"}, "spec": {"x": 1}}));
        assert_eq!(csr["kind"], "CertificateSigningRequest");
        assert_eq!(csr["metadata"]["resourceVersion"], "5");
        assert_eq!(csr.pointer("/status/conditions/0/type"), Some(&json!("Approved")));
    }
}
