//! The etcd member of this host: its first start, its seal, its data moved aside, and changes of the list through it.
//!
//! In: what the plan decided. Out: done, or a refusal: what stands on the disk has the last word, so that no request can
//! found a second cluster where one was born, or start a new member on the data of an old one.

use crate::agent::Host;
use crate::agent::fault::{Explain, Outcome, bad, failed, fault};
use crate::agent::machine::files::{remove, same, write_one};
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::machine::tree::Tree;
use crate::agent::{machine::units, machine::when, observe};
use crate::etcd::{self, Access, Election, EtcdError};
use crate::model::facts::ETCD_UNIT;
use crate::model::names::PeerUrl;
use crate::model::plausible::is_revision;
use crate::model::recovery::Room;
use crate::protocol::{EtcdAsk, Fault, FaultKind, FirstBoot, MemberChange, MemberStart, Reply};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The token of a genesis that has not been proven.
pub(in crate::agent) const GENESIS: &str = "hactl-genesis";
/// Leave for an empty disk to join; the unit starts on no empty disk without it or a token.
pub(in crate::agent) const JOIN: &str = "hactl-join";
/// The id of the cluster that was born here.
pub(in crate::agent) const BORN: &str = "hactl-born";
/// Where the path of the first-boot file is remembered for the seal.
const FIRST_BOOT: &str = "/var/lib/hactl/first-boot";
/// What is read of a marker at the most.
const LONGEST_MARK: u64 = 4096;
/// The user that etcd runs as.
pub(in crate::agent) const OWNER: &str = "etcd";
/// How long a member may take until its peers can reach it.
const LISTEN: Duration = Duration::from_secs(60);
/// How long systemd may take to begin with a unit it was told to start.
const COME_TO_IT: Duration = Duration::from_secs(3);
/// The port of peers.
const PEER_PORT: u16 = 2380;
/// How long a change of the member list may be tried again; a learner may have gigabytes to catch up on.
const CHANGE: Duration = Duration::from_secs(60);
const PROMOTE: Duration = Duration::from_secs(590);
/// How long a store of the largest quota that is sensible may take to be written anew.
const ROOM: Duration = Duration::from_secs(590);

/// How long a member that may serve is asked for it; under load it takes its time.
const SERVES: Duration = Duration::from_secs(3);
/// How long one that was taken out of the list may take to hear of it.
const TAKEN_OUT: Duration = Duration::from_secs(10);

/// Reads what a request says about reaching the member.
pub(in crate::agent) fn access(root: &Root, ask: &EtcdAsk) -> Outcome<Access> {
    let read = |path: &str| {
        let at = root.path(path)?;
        fs::read(&at).explain("read", &at)
    };
    Ok(Access { url: ask.url.clone(), ca: read(&ask.ca)?, cert: read(&ask.cert)?, key: read(&ask.key)?.into() })
}

/// A fault about etcd.
pub(in crate::agent) fn trouble(error: &EtcdError) -> Fault {
    let kind = match error {
        EtcdError::Silent { .. } | EtcdError::Leaderless => FaultKind::TimedOut,
        EtcdError::Url(_) | EtcdError::NoSuchMember { .. } | EtcdError::Unfit { .. } => FaultKind::BadRequest,
        EtcdError::NotListening { .. } | EtcdError::Refused { .. } | EtcdError::Transport { .. } => FaultKind::Failed,
    };
    fault(kind, error.to_string())
}

/// The hash of the member's keys.
pub(in crate::agent) async fn hash(host: &Host, ask: &EtcdAsk, revision: i64) -> Outcome<Reply> {
    let access = access(&host.root, ask)?;
    let hash = etcd::hash(&access, revision, Duration::from_secs(30)).await;
    hash.map(|(revision, compacted, hash)| Reply::Hash { revision, compacted, hash }).map_err(|e| trouble(&e))
}

/// Changes the member list through this host's member.
pub(in crate::agent) async fn change(host: &Host, ask: &EtcdAsk, change: MemberChange) -> Outcome<()> {
    let access = access(&host.root, ask)?;
    let timeout = if matches!(change, MemberChange::Promote(_)) { PROMOTE } else { CHANGE };
    Box::pin(etcd::change(&access, &change, timeout)).await.map_err(|e| trouble(&e))
}

/// Makes room in the store through this host's member.
pub(in crate::agent) async fn make_room(host: &Host, ask: &EtcdAsk, room: Room) -> Outcome<()> {
    host.waits(match room {
        Room::Compact => "etcd to forget what was replaced",
        Room::Defragment => "etcd to write its store anew",
        Room::Disarm | Room::Agreed => "etcd to take writes again",
    });
    let access = access(&host.root, ask)?;
    Box::pin(etcd::make_room(&access, room, ROOM)).await.map_err(|e| trouble(&e))
}

