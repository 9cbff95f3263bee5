//! Snapshots on this machine: finds them on hosts, fetches, verifies and opens them.
//!
//! In: a session, or a file and an identity. Out: a snapshot with every byte verified, or why it cannot be used.

use super::{Failure, Session, State, authentic};
use crate::model::authentic::Authenticity;
use crate::model::desired::Host;
use crate::model::facts::{HostFacts, disbelief};
use crate::model::names::{ClusterName, HostName};
use crate::model::secret::Secret;
use crate::model::snapshot::{BundleFact, BundlesFact, Manifest, is_name};
use crate::protocol::{ObserveAsk, Op, Reply};
use crate::snapshot::{Bundle, BundleError, Identities, LARGEST_BUNDLE, Trust, check_room};
use crate::statedir::{Carried, uncarry};
use crate::transport::{Agent, Payload, PiecesError, receive};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a host for its list of snapshots, and for a piece of one.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A file of this machine.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// It is not what it claims to be.
    #[error("{} is forged: {why}", .path.display())]
    Forged {
        /// The snapshot.
        path: PathBuf,
        /// The evidence.
        why: String,
    },
    /// It is not signed, and unsigned snapshots were not accepted.
    #[error("{} is not signed: an earlier hactl made it, or its signature was removed", .0.display())]
    Unsigned(PathBuf),
    /// It is no snapshot, or damaged, or encrypted to other recipients.
    #[error(transparent)]
    Bundle(#[from] crate::snapshot::BundleError),
    /// No key to decrypt it with.
    #[error("{} cannot be used as an identity: {why}", .path.display())]
    Identity {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is neither a state directory with an identity nor one given.
    #[error("there is no identity to decrypt {} with", .0.display())]
    NoIdentity(PathBuf),
    /// Its encrypted content is no valid state.
    #[error("{}: {why}", .path.display())]
    State {
        /// The snapshot.
        path: PathBuf,
        /// Why.
        why: crate::statedir::NotCarried,
    },
    /// It is of another cluster.
    #[error("{} is from cluster {theirs} (CA {authority}), not from this one", .path.display())]
    OtherCluster {
        /// The snapshot.
        path: PathBuf,
        /// Its cluster.
        theirs: ClusterName,
        /// Fingerprint of its CA, short.
        authority: String,
    },
    /// Object storage failed.
    #[error(transparent)]
    Bucket(#[from] crate::snapshot::BucketError),
    /// An address in object storage, and no key for it.
    #[error("cannot access {0}: the inventory has no settings for object storage")]
    NoStorage(crate::model::bucket::BucketUrl),
    /// More than one cluster of this name has snapshots there.
    #[error("several clusters of this name have snapshots: {}", .0.join(", "))]
    Several(Vec<String>),
    /// A copy in a directory of a host.
    #[error("cannot fetch {at}: {why}")]
    NoCopy {
        /// Its address.
        at: String,
        /// Why.
        why: String,
    },
    /// No address of a snapshot.
    #[error("{0:?} is not the address of a snapshot: s3://BUCKET/PREFIX/NAME.hactl")]
    NoUrl(String),
    /// A host claims an impossible size.
    #[error("{host} reports a snapshot of {bytes} bytes, but none has more than {LARGEST_BUNDLE}")]
    TooLarge {
        /// Which host.
        host: HostName,
        /// The size that it claims.
        bytes: u64,
    },
    /// A host sends too slowly.
    #[error("{host} has sent {from} of {bytes} bytes within {} min", .within.as_secs() / 60)]
    TooSlow {
        /// Which host.
        host: HostName,
        /// Bytes received.
        from: u64,
        /// Bytes in all.
        bytes: u64,
        /// Its timeout.
        within: Duration,
    },
    /// No host has one.
    #[error("no etcd host that answers has a snapshot")]
    None,
}

pub(super) fn io_error(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Unusable {
    let path = path.to_owned();
    move |source| Unusable::Io { doing, path: path.clone(), source }
}

/// The snapshots of every etcd host that answers.
pub type Listed = BTreeMap<HostName, BundlesFact>;

/// The facts of the connected hosts; from etcd hosts also those of their members and snapshots. Needs no state.
pub(super) async fn asked(
    session: &Session,
    which: impl Fn(&Host) -> bool,
) -> BTreeMap<HostName, Result<HostFacts, Failure>> {
    let ask = |host: &Host, machine: Arc<dyn Agent>| {
        let (name, etcd) = (host.name.clone(), crate::render::etcd_ask(&session.desired, host));
        async move {
            let ask = ObserveAsk { etcd, ..ObserveAsk::default() };
            let facts = match machine.call(Op::Observe(Box::new(ask)), Payload::None, ANSWER, &|_| {}).await {
                Ok(Reply::Facts(facts)) => {
                    for doubt in &facts.doubts {
                        session.sink.warn(disbelief(&name, doubt));
                    }
                    Ok(*facts)
                }
                Ok(_) => Err(Failure::Odd(name.clone())),
                Err(error) => Err(Failure::of_host(&name, error)),
            };
            (name, facts)
        }
    };
    let hosts = session.desired.hosts.iter().filter(|host| which(host));
    let asked = hosts.filter_map(|host| Some(ask(host, Arc::clone(session.machines.get(&host.name)?))));
    futures::future::join_all(asked).await.into_iter().collect()
}

/// The snapshots on all etcd hosts that answer; warns of the others.
///
/// # Errors
/// No etcd host answers.
pub async fn list(session: &Session) -> Result<Listed, Failure> {
    let (mut listed, mut last) = (Listed::new(), None);
    let trust = authentic::trust(session).await;
    for (host, answer) in asked(session, Host::may_vote).await {
        match answer {
            Ok(facts) => {
                let mut found = facts.bundles.unwrap_or_default();
                if let Some(trust) = &trust {
                    authentic::own(trust, &host, &mut found);
                }
                listed.insert(host, found);
            }
            Err(failure) => {
                session.sink.warn(format!("its snapshots are unknown: {failure}"));
                last = Some(failure);
            }
        }
    }
    match last {
        Some(failure) if listed.is_empty() => Err(failure),
        _ => Ok(listed),
    }
}

pub(super) fn machine(session: &Session, host: &HostName) -> Result<Arc<dyn Agent>, Failure> {
    session.machines.get(host).cloned().ok_or_else(|| {
        let why = session.unreachable.get(host).map(|unreachable| unreachable.why.clone());
        let why = why.unwrap_or_else(|| "it is no host of the inventory".to_owned());
        Failure::NotConnected { host: host.clone(), why }
    })
}

/// Fetches a complete snapshot from a host and verifies every byte; leaves nothing behind on failure.
///
/// # Errors
/// See [`Failure`].
pub async fn fetch(session: &Session, host: &HostName, bundle: &BundleFact, to: &Path) -> Result<Bundle, Failure> {
    // The name comes from a host and becomes a file name here.
    if !is_name(&bundle.name) {
        return Err(Failure::Odd(host.clone()));
    }
    session.sink.phase(format!("fetching {} from {host}", bundle.name));
    let fresh = PathBuf::from(format!("{}.new", to.display()));
    let piece = |from| Op::ReadBundle { name: bundle.name.clone(), from };
    if let Err(failure) = received(session, host, bundle.bytes, &fresh, piece).await {
        // A partial file is useless and may be large.
        return match fs::remove_file(&fresh) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", &fresh)(error).into()),
            _ => Err(failure),
        };
    }
    fs::rename(&fresh, to).map_err(io_error("put in place", to))?;
    Ok(Bundle::open(to).map_err(Unusable::Bundle)?)
}

/// Writes the pieces that a host sends into a file, never more than announced, and verifies every byte.
pub(super) async fn received(
    session: &Session,
    host: &HostName,
    bytes: u64,
    to: &Path,
    piece: impl Fn(u64) -> Op,
) -> Result<(), Failure> {
    if bytes > LARGEST_BUNDLE {
        return Err(Unusable::TooLarge { host: host.clone(), bytes }.into());
    }
    let machine = machine(session, host)?;
    check_room(to, bytes).map_err(io_error("write", to))?;
    let mut file = private(to)?;
    let got = receive(&*machine, bytes, &mut file, piece).await;
    got.map_err(|error| match error {
        PiecesError::Host(error) => Failure::of_host(host, error),
        PiecesError::Odd => Failure::Odd(host.clone()),
        PiecesError::TooSlow { from, bytes, within } => {
            Unusable::TooSlow { host: host.clone(), from, bytes, within }.into()
        }
        PiecesError::Write(error) => io_error("write", to)(error).into(),
    })?;
    file.sync_all().map_err(io_error("write", to))?;
    Ok(Bundle::open(to).and_then(|bundle| bundle.check()).map_err(Unusable::Bundle)?)
}

pub(super) fn private(at: &Path) -> Result<File, Unusable> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(at).map_err(io_error("create", at))
}

/// The identity that decrypts snapshots: the given file, or the one in the state directory.
///
/// # Errors
/// Neither exists, or the file contains no key.
pub fn identities(given: Option<&Path>, state: &Path, bundle: &Path) -> Result<Identities, Unusable> {
    let own = state.join(crate::statedir::IDENTITY);
    let path = match given {
        Some(path) => path,
        None if own.exists() => &own,
        None => return Err(Unusable::NoIdentity(bundle.to_owned())),
    };
    let text = Secret::new(fs::read_to_string(path).map_err(io_error("read", path))?);
    Identities::parse(&text).map_err(|bad| Unusable::Identity { path: path.to_owned(), why: bad.to_string() })
}

/// Verifies a snapshot: its signature, every byte, that both parts decrypt, and that it contains valid keys. Without a
/// known CA, the signature is checked with the CA in the snapshot, which only proves that its parts belong together.
///
/// # Errors
/// What is wrong with it.
pub(super) fn verify(
    path: &Path,
    identities: &Identities,
    trust: Option<&Trust>,
    accept_unsigned: bool,
) -> Result<(Bundle, Carried, Authenticity), Unusable> {
    let bundle = Bundle::open(path)?;
    let judged = trust.map(|trust| authentic::admitted(trust, &bundle, accept_unsigned)).transpose()?;
    bundle.check()?;
    bundle.snapshot(identities, std::io::sink())?;
    let carried = uncarry(&bundle.state(identities)?);
    let carried = carried.map_err(|why| Unusable::State { path: path.to_owned(), why })?;
    if carried.contents.rotations.founded != bundle.claimed.manifest.authority {
        // The encrypted state and the manifest must be from the same cluster.
        return Err(BundleError::Damaged { path: path.to_owned(), what: "the CA that it names" }.into());
    }
    let judged = match judged {
        Some(judged) => judged,
        None => authentic::admitted(&carried.contents.snapshot_trust(), &bundle, accept_unsigned)?,
    };
    Ok((bundle, carried, judged))
}

/// Refuses a snapshot of another cluster. Clusters may have the same name, but not the same CA.
pub(super) fn ours(path: &Path, manifest: &Manifest, state: &State) -> Result<(), Unusable> {
    if manifest.authority == state.publics().founded {
        return Ok(());
    }
    let (path, theirs) = (path.to_owned(), manifest.cluster.clone());
    Err(Unusable::OtherCluster { path, theirs, authority: manifest.authority.short() })
}

/// The newest snapshot of all hosts, or of one; signed ones come first.
///
/// # Errors
/// There is none.
pub fn newest<'a>(listed: &'a Listed, on: Option<&HostName>) -> Result<(&'a HostName, &'a BundleFact), Unusable> {
    let all = listed.iter().filter(|(host, _)| on.is_none_or(|on| on == *host));
    let all = all.flat_map(|(host, fact)| fact.bundles.iter().map(move |bundle| (host, bundle)));
    all.max_by_key(|(_, bundle)| authentic::worth(bundle)).ok_or(Unusable::None)
}

/// A directory in the state directory for temporary files.
pub(super) fn scratch(state: &Path) -> Result<PathBuf, Unusable> {
    let at = state.join("recovery");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&at).map_err(io_error("create", &at))?;
    Ok(at)
}
