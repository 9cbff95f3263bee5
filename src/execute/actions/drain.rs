//! Draining a Node before its kubelet is upgraded or it is removed, and uncordoning it afterwards.
//!
//! In: a Node's name. Out: done, or the pods that are in the way and why. A Node that was already cordoned stays so
//! afterwards.

use crate::execute::act::{Doing, failed};
use crate::execute::drain::drain;
use crate::execute::walk::StepError;
use crate::model::names::HostName;

impl Doing<'_> {
    /// Cordons a Node and waits until all pods that can run elsewhere have left it.
    pub(super) async fn drain(&self, host: &HostName) -> Result<(), StepError> {
        let waiting = |on| self.waiting(on);
        let kept = drain(self.client().await?, host, self.timeout, &waiting).await;
        for said in kept.map_err(|error| failed(error.to_string()))? {
            self.sink.note(said);
        }
        Ok(())
    }

    /// Uncordons a Node that hactl cordoned.
    pub(in crate::execute) async fn uncordon(&self, host: &HostName) -> Result<(), StepError> {
        Ok(self.client().await?.uncordon(host, self.until()).await?)
    }
}
