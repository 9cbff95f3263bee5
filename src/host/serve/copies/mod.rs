//! Copies of recovery bundles in directories of this host, such as a mounted share: found and read.
//!
//! In: a [`CopiesAsk`]. Out: what is there, or words for why that is not known. A share that does not answer holds whoever touches it, for
//! ever and beyond the reach of signals. So nothing here touches one: a program of its own does, hactl once more, and has a deadline.

mod folder;
#[cfg(test)]
mod tests;

use super::fault::{Outcome, bad, failed};
use super::root::Root;
use super::run::{blocking, run};
use super::{Fault, Host};
use crate::host::op::{CopiesAsk, FaultKind, Reply};
use crate::model::copies::{CopiesFact, MOST_DIRECTORIES};
use std::time::Duration;

/// How long a directory may take to be looked at. Whoever lost a cluster may have lost the share as well.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// How long a piece may take.
const PIECE_WITHIN: Duration = Duration::from_secs(25);

/// Finds copies in each directory, all at the same time, or reads a piece of one.
pub(super) async fn copies(host: &Host, ask: CopiesAsk) -> Outcome<Reply> {
    let CopiesAsk::Find { cluster, authority, named, all, directories } = ask else {
        host.waits("the directory that the copy lies in");
        return beside(&host.root, ask, PIECE_WITHIN).await;
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
        let trouble = match beside(&host.root, one, FOUND_WITHIN).await {
            Ok(Reply::Copies(mut found)) if found.len() == 1 => return found.remove(0),
            Ok(_) => format!("{directory}: hactl answered itself with something else than it was asked for"),
            Err(fault) => silence(&directory, fault),
        };
        CopiesFact { directory, trouble: Some(trouble), ..CopiesFact::default() }
    });
    Ok(Reply::Copies(futures::future::join_all(each).await))
}

/// Why nothing is known of a directory.
fn silence(directory: &str, fault: Fault) -> String {
    if fault.kind == FaultKind::TimedOut {
        return format!("{directory} has not answered within {} s", FOUND_WITHIN.as_secs());
    }
    format!("{directory}: {}", fault.tail.last().unwrap_or(&fault.what))
}

/// Does it in a process of its own.
async fn beside(root: &Root, ask: CopiesAsk, within: Duration) -> Outcome<Reply> {
    if !root.is_host() {
        // A directory that stands for a host, in a test, which may be no hactl.
        let root = root.clone();
        return blocking(move || answer(&root, ask)).await;
    }
    let me = std::env::current_exe().map_err(|e| failed(format!("hactl does not find itself: {e}")))?;
    let me = me.to_str().ok_or_else(|| failed("hactl lies where its name is no text"))?;
    let ask = serde_json::to_string(&ask).map_err(|e| failed(e.to_string()))?;
    asked(&[me, "host-copies", &ask], within).await
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
fn answer(root: &Root, ask: CopiesAsk) -> Outcome<Reply> {
    match ask {
        CopiesAsk::Find { cluster, authority, named, all, directories } => {
            let wanted = folder::Wanted { cluster, authority, named, all };
            let each = directories.into_iter().map(|directory| {
                let at = root.path(&directory)?;
                Ok(folder::find(directory, &at, &wanted))
            });
            each.collect::<Outcome<_>>().map(Reply::Copies)
        }
        CopiesAsk::Read { directory, name, from } => {
            folder::piece(&root.path(&directory)?, &name, from).map(Reply::Bytes)
        }
    }
}

/// The process of its own: what it is asked, as JSON, and its answer.
///
/// # Errors
/// In words, why there is none.
pub fn copies_beside(ask: &str) -> Result<String, String> {
    let ask = serde_json::from_str(ask).map_err(|e| e.to_string())?;
    let reply = answer(&Root::host(), ask).map_err(|fault| fault.what)?;
    serde_json::to_string(&reply).map_err(|e| e.to_string())
}
