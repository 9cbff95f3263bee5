//! One repair, `hactl host-heal`: the etcd member of this host has lost its data or its vote, or has other keys than the
//! others, and joins again. Or the power of another host is switched: see `power`.
//!
//! In: the files of the guard, the other etcd hosts. Out: the member is a voter again, or why not. It is a run like that
//! of `hactl up`: the lock on a majority of the etcd hosts, facts, a plan, and the executor with its preconditions. The
//! other hosts permit it only that (see `agent/admission`). A run of a person that wants the lock gets it: this one ends
//! at once, wherever it is, and the facts decide how it goes on.

use super::on_host::OnHost;
use super::power::{PowerError, Switching};
use super::setup::{self, GuardError};
use crate::agent::{Root, guard_fact, power_of};
use crate::model::desired::{Host, Role};
use crate::model::event::{Event, Sink};
use crate::model::facts::{CORRUPT, Etcd, HostFacts};
use crate::model::healing::{HEALED, SPEC};
use crate::model::names::HostName;
use crate::model::plan::{Action, InitialClusterState, Plan};
use crate::model::recovery::Room;
use crate::model::standby::TakenOver;
use crate::observe::{Answers, HashCheck, Wait};
use crate::plan::votes::{Acts, acts};
use crate::plan::{Intent, NotRejoined, rejoin, remove_gone};
use crate::protocol::{Op, Reply};
use crate::reconcile::{Authority, Failure, Fleet, LOCK_TIMEOUT, Locked, Round, Run};
use crate::transport::{Agents, Connect, Payload};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Hosts that are reached at the same time: all of etcd's.
const AT_ONCE: usize = 9;
/// Plans that are carried out one after the other: one is enough unless something happens meanwhile.
const ROUNDS: usize = 3;
/// Between two looks at whether a person's run waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a member was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum HealError {
    /// The files of the guard cannot be used.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The hosts, or a step.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// No safe plan.
    #[error(transparent)]
    NotRejoined(#[from] NotRejoined),
    /// The last `hactl up` did not reach one of the two.
    #[error("{0} has another {SPEC} than this host; `hactl up` makes them equal")]
    Differs(HostName),
    /// Nothing is to be changed.
    #[error("by the reports of the hosts, nothing is to be repaired at the etcd member of this host")]
    NotNeeded,
    /// Nobody can tell which keys are right.
    #[error("etcd's alarm {CORRUPT} is set, and {0}")]
    Undecided(String),
    /// It stands by, and has nothing to do.
    #[error("this host stands by for etcd, and no host that votes is gone by the report of its guard")]
    NobodyGone,
    /// A person's run waits for the lock.
    #[error("a run that a person started gets the lock")]
    Yields,
    /// The power of another host is not switched.
    #[error(transparent)]
    Power(#[from] PowerError),
    /// It changes while it is repaired.
    #[error("the member is not a voter after {ROUNDS} plans")]
    Unsettled,
}

/// Says what is done, as lines of the journal.
struct Said(fn(&str));

impl Sink for Said {
    fn emit(&self, event: Event) {
        match event {
            Event::Warning { text } => (self.0)(&format!("heal: {text}")),
            Event::Started { what, .. } => (self.0)(&format!("heal: {what}")),
            Event::Failed { what, why, .. } => (self.0)(&format!("heal: {what}: failed: {why}")),
            _ => {}
        }
    }
}

impl HealError {
    /// The reason, for the record of the guard.
    fn why(&self) -> String {
        match self {
            Self::Failure(Failure::Steps { what, why, .. }) => format!("{what}: {why}"),
            Self::Failure(Failure::NoHost { hosts }) => {
                hosts.first().map_or_else(|| self.to_string(), |(host, error)| format!("{host}: {error}"))
            }
            other => other.to_string(),
        }
    }
}

/// Repairs the member of this host. If it cannot, the reason is also in a file, for its guard.
///
/// # Errors
/// Why it was not repaired.
pub async fn heal(root: &Root, own: &HostName, say: fn(&str)) -> Result<(), HealError> {
    let healed = Box::pin(tried(root, own, say)).await;
    if let Err(error) = &healed
        && let Err(unwritten) = std::fs::write(root.own(HEALED), error.why())
    {
        say(&format!("heal: cannot write {HEALED}: {unwritten}"));
    }
    healed
}

async fn tried(root: &Root, own: &HostName, say: fn(&str)) -> Result<(), HealError> {
    let (setup, identity) = setup::healing(root, own)?;
    let power = power_of(root);
    let power = power.map(|power| Switching::of(root, &setup.policy, own, power, say)).transpose()?;
    let authority = Arc::new(OnHost::of(setup::spec(root)?));
    let desired = Arc::new(authority.spec().spec.desired.clone());
    let connect: Arc<dyn Connect> = Arc::new(setup.peers(&identity)?);
    let mut fleet = Fleet::open(desired, &connect, AT_ONCE, Arc::new(Said(say)), CancellationToken::new()).await?;
    let healed = match power {
        Some(power) => power.locked(&mut fleet, &authority).await,
        None => locked((&mut fleet, root), &authority, own, say).await,
    };
    fleet.close().await;
    healed
}

/// Takes the locks, and repairs until a person's run wants one of them.
async fn locked(
    (fleet, root): (&mut Fleet, &Root),
    authority: &Arc<OnHost>,
    own: &HostName,
    say: fn(&str),
) -> Result<(), HealError> {
    let locked = fleet.lock("heal").await?;
    let gone = gone(fleet, root, own, say)?;
    let agents = fleet.machines.clone();
    tokio::select! {
        healed = rounds(fleet, authority, (own, &gone), locked, say) => healed,
        () = wanted(&agents) => Err(HealError::Yields),
    }
}

/// The hosts whose members this one removes, because several are gone. If it has no vote itself, it gets that of one
/// that is gone instead.
fn gone(fleet: &mut Fleet, root: &Root, own: &HostName, say: fn(&str)) -> Result<Vec<HostName>, HealError> {
    let (report, dead_s) = (guard_fact(root).report, fleet.desired.healing.after.host_dead_s);
    let now_ms = super::shared::now(Instant::now()).wall_ms;
    let is_here = |host: &HostName| fleet.machines.contains_key(host);
    let is_gone = |host: &&Host| {
        !is_here(&host.name) && report.as_ref().is_some_and(|report| report.is_gone(&host.name, dead_s, now_ms))
    };
    let desired = Arc::clone(&fleet.desired);
    let gone: Vec<HostName> = desired.with(Role::Etcd).filter(is_gone).map(|host| host.name.clone()).collect();
    match acts(&desired, own, &gone, is_here).ok_or(HealError::NobodyGone)? {
        Acts::Removes(gone) => Ok(gone),
        Acts::TakesOver(from) => {
            say(&format!("heal: {own} takes over the vote of {from} in etcd"));
            fleet.desired = Arc::new((*desired).clone().with_vote(&TakenOver { from, by: own.clone() }));
            Ok(vec![])
        }
    }
}

/// Observes, plans and performs until nothing is left to do.
async fn rounds(
    fleet: &Fleet,
    authority: &Arc<OnHost>,
    (own, gone): (&HostName, &[HostName]),
    locked: Locked,
    say: fn(&str),
) -> Result<(), HealError> {
    for done in 0..ROUNDS {
        let round = Round::take(fleet, &**authority, Wait::ForAll).await?;
        if let Some(host) = differs(&round.facts.hosts, own) {
            return Err(HealError::Differs(host.clone()));
        }
        let mut intent = round.intent(&**authority)?;
        if !gone.is_empty() {
            let plan = remove_gone(&fleet.desired, &round.target, &round.facts, &intent, gone)?;
            if !plan.is_empty() {
                perform(fleet, authority, locked, round, &plan).await?;
                continue;
            }
        }
        let agreed = compare(fleet, &round, own, &mut intent, say).await?;
        let plan = rejoin(&fleet.desired, &round.target, &round.facts, &intent, own)?;
        if is_for_its_guard(&plan) {
            if done == 0 && !agreed {
                return Err(HealError::NotNeeded);
            }
            if done > 0 && gone.is_empty() {
                say(&format!("heal: the etcd member of {own} votes again"));
            }
            return Ok(());
        }
        perform(fleet, authority, locked, round, &plan).await?;
    }
    Err(HealError::Unsettled)
}

async fn perform(
    fleet: &Fleet,
    authority: &Arc<OnHost>,
    locked: Locked,
    round: Round,
    plan: &Plan,
) -> Result<(), Failure> {
    locked.allows(plan, fleet, &round.facts)?;
    let authority: Arc<dyn Authority> = Arc::clone(authority) as Arc<dyn Authority>;
    Run::new(authority).run(fleet, round, plan).await.map(drop)
}

/// While etcd has the alarm CORRUPT: if the keys of this host's member are not those of a majority, the member is to be
/// replaced; if all members have the same, the alarm is disarmed, and this returns whether it was.
async fn compare(
    fleet: &Fleet,
    round: &Round,
    own: &HostName,
    intent: &mut Intent,
    say: fn(&str),
) -> Result<bool, HealError> {
    let view = round.facts.host(own).and_then(|facts| facts.etcd.as_ref()?.view.as_ref());
    let Some(view) = view.filter(|view| view.alarms.iter().any(|alarm| alarm == CORRUPT)) else { return Ok(false) };
    let Etcd::HasQuorum(list) = &round.facts.etcd else { return Ok(false) };
    let check = round.hashes(fleet).await;
    if let HashCheck::Same { members, .. } = &check
        && *members == list.voters()
    {
        let (Some(agent), Some(etcd)) = (fleet.machines.get(own), round.queries.etcd(own)) else {
            return Err(Failure::NoHost { hosts: vec![] }.into());
        };
        let disarm = Op::MakeRoom { etcd, room: Room::Agreed };
        let disarmed = agent.call(disarm, Payload::None, LOCK_TIMEOUT, &|_| {}).await;
        disarmed.map_err(|error| Failure::Host { host: own.clone(), error: Box::new(error) })?;
        say(&format!("heal: disarmed etcd's alarm {CORRUPT}: {members} members have the same keys"));
        return Ok(true);
    }
    let why = match &check {
        HashCheck::Same { members, .. } => format!("only {members} of {} voters could be compared", list.voters()),
        HashCheck::Unknown(why) | HashCheck::Incomparable(why) => why.clone(),
        HashCheck::Differs(_) => match check.odd(list.voters()) {
            Some(odd) => {
                if odd.contains(own) {
                    intent.replace.insert(own.clone(), view.member);
                }
                return Ok(false);
            }
            None => "no majority of the voters has the same keys".to_owned(),
        },
    };
    Err(HealError::Undecided(why))
}

/// A host that answers, and whose file for repairs is not that of this host.
fn differs<'a>(hosts: &'a Answers, own: &HostName) -> Option<&'a HostName> {
    let of = |facts: &HostFacts| facts.files.get(SPEC).map(|file| file.digest);
    let mine = hosts.get(own).and_then(|answer| of(answer.as_ref().ok()?));
    let mut answers = hosts.iter().filter_map(|(host, answer)| Some((host, answer.as_ref().ok()?)));
    answers.find(|(_, facts)| mine.is_none() || of(facts) != mine).map(|(host, _)| host)
}

