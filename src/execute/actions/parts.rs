//! Parts and images: so many at once on a host as its disk and its CPU can use. From where a host installs packages.

use crate::execute::act::{Doing, failed};
use crate::execute::walk::StepError;
use crate::model::names::{Digest, HostName};
use crate::model::target::{Part, Place};
use crate::protocol::{Op, PackageSource};
use crate::render;
use crate::transport::Payload;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

impl Doing<'_> {
    /// Sends a part.
    pub(super) async fn deliver(&self, host: &HostName, digest: &Digest) -> Result<(), StepError> {
        let part = self.part(host, digest)?;
        let _slot = slot(&self.deliveries, host).await;
        let path = (self.blob)(digest).map_err(failed)?;
        self.call_with(host, Op::Deliver(part), Payload::Blob(path)).await.map(drop)
    }

    /// Imports an image.
    pub(super) async fn import(&self, host: &HostName, digest: &Digest) -> Result<(), StepError> {
        let part = self.part(host, digest)?;
        let _slot = slot(&self.imports, host).await;
        self.call(host, Op::Import(part)).await.map(drop)
    }

    fn part(&self, host: &HostName, digest: &Digest) -> Result<Part, StepError> {
        let found = self.parts(host).iter().find(|p| &p.digest == digest).cloned();
        found.ok_or_else(|| failed(format!("the bundle has no part {}", digest.short())))
    }

    fn parts(&self, host: &HostName) -> &[Part] {
        self.target.hosts.get(host).map(|t| t.parts.as_slice()).unwrap_or_default()
    }

    /// From where a host installs packages.
    pub(super) fn package_source(&self, host: &HostName) -> PackageSource {
        if !self.desired.bundled_packages {
            return PackageSource::Host { proxy: render::proxy_variables(&self.desired) };
        }
        PackageSource::Bundle(self.parts(host).iter().find(|part| part.place == Place::Packages).cloned())
    }
}

/// Waits for a slot; in the order in which steps asked, which is the plan's.
async fn slot(slots: &BTreeMap<HostName, Arc<Semaphore>>, host: &HostName) -> Option<OwnedSemaphorePermit> {
    // Nobody closes the slots, and a host without any has no limit.
    Arc::clone(slots.get(host)?).acquire_owned().await.ok()
}
