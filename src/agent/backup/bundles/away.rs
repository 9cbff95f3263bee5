//! Copies of snapshots in object storage: uploaded, and deleted when they exceed the retention.
//!
//! In: a snapshot of this host, the settings, the file with the access key. Out: a message for each bucket that did
//! not get it. Only objects of this host are ever deleted. An access key that cannot delete is no failure: then the
//! rules of the storage expire old copies.

use super::store::spared;
use crate::agent::machine::root::Root;
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, failed};
use crate::model::bucket::{BucketUrl, Destination, Storage};
use crate::model::snapshot::Settings;
use crate::model::timestamp::is_ahead;
use crate::snapshot::{Bucket, BucketError, BucketTrouble};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long all copies may take: slower ones would prevent the next snapshot.
const WITHIN: Duration = Duration::from_secs(1200);
/// The file with the access key, as `up` wrote it.
const ACCESS: &str = "/etc/hactl/object-storage/access.toml";

fn places(settings: &Settings) -> impl Iterator<Item = BucketUrl> + '_ {
    settings.to.iter().filter_map(|to| match to {
        Destination::Bucket(url) => Some(url.of(&settings.cluster, settings.authority)),
        Destination::Directory(_) => None,
    })
}

async fn storage(root: &Root) -> Outcome<Storage> {
    let reading = root.blocking(|root| {
        let at = root.own(ACCESS);
        let text = fs::read_to_string(&at).explain("read", &at)?;
        Storage::from_file(&text).ok_or_else(|| failed(format!("{} cannot be used; run `hactl up`", at.display())))
    });
    reading.await
}

/// Uploads a copy of a snapshot to each bucket that is due, and deletes the copies that exceed the retention. Returns
/// the failures.
pub(super) async fn copies(root: &Root, bundle: &Path, name: &str, settings: &Settings) -> Outcome<Vec<String>> {
    let mut troubles = Vec::new();
    if places(settings).next().is_none() {
        return Ok(troubles);
    }
    let storage = storage(root).await?;
    let (of, fresh) = (settings.clone(), name.to_owned());
    let spared = root.blocking(move |root| spared(root, &of, Some(&fresh))).await?;
    let until = Instant::now() + WITHIN;
    for place in places(settings) {
        let at = place.to_string();
        match timeout_at(until, copy(&storage, place, bundle, name, (settings, &spared))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => troubles.push(error),
            Err(_) => troubles.push(format!("{at} has not received it within {} min", WITHIN.as_secs() / 60)),
        }
    }
    Ok(troubles)
}

async fn copy(
    storage: &Storage,
    place: BucketUrl,
    bundle: &Path,
    name: &str,
    (settings, spared): (&Settings, &BTreeSet<String>),
) -> Result<(), String> {
    let missing = |error: BucketError| error.to_string();
    let bucket = Bucket::open(storage, place).map_err(missing)?;
    bucket.put(name, bundle).await.map_err(missing)?;
    match prune(&bucket, settings, spared).await {
        Err(error) if error.trouble != BucketTrouble::Refused => {
            Err(format!("{} has it, but older copies could not be deleted there: {error}", bucket.place()))
        }
        _ => Ok(()),
    }
}

/// Deletes the copies of this host that exceed the retention, except those in `spared`.
async fn prune(bucket: &Bucket, settings: &Settings, spared: &BTreeSet<String>) -> Result<(), BucketError> {
    let names = bucket.list().await?.into_iter().filter(|one| &one.place == bucket.place()).map(|one| one.name);
    for name in dropped(names, settings, spared, when::now_ms()) {
        bucket.remove(&name).await?;
    }
    Ok(())
}

/// The copies to delete. Only their names are known, and a client with write access can choose names: a copy dated in
/// the future neither counts nor is deleted, and copies of snapshots that this host still has stay in any case.
fn dropped(
    names: impl Iterator<Item = String>,
    settings: &Settings,
    spared: &BTreeSet<String>,
    now_ms: i64,
) -> Vec<String> {
    let mine = |name: String| Some((settings.own(&name)?.taken_ms, name));
    let mut found: Vec<(i64, String)> = names.filter_map(mine).filter(|(at, _)| !is_ahead(*at, now_ms)).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    let times: Vec<i64> = found.iter().map(|(at, _)| *at).collect();
    let kept = settings.keep.kept(&times);
    let goes = |(place, (_, name)): &(usize, (i64, String))| !kept.contains(place) && !spared.contains(name);
    found.into_iter().enumerate().filter(goes).map(|(_, (_, name))| name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;
    use crate::model::snapshot::Keep;

    #[test]
    fn future_timestamps_displace_no_copy_and_the_hosts_own_copies_stay() {
        let settings = Settings { keep: Keep { last: 2, daily: 1, weekly: 1 }, ..settings() };
        let name = |day: u32, hour: u32| format!("lab-202611{day:02}T{hour:02}0000000Z-cp1.hactl");
        let now_ms = crate::model::snapshot::by_name(&name(22, 9)).unwrap().taken_ms;
        let mut all: Vec<String> = (1..=9).map(|hour| name(22, hour)).collect();
        assert_eq!(dropped(all.clone().into_iter(), &settings, &BTreeSet::new(), now_ms).len(), 7);
        all.extend((0..50).map(|second| format!("lab-20990101T0000{second:02}000Z-cp1.hactl")));
        let spared = BTreeSet::from([name(22, 3)]);
        let gone = dropped(all.into_iter(), &settings, &spared, now_ms);
        let wanted: Vec<String> = [7, 6, 5, 4, 2, 1].map(|hour| name(22, hour)).into();
        assert_eq!(
            gone, wanted,
            "the newest two of the past and those spared stay, and those of the future are ignored"
        );
    }
}
