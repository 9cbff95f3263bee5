//! The context of every operation on this host.
//!
//! In: the root of the host's file system. Out: that, and what the operation waits for, for the heartbeats.

use crate::agent::machine::root::Root;
use std::sync::{Arc, Mutex, PoisonError};

/// The context of every operation.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) root: Root,
    on: Arc<Mutex<String>>,
}

impl Host {
    pub(crate) fn new(root: Root) -> Self {
        Self { root, on: Arc::default() }
    }
    /// Sets what the operation waits for, for the heartbeats.
    pub(crate) fn waits(&self, on: impl Into<String>) {
        *self.on.lock().unwrap_or_else(PoisonError::into_inner) = on.into();
    }
    pub(crate) fn waiting_on(&self) -> String {
        self.on.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
