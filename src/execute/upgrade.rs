//! Upgrades: a bundle before the first change, and a kubelet that has to show its new version.
//!
//! In: the host, and the version that its kubelet is to be of. Out: done, or what the Node was last seen as.

use super::act::{Actuator, failed, unexpected, within_ms};
use super::walk::StepError;
use crate::kube::{KubeError, ObjectRef};
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::facts::UnitFact;
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use crate::model::plan::HowToRun;
use crate::observe::CrashLoopPolicy;
use crate::protocol::{Op, Reply};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// How long a kubelet is taken for the one that runs: it may be between two starts.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl Actuator {
    /// Takes a bundle on a host, proof included.
    pub(super) async fn save_bundle(&self, index: usize, host: &HostName, timeout: Duration) -> Result<(), StepError> {
        match self.call(index, host, Op::SaveBundle, timeout).await? {
            Reply::Saved(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Brings the kubelet to run by its new files, and waits until its Node shows the version, and is Ready by it if that is asked for.
    pub(super) async fn upgrade_kubelet(
        &self,
        index: usize,
        host: &HostName,
        (version, how, ready): (&str, HowToRun, bool),
        timeout: Duration,
    ) -> Result<(), StepError> {
        let until = Instant::now() + timeout;
        let op = Op::RunUnit { unit: crate::plan::kubelet_unit(), how, no_wait: false };
        self.call(index, host, op, timeout).await?;
        self.shows(index, host, (Some(version), ready), until).await?;
        // A new kubelet may start static pods anew: the next host waits until these serve again.
        if self.desired.host(host).is_some_and(|host| host.is(Role::ControlPlane)) {
            let condition = self.queries.serving(host, &self.target, CrashLoopPolicy::NEW).map_err(failed)?;
            let left = until.saturating_duration_since(Instant::now());
            self.call(index, host, Op::Await { condition, within_ms: within_ms(left) }, left).await?;
        }
        Ok(())
    }

    /// Waits until the Node is of the kubelet that runs now: of a version where one is given, and Ready if that is asked for.
    pub(super) async fn shows(
        &self,
        index: usize,
        host: &HostName,
        (version, ready): (Option<&str>, bool),
        until: Instant,
    ) -> Result<(), StepError> {
        let client = self.client().await?;
        let node = ObjectRef::new("v1", "Node", None, host.as_str());
        loop {
            let timeout = until.saturating_duration_since(Instant::now());
            let (kubelet, now_ms) = self.unit(index, host, crate::plan::kubelet_unit(), timeout).await?;
            let seen = |live: Option<&Value>| {
                let seen = shown(live.and_then(NodeFact::of), &kubelet, now_ms, version, ready);
                if let Err(on) = &seen {
                    self.sink.emit(Event::Waiting { step: index, on: on.clone() });
                }
                seen
            };
            let turn = until.min(Instant::now() + ASK_AGAIN);
            match client.wait(&node, &format!("Node {host}"), turn, seen).await {
                Err(KubeError::TimedOut { .. }) if turn < until => {}
                Err(error) => return Err(failed(error.to_string())),
                Ok(_) => return Ok(()),
            }
        }
    }
}

/// Whether a Node is as it should be, else what it is.
fn shown(
    node: Option<NodeFact>,
    kubelet: &UnitFact,
    now_ms: i64,
    version: Option<&str>,
    ready: bool,
) -> Result<(), String> {
    let Some(node) = node else { return Err("its kubelet has not registered it yet".to_owned()) };
    if let Some(version) = version.filter(|version| node.version.trim_start_matches('v') != *version) {
        return Err(format!("its Node shows a kubelet {} and not {version} yet", node.version.trim_start_matches('v')));
    }
    let node = node.by(kubelet, now_ms);
    if node.ready || !ready { Ok(()) } else { Err(node.message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_counts_once_the_kubelet_that_runs_has_reported_as_what_it_is() {
        let node = |version: &str, ready: &str, heard: &str| {
            NodeFact::of(&json!({"metadata": {"name": "cp1"}, "status": {"nodeInfo": {"kubeletVersion": version},
                "conditions": [{"type": "Ready", "status": ready, "message": "as it said", "lastHeartbeatTime": heard}]}}))
        };
        let started = crate::model::timestamp::parse_rfc3339("2026-01-01T12:00:30Z").expect("a moment");
        let kubelet = UnitFact { active: "active".to_owned(), enabled: true, started_ms: started, reloaded_ms: 0 };
        let look = |node, ready| shown(node, &kubelet, started + 60_000, Some("1.35.4"), ready);
        let (before, after) = ("2026-01-01T12:00:00Z", "2026-01-01T12:00:31Z");
        assert_eq!(look(node("v1.35.4", "True", after), true), Ok(()));
        assert!(look(node("v1.34.4", "True", after), true).unwrap_err().contains("1.34.4 and not 1.35.4"));
        assert!(look(node("v1.35.4", "True", before), true).unwrap_err().contains("has not reported"));
        assert_eq!(look(node("v1.35.4", "False", after), true), Err("as it said".to_owned()));
        assert_eq!(look(node("v1.35.4", "False", after), false), Ok(()), "nobody connects pods there");
        assert!(look(None, false).is_err());
    }
}
