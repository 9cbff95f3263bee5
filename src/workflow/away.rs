//! Snapshots in object storage: lists, inspects and fetches them from this machine.
//!
//! In: a session whose inventory names object storage. Out: the snapshots there, or a message why they are unknown. A
//! failure here never prevents work that is possible without object storage.

use super::bundles::{Unusable, io_error, private, scratch};
use super::{Failure, Session};
use crate::model::bucket::{BucketUrl, Destination};
use crate::model::names::Digest;
use crate::model::snapshot::{BundleFact, by_name};
use crate::model::timestamp::is_ahead;
use crate::plan::Away;
use crate::report::snapshots::AwayListed;
use crate::snapshot::{Bucket, BucketError, BucketTrouble, Bundle, Stored, Trust, check_room};
use crate::transport::transfer_within;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a recovery for the list from object storage, which may be unreachable after the same failure.
const WITHIN: Duration = Duration::from_secs(10);
/// Timeout of a list for a person.
const LISTED: Duration = Duration::from_secs(30);
/// How many snapshots of each host are tried until one can be read.
const TRIES: usize = 3;

fn places(session: &Session) -> Vec<BucketUrl> {
    let all = session.desired.snapshots.to.iter();
    all.filter_map(|to| if let Destination::Bucket(url) = to { Some(url.clone()) } else { None }).collect()
}

/// Reaches a place with the key that the inventory names.
fn bucket(session: &Session, place: BucketUrl) -> Result<Bucket, Unusable> {
    let reach = |wanted| crate::render::object_storage(wanted, &session.attached);
    match session.desired.snapshots.storage.as_ref().and_then(reach) {
        Some(storage) => Ok(Bucket::open(&storage, place)?),
        None => Err(Unusable::NoStorage(place)),
    }
}

/// The snapshots of this cluster in every place that the inventory names, newest first: those with this cluster's CA,
/// or, if the CA is unknown, all with the cluster's name.
pub async fn list(session: &Session) -> AwayListed {
    let cluster = &session.desired.cluster;
    let authority = super::copies::authority(session).await;
    let one = async |place: BucketUrl| {
        let at = authority.map_or_else(|| place.clone(), |authority| place.of(cluster, authority));
        let found = match bucket(session, at) {
            Ok(bucket) => tokio::time::timeout(LISTED, bucket.list()).await.unwrap_or_else(|_| {
                let why = format!("has not listed its snapshots within {} s", LISTED.as_secs());
                Err(BucketError { at: place.to_string(), trouble: BucketTrouble::Dark, why })
            }),
            Err(Unusable::Bucket(error)) => Err(error),
            // The validation of the inventory already refuses places without a key.
            Err(_) => Ok(Vec::new()),
        };
        let found = found.map(|mut all| {
            all.retain(|one| by_name(&one.name).is_some_and(|by| by.cluster == cluster.as_str()));
            newest_first(&mut all);
            all
        });
        (place, found)
    };
    futures::future::join_all(places(session).into_iter().map(one)).await.into_iter().collect()
}

/// Sorts by the times in their names; those that a wrong clock dated into the future come last.
fn newest_first(all: &mut [Stored]) {
    let now = super::authentic::now_ms();
    all.sort_by_key(|one| {
        let taken = by_name(&one.name).map(|by| by.taken_ms);
        (taken.is_none_or(|at| is_ahead(at, now)), std::cmp::Reverse(taken))
    });
}

/// The newest readable snapshot of each host and the named one, with their metadata. Places that do not answer in time
/// are left out with a warning.
pub(super) async fn newest(session: &Session, authority: Digest, named: Option<&str>) -> Vec<Away> {
    let mut found = Vec::new();
    let trust = super::authentic::trust(session).await;
    for place in places(session) {
        let own = place.of(&session.desired.cluster, authority);
        let looked = look(session, own, (authority, trust.as_ref()), named, &mut found);
        let stated = match tokio::time::timeout(WITHIN, looked).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("{place} has not answered within {} s", WITHIN.as_secs()),
        };
        session.sink.warn(format!("newer snapshots may be missing: {stated}; `--from {place}/...` names one"));
    }
    found
}

