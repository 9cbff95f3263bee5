//! Hosts that a command has reboot over SSH, and that it reaches again after they have booted.
//!
//! In: a session. Out: how a host runs, and its reboot. A connection that broke is opened again.

use super::Session;
use crate::controllers::Hosts;
use crate::model::boot::{Boot, BootId};
use crate::model::names::HostName;
use crate::protocol::{Op, Reply};
use crate::transport::{Agent, Agents, HostError, Payload};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a host may take to answer.
const TIMEOUT: Duration = Duration::from_secs(35);

/// The hosts of a session.
pub(super) struct OverSsh<'a> {
    session: &'a Session,
    /// Connections that were opened again, and those that broke are not among them.
    open: Mutex<Agents>,
}

impl<'a> OverSsh<'a> {
    pub fn of(session: &'a Session) -> Self {
        Self { session, open: Mutex::new(session.machines.clone()) }
    }

    async fn agent(&self, host: &HostName) -> Result<Arc<dyn Agent>, String> {
        if let Some(agent) = self.open.lock().await.get(host) {
            return Ok(Arc::clone(agent));
        }
        let known = self.session.desired.host(host).ok_or("the inventory does not name it")?;
        let agent = self.session.connect.connect(host, &known.ssh).await.map_err(|error| error.to_string())?;
        self.open.lock().await.insert(host.clone(), Arc::clone(&agent));
        Ok(agent)
    }

    async fn ask(&self, host: &HostName, op: Op) -> Result<Reply, String> {
        let agent = self.agent(host).await?;
        let answer = agent.call(op, Payload::None, TIMEOUT, &|_| {}).await;
        if answer.as_ref().is_err_and(|error| !matches!(error, HostError::Op(_))) {
            self.open.lock().await.remove(host);
        }
        answer.map_err(|error| error.to_string())
    }
}

impl Hosts for OverSsh<'_> {
    fn boot<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, Result<Boot, String>> {
        Box::pin(async move {
            match self.ask(host, Op::Boot).await? {
                Reply::Boot(boot) => Ok(boot),
                _ => Err("it sent an unexpected reply".to_owned()),
            }
        })
    }

    fn reboot<'a>(&'a self, host: &'a HostName, boot: &'a BootId) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move { self.ask(host, Op::Reboot { boot: boot.clone() }).await.map(drop) })
    }
}
