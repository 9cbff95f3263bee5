//! The API of a cluster through a host's agent, with a short-lived identity.
//!
//! In: the CA's certificate, and what issues credentials. Out: a [`Client`] that keeps the port open through which it
//! works, and that outlives a credential.

use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::secret::Secret;
use crate::transport::{Agent, Forward};
use futures::future::BoxFuture;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A name that every API server's certificate carries; it is resolved to the local end of the forwarded port.
pub const SERVER_NAME: &str = "kubernetes";
/// Half of the life of a certificate.
const RENEWED_AFTER: Duration = Duration::from_secs(1800);
/// How long the first answer may take before the next host is tried.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Connects to API servers.
pub trait ConnectApi: Send + Sync {
    /// A client of the API server that listens on this address of a host. It is handed out only when its API server answers.
    fn connect<'a>(
        &'a self,
        agent: &'a dyn Agent,
        address: IpAddr,
        port: u16,
    ) -> BoxFuture<'a, Result<ApiClient, KubeError>>;
}

/// Issues a certificate to authenticate with, and its key, both PEM.
pub type Issue = Arc<dyn Fn() -> Result<(String, Secret<String>), String> + Send + Sync>;

/// How to authenticate.
pub struct Access {
    ca_pem: String,
    issue: Issue,
}

/// A client, and the forwarded port through which it works.
pub struct ApiClient {
    client: Client,
    // Dropping it closes the port.
    _forward: Option<Forward>,
}

impl From<Client> for ApiClient {
    fn from(client: Client) -> Self {
        Self { client, _forward: None }
    }
}

impl Deref for ApiClient {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Access {
    /// With this CA, PEM, and certificates that live for an hour.
    pub fn new(ca_pem: String, issue: Issue) -> Self {
        Self { ca_pem, issue }
    }
}

impl ConnectApi for Access {
    fn connect<'a>(
        &'a self,
        agent: &'a dyn Agent,
        address: IpAddr,
        port: u16,
    ) -> BoxFuture<'a, Result<ApiClient, KubeError>> {
        Box::pin(async move {
            let unreachable =
                |why: String| KubeError::Unreachable { what: format!("reach the API of {}", agent.name()), why };
            let forward = agent.forward(address, port).await.map_err(|e| unreachable(e.to_string()))?;
            let (at, ca_pem, issue) = (forward.address(), self.ca_pem.clone(), Arc::clone(&self.issue));
            let client = Client::renewed(RENEWED_AFTER, move || {
                let (cert_pem, key_pem) = issue().map_err(|why| KubeError::Credentials { why })?;
                Client::new(at, SERVER_NAME, &ca_pem, &cert_pem, &key_pem)
            })?;
            client.get(&ObjectRef::new("v1", "Namespace", None, "kube-system"), Instant::now() + FIRST_ANSWER).await?;
            Ok(ApiClient { client, _forward: Some(forward) })
        })
    }
}
