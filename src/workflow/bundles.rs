//! Recovery bundles on this machine: found on hosts, fetched, opened, and the administrator's state rebuilt from one.
//!
//! In: a session, or a file and an identity. Out: a bundle of which every byte was checked, or why it cannot be used.

use super::away::{Fetched, local};
use super::{Failure, Session, State};
use crate::host::op::{ObserveAsk, Op, Reply};
use crate::host::{Feed, Machine};
use crate::model::bucket::{SCHEME, folder};
use crate::model::copies::{CopiesListed, CopyAddress, shared};
use crate::model::desired::{Host, Role};
use crate::model::event::Event;
use crate::model::facts::HostFacts;
use crate::model::names::{ClusterName, HostName};
use crate::model::secret::Secret;
use crate::model::snapshot::{BundleFact, BundlesFact, Manifest, by_name, is_name};
use crate::snapshot::{Bundle, BundleError, Identities, LARGEST_STATE, Stored};
use crate::vault::{Carried, uncarry};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a host may take to say what it has, or to send a piece.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// So many bundles are fetched until one turns out to be whole.
const TRIES: usize = 5;

/// Where hosts keep the state, sealed.
const SEALED: &str = "/var/lib/hactl/state.age";

/// Why a bundle cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A file of this machine.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is none, or damaged, or sealed to others.
    #[error(transparent)]
    Bundle(#[from] crate::snapshot::BundleError),
    /// No key to open it with.
    #[error("{} cannot be used as an identity: {why}", .path.display())]
    Identity {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is neither a state directory with an identity nor one given.
    #[error("there is no identity to open {} with", .0.display())]
    NoIdentity(PathBuf),
    /// What is sealed in it makes no state.
    #[error("{}: {why}", .path.display())]
    State {
        /// Which bundle.
        path: PathBuf,
        /// Why.
        why: crate::vault::NotCarried,
    },
    /// It is of another cluster.
    #[error("{} is of cluster {theirs} (authority {authority}), not of this one", .path.display())]
    OtherCluster {
        /// Which bundle.
        path: PathBuf,
        /// Whose.
        theirs: ClusterName,
        /// Fingerprint of its authority, short.
        authority: String,
    },
    /// Object storage said no.
    #[error(transparent)]
    Bucket(#[from] crate::snapshot::BucketError),
    /// An address in object storage, and no key for it.
    #[error("the inventory names no object storage, so nobody knows how {0} is reached")]
    NoStorage(crate::model::bucket::BucketUrl),
    /// More than one cluster of this name has bundles there.
    #[error("clusters of this name have bundles in several places: {}", .0.join(", "))]
    Several(Vec<String>),
    /// A copy in a directory of a host.
    #[error("{at} cannot be had: {why}")]
    NoCopy {
        /// Its address.
        at: String,
        /// Why.
        why: String,
    },
    /// No address of a bundle.
    #[error("{0:?} is no bundle's address: s3://BUCKET/PREFIX/NAME.hactl")]
    NoUrl(String),
    /// No host has one.
    #[error("no etcd host that answers has a recovery bundle")]
    None,
}

pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Unusable {
    let path = path.to_owned();
    move |source| Unusable::Io { doing, path, source }
}

/// What every etcd host that answers has.
pub type Listed = BTreeMap<HostName, BundlesFact>;

/// What such hosts as are connected say of themselves, and etcd hosts of their member and their bundles. Needs no state.
pub(super) async fn asked(
    session: &Session,
    which: impl Fn(&Host) -> bool,
) -> BTreeMap<HostName, Result<HostFacts, Failure>> {
    let ask = |host: &Host, machine: Arc<Machine>| {
        let (name, etcd) = (host.name.clone(), crate::render::etcd_ask(&session.desired, host));
        async move {
            let ask = ObserveAsk { etcd, ..ObserveAsk::default() };
            let facts = match machine.call(Op::Observe(Box::new(ask)), Feed::None, ANSWER, &|_| {}).await {
                Ok(Reply::Facts(facts)) => Ok(*facts),
                Ok(_) => Err(Failure::Odd(name.clone())),
                Err(error) => Err(Failure::Host { host: name.clone(), error: Box::new(error) }),
            };
            (name, facts)
        }
    };
    let hosts = session.desired.hosts.iter().filter(|host| which(host));
    let asked = hosts.filter_map(|host| Some(ask(host, Arc::clone(session.machines.get(&host.name)?))));
    futures::future::join_all(asked).await.into_iter().collect()
}

/// Bundles on all etcd hosts that answer; of the others it is said why not.
///
/// # Errors
/// No etcd host answers.
pub async fn list(session: &Session) -> Result<Listed, Failure> {
    let (mut listed, mut last) = (Listed::new(), None);
    for (host, answer) in asked(session, |host| host.is(Role::Etcd)).await {
        match answer {
            Ok(facts) => drop(listed.insert(host, facts.bundles.unwrap_or_default())),
            Err(failure) => {
                session.sink.emit(Event::Warning { text: format!("nothing is known of its bundles: {failure}") });
                last = Some(failure);
            }
        }
    }
    match last {
        Some(failure) if listed.is_empty() => Err(failure),
        _ => Ok(listed),
    }
}

pub(super) fn machine(session: &Session, host: &HostName) -> Result<Arc<Machine>, Failure> {
    let missing = || Failure::NotConnected {
        host: host.clone(),
        why: session.silent.get(host).map_or_else(|| "it is no host of the inventory".to_owned(), |s| s.why.clone()),
    };
    session.machines.get(host).cloned().ok_or_else(missing)
}

/// Fetches a bundle of a host, whole or not at all, and checks every byte of it.
///
/// # Errors
/// See [`Failure`].
pub async fn fetch(session: &Session, host: &HostName, bundle: &BundleFact, to: &Path) -> Result<Bundle, Failure> {
    // It names a file here, and it comes from a host.
    if !is_name(&bundle.name) {
        return Err(Failure::Odd(host.clone()));
    }
    session.sink.emit(Event::Phase { doing: format!("fetching {} from {host}", bundle.name) });
    let fresh = PathBuf::from(format!("{}.new", to.display()));
    let fetched = fetched(session, host, bundle, &fresh).await;
    if fetched.is_err() {
        // Half of one is of no use, and may be large.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &fresh)(error).into());
            }
            _ => {}
        }
    }
    fetched?;
    fs::rename(&fresh, to).map_err(io_error("put in place", to))?;
    Ok(Bundle::open(to).map_err(Unusable::Bundle)?)
}

