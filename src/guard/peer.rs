//! One connection of the guard of another host, `hactl host-peer`: systemd accepts it and starts this program with it.
//!
//! In: the connection. Out: the agent's protocol, with what `agent/admission` permits. The other side is an etcd host of
//! the policy by its address, before anything of it is read, and by its certificate.

use super::setup::{self, GuardError};
use crate::agent::{Admission, Caller, Root, ServeError, serve_as};
use crate::execute::member_start;
use crate::model::desired::Role;
use crate::model::healing::{GuardedHost, Policy};
use crate::model::names::HostName;
use crate::model::plan::InitialClusterState;
use crate::reconcile::RepairSpec;
use crate::transport::mtls::{self, CONNECT, Identity, MtlsError};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The files of the guard cannot be used.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// It comes from elsewhere.
    #[error("{0} is no etcd host by the policy of this host")]
    Stranger(IpAddr),
    /// The connection failed.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// Its certificate is not that of the guard there.
    #[error("{from}: {why}")]
    Refused {
        /// The address.
        from: IpAddr,
        /// Why.
        why: MtlsError,
    },
    /// The protocol.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Serves one connection until it ends.
///
/// # Errors
/// Why it is not served.
pub async fn peer(root: &Root, own: &HostName, stream: std::net::TcpStream) -> Result<(), PeerError> {
    let (setup, identity) = setup::read(root, own)?;
    stream.set_nonblocking(true)?;
    served(root, (own, &setup.policy, &identity), || setup::spec(root), TcpStream::from_std(stream)?).await
}

/// Serves a connection by these files.
pub(super) async fn served(
    root: &Root,
    (own, policy, identity): (&HostName, &Policy, &Identity),
    spec: impl FnOnce() -> Result<RepairSpec, GuardError>,
    stream: TcpStream,
) -> Result<(), PeerError> {
    setup::ensure_on(policy)?;
    let from = stream.peer_addr()?.ip().to_canonical();
    let host = member_at(policy, from).ok_or(PeerError::Stranger(from))?;
    let server = identity.server().map_err(GuardError::from)?;
    let accepted = TlsAcceptor::from(Arc::new(server)).accept(stream);
    let stream = timeout(CONNECT, accepted).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let proven = mtls::is_guard_of(&host.name, stream.get_ref().1.peer_certificates(), &identity.authorities);
    proven.map_err(|why| PeerError::Refused { from, why })?;
    let admission = admission(&spec()?, own, host.name.clone());
    let (reader, writer) = tokio::io::split(stream);
    Ok(serve_as(root.clone(), Caller::Guard(Box::new(admission)), reader, writer).await?)
}

/// The etcd host of the policy with this address; this host itself, too.
fn member_at(policy: &Policy, address: IpAddr) -> Option<&GuardedHost> {
    policy.guards.iter().find(|guard| guard.address == address && guard.may_vote())
}

/// What this host permits to a guard.
fn admission(spec: &RepairSpec, own: &HostName, by: HostName) -> Admission {
    let desired = &spec.spec.desired;
    Admission {
        by,
        own: own.clone(),
        members: desired.may_vote().map(|host| (host.name.clone(), host.address)).collect(),
        ask: spec.spec.asks.get(own).cloned().unwrap_or_default(),
        votes: desired.with(Role::Etcd).count(),
        host_dead_s: desired.healing.after.host_dead_s,
        start: member_start(&desired.etcd.data_dir.to_string_lossy(), &InitialClusterState::Restart),
    }
}
