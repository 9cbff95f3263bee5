//! The executor: runs each step as soon as its needs hold, checks its guard, acts, and says so.
//!
//! In: a plan. Out: events and an [`Outcome`]. It makes no choices: what to do is in the plan, how a step is done is in
//! `actions`, whether it is still safe is in `precondition`.

mod act;
mod actions;
mod api;
mod balancers;
mod disturb;
mod drain;
mod lead;
mod precondition;
mod recoveries;
mod rollback;
mod walk;

pub use act::{Actuator, DELIVERIES_PER_HOST, IMPORTS_PER_HOST, Signing};
pub use actions::member_start;
pub use api::{Access, ApiClient, ConnectApi, SERVER_NAME};
pub use drain::{ControlPlane, DrainError, Draining, Found as DrainFound, Pace};
pub use recoveries::Recoveries;
pub use walk::{Outcome, Perform, StepError, walk};
