//! Recovery bundles in object storage, as this machine sees them: listed, looked at, fetched.
//!
//! In: a session whose inventory names object storage. Out: what is there, or words for why that is not known; nothing here keeps anybody
//! from what can be done without it.

use super::bundles::{Unusable, io_error, private, scratch};
use super::{Failure, Session};
use crate::model::bucket::{BucketUrl, Destination};
use crate::model::event::Event;
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

/// How long a recovery waits for object storage to say what it has: whoever lost a cluster may have lost the way there as well.
const WITHIN: Duration = Duration::from_secs(10);
/// How long a person waits for a list.
const LISTED: Duration = Duration::from_secs(30);
/// So many bundles of each host are tried until one can be read.
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

/// The bundles of this inventory's cluster in every place that the inventory names, the newest first: those of this authority, or, where
/// nobody knows which it is, of all that have its name.
pub async fn list(session: &Session) -> AwayListed {
    let cluster = &session.desired.cluster;
    let authority = super::copies::authority(session).await;
    let one = async |place: BucketUrl| {
        let at = authority.map_or_else(|| place.clone(), |authority| place.of(cluster, authority));
        let found = match bucket(session, at) {
            Ok(bucket) => tokio::time::timeout(LISTED, bucket.list()).await.unwrap_or_else(|_| {
                let why = format!("has not said what it has within {} s", LISTED.as_secs());
                Err(BucketError { at: place.to_string(), trouble: BucketTrouble::Dark, why })
            }),
            Err(Unusable::Bucket(error)) => Err(error),
            // Places without a key are refused with the inventory.
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

/// By the times in their names; what a wrong clock dated into the future comes last.
fn newest_first(all: &mut [Stored]) {
    let now = super::authentic::now_ms();
    all.sort_by_key(|one| {
        let taken = by_name(&one.name).map(|by| by.taken_ms);
        (taken.is_none_or(|at| is_ahead(at, now)), std::cmp::Reverse(taken))
    });
}

/// The newest bundle of each host that can be read, and the one that is named, each with what it says of itself. What cannot be found out
/// in time is told and left out.
pub(super) async fn newest(session: &Session, authority: Digest, named: Option<&str>) -> Vec<Away> {
    let mut found = Vec::new();
    let trust = super::authentic::trust(session).await;
    for place in places(session) {
        let own = place.of(&session.desired.cluster, authority);
        let told = match tokio::time::timeout(
            WITHIN,
            look(session, own, (authority, trust.as_ref()), named, &mut found),
        )
        .await
        {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("{place} has not answered within {} s", WITHIN.as_secs()),
        };
        let text = format!("newer bundles may be left out: {told}; `--from {place}/...` names one");
        session.sink.emit(Event::Warning { text });
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
            // Whoever can write there could hide all others behind such.
            Ok((_, bundle)) if bundle.authenticity.is_forged() => {
                super::authentic::tell(session, std::iter::once((one.url(), &bundle)));
            }
            Ok((host, bundle)) if believed => {
                *tries = TRIES;
                found.push(Away { place: place.to_string(), host, bundle });
            }
            // One bundle that was damaged says nothing of the others.
            read => {
                *tries += 1;
                let why =
                    read.err().map_or_else(|| format!("{} is not what its name says", one.url()), |e| e.to_string());
                session.sink.emit(Event::Warning { text: format!("a bundle is left out: {why}") });
            }
        }
    }
    Ok(())
}

/// A bundle that was fetched here and is removed when nobody needs it any more. It is sealed, so that what is left of one is no secret.
#[derive(Debug)]
pub struct Fetched {
    path: PathBuf,
    /// A folder that is for it alone.
    folder: Option<PathBuf>,
}

impl Fetched {
    /// One that lies there already.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, folder: None }
    }
    /// A place for one that nobody else on this machine can reach: in the state directory, or, where there is none yet, in a folder of its
    /// own.
    pub(super) fn place(session: &Session, name: &str) -> Result<Self, Failure> {
        let state = &session.places.state;
        if fs::symlink_metadata(state).is_ok() {
            return Ok(Self::at(scratch(state)?.join(name)));
        }
        let folder = std::env::temp_dir().join(format!("hactl-{}", crate::statedir::random_hex(8)?));
        DirBuilder::new().mode(0o700).create(&folder).map_err(io_error("create", &folder))?;
        Ok(Self { path: folder.join(name), folder: Some(folder) })
    }
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        // The next that is fetched under this name takes its place.
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Fetches a bundle by its address, whole, every byte of it checked. No more is fetched than its manifest announces.
pub(super) async fn fetch(session: &Session, url: &str) -> Result<Fetched, Failure> {
    let (place, name) = BucketUrl::file(url).map_err(|_| Unusable::NoUrl(url.chars().take(200).collect()))?;
    let bucket = bucket(session, place)?;
    session.sink.emit(Event::Phase { doing: format!("fetching {url}") });
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

/// A bundle that a person named: fetched where that is an address, and where it lies otherwise.
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
