//! The agent, `hactl host`: serves requests on a byte stream by changing and observing this machine.
//!
//! In: frames on stdin ([`crate::protocol::Request`], blobs). Out: frames on stdout ([`crate::protocol::Response`]).
//! It leaves nothing behind: if the stream closes or its heartbeats stop, the process ends, and every program it runs
//! ends with it. With [`Op::Relay`] the stream carries a connection to a port of this host for a while.
//!
//! A blob travels after its [`Op::Deliver`] was answered with [`Reply::Wanted`]: the pieces, an end, and then a
//! second answer to the same request: [`Reply::Done`] or the fault. A fault may come before the end of the blob;
//! pieces in transit are then ignored.

mod admission;
mod backup;
mod etcd;
mod host;
pub mod hosting;
mod lock;
mod machine;
mod observe;
mod op_error;
mod parts;
mod perform;
mod pki;
mod plain_http;
mod power;
pub mod probe;
mod reboot;
mod relay;
mod repair;
mod session;
mod static_pods;
mod web;

pub use admission::{Admission, Caller};
pub use backup::{Incoming, PeerSnapshots, copies_beside, drill, last_drills, newest_snapshot, save_bundle};
pub use etcd::{Fence, cluster_of, fence, heir, pass_to, record_positions, remembered, serving, voters, yield_lead};
pub use machine::Root;
pub use observe::{DnsError, dns_probe, guard_fact};
pub use pki::renew;
pub use pki::tls::{certificates, private_key};
pub use power::{PowerPlugin, note_power, power_of};
pub use reboot::{ShutsDown, boot_of, is_reboot_due};
pub use repair::{StepLock, annotated, hold, lock_for, repair, runs};
pub use session::{ServeError, serve, serve_as, serve_at};
pub use static_pods::{MovesStaticPods, has_ended, held_static_pods, placed_static_pods};

#[cfg(test)]
mod tests;