async fn fetched(session: &Session, host: &HostName, bundle: &BundleFact, fresh: &Path) -> Result<(), Failure> {
    let piece = |from| Op::ReadBundle { name: bundle.name.clone(), from };
    received(session, host, bundle.bytes, fresh, piece).await
}

/// Writes what a host sends piece by piece into a file, no more of it than was announced, and checks every byte.
pub(super) async fn received(
    session: &Session,
    host: &HostName,
    bytes: u64,
    to: &Path,
    piece: impl Fn(u64) -> Op,
) -> Result<(), Failure> {
    let machine = machine(session, host)?;
    let mut file = private(to)?;
    let mut from = 0;
    loop {
        let text = match machine.call(piece(from), Feed::None, ANSWER, &|_| {}).await {
            Ok(Reply::Bytes(text)) => text,
            Ok(_) => return Err(Failure::Odd(host.clone())),
            Err(error) => return Err(Failure::Host { host: host.clone(), error: Box::new(error) }),
        };
        let piece = STANDARD.decode(text).map_err(|_| Failure::Odd(host.clone()))?;
        from += piece.len() as u64;
        if piece.is_empty() || from > bytes {
            break;
        }
        file.write_all(&piece).map_err(io_error("write", to))?;
    }
    file.sync_all().map_err(io_error("write", to))?;
    Ok(Bundle::open(to).and_then(|bundle| bundle.check()).map_err(Unusable::Bundle)?)
}

pub(super) fn private(at: &Path) -> Result<File, Unusable> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(at).map_err(io_error("create", at))
}

/// The identity to open bundles with: the file that was given, or the one in the state directory.
///
/// # Errors
/// None of both, or a file without a key.
pub fn identities(given: Option<&Path>, state: &Path, bundle: &Path) -> Result<Identities, Unusable> {
    let own = state.join(crate::vault::IDENTITY);
    let path = match given {
        Some(path) => path,
        None if own.exists() => &own,
        None => return Err(Unusable::NoIdentity(bundle.to_owned())),
    };
    let text = Secret::new(fs::read_to_string(path).map_err(io_error("read", path))?);
    Identities::parse(&text).map_err(|bad| Unusable::Identity { path: path.to_owned(), why: bad.to_string() })
}