/// Whether a plan contains nothing, or only the start of a stopped member, which the guard of its host decides about: a
/// person may have stopped it.
fn is_for_its_guard(plan: &Plan) -> bool {
    let restarts = |action: &Action| {
        matches!(action, Action::StartMember { state: InitialClusterState::Restart, .. } | Action::Seal { .. })
    };
    let starts = plan.steps.iter().any(|step| matches!(step.action, Action::StartMember { .. }));
    plan.steps.is_empty() || starts && plan.steps.iter().all(|step| restarts(&step.action))
}

/// Returns once a person's run waits for the lock of any host.
pub(super) async fn wanted(agents: &Agents) {
    loop {
        sleep(LOOK_EVERY).await;
        for agent in agents.values() {
            let again = Op::Lock { holder: String::new() };
            let reply = agent.call(again, Payload::None, LOCK_TIMEOUT, &|_| {}).await;
            if matches!(reply, Ok(Reply::Locked { wanted: true, .. })) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::FileFact;
    use crate::model::names::Digest;

    #[test]
    fn hosts_repair_only_while_all_that_answer_have_the_same_file() {
        let host = |text: &str| {
            let digest = Digest::of(text.as_bytes());
            let file = FileFact { digest, mode: 0o600, owner: "root".to_owned(), changed_ms: 0 };
            let files = if text.is_empty() { [].into() } else { [(SPEC.to_owned(), file)].into() };
            Ok(HostFacts { files, ..HostFacts::default() })
        };
        let name = |n: usize| -> HostName { format!("cp{}", n + 1).parse().unwrap() };
        let found = |texts: [&str; 3]| {
            let hosts = texts.iter().enumerate().map(|(n, text)| (name(n), host(text))).collect();
            differs(&hosts, &name(1)).cloned()
        };
        assert_eq!(found(["a", "a", "a"]), None);
        assert_eq!(found(["a", "a", "b"]), Some(name(2)));
        assert_eq!(found(["a", "a", ""]), Some(name(2)), "it has none");
        assert!(found(["a", "", "a"]).is_some(), "the own one is missing");
    }
}
