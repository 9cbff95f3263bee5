//! Snapshots: interval, retention, destinations of copies, keys that decrypt them.

use super::text::{choice, duration, number, url};
use super::validator::{Reading, Validator};
use crate::inventory::at::{At, Place};
use crate::inventory::problem::shorten;
use crate::inventory::schema;
use crate::model::bucket::{Destination, REGION, SCHEME, StorageSettings};
use crate::model::desired::Snapshots;
use crate::model::drill::Period;
use std::path::{Component, Path};

/// Both keys of the inventory that concern snapshots.
pub fn snapshots(
    judge: &mut Validator<'_>,
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
    let drills = [("weekly", Some(Period::Weekly)), ("daily", Some(Period::Daily)), ("never", None)];
    wanted.drill = raw.drill.as_ref().and_then(|text| choice(judge, "snapshots.drill", text, &drills)).flatten();
    for to in raw.to.iter().flat_map(|list| &list.value) {
        wanted.to.extend(destination(judge, to));
    }
    let bucket = raw.to.iter().flat_map(|list| &list.value).find(|to| to.value.starts_with(SCHEME));
    wanted.storage = storage(judge, raw.s3.as_ref(), bucket.map(|to| to.place));
    wanted
}

/// A directory on each host, such as a mounted share, or a prefix in object storage.
fn destination(judge: &mut Validator<'_>, to: &At<String>) -> Option<Destination> {
    if to.value.starts_with(SCHEME) {
        if let Ok(url) = to.value.parse() {
            return Some(Destination::Bucket(url));
        }
        let what = format!("{:?} is not a location in object storage", shorten(&to.value));
        let expected = "s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits, '-', '_' and '.'";
        return judge.none(to.place, what, expected, "the address of the server goes into snapshots.s3.endpoint");
    }
    let path = Path::new(&to.value);
    let plain = to.value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.'));
    let climbs = path.components().any(|part| matches!(part, Component::ParentDir));
    if path.is_absolute() && plain && !climbs && path.components().count() > 1 {
        return Some(Destination::Directory(path.components().collect()));
    }
    let what = format!("{:?} is not a destination", shorten(&to.value));
    let expected = "an absolute path of letters, digits, '-', '_' and '.', or s3://BUCKET/PREFIX";
    judge.none(to.place, what, expected, "use a directory that exists on each etcd host, such as a mounted share")
}

/// Access to object storage; `bucket`: the place where the inventory names one.
fn storage(
    judge: &mut Validator<'_>,
    raw: Option<&At<schema::ObjectStorage>>,
    bucket: Option<Place>,
) -> Option<StorageSettings> {
    let unwritten = schema::ObjectStorage::default();
    let given = raw.map_or(&unwritten, |raw| &raw.value);
    let region = match given.region.as_ref() {
        None => REGION.to_owned(),
        Some(text) if !text.value.is_empty() && text.value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') => {
            text.value.clone()
        }
        Some(text) => {
            let what = format!("{:?} is not a region", shorten(&text.value));
            let expected = "letters, digits and '-', such as eu-central-1";
            judge.refuse(text.place, what, expected, "ask the operator of the storage");
            REGION.to_owned()
        }
    };
    let endpoint = given.endpoint.as_ref().and_then(|text| endpoint(judge, text));
    let mut file = |key, text: &Option<At<String>>, reading| text.as_ref().and_then(|t| judge.file(key, t, reading));
    let ca = file("snapshots.s3.ca", &given.ca, Reading::Authority(SCHEME.to_owned()));
    let credentials = file("snapshots.s3.credentials", &given.credentials, Reading::Login(SCHEME.to_owned()));
    match (bucket, raw, credentials) {
        (Some(_), _, Some(credentials)) => Some(StorageSettings { endpoint, region, credentials, ca }),
        (Some(place), _, None) if given.credentials.is_none() => judge.none(
            place,
            "object storage requires an access key, and snapshots.s3.credentials is missing",
            "snapshots: {s3: {credentials: FILE}}",
            "write ACCESS_KEY_ID:SECRET_ACCESS_KEY into a file that only you can read, and name that file",
        ),
        (None, Some(raw), _) => {
            let what = "snapshots.s3 has no effect: snapshots.to contains no object storage";
            judge.warn(raw.place, what, "", "add s3://BUCKET/PREFIX to snapshots.to, or remove snapshots.s3");
            None
        }
        _ => None,
    }
}

/// A server, without a path: the bucket is appended to it.
fn endpoint(judge: &mut Validator<'_>, text: &At<String>) -> Option<String> {
    let given = url(judge, "snapshots.s3.endpoint", &text.value, text.place)?;
    let given = given.strip_suffix('/').unwrap_or(&given);
    let rest = given.split_once("://").map_or(given, |(_, rest)| rest);
    if !rest.contains(['/', '?', '#']) {
        if given.starts_with("http://") {
            let what = "snapshots are copied over plain http: they are encrypted, but can be modified in transit";
            judge.warn(text.place, what, "https", "set up TLS on the storage and set snapshots.s3.ca to its CA");
        }
        return Some(given.to_owned());
    }
    let what = format!("snapshots.s3.endpoint has a path: {}", shorten(given));
    judge.none(text.place, what, "https://HOST or https://HOST:PORT", "put bucket and prefix into snapshots.to")
}

/// Public keys; a secret key has a message of its own.
fn recipients(judge: &mut Validator<'_>, raw: Option<&At<schema::Vault>>) -> Vec<String> {
    let mut fine = Vec::new();
    for key in raw.and_then(|v| v.value.recipients.as_ref()).into_iter().flat_map(|list| &list.value) {
        if key.value.starts_with("AGE-SECRET-KEY-") {
            let remedy = "treat this key as leaked: create another with `age-keygen` and write its public key here";
            judge.refuse(key.place, "this is a secret key", "the public key, age1...", remedy);
        } else if crate::snapshot::Recipients::parse(std::slice::from_ref(&key.value)).is_err() {
            let what = format!("{:?} is not an age public key", shorten(&key.value));
            judge.refuse(key.place, what, "age1 and 58 characters", "print it with `age-keygen -y FILE`");
        } else {
            fine.push(key.value.clone());
        }
    }
    fine
}
