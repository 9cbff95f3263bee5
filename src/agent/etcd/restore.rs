//! Replaces the data of a member by that of a new cluster: by a snapshot that was delivered, or by its own data.
//!
//! In: the decision of the plan. Out: done, or a fault; existing data is only read, or moved aside. etcd's own tool
//! writes the members and ids of the new cluster, and raises the revision. It copies the database. Where the member is
//! restored from its own data, the tool therefore gets a tiny database instead, and what it writes there is written
//! into the one copy that exists anyway.

use super::fence::may_start_once;
use super::member::{BORN, GENESIS, OWNER, aside, in_use, initial_cluster, mark, read_mark};
use super::recover::{Applied, HIGH_WATER, Purpose, RESERVE, RESTORING, clear_unfinished, plain};
use super::scratch;
use crate::agent::host::Host;
use crate::agent::machine::files::write_one;
use crate::agent::machine::prepare;
use crate::agent::machine::root::me;
use crate::agent::machine::run::blocking;
use crate::agent::machine::tree::Tree;
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::agent::parts;
use crate::etcd::disk;
use crate::model::blob::SnapshotBlob;
use crate::model::plausible::is_base;
use crate::protocol::{RestoreAsk, RestoreFrom, SnapshotUse};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::fchown;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a restore may take to be written.
const RESTORE: Duration = Duration::from_secs(600);

/// Replaces the data of the member. Old and new data never are in place together. A token with data and without the
/// bootstrapped marker of an older cluster means that it is done.
pub(crate) async fn restore(host: &Host, ask: RestoreAsk) -> Outcome<()> {
    let data = host.root.path(&ask.data_dir)?;
    plain(&ask.token)?;
    if !is_base(ask.base) {
        return Err(bad(format!(
            "revision {} is too high: no cluster reaches it, and hardly any revisions are left above it",
            ask.base
        )));
    }
    if read_mark(&data, GENESIS)?.as_ref() == Some(&ask.token)
        && data.join("member").exists()
        && read_mark(&data, BORN)?.is_none()
    {
        return Ok(());
    }
    let fresh = match ask.from {
        RestoreFrom::Snapshot(snapshot) => from_snapshot(host, &ask, &data, snapshot).await?,
        RestoreFrom::Own { reach } => from_own(host, &ask, &data, reach).await?,
    };
    let replacing = host.root.blocking(move |root| {
        if let RestoreFrom::Snapshot(snapshot) = ask.from {
            // Data that is not on the disk yet may be dropped: the administrator's hactl has the snapshot, and sends it
            // again after a power loss.
            parts::forget(root, snapshot, SnapshotUse::Recovery)?;
        }
        fresh.sync()?;
        // Before any client can see a revision above it.
        write_one(root.own(HIGH_WATER), format!("{}\n", ask.base).as_bytes(), 0o600, me())?;
        aside(&data)?;
        mark(&data, GENESIS, &ask.token)?;
        let data = Tree::there(&data)?;
        fresh.move_to("member", &data, "member")?;
        clear_unfinished(&data, &[RESTORING])?;
        may_start_once(root, &ask.token)
    });
    replacing.await
}

/// An empty directory for the new data, if there is space for so many databases of this size.
async fn begun(data: &Path, token: &str, (times, bytes): (u64, u64)) -> Outcome<Tree> {
    let (data, name) = (data.to_owned(), format!("{RESTORING}{token}"));
    blocking(move || {
        let data = Tree::there(&data)?;
        clear_unfinished(&data, &[RESTORING])?;
        data.ensure_space(times.saturating_mul(bytes).saturating_add(RESERVE))?;
        data.fresh(&name)
    })
    .await
}

/// How much the revision is raised.
fn bump(base: i64, revision: i64) -> Outcome<i64> {
    let bump = base.checked_sub(revision).filter(|bump| *bump > 0);
    bump.ok_or_else(|| bad(format!("revision {base} is not above that of the snapshot, {revision}")))
}

/// From a snapshot on this host: etcd's tool checks its digest.
async fn from_snapshot(host: &Host, ask: &RestoreAsk, data: &Path, snapshot: SnapshotBlob) -> Outcome<Tree> {
    let place = parts::snapshot(&host.root, snapshot, SnapshotUse::Recovery)?;
    in_use(data)?;
    prepare::directory(&host.root, &ask.data_dir, OWNER, 0o700)?;
    let fresh = begun(data, &ask.token, (2, snapshot.size)).await?;
    let revision = {
        // The snapshot file is a database followed by 32 bytes, which its reader ignores.
        let place = place.clone();
        blocking(move || disk::revision(&place).map_err(|error| failed(error.to_string()))).await?
    };
    host.waits("etcdutl to restore the snapshot");
    let more = arguments(ask, bump(ask.base, revision)?)?;
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    scratch::restored(host.root.owner(OWNER)?, &place, &fresh, &more, RESTORE).await?;
    Ok(fresh)
}

