//! The newest snapshots of the other etcd hosts are copied to this host, `hactl host-peer-snapshots`: a timer starts it,
//! more often than snapshots are taken.
//!
//! In: the files of the guard, the snapshots of the other etcd hosts. Out: a copy of the newest of each, or the reason
//! why there is none, for `hactl status`.

use super::setup::{self, GuardError};
use crate::agent::{PeerSnapshots, Root};
use crate::model::causes::causes;
use crate::model::healing::Policy;
use crate::model::names::HostName;
use crate::protocol::{Op, OpError, OpErrorKind, Reply};
use crate::snapshot::Trust;
use crate::transport::{Agent, HostError, Payload, Peers, PiecesError, receive};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a host may take to describe its newest snapshot.
const ANSWER: Duration = Duration::from_secs(30);

/// Why nothing is copied.
#[derive(Debug, thiserror::Error)]
pub enum PeerSnapshotsError {
    /// The files of the guard cannot be used.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The own directory.
    #[error("{}", .0.what)]
    Folder(OpError),
    /// Some hosts.
    #[error("no copy of the newest snapshot of {0}")]
    Hosts(String),
}

impl From<OpError> for PeerSnapshotsError {
    fn from(fault: OpError) -> Self {
        Self::Folder(fault)
    }
}

/// Why the snapshot of one host is not copied.
#[derive(Debug, thiserror::Error)]
enum NotCopied {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Pieces(#[from] PiecesError),
    #[error("the host answered something else than its newest snapshot")]
    Odd,
    #[error("{}", .0.what)]
    Refused(OpError),
}

/// Copies the newest snapshot of each other etcd host that this host does not have yet.
///
/// # Errors
/// Nothing could be copied, or not from every host.
pub async fn copy_peer_snapshots(root: &Root, own: &HostName, say: fn(&str)) -> Result<(), PeerSnapshotsError> {
    let (setup, identity) = setup::healing(root, own)?;
    let trust = Trust::of(identity.authorities.iter().map(|authority| authority.to_vec()));
    let peers = setup.peers(&identity)?;
    copied(root, &setup.policy, own, (&peers, trust), say).await
}

/// Copies from the hosts of this policy.
pub(super) async fn copied(
    root: &Root,
    policy: &Policy,
    own: &HostName,
    (peers, trust): (&Peers, Trust),
    say: fn(&str),
) -> Result<(), PeerSnapshotsError> {
    let Some(kept) = PeerSnapshots::open(root, trust)? else {
        say("this host has taken no snapshot yet: those of other hosts are copied once it has");
        return Ok(());
    };
    let mut outcomes = BTreeMap::new();
    for host in policy.guards.iter().filter(|guard| guard.may_vote() && guard.name != *own) {
        let outcome = copy(&kept, peers, &host.name, say).await;
        let failed = |error: NotCopied| match error {
            NotCopied::Refused(fault) => fault,
            other => OpError { kind: OpErrorKind::Failed, what: causes(&other), tail: vec![] },
        };
        outcomes.insert(host.name.clone(), outcome.map_err(failed));
    }
    let failed: Vec<String> = outcomes
        .iter()
        .filter_map(|(host, outcome)| outcome.as_ref().err().map(|fault| format!("{host}: {}", fault.what)))
        .collect();
    kept.end(outcomes)?;
    if failed.is_empty() { Ok(()) } else { Err(PeerSnapshotsError::Hosts(failed.join("; "))) }
}

async fn copy(kept: &PeerSnapshots, peers: &Peers, host: &HostName, say: fn(&str)) -> Result<(), NotCopied> {
    let agent = peers.reach(host).await?;
    let copied = copy_from(kept, &*agent, say).await;
    agent.close().await;
    copied
}

async fn copy_from(kept: &PeerSnapshots, agent: &dyn Agent, say: fn(&str)) -> Result<(), NotCopied> {
    let host = agent.name();
    let newest = match agent.call(Op::NewestBundle, Payload::None, ANSWER, &|_| {}).await? {
        Reply::Newest(Some(newest)) => newest,
        // It has just been installed, or stands by.
        Reply::Newest(None) => return Ok(()),
        _ => return Err(NotCopied::Odd),
    };
    let Some(mut incoming) = kept.begin(host, newest).map_err(NotCopied::Refused)? else { return Ok(()) };
    let (name, bytes) = (incoming.name().to_owned(), incoming.bytes());
    receive(agent, bytes, &mut incoming, |from| Op::ReadBundle { name: name.clone(), from }).await?;
    kept.keep(host, incoming).map_err(NotCopied::Refused)?;
    say(&format!("copied {name} from {host}, {bytes} bytes"));
    Ok(())
}
