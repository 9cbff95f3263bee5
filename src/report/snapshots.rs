//! Texts about snapshots: the table of all snapshots, and one line for each result.

use super::words::{bytes, clean, count, millis, time};
use crate::model::authentic::Authenticity;
use crate::model::bucket::BucketUrl;
use crate::model::drill::{OwnDrill, Showed};
use crate::model::duration::human_duration;
use crate::model::names::HostName;
use crate::model::snapshot::{BundleFact, BundlesFact, Manifest, Proof, by_name};
use crate::snapshot::{BucketError, Stored};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The snapshots in each bucket, or why they are unknown.
pub type AwayListed = BTreeMap<BucketUrl, Result<Vec<Stored>, BucketError>>;

/// Tolerated difference between two clocks, milliseconds.
const CLOCK_MS: i64 = 2_000;

/// How long ago, for clocks that may differ a little; a date in the future is reported as such.
pub fn ago(taken_ms: i64, now_ms: i64) -> String {
    let ahead = taken_ms.saturating_sub(now_ms);
    if ahead > CLOCK_MS {
        format!("{} in the FUTURE", human_duration(ahead))
    } else {
        format!("{} ago", human_duration(now_ms.saturating_sub(taken_ms)))
    }
}

/// All snapshots, the newest first, and their problems.
pub fn table(listed: &BTreeMap<HostName, BundlesFact>, now_ms: i64) -> String {
    let mut all: Vec<(&HostName, &BundleFact)> =
        listed.iter().flat_map(|(host, fact)| fact.bundles.iter().map(move |b| (host, b))).collect();
    all.sort_by(|(_, a), (_, b)| b.taken_ms.cmp(&a.taken_ms).then_with(|| a.name.cmp(&b.name)));
    let mut rows =
        vec![["HOST", "TAKEN", "SIGNED BY", "REVISION", "KEYS", "SIZE", "RESTORES IN", "SNAPSHOT"].map(str::to_owned)];
    rows.extend(all.into_iter().map(|(host, bundle)| {
        [
            host.to_string(),
            ago(bundle.taken_ms, now_ms),
            bundle.authenticity.to_string(),
            bundle.point.revision.to_string(),
            bundle.proof.keys.to_string(),
            bytes(bundle.bytes),
            millis(bundle.proof.restored_ms),
            clean(&bundle.name),
        ]
    }));
    let mut text = if rows.len() > 1 { columns(&rows) } else { String::new() };
    for (host, fact) in listed {
        for bundle in &fact.bundles {
            text.push_str(&distrusted(&format!("{host}: {}", clean(&bundle.name)), &bundle.authenticity));
        }
        for damaged in &fact.damaged {
            text.push_str(&format!("{host}: {}\n", clean(damaged)));
        }
        if let Some((at, what)) = &fact.trouble {
            text.push_str(&format!("{host}: the last attempt failed {}: {}\n", ago(*at, now_ms), clean(what)));
        }
        if let Some(OwnDrill { at_ms, bundle, showed, .. }) = &fact.own_drill {
            let (when, bundle) = (ago(*at_ms, now_ms), clean(bundle));
            text.push_str(&match showed {
                Showed::Restored(proof) => {
                    format!("{host}: drill of {bundle} passed {when}, restored in {}\n", millis(proof.restored_ms))
                }
                Showed::SealedBefore => format!(
                    "{host}: {bundle} is older than the host's identity for drills; the next snapshot can be restored\n"
                ),
                Showed::Failed { what, .. } => format!("{host}: drill of {bundle} failed {when}: {}\n", clean(what)),
            });
        }
    }
    text
}

/// Why a snapshot is not used automatically, as a line; empty if it is.
pub(super) fn distrusted(at: &str, authenticity: &Authenticity) -> String {
    match authenticity {
        Authenticity::Forged(why) => format!("{at} is FORGED: {}\n", clean(why)),
        Authenticity::Unsigned => {
            format!("{at} is not signed (made by an earlier hactl): used only with --accept-unsigned\n")
        }
        Authenticity::Signed(_) | Authenticity::Unchecked => String::new(),
    }
}

/// The signer of a verified snapshot, as a line.
pub fn signed(authenticity: &Authenticity, known: bool) -> String {
    let words = match authenticity {
        Authenticity::Signed(host) if known => format!("by {host}, whose key is certified by the cluster's CA"),
        Authenticity::Signed(host) => format!(
            "by {host}, whose key is certified by the CA in the snapshot; there is no state to compare that CA with"
        ),
        Authenticity::Unsigned => "no: an earlier hactl made it, or the signature was removed".to_owned(),
        Authenticity::Unchecked | Authenticity::Forged(_) => authenticity.to_string(),
    };
    format!("  {:<9} {words}\n", "signed")
}

