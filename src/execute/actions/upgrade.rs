//! Upgrades: a snapshot before the first change, and kubelets, whose Node must show the new version.
//!
//! In: the host, and the new version of its kubelet. Out: done, or the last status of the Node.

use crate::execute::act::{Doing, failed, unexpected, within_ms};
use crate::execute::walk::StepError;
use crate::kube::{KubeError, ObjectRef};
use crate::model::desired::Role;
use crate::model::facts::UnitFact;
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use crate::model::plan::HowToRun;
use crate::observe::CrashLoopPolicy;
use crate::protocol::{Op, Reply};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often the kubelet's start time is read again, because it may restart in between.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl Doing<'_> {
    /// Takes a snapshot on a host, including the test restore.
    pub(super) async fn save_bundle(&self, host: &HostName) -> Result<(), StepError> {
        match self.call(host, Op::SaveBundle).await? {
            Reply::Saved(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Starts the kubelet with its new files, and waits until its Node shows the version and, if `ready`, is Ready.
    pub(super) async fn upgrade_kubelet(
        &self,
        host: &HostName,
        (version, how, ready): (&str, HowToRun, bool),
    ) -> Result<(), StepError> {
        let until = self.until();
        let op = Op::RunUnit { unit: crate::plan::kubelet_unit(), how, no_wait: false };
        self.call(host, op).await?;
        self.shows(host, (Some(version), ready), until).await
    }

    /// Waits until the static pods of a control-plane host serve; other hosts have none.
    async fn pods_serve(&self, host: &HostName, until: Instant) -> Result<(), StepError> {
        if !self.desired.host(host).is_some_and(|host| host.is(Role::ControlPlane)) {
            return Ok(());
        }
        let condition = self.queries.serving(host, &self.target, CrashLoopPolicy::NEW).map_err(failed)?;
        let left = until.saturating_duration_since(Instant::now());
        self.within(left).call(host, Op::Await { condition, within_ms: within_ms(left) }).await.map(drop)
    }

    /// Waits until the kubelet that runs now has updated its Node: with this version, if given, and Ready, if `ready`.
    /// A kubelet of another version may restart its static pods, at once or after it has read its Node: the host's API
    /// server, which may be the only one, is waited for before the Node is read and after it.
    pub(in crate::execute) async fn shows(
        &self,
        host: &HostName,
        (version, ready): (Option<&str>, bool),
        until: Instant,
    ) -> Result<(), StepError> {
        let client = loop {
            self.pods_serve(host, until).await?;
            match self.client().await {
                Ok(client) => break client,
                Err(error) if Instant::now() + ASK_AGAIN >= until => return Err(error),
                Err(_) => sleep(ASK_AGAIN).await,
            }
        };
        let node = ObjectRef::node(host);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (kubelet, now_ms) = self.within(left).unit(host, crate::plan::kubelet_unit()).await?;
            let seen = |live: Option<&Value>| {
                let seen = shown(live.and_then(NodeFact::of), &kubelet, now_ms, version, ready);
                if let Err(on) = &seen {
                    self.waiting(on.clone());
                }
                seen
            };
            let turn = until.min(Instant::now() + ASK_AGAIN);
            match client.wait(&node, &format!("Node {host}"), turn, seen).await {
                Err(KubeError::TimedOut { .. }) if turn < until => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return self.pods_serve(host, until).await,
            }
        }
    }
}

/// Whether a Node is as it should be; otherwise its status.
fn shown(
    node: Option<NodeFact>,
    kubelet: &UnitFact,
    now_ms: i64,
    version: Option<&str>,
    ready: bool,
) -> Result<(), String> {
    let Some(node) = node else { return Err("its kubelet has not registered it yet".to_owned()) };
    if let Some(version) = version.filter(|version| node.version.trim_start_matches('v') != *version) {
        return Err(format!("its Node shows kubelet {}, not {version} yet", node.version.trim_start_matches('v')));
    }
    let node = node.by(kubelet, now_ms);
    if node.ready || !ready { Ok(()) } else { Err(node.message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_counts_once_the_running_kubelet_has_reported_its_version() {
        let node = |version: &str, ready: &str, received: &str| {
            NodeFact::of(&json!({"metadata": {"name": "cp1"}, "status": {"nodeInfo": {"kubeletVersion": version},
                "conditions": [{"type": "Ready", "status": ready, "message": "as it said", "lastHeartbeatTime": received}]}}))
        };
        let started = crate::model::timestamp::parse_rfc3339("2026-01-01T12:00:30Z").expect("a timestamp");
        let kubelet = UnitFact { active: "active".to_owned(), enabled: true, started_ms: started, reloaded_ms: 0 };
        let look = |node, ready| shown(node, &kubelet, started + 60_000, Some("1.35.4"), ready);
        let (before, after) = ("2026-01-01T12:00:00Z", "2026-01-01T12:00:31Z");
        assert_eq!(look(node("v1.35.4", "True", after), true), Ok(()));
        assert!(look(node("v1.34.4", "True", after), true).unwrap_err().contains("1.34.4, not 1.35.4"));
        assert!(look(node("v1.35.4", "True", before), true).unwrap_err().contains("has not reported"));
        assert_eq!(look(node("v1.35.4", "False", after), true), Err("as it said".to_owned()));
        assert_eq!(look(node("v1.35.4", "False", after), false), Ok(()), "the network plugin is not installed");
        assert!(look(None, false).is_err());
    }
}
