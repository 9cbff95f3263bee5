//! By what a process may act on the maintenances of a Node: a Lease for the Node, which a command takes, or the Lease of
//! the controllers, which a guard has. A guard leaves a Node alone that a command acts on, and a command leaves all to
//! the guards while one of them has their Lease. Each takes its own first, and looks for the other's then: so at most
//! one of them acts.
//!
//! In: a client, and the name of this process. Out: until when it may write.

use super::ended::MaintenanceError;
use crate::kube::{Client, KubeError, Lease, LeaseAttempt};
use crate::model::maintenance::node_lease;
use crate::model::names::HostName;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

/// How long to wait for a Lease that another process may have left.
pub(super) const WITHIN: Duration = Duration::from_secs(20);

/// By what this process may act on the maintenances of a Node.
pub(super) enum Right {
    /// The Lease of the Node.
    Own(Lease),
    /// The Lease of the controllers; until when it holds.
    Term(Receiver<Instant>),
}

impl Right {
    /// Takes the Lease of a Node.
    pub(super) async fn own(client: &Client, node: &HostName, holder: &str) -> Result<Self, MaintenanceError> {
        Ok(Self::Own(taken(client, node, holder).await?))
    }

    /// The right of the process that has the Lease of the controllers, unless a command acts on the Node.
    pub(super) async fn term(
        client: &Client,
        node: &HostName,
        holder: &str,
        until: Receiver<Instant>,
    ) -> Result<Self, MaintenanceError> {
        match Lease::look(client, &node_lease(node), Instant::now() + WITHIN).await {
            Ok(None) => {}
            // Of a command that was killed, perhaps: that is known after a while.
            Ok(Some(_)) => taken(client, node, holder).await?.release(client).await?,
            // Commands act on Nodes of the inventory only, and a guard may read the Leases of those.
            Err(KubeError::Refused { status: 403, .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self::Term(until))
    }

    /// Until when it holds. Renews the Lease, if that is due.
    pub(super) async fn until(&mut self, client: &Client, node: &HostName) -> Result<Instant, MaintenanceError> {
        let held = |by: &str| MaintenanceError::Held { node: node.clone(), by: by.to_owned() };
        match self {
            Self::Own(lease) => match lease.renew(client).await {
                Ok(()) => Ok(lease.until()),
                Err(KubeError::Missing { .. }) => Err(held("it took over the Lease of this one")),
                Err(error) => Err(error.into()),
            },
            Self::Term(until) => {
                let until = *until.borrow();
                if until <= Instant::now() { Err(held("another guard may act by now")) } else { Ok(until) }
            }
        }
    }

    /// Gives a Lease back that is its own.
    pub(super) async fn release(self, client: &Client) -> Result<(), KubeError> {
        match self {
            Self::Own(lease) => lease.release(client).await,
            Self::Term(_) => Ok(()),
        }
    }
}

async fn taken(client: &Client, node: &HostName, holder: &str) -> Result<Lease, MaintenanceError> {
    match Lease::take(client, &node_lease(node), holder, Instant::now() + WITHIN).await? {
        LeaseAttempt::Taken(lease) => Ok(lease),
        LeaseAttempt::HeldBy(by) => Err(MaintenanceError::Held { node: node.clone(), by }),
    }
}
