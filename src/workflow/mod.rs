//! Each verb in one module: lock, observe, plan, ask for consent, execute, verify.
//!
//! In: a loaded inventory and the person's choices. Out: events, and a result or a [`Failure`].

mod authentic;
mod authority;
mod away;
mod boots;
mod bundles;
mod certs;
mod copies;
mod differences;
mod down;
mod endpoint;
mod failure;
mod guard;
mod heirs;
mod kubeconfig;
mod leaving;
mod maintain;
mod named;
mod preflight;
mod prove;
mod pull;
mod recover;
mod renew;
mod roll_out;
mod room;
mod rotate;
mod runbook;
mod secrets;
mod serving;
mod session;
mod snapshot;
mod state;
mod status;
mod support;
mod up;

pub use crate::reconcile::manifests::collisions;
pub use crate::reconcile::{Ask, Choices};
pub use away::list as away_bundles;
pub use bundles::{Listed, Unusable, list as bundles};
pub use certs::list as certificates;
pub use copies::list as copied_bundles;
pub use down::down;
pub use failure::Failure;
pub use guard::{OfHosts, guards, repairs, wish};
pub use kubeconfig::{Kind as KubeconfigKind, kubeconfig, kubectl, reader};
pub use leaving::leaving;
pub use maintain::{
    Finish, Finished, Meant, approve, finish, maintain, maintenances, resume_maintenances, would_maintain,
};
pub use named::file_named;
pub use pull::{Pulling, pull as pull_state};
pub use recover::{Recovered, Recovering, recover};
pub use renew::{Renewed, renew, renew_kubeconfig, would_renew};
pub use roll_out::{RolledOut, pause_rollout, roll_out, would_roll_out};
pub use rotate::{Rotated, Rotating, rotate, would_rotate};
pub use runbook::runbook;
pub use session::{Places, Session};
pub use snapshot::{
    Drilled, Taken, Verified, Verifying, drill, prune as prune_bundles, take as take_bundle, verify_file, verify_newest,
};
pub use state::State;
pub use status::{Status, status};
pub use support::{Supported, Wanted, support};
pub use up::{Summary, pending, up};
