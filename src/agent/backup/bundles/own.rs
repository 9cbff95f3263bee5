//! The host's own identity for drills: it decrypts the etcd data of snapshots taken here since, and nothing else.
//!
//! In: the file, made here if it does not exist. Out: the recipient for the encryption, and the identity for the
//! decryption. The key never leaves this host: nothing sends it, and disabling the drills in the inventory deletes
//! it.

use crate::agent::machine::files::{optional, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, failed};
use crate::model::drill::IDENTITY;
use crate::model::secret::Secret;
use crate::snapshot::{Identities, new_identity, public_of};
use std::fs;

/// Before the time in its first line, as `age-keygen` writes it.
const MADE: &str = "# created: ";

/// Makes it unless there is a usable one.
pub(super) fn made(root: &Root) -> Outcome<()> {
    if read(root)?.is_some_and(|text| public_of(&text).is_ok()) {
        return Ok(());
    }
    let text = format!("{MADE}{}\n{}", when::rfc3339(when::now_ms()), new_identity().reveal());
    write_one(root.own(IDENTITY), Secret::new(text).reveal().as_bytes(), 0o600, me())
}

/// Its public keys; none: there is no identity, for example because the inventory has just disabled drills.
pub(super) fn recipients(root: &Root) -> Outcome<Vec<String>> {
    let Some(text) = read(root)? else { return Ok(Vec::new()) };
    public_of(&text).map_err(|error| unusable(root, &error))
}

/// The identity, and since when there is such a key (milliseconds since 1970; none: unknown).
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
    Ok(optional(fs::read_to_string(&at)).explain("read", &at)?.map(Secret::new))
}

fn unusable(root: &Root, why: &crate::snapshot::BadKey) -> crate::protocol::OpError {
    let at = root.own(IDENTITY);
    failed(format!("{} cannot be used: {why}; the next snapshot replaces it", at.display()))
}
