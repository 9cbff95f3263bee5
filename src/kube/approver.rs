//! The loop that grants kubelets their serving certificates, on every control-plane host, as a unit of its own.
//!
//! In: files (certificates, keys, what each Node may have) and an API server. Out: approvals, and lines that say what was
//! approved, what was left and why. Several of them at once do no harm: the second to approve meets a conflict. It looks
//! every few seconds rather than watching: a list from the server's cache costs nothing, and there is no watch to lose.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::csr::{Allowed, Decision, SIGNER, decide};
use super::{Client, KubeError, issued};
use crate::model::secret::Secret;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(3);
/// One look, with its approvals, may take this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this many looks the files are read again: certificates are renewed beneath us.
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
    /// What each Node may have: `{"nodes": {"cp1": ["DNS:cp1", "IP:10.0.0.1"]}}`.
    pub allow: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowFile {
    nodes: Allowed,
}

/// Approves for ever; returns only when its files cannot be used, so that systemd starts it again and says so.
pub async fn run(settings: &Settings, mut say: impl FnMut(&str)) -> Result<(), KubeError> {
    let mut told = BTreeSet::new();
    loop {
        let (client, allowed) = open(settings)?;
        for _ in 0..LOOKS_PER_READING {
            if let Err(error) = look(&client, &allowed, &mut told, &mut say).await {
                say(&error.to_string());
                if !error.is_transient() {
                    // Perhaps the certificate was renewed: read the files again, but not in a tight loop.
                    sleep(EVERY).await;
                    break;
                }
            }
            sleep(EVERY).await;
        }
    }
}

fn open(settings: &Settings) -> Result<(Client, Allowed), KubeError> {
    let (ca, cert) = (read(&settings.ca)?, read(&settings.cert)?);
    let key = Secret::new(read(&settings.key)?);
    let allow: AllowFile = serde_json::from_str(&read(&settings.allow)?)
        .map_err(|error| KubeError::Garbled { what: settings.allow.display().to_string(), why: error.to_string() })?;
    Ok((Client::direct(&settings.server, &ca, &cert, &key)?, allow.nodes))
}

fn read(path: &Path) -> Result<String, KubeError> {
    std::fs::read_to_string(path).map_err(|source| KubeError::File { path: path.display().to_string(), source })
}

/// One look at all requests. `told` holds those of which something was said already.
async fn look(
    client: &Client,
    allowed: &Allowed,
    told: &mut BTreeSet<String>,
    say: &mut impl FnMut(&str),
) -> Result<(), KubeError> {
    let until = Instant::now() + PATIENCE;
    let query = format!("resourceVersion=0&fieldSelector=spec.signerName%3D{}", SIGNER.replace('/', "%2F"));
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut present = BTreeSet::new();
    for csr in client.list(path, &query, until).await? {
        let name = csr.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        // Whoever asks has chosen it: it must not break the line of the journal.
        let user = csr.pointer("/spec/username").and_then(Value::as_str).unwrap_or_default().escape_debug().to_string();
        present.insert(name.clone());
        match decide(&csr, allowed) {
            Decision::Settled => {
                if let Some(how) = issued::difference(&csr).filter(|_| told.insert(name.clone())) {
                    // The journal's second highest level.
                    say(&format!(
                        "<1>{name} of {user} was approved, and another certificate was issued than that: {how}"
                    ));
                }
            }
            Decision::Approve => match client.replace(&approved(csr), "approval", until).await {
                Ok(_) => say(&format!("approved {name} of {user}")),
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error),
            },
            Decision::Leave(why) => {
                if told.insert(name.clone()) {
                    say(&format!("left {name} of {user} alone: {why}"));
                }
            }
        }
    }
    // Requests vanish after an hour; what is gone need not be remembered.
    told.retain(|name| present.contains(name));
    Ok(())
}

fn approved(mut csr: Value) -> Value {
    // Items of a list do not say what they are.
    csr["apiVersion"] = json!("certificates.k8s.io/v1");
    csr["kind"] = json!("CertificateSigningRequest");
    csr["status"]["conditions"] = json!([{
        "type": "Approved",
        "status": "True",
        "reason": issued::REASON,
        "message": "asked for by the kubelet of this host, for its own names and addresses",
    }]);
    csr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_what_nodes_may_have_is_read_strictly() {
        let good: AllowFile = serde_json::from_str(r#"{"nodes": {"cp1": ["DNS:cp1", "IP:10.0.0.1"]}}"#).unwrap();
        assert_eq!(good.nodes["cp1"], ["DNS:cp1", "IP:10.0.0.1"]);
        assert!(serde_json::from_str::<AllowFile>(r#"{"nodes": {}, "more": 1}"#).is_err());
    }

    #[test]
    fn an_approval_says_what_it_is_and_keeps_the_request() {
        let csr = approved(json!({"metadata": {"name": "csr-1", "resourceVersion": "5"}, "spec": {"x": 1}}));
        assert_eq!(csr["kind"], "CertificateSigningRequest");
        assert_eq!(csr["metadata"]["resourceVersion"], "5");
        assert_eq!(csr.pointer("/status/conditions/0/type"), Some(&json!("Approved")));
    }
}
