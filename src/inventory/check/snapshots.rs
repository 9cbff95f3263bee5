//! Recovery bundles: how often, which stay, where copies go, who can open them.

use super::text::{duration, number};
use super::{Judge, shorten};
use crate::inventory::at::At;
use crate::inventory::schema;
use crate::model::desired::Snapshots;
use std::path::{Component, Path, PathBuf};

/// Both keys of the inventory that are about bundles.
pub fn snapshots(
    judge: &mut Judge<'_>,
    raw: Option<&At<schema::Snapshots>>,
    vault: Option<&At<schema::Vault>>,
) -> Snapshots {
    let mut wanted = Snapshots { recipients: recipients(judge, vault), ..Snapshots::default() };
    let Some(raw) = raw.map(|whole| &whole.value) else { return wanted };
    if let Some(every_s) = raw.every.as_ref().and_then(|text| duration(judge, "snapshots.every", text)) {
        wanted.every_s = every_s;
    }
    if let Some(keep) = raw.keep.as_ref().map(|k| &k.value) {
        let mut count = |key, least, text: &Option<At<i64>>, slot: &mut usize| {
            let given = text.as_ref().and_then(|text| number(judge, key, text, least, 100_000));
            if let Some(count) = given.and_then(|n| usize::try_from(n).ok()) {
                *slot = count;
            }
        };
        count("snapshots.keep.last", 1, &keep.last, &mut wanted.keep.last);
        count("snapshots.keep.daily", 0, &keep.daily, &mut wanted.keep.daily);
        count("snapshots.keep.weekly", 0, &keep.weekly, &mut wanted.keep.weekly);
    }
    for to in raw.to.iter().flat_map(|list| &list.value) {
        wanted.to.extend(destination(judge, to));
    }
    wanted
}

/// A directory that is on each host, such as a mounted share.
fn destination(judge: &mut Judge<'_>, to: &At<String>) -> Option<PathBuf> {
    let path = Path::new(&to.value);
    let plain = to.value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.'));
    let climbs = path.components().any(|part| matches!(part, Component::ParentDir));
    if path.is_absolute() && plain && !climbs && path.components().count() > 1 {
        return Some(path.components().collect());
    }
    let what = format!("{:?} is no destination", shorten(&to.value));
    let remedy = "write a directory that each etcd host has, such as a mounted share; object storage can be mounted";
    judge.refuse(to.place, what, "an absolute path of letters, digits, '-', '_' and '.'", remedy);
    None
}

/// Public keys; a secret one is worth a word of its own.
fn recipients(judge: &mut Judge<'_>, raw: Option<&At<schema::Vault>>) -> Vec<String> {
    let mut fine = Vec::new();
    for key in raw.and_then(|v| v.value.recipients.as_ref()).into_iter().flat_map(|list| &list.value) {
        if key.value.starts_with("AGE-SECRET-KEY-") {
            judge.refuse(
                key.place,
                "this is a secret key",
                "the public key, age1...",
                "treat this key as leaked: make a new one with `age-keygen` and put its public key here",
            );
        } else if crate::snapshot::Recipients::parse(std::slice::from_ref(&key.value)).is_err() {
            let what = format!("{:?} is not an age public key", shorten(&key.value));
            judge.refuse(key.place, what, "age1 and 58 characters", "print it with `age-keygen -y FILE`");
        } else {
            fine.push(key.value.clone());
        }
    }
    fine
}
