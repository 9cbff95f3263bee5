//! Keys that never leave the host, and the TLS and renewals that use them.
//!
//! In: which certificates the host should have. Out: CSRs, installed certificates, TLS configurations.

pub(in crate::agent) mod keys;
pub(in crate::agent) mod renew;
pub(in crate::agent) mod tls;

pub use renew::renew;
