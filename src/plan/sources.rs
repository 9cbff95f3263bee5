//! The sources of a recovery: data of members, data that was moved aside, and snapshots; the newest first.
//!
//! In: facts and a [`RecoveryRequest`]. Out: all readable sources, in raft's order. Data older than the last recovery
//! is listed only if a person asks for it.

use super::intent::Intent;
use super::recover::RecoveryRequest;
use crate::model::authentic::Authenticity;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{DiskFact, Facts, HostFacts};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plausible::MOST_AHEAD;
use crate::model::recovery::{Origin, Source, far_below};
use crate::model::snapshot::BundleFact;
use std::collections::BTreeSet;

/// Data or a snapshot, and what determines how new it is.
pub(super) struct Found<'a> {
    pub source: Source,
    pub cluster: &'a str,
    /// The facts of its files; `None`: it is a snapshot.
    pub disk: Option<&'a DiskFact>,
    /// The version of etcd that a snapshot was taken from.
    pub etcd: Option<&'a str>,
    /// The highest revision of any source of the same cluster. A recovery raises the revision far above all earlier
    /// ones, which distinguishes successive clusters.
    epoch: i64,
}

impl<'a> Found<'a> {
    /// The greatest is the newest; within a cluster by raft's rule.
    pub fn rank(&self) -> (i64, &str, (u64, u64)) {
        (self.epoch, self.cluster, self.source.reach)
    }

    /// The facts of a member's data, if that was not moved aside.
    pub fn in_place(&self) -> Option<&'a DiskFact> {
        self.disk.filter(|_| self.source.aside.is_none())
    }
}

/// A snapshot, the host that took it, and its place unless that is the host or this machine.
type Kept<'a> = (&'a HostName, &'a BundleFact, Option<&'a str>);

