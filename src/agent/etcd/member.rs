//! The etcd member of this host: its first start, its bootstrapped marker, archiving its data, and membership changes
//! through it.
//!
//! In: the decision of the plan. Out: done, or a refusal: the state on the disk is decisive, so that no request can
//! bootstrap a second cluster on the disk of an existing one, or start a new member on the data of an old one.

use crate::agent::host::Host;
use crate::agent::machine::files::{remove, same, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::tree::Tree;
use crate::agent::machine::{ports, prepare, units, when};
use crate::agent::op_error::{Explain, Outcome, bad, failed, fault};
use crate::etcd::{self, Access, Election, EtcdError};
use crate::model::facts::ETCD_UNIT;
use crate::model::healing::Policy;
use crate::model::names::PeerUrl;
use crate::model::plausible::is_revision;
use crate::model::ports::ETCD_CLIENTS;
use crate::model::recovery::Room;
use crate::protocol::{EtcdAsk, FirstBoot, MemberChange, MemberStart, OpError, OpErrorKind, Reply};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The token of a bootstrap that is not confirmed yet.
pub(crate) const GENESIS: &str = "hactl-genesis";
/// Permits a join with an empty disk; without it or a token the unit does not start on an empty disk.
pub(crate) const JOIN: &str = "hactl-join";
/// The id of the cluster that was bootstrapped here.
pub(crate) const BORN: &str = "hactl-born";
/// The file of hactl that contains the path of the first-boot file, for the bootstrapped marker.
const FIRST_BOOT: &str = "first-boot";
const HACTL: &str = "/var/lib/hactl";
/// The maximum that is read of a marker.
const LONGEST_MARK: u64 = 4096;
/// The user that etcd runs as.
pub(crate) const OWNER: &str = "etcd";
/// How long a member may take until its peers can reach it.
const LISTEN: Duration = Duration::from_secs(60);
/// The port of peers.
const PEER_PORT: u16 = 2380;
/// How long a membership change is retried through this member, before another one is asked.
const CHANGE: Duration = Duration::from_secs(20);
/// The same for a promotion: a learner may have gigabytes to catch up on.
const PROMOTE: Duration = Duration::from_secs(590);
/// How long defragmenting a database of the largest sensible quota may take.
const ROOM: Duration = Duration::from_secs(590);

/// How long hactl waits for the answer of a member that may serve; under load it is slow.
const SERVES: Duration = Duration::from_secs(3);
/// How long a removed member may take to learn of its removal.
const TAKEN_OUT: Duration = Duration::from_secs(10);

/// Reads the files that a request names for the access to the member.
pub(crate) fn access(root: &Root, ask: &EtcdAsk) -> Outcome<Access> {
    let read = |path: &str| {
        let at = root.path(path)?;
        fs::read(&at).explain("read", &at)
    };
    Ok(Access { url: ask.url.clone(), ca: read(&ask.ca)?, cert: read(&ask.cert)?, key: read(&ask.key)?.into() })
}

/// How this host reaches the member at another address, by the certificate of its own.
///
/// # Errors
/// A certificate or a key cannot be read.
pub(crate) fn access_at(root: &Root, ask: &EtcdAsk, address: IpAddr) -> Outcome<Access> {
    let url = format!("https://{}", SocketAddr::new(address, ETCD_CLIENTS));
    access(root, &EtcdAsk { url, ..ask.clone() })
}

/// A fault about etcd.
pub(crate) fn trouble(error: &EtcdError) -> OpError {
    let kind = match error {
        EtcdError::Silent { .. } | EtcdError::Leaderless => OpErrorKind::TimedOut,
        EtcdError::Url(_) | EtcdError::NoSuchMember { .. } | EtcdError::Unfit { .. } => OpErrorKind::BadRequest,
        EtcdError::NotListening { .. } | EtcdError::Refused { .. } | EtcdError::Transport { .. } => OpErrorKind::Failed,
    };
    fault(kind, error.to_string())
}

/// The hash of the member's keys.
pub(crate) async fn hash(host: &Host, ask: &EtcdAsk, revision: i64) -> Outcome<Reply> {
    let access = access(&host.root, ask)?;
    let hash = etcd::hash(&access, revision, Duration::from_secs(30)).await;
    hash.map(|(revision, compacted, hash)| Reply::Hash { revision, compacted, hash }).map_err(|e| trouble(&e))
}

/// Changes the member list through this host's member.
pub(crate) async fn change(host: &Host, ask: &EtcdAsk, change: MemberChange) -> Outcome<()> {
    let access = access(&host.root, ask)?;
    let timeout = if matches!(change, MemberChange::Promote(_)) { PROMOTE } else { CHANGE };
    let late = |error: EtcdError| {
        if error.is_temporary() { fault(OpErrorKind::TimedOut, error.to_string()) } else { trouble(&error) }
    };
    Box::pin(etcd::change(&access, &change, timeout)).await.map_err(late)
}

/// Frees space in the database through this host's member.
pub(crate) async fn make_room(host: &Host, ask: &EtcdAsk, room: Room) -> Outcome<()> {
    host.waits(match room {
        Room::Compact => "etcd to compact its revisions",
        Room::Defragment => "etcd to defragment its database",
        Room::Disarm | Room::Agreed => "etcd to accept writes again",
    });
    let access = access(&host.root, ask)?;
    Box::pin(etcd::make_room(&access, room, ROOM)).await.map_err(|e| trouble(&e))
}

/// Writes the settings of the first start and starts the member, without waiting for quorum.
pub(crate) async fn start(host: &Host, start: MemberStart) -> Outcome<()> {
    host.waits(format!("{} to listen for its peers", start.unit));
    let MemberStart { unit, data_dir, first_boot, first } = start;
    let changed = host.root.blocking(move |root| settings(root, &data_dir, &first_boot, first.as_ref())).await?;
    units::launch(host, &unit, changed).await?;
    let until = Instant::now() + LISTEN;
    loop {
        if host.root.blocking(|root| Ok(ports::listening(root, PEER_PORT))).await? {
            return Ok(());
        }
        let shown = units::show_one(&unit).await?;
        match shown.active() {
            "failed" if !shown.is_queued() => return Err(units::blame(&unit, OpErrorKind::Failed, "failed").await),
            "inactive" if !shown.is_queued() => return Err(units::not_begun(&unit).await),
            _ if Instant::now() > until => {
                return Err(units::blame(&unit, OpErrorKind::TimedOut, "does not listen for its peers yet").await);
            }
            _ => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Checks the state on the disk, writes marker and first-boot file; returns whether the settings changed.
fn settings(root: &Root, data_dir: &str, first_boot: &str, first: Option<&FirstBoot>) -> Outcome<bool> {
    let (data, file) = (root.path(data_dir)?, root.path(first_boot)?);
    let text = match first {
        Some(first) => Some(first_boot_text(first)?),
        // There is data, which requires no settings; the unit only requires its file.
        None if !file.exists() => Some("ETCD_INITIAL_CLUSTER_STATE=existing\n".to_owned()),
        None => None,
    };
    let has_data = data.join("member").exists();
    match first {
        Some(FirstBoot { token: Some(token), .. }) => {
            if let Some(cluster) = read_mark(&data, BORN)? {
                return Err(bad(format!(
                    "this disk ({data_dir}) is marked as bootstrapped by etcd cluster {cluster}: it can only join, \
                     never bootstrap another"
                )));
            }
            let earlier = read_mark(&data, GENESIS)?;
            if has_data && earlier.as_ref() != Some(token) {
                return Err(bad(format!(
                    "{data_dir} holds data of another etcd cluster; move it aside before a new cluster is bootstrapped"
                )));
            }
        }
        Some(_)
            if has_data && !text.as_ref().is_some_and(|t| fs::read_to_string(&file).is_ok_and(|found| found == *t)) =>
        {
            return Err(bad(format!(
                "{data_dir} holds data of an earlier member; move it aside before this host joins"
            )));
        }
        None if !has_data => return Err(bad(format!("{data_dir} holds no member data to start from"))),
        Some(_) | None => {}
    }
    prepare::directory(root, data_dir, OWNER, 0o700)?;
    if let Some(member) = Tree::there(&data)?.sub("member")? {
        // A reinstalled system may give its etcd user another uid than the one that wrote this disk.
        member.own(root.owner(OWNER)?)?;
    }
    match first {
        Some(FirstBoot { token: Some(token), .. }) => mark(&data, GENESIS, token)?,
        Some(FirstBoot { token: None, .. }) => {
            mark(&data, JOIN, "joins a living cluster")?;
            // A joining member does not bootstrap, whatever its earlier settings. Only with its data it is marked again:
            // as long as it is not, an empty disk may join, and nothing else.
            remove(&data.join(GENESIS))?;
            remove(&data.join(BORN))?;
        }
        None => {}
    }
    // Written only if it differs: a member is started on a full disk as well.
    mark(&root.own(HACTL), FIRST_BOOT, first_boot)?;
    let Some(text) = text else { return Ok(false) };
    if same(&file, text.as_bytes(), 0o644, me()) {
        return Ok(false);
    }
    write_one(file, text.as_bytes(), 0o644, me())?;
    Ok(true)
}

pub(crate) fn mark(data: &Path, name: &str, text: &str) -> Outcome<()> {
    let path = data.join(name);
    if same(&path, text.as_bytes(), 0o644, me()) { Ok(()) } else { write_one(path, text.as_bytes(), 0o644, me()) }
}

/// Reads a marker; an unreadable one is a fault, never an absence.
pub(crate) fn read_mark(data: &Path, name: &str) -> Outcome<Option<String>> {
    let Some(file) = Tree::open(data)?.map(|data| data.file(name)).transpose()?.flatten() else { return Ok(None) };
    let mut text = String::new();
    file.take(LONGEST_MARK).read_to_string(&mut text).explain("read", &data.join(name))?;
    Ok(Some(text.trim().chars().take(200).collect()))
}

/// The id of the cluster that the member of this host is in; `None`: it was not in one yet, or there is no member.
pub fn cluster_of(root: &Root, policy: &Policy) -> Option<String> {
    let read = root.path(&policy.etcd_data_dir).and_then(|data| read_mark(&data, BORN));
    read.ok().flatten().filter(|id| !id.is_empty())
}

fn plain(text: &str, also: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}

/// The initial cluster in the syntax of etcd and its tools.
pub(crate) fn initial_cluster(members: &[(String, PeerUrl)]) -> Outcome<String> {
    let word = |(name, peer): &(String, PeerUrl)| {
        let good = plain(name, "-.") && plain(peer.as_str(), "-.:/[]%");
        if good { Ok(format!("{name}={peer}")) } else { Err(bad(format!("{name:?} at {peer} is not a valid member"))) }
    };
    Ok(members.iter().map(word).collect::<Outcome<Vec<_>>>()?.join(","))
}

/// The environment file of a first start. Every word is checked: systemd would interpret some characters.
fn first_boot_text(first: &FirstBoot) -> Outcome<String> {
    let members = initial_cluster(&first.members)?;
    let state = if first.token.is_some() { "new" } else { "existing" };
    let mut text = format!("ETCD_INITIAL_CLUSTER={members}\nETCD_INITIAL_CLUSTER_STATE={state}\n");
    if let Some(token) = &first.token {
        if !plain(token, "-_") {
            return Err(bad("the token of the initial cluster is not plain text"));
        }
        text = format!("{text}ETCD_INITIAL_CLUSTER_TOKEN={token}\n");
    }
    Ok(text)
}

/// Marks the disk as bootstrapped and makes the first-boot file harmless.
pub(crate) async fn seal(host: &Host, data_dir: String, cluster: String) -> Outcome<()> {
    let sealing = host.root.blocking(move |root| {
        let data = root.path(&data_dir)?;
        if cluster.is_empty() || cluster.len() > 16 || !cluster.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad("a cluster id has up to 16 hexadecimal digits"));
        }
        match read_mark(&data, BORN)? {
            Some(other) if other != cluster => {
                return Err(bad(format!(
                    "{data_dir} is marked as bootstrapped by etcd cluster {other}, not {cluster}"
                )));
            }
            _ => {}
        }
        if !data.join("member").exists() {
            return Err(bad(format!("{data_dir} holds no member data to mark as bootstrapped")));
        }
        // In this order: there is always either the bootstrapped marker or an unconfirmed token.
        mark(&data, BORN, &cluster)?;
        if let Some(path) = read_mark(&root.own(HACTL), FIRST_BOOT)? {
            disarm(&root.path(&path)?)?;
        }
        remove(&data.join(JOIN))?;
        remove(&data.join(GENESIS))
    });
    sealing.await
}

/// Changes `new` to `existing` and removes the token: with an empty disk etcd then refuses to start instead of
/// bootstrapping.
fn disarm(file: &Path) -> Outcome<()> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(()) };
    let lines = text.lines().filter(|l| !l.starts_with("ETCD_INITIAL_CLUSTER_TOKEN="));
    let state = |l: &str| {
        if l.starts_with("ETCD_INITIAL_CLUSTER_STATE=") {
            "ETCD_INITIAL_CLUSTER_STATE=existing\n".to_owned()
        } else {
            format!("{l}\n")
        }
    };
    let after: String = lines.map(state).collect();
    if after == text { Ok(()) } else { write_one(file.to_owned(), after.as_bytes(), 0o644, me()) }
}

