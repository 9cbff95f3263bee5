//! What a guard asks of etcd, apart from its faults: whether the own member serves, who votes, and, once no member
//! serves that it hears, how far the data of its host goes.
//!
//! In: the own member, those of the others, the positions that the host remembers. Out: the shared state.

use super::shared::{Shared, turns};
use crate::agent::probe::{is_wanted, position, serves_reads, voters};
use crate::agent::{Root, remembered};
use crate::model::healing::Policy;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Between two linearizable reads of the own etcd member.
const READS_EVERY: Duration = Duration::from_secs(3);
/// Between two looks at who votes in etcd.
const VOTERS_EVERY: Duration = Duration::from_secs(10);
/// Between two looks at the data, while there is no quorum: the log of a member that does not run is read whole.
const DATA_EVERY: Duration = Duration::from_secs(20);

/// Starts to ask, on hosts that may have a member.
pub(super) fn ask(tasks: &mut JoinSet<()>, shared: &Arc<Shared>, root: &Root, policy: &Policy) {
    if !shared.own.may_vote() {
        return;
    }
    let own = || (Arc::clone(shared), root.clone(), policy.clone());
    let (shared, root, policy) = own();
    tasks.spawn(async move {
        let mut turn = turns(READS_EVERY);
        loop {
            turn.tick().await;
            let serves = if is_wanted(&root, &policy, &shared.own) { Some(serves_reads().await) } else { None };
            shared.with(|state| state.serves(serves));
        }
    });
    let (shared, root, policy) = own();
    tasks.spawn(async move {
        let mut turn = turns(DATA_EVERY);
        loop {
            turn.tick().await;
            let now = shared.now();
            let lost = shared.with(|state| state.quorum_lost(now)).is_some();
            let reach = if lost { position(&root, &policy).await } else { None };
            let known = if lost { remembered(&root) } else { vec![] };
            shared.with(|state| state.reaches(reach, known));
        }
    });
    let (shared, root, policy) = own();
    if policy.votes_may_move() {
        tasks.spawn(async move {
            let mut turn = turns(VOTERS_EVERY);
            loop {
                turn.tick().await;
                let voters = voters(&root, &policy, &shared.own.name).await;
                shared.with(|state| state.vote(voters));
            }
        });
    }
}
