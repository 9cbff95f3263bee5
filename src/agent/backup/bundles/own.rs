//! The host's own identity, by which it holds drills: it opens the snapshots of the bundles that were taken here since, and nothing else.
//!
//! In: the file, made here when it is not there. Out: the key to seal to, and what opens. The key never leaves this host: nothing sends it,
//! and whoever takes the drills out of the inventory takes it away.

use crate::agent::etcd::member::me;
use crate::agent::fault::{Explain, Outcome, failed};
use crate::agent::machine::files::write_one;
use crate::agent::machine::root::Root;
use crate::agent::machine::when;
use crate::model::drill::IDENTITY;
use crate::model::secret::Secret;
use crate::snapshot::{Identities, new_identity, public_of};
use std::fs;
use std::io::ErrorKind;

/// Before the time in its first line, as `age-keygen` writes it.
const MADE: &str = "# created: ";

/// Makes it unless there is one that can be used.
pub(super) fn made(root: &Root) -> Outcome<()> {
    if read(root)?.is_some_and(|text| public_of(&text).is_ok()) {
        return Ok(());
    }
    let text = format!("{MADE}{}\n{}", when::rfc3339(when::now_ms()), new_identity().reveal());
    write_one(root.own(IDENTITY), Secret::new(text).reveal().as_bytes(), 0o600, me())
}

/// Its public keys; none: there is no identity, as when the inventory has just ceased to ask for drills.
pub(super) fn recipients(root: &Root) -> Outcome<Vec<String>> {
    let Some(text) = read(root)? else { return Ok(Vec::new()) };
    public_of(&text).map_err(|error| unusable(root, &error))
}

/// What opens, and since when there is such a key (milliseconds since 1970; none: nobody knows).
pub(super) fn identity(root: &Root) -> Outcome<Option<(Identities, Option<i64>)>> {
    let Some(text) = read(root)? else { return Ok(None) };
    let identities = Identities::parse(&text).map_err(|error| unusable(root, &error))?;
    Ok(Some((identities, made_ms(&text))))
}

/// Since when there is one.
pub(super) fn since_ms(root: &Root) -> Outcome<Option<i64>> {
    Ok(read(root)?.as_ref().and_then(made_ms))
}

fn made_ms(text: &Secret<String>) -> Option<i64> {
    text.reveal().lines().find_map(|line| when::parse_rfc3339(line.strip_prefix(MADE)?.trim()))
}

fn read(root: &Root) -> Outcome<Option<Secret<String>>> {
    let at = root.own(IDENTITY);
    match fs::read_to_string(&at) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.explain("read", &at).map(|text| Some(Secret::new(text))),
    }
}

fn unusable(root: &Root, why: &crate::snapshot::BadKey) -> crate::protocol::Fault {
    let at = root.own(IDENTITY);
    failed(format!("{} cannot be used: {why}; with the next bundle there is another", at.display()))
}
