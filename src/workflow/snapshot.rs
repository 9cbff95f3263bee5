//! `hactl snapshot`: take, list, verify, prune.
//!
//! Snapshots are stored on the etcd hosts; a timer on each host takes them without this code. In: a session, or a file
//! and an identity. Out: a snapshot, a list, or the result of a verification.

use super::away::{Fetched, local};
use super::bundles::{Listed, asked, fetch, identities, list, machine, newest, ours, scratch, verify};
use super::named::Named;
use super::{Failure, Session, Unusable, authentic, copies};
use crate::model::authentic::Authenticity;
use crate::model::desired::Role;
use crate::model::names::HostName;
use crate::model::snapshot::{BundleFact, Manifest, Proof};
use crate::protocol::{Op, Reply, SnapshotUse};
use crate::reconcile::Failure as Stop;
use crate::snapshot::{Bundle, BundleError, Identities};
use crate::transport::{HostError, Payload, Progress};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of taking one, including the test restore: seconds per GB.
const TAKE: Duration = Duration::from_secs(1800);
/// Timeout of pruning: longer than a host waits for an unreachable share.
const PRUNED: Duration = Duration::from_secs(90);

/// A snapshot that was taken.
#[derive(Debug)]
pub struct Taken {
    /// Its host.
    pub host: HostName,
    /// Its metadata.
    pub bundle: BundleFact,
    /// The path to which it was fetched.
    pub fetched: Option<PathBuf>,
}

/// Takes a snapshot on the named host, or on one whose member is a follower. Fetches it to `to`, if given.
///
/// # Errors
/// See [`Failure`].
pub async fn take(session: &Session, on: Option<&HostName>, to: Option<&Path>) -> Result<Taken, Failure> {
    let host = match on {
        Some(host) => host.clone(),
        None => follower(session).await?,
    };
    let machine = machine(session, &host)?;
    session.sink.phase(format!("taking a snapshot on {host}"));
    let watch = |progress: Progress| {
        if let Progress::Waiting(on) = progress {
            session.sink.phase(format!("{host} waits for {on}"));
        }
    };
    let reply = machine.call(Op::SaveBundle, Payload::None, TAKE, &watch).await;
    let reply = reply.map_err(|error| not_done(&host, "take a snapshot", &error))?;
    let Reply::Saved(mut bundle) = reply else { return Err(Failure::Odd(host)) };
    if let Some(trust) = authentic::trust(session).await {
        trust.judge_fact(&mut bundle, Some(&host));
    }
    let fetched = to.map(|to| if to.is_dir() { to.join(&bundle.name) } else { to.to_owned() });
    if let Some(to) = &fetched {
        fetch(session, &host, &bundle, to).await?;
    }
    Ok(Taken { host, bundle, fetched })
}

fn not_done(host: &HostName, what: &str, error: &HostError) -> Failure {
    let (host, what, why) = (Some(host.clone()), what.to_owned(), error.to_string());
    Failure::Engine(Stop::Steps { failed: 1, done: 0, host, what, why, rolled_back: false })
}

/// An etcd host that answers, preferably one whose member is not the leader.
async fn follower(session: &Session) -> Result<HostName, Failure> {
    let mut second = None;
    for (host, answer) in asked(session, |host| host.is(Role::Etcd)).await {
        match answer.ok().and_then(|facts| facts.etcd?.view).filter(|view| !view.learner) {
            Some(view) if !view.leads() => return Ok(host),
            Some(_) => second = Some(host),
            None => {}
        }
    }
    second.ok_or(Failure::NoMember)
}

/// The result of verifying a snapshot.
#[derive(Debug)]
pub struct Verified {
    /// Its path.
    pub path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its signer.
    pub signed: Authenticity,
    /// Whether the CA is that of a state; otherwise it is the one in the snapshot itself.
    pub known: bool,
    /// The host and result of the test restore, if one was requested.
    pub restored: Option<(HostName, Proof)>,
}

/// How a snapshot is verified.
#[derive(Debug, Clone, Copy)]
pub struct Verifying<'a> {
    /// The identity that decrypts it; `None`: the one in the state directory.
    pub identity: Option<&'a Path>,
    /// Whether it is also restored.
    pub deep: bool,
    /// Whether an unsigned one is accepted.
    pub accept_unsigned: bool,
}