/// Writes the settings of the first start and starts the member, without waiting for quorum.
pub(in crate::agent) async fn start(host: &Host, start: MemberStart) -> Outcome<()> {
    host.waits(format!("{} to listen to its peers", start.unit));
    let root = host.root.clone();
    let MemberStart { unit, data_dir, first_boot, first } = start;
    let changed = blocking(move || settings(&root, &data_dir, &first_boot, first.as_ref())).await?;
    units::launch(host, &unit, changed).await?;
    let launched = Instant::now();
    let until = launched + LISTEN;
    loop {
        let root = host.root.clone();
        if blocking(move || Ok(observe::ports::listening(&root, PEER_PORT))).await? {
            return Ok(());
        }
        match units::state(&unit).await?.as_str() {
            "failed" => return Err(units::blame(&unit, FaultKind::Failed, "failed").await),
            // Right after the launch systemd has not come to it yet.
            "inactive" if launched.elapsed() > COME_TO_IT => {
                return Err(units::not_begun(&unit).await);
            }
            _ if Instant::now() > until => {
                return Err(units::blame(&unit, FaultKind::TimedOut, "does not listen to its peers yet").await);
            }
            _ => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Checks what stands on the disk, writes marker and first-boot file; says whether the settings changed.
fn settings(root: &Root, data_dir: &str, first_boot: &str, first: Option<&FirstBoot>) -> Outcome<bool> {
    let (data, file) = (root.path(data_dir)?, root.path(first_boot)?);
    let text = match first {
        Some(first) => Some(first_boot_text(first)?),
        // Data is there and needs no settings; the unit only wants its file.
        None if !file.exists() => Some("ETCD_INITIAL_CLUSTER_STATE=existing\n".to_owned()),
        None => None,
    };
    let has_data = data.join("member").exists();
    match first {
        Some(FirstBoot { token: Some(token), .. }) => {
            if let Some(cluster) = read_mark(&data, BORN)? {
                return Err(bad(format!(
                    "etcd cluster {cluster} was born on this disk ({data_dir}): it can only join, never found another"
                )));
            }
            let earlier = read_mark(&data, GENESIS)?;
            if has_data && earlier.as_ref() != Some(token) {
                return Err(bad(format!(
                    "{data_dir} holds data of another etcd cluster; it must be moved aside before a new one is founded"
                )));
            }
        }
        Some(_)
            if has_data && !text.as_ref().is_some_and(|t| fs::read_to_string(&file).is_ok_and(|found| found == *t)) =>
        {
            return Err(bad(format!(
                "{data_dir} holds data of an earlier member; it must be moved aside before this host joins"
            )));
        }
        None if !has_data => return Err(bad(format!("{data_dir} holds no member to start"))),
        Some(_) | None => {}
    }
    crate::agent::machine::prepare::directory(root, data_dir, OWNER, 0o700)?;
    if let Some(member) = Tree::there(&data)?.sub("member")? {
        // A system that was installed anew may give its etcd user another number than the one that wrote this disk.
        member.own(root.owner(OWNER)?)?;
    }
    match first {
        Some(FirstBoot { token: Some(token), .. }) => mark(&data, GENESIS, token)?,
        Some(FirstBoot { token: None, .. }) => {
            mark(&data, JOIN, "joins a living cluster")?;
            // Who joins is no founder any more, whatever it was told before.
            remove(&data.join(GENESIS))?;
        }
        None => {}
    }
    // Written only where it says something else: a member is started on a full disk as well.
    let noted = root.own(FIRST_BOOT);
    if !same(&noted, first_boot.as_bytes(), 0o644, me()) {
        write_one(noted, first_boot.as_bytes(), 0o644, me())?;
    }
    let Some(text) = text else { return Ok(false) };
    if same(&file, text.as_bytes(), 0o644, me()) {
        return Ok(false);
    }
    write_one(file, text.as_bytes(), 0o644, me())?;
    Ok(true)
}

pub(in crate::agent) fn me() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

pub(in crate::agent) fn mark(data: &Path, name: &str, text: &str) -> Outcome<()> {
    let path = data.join(name);
    if same(&path, text.as_bytes(), 0o644, me()) { Ok(()) } else { write_one(path, text.as_bytes(), 0o644, me()) }
}

/// Reads a marker; one that cannot be read is a fault, never an absence.
pub(in crate::agent) fn read_mark(data: &Path, name: &str) -> Outcome<Option<String>> {
    let Some(file) = Tree::open(data)?.map(|data| data.file(name)).transpose()?.flatten() else { return Ok(None) };
    let mut text = String::new();
    file.take(LONGEST_MARK).read_to_string(&mut text).explain("read", &data.join(name))?;
    Ok(Some(text.trim().chars().take(200).collect()))
}

fn plain(text: &str, also: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}

/// The members of a new cluster as etcd and its tools are told of them.
pub(in crate::agent) fn initial_cluster(members: &[(String, PeerUrl)]) -> Outcome<String> {
    let word = |(name, peer): &(String, PeerUrl)| {
        let good = plain(name, "-.") && plain(peer.as_str(), "-.:/[]%");
        if good { Ok(format!("{name}={peer}")) } else { Err(bad(format!("{name:?} at {peer} cannot be a member"))) }
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
            return Err(bad("the token of the genesis is not plain text"));
        }
        text = format!("{text}ETCD_INITIAL_CLUSTER_TOKEN={token}\n");
    }
    Ok(text)
}

/// Marks the disk as born and makes the first-boot file harmless.
pub(in crate::agent) async fn seal(host: &Host, data_dir: String, cluster: String) -> Outcome<()> {
    let root = host.root.clone();
    blocking(move || {
        let data = root.path(&data_dir)?;
        if cluster.is_empty() || cluster.len() > 16 || !cluster.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad("a cluster id is up to 16 hexadecimal digits"));
        }
        match read_mark(&data, BORN)? {
            Some(other) if other != cluster => {
                return Err(bad(format!("{data_dir} is sealed for etcd cluster {other}, not {cluster}")));
            }
            _ => {}
        }
        if !data.join("member").exists() {
            return Err(bad(format!("{data_dir} holds no member to seal")));
        }
        // In this order: at no moment is there neither a seal nor a genesis that is still unproven.
        mark(&data, BORN, &cluster)?;
        if let Some(path) = read_mark(&root.own("/var/lib/hactl"), "first-boot")? {
            disarm(&root.path(&path)?)?;
        }
        remove(&data.join(JOIN))?;
        remove(&data.join(GENESIS))?;
        crate::agent::etcd::recover::let_go(&root)
    })
    .await
}

