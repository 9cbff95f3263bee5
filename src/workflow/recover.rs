//! `hactl recover`: diagnoses, proposes the smallest change that helps, asks for consent, restores, and runs `up`.
//!
//! No host is changed before a person has agreed to the proposal. The journal records it before the first step, so the
//! same command finishes an interrupted recovery as it was begun.

use super::Unusable;
use super::away::{Fetched, local};
use super::bundles::{fetch, identities, io_error, ours, scratch, verify};
use super::named::Named;
use super::state::recoveries_of;
use super::up::{Summary, up};
use super::{Failure, Session, State};
use crate::model::check::{Check, Outcome};
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::facts::{Facts, disbelief};
use crate::model::names::HostName;
use crate::model::plan::{Action, Step};
use crate::model::recovery::{Again, Diagnosis, Fullness, Loss, Origin, Proposal, Recovery};
use crate::model::refusal::Refusal;
use crate::model::rotation::Rotatable;
use crate::model::snapshot::{BundleFact, is_name};
use crate::observe::{HashCheck, QueryScope, Wait};
use crate::pki;
use crate::plan::{Away, RecoveryRequest};
use crate::protocol::{Op, WaitCondition};
use crate::reconcile::{Ask, Choices, Failure as Stop, Round, Run};
use crate::snapshot::{Bundle, BundleError, Identities, check_room};
use crate::statedir::Entry;
use crate::transport::{Agent, Payload};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of waiting for the endpoint: images may have to be imported again.
const SERVED_WITHIN: Duration = Duration::from_secs(300);

/// The head start of the first API server before `up` starts the others, which compete with it for CPU and disk. On an
/// idle host it starts in a third of that.
const HEAD_START: Duration = Duration::from_secs(15);

/// The options of the command line.
#[derive(Debug, Clone, Default)]
pub struct Recovering {
    /// The source: a host, archived data on a host, a snapshot by name or a snapshot's file; `None`: the newest.
    pub from: Option<String>,
    /// Whether to go back, even if etcd answers, to the data that the last recovery archived, or to `from`.
    pub undo: bool,
    /// The identity that decrypts a snapshot; `None`: the one in the state directory.
    pub identity: Option<PathBuf>,
    /// Unreachable hosts that are known to be powered off.
    pub powered_off: Vec<String>,
    /// Whether unsigned snapshots are accepted.
    pub accept_unsigned: bool,
    /// Whether to stop after the proposal.
    pub dry_run: bool,
}

/// The results of `recover`.
#[derive(Debug)]
pub enum Recovered {
    /// There was nothing to recover, for this reason.
    Nothing(Diagnosis),
    /// The proposal of a dry run.
    Proposed(Box<Proposal>),
    /// etcd had exceeded its quota; space was freed.
    Room {
        /// The sizes of the databases before.
        before: Vec<Fullness>,
        /// Their sizes now.
        after: Vec<Fullness>,
    },
    /// Members whose data differed from the majority's were replaced.
    Replaced {
        /// The hosts of these members.
        odd: Vec<HostName>,
        /// The result of `up`.
        summary: Box<Summary>,
    },
    /// Members only had to be started.
    Woken {
        /// The result of `up`.
        summary: Box<Summary>,
        /// Whether that finished an interrupted recovery.
        finished: bool,
    },
    /// etcd was recovered.
    Done {
        /// The executed proposal.
        proposal: Box<Proposal>,
        /// Time from the first step until etcd had quorum.
        quorum: Duration,
        /// Time from the first step until an API server served at the endpoint; `None`: none did in time.
        endpoint: Option<Duration>,
        /// The result of `up`; an error names the remaining problem, such as unreachable hosts.
        after: Result<Box<Summary>, Box<Failure>>,
    },
}

