//! `hactl recover`: diagnose, propose the least that helps, ask, restore, and bring up what hangs on it.
//!
//! Nothing on any host is changed before a person agreed to what was shown. What was agreed to is in the journal before the first
//! step: a run that was cut off is finished as it was begun, by the same command.

use super::Unusable;
use super::away::{Fetched, local};
use super::bundles::{fetch, identities, io_error, ours, scratch, verify};
use super::named::Named;
use super::up::{Summary, up};
use super::{Failure, Session, State};
use crate::execute::Recoveries;
use crate::model::check::{Check, Outcome};
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::facts::disbelief;
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
use crate::reconcile::Round;
use crate::reconcile::{Ask, Choices, Run};
use crate::snapshot::{Bundle, BundleError, Identities, check_room};
use crate::statedir::Entry;
use crate::transport::{Agent, Payload};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the endpoint is looked at until somebody serves there: images may have to be imported again.
const SERVED_WITHIN: Duration = Duration::from_secs(300);

/// How long the first API server has its host, or what hosts share, to itself before `up` starts the others. It takes a third of that where
/// nothing else runs.
const HEAD_START: Duration = Duration::from_secs(15);

/// What the person said on the command line.
#[derive(Debug, Clone, Default)]
pub struct Recovering {
    /// What to recover from: a host, data moved aside on one, a bundle's name on some host, or a bundle's file; `None`: the newest.
    pub from: Option<String>,
    /// Whether to go back though etcd may answer, to what the last recovery moved aside or to `from`.
    pub undo: bool,
    /// What opens a bundle; `None`: the identity in the state directory.
    pub identity: Option<PathBuf>,
    /// Hosts that do not answer and are known to be powered off.
    pub powered_off: Vec<String>,
    /// Whether bundles without a signature may be taken.
    pub accept_unsigned: bool,
    /// Whether to stop after the proposal.
    pub dry_run: bool,
}

/// How `recover` ended well.
#[derive(Debug)]
pub enum Recovered {
    /// Nothing was to be recovered: this is why.
    Nothing(Diagnosis),
    /// This would be done.
    Proposed(Box<Proposal>),
    /// etcd had reached its quota, and has room again.
    Room {
        /// How full its members were.
        before: Vec<Fullness>,
        /// How full they are.
        after: Vec<Fullness>,
    },
    /// Members that held other keys than the majority joined anew.
    Replaced {
        /// Whose keys were other ones.
        odd: Vec<HostName>,
        /// What `up` found at the end.
        summary: Box<Summary>,
    },
    /// Members only had to be started.
    Woken {
        /// What `up` found at the end.
        summary: Box<Summary>,
        /// Whether that finished a recovery that was cut off.
        finished: bool,
    },
    /// It was done.
    Done {
        /// What was done.
        proposal: Box<Proposal>,
        /// From the first step until a quorum answered.
        quorum: Duration,
        /// From the first step until somebody served at the endpoint; `None`: it did not in time.
        endpoint: Option<Duration>,
        /// What `up` found at the end; an error says what is left, such as hosts that do not answer.
        after: Result<Box<Summary>, Box<Failure>>,
    },
}

