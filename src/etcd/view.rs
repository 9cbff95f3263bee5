//! Reading from a member: its own view, whether a quorum stands behind it, its hash, one raw key.
//!
//! In: [`Access`] and a deadline. Out: what it says. Status and member list come from the member alone and work without
//! quorum; the linearizable read is the proof of one.

use super::{Access, EtcdError, Link, ask};
use crate::model::facts::EtcdView;
use etcd_client::{GetOptions, StatusResponse};
use std::time::Duration;

/// A key that need not exist: reading it proves a quorum all the same.
const ANY_KEY: &str = "\0hactl";
/// Longest text taken from a member.
const LONGEST: usize = 200;

/// Whether a member that knows no leader is given the time to find one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// It is: within what it may take.
    Awaited,
    /// It is not: whoever asks looks again by itself where there may be an election.
    NotAwaited,
}

/// What the member says, and why a quorum does not stand behind it if none does.
pub async fn view(
    access: &Access,
    within: Duration,
    election: Election,
) -> Result<(EtcdView, Option<EtcdError>), EtcdError> {
    let link = access.connect(within / 2).await?;
    let (mut a, mut b) = (link.0.clone(), link.0.clone());
    let status = ask("tell its status", within, a.status());
    let both = async {
        match election {
            Election::Awaited => tokio::join!(status, quorum(&link, within)),
            Election::NotAwaited => match status.await {
                Ok(status) if status.leader() == 0 => (Ok(status), Err(EtcdError::Leaderless)),
                Ok(status) => tokio::select! {
                    quorum = quorum(&link, within) => (Ok(status), quorum),
                    // One whose others have just died believes in its quorum for an election's time.
                    status = leaderless(&link, within) => (Ok(status), Err(EtcdError::Leaderless)),
                },
                status => (status, quorum(&link, within).await),
            },
        }
    };
    let (members, (status, quorum)) = tokio::join!(ask("list its members", within, b.member_list()), both);
    let status = status?;
    // Asked after the linearizable read, the list cannot be older than that: members that speak at the same time list the same.
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
        // So called in the client: `dbSizeInUse` of the answer.
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

/// The alarms in a status, which the member tells without quorum, unlike the list of alarms.
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

/// Between two looks at whether a member has noticed that its quorum is gone.
const NOTICED_EVERY: Duration = Duration::from_millis(100);

/// What the member says once it knows no leader any more; nothing, as long as it knows one.
async fn leaderless(link: &Link, within: Duration) -> StatusResponse {
    loop {
        tokio::time::sleep(NOTICED_EVERY).await;
        // Whoever does not say so is asked again; how long, the other question decides.
        if let Ok(status) = ask("tell its status", within, link.0.clone().status()).await
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
    /// The member list as of now: a linearizable read first, then this member's list cannot be older.
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