/// The snapshots in object storage, the newest first, and their problems; empty if the inventory names none.
pub fn away(listed: &AwayListed, now_ms: i64) -> String {
    let mut text = String::new();
    for (place, found) in listed {
        match found {
            Err(error) => text.push_str(&format!("\n{}\n", clean(&error.to_string()))),
            Ok(all) if all.is_empty() => text.push_str(&format!("\n{place}: none yet\n")),
            Ok(all) => {
                let mut rows = vec![["TAKEN", "BY", "SIZE", "ADDRESS"].map(str::to_owned)];
                rows.extend(all.iter().map(|one| {
                    let by = by_name(&one.name);
                    let taken = by.map_or_else(|| "unknown".to_owned(), |by| ago(by.taken_ms, now_ms));
                    let host = by.map_or_else(String::new, |by| clean(by.host));
                    [taken, host, bytes(one.bytes), clean(&one.url())]
                }));
                text.push('\n');
                text.push_str(&columns(&rows));
            }
        }
    }
    text
}

/// The snapshots in object storage for programs.
pub fn away_json(listed: &AwayListed) -> serde_json::Value {
    let one = |stored: &Stored| {
        let by = by_name(&stored.name);
        json!({
            "name": stored.name,
            "url": stored.url(),
            "bytes": stored.bytes,
            "taken_ms": by.map(|by| by.taken_ms),
            "host": by.map(|by| by.host),
        })
    };
    let place = |found: &Result<Vec<Stored>, BucketError>| match found {
        Ok(all) => json!({"bundles": all.iter().map(one).collect::<Vec<_>>(), "trouble": null}),
        Err(error) => json!({"bundles": [], "trouble": error.to_string()}),
    };
    listed.iter().map(|(url, found)| (url.to_string(), place(found))).collect::<serde_json::Map<_, _>>().into()
}

/// Rows in aligned columns.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The result of a drill.
pub fn drilled(manifest: &Manifest, host: &HostName, proof: &Proof, took: Duration, now_ms: i64) -> String {
    format!(
        "a recovery from the snapshot of {}, taken {}, works: fetched, decrypted and restored on {host} in {}, of \
         which the restore took {}; {}, identical to when it was taken. The running cluster was not touched",
        manifest.host,
        ago(manifest.taken_ms, now_ms),
        time(took),
        millis(proof.restored_ms),
        count(usize::try_from(proof.keys).unwrap_or(usize::MAX), "key")
    )
}

/// The number of snapshots, and the age of the newest.
pub fn listed(listed: &BTreeMap<HostName, BundlesFact>, now_ms: i64) -> String {
    let all: Vec<i64> = listed.values().flat_map(|fact| &fact.bundles).map(|bundle| bundle.taken_ms).collect();
    match all.iter().max() {
        Some(newest) => format!("{}, the newest taken {}", count(all.len(), "snapshot"), ago(*newest, now_ms)),
        None => "no reachable etcd host has a snapshot yet".to_owned(),
    }
}

fn proven(proof: &Proof) -> String {
    format!("test-restored in {}", millis(proof.restored_ms))
}

/// The snapshot that was taken, and where it is stored.
pub fn taken(host: &HostName, bundle: &BundleFact, fetched: Option<&Path>) -> String {
    let keys = bundle.proof.keys;
    let what =
        format!("revision {}, {keys} keys, {}, {}", bundle.point.revision, bytes(bundle.bytes), proven(&bundle.proof));
    match fetched {
        Some(path) => format!("{}: {what}; a copy is on {host}", path.display()),
        None => format!("{} on {host}: {what}", clean(&bundle.name)),
    }
}

/// The manifest of a snapshot.
pub fn manifest(manifest: &Manifest, now_ms: i64) -> String {
    let (point, term, index) = (&manifest.point, manifest.point.term, manifest.point.index);
    let lines = [
        ("cluster", format!("{} (CA {})", manifest.cluster, manifest.authority.short())),
        ("taken", format!("{} on {}", ago(manifest.taken_ms, now_ms), manifest.host)),
        (
            "etcd",
            format!("{}, cluster {}, term {}, entry {}", clean(&manifest.etcd), clean(&point.cluster), term, index),
        ),
        ("revision", format!("{}; the highest known at that time was {}", point.revision, point.high_water)),
        ("keys", format!("{} with all their revisions, hash {:08x}", manifest.proof.keys, manifest.proof.hash)),
        ("snapshot", bytes(manifest.snapshot.size)),
        ("proof", proven(&manifest.proof)),
    ];
    lines.iter().map(|(head, words)| format!("  {head:<9} {words}\n")).collect::<Vec<_>>().concat()
}

/// The result of a verification.
pub fn verified(path: &Path, restored: Option<&(HostName, Proof)>) -> String {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let whole = format!("{} is intact and decrypts", clean(&name));
    match restored {
        Some((host, proof)) => {
            let (took, keys) = (millis(proof.restored_ms), proof.keys);
            format!("{whole}; restored on {host}, it answers after {took} with {keys} keys")
        }
        None => format!("{whole}; --deep restores it as well"),
    }
}

/// The snapshots that were removed, one line each.
pub fn removed(removed: &BTreeMap<HostName, Vec<String>>) -> String {
    let lines = removed.iter().flat_map(|(host, names)| names.iter().map(move |n| format!("{host}: {}\n", clean(n))));
    lines.collect()
}