/// All sources of a recovery, the newest first; of the snapshots on each host only the newest.
pub(super) fn sources<'a>(
    facts: &'a Facts,
    hosts: &'a [Host],
    intent: &Intent,
    wish: &'a RecoveryRequest,
) -> Vec<Found<'a>> {
    let past = |revision: i64| intent.recovered.is_some_and(|base| far_below(revision, base));
    let asked = |origin: &Origin| wish.from.as_ref() == Some(origin);
    let answer = || hosts.iter().filter_map(|h| facts.host(&h.name)?.etcd.as_ref());
    let lives = |cluster: &String| answer().filter_map(|etcd| etcd.disk.as_ref()).any(|disk| &disk.cluster == cluster);
    let given_up = |facts: &HostFacts| facts.etcd.as_ref().is_some_and(|etcd| intent.gave_up(etcd));
    let mut found: Vec<Found> = Vec::new();
    for (host, facts) in hosts.iter().filter_map(|h| Some((&h.name, facts.host(&h.name)?))) {
        let wanted = |source: &Source, disk: &DiskFact| match (wish.undo, source.aside.is_some()) {
            // The current data is no source of an undo.
            (true, false) => asked(&source.origin()),
            // An abandoned recovery raised the revision above all others, and its cluster never served.
            (true, true) => {
                let lived = intent.lived.contains(&disk.cluster);
                asked(&source.origin()) || (wish.from.is_none() && lived && past(source.revision))
            }
            // Data of an abandoned recovery is a copy of its source with a raised revision, and its cluster never
            // served.
            (false, false) => !given_up(facts) && (wish.from.is_some() || !past(source.revision)),
            // Data of another cluster that was moved aside may be left over from an abandoned recovery: its revision
            // says nothing.
            (false, true) => {
                let lived = lives(&disk.cluster) || intent.lived.contains(&disk.cluster);
                asked(&source.origin()) || (lived && !past(source.revision))
            }
        };
        for (source, disk) in of_host(host, facts).into_iter().filter(|(source, disk)| wanted(source, disk)) {
            found.push(Found { source, cluster: &disk.cluster, disk: Some(disk), etcd: None, epoch: 0 });
        }
    }
    // Only of etcd hosts: other hosts have no sources.
    let answered = hosts.iter().filter_map(|h| Some((facts.hosts.get_key_value(&h.name)?.0, facts.host(&h.name)?)));
    let now_ms = answered.clone().map(|(_, f)| f.now_ms).max().unwrap_or(0);
    let asked = |bundle: &BundleFact| asked(&Origin::Bundle(bundle.name.clone()));
    let kept = |all: Vec<Kept<'a>>| {
        let whole = |b: &BundleFact, at: Option<&str>| !wish.damaged.contains(&(b.name.clone(), at.map(str::to_owned)));
        let ours = all.into_iter().filter(|(_, b, at)| b.authority == intent.cluster_id.ca && whole(b, *at));
        let ours = ours.filter(|(_, b, _)| wish.takes(b));
        let of_before =
            |b: &BundleFact| past(b.point.revision) || intent.taken_down_ms.is_some_and(|at| b.taken_ms < at);
        let ours: Vec<Kept> = ours.filter(|(_, b, _)| asked(b) || !(wish.undo || of_before(b))).collect();
        // By their content, not by a clock that may have been wrong.
        let newest = ours.iter().map(|(_, b, _)| *b).max_by_key(|b| (b.point.revision, b.point.term, b.point.index));
        ours.into_iter().filter(move |(_, b, _)| asked(b) || Some(*b) == newest)
    };
    let on_hosts = answered.flat_map(|(name, f)| {
        kept(f.bundles.iter().flat_map(|b| &b.bundles).map(|bundle| (name, bundle, None)).collect())
    });
    let on_hosts: Vec<Kept> = on_hosts.collect();
    // A snapshot that is also on a host is taken from the host.
    let there = |name: &str| on_hosts.iter().any(|(_, b, _)| b.name == name);
    // A place may hold snapshots of an earlier cluster of the same CA: if there is data in place, only snapshots of its
    // cluster count.
    let in_place: Vec<&str> = found.iter().filter_map(|f| f.in_place().and(Some(f.cluster))).collect();
    let related = |b: &BundleFact| in_place.is_empty() || in_place.contains(&b.point.cluster.as_str()) || asked(b);
    let away = wish.away.iter().filter(|away| !there(&away.bundle.name) && related(&away.bundle));
    let mut away: Vec<Kept> = kept(away.map(|a| (&a.host, &a.bundle, Some(a.place.as_str()))).collect()).collect();
    // Several places may have the same snapshot; the first is enough.
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    away.retain(|(_, bundle, _)| seen.insert(&bundle.name));
    let given = wish.bundle.iter().filter(|(_, bundle)| wish.takes(bundle));
    let given = given.map(|(host, bundle)| (host, bundle, None));
    for (host, bundle, away) in on_hosts.iter().copied().chain(away).chain(given) {
        let point = &bundle.point;
        let unsigned = bundle.authenticity == Authenticity::Unsigned;
        let source = Source {
            host: host.clone(),
            bundle: Some(bundle.name.clone()),
            away: away.map(str::to_owned),
            aside: None,
            reach: (point.term, point.index),
            revision: point.revision,
            age_ms: u64::try_from(now_ms.saturating_sub(bundle.taken_ms)).unwrap_or(0),
            db_bytes: bundle.bytes,
            ahead_ms: u64::try_from(bundle.taken_ms.saturating_sub(now_ms)).unwrap_or(0),
            flaws: unsigned.then(|| "it is not signed".to_owned()).into_iter().collect(),
        };
        found.push(Found { source, cluster: &point.cluster, disk: None, etcd: Some(&bundle.etcd), epoch: 0 });
    }
    let revisions: Vec<(&str, i64)> = found.iter().map(|f| (f.cluster, f.source.revision)).collect();
    for one in &mut found {
        let same = revisions.iter().filter(|(cluster, _)| *cluster == one.cluster).map(|(_, revision)| *revision);
        one.epoch = same.max().unwrap_or(0);
    }
    // Of equally new sources, data in place comes first, then data that was moved aside, then snapshots.
    let kind = |f: &Found| (f.disk.is_none(), f.source.aside.is_some());
    found.sort_by(|a, b| {
        b.rank().cmp(&a.rank()).then(kind(a).cmp(&kind(b))).then_with(|| a.source.host.cmp(&b.source.host))
    });
    // Only a person can prefer a snapshot to live data, however new the snapshot claims to be.
    let lives = found.iter().any(|f| f.in_place().is_some());
    found.sort_by_key(|f| lives && f.disk.is_none());
    found
}

/// Snapshots of this cluster that a recovery cannot use because they are forged, or unsigned without
/// `--accept-unsigned`.
pub(super) fn untrusted<'a>(
    facts: &'a Facts,
    hosts: &[Host],
    intent: &Intent,
    wish: &'a RecoveryRequest,
) -> Vec<&'a BundleFact> {
    let on_hosts = hosts.iter().filter_map(|h| facts.host(&h.name)?.bundles.as_ref()).flat_map(|b| &b.bundles);
    let given = wish.bundle.iter().map(|(_, bundle)| bundle);
    let all = on_hosts.chain(wish.away.iter().map(|away| &away.bundle)).chain(given);
    let asked =
        |bundle: &BundleFact| wish.from.as_ref().is_none_or(|from| *from == Origin::Bundle(bundle.name.clone()));
    all.filter(|b| b.authority == intent.cluster_id.ca && !wish.takes(b) && asked(b)).collect()
}