/// Checks a bundle with nothing but an identity: every byte, that both pieces open, and that the keys in it are keys.
///
/// # Errors
/// What is wrong with it.
pub fn verify(path: &Path, identities: &Identities) -> Result<(Bundle, Carried), Unusable> {
    let bundle = Bundle::open(path)?;
    bundle.check()?;
    bundle.snapshot(identities, std::io::sink())?;
    let carried = uncarry(&bundle.state(identities)?);
    let carried = carried.map_err(|why| Unusable::State { path: path.to_owned(), why })?;
    if carried.contents.turning.founded != bundle.manifest.authority {
        // What is sealed in it and what it says of itself were made in one go.
        return Err(BundleError::Damaged { path: path.to_owned(), what: "the authority that it names" }.into());
    }
    Ok((bundle, carried))
}

/// Clusters may have the same name; their authorities differ.
pub(super) fn ours(path: &Path, manifest: &Manifest, state: &State) -> Result<(), Unusable> {
    if manifest.authority == state.publics().founded {
        return Ok(());
    }
    let (path, theirs) = (path.to_owned(), manifest.cluster.clone());
    Err(Unusable::OtherCluster { path, theirs, authority: manifest.authority.short() })
}

/// The newest bundle of all hosts, or of one.
///
/// # Errors
/// There is none.
pub fn newest<'a>(listed: &'a Listed, on: Option<&HostName>) -> Result<(&'a HostName, &'a BundleFact), Unusable> {
    let all = listed.iter().filter(|(host, _)| on.is_none_or(|on| on == *host));
    let all = all.flat_map(|(host, fact)| fact.bundles.iter().map(move |bundle| (host, bundle)));
    all.max_by_key(|(_, bundle)| bundle.taken_ms).ok_or(Unusable::None)
}

/// A folder of the state directory for what is only needed for a moment.
pub(super) fn scratch(state: &Path) -> Result<PathBuf, Unusable> {
    let at = state.join("recovery");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&at).map_err(io_error("create", &at))?;
    Ok(at)
}

/// Bundles of several clusters of one name are told apart by a person: their keys would be taken for this cluster's, and which of them it
/// is, the cluster's name does not say. Their folders in object storage do, and what copies in directories say of their authority.
fn one_cluster(stored: &[Stored], copies: &CopiesListed, cluster: &ClusterName) -> Result<(), Unusable> {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in stored {
        places.entry(one.place.folder().to_owned()).or_default().insert(one.place.to_string());
    }
    for one in shared(copies) {
        let of = places.entry(folder(cluster, one.copy.bundle.authority)).or_default();
        // The newest stands for all.
        if !of.iter().any(|place| !place.starts_with(SCHEME)) {
            of.insert(one.address().to_string());
        }
    }
    if places.len() > 1 { Err(Unusable::Several(places.into_values().flatten().collect())) } else { Ok(()) }
}

/// Where a bundle lies, the nearest first.
enum Lies<'a> {
    OnHost(&'a HostName, &'a BundleFact),
    InDirectory(CopyAddress),
    Stored(&'a Stored),
}

/// All bundles, the newest first by the times that they name; of equally new ones what is nearest comes first.
fn newest_first<'a>(listed: &'a Listed, copies: &CopiesListed, stored: &'a [Stored]) -> Vec<Lies<'a>> {
    let own = listed.iter().flat_map(|(host, fact)| fact.bundles.iter().map(move |bundle| (host, bundle)));
    let own = own.map(|(host, bundle)| (Some(bundle.taken_ms), Lies::OnHost(host, bundle)));
    let copies = shared(copies).into_iter();
    let copies = copies.map(|one| (Some(one.copy.bundle.taken_ms), Lies::InDirectory(one.address())));
    let stored = stored.iter().map(|one| (by_name(&one.name).map(|by| by.taken_ms), Lies::Stored(one)));
    let mut all: Vec<_> = own.chain(copies).chain(stored).collect();
    all.sort_by_key(|(taken_ms, _)| std::cmp::Reverse(*taken_ms));
    all.into_iter().map(|(_, lies)| lies).collect()
}

