//! Keys that never leave the host, and the TLS and renewals that use them.
//!
//! In: which certificates the host should have. Out: CSRs, installed certificates, TLS configurations.

pub(crate) mod keys;
pub(crate) mod renew;
pub(crate) mod tls;

pub use renew::renew;