/// The data on a host that can be restored: its log and its database are both readable. The member's current data comes
/// first.
pub(super) fn of_host<'a>(host: &HostName, facts: &'a HostFacts) -> Vec<(Source, &'a DiskFact)> {
    let Some(etcd) = facts.etcd.as_ref() else { return Vec::new() };
    let aside = etcd.aside.iter().map(|(name, disk)| (Some(name.clone()), disk));
    let all = etcd.disk.iter().map(|disk| (None, disk)).chain(aside);
    let source = |(aside, disk): (Option<String>, &'a DiskFact)| {
        let found = Source {
            host: host.clone(),
            bundle: None,
            away: None,
            aside,
            reach: disk.reach(),
            revision: disk.revision?,
            age_ms: u64::try_from(facts.now_ms.saturating_sub(disk.written_ms)).unwrap_or(0),
            db_bytes: disk.db_bytes,
            ahead_ms: 0,
            flaws: disk.flaws.clone(),
        };
        Some((found, disk))
    };
    all.filter_map(source).collect()
}

/// The voters listed in the source, if it is a member's data in place. A snapshot, and data that was moved aside, does
/// not list later voters: then all etcd hosts of the inventory, and the voters listed in the newest data in place.
pub(super) fn voters(desired: &Desired, chosen: &Found, found: &[Found]) -> Vec<(Option<u64>, PeerUrl)> {
    let listed = |disk: &DiskFact| -> Option<Vec<(Option<u64>, PeerUrl)>> {
        Some(disk.voters()?.map(|(id, peer)| (Some(id), peer.clone())).collect())
    };
    if let Some(voters) = chosen.in_place().and_then(listed) {
        return voters;
    }
    let mut all: Vec<_> = desired.with(Role::Etcd).map(|h| (None, h.peer_url())).collect();
    let newest = found.iter().find_map(Found::in_place).and_then(listed).unwrap_or_default();
    for (id, peer) in newest {
        if !all.iter().any(|(_, known)| known == &peer) {
            all.push((id, peer));
        }
    }
    all
}

/// Revisions that were used, according to snapshots and readable data, each with its cluster and with the host that
/// reports it, if it is one.
fn stated<'a>(
    desired: &'a Desired,
    facts: &'a Facts,
    wish: &'a RecoveryRequest,
) -> impl Iterator<Item = (Option<&'a HostName>, &'a str, i64)> {
    let answered = || desired.may_vote().filter_map(|h| Some((Some(&h.name), facts.host(&h.name)?)));
    let bundles = answered().filter_map(|(host, f)| Some((host, f.bundles.as_ref()?)));
    let bundles = bundles.flat_map(|(host, b)| b.bundles.iter().map(move |bundle| (host, bundle)));
    let given = wish.bundle.iter().map(|(_, bundle)| (None, bundle));
    let bundles = bundles.chain(given).chain(wish.away.iter().map(|away| (None, &away.bundle)));
    let bundles = bundles.filter(|(_, bundle)| wish.takes(bundle));
    let bundles = bundles.map(|(host, b)| (host, b.point.cluster.as_str(), b.point.revision.max(b.point.high_water)));
    let disks = answered().filter_map(|(host, f)| Some((host, f.etcd.as_ref()?)));
    let disks = disks.flat_map(|(host, e)| e.disk.iter().chain(e.aside.values()).map(move |disk| (host, disk)));
    bundles.chain(disks.filter_map(|(host, disk)| Some((host, disk.cluster.as_str(), disk.revision?))))
}

/// The highest revision that a cluster is known to have used.
pub(super) fn reached(desired: &Desired, facts: &Facts, wish: &RecoveryRequest, cluster: &str) -> i64 {
    stated(desired, facts, wish).filter(|(_, by, _)| *by == cluster).map(|(.., revision)| revision).max().unwrap_or(0)
}

/// The highest plausible revision that is known to have been used, and the hosts that report an implausible one: no
/// cluster could have reached it from the sources and from earlier recoveries. A single host could otherwise exhaust
/// all revisions.
pub(super) fn highest(
    desired: &Desired,
    facts: &Facts,
    wish: &RecoveryRequest,
    from: i64,
) -> (i64, Vec<(HostName, i64)>) {
    let etcd = desired.may_vote().filter_map(|h| Some((&h.name, facts.host(&h.name)?.etcd.as_ref()?)));
    let members = etcd.flat_map(|(host, e)| {
        let revisions = e.high_water.into_iter().chain(e.view.as_ref().map(|view| view.revision));
        revisions.map(move |revision| (Some(host), revision))
    });
    let all = stated(desired, facts, wish).map(|(host, _, revision)| (host, revision)).chain(members);
    let (possible, beyond): (Vec<_>, Vec<_>) =
        all.partition(|(_, revision)| *revision <= from.saturating_add(MOST_AHEAD));
    let highest = possible.into_iter().map(|(_, revision)| revision).max().unwrap_or(0);
    (highest, beyond.into_iter().filter_map(|(host, revision)| Some((host?.clone(), revision))).collect())
}
