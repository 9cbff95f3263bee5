//! Maps the failure of a bundle to its verdict.

use crate::component::{BundleError, CarryError, FetchError};
use crate::report::{FailureKind, FetchKind, Verdict};
use std::io::{Error, ErrorKind};

impl From<BundleError> for Verdict {
    fn from(error: BundleError) -> Self {
        let full = |error: &Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let kind = match &error {
            BundleError::Fetch(error) => FailureKind::Fetch(fetch(error)),
            BundleError::Carry(error) => FailureKind::Fetch(carry(error)),
            BundleError::Io { source, .. } if full(source) => FailureKind::Fetch(FetchKind::Full),
            BundleError::Busy(_) => FailureKind::Fetch(FetchKind::Busy),
            BundleError::Which { .. } | BundleError::Nowhere(_) => FailureKind::Usage,
            _ => FailureKind::Bundle,
        };
        Self::of(&kind, Some(&error))
    }
}

fn fetch(error: &FetchError) -> FetchKind {
    match error {
        FetchError::NoRelease(_) => FetchKind::NoRelease,
        FetchError::Name { .. } => FetchKind::Name,
        FetchError::Tls { .. } | FetchError::NoClient { .. } => FetchKind::Trust,
        FetchError::Unreachable { .. } => FetchKind::Unreachable,
        FetchError::NotFound { .. } | FetchError::Platform { .. } => FetchKind::NotFound,
        FetchError::Denied { .. } => FetchKind::Denied,
        FetchError::Status { .. } | FetchError::Slow { .. } | FetchError::Cut { .. } => FetchKind::Unwell,
        FetchError::Checksum { .. } => FetchKind::Checksum,
        FetchError::Moved { .. } => FetchKind::Moved,
        FetchError::TooLarge { .. } | FetchError::NotUnderstood { .. } => FetchKind::NotUnderstood,
    }
}

fn carry(error: &CarryError) -> FetchKind {
    match error {
        CarryError::NotABundle { .. } | CarryError::Newer { .. } => FetchKind::NotABundle,
        CarryError::CutShort { .. } => FetchKind::CutShort,
        CarryError::Tampered { .. } | CarryError::Unexpected { .. } => FetchKind::Tampered,
        CarryError::Different { .. } => FetchKind::Different,
    }
}
