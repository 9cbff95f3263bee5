//! Jump hosts: sessions through which other hosts are reached, opened once and shared.
//!
//! In: the jump hosts, the nearest first. Out: a session with the last of them. Hosts behind the same jump hosts wait
//! together; they do not each retry a failed connection.

use super::Session;
use crate::model::desired::SshTarget;
use crate::transport::access::Access;
use crate::transport::counters::Counters;
use crate::transport::error::HostError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A session with a jump host, once a connection was attempted.
#[derive(Default)]
enum Slot {
    #[default]
    Untried,
    Open(Arc<Session>),
    Failed(Arc<HostError>),
}

type Slots = HashMap<Vec<SshTarget>, Arc<tokio::sync::Mutex<Slot>>>;

/// Connections to other hosts, by their jump hosts.
#[derive(Clone, Default)]
pub(crate) struct Jumps(Arc<Mutex<Slots>>);

impl Jumps {
    /// The session with the last of these hosts; `None` if there is no jump host.
    pub(super) async fn through(&self, way: &[SshTarget], access: &Access) -> Result<Option<Arc<Session>>, HostError> {
        let Some((last, before)) = way.split_last() else { return Ok(None) };
        let slot = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(way.to_vec()).or_default());
        // Held while connecting, so that a hundred hosts do not connect a hundred times.
        let mut slot = slot.lock().await;
        let failed = |source: &Arc<HostError>| HostError::Jump { jump: last.place(), source: Arc::clone(source) };
        match &*slot {
            Slot::Open(session) if session.gone().is_none() => return Ok(Some(Arc::clone(session))),
            Slot::Failed(error) => return Err(failed(error)),
            Slot::Open(_) | Slot::Untried => {}
        }
        let target = SshTarget { jump: before.to_vec(), ..last.clone() };
        match Box::pin(Session::open(&target, &access.to_others(), Arc::new(Counters::default()))).await {
            Ok(session) => {
                let session = Arc::new(session);
                *slot = Slot::Open(Arc::clone(&session));
                Ok(Some(session))
            }
            Err(error) => {
                let error = Arc::new(error);
                *slot = Slot::Failed(Arc::clone(&error));
                Err(failed(&error))
            }
        }
    }

    /// The number of open connections to jump hosts.
    #[cfg(test)]
    pub(super) async fn open(&self) -> usize {
        let slots: Vec<_> = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut open = 0;
        for slot in slots {
            open += usize::from(matches!(&*slot.lock().await, Slot::Open(_)));
        }
        open
    }
}
