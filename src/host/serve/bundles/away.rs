//! Copies of bundles in object storage: put there, and dropped when they are not kept any more.
//!
//! In: a bundle of this host, the settings, the file with the key. Out: words for each place that did not get it. Only what this host put
//! there is ever removed. A key that may write and not remove is no trouble: then the storage's own rules drop what is old.

use super::super::fault::{Explain, Outcome, failed};
use super::super::root::Root;
use super::super::run::blocking;
use crate::model::bucket::{BucketUrl, Destination, Storage};
use crate::model::snapshot::Settings;
use crate::snapshot::{Bucket, BucketError, BucketTrouble};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long all copies may take: what is slower than this keeps the next bundle from being taken.
const WITHIN: Duration = Duration::from_secs(1200);
/// The file with the key, as `up` wrote it.
const ACCESS: &str = "/etc/hactl/object-storage/access.toml";

fn places(settings: &Settings) -> impl Iterator<Item = BucketUrl> + '_ {
    settings.to.iter().filter_map(|to| match to {
        Destination::Bucket(url) => Some(url.of(&settings.cluster, settings.authority)),
        Destination::Directory(_) => None,
    })
}

async fn storage(root: &Root) -> Outcome<Storage> {
    let at = root.own(ACCESS);
    blocking(move || {
        let text = fs::read_to_string(&at).explain("read", &at)?;
        Storage::from_file(&text).ok_or_else(|| failed(format!("{} cannot be used; run `hactl up`", at.display())))
    })
    .await
}

/// Puts a copy of a bundle into each place that wants one, and drops there what is not kept any more. Says what went wrong.
pub(super) async fn copies(root: &Root, bundle: &Path, name: &str, settings: &Settings) -> Outcome<Vec<String>> {
    let mut troubles = Vec::new();
    if places(settings).next().is_none() {
        return Ok(troubles);
    }
    let storage = storage(root).await?;
    let until = Instant::now() + WITHIN;
    for place in places(settings) {
        let at = place.to_string();
        match timeout_at(until, copy(&storage, place, bundle, name, settings)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => troubles.push(error),
            Err(_) => troubles.push(format!("{at} has not taken it within {} min", WITHIN.as_secs() / 60)),
        }
    }
    Ok(troubles)
}

async fn copy(
    storage: &Storage,
    place: BucketUrl,
    bundle: &Path,
    name: &str,
    settings: &Settings,
) -> Result<(), String> {
    let missing = |error: BucketError| error.to_string();
    let bucket = Bucket::open(storage, place).map_err(missing)?;
    bucket.put(name, bundle).await.map_err(missing)?;
    match prune(&bucket, name, settings).await {
        Err(error) if error.trouble != BucketTrouble::Refused => {
            Err(format!("{} has it, and older ones could not be dropped there: {error}", bucket.place()))
        }
        _ => Ok(()),
    }
}

/// Removes what this host put there and does not keep, but never `fresh`.
async fn prune(bucket: &Bucket, fresh: &str, settings: &Settings) -> Result<(), BucketError> {
    let mine = |name: String| Some((settings.own(&name)?.taken_ms, name));
    let names = bucket.list().await?.into_iter().filter(|one| &one.place == bucket.place()).map(|one| one.name);
    let found: Vec<(i64, String)> = names.filter_map(mine).collect();
    let times: Vec<i64> = found.iter().map(|(at, _)| *at).collect();
    let kept = settings.keep.kept(&times);
    let goes = |(at, name): &&(i64, String)| !kept.contains(at) && name != fresh;
    for (_, name) in found.iter().filter(goes) {
        bucket.remove(name).await?;
    }
    Ok(())
}