/// Brings etcd back.
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
    // Who is not heard now counts as dark.
    session.admit(Wait::ForAll).await?;
    session.anybody().await?;
    let state = Arc::new(session.state(false).await?);
    let vault = state.vault().ok_or_else(|| Failure::NoState { state: session.places.state.clone() })?;
    let held = if asked.dry_run { None } else { state.hold("recover")? };
    if !asked.dry_run {
        // What is fetched is sealed to it: before anything is stopped, there must be one.
        vault.identity()?;
    }
    let bundle = asked.from.as_deref().filter(|words| is_name(words));
    let authority = state.publics().founded;
    let (look, copies, away) = tokio::join!(
        Round::with(session, &*state, Wait::ForAll, QueryScope::Disks),
        super::copies::sources(session, authority, bundle),
        super::away::newest(session, authority, bundle)
    );
    let look = look?;
    for (host, doubt) in look.facts.doubts() {
        session.sink.emit(Event::Warning { text: disbelief(host, doubt) });
    }
    for text in state.close_impossible(asked.dry_run)? {
        session.sink.emit(Event::Warning { text });
    }
    let hosts =
        look.facts.hosts.iter().filter_map(|(host, facts)| Some((host, facts.as_ref().ok()?.bundles.as_ref()?)));
    let own =
        hosts.flat_map(|(host, found)| found.bundles.iter().map(move |one| (format!("{} on {host}", one.name), one)));
    super::authentic::tell(session, own);
    if !asked.dry_run {
        state.end_recovery(&look.facts)?;
    }
    let (from, file) = asked.source(session, &state).await?;
    if same_again(&look, &state, (asked.undo, from.as_ref()))? {
        drop(held);
        return finish(session, asked, choices, ask).await;
    }
    // A quorum that answers ends what was begun, and this run has just noted it or would have.
    let open = if look.facts.living().is_some() { None } else { state.past()?.open };
    // Before its snapshot was fetched no data was touched: then it is chosen anew, by what is there now.
    let recoveries = state.recovery_snapshots();
    let fetched = match &open {
        Some(recovery) => recoveries.taken(&recovery.id).map_err(io_error("read", recoveries.path()))?.is_some(),
        None => false,
    };
    let wish = RecoveryRequest {
        damaged: BTreeSet::new(),
        id: crate::statedir::random_hex(16)?,
        from,
        bundle: file.as_ref().map(|file| (file.bundle.claimed.manifest.host.clone(), file.fact.clone())),
        // What several places have comes from the first: a host is nearer than object storage.
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
            // Whose members were woken: the recovery's, or those of before.
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
            // While the alarm is on nobody can write, so that not all may be well with the API even though the member is replaced.
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
        // Data of then may hold Secrets that are encrypted with keys of then. Before anything is done, so that no failure comes between.
        state.again()?.rotate(Rotatable::Encryption, |_, contents, now| {
            pki::rotate::reread(contents, now);
            Ok(())
        })?;
        let text = "Secrets that come back may be encrypted with earlier keys, which API servers are given again: `hactl certs rotate encryption` writes them anew";
        session.sink.emit(Event::Warning { text: text.to_owned() });
    }
    let plan = look.recovery(&*state, recovery, proposal.begun || bundle.is_some(), &session.desired)?;
    let asked_of: Vec<_> =
        session.desired.with(Role::ControlPlane).filter_map(|h| session.machines.get(&h.name)).cloned().collect();
    let endpoint = look.queries.served();
    session.sink.emit(Event::Planned { plan: Box::new(plan.clone()) });
    // The cluster that answers afterwards has another id than the journal's.
    let mut look = look;
    look.queries.known.recovering = true;
    Run::new(state.clone()).run(session, look, &plan).await?;
    let quorum = begun.elapsed();
    let starts =
        |step: &Step| matches!(&step.action, Action::RunUnit { unit, .. } if *unit == crate::plan::kubelet_unit());
    let one_starts = plan.steps.iter().any(starts);
    tidied(session, None);
    drop(bundle);
    drop(held);
    drop(state);
    // What is left was agreed to with the rest.
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
        Err(failure @ Failure::Interrupted { .. }) => return Err(failure),
        // That etcd is back must not be lost in what is still left to do.
        Err(failure) => Err(Box::new(failure)),
    };
    fresh(session).await;
    Ok(Recovered::Done { proposal, quorum, endpoint, after })
}

/// What `up` found, and whether what was restored is good for those who had it before.
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

/// What was restored may be of a store that had reached its quota: then its alarm came with it, and nobody could write.
async fn roomy(session: &Session, choices: &Choices, ask: &dyn Ask) -> Result<(), Failure> {
    let full = super::room::alarmed(session).await;
    if full.is_empty() {
        return Ok(());
    }
    let text =
        "the store that was restored had reached its quota: room is made in it, or nobody could write".to_owned();
    session.sink.emit(Event::Warning { text });
    super::room::make_room(session, &full, choices, ask).await.map(drop)
}