/// Recovers etcd.
///
/// # Errors
/// See [`Failure`].
pub async fn recover(
    session: &mut Session,
    asked: &Recovering,
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<Recovered, Failure> {
    if !asked.dry_run {
        session.lock("recover").await?;
    }
    // A host that does not answer now counts as unreachable.
    session.admit(Wait::ForAll).await?;
    session.anybody().await?;
    let state = Arc::new(session.state(false).await?);
    let state_dir = state.state_dir().ok_or_else(|| session.places.no_state())?;
    let held = if asked.dry_run { None } else { state.hold("recover")? };
    if !asked.dry_run {
        // Fetched snapshots are encrypted to it, so it must exist before anything is stopped.
        state_dir.identity()?;
    }
    let bundle = asked.from.as_deref().filter(|words| is_name(words));
    let authority = state.publics().founded;
    let (look, copies, away, clock) = tokio::join!(
        Round::with(session, &*state, Wait::ForAll, QueryScope::Disks),
        super::copies::sources(session, authority, bundle),
        super::away::newest(session, authority, bundle),
        super::preflight::clock(session)
    );
    let look = look?;
    if let Some(finding) = clock {
        session.sink.warn(finding.to_string());
    }
    for (host, doubt) in look.facts.doubts() {
        session.sink.warn(disbelief(host, doubt));
    }
    for text in state.close_impossible(asked.dry_run)? {
        session.sink.warn(text);
    }
    super::authentic::tell(session, taken(&look.facts).map(|(host, one)| (format!("{} on {host}", one.name), one)));
    if !asked.dry_run {
        state.end_recovery(&look.facts)?;
    }
    let (from, file) = asked.source(session, &state).await?;
    if same_again(&look, &state, (asked.undo, from.as_ref()))? {
        drop(held);
        return finish(session, asked, choices, ask).await;
    }
    // A recovery has ended once a quorum answers; this run has just recorded that, except in a dry run.
    let open = if look.facts.living().is_some() { None } else { state.past()?.open };
    // Before its snapshot was fetched, or before the data was replaced by its own, no data was touched: then hactl
    // chooses again, by the current state.
    let recoveries = state.recovery_snapshots();
    let fetched = match &open {
        Some(recovery) if recovery.is_local() => restored(&look, recovery),
        Some(recovery) => recoveries.taken(&recovery.id).map_err(io_error("read", recoveries.path()))?.is_some(),
        None => false,
    };
    let wish = RecoveryRequest {
        damaged: BTreeSet::new(),
        id: crate::statedir::random_hex(16)?,
        from,
        bundle: file.as_ref().map(|file| (file.bundle.claimed.manifest.host.clone(), file.fact.clone())),
        // Of equal copies the first is used: a host is nearer than object storage.
        away: copies.into_iter().chain(away).collect(),
        powered_off: asked.powered_off.clone(),
        begun: open.filter(|_| fetched),
        undo: asked.undo,
        accept_unsigned: asked.accept_unsigned,
    };
    if !asked.dry_run {
        tidied(session, wish.begun.as_ref().map(|recovery| recovery.id.as_str()));
    }
    let proposal = match look.diagnose(&*state, &wish, &session.desired)? {
        Diagnosis::Lost(proposal) => proposal,
        Diagnosis::Asleep if !asked.dry_run => {
            drop(held);
            let summary = rest(session, choices, ask).await?;
            // Whether the started members are those of the recovery, or older ones.
            let recovered = state.past()?.recovered();
            let finished = recovered.is_some() && recovered == wish.begun.map(|begun| begun.base);
            if !finished {
                return Ok(Recovered::Woken { summary, finished });
            }
            return finished_with(session, *summary).await;
        }
        Diagnosis::Full(before) if !asked.dry_run => {
            let after = super::room::make_room(session, &before, choices, ask).await?;
            return Ok(Recovered::Room { before, after });
        }
        Diagnosis::Serves { healthy, voters } => {
            let (odd, agree) = odd_ones(session, &look, voters).await?;
            if odd.is_empty() && made_by(&look, &state)?.is_some_and(|(_, whole)| !whole) {
                drop(held);
                return finish(session, asked, choices, ask).await;
            }
            if odd.is_empty() {
                if !asked.dry_run {
                    super::room::disarmed(session, &look).await?;
                }
                return Ok(Recovered::Nothing(Diagnosis::Serves { healthy, voters }));
            }
            if asked.dry_run {
                return Ok(Recovered::Nothing(Diagnosis::Odd { odd: odd.into_keys().collect(), agree }));
            }
            drop(held);
            let hosts: Vec<HostName> = odd.keys().cloned().collect();
            let replacing = Choices { replace: odd, ..choices.clone() };
            let replaced = Box::pin(up(session, &replacing, ask)).await;
            // During the alarm etcd rejects writes, so checks of the API may fail even after the member is replaced.
            let look = Round::take(session, &*state, Wait::ForAll).await?;
            let summary = match (super::room::disarmed(session, &look).await?, replaced) {
                (true, _) => Box::pin(up(session, choices, ask)).await?,
                (false, replaced) => replaced?,
            };
            return Ok(Recovered::Replaced { odd: hosts, summary: Box::new(summary) });
        }
        other => return Ok(Recovered::Nothing(other)),
    };
    if asked.dry_run {
        session.sink.emit(Event::Proposed { proposal: proposal.clone() });
        return Ok(Recovered::Proposed(proposal));
    }
    let (proposal, bundle) = openable(session, &look, &state, (asked, wish), proposal, file).await?;
    consent(session, &proposal, choices, ask)?;
    let recovery = &proposal.recovery;
    if !proposal.begun {
        let instead_of = proposal.gives_up.as_ref().map(|other| other.id.clone());
        state.record(Entry::RecoveryChosen { recovery: recovery.clone(), instead_of })?;
    }
    let begun = Instant::now();
    if let Some((bundle, identities, _)) = &bundle {
        let (snapshot, cannot) = (&bundle.claimed.manifest.snapshot, io_error("write into", recoveries.path()));
        check_room(recoveries.path(), snapshot.sent_size).map_err(&cannot)?;
        let mut sealing = recoveries.begin(&recovery.id).map_err(&cannot)?;
        bundle.snapshot(identities, &mut sealing).map_err(Unusable::Bundle)?;
        sealing.finish().map_err(&cannot)?;
        recoveries.note(&recovery.id, snapshot).map_err(&cannot)?;
    }
    if !state.contents().rotations.retired.is_empty() {
        // The restored data may contain Secrets that are encrypted with earlier keys. This comes first, so that no
        // failure can prevent it.
        state.again()?.advance(Rotatable::Encryption, pki::rotate::reread)?;
        let text = "restored Secrets may be encrypted with earlier keys; API servers get these keys again until `hactl \
                    certs rotate encryption` rewrites the Secrets";
        session.sink.warn(text.to_owned());
    }
    let plan = look.recovery(&*state, recovery, proposal.begun || bundle.is_some(), &session.desired)?;
    let asked_of: Vec<_> =
        session.desired.with(Role::ControlPlane).filter_map(|h| session.machines.get(&h.name)).cloned().collect();
    let endpoint = look.queries.served();
    session.sink.emit(Event::Planned { plan: Box::new(plan.clone()) });
    // The recovered cluster has another id than the one in the journal.
    let mut look = look;
    look.queries.known.recovering = true;
    Run::new(state.clone()).run(session, look, &plan).await?;
    let quorum = begun.elapsed();
    let kubelet = crate::plan::kubelet_unit();
    let starts = |step: &Step| matches!(&step.action, Action::RunUnit { unit, .. } if *unit == kubelet);
    let one_starts = plan.steps.iter().any(starts);
    tidied(session, None);
    drop(bundle);
    drop(held);
    drop(state);
    // The consent covers the remaining steps.
    let agreed = Choices { yes: true, ..choices.clone() };
    let (endpoint, after) = match roomy(session, &agreed, ask).await {
        Ok(()) => {
            let (asked, times) = ((asked_of, endpoint), (begun, one_starts));
            Box::pin(served_meanwhile(session, asked, times, &agreed, ask)).await
        }
        Err(failure) => (None, Err(failure)),
    };
    let after = match after {
        Ok(summary) => proven(session, summary).await.map_err(Box::new),
        Err(failure @ Failure::Engine(Stop::Interrupted { .. })) => return Err(failure),
        // A later failure must not hide that etcd is recovered.
        Err(failure) => Err(Box::new(failure)),
    };
    fresh(session).await;
    Ok(Recovered::Done { proposal, quorum, endpoint, after })
}

/// The result of `up`, with the checks of restored Secrets and tokens.
async fn proven(session: &Session, mut summary: Summary) -> Result<Box<Summary>, Failure> {
    let checks = super::prove::prove(session).await?;
    for check in &checks {
        session.sink.emit(Event::Checked { check: check.clone() });
    }
    let failing: Vec<Check> = checks.iter().filter(|check| check.outcome >= Outcome::Fail).cloned().collect();
    if !failing.is_empty() {
        return Err(Failure::Unverified { checks: failing });
    }
    summary.checks.extend(checks);
    Ok(Box::new(summary))
}

/// Whether a host has the data of this recovery.
fn restored(look: &Round, recovery: &Recovery) -> bool {
    let etcd = look.facts.hosts.values().filter_map(|found| found.as_ref().ok()?.etcd.as_ref());
    etcd.filter(|etcd| etcd.data).any(|etcd| etcd.token.as_ref() == Some(&recovery.id))
}

/// The snapshots that the hosts report.
fn taken(facts: &Facts) -> impl Iterator<Item = (&HostName, &BundleFact)> {
    let hosts = facts.hosts.iter().filter_map(|(host, facts)| Some((host, facts.as_ref().ok()?.bundles.as_ref()?)));
    hosts.flat_map(|(host, found)| found.bundles.iter().map(move |bundle| (host, bundle)))
}

/// Frees space if the restored database exceeds its quota: then it also contains the alarm, and etcd rejects writes.
async fn roomy(session: &Session, choices: &Choices, ask: &dyn Ask) -> Result<(), Failure> {
    let full = super::room::alarmed(session).await;
    if full.is_empty() {
        return Ok(());
    }
    session.sink.warn("the restored database had exceeded its quota, so etcd rejects writes: freeing space");
    super::room::make_room(session, &full, choices, ask).await.map(drop)
}

/// The recovery that created the running cluster, and whether it was finished.
fn made_by(look: &Round, state: &State) -> Result<Option<(Recovery, bool)>, Failure> {
    let Some(living) = look.facts.living() else { return Ok(None) };
    let past = state.past()?;
    // In a dry run its end may not be in the journal yet.
    let open = past.open.filter(|recovery| living.revision >= recovery.base);
    Ok(open.map(|open| (open, false)).or(past.last))
}

/// Whether the requested recovery was already done but not finished: nothing is restored twice, and an undo must not
/// undo itself.
fn same_again(look: &Round, state: &State, (undo, from): (bool, Option<&Origin>)) -> Result<bool, Failure> {
    let Some((last, whole)) = made_by(look, state)? else { return Ok(false) };
    if !undo {
        return Ok(!whole && from == Some(&last.source));
    }
    match last.again(from, whole) {
        Again::Another => Ok(false),
        Again::TheSame => Ok(true),
        Again::Unclear => Err(Refusal::Undone { to: last.source }.into()),
    }
}

/// Finishes a recovery.
async fn finish(
    session: &mut Session,
    asked: &Recovering,
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<Recovered, Failure> {
    if asked.dry_run {
        return Ok(Recovered::Nothing(Diagnosis::Unfinished));
    }
    roomy(session, choices, ask).await?;
    let summary = rest(session, choices, ask).await?;
    finished_with(session, *summary).await
}

/// The final steps of an interrupted recovery, the same as of any other.
async fn finished_with(session: &Session, summary: Summary) -> Result<Recovered, Failure> {
    fresh(session).await;
    let summary = proven(session, summary).await?;
    Ok(Recovered::Woken { summary, finished: true })
}

/// Runs `up` for everything that depends on etcd, then removes temporary files.
async fn rest(session: &mut Session, choices: &Choices, ask: &dyn Ask) -> Result<Box<Summary>, Failure> {
    let summary = Box::new(Box::pin(up(session, choices, ask)).await?);
    tidied(session, None);
    Ok(summary)
}

/// Runs `up` for everything that depends on etcd, and measures the time from `begun` until an API server served at the
/// endpoint; `None`: none did before `up` ended. If a kubelet starts the first API server, that one gets a head start.
async fn served_meanwhile(
    session: &mut Session,
    (asked_of, endpoint): (Vec<Arc<dyn Agent>>, WaitCondition),
    (begun, one_starts): (Instant, bool),
    choices: &Choices,
    ask: &dyn Ask,
) -> (Option<Duration>, Result<Summary, Failure>) {
    let served = async { served(&asked_of, &endpoint).await.then(|| begun.elapsed()) };
    tokio::pin!(served);
    let mut when = None;
    if one_starts {
        session.sink.phase("the first API server starts; the others follow");
        when = tokio::select! {
            at = tokio::time::timeout(HEAD_START, &mut served) => at.ok(),
            () = session.stop.cancelled() => None,
        };
    }
    let mut working = Box::pin(up(session, choices, ask));
    let after = loop {
        tokio::select! {
            after = &mut working => break after,
            at = &mut served, if when.is_none() => when = Some(at),
        }
    };
    (when.flatten(), after)
}

/// Takes a snapshot of the recovered data, because earlier snapshots predate it and the next timer may be far off. It
/// is not essential, so an interrupt skips it.
async fn fresh(session: &Session) {
    let taken = tokio::select! {
        taken = Box::pin(super::snapshot::take(session, None, None)) => taken.map(drop),
        () = session.stop.cancelled() => return,
    };
    if let Err(failure) = taken {
        session.sink.warn(format!(
            "could not take a snapshot of the recovered data: {failure}; take one with `hactl snapshot take`"
        ));
    }
}

/// Members whose data differs from that of the majority, each with its id, and how many agree. They are asked twice,
/// because a single answer must not remove a member.
async fn odd_ones(session: &Session, look: &Round, voters: usize) -> Result<(BTreeMap<HostName, u64>, usize), Failure> {
    let mut hash = look.hashes(session).await;
    if matches!(hash, HashCheck::Differs(_)) {
        hash = look.hashes(session).await;
    }
    if let HashCheck::Incomparable(why) | HashCheck::Unknown(why) = &hash {
        session.sink.warn(format!("could not check whether all members hold the same data: {why}"));
    }
    let HashCheck::Differs(all) = &hash else { return Ok((BTreeMap::new(), voters)) };
    let hashes = || all.iter().map(|(host, hash)| (host.clone(), *hash)).collect();
    let odd = hash.odd(voters).ok_or_else(|| Refusal::NobodyAgrees { hashes: hashes() })?;
    let agree = all.len() - odd.len();
    let member = |host: HostName| Some((host.clone(), look.facts.host(&host)?.etcd.as_ref()?.view.as_ref()?.member));
    Ok((odd.into_iter().filter_map(member).collect(), agree))
}

/// A snapshot that was named by its file or address, fully verified.
struct Given {
    bundle: Bundle,
    fetched: Option<Fetched>,
    fact: BundleFact,
    identities: Identities,
}

/// Removes the encrypted etcd snapshots that are kept here until a quorum has their data. A failure is only a warning.
fn tidied(session: &Session, open: Option<&str>) {
    let recoveries = recoveries_of(&session.places.state);
    if let Err(error) = recoveries.forget(open) {
        let at = recoveries.path().display();
        session
            .sink
            .warn(format!("an etcd snapshot, encrypted to the identity of this state, may remain in {at}: {error}"));
    }
}

impl Recovering {
    /// The requested source, and the snapshot if it is a file on this machine or has an address.
    async fn source(&self, session: &Session, state: &State) -> Result<(Option<Origin>, Option<Given>), Failure> {
        let Some(named) = self.from.as_deref().map(Named::parse).transpose()? else { return Ok((None, None)) };
        let named = match named {
            Named::File(path) => path,
            Named::Url(url) => PathBuf::from(url),
            Named::Copy(at) => PathBuf::from(at.to_string()),
            there => return Ok((there.origin(), None)),
        };
        let (path, fetched) = local(session, &named).await?;
        let identities = identities(self.identity.as_deref(), &session.places.state, &path)?;
        let trust = state.contents().snapshot_trust();
        let (bundle, _, judged) = verify(&path, &identities, Some(&trust), self.accept_unsigned)?;
        ours(bundle.path(), &bundle.claimed.manifest, state)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut fact = BundleFact::of(name.clone(), bundle.bytes, &bundle.claimed);
        // A person may have renamed the file.
        fact.authenticity = judged;
        Ok((Some(Origin::Bundle(name)), Some(Given { bundle, fetched, fact, identities })))
    }
}

/// A snapshot, the identities that decrypt it, and the fetched file.
type Opened = (Bundle, Identities, Option<Fetched>);

/// Shows the proposal, and opens its snapshot before asking for consent. If the snapshot was chosen as the newest and
/// is damaged, it is reported and skipped, and the next best is shown.
async fn openable(
    session: &Session,
    look: &Round,
    state: &State,
    (asked, mut wish): (&Recovering, RecoveryRequest),
    mut proposal: Box<Proposal>,
    given: Option<Given>,
) -> Result<(Box<Proposal>, Option<Opened>), Failure> {
    loop {
        session.sink.emit(Event::Proposed { proposal: proposal.clone() });
        let name = match &proposal.recovery.source {
            Origin::Bundle(name) if !proposal.begun => name.clone(),
            _ => return Ok((proposal, None)),
        };
        if let Some(given) = given {
            return Ok((proposal, Some((given.bundle, given.identities, given.fetched))));
        }
        let shown = proposal.sources.iter().find(|source| source.origin() == proposal.recovery.source);
        let place = shown.and_then(|source| source.away.clone());
        let lies = (name.as_str(), place.as_deref());
        let damaged = match opened(session, look, &wish, lies, asked.identity.as_deref(), state).await {
            Ok(opened) => return Ok((proposal, Some(opened))),
            Err(Failure::Recovery(Unusable::Bundle(why))) if wish.from.is_none() && why.is_damage() => why,
            Err(failure) => return Err(failure),
        };
        session.sink.warn(format!("{damaged}; trying the next best snapshot"));
        wish.damaged.insert((name, place));
        match look.diagnose(state, &wish, &session.desired)? {
            Diagnosis::Lost(next) => proposal = next,
            _ => return Err(Unusable::Bundle(damaged).into()),
        }
    }
}

/// The chosen snapshot, fetched from the place that was shown and fully verified.
async fn opened(
    session: &Session,
    look: &Round,
    wish: &RecoveryRequest,
    (name, place): (&str, Option<&str>),
    identity: Option<&Path>,
    state: &State,
) -> Result<Opened, Failure> {
    let fits = |one: &BundleFact| one.name == name && one.authenticity.may_be_taken(wish.accept_unsigned);
    let (fetched, agreed) = match place {
        None => {
            let (host, bundle) = taken(&look.facts).find(|(_, bundle)| fits(bundle)).ok_or(Unusable::None)?;
            let fetched = Fetched::at(scratch(&session.places.state)?.join(name));
            fetch(session, host, bundle, fetched.path()).await?;
            (fetched, bundle)
        }
        Some(place) => {
            let lies = |away: &&Away| away.place == place && fits(&away.bundle);
            let away = wish.away.iter().find(lies).ok_or(Unusable::None)?;
            let (_, fetched) = local(session, Path::new(&format!("{place}/{name}"))).await?;
            (fetched.ok_or(Unusable::None)?, &away.bundle)
        }
    };
    let identities = identities(identity, &session.places.state, fetched.path())?;
    let trust = state.contents().snapshot_trust();
    let (bundle, _, judged) = verify(fetched.path(), &identities, Some(&trust), wish.accept_unsigned)?;
    ours(bundle.path(), &bundle.claimed.manifest, state)?;
    let fact = BundleFact::of(name.to_owned(), bundle.bytes, &bundle.claimed);
    if (BundleFact { authenticity: judged, ..fact }) != *agreed {
        // It differs from the one that was shown.
        return Err(Unusable::Bundle(BundleError::NotWhole(PathBuf::from(name))).into());
    }
    Ok((bundle, identities, Some(fetched)))
}

/// Waits until an API server serves at the endpoint, probed from these hosts. All API servers were stopped before, so
/// one that answers reads the restored data.
async fn served(hosts: &[Arc<dyn Agent>], endpoint: &WaitCondition) -> bool {
    let within_ms = u64::try_from(SERVED_WITHIN.as_millis()).unwrap_or(u64::MAX);
    let ask = |host: &Arc<dyn Agent>| {
        let (host, op) = (Arc::clone(host), Op::Await { condition: endpoint.clone(), within_ms });
        let within = SERVED_WITHIN + Duration::from_secs(5);
        Box::pin(async move { host.call(op, Payload::None, within, &|_| {}).await })
    };
    !hosts.is_empty() && futures::future::select_ok(hosts.iter().map(ask)).await.is_ok()
}

/// Asks for consent by the cluster's name, because no other command can lose more data. A recovery that was begun has
/// consent.
fn consent(session: &Session, proposal: &Proposal, choices: &Choices, ask: &dyn Ask) -> Result<(), Failure> {
    if choices.yes || proposal.begun {
        return Ok(());
    }
    let (cluster, from) = (&session.desired.cluster, &proposal.recovery.source);
    let lost = if matches!(proposal.loss, Loss::Undone { .. }) { ", and later writes are lost" } else { "" };
    Ok(ask.name(cluster, &format!("the whole etcd of {cluster}: it is restored from {from}{lost}"))?)
}
