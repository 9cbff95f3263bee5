//! `hactl state pull`: rebuilds the administrator's state from hosts, shares and object storage.
//!
//! In: an identity, and optionally a snapshot. Out: a state directory, after a person has confirmed the fingerprint of
//! its CA. Encryption proves no origin: anyone with the public recipient can encrypt to the identity. But a state
//! contains the key of its CA, so it is as trustworthy as that CA; the fingerprint shows which CA it is
//! ([`heirs`](super::heirs)).

use super::authentic::now_ms;
use super::away::{Fetched, local};
use super::bundles::{ANSWER, Listed, fetch, identities, list, verify};
use super::heirs::{Candidate, choose, judge_shown};
use super::{Failure, Session, State, Unusable};
use crate::model::bucket::{SCHEME, folder};
use crate::model::certificate::CertFact;
use crate::model::copies::{CopiesListed, CopyAddress, shared};
use crate::model::desired::{Host, Role};
use crate::model::names::{ClusterName, Digest, HostName};
use crate::model::refusal::Refusal;
use crate::model::snapshot::{BundleFact, by_name};
use crate::model::timestamp::is_ahead;
use crate::protocol::{Op, Reply};
use crate::reconcile::{Ask, Choices};
use crate::snapshot::{Identities, LARGEST_STATE, Stored};
use crate::statedir::uncarry;
use crate::transport::Payload;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most snapshots that are fetched to find a usable one.
const TRIES: usize = 5;

/// The encrypted state on hosts.
const SEALED: &str = "/var/lib/hactl/state.age";
/// The CAs that are in use on hosts.
const SHOWN: [&str; 2] = ["/etc/kubernetes/pki/ca.crt", "/etc/etcd/pki/ca.crt"];

/// The options of the command line.
#[derive(Debug, Clone, Default)]
pub struct Pulling {
    /// The snapshot to rebuild it from; `None`: the latest.
    pub file: Option<PathBuf>,
    /// The identity that decrypts it.
    pub identity: PathBuf,
    /// SHA-256 of the cluster's CA, as the person knows it.
    pub fingerprint: Option<Digest>,
}