/// Stops the member and moves its data and markers aside within the data directory, which may be a mount point.
pub(crate) async fn move_aside(host: &Host, ask: EtcdAsk) -> Outcome<()> {
    must_not_serve(host, &ask, TAKEN_OUT).await?;
    if host.root.is_host() {
        let unit = ETCD_UNIT.parse().map_err(|_| failed("etcd.service is not a valid unit"))?;
        units::stop(host, &[unit]).await?;
    }
    host.root.blocking(move |root| aside(&root.path(&ask.data_dir)?)).await
}

/// Refuses while this host's member has a vote and a quorum: the caller that archives its data was informed of
/// another cluster, or that this one is lost. A member that was removed from the list may take `within` to learn of
/// it.
pub(crate) async fn must_not_serve(host: &Host, ask: &EtcdAsk, within: Duration) -> Outcome<()> {
    // Without certificates no member serves.
    let Ok(access) = access(&host.root, ask) else { return Ok(()) };
    let until = Instant::now() + within;
    loop {
        let seen = Box::pin(etcd::view(&access, SERVES, Election::NotAwaited)).await;
        let Ok((view, None)) = seen else { return Ok(()) };
        let votes = view.members.iter().any(|(id, .., learner)| *id == view.member && !learner);
        // A member that was restored at a revision with no revisions above it fails at the first write.
        if !votes || !is_revision(view.revision) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(bad(format!(
                "its etcd member serves: it is a voter among {} members of cluster {} and has a quorum; its data \
                 stays in place",
                view.members.len(),
                view.cluster
            )));
        }
        host.waits("etcd on this host to learn that it is no longer a member");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Moves them within this data directory.
pub(crate) fn aside(data: &Path) -> Outcome<()> {
    in_use(data)?;
    let Some(data) = Tree::open(data)? else { return Ok(()) };
    let stamp = when::file_timestamp(when::now_ms());
    let there = data.names()?;
    for name in ["member", BORN, GENESIS, JOIN].into_iter().filter(|name| there.iter().any(|found| found == name)) {
        let to = format!("{name}.moved-{stamp}");
        if there.iter().any(|found| *found == *to) {
            return Err(failed(format!("{} exists already", data.shown().join(to).display())));
        }
        data.move_to(name, &data, to)?;
    }
    Ok(())
}

/// Refuses while a process has the database open: etcd holds a lock on it.
pub(crate) fn in_use(data: &Path) -> Outcome<()> {
    let member = Tree::open(data)?.map(|data| data.sub("member")).transpose()?.flatten();
    member.map_or(Ok(()), |member| held(&member).map(drop))
}

/// Prevents etcd from starting on the database of a member as long as the file is open; none: there is no database.
pub(crate) fn held(member: &Tree) -> Outcome<Option<File>> {
    let Some(snap) = member.sub("snap")? else { return Ok(None) };
    let Some(file) = snap.file("db")? else { return Ok(None) };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(bad(format!("etcd still runs on {}: stop it first", snap.shown().join("db").display())))
        }
        other => other.explain("lock", snap.shown()).map(|()| Some(file)),
    }
}