async fn look(
    session: &Session,
    place: BucketUrl,
    (authority, trust): (Digest, Option<&Trust>),
    named: Option<&str>,
    found: &mut Vec<Away>,
) -> Result<(), Unusable> {
    let bucket = bucket(session, place.clone())?;
    let mut all: Vec<Stored> = bucket.list().await?.into_iter().filter(|one| one.place == place).collect();
    newest_first(&mut all);
    let mut tried: BTreeMap<String, usize> = BTreeMap::new();
    for one in &all {
        let Some(by) = by_name(&one.name).filter(|by| by.cluster == session.desired.cluster.as_str()) else { continue };
        let tries = tried.entry(by.host.to_owned()).or_default();
        if *tries >= TRIES && named != Some(one.name.as_str()) {
            continue;
        }
        let read = bucket.claims(&one.name).await.map(|(claimed, bytes)| {
            let mut bundle = BundleFact::of(one.name.clone(), bytes, &claimed);
            if let Some(trust) = trust {
                trust.judge_fact(&mut bundle, None);
            }
            (claimed.manifest.host, bundle)
        });
        let ours = |bundle: &BundleFact| bundle.authority == authority && bundle.point.is_plausible();
        let believed = read.as_ref().is_ok_and(|(_, bundle)| ours(bundle));
        match read {
            // Not counted as a try: otherwise forged snapshots could hide the genuine ones.
            Ok((_, bundle)) if bundle.authenticity.is_forged() => {
                super::authentic::tell(session, std::iter::once((one.url(), &bundle)));
            }
            Ok((host, bundle)) if believed => {
                *tries = TRIES;
                found.push(Away { place: place.to_string(), host, bundle });
            }
            // Other snapshots may be intact.
            read => {
                *tries += 1;
                let why =
                    read.err().map_or_else(|| format!("{} does not match its name", one.url()), |e| e.to_string());
                session.sink.warn(format!("ignoring a snapshot: {why}"));
            }
        }
    }
    Ok(())
}

/// A fetched snapshot, which is removed on drop. It is encrypted, so a leftover file reveals nothing.
#[derive(Debug)]
pub struct Fetched {
    path: PathBuf,
    /// A directory for this file only.
    folder: Option<PathBuf>,
}

impl Fetched {
    /// One that is stored there already.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, folder: None }
    }
    /// A path for one that no other user of this machine can access: in the state directory, or, if there is none yet,
    /// in a directory of its own.
    pub(super) fn place(session: &Session, name: &str) -> Result<Self, Failure> {
        let state = &session.places.state;
        if fs::symlink_metadata(state).is_ok() {
            return Ok(Self::at(scratch(state)?.join(name)));
        }
        let folder = std::env::temp_dir().join(format!("hactl-{}", crate::statedir::random_hex(8)?));
        DirBuilder::new().mode(0o700).create(&folder).map_err(io_error("create", &folder))?;
        Ok(Self { path: folder.join(name), folder: Some(folder) })
    }
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        // The next fetch under this name overwrites it.
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Fetches a complete snapshot by its address and verifies every byte. Never fetches more than its manifest announces.
pub(super) async fn fetch(session: &Session, url: &str) -> Result<Fetched, Failure> {
    let (place, name) = BucketUrl::file(url).map_err(|_| Unusable::NoUrl(url.chars().take(200).collect()))?;
    let bucket = bucket(session, place)?;
    session.sink.phase(format!("fetching {url}"));
    let (_, bytes) = bucket.claims(&name).await.map_err(Unusable::Bucket)?;
    let fetched = Fetched::place(session, &name)?;
    check_room(fetched.path(), bytes).map_err(io_error("write", fetched.path()))?;
    let mut file = private(fetched.path())?;
    let within = transfer_within(bytes);
    let got = tokio::time::timeout(within, bucket.get(&name, bytes, &mut file)).await.unwrap_or_else(|_| {
        let why = format!("has not sent {name} within {} min", within.as_secs() / 60);
        Err(BucketError { at: bucket.place().to_string(), trouble: BucketTrouble::Dark, why })
    });
    got.map_err(Unusable::Bucket)?;
    file.sync_all().map_err(io_error("write", fetched.path()))?;
    Bundle::open(fetched.path()).and_then(|bundle| bundle.check()).map_err(Unusable::Bundle)?;
    Ok(fetched)
}

/// The path of a snapshot that a person named; it is fetched first if the name is an address.
pub(super) async fn local(session: &Session, named: &Path) -> Result<(PathBuf, Option<Fetched>), Failure> {
    let words = named.to_str().unwrap_or_default();
    let fetched = if words.starts_with(crate::model::bucket::SCHEME) {
        fetch(session, words).await?
    } else if let (Ok(at), false) = (words.parse(), named.is_file()) {
        super::copies::fetch(session, &at).await?
    } else {
        return Ok((named.to_owned(), None));
    };
    Ok((fetched.path().to_owned(), Some(fetched)))
}
