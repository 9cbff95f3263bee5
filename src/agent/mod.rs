//! The host's own side, `hactl host`: answers requests on a byte stream by doing them on this machine.
//!
//! In: frames on stdin ([`crate::protocol::Request`], blobs). Out: frames on stdout ([`crate::protocol::Response`]). Nothing stays
//! behind: when the stream closes or falls silent the process ends, and every program it runs ends with it.
//! With [`Op::Relay`] the stream becomes a connection to a port of this host for a while.
//!
//! A blob travels after its [`Op::Deliver`] was answered with [`Reply::Wanted`]: the pieces, an end, and then a second
//! answer to the same request saying [`Reply::Done`] or why not. A fault may come before the end of the blob; pieces already
//! on their way are then ignored.

mod backup;
mod etcd;
mod fault;
mod host;
mod lock;
mod machine;
mod observe;
mod parts;
mod perform;
mod pki;
mod relay;
mod session;
mod web;

pub use backup::{copies_beside, drill, save_bundle};
pub use etcd::{Fence, fence, pass_to, record_positions};
pub use machine::Root;
pub use observe::{DnsError, dns_probe};
pub use pki::renew;
pub use session::{ServeError, serve, serve_at};

use host::Host;
use perform::{panicked, perform};

#[cfg(test)]
mod tests;