/// Verifies the newest snapshot of the hosts, or of one.
///
/// # Errors
/// See [`Failure`].
pub async fn verify_newest(
    session: &mut Session,
    on: Option<&HostName>,
    how: Verifying<'_>,
) -> Result<Verified, Failure> {
    let named = on.cloned().map(Named::Host);
    let fetched = there(session, named.as_ref()).await?;
    verify_file(session, fetched.path(), how).await
}

/// How thoroughly a snapshot is verified.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VerifyScope {
    /// Every byte is verified here.
    Bytes,
    /// It is also restored on a host, which changes nothing there.
    Restored,
    /// The host also records that as a drill.
    Drilled,
}

/// Fetches the snapshot named by its own or its host's name, or the newest: a host's own, or a copy that is newer or
/// the only one.
async fn there(session: &Session, named: Option<&Named>) -> Result<Fetched, Failure> {
    let listed = list(session).await?;
    let own = chosen(&listed, named);
    let name = named.and_then(Named::name);
    let worth = own.as_ref().ok().map(|(_, bundle)| authentic::worth(bundle));
    let copy = if named.is_none() || (name.is_some() && own.is_err()) {
        let found = copies::find(session, copies::authority(session).await, name, false).await;
        copies::tell(session, &found);
        match name {
            Some(name) => copies::named(&found, name),
            None => copies::newest(&found).filter(|(_, copy)| Some(authentic::worth(copy)) > worth).map(|(at, _)| at),
        }
    } else {
        None
    };
    match (own, copy) {
        (_, Some(at)) => copies::fetch(session, &at).await,
        (Ok((host, bundle)), None) => {
            let fetched = Fetched::at(scratch(&session.places.state)?.join(&bundle.name));
            fetch(session, host, bundle, fetched.path()).await?;
            Ok(fetched)
        }
        (Err(none), None) => Err(none.into()),
    }
}

/// Verifies a snapshot in a file, or by its address in object storage or in a directory of a host; `deep` also restores
/// it on a host, beside the running member.
///
/// # Errors
/// See [`Failure`].
pub async fn verify_file(session: &mut Session, path: &Path, how: Verifying<'_>) -> Result<Verified, Failure> {
    verified(session, path, how, if how.deep { VerifyScope::Restored } else { VerifyScope::Bytes }).await
}

async fn verified(
    session: &mut Session,
    path: &Path,
    how: Verifying<'_>,
    depth: VerifyScope,
) -> Result<Verified, Failure> {
    let (path, _fetched) = local(session, path).await?;
    let identities = Arc::new(identities(how.identity, &session.places.state, &path)?);
    let trust = authentic::trust(session).await;
    let (bundle, _, signed) = verify(&path, &identities, trust.as_ref(), how.accept_unsigned)?;
    let restored = match depth {
        VerifyScope::Bytes => None,
        VerifyScope::Restored | VerifyScope::Drilled => Some(rehearse(session, &bundle, &identities, depth).await?),
    };
    Ok(Verified { path, manifest: bundle.claimed.manifest, signed, known: trust.is_some(), restored })
}

/// The result of a drill.
#[derive(Debug)]
pub struct Drilled {
    /// The snapshot.
    pub manifest: Manifest,
    /// The host on which it was restored.
    pub host: HostName,
    /// The result of the restore.
    pub proof: Proof,
    /// Time from the first query until the restored etcd answered, with all bytes and keys verified.
    pub took: Duration,
}

/// Rehearses a recovery without touching anything live: finds a snapshot, fetches it, decrypts it with the identity,
/// compares its keys with this cluster's, sends it to a host whose member runs, and restores it there on separate
/// sockets and in a separate directory. The host records it for `status`.
///
/// # Errors
/// The problem that would have prevented a real recovery; no member runs.
pub async fn drill(
    session: &mut Session,
    from: Option<&str>,
    identity: Option<&Path>,
    accept_unsigned: bool,
) -> Result<Drilled, Failure> {
    let how = Verifying { identity, deep: true, accept_unsigned };
    let begun = Instant::now();
    let state = session.state(false).await?;
    state.state_dir().ok_or_else(|| session.places.no_state())?;
    let fetched;
    let path = match from.map(Named::parse).transpose()? {
        Some(Named::Url(url)) => PathBuf::from(url),
        Some(Named::File(file)) => file,
        Some(Named::Copy(at)) => PathBuf::from(at.to_string()),
        named => {
            fetched = there(session, named.as_ref()).await?;
            fetched.path().to_owned()
        }
    };
    let verified = verified(session, &path, how, VerifyScope::Drilled).await?;
    let (host, proof) = verified.restored.ok_or(Failure::NoMember)?;
    Ok(Drilled { manifest: verified.manifest, host, proof, took: begun.elapsed() })
}

