//! Snapshots in directories of the hosts, such as a mounted share: lists and fetches them from this machine.
//!
//! In: a session. Out: the copies in the directories of its inventory, and those that etcd hosts keep of one another's
//! snapshots, or a message why they are unknown. It needs only SSH and the inventory; the hosts may be bare.

use super::away::Fetched;
use super::bundles::{Unusable, machine, received};
use super::{Failure, Session};
use crate::model::bucket::Destination;
use crate::model::copies::{CopiesFact, CopiesListed, CopyAddress, MOST_DIRECTORIES, Shared, believed, shared};
use crate::model::names::{Digest, HostName};
use crate::model::snapshot::{BundleFact, PEERS};
use crate::plan::Away;
use crate::protocol::{CopiesAsk, Op, Reply};
use crate::snapshot::Trust;
use crate::transport::Payload;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Timeout of a host for its list of copies, and for a piece of one: longer than the host waits for an unreachable
/// share.
const ANSWER: Duration = Duration::from_secs(30);

/// The directories with copies on each etcd host.
fn directories(session: &Session) -> Vec<String> {
    let all = session.desired.snapshots.to.iter();
    let all = all.filter_map(|to| if let Destination::Directory(path) = to { path.to_str() } else { None });
    let once: BTreeSet<String> = all.map(str::to_owned).collect();
    let peers = (session.desired.may_vote().count() > 1).then(|| PEERS.to_owned());
    peers.into_iter().chain(once).take(MOST_DIRECTORIES).collect()
}

/// Fingerprint of this cluster's CA, if there is a state.
pub(super) async fn authority(session: &Session) -> Option<Digest> {
    let state = session.state(false).await.ok().filter(|state| state.state_dir().is_some());
    state.map(|state| state.publics().founded)
}

/// The copies of this cluster on every connected etcd host: those with this cluster's CA, or, if the CA is unknown, all
/// with the cluster's name. Asks no host if there are no directories. `named`: a file that is always read.
pub(super) async fn find(session: &Session, authority: Option<Digest>, named: Option<&str>, all: bool) -> CopiesListed {
    let directories = directories(session);
    if directories.is_empty() {
        return CopiesListed::new();
    }
    let trust = &super::authentic::trust(session).await;
    let hosts = session.desired.may_vote().filter(|host| session.machines.contains_key(&host.name));
    let each = hosts.map(async |host| {
        let found = on(session, &host.name, &directories, (authority, trust.as_ref()), named, all).await;
        (host.name.clone(), found.map_err(|failure| failure.to_string()))
    });
    futures::future::join_all(each).await.into_iter().collect()
}

/// All copies, for a person.
pub async fn list(session: &Session) -> CopiesListed {
    find(session, authority(session).await, None, true).await
}

async fn on(
    session: &Session,
    host: &HostName,
    directories: &[String],
    (authority, trust): (Option<Digest>, Option<&Trust>),
    named: Option<&str>,
    all: bool,
) -> Result<Vec<CopiesFact>, Failure> {
    let cluster = session.desired.cluster.clone();
    let ask = CopiesAsk::Find {
        cluster: cluster.clone(),
        authority,
        named: named.map(str::to_owned),
        all,
        directories: directories.to_vec(),
    };
    match machine(session, host)?.call(Op::Copies(ask), Payload::None, ANSWER, &|_| {}).await {
        Ok(Reply::Copies(found)) => {
            let mut found = believed(found, directories, &cluster, authority, named);
            if let Some(trust) = trust {
                super::authentic::copies(trust, &mut found);
            }
            Ok(found)
        }
        Ok(_) => Err(Failure::Odd(host.clone())),
        Err(error) => Err(Failure::of_host(host, error)),
    }
}

/// The copies as sources of a recovery. Warns of what is unknown, once for all hosts with the same message.
pub(super) async fn sources(session: &Session, authority: Digest, named: Option<&str>) -> Vec<Away> {
    let listed = find(session, Some(authority), named, false).await;
    tell(session, &listed);
    let stated =
        shared(&listed).into_iter().map(|one| (one.address().to_string(), &one.copy.bundle)).collect::<Vec<_>>();
    super::authentic::tell(session, stated.into_iter());
    let away = |one: Shared<'_>| {
        let (host, bundle) = (one.copy.by.clone(), one.copy.bundle.clone());
        Away { place: one.place(), host, bundle }
    };
    shared(&listed).into_iter().map(away).collect()
}

