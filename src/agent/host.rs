//! What every operation on this host has at hand.
//!
//! In: where the host's file system begins. Out: that, and what is being waited for, for the heartbeats.

use super::Root;
use std::sync::{Arc, Mutex, PoisonError};

/// What every operation has at hand.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(super) root: Root,
    on: Arc<Mutex<String>>,
}

impl Host {
    pub(super) fn new(root: Root) -> Self {
        Self { root, on: Arc::default() }
    }
    /// Says what is being waited for, for the heartbeats.
    pub(super) fn waits(&self, on: impl Into<String>) {
        *self.on.lock().unwrap_or_else(PoisonError::into_inner) = on.into();
    }
    pub(super) fn waiting_on(&self) -> String {
        self.on.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