/// From the own data, which must reach this position. etcd has no digest of it: its pages were all read when the position
/// was agreed on.
async fn from_own(host: &Host, ask: &RestoreAsk, data: &Path, reach: (u64, u64)) -> Outcome<Tree> {
    in_use(data)?;
    let applied = Applied::of(host, data.to_owned(), (None, reach), &ask.token, Purpose::Restore).await?;
    let restored = from_applied(host, ask, data, &applied).await;
    applied.end().await?;
    restored
}

async fn from_applied(host: &Host, ask: &RestoreAsk, data: &Path, applied: &Applied) -> Outcome<Tree> {
    let (member, is_copy) = (Arc::clone(&applied.member), applied.is_copy());
    let (snap, bytes, revision, seed) = blocking(move || {
        let snap = member.below(&["snap"])?;
        let bytes = snap.file_there("db")?.metadata().explain("read", &snap.shown().join("db"))?.len();
        let database = snap.anchor().join("db");
        let revision = disk::revision(&database).map_err(|error| snap.words(&error))?;
        let seed = disk::seed(&database).map_err(|error| snap.words(&error))?;
        Ok((snap, bytes, revision, seed))
    })
    .await?;
    let owner = host.root.owner(OWNER)?;
    let more = arguments(ask, bump(ask.base, revision)?)?;
    let more: Vec<&str> = more.iter().map(String::as_str).chain(["--skip-hash-check"]).collect();
    let fresh = begun(data, &ask.token, (u64::from(!is_copy), bytes)).await?;
    host.waits("etcdutl to write the members of the new cluster");
    let (fresh, seed) = blocking(move || {
        let seed = nameless(&fresh, &seed, owner)?;
        Ok((fresh, seed))
    })
    .await?;
    scratch::restored_from(owner, seed, &fresh, &more, RESTORE).await?;
    host.waits("the database to be changed to that of the new cluster");
    blocking(move || {
        rewrite(&snap, &fresh.below(&["member", "snap"])?, is_copy, owner)?;
        Ok(fresh)
    })
    .await
}

/// A file of etcd's user with this content and without a name: the tool requires an empty directory.
fn nameless(at: &Tree, content: &[u8], owner: (u32, u32)) -> Outcome<File> {
    let shown = at.shown().join("seed");
    let mut file = at.fresh_file("seed")?;
    at.clear("seed")?;
    file.write_all(content).explain("write", &shown)?;
    fchown(&file, Some(owner.0), Some(owner.1)).explain("change the owner of", &shown)?;
    Ok(file)
}

/// Replaces the tiny database in `to` by that in `from`, with what etcd's tool wrote into the tiny one. A copy is moved
/// there; any other database stays, and is copied.
fn rewrite(from: &Tree, to: &Tree, is_copy: bool, owner: (u32, u32)) -> Outcome<()> {
    let at = to.anchor().join("db");
    let identity = disk::Identity::of(&at).map_err(|error| to.words(&error))?;
    let database = if is_copy {
        from.move_to("db", to, "db")?;
        to.file_to_write("db")?
    } else {
        let mut copy = to.fresh_file("db")?;
        // Shares the blocks if the file system can.
        io::copy(&mut from.file_there("db")?, &mut copy).explain("copy", &from.shown().join("db"))?;
        fchown(&copy, Some(owner.0), Some(owner.1)).explain("change the owner of", &to.shown().join("db"))?;
        copy
    };
    identity.write(&database, &at).map_err(|error| to.words(&error))
}

/// What etcd's tool writes as the members and ids of the new cluster.
fn arguments(ask: &RestoreAsk, bump: i64) -> Outcome<[String; 6]> {
    let own = ask.members.iter().find(|(name, _)| name == &ask.name);
    let (_, peer) = own.ok_or_else(|| bad(format!("{} is not a member of the new cluster", ask.name)))?;
    let members = initial_cluster(&ask.members)?;
    Ok([
        format!("--name={}", ask.name),
        format!("--initial-cluster={members}"),
        format!("--initial-cluster-token={}", ask.token),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--bump-revision={bump}"),
        "--mark-compacted".to_owned(),
    ])
}
