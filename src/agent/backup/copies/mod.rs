//! Copies of recovery bundles in directories of this host, such as a mounted share: found, read, put there and dropped.
//!
//! In: a [`CopiesAsk`], or a bundle that this host has just taken. Out: what is there, or words for why that is not known or was not done. A share
//! that does not answer holds whoever touches it, for ever and beyond the reach of signals. So nothing here touches one: a program of its
//! own does, hactl once more, and has a deadline.

mod folder;
#[cfg(test)]
mod tests;

use crate::agent::Host;
use crate::agent::backup::bundles;
use crate::agent::fault::{Outcome, bad, failed};
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{blocking, run};
use crate::model::copies::{CopiesFact, MOST_DIRECTORIES};
use crate::model::snapshot::FOLDER;
use crate::protocol::Fault;
use crate::protocol::{CopiesAsk, FaultKind, Reply};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// How long a directory may take to be looked at. Whoever lost a cluster may have lost the share as well.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// How long a piece may take.
const PIECE_WITHIN: Duration = Duration::from_secs(25);
/// How long a directory may take to drop what is not kept any more, which shows as well whether it answers at all.
const TIDIED_WITHIN: Duration = Duration::from_secs(60);
/// How long one may take to get a bundle, beside what its bytes take at the slowest pace that is waited for: bytes per second.
const PUT_WITHIN: Duration = Duration::from_secs(1200);
const SLOWEST: u64 = 1 << 20;

/// What a process of its own is asked to do.
#[derive(Debug, Serialize, Deserialize)]
enum Errand {
    /// To look, for others.
    Ask(CopiesAsk),
    /// To put a copy of this bundle of the host's there, if one is named, and to drop what the host put there and does not keep any more.
    Tend { directory: String, fresh: Option<String> },
}

/// Drops in a directory what is not kept any more, and puts a copy of `fresh` there.
pub(in crate::agent) async fn tend(root: &Root, directory: &Path, fresh: Option<&str>) -> Outcome<()> {
    let directory = directory.to_str().ok_or_else(|| failed("a directory for copies has a name that is no text"))?;
    let errand =
        |fresh: Option<&str>| Errand::Tend { directory: directory.to_owned(), fresh: fresh.map(str::to_owned) };
    // What is in the way first; and whoever is silent now is not waited for as long as a copy may take.
    let tidied = beside(root, errand(None), TIDIED_WITHIN).await;
    let silent = tidied.as_ref().is_err_and(|fault| fault.kind == FaultKind::TimedOut);
    let told = |fault: Fault, within| failed(silence(directory, fault, within));
    let Some(fresh) = fresh.filter(|_| !silent) else {
        return tidied.map(drop).map_err(|fault| told(fault, TIDIED_WITHIN));
    };
    // Whoever cannot drop what is old may take what is new.
    let bytes = std::fs::metadata(root.own(FOLDER).join(fresh)).map_or(0, |of| of.len());
    let within = PUT_WITHIN + Duration::from_secs(bytes / SLOWEST);
    match beside(root, errand(Some(fresh)), within).await {
        Ok(_) => Ok(()),
        Err(fault) if fault.kind == FaultKind::TimedOut => {
            Err(failed(format!("{directory} has not taken {fresh} within {} min", within.as_secs() / 60)))
        }
        Err(fault) => Err(told(fault, within)),
    }
}

/// Finds copies in each directory, all at the same time, or reads a piece of one.
pub(in crate::agent) async fn copies(host: &Host, ask: CopiesAsk) -> Outcome<Reply> {
    let CopiesAsk::Find { cluster, authority, named, all, directories } = ask else {
        host.waits("the directory that the copy lies in");
        return beside(&host.root, Errand::Ask(ask), PIECE_WITHIN).await;
    };
    if directories.len() > MOST_DIRECTORIES {
        return Err(bad(format!("copies are looked for in {MOST_DIRECTORIES} directories at the most")));
    }
    host.waits("the directories that copies of bundles go to");
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
            Ok(_) => format!("{directory}: hactl answered itself with something else than it was asked for"),
            Err(fault) => silence(&directory, fault, FOUND_WITHIN),
        };
        CopiesFact { directory, trouble: Some(trouble), ..CopiesFact::default() }
    });
    Ok(Reply::Copies(futures::future::join_all(each).await))
}

/// Why nothing is known of a directory, or was done there.
fn silence(directory: &str, fault: Fault, within: Duration) -> String {
    if fault.kind == FaultKind::TimedOut {
        return format!("{directory} has not answered within {} s", within.as_secs());
    }
    format!("{directory}: {}", fault.tail.last().unwrap_or(&fault.what))
}

/// Does it in a process of its own.
async fn beside(root: &Root, errand: Errand, within: Duration) -> Outcome<Reply> {
    if !root.is_host() {
        // A directory that stands for a host, in a test, which may be no hactl.
        let root = root.clone();
        return blocking(move || answer(&root, errand)).await;
    }
    let me = std::env::current_exe().map_err(|e| failed(format!("hactl does not find itself: {e}")))?;
    let me = me.to_str().ok_or_else(|| failed("hactl lies where its name is no text"))?;
    let errand = serde_json::to_string(&errand).map_err(|e| failed(e.to_string()))?;
    asked(&[me, "host-copies", &errand], within).await
}

/// What a program answers that does it for us. One that is held by a dead share is killed, and is not waited for.
async fn asked(argv: &[&str], within: Duration) -> Outcome<Reply> {
    let ran = run(argv, within).await?;
    if !ran.ok() {
        return Err(ran.fault("looking at a directory"));
    }
    serde_json::from_str(&ran.out).map_err(|e| failed(format!("hactl does not understand itself: {e}")))
}

/// Does it here and now.
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
            bundles::tended(root, &root.path(&directory)?, fresh.as_deref()).map(|()| Reply::Done)
        }
    }
}

/// The process of its own: what it is asked, as JSON, and its answer.
///
/// # Errors
/// In words, why there is none.
pub fn copies_beside(errand: &str) -> Result<String, String> {
    let errand = serde_json::from_str(errand).map_err(|e| e.to_string())?;
    let reply = answer(&Root::host(), errand).map_err(|fault| fault.what)?;
    serde_json::to_string(&reply).map_err(|e| e.to_string())
}
