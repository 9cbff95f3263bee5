//! What a guard asks of etcd, apart from its alarms: whether the own member serves, who votes, and, once no member
//! serves that it hears, how far the data of its host goes.
//!
//! In: the own member, those of the others, the positions that the host remembers. Out: the shared state.

use super::shared::{Shared, turns};
use crate::agent::probe::{is_wanted, position, serves_reads, vote};
use crate::agent::{Root, remembered, serving, voters};
use crate::model::fault::FaultKind;
use crate::model::healing::Policy;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Between two linearizable reads of the own etcd member.
const READS_EVERY: Duration = Duration::from_secs(3);
/// Between two looks at who votes in etcd, by the other members: they are asked where votes may move, or if the own one
/// does not say that it votes.
const VOTERS_EVERY: Duration = Duration::from_secs(10);
/// Where nothing has changed by the heartbeats of all, they are asked only each so many times.
const CALM_EVERY: u32 = 6;
/// How long a member may take to say so.
const ANSWER: Duration = Duration::from_secs(2);
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
    tasks.spawn(async move {
        let own = &shared.own;
        let mut turn = turns(VOTERS_EVERY);
        for count in 0_u32.. {
            turn.tick().await;
            let now = shared.now();
            if count % CALM_EVERY != 0 && shared.with(|state| state.is_calm(now)) {
                continue;
            }
            let wanted = is_wanted(&root, &policy, own);
            let doubtful = wanted && !shared.with(|state| state.votes_by_own_word());
            let asks = policy.votes_may_move() || doubtful;
            let said = if asks { serving(&root, &policy, &own.name, ANSWER).await } else { vec![] };
            if policy.votes_may_move() {
                let voters = voters(&said, &policy);
                shared.with(|state| state.vote(voters));
            }
            let found = if doubtful { vote(own, &said).await } else { Some(vec![]) };
            if let Some(found) = found {
                shared.probed(&[FaultKind::EtcdNotVoting], found);
            }
        }
    });
}
