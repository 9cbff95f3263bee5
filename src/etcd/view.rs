//! Reads from a member: its own view, whether it has a quorum, its hash, one raw key.
//!
//! In: [`Access`] and a deadline. Out: its report. Status and member list come from the member alone and work without
//! quorum; the linearizable read proves a quorum.

use super::{Access, EtcdError, Link, ask};
use crate::model::facts::EtcdView;
use etcd_client::{GetOptions, StatusResponse};
use std::time::Duration;

/// A key that need not exist: reading it proves a quorum anyway.
const ANY_KEY: &str = "\0hactl";
/// The longest text accepted from a member.
const LONGEST: usize = 200;

/// Whether a member without a leader gets time to elect one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// Yes: within the timeout.
    Awaited,
    /// No: the caller polls again if there may be an election.
    NotAwaited,
}

/// The view of the member, and why it has no quorum if it has none.
pub async fn view(
    access: &Access,
    within: Duration,
    election: Election,
) -> Result<(EtcdView, Option<EtcdError>), EtcdError> {
    let link = access.connect(within / 2).await?;
    let (mut a, mut b) = (link.0.clone(), link.0.clone());
    let status = ask("report its status", within, a.status());
    let both = async {
        match election {
            Election::Awaited => tokio::join!(status, quorum(&link, within)),
            Election::NotAwaited => match status.await {
                Ok(status) if status.leader() == 0 => (Ok(status), Err(EtcdError::Leaderless)),
                Ok(status) => tokio::select! {
                    quorum = quorum(&link, within) => (Ok(status), quorum),
                    // A member whose peers have just died assumes its quorum for an election timeout.
                    status = leaderless(&link, within) => (Ok(status), Err(EtcdError::Leaderless)),
                },
                status => (status, quorum(&link, within).await),
            },
        }
    };
    let (members, (status, quorum)) = tokio::join!(ask("list its members", within, b.member_list()), both);
    let status = status?;
    // Queried after the linearizable read, the list cannot be older than that: members that answer at the same time
    // have the same list.
    let members = match &quorum {
        Ok(()) => ask("list its members", within, link.0.clone().member_list()).await?,
        Err(_) => members?,
    };
    let (cluster, member) = status.header().map_or((0, 0), |h| (h.cluster_id(), h.member_id()));
    let listed = members.members().iter().take(100).filter_map(|m| {
        let url = m.peer_urls().first()?.parse().ok()?;
        Some((m.id(), cut(m.name()), url, m.is_learner()))
    });
    let view = EtcdView {
        cluster: format!("{cluster:x}"),
        member,
        leader: status.leader(),
        term: status.raft_term(),
        applied: status.raft_applied_index(),
        revision: status.header().map_or(0, etcd_client::ResponseHeader::revision),
        db_bytes: status.db_size(),
        // The client's name for `dbSizeInUse` of the answer.
        in_use_bytes: status.raft_used_db_size(),
        quota_bytes: status.db_size_quota(),
        version: cut(status.version()),
        learner: status.is_learner(),
        linearizable: quorum.is_ok(),
        members: listed.collect(),
        alarms: alarms(&status),
    };
    Ok((view, quorum.err()))
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// The alarms in a status, which the member returns without quorum, unlike the list of alarms.
fn alarms(status: &StatusResponse) -> Vec<String> {
    let mut found: Vec<String> = status
        .errors()
        .iter()
        .filter_map(|text| text.split_once("alarm:")?.1.split_whitespace().next().map(cut))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Between two polls for whether a member has noticed the loss of its quorum.
const NOTICED_EVERY: Duration = Duration::from_millis(100);

/// The status of the member once it has no leader any more; never returns as long as it has one.
async fn leaderless(link: &Link, within: Duration) -> StatusResponse {
    loop {
        tokio::time::sleep(NOTICED_EVERY).await;
        // A member that has a leader is queried again; the other query decides how long.
        if let Ok(status) = ask("report its status", within, link.0.clone().status()).await
            && status.leader() == 0
        {
            return status;
        }
    }
}

async fn quorum(link: &Link, within: Duration) -> Result<(), EtcdError> {
    let mut client = link.0.clone();
    let options = GetOptions::new().with_limit(1).with_keys_only();
    ask("read with quorum", within, client.get(ANY_KEY, Some(options))).await.map(|_| ())
}

/// Whether a linearizable read through this member succeeds.
pub async fn holds_quorum(access: &Access, within: Duration) -> Result<(), EtcdError> {
    let link = access.connect(within).await?;
    quorum(&link, within).await
}

/// The hash of all keys up to a revision (0: the newest): revision, compact revision, hash.
pub async fn hash(access: &Access, revision: i64, within: Duration) -> Result<(i64, i64, u32), EtcdError> {
    let mut link = access.connect(within).await?;
    let answer = ask("hash its keys", within, link.0.hash_kv(revision)).await?;
    Ok((answer.hash_revision(), answer.compact_version(), answer.hash()))
}

/// The value of a key as it is stored in this member.
pub async fn raw(access: &Access, key: &str, within: Duration) -> Result<Option<Vec<u8>>, EtcdError> {
    let mut link = access.connect(within).await?;
    let options = GetOptions::new().with_serializable();
    let answer = ask("read a key", within, link.0.get(key, Some(options))).await?;
    Ok(answer.kvs().first().map(|kv| kv.value().to_vec()))
}

impl Link {
    /// The current member list: after a linearizable read, this member's list cannot be older.
    pub(super) async fn members(&mut self, within: Duration) -> Result<Vec<Listed>, EtcdError> {
        quorum(self, within).await?;
        let answer = ask("list its members", within, self.0.member_list()).await?;
        Ok(answer
            .members()
            .iter()
            .map(|m| Listed { id: m.id(), peers: m.peer_urls().to_vec(), learner: m.is_learner() })
            .collect())
    }
}

/// A member as listed.
pub(super) struct Listed {
    pub id: u64,
    pub peers: Vec<String>,
    pub learner: bool,
}
