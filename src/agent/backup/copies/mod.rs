//! Copies of snapshots in directories of this host, such as a mounted share: found, read, written and deleted.
//!
//! In: a [`CopiesAsk`], or a snapshot that this host has just taken. Out: the content, or why it is unknown or was
//! not written. A share that does not answer blocks every process that touches it, for ever and beyond the reach of
//! signals. So nothing here touches one: a separate hactl process does, with a deadline.

mod folder;
#[cfg(test)]
mod tests;

use crate::agent::backup::bundles::tended;
use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{own_program, run};
use crate::agent::op_error::{Outcome, bad, failed};
use crate::model::copies::{CopiesFact, MOST_DIRECTORIES};
use crate::model::snapshot::FOLDER;
use crate::protocol::OpError;
use crate::protocol::{CopiesAsk, OpErrorKind, Reply};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// How long reading a directory may take. A site that lost a cluster may have lost the share as well.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// How long a piece may take.
const PIECE_WITHIN: Duration = Duration::from_secs(25);
/// How long deleting the expired copies of a directory may take, which also shows whether it answers at all.
const TIDIED_WITHIN: Duration = Duration::from_secs(60);
/// How long writing a copy may take, besides the time for its bytes at the slowest accepted throughput: bytes per
/// second.
const PUT_WITHIN: Duration = Duration::from_secs(1200);
const SLOWEST: u64 = 1 << 20;

/// The request to the separate process.
#[derive(Debug, Serialize, Deserialize)]
enum Errand {
    /// Read the directories.
    Ask(CopiesAsk),
    /// Write a copy of this snapshot of the host, if one is named, and delete the expired copies of the host.
    Tend { directory: String, fresh: Option<String> },
}

/// Deletes the expired copies in a directory, and writes a copy of `fresh` there.
pub(crate) async fn tend(root: &Root, directory: &Path, fresh: Option<&str>) -> Outcome<()> {
    let directory = directory.to_str().ok_or_else(|| failed("the name of a directory for copies is not UTF-8 text"))?;
    let errand =
        |fresh: Option<&str>| Errand::Tend { directory: directory.to_owned(), fresh: fresh.map(str::to_owned) };
    // Deletions first: they make space, and a share that does not answer is not waited for as long as a copy may
    // take.
    let tidied = beside(root, errand(None), TIDIED_WITHIN).await;
    let silent = tidied.as_ref().is_err_and(|fault| fault.kind == OpErrorKind::TimedOut);
    let stated = |fault: OpError, within| failed(silence(directory, fault, within));
    let Some(fresh) = fresh.filter(|_| !silent) else {
        return tidied.map(drop).map_err(|fault| stated(fault, TIDIED_WITHIN));
    };
    // A share that cannot delete old copies may still accept new ones.
    let bytes = std::fs::metadata(root.own(FOLDER).join(fresh)).map_or(0, |of| of.len());
    let within = PUT_WITHIN + Duration::from_secs(bytes / SLOWEST);
    match beside(root, errand(Some(fresh)), within).await {
        Ok(_) => Ok(()),
        Err(fault) if fault.kind == OpErrorKind::TimedOut => {
            Err(failed(format!("{directory} has not received {fresh} within {} min", within.as_secs() / 60)))
        }
        Err(fault) => Err(stated(fault, within)),
    }
}

/// Finds copies in each directory, all at the same time, or reads a piece of one.
pub(crate) async fn copies(host: &Host, ask: CopiesAsk) -> Outcome<Reply> {
    let CopiesAsk::Find { cluster, authority, named, all, directories } = ask else {
        host.waits("the directory of the copy");
        return beside(&host.root, Errand::Ask(ask), PIECE_WITHIN).await;
    };
    if directories.len() > MOST_DIRECTORIES {
        return Err(bad(format!("copies are searched in at most {MOST_DIRECTORIES} directories")));
    }
    host.waits("the directories for copies of snapshots");
    let each = directories.into_iter().map(async |directory| {
        let one = CopiesAsk::Find {
            cluster: cluster.clone(),
            authority,
            named: named.clone(),
            all,
            directories: vec![directory.clone()],
        };
        let trouble = match beside(&host.root, Errand::Ask(one), FOUND_WITHIN).await {
            Ok(Reply::Copies(mut found)) if found.len() == 1 => return found.remove(0),
            Ok(_) => format!("{directory}: the hactl subprocess answered another request"),
            Err(fault) => silence(&directory, fault, FOUND_WITHIN),
        };
        CopiesFact { directory, trouble: Some(trouble), ..CopiesFact::default() }
    });
    Ok(Reply::Copies(futures::future::join_all(each).await))
}

/// Why nothing is known of a directory, or was done there.
fn silence(directory: &str, fault: OpError, within: Duration) -> String {
    if fault.kind == OpErrorKind::TimedOut {
        return format!("{directory} has not answered within {} s", within.as_secs());
    }
    format!("{directory}: {}", fault.tail.last().unwrap_or(&fault.what))
}

/// Performs it in a separate process.
async fn beside(root: &Root, errand: Errand, within: Duration) -> Outcome<Reply> {
    if !root.is_host() {
        // A test directory, whose program may not be hactl.
        return root.blocking(|root| answer(root, errand)).await;
    }
    let me = own_program()?;
    let errand = serde_json::to_string(&errand).map_err(|e| failed(e.to_string()))?;
    asked(&[&me, "host-copies", &errand], within).await
}

/// The answer of a program that performs the request. A program that is blocked by a dead share is killed, without
/// waiting for its end.
async fn asked(argv: &[&str], within: Duration) -> Outcome<Reply> {
    let ran = run(argv, within).await?;
    if !ran.ok() {
        return Err(ran.fault("reading a directory"));
    }
    serde_json::from_str(&ran.out)
        .map_err(|e| failed(format!("the answer of the hactl subprocess cannot be parsed: {e}")))
}

/// Performs it in this process.
fn answer(root: &Root, errand: Errand) -> Outcome<Reply> {
    match errand {
        Errand::Ask(CopiesAsk::Find { cluster, authority, named, all, directories }) => {
            let wanted = folder::Wanted { cluster, authority, named, all };
            let each = directories.into_iter().map(|directory| {
                let at = root.path(&directory)?;
                Ok(folder::find(directory, &at, &wanted))
            });
            each.collect::<Outcome<_>>().map(Reply::Copies)
        }
        Errand::Ask(CopiesAsk::Read { directory, name, from }) => {
            folder::piece(&root.path(&directory)?, &name, from).map(Reply::Bytes)
        }
        Errand::Tend { directory, fresh } => {
            tended(root, &root.path(&directory)?, fresh.as_deref()).map(|()| Reply::Done)
        }
    }
}

/// The separate process: its request, as JSON, and its answer.
///
/// # Errors
/// Why there is no answer, in words.
pub fn copies_beside(errand: &str) -> Result<String, String> {
    let errand = serde_json::from_str(errand).map_err(|e| e.to_string())?;
    let reply = answer(&Root::host(), errand).map_err(|fault| fault.what)?;
    serde_json::to_string(&reply).map_err(|e| e.to_string())
}