/// Rebuilds the administrator's state from the named snapshot, or from the latest state on hosts and in snapshots on
/// hosts, in their directories or in object storage.
///
/// # Errors
/// The state already exists; no state can be used; two states contradict each other; no person confirmed the CA.
pub async fn pull(
    session: &mut Session,
    asked: &Pulling,
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<PathBuf, Failure> {
    let state = session.places.state.clone();
    if fs::symlink_metadata(&state).is_ok() {
        return Err(crate::statedir::StateDirError::Exists { path: state }.into());
    }
    let found = match &asked.file {
        Some(file) => {
            let (path, _fetched) = local(session, file).await?;
            vec![opened(&path, &identities(Some(&asked.identity), &state, &path)?, file.display().to_string())?]
        }
        None => everywhere(session, asked, &identities(Some(&asked.identity), &state, Path::new(SEALED))?).await?,
    };
    let wanted = session.desired.cluster.clone();
    let (found, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.carried.cluster == wanted);
    if let (true, Some(other)) = (found.is_empty(), others.into_iter().next()) {
        let (theirs, authority) = (other.carried.cluster, other.carried.contents.rotations.founded.short());
        return Err(Unusable::OtherCluster { path: other.from.into(), theirs, authority }.into());
    }
    let chosen = choose(found, asked.fingerprint)?;
    let said = judge_shown(&chosen, &shown(session).await, asked.fingerprint.is_some())?;
    let (own, anchor) = (chosen.carried.contents.cluster.fingerprint(), chosen.lineage.anchor());
    session.sink.note(chosen.described());
    session.sink.note(said);
    match asked.fingerprint {
        Some(_) => {}
        None if choices.yes => {
            return Err(Refusal::NeedsFingerprint { cluster: wanted, ca: anchor.fingerprint() }.into());
        }
        None => {
            let now = if own == anchor { String::new() } else { format!(", and today {}", own.fingerprint()) };
            let question = format!("Is this the CA of {wanted}? {}{now}", anchor.fingerprint());
            ask.yes(&question, &format!("the state of {wanted}: the CA {}", anchor.fingerprint()))?;
        }
    }
    State::rebuilt(&state, chosen.carried)?;
    Ok(state)
}

/// The state in a snapshot.
fn opened(path: &Path, identities: &Identities, from: String) -> Result<Candidate, Unusable> {
    // The state proves itself by its keys; the signature of the rest is checked if there is one.
    let (_, carried, _) = verify(path, identities, None, true)?;
    Ok(Candidate::of(from, carried))
}

/// The state in the newest usable snapshot, and the states on hosts: those may be newer after a rotation, or the only
/// ones.
async fn everywhere(
    session: &mut Session,
    asked: &Pulling,
    identities: &Identities,
) -> Result<Vec<Candidate>, Failure> {
    let bundle = newest_anywhere(session, asked.fingerprint, identities).await;
    let mut found = on_hosts(session, identities).await;
    match bundle {
        Ok(bundle) => found.push(bundle),
        Err(failure) if found.is_empty() => return Err(failure),
        Err(failure) => session.sink.warn(format!("no snapshot is usable: {failure}")),
    }
    Ok(found)
}

/// The hosts that store the state; others must not have it, so they are not asked.
fn keepers(session: &Session) -> Vec<&Host> {
    let keeps = |host: &&Host| host.may_vote() || host.is(Role::ControlPlane);
    session.desired.hosts.iter().filter(keeps).collect()
}

/// The contents of files on each of these hosts that is connected.
async fn texts(session: &Session, paths: &[&str]) -> BTreeMap<HostName, BTreeMap<String, String>> {
    let connected =
        keepers(session).into_iter().filter_map(|host| Some((&host.name, session.machines.get(&host.name)?)));
    let read = connected.map(async |(host, machine)| {
        let op = Op::ReadFiles { paths: paths.iter().map(|path| (*path).to_owned()).collect() };
        match machine.call(op, Payload::None, ANSWER, &|_| {}).await {
            Ok(Reply::Texts(texts)) => Some((host.clone(), texts)),
            // Other hosts or a snapshot may still have the state.
            Ok(_) | Err(_) => None,
        }
    });
    futures::future::join_all(read).await.into_iter().flatten().collect()
}

/// The states on hosts that the identities decrypt.
async fn on_hosts(session: &Session, identities: &Identities) -> Vec<Candidate> {
    let open = |(host, mut texts): (HostName, BTreeMap<String, String>)| {
        let text = identities.text(texts.remove(SEALED)?.as_bytes(), LARGEST_STATE).ok()?;
        Some(Candidate::of(host.to_string(), uncarry(&text).ok()?))
    };
    texts(session, &[SEALED]).await.into_iter().filter_map(open).collect()
}

/// The CAs in use on each of these hosts that answers; none on a bare host.
async fn shown(session: &Session) -> BTreeMap<HostName, BTreeSet<Digest>> {
    let read = |texts: BTreeMap<String, String>| {
        let all = texts.values().flat_map(|text| CertFact::read_pem(text.as_bytes()));
        all.map(|certificate| certificate.fingerprint).collect()
    };
    texts(session, &SHOWN).await.into_iter().map(|(host, texts)| (host, read(texts))).collect()
}

/// Refuses snapshots of several clusters with the same name: a person has to choose, because the keys of another
/// cluster must not be used. Their directories in object storage, and the manifests of copies, name their CA.
fn one_cluster(stored: &[Stored], copies: &CopiesListed, cluster: &ClusterName) -> Result<(), Unusable> {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in stored {
        places.entry(one.place.folder().to_owned()).or_default().insert(one.place.to_string());
    }
    for one in shared(copies) {
        let of = places.entry(folder(cluster, one.copy.bundle.authority)).or_default();
        // The newest one represents all.
        if !of.iter().any(|place| !place.starts_with(SCHEME)) {
            of.insert(one.address().to_string());
        }
    }
    if places.len() > 1 { Err(Unusable::Several(places.into_values().flatten().collect())) } else { Ok(()) }
}

/// The place of a snapshot; the nearest first.
enum Lies<'a> {
    OnHost(&'a HostName, &'a BundleFact),
    InDirectory(CopyAddress),
    Stored(&'a Stored),
}

/// All snapshots, newest first by their timestamps; of equally new ones the nearest first; those dated in the future
/// last.
fn newest_first<'a>(listed: &'a Listed, copies: &CopiesListed, stored: &'a [Stored], now_ms: i64) -> Vec<Lies<'a>> {
    let own = listed.iter().flat_map(|(host, fact)| fact.bundles.iter().map(move |bundle| (host, bundle)));
    let own = own.map(|(host, bundle)| (Some(bundle.taken_ms), Lies::OnHost(host, bundle)));
    let copies = shared(copies).into_iter();
    let copies = copies.map(|one| (Some(one.copy.bundle.taken_ms), Lies::InDirectory(one.address())));
    let stored = stored.iter().map(|one| (by_name(&one.name).map(|by| by.taken_ms), Lies::Stored(one)));
    let mut all: Vec<_> = own.chain(copies).chain(stored).collect();
    all.sort_by_key(|(taken_ms, _)| (taken_ms.is_none_or(|at| is_ahead(at, now_ms)), std::cmp::Reverse(*taken_ms)));
    all.into_iter().map(|(_, lies)| lies).collect()
}

/// The state in the newest snapshot on the hosts, in their directories and in object storage. Skips snapshots that are
/// damaged, forged, encrypted to other recipients, or from another CA than the known one.
async fn newest_anywhere(
    session: &mut Session,
    wanted: Option<Digest>,
    identities: &Identities,
) -> Result<Candidate, Failure> {
    if session.desired.snapshots.storage.is_none() {
        session.anybody().await?;
    }
    let mut stored = Vec::new();
    for found in super::away::list(session).await.into_values() {
        match found {
            Ok(more) => stored.extend(more),
            Err(error) => session.sink.warn(format!("snapshots there are left out: {error}")),
        }
    }
    let listed = list(session).await?;
    let copies = super::copies::find(session, None, None, false).await;
    super::copies::tell(session, &copies);
    if wanted.is_none() {
        one_cluster(&stored, &copies, &session.desired.cluster)?;
    }
    let mut last = Failure::from(Unusable::None);
    for lies in newest_first(&listed, &copies, &stored, now_ms()).into_iter().take(TRIES) {
        let (from, fetched) = match lies {
            Lies::OnHost(host, bundle) => {
                let at = Fetched::place(session, &bundle.name)?;
                (format!("{} on {host}", bundle.name), fetch(session, host, bundle, at.path()).await.map(|_| at))
            }
            Lies::InDirectory(at) => (at.to_string(), super::copies::fetch(session, &at).await),
            Lies::Stored(one) => (one.url(), super::away::fetch(session, &one.url()).await),
        };
        let opened = fetched.and_then(|at| Ok(opened(at.path(), identities, from.clone())?));
        let useless = match opened {
            Ok(found) if wanted.is_none_or(|wanted| found.lineage.has(&wanted)) => return Ok(found),
            Ok(other) => Failure::from(Refusal::OtherCa { wanted, claims: vec![other.claim()] }),
            Err(failure @ Failure::Recovery(_)) => failure,
            Err(failure) => return Err(failure),
        };
        session.sink.warn(format!("{from}: {useless}; trying the next best snapshot"));
        last = useless;
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::bucket::BucketUrl;
    use crate::model::copies::{CopiesFact, CopyFact};
    use crate::model::names::Digest;
    use crate::model::snapshot::{BundlesFact, Point, Proof};

    #[test]
    fn the_newest_comes_first_and_the_nearest_of_equally_new_ones() {
        let fact = |host: &str, hour: i64| BundleFact {
            name: format!("lab-20261122T{hour:02}0000000Z-{host}.hactl"),
            bytes: 1,
            taken_ms: 1_795_305_600_000 + hour * 3_600_000,
            authority: Digest::of(b"ours"),
            point: Point { cluster: "c".to_owned(), term: 1, index: 1, revision: 1, high_water: 1 },
            etcd: "3.6.16".to_owned(),
            proof: Proof { keys: 1, hash: 1, restored_ms: 1 },
            signed: None,
            authenticity: crate::model::authentic::Authenticity::Unchecked,
        };
        let copy = |hour| CopyFact { by: "cp2".parse().unwrap(), bundle: fact("cp2", hour) };
        let found =
            CopiesFact { directory: "/mnt/backup".to_owned(), copies: vec![copy(7), copy(6)], ..CopiesFact::default() };
        let copies = CopiesListed::from([("cp3".parse().unwrap(), Ok(vec![found]))]);
        let own = BundlesFact { bundles: vec![fact("cp1", 6)], ..BundlesFact::default() };
        let listed = Listed::from([("cp1".parse().unwrap(), own)]);
        let stored = |hour| Stored { place: "s3://one".parse().unwrap(), name: fact("cp1", hour).name, bytes: 1 };
        let stored = [stored(6), stored(8)];
        let said = newest_first(&listed, &copies, &stored, i64::MAX).into_iter().map(|lies| match lies {
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
    fn a_person_chooses_between_two_clusters_of_one_name_wherever_their_snapshots_are_stored() {
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
                signed: None,
                authenticity: crate::model::authentic::Authenticity::Unchecked,
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