/// The newest bundle of the hosts, of their directories and of object storage. One that turns out to be damaged is left out.
async fn newest_anywhere(session: &mut Session) -> Result<Fetched, Failure> {
    if session.desired.snapshots.storage.is_none() {
        session.anybody().await?;
    }
    let mut stored = Vec::new();
    for found in super::away::list(session).await.into_values() {
        match found {
            Ok(more) => stored.extend(more),
            Err(error) => session.sink.emit(Event::Warning { text: format!("bundles there are left out: {error}") }),
        }
    }
    let listed = list(session).await?;
    let copies = super::copies::find(session, None, None, false).await;
    super::copies::tell(session, &copies);
    one_cluster(&stored, &copies, &session.desired.cluster)?;
    let mut last = Unusable::None;
    for lies in newest_first(&listed, &copies, &stored).into_iter().take(TRIES) {
        let fetched = match lies {
            Lies::OnHost(host, bundle) => {
                let at = Fetched::place(session, &bundle.name)?;
                fetch(session, host, bundle, at.path()).await.map(|_| at)
            }
            Lies::InDirectory(at) => super::copies::fetch(session, &at).await,
            Lies::Stored(one) => super::away::fetch(session, &one.url()).await,
        };
        match fetched {
            Err(Failure::Recovery(Unusable::Bundle(why))) if why.is_damage() => {
                let text = format!("{why}: it is of no use, and the next best is looked for");
                session.sink.emit(Event::Warning { text });
                last = why.into();
            }
            fetched => return fetched,
        }
    }
    Err(last.into())
}

/// The state in the newest bundle of all places; or the one that lies on hosts, where something was rotated since or no bundle is left.
async fn newest_state(session: &mut Session, identities: &Identities) -> Result<Carried, Failure> {
    let bundle = newest_anywhere(session).await;
    let mut found = match &bundle {
        Ok(fetched) => Some(verify(fetched.path(), identities)?.1),
        Err(_) => None,
    };
    for later in on_hosts(session, identities).await {
        let newer = |found: &Carried| {
            let (one, other) = (&later.contents.turning, &found.contents.turning);
            one.founded == other.founded && one.stages > other.stages
        };
        if later.cluster == session.desired.cluster && found.as_ref().is_none_or(newer) {
            found = Some(later);
        }
    }
    match (found, bundle) {
        (Some(found), _) => Ok(found),
        (None, Err(failure)) => Err(failure),
        (None, Ok(_)) => Err(Unusable::None.into()),
    }
}

/// What the identities open of the states that `up` has left on hosts.
async fn on_hosts(session: &Session, identities: &Identities) -> Vec<Carried> {
    let read = session.machines.values().map(async |machine| {
        let op = Op::ReadFiles { paths: vec![SEALED.to_owned()] };
        match machine.call(op, Feed::None, ANSWER, &|_| {}).await {
            Ok(Reply::Texts(mut texts)) => texts.remove(SEALED),
            // Of a host that does not say it, a bundle may be there all the same.
            Ok(_) | Err(_) => None,
        }
    });
    let texts = futures::future::join_all(read).await.into_iter().flatten();
    let open = |text: String| uncarry(&identities.text(text.as_bytes(), LARGEST_STATE).ok()?).ok();
    texts.filter_map(open).collect()
}

