//! The etcd member of the host: starting, fencing, defragmenting and restoring it, and the balancer in front of it.
//!
//! In: operations on one member. Out: their results, or faults.

pub(crate) mod balancer;
pub(crate) mod defragment;
pub(crate) mod fence;
pub(crate) mod lead;
pub(crate) mod member;
pub(crate) mod positions;
pub(crate) mod quota;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod scratch;
pub(crate) mod survey;
pub(crate) mod views;

pub use balancer::pass_to;
pub use fence::{Fence, fence};
pub use lead::{heir, yield_lead};
pub use member::cluster_of;
pub use positions::{record_positions, remembered};
pub use views::{serving, voters};