/// Turns `new` into `existing` and forgets the token: with an empty disk etcd then refuses to start instead of founding.
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
pub(in crate::agent) async fn move_aside(host: &Host, ask: EtcdAsk) -> Outcome<()> {
    must_not_serve(host, &ask, TAKEN_OUT).await?;
    if host.root.is_host() {
        let unit = ETCD_UNIT.parse().map_err(|_| failed("etcd has no unit"))?;
        units::stop(host, &[unit]).await?;
    }
    let root = host.root.clone();
    blocking(move || aside(&root.path(&ask.data_dir)?)).await
}

/// Refuses while this host's member has a vote and a quorum behind it: whoever asks for its data to be put away was told of another cluster, or
/// that this one is lost. A member that was taken out of the list may take `within` to hear of it.
pub(in crate::agent) async fn must_not_serve(host: &Host, ask: &EtcdAsk, within: Duration) -> Outcome<()> {
    // Without certificates nobody serves.
    let Ok(access) = access(&host.root, ask) else { return Ok(()) };
    let until = Instant::now() + within;
    loop {
        let seen = Box::pin(etcd::view(&access, SERVES, Election::NotAwaited)).await;
        let Ok((view, None)) = seen else { return Ok(()) };
        let votes = view.members.iter().any(|(id, .., learner)| *id == view.member && !learner);
        // One that was restored at a revision which leaves no room ends with the first write.
        if !votes || !is_revision(view.revision) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(bad(format!(
                "its etcd member serves: it has a vote among {} members of cluster {}, and a quorum stands behind it; its data stays where it is",
                view.members.len(),
                view.cluster
            )));
        }
        host.waits("etcd here to hear that it is no member any more");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Moves them within this data directory.
pub(in crate::agent) fn aside(data: &Path) -> Outcome<()> {
    in_use(data)?;
    let Some(data) = Tree::open(data)? else { return Ok(()) };
    let stamp = when::file_timestamp(when::now_ms());
    let there = data.names()?;
    for name in ["member", BORN, GENESIS, JOIN].into_iter().filter(|name| there.iter().any(|found| found == name)) {
        let to = format!("{name}.moved-{stamp}");
        if there.iter().any(|found| *found == *to) {
            return Err(failed(format!("{} is there already", data.shown().join(to).display())));
        }
        data.move_to(name, &data, to)?;
    }
    Ok(())
}

/// Refuses while a process has the database open: etcd holds a lock on it.
pub(in crate::agent) fn in_use(data: &Path) -> Outcome<()> {
    let member = Tree::open(data)?.map(|data| data.sub("member")).transpose()?.flatten();
    member.map_or(Ok(()), |member| held(&member).map(drop))
}

/// Keeps etcd from starting on a member's store for as long as the file is open; none: there is no store.
pub(in crate::agent) fn held(member: &Tree) -> Outcome<Option<File>> {
    let Some(snap) = member.sub("snap")? else { return Ok(None) };
    let Some(file) = snap.file("db")? else { return Ok(None) };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(bad(format!("etcd still runs on {}: stop it first", snap.shown().join("db").display())))
        }
        other => other.explain("lock", snap.shown()).map(|()| Some(file)),
    }
}