/// Warns of copies that are left out, and names the hosts.
pub(super) fn tell(session: &Session, listed: &CopiesListed) {
    for text in warnings(listed) {
        session.sink.warn(text);
    }
}

fn warnings(listed: &CopiesListed) -> Vec<String> {
    let mut said: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (host, found) in listed {
        let left_out = |why: &String| format!("newer snapshots may be missing: {why}");
        let texts: Vec<String> = match found {
            Err(why) => vec![left_out(why)],
            Ok(found) => {
                let damaged = found.iter().flat_map(|fact| &fact.damaged);
                let damaged = damaged.map(|why| format!("ignoring a snapshot: {why}"));
                damaged.chain(found.iter().filter_map(|fact| fact.trouble.as_ref()).map(left_out)).collect()
            }
        };
        for text in texts {
            said.entry(text).or_default().push(host.as_str());
        }
    }
    said.into_iter().map(|(text, hosts)| format!("{text} (on {})", hosts.join(", "))).collect()
}

/// The address of the best copy.
pub(super) fn newest(listed: &CopiesListed) -> Option<(CopyAddress, &BundleFact)> {
    let best = shared(listed).into_iter().max_by_key(|one| super::authentic::worth(&one.copy.bundle));
    best.map(|one| (one.address(), &one.copy.bundle))
}

/// The address of the copy with this name.
pub(super) fn named(listed: &CopiesListed, name: &str) -> Option<CopyAddress> {
    let all = shared(listed).into_iter().filter(|one| one.copy.bundle.name == name);
    all.max_by_key(|one| super::authentic::worth(&one.copy.bundle)).as_ref().map(Shared::address)
}

/// Fetches a complete copy and verifies every byte. Never fetches more than its manifest announces.
pub(super) async fn fetch(session: &Session, at: &CopyAddress) -> Result<Fetched, Failure> {
    session.sink.phase(format!("fetching {at}"));
    let directories = [at.directory.clone()];
    let mut found = on(session, &at.host, &directories, (None, None), Some(&at.name), false).await?;
    let found = found.pop().unwrap_or_default();
    let Some(copy) = found.copies.into_iter().find(|copy| copy.bundle.name == at.name) else {
        let why = found.damaged.into_iter().find(|why| why.contains(&at.name)).or(found.trouble);
        let why = why.unwrap_or_else(|| "it does not exist".to_owned());
        return Err(Unusable::NoCopy { at: at.to_string(), why }.into());
    };
    let fetched = Fetched::place(session, &at.name)?;
    let piece = |from| {
        let (directory, name) = (at.directory.clone(), at.name.clone());
        Op::Copies(CopiesAsk::Read { directory, name, from })
    };
    received(session, &at.host, copy.bundle.bytes, fetched.path(), piece).await?;
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_several_hosts_about_one_share_are_shown_once() {
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let unreachable = CopiesFact {
            directory: "/mnt/backup".to_owned(),
            damaged: vec!["/mnt/backup/x.hactl is not whole".to_owned()],
            trouble: Some("/mnt/backup is not there; is it mounted?".to_owned()),
            ..CopiesFact::default()
        };
        let listed: CopiesListed = [
            (host("cp1"), Ok(vec![unreachable.clone()])),
            (host("cp2"), Ok(vec![CopiesFact { damaged: Vec::new(), ..unreachable }])),
            (host("cp3"), Err("cp3: it does not answer".to_owned())),
            (host("cp4"), Ok(vec![CopiesFact::default()])),
        ]
        .into();
        let wanted = [
            "ignoring a snapshot: /mnt/backup/x.hactl is not whole (on cp1)",
            "newer snapshots may be missing: /mnt/backup is not there; is it mounted? (on cp1, cp2)",
            "newer snapshots may be missing: cp3: it does not answer (on cp3)",
        ];
        assert_eq!(warnings(&listed), wanted);
    }
}
