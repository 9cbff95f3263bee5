//! How the guard of a host reaches the agents of other hosts: by mutual TLS, one connection for each session.
//!
//! In: what the guard authenticates with, and the addresses of the hosts. Out: the same [`Agent`] as over SSH. The
//! other side serves only what a repair of an etcd member takes.

use super::agent::{Agent, Connect};
use super::counters::{Counted, Counters};
use super::error::HostError;
use super::machine::Machine;
use super::mtls::{self, Identity, MtlsError};
use super::wire::{ExitReport, Wire};
use crate::model::desired::SshTarget;
use crate::model::healing::{PEER_PORT, Policy};
use crate::model::names::HostName;
use futures::future::BoxFuture;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Reaches the hosts of a policy.
pub struct Peers {
    own: IpAddr,
    addresses: BTreeMap<HostName, IpAddr>,
    client: Arc<ClientConfig>,
    authorities: Arc<[CertificateDer<'static>]>,
}

impl Peers {
    /// The hosts of a policy, from a guard at this address.
    ///
    /// # Errors
    /// The identity cannot be used.
    pub fn new(own: IpAddr, identity: &Identity, policy: &Policy) -> Result<Self, MtlsError> {
        let addresses = policy.guards.iter().map(|guard| (guard.name.clone(), guard.address)).collect();
        let client = Arc::new(identity.client()?);
        Ok(Self { own, addresses, client, authorities: identity.authorities.clone().into() })
    }

    /// Reaches the agent of a host.
    ///
    /// # Errors
    /// It does not answer, or the policy does not name it.
    pub async fn reach(&self, host: &HostName) -> Result<Arc<dyn Agent>, HostError> {
        let unknown = || HostError::Peer { address: host.to_string(), why: "the policy does not name it".to_owned() };
        let address = SocketAddr::new(*self.addresses.get(host).ok_or_else(unknown)?, PEER_PORT);
        let (client, authorities) = (Arc::clone(&self.client), Arc::clone(&self.authorities));
        let peer = Peer { host: host.clone(), own: self.own, address, client, authorities };
        Ok(Arc::new(Machine::guard(peer).await?) as Arc<dyn Agent>)
    }
}

impl Connect for Peers {
    fn connect<'a>(&'a self, host: &'a HostName, _: &'a SshTarget) -> BoxFuture<'a, Result<Arc<dyn Agent>, HostError>> {
        Box::pin(self.reach(host))
    }
}

/// The guard of one host.
pub(super) struct Peer {
    pub(super) host: HostName,
    own: IpAddr,
    address: SocketAddr,
    client: Arc<ClientConfig>,
    authorities: Arc<[CertificateDer<'static>]>,
}

impl Peer {
    /// A new connection: its guard starts an agent for it.
    pub(super) async fn wire(&self, counters: &Arc<Counters>) -> Result<Wire, HostError> {
        let connector = TlsConnector::from(Arc::clone(&self.client));
        let dialled = mtls::dial(self.own, (&self.host, self.address), &connector, &self.authorities).await;
        let refused =
            |error: std::io::Error| HostError::Peer { address: self.address.to_string(), why: error.to_string() };
        let (reader, writer) = tokio::io::split(dialled.map_err(refused)?);
        counters.exec();
        let reader = Box::new(Counted::new(reader, counters.clone()));
        let writer = Box::new(Counted::new(writer, counters.clone()));
        Ok(Wire { reader, writer, exit_report: ExitReport::default() })
    }
}