/// The snapshot named by its own or its host's name, or the newest.
fn chosen<'a>(listed: &'a Listed, named: Option<&Named>) -> Result<(&'a HostName, &'a BundleFact), Unusable> {
    let other = |what: &dyn std::fmt::Display| Unusable::Bundle(BundleError::Other(PathBuf::from(what.to_string())));
    match named {
        None => newest(listed, None),
        Some(Named::Host(host)) => newest(listed, Some(host)),
        Some(Named::Bundle(name)) => {
            let mut all = listed.iter().flat_map(|(host, fact)| fact.bundles.iter().map(move |bundle| (host, bundle)));
            all.find(|(_, bundle)| &bundle.name == name).ok_or(Unusable::None)
        }
        Some(Named::File(path)) => Err(other(&path.display())),
        Some(Named::Url(url)) => Err(other(url)),
        Some(Named::Copy(at)) => Err(other(at)),
        Some(Named::Aside(_, name)) => Err(other(name)),
    }
}

/// Restores a snapshot on a host, on separate sockets and in a separate directory.
async fn rehearse(
    session: &mut Session,
    bundle: &Bundle,
    identities: &Arc<Identities>,
    depth: VerifyScope,
) -> Result<(HostName, Proof), Failure> {
    // The result is reported for this cluster, so the snapshot must be from it; without a state this is unknown.
    if let Ok(state) = session.state(false).await
        && state.state_dir().is_some()
    {
        ours(bundle.path(), &bundle.claimed.manifest, &state)?;
    }
    session.lock("snapshot verify").await?;
    let host = follower(session).await?;
    let machine = machine(session, &host)?;
    session.sink.phase(format!("restoring it on {host} as a test"));
    let (snapshot, taken) = (bundle.claimed.manifest.snapshot, bundle.claimed.manifest.proof);
    let deliver = Op::DeliverSnapshot { snapshot, to: SnapshotUse::Check };
    // It was verified before; now it is decrypted while it is sent, so it is never stored in plain text here.
    let payload = Payload::Sealed(bundle.payload(Arc::clone(identities)));
    let failed = |error| not_done(&host, "restore the snapshot as a test", &error);
    machine.call(deliver, payload, TAKE, &|_| {}).await.map_err(failed)?;
    let drill = (depth == VerifyScope::Drilled).then_some(taken);
    match machine.call(Op::Rehearse { snapshot, drill }, Payload::None, TAKE, &|_| {}).await.map_err(failed)? {
        Reply::Proved(proof) if proof.is_of(&taken) => Ok((host, proof)),
        Reply::Proved(_) => {
            let path = bundle.path().to_owned();
            Err(Unusable::Bundle(BundleError::Damaged { path, what: "the restored data" }).into())
        }
        _ => Err(Failure::Odd(host.clone())),
    }
}

/// Deletes expired snapshots on every etcd host that answers.
///
/// # Errors
/// See [`Failure`].
pub async fn prune(session: &Session) -> Result<BTreeMap<HostName, Vec<String>>, Failure> {
    let (mut removed, mut first) = (BTreeMap::new(), None);
    for host in session.desired.may_vote() {
        let Some(machine) = session.machines.get(&host.name) else { continue };
        let failure = match machine.call(Op::PruneBundles, Payload::None, PRUNED, &|_| {}).await {
            Ok(Reply::Lines(names)) => {
                removed.insert(host.name.clone(), names);
                continue;
            }
            Ok(_) => Failure::Odd(host.name.clone()),
            Err(error) => Failure::of_host(&host.name, error),
        };
        // A failure on one host does not affect the others.
        session.sink.warn(failure.to_string());
        first.get_or_insert(failure);
    }
    first.map_or(Ok(removed), Err)
}
