//! Draining a Node before its kubelet is upgraded or it is removed, and uncordoning it afterwards.
//!
//! In: a Node's name. Out: done, or the pods that are in the way and why. A Node that was already cordoned stays so
//! afterwards.

use crate::execute::act::{Doing, failed};
use crate::execute::drain::Draining;
use crate::execute::walk::StepError;
use crate::kube::KnownNode;
use crate::model::cordon::Holder;
use crate::model::maintenance::{DrainProgress, DrainRequest};
use crate::model::names::HostName;
use std::sync::Mutex;
use std::time::Duration;

impl Doing<'_> {
    /// Cordons a Node and waits until all pods that can run elsewhere have left it.
    pub(super) async fn drain(&self, host: &HostName) -> Result<(), StepError> {
        let said = Mutex::new(String::new());
        let report = |progress: DrainProgress| {
            let mut said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if *said != progress.waits_for && progress.left < progress.to_leave {
                said.clone_from(&progress.waits_for);
                self.waiting(progress.waits_for);
            }
        };
        let draining = Draining {
            host,
            by: Holder::Up,
            request: DrainRequest::default(),
            within: self.timeout,
            lasts: Duration::ZERO,
            taken_from: None,
            pace: None,
        };
        let kept = draining.run(self.client().await?, None, &report).await;
        for said in kept.map_err(|error| failed(error.to_string()))? {
            self.sink.note(said);
        }
        Ok(())
    }

    /// Uncordons a Node that hactl cordoned.
    pub(in crate::execute) async fn uncordon(&self, host: &HostName) -> Result<(), StepError> {
        Ok(self.client().await?.uncordon(&mut KnownNode::new(host), &Holder::Up, false, self.until()).await?)
    }
}
