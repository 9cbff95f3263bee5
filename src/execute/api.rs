//! The API of a cluster through a host's agent, with a short-lived identity.
//!
//! In: the CA's certificate and a credential. Out: a [`Client`] that keeps the port open through which it works.

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

/// A certificate to authenticate with.
pub struct Access {
    ca_pem: String,
    cert_pem: String,
    key_pem: Arc<Secret<String>>,
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
    /// With this CA and credential, all PEM.
    pub fn new(ca_pem: String, cert_pem: String, key_pem: Arc<Secret<String>>) -> Self {
        Self { ca_pem, cert_pem, key_pem }
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
            let client = Client::new(forward.address(), SERVER_NAME, &self.ca_pem, &self.cert_pem, &self.key_pem)?;
            client.get(&ObjectRef::new("v1", "Namespace", None, "kube-system"), Instant::now() + FIRST_ANSWER).await?;
            Ok(ApiClient { client, _forward: Some(forward) })
        })
    }
}
