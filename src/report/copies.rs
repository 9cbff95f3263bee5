//! Texts about copies of snapshots in directories of hosts: each copy once, even if several hosts see the same share.

use super::snapshots::{ago, columns, distrusted};
use super::words::{bytes, clean};
use crate::model::copies::{CopiesFact, CopiesListed, CopyAddress, CopyName, shared};
use crate::model::names::HostName;
use crate::model::snapshot::by_name;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The findings, each with its host.
fn facts(listed: &CopiesListed) -> impl Iterator<Item = (&HostName, &CopiesFact)> {
    listed.iter().flat_map(|(host, found)| found.iter().flatten().map(move |fact| (host, fact)))
}

/// Copies that were not read: the first host that sees each, its directory and name, and its size.
fn others(listed: &CopiesListed) -> Vec<(CopyAddress, u64)> {
    let mut all: BTreeMap<(&str, &str), (CopyAddress, u64)> = BTreeMap::new();
    for (host, fact) in facts(listed) {
        for CopyName { name, bytes } in &fact.others {
            let (directory, host) = (fact.directory.clone(), host.clone());
            let at = CopyAddress { host, directory, name: name.clone() };
            all.entry((&fact.directory, name)).or_insert((at, *bytes));
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|(at, _)| std::cmp::Reverse(by_name(&at.name).map(|by| by.taken_ms)));
    all
}

/// Directories without copies, each with the hosts that read it.
fn empty(listed: &CopiesListed) -> BTreeMap<&str, Vec<&str>> {
    let mut seen: BTreeMap<&str, (Vec<&str>, bool)> = BTreeMap::new();
    for (host, fact) in facts(listed).filter(|(_, fact)| fact.trouble.is_none()) {
        let (hosts, some) = seen.entry(&fact.directory).or_default();
        hosts.push(host.as_str());
        *some |= !fact.copies.is_empty() || !fact.others.is_empty();
    }
    seen.into_iter().filter(|(_, (_, some))| !some).map(|(directory, (hosts, _))| (directory, hosts)).collect()
}

/// All copies, the newest first, and their problems; empty if no copies go to directories.
pub fn table(listed: &CopiesListed, now_ms: i64) -> String {
    let mut rows = vec![["TAKEN", "BY", "SIGNED BY", "REVISION", "SIZE", "ADDRESS", "ALSO ON"].map(str::to_owned)];
    rows.extend(shared(listed).into_iter().map(|one| {
        let bundle = &one.copy.bundle;
        [
            ago(bundle.taken_ms, now_ms),
            one.copy.by.to_string(),
            bundle.authenticity.to_string(),
            bundle.point.revision.to_string(),
            bytes(bundle.bytes),
            clean(&one.address().to_string()),
            one.also.iter().map(|host| host.as_str()).collect::<Vec<_>>().join(", "),
        ]
    }));
    rows.extend(others(listed).into_iter().map(|(at, size)| {
        let by = by_name(&at.name);
        let taken = by.map_or_else(|| "unknown".to_owned(), |by| ago(by.taken_ms, now_ms));
        let host = by.map_or_else(String::new, |by| clean(by.host));
        [taken, host, "not read".to_owned(), "-".to_owned(), bytes(size), clean(&at.to_string()), String::new()]
    }));
    let mut text = if rows.len() > 1 { format!("\n{}", columns(&rows)) } else { String::new() };
    for one in shared(listed) {
        text.push_str(&distrusted(&clean(&one.address().to_string()), &one.copy.bundle.authenticity));
    }
    for (directory, hosts) in empty(listed) {
        text.push_str(&format!("\n{}: none yet on {}\n", clean(directory), hosts.join(", ")));
    }
    for (host, found) in listed {
        match found {
            Err(why) => text.push_str(&format!("{}\n", clean(why))),
            Ok(found) => {
                for why in found.iter().flat_map(|fact| fact.damaged.iter().chain(&fact.trouble)) {
                    text.push_str(&format!("{host}: {}\n", clean(why)));
                }
            }
        }
    }
    text
}

/// One directory in the JSON output.
#[derive(Default, Serialize)]
struct CopyRow {
    bundles: Vec<Value>,
    damaged: BTreeMap<HostName, Vec<String>>,
    trouble: BTreeMap<HostName, String>,
}

/// The copies for programs, by directory.
pub fn json(listed: &CopiesListed) -> Value {
    let mut all: BTreeMap<&str, CopyRow> = BTreeMap::new();
    for (host, fact) in facts(listed) {
        let stated = all.entry(&fact.directory).or_default();
        if !fact.damaged.is_empty() {
            stated.damaged.insert(host.clone(), fact.damaged.clone());
        }
        stated.trouble.extend(fact.trouble.iter().map(|why| (host.clone(), why.clone())));
    }
    for one in shared(listed) {
        let hosts: Vec<&HostName> = std::iter::once(one.host).chain(one.also.iter().copied()).collect();
        all.entry(one.directory).or_default().bundles.push(json!({
            "name": one.copy.bundle.name,
            "address": one.address().to_string(),
            "on": hosts,
            "host": one.copy.by,
            "bytes": one.copy.bundle.bytes,
            "taken_ms": one.copy.bundle.taken_ms,
            "point": one.copy.bundle.point,
            "signed": one.copy.bundle.authenticity,
        }));
    }
    let others = others(listed);
    for (at, size) in &others {
        let by = by_name(&at.name);
        all.entry(&at.directory).or_default().bundles.push(json!({
            "name": at.name,
            "address": at.to_string(),
            "on": [at.host],
            "host": by.map(|by| by.host),
            "bytes": size,
            "taken_ms": by.map(|by| by.taken_ms),
            "point": null,
        }));
    }
    json!(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::copies::CopyFact;
    use crate::model::names::Digest;
    use crate::model::snapshot::{BundleFact, Point, Proof};

    #[test]
    fn a_share_that_two_hosts_see_is_listed_once_with_its_places_and_problems() {
        let copy = CopyFact {
            by: "cp2".parse().expect("a name"),
            bundle: BundleFact {
                name: "lab-20261122T060000000Z-cp2.hactl".to_owned(),
                bytes: 2048,
                taken_ms: 1_795_327_200_000,
                authority: Digest::of(b"ours"),
                point: Point { cluster: "c".to_owned(), term: 2, index: 3, revision: 900, high_water: 900 },
                etcd: "3.6.16".to_owned(),
                proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
                signed: None,
                authenticity: crate::model::authentic::Authenticity::Unchecked,
            },
        };
        let fact = CopiesFact {
            directory: "/mnt/backup".to_owned(),
            copies: vec![copy],
            others: vec![CopyName { name: "lab-20261121T060000000Z-cp1.hactl".to_owned(), bytes: 1024 }],
            ..CopiesFact::default()
        };
        let gone = CopiesFact {
            directory: "/mnt/backup".to_owned(),
            trouble: Some("/mnt/backup is not there; is it \u{1b}mounted?".to_owned()),
            ..CopiesFact::default()
        };
        let bare = CopiesFact { directory: "/srv".to_owned(), ..CopiesFact::default() };
        let host = |name: &str| name.parse::<HostName>().expect("a name");
        let listed: CopiesListed = [
            (host("cp1"), Ok(vec![fact.clone(), bare.clone()])),
            (host("cp2"), Ok(vec![fact, bare])),
            (host("cp3"), Ok(vec![gone])),
        ]
        .into();
        let text = table(&listed, 1_795_327_200_000 + 3_600_000);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("TAKEN") && lines[1].ends_with("ALSO ON"), "{text}");
        assert!(
            lines[2].contains("cp2  not checked  900")
                && lines[2].ends_with("cp1:/mnt/backup/lab-20261122T060000000Z-cp2.hactl  cp2"),
            "{text}"
        );
        assert!(lines[3].ends_with("cp1:/mnt/backup/lab-20261121T060000000Z-cp1.hactl"), "{text}");
        assert_eq!(lines.len(), 7, "{text}");
        assert!(text.contains("\n/srv: none yet on cp1, cp2\n") && !text.contains('\u{1b}'), "{text}");
        let stated = json(&listed);
        assert_eq!(stated["/mnt/backup"]["bundles"][0]["on"], json!(["cp1", "cp2"]));
        assert_eq!(stated["/mnt/backup"]["bundles"][1]["point"], Value::Null);
        assert!(stated["/mnt/backup"]["trouble"]["cp3"].is_string() && stated["/srv"]["bundles"] == json!([]));
        assert_eq!((table(&CopiesListed::new(), 0), json(&CopiesListed::new())), (String::new(), json!({})));
    }
}