/// The administrator's state rebuilt from a bundle: one that is named, or the newest that a host, a directory of a host or object storage has.
///
/// # Errors
/// State that is there already; a bundle that cannot be used.
pub async fn pull(session: &mut Session, file: Option<&Path>, identity: &Path) -> Result<PathBuf, Failure> {
    let state = &session.places.state.clone();
    if fs::symlink_metadata(state).is_ok() {
        return Err(crate::vault::VaultError::Exists { path: state.clone() }.into());
    }
    let carried = match file {
        Some(file) => {
            let (path, _fetched) = local(session, file).await?;
            verify(&path, &identities(Some(identity), state, &path)?)?.1
        }
        None => newest_state(session, &identities(Some(identity), state, Path::new(SEALED))?).await?,
    };
    let wanted = &session.desired.cluster;
    if &carried.cluster != wanted {
        let (theirs, authority) = (carried.cluster, carried.contents.turning.founded.short());
        let path = file.unwrap_or(Path::new(SEALED)).to_owned();
        return Err(Unusable::OtherCluster { path, theirs, authority }.into());
    }
    State::rebuilt(state, carried)?;
    Ok(state.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::bucket::BucketUrl;
    use crate::model::copies::{CopiesFact, CopyFact};
    use crate::model::names::Digest;
    use crate::model::snapshot::{Point, Proof};

    #[test]
    fn the_newest_comes_first_and_of_equally_new_ones_what_is_nearest() {
        let fact = |host: &str, hour: i64| BundleFact {
            name: format!("lab-20261122T{hour:02}0000000Z-{host}.hactl"),
            bytes: 1,
            taken_ms: 1_795_305_600_000 + hour * 3_600_000,
            authority: Digest::of(b"ours"),
            point: Point { cluster: "c".to_owned(), term: 1, index: 1, revision: 1, high_water: 1 },
            etcd: "3.6.16".to_owned(),
            proof: Proof { keys: 1, hash: 1, restored_ms: 1 },
        };
        let copy = |hour| CopyFact { by: "cp2".parse().unwrap(), bundle: fact("cp2", hour) };
        let found =
            CopiesFact { directory: "/mnt/backup".to_owned(), copies: vec![copy(7), copy(6)], ..CopiesFact::default() };
        let copies = CopiesListed::from([("cp3".parse().unwrap(), Ok(vec![found]))]);
        let own = BundlesFact { bundles: vec![fact("cp1", 6)], ..BundlesFact::default() };
        let listed = Listed::from([("cp1".parse().unwrap(), own)]);
        let stored = |hour| Stored { place: "s3://one".parse().unwrap(), name: fact("cp1", hour).name, bytes: 1 };
        let stored = [stored(6), stored(8)];
        let said = newest_first(&listed, &copies, &stored).into_iter().map(|lies| match lies {
            Lies::OnHost(host, bundle) => format!("{host} {}", bundle.name),
            Lies::InDirectory(at) => at.to_string(),
            Lies::Stored(one) => one.url(),
        });
        let wanted = [
            "s3://one/lab-20261122T080000000Z-cp1.hactl",
            "cp3:/mnt/backup/lab-20261122T070000000Z-cp2.hactl",
            "cp1 lab-20261122T060000000Z-cp1.hactl",
            "cp3:/mnt/backup/lab-20261122T060000000Z-cp2.hactl",
            "s3://one/lab-20261122T060000000Z-cp1.hactl",
        ];
        assert_eq!(said.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn two_clusters_of_one_name_are_told_apart_by_a_person_wherever_their_bundles_lie() {
        let cluster: ClusterName = "lab".parse().unwrap();
        let (ours, theirs) = (Digest::of(b"ours"), Digest::of(b"theirs"));
        let stored = |place: &str, authority| Stored {
            place: place.parse::<BucketUrl>().unwrap().of(&cluster, authority),
            name: "lab-20261122T060000000Z-cp1.hactl".to_owned(),
            bytes: 1,
        };
        let copies = |authority| {
            let bundle = BundleFact {
                name: "lab-20261122T060000000Z-cp1.hactl".to_owned(),
                bytes: 1,
                taken_ms: 1,
                authority,
                point: Point { cluster: "c".to_owned(), term: 1, index: 1, revision: 1, high_water: 1 },
                etcd: "3.6.16".to_owned(),
                proof: Proof { keys: 1, hash: 1, restored_ms: 1 },
            };
            let copies = vec![CopyFact { by: "cp1".parse().unwrap(), bundle }];
            let fact = CopiesFact { directory: "/mnt/backup".to_owned(), copies, ..CopiesFact::default() };
            CopiesListed::from([("cp1".parse().unwrap(), Ok(vec![fact]))])
        };
        let none = CopiesListed::new();
        let both = [stored("s3://one/dr", ours), stored("s3://two", ours)];
        assert!(one_cluster(&both, &copies(ours), &cluster).is_ok());
        let two = [stored("s3://one/dr", ours), stored("s3://one/dr", theirs)];
        assert!(matches!(one_cluster(&two, &none, &cluster), Err(Unusable::Several(places)) if places.len() == 2));
        let found = one_cluster(&both[..1], &copies(theirs), &cluster);
        let Err(Unusable::Several(places)) = found else { panic!("two clusters: {found:?}") };
        assert!(places.contains(&"cp1:/mnt/backup/lab-20261122T060000000Z-cp1.hactl".to_owned()), "{places:?}");
        assert!(one_cluster(&[], &none, &cluster).is_ok());
    }
}
