//! Waits: for a quorum, for API servers and for the endpoint.

use crate::execute::act::{Doing, failed, unexpected, within_ms};
use crate::execute::precondition;
use crate::execute::walk::StepError;
use crate::model::desired::Role;
use crate::model::facts::EtcdView;
use crate::model::names::HostName;
use crate::model::plan::HowToRun;
use crate::observe::CrashLoopPolicy;
use crate::protocol::{ObserveAsk, Op, Reply, WaitCondition};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at a member that is starting.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Doing<'_> {
    /// What the member on this host says of itself and its cluster. One that was only just started is waited for.
    pub(super) async fn view(&self, host: &HostName) -> Result<EtcdView, StepError> {
        let until = self.until();
        loop {
            let etcd = self.queries.etcd(host).ok_or_else(|| failed(format!("{host} is no etcd host")))?;
            let ask = ObserveAsk { etcd: Some(etcd), ..ObserveAsk::default() };
            let reply = self.call(host, Op::Observe(Box::new(ask))).await?;
            let Reply::Facts(facts) = reply else { return Err(unexpected(&reply)) };
            if let Some(view) = facts.etcd.and_then(|e| e.view) {
                return Ok(view);
            }
            if Instant::now() + LOOK_AGAIN >= until {
                return Err(failed(format!("the member on {host} does not say which cluster it is of")));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Asks all these hosts at once: the first whose condition holds is enough, and one that waits for ever holds up nothing.
    async fn first_of<'a>(
        &self,
        role: &str,
        asked: impl Iterator<Item = (&'a HostName, WaitCondition)>,
    ) -> Result<&'a HostName, StepError> {
        let ask = |(host, condition): (&'a HostName, WaitCondition)| {
            let op = Op::Await { condition, within_ms: within_ms(self.timeout) };
            Box::pin(async move { self.call(host, op).await.map(|_| host) })
        };
        let waits: Vec<_> = asked.map(ask).collect();
        if waits.is_empty() {
            return Err(failed(format!("no {role} host is connected")));
        }
        Ok(futures::future::select_ok(waits).await?.0)
    }

    fn connected(&self, role: Role) -> impl Iterator<Item = &HostName> {
        self.desired.with(role).map(|h| &h.name).filter(|h| self.machines.contains_key(*h))
    }

    /// Waits until etcd has a quorum, and records it.
    pub(super) async fn prove_quorum(&self) -> Result<(), StepError> {
        let hosts = self.connected(Role::Etcd);
        let asked = hosts.filter_map(|host| Some((host, WaitCondition::EtcdQuorum(self.queries.etcd(host)?))));
        self.first_of("etcd", asked).await?;
        // One that says so proves nothing, and the journal keeps every report.
        let (cluster, revision) = precondition::answers(self, self.timeout / 2).await?;
        (self.record_bootstrap)(&cluster, revision).map_err(failed)
    }

    /// Waits for the first API server.
    pub(super) async fn await_api(&self) -> Result<(), StepError> {
        let ask = |host| Ok((host, self.queries.serving(host, &self.target, CrashLoopPolicy::NEW).map_err(failed)?));
        let asked: Vec<_> = self.connected(Role::ControlPlane).map(ask).collect::<Result<_, StepError>>()?;
        self.first_of("control-plane", asked.into_iter()).await.map(drop)
    }

    /// Waits for the cluster endpoint.
    pub(super) async fn await_endpoint(&self) -> Result<(), StepError> {
        let asked = self.connected(Role::ControlPlane).map(|host| (host, self.queries.endpoint()));
        self.first_of("control-plane", asked).await.map(drop)
    }

    /// Waits for the API server of a host, and restarts the kubelet then if that is asked.
    pub(super) async fn await_serving(
        &self,
        host: &HostName,
        (tries, restart_kubelet): (CrashLoopPolicy, bool),
    ) -> Result<(), StepError> {
        let condition = self.queries.serving(host, &self.target, tries).map_err(failed)?;
        self.call(host, Op::Await { condition, within_ms: within_ms(self.timeout) }).await?;
        if restart_kubelet { self.restart_kubelet(host).await } else { Ok(()) }
    }

    /// Restarts the kubelet of a host; its pods run on.
    pub(super) async fn restart_kubelet(&self, host: &HostName) -> Result<(), StepError> {
        let op = Op::RunUnit { unit: crate::plan::kubelet_unit(), how: HowToRun::Restart, no_wait: false };
        self.call(host, op).await.map(drop)
    }
}