/// The recovery that made the cluster which answers, and whether nothing was left to do behind it.
fn made_by(look: &Round, state: &State) -> Result<Option<(Recovery, bool)>, Failure> {
    let Some(living) = look.facts.living() else { return Ok(None) };
    let past = state.past()?;
    // In a dry run its end may not be in the journal yet.
    let open = past.open.filter(|recovery| living.revision >= recovery.base);
    Ok(open.map(|open| (open, false)).or(past.last))
}

/// Whether what is asked for was done already, and was cut off: nothing is restored twice, and an undo must not go back to where it came from.
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

/// Does what is left to do behind a recovery.
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

/// The end of a recovery that was cut off: as that of one that was not.
async fn finished_with(session: &Session, summary: Summary) -> Result<Recovered, Failure> {
    fresh(session).await;
    let summary = proven(session, summary).await?;
    Ok(Recovered::Woken { summary, finished: true })
}

/// What else hangs on etcd, which is what `up` is for; nothing lies open afterwards.
async fn rest(session: &mut Session, choices: &Choices, ask: &dyn Ask) -> Result<Box<Summary>, Failure> {
    let summary = Box::new(Box::pin(up(session, choices, ask)).await?);
    tidied(session, None);
    Ok(summary)
}

/// What else hangs on etcd, and how long after `begun` somebody served at the endpoint; `None`: it did not. Whoever serves while `up` still works
/// has served; afterwards nobody is waited for any more. The first API server, where one starts by itself, has a head start.
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
        let doing = "the first API server starts; the others follow".to_owned();
        session.sink.emit(Event::Phase { doing });
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

/// A bundle of what was recovered: what was taken before is of before, and the timers' turn may be a while off. Without it nothing is
/// lost, so that whoever interrupts does not wait for it.
async fn fresh(session: &Session) {
    let taken = tokio::select! {
        taken = Box::pin(super::snapshot::take(session, None, None)) => taken.map(drop),
        () = session.stop.cancelled() => return,
    };
    if let Err(failure) = taken {
        let text = format!(
            "no recovery bundle could be taken of what was recovered: {failure}; `hactl snapshot take` does it"
        );
        session.sink.emit(Event::Warning { text });
    }
}

/// Members whose keys are not those of the majority, each with its id, and how many agree. They are asked twice: nobody is taken out for
/// one answer.
async fn odd_ones(session: &Session, look: &Round, voters: usize) -> Result<(BTreeMap<HostName, u64>, usize), Failure> {
    let mut hash = look.hashes(session).await;
    if matches!(hash, HashCheck::Differs(_)) {
        hash = look.hashes(session).await;
    }
    if let HashCheck::Incomparable(why) | HashCheck::Unknown(why) = &hash {
        let text = format!("whether all members hold the same keys could not be found out: {why}");
        session.sink.emit(Event::Warning { text });
    }
    let HashCheck::Differs(all) = &hash else { return Ok((BTreeMap::new(), voters)) };
    let hashes = || all.iter().map(|(host, hash)| (host.clone(), *hash)).collect();
    let odd = hash.odd(voters).ok_or_else(|| Refusal::NobodyAgrees { hashes: hashes() })?;
    let agree = all.len() - odd.len();
    let member = |host: HostName| Some((host.clone(), look.facts.host(&host)?.etcd.as_ref()?.view.as_ref()?.member));
    Ok((odd.into_iter().filter_map(member).collect(), agree))
}

/// A bundle that was named by its file or its address, checked to its last byte.
struct Given {
    bundle: Bundle,
    fetched: Option<Fetched>,
    fact: BundleFact,
    identities: Identities,
}

/// Snapshots lie here, sealed, until a quorum has what is in them. What cannot be tidied is told and keeps nobody from recovering.
fn tidied(session: &Session, open: Option<&str>) {
    let recoveries = Recoveries::of(&session.places.state, &session.places.state.join(crate::statedir::IDENTITY));
    if let Err(error) = recoveries.forget(open) {
        let at = recoveries.path().display();
        let text = format!("a snapshot of etcd, sealed to the identity of this state, may be left in {at}: {error}");
        session.sink.emit(Event::Warning { text });
    }
}

