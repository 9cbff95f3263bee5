//! A way to the API of a cluster through a host's SSH connection, with a short-lived identity.
//!
//! In: the authority's certificate and a credential. Out: a [`Client`] that keeps the forward it works through alive.

use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::secret::Secret;
use crate::transport::{Agent, Forward};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A name that every API server's certificate carries; it is resolved to the local end of the forward.
pub const SERVER_NAME: &str = "kubernetes";
/// How long the first answer may take before the next host is tried.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// How to authenticate.
pub struct Access {
    ca_pem: String,
    cert_pem: String,
    key_pem: Arc<Secret<String>>,
}

/// A client and the forward it works through.
pub struct Through {
    client: Client,
    // Dropping it closes the way.
    _forward: Forward,
}

impl Deref for Through {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Access {
    /// With this authority and credential, all PEM.
    pub fn new(ca_pem: String, cert_pem: String, key_pem: Arc<Secret<String>>) -> Self {
        Self { ca_pem, cert_pem, key_pem }
    }

    /// A client of the API server that listens on this address of the machine. Asked once, so that a client is only handed
    /// out when its API server answers.
    ///
    /// # Errors
    /// The way or the API server is closed.
    pub async fn through(&self, machine: &dyn Agent, address: IpAddr, port: u16) -> Result<Through, KubeError> {
        let unreachable =
            |why: String| KubeError::Unreachable { what: format!("reach the API of {}", machine.name()), why };
        let forward = machine.forward(address, port).await.map_err(|e| unreachable(e.to_string()))?;
        let client = Client::new(forward.address(), SERVER_NAME, &self.ca_pem, &self.cert_pem, &self.key_pem)?;
        client.get(&ObjectRef::new("v1", "Namespace", None, "kube-system"), Instant::now() + FIRST_ANSWER).await?;
        Ok(Through { client, _forward: forward })
    }
}
