//! The executor: runs each step as soon as its needs hold, checks its guard, acts, and says so.
//!
//! In: a plan. Out: events and an [`Outcome`]. It makes no choices: what to do is in the plan, how a step is done is in
//! `act`, whether it is still safe is in `precondition`.

mod act;
mod api;
mod balancers;
mod disturb;
mod drain;
mod lead;
mod learner;
mod node;
mod precondition;
mod recover;
mod recoveries;
mod rollback;
mod upgrade;
mod walk;

pub use act::{Actuator, DELIVERIES_PER_HOST, IMPORTS_PER_HOST, Signing, member_start};
pub use api::{Access, ApiClient, ConnectApi, SERVER_NAME};
pub use recoveries::Recoveries;
pub use walk::{Outcome, Perform, StepError, walk};