impl Recovering {
    /// What was asked for, and the bundle where that is a file of this machine or has an address.
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
        // A person may have given the file another name.
        fact.authenticity = judged;
        Ok((Some(Origin::Bundle(name)), Some(Given { bundle, fetched, fact, identities })))
    }
}

/// A bundle, what opens it, and what was fetched for it.
type Opened = (Bundle, Identities, Option<Fetched>);

/// Shows what would be done, and opens the bundle that it goes back to before anybody agrees to anything. One that was chosen because it is
/// the newest and turns out to be damaged is told and left out, and the next best is shown.
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
        let text = format!("{damaged}: it is of no use, and the next best is looked for");
        session.sink.emit(Event::Warning { text });
        wish.damaged.insert((name, place));
        match look.diagnose(state, &wish, &session.desired)? {
            Diagnosis::Lost(next) => proposal = next,
            _ => return Err(Unusable::Bundle(damaged).into()),
        }
    }
}

/// The bundle that was chosen, fetched from where it was shown to lie and checked to its last byte.
async fn opened(
    session: &Session,
    look: &Round,
    wish: &RecoveryRequest,
    (name, place): (&str, Option<&str>),
    identity: Option<&Path>,
    state: &State,
) -> Result<Opened, Failure> {
    let (fetched, agreed) = match place {
        None => {
            let hosts =
                look.facts.hosts.iter().filter_map(|(host, f)| Some((host, f.as_ref().ok()?.bundles.as_ref()?)));
            let mut has = hosts.flat_map(|(host, b)| b.bundles.iter().map(move |bundle| (host, bundle)));
            let taken = |bundle: &BundleFact| bundle.authenticity.may_be_taken(wish.accept_unsigned);
            let found = has.find(|(_, bundle)| bundle.name == name && taken(bundle));
            let (host, bundle) = found.ok_or(Unusable::None)?;
            let fetched = Fetched::at(scratch(&session.places.state)?.join(name));
            fetch(session, host, bundle, fetched.path()).await?;
            (fetched, bundle)
        }
        Some(place) => {
            let taken = |bundle: &BundleFact| bundle.authenticity.may_be_taken(wish.accept_unsigned);
            let lies = |away: &&Away| away.place == place && away.bundle.name == name && taken(&away.bundle);
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
        // It is not the one that was shown.
        return Err(Unusable::Bundle(BundleError::NotWhole(PathBuf::from(name))).into());
    }
    Ok((bundle, identities, Some(fetched)))
}

/// Waits until somebody serves at the endpoint, asked from any of these hosts. Every API server was stopped before, so that whoever answers reads what
/// was restored.
async fn served(hosts: &[Arc<dyn Agent>], endpoint: &WaitCondition) -> bool {
    let within_ms = u64::try_from(SERVED_WITHIN.as_millis()).unwrap_or(u64::MAX);
    let ask = |host: &Arc<dyn Agent>| {
        let (host, condition) = (Arc::clone(host), endpoint.clone());
        Box::pin(async move {
            host.call(
                Op::Await { condition, within_ms },
                Payload::None,
                SERVED_WITHIN + Duration::from_secs(5),
                &|_| {},
            )
            .await
        })
    };
    match hosts {
        [] => false,
        some => futures::future::select_ok(some.iter().map(ask)).await.is_ok(),
    }
}

/// Agreement to a recovery: by the cluster's name, for nothing that hactl does takes more away. One that was begun was agreed to.
fn consent(session: &Session, proposal: &Proposal, choices: &Choices, ask: &dyn Ask) -> Result<(), Failure> {
    if choices.yes || proposal.begun {
        return Ok(());
    }
    let cluster = &session.desired.cluster;
    let from = &proposal.recovery.source;
    let lost = if matches!(proposal.loss, Loss::Undone { .. }) { ", and what it took since is lost" } else { "" };
    Ok(ask.name(cluster, &format!("the whole etcd of {cluster}: it is restored from {from}{lost}"))?)
}
