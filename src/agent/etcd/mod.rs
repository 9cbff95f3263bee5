//! The etcd member of the host: starting, fencing, defragmenting and restoring it, and the balancer in front of it.
//!
//! In: operations on one member. Out: their results, or faults.

pub(in crate::agent) mod balancer;
pub(in crate::agent) mod defragment;
pub(in crate::agent) mod fence;
pub(in crate::agent) mod member;
pub(in crate::agent) mod positions;
pub(in crate::agent) mod recover;
pub(in crate::agent) mod scratch;
pub(in crate::agent) mod survey;

pub use balancer::pass_to;
pub use fence::{Fence, fence};
pub use positions::record_positions;
