//! Unattended renewal: the certificates of the host, signed by issuers on the host.
//!
//! In: the settings that `up` wrote, the present leaf certificates and issuers, the clock of the host. Out: new leaf
//! certificates for those that are due, their readers reloaded, and what could not be renewed. It takes the lock of
//! the host if there is something to do, so that no run of `up` is active meanwhile.

use crate::agent::host::Host;
use crate::agent::lock;
use crate::agent::machine::root::Root;
use crate::agent::machine::{files, units, when};
use crate::agent::op_error::{Explain, Outcome, failed};
use crate::agent::pki::keys as pki;
use crate::issue::{self, Signer};
use crate::model::facts::LeafFact;
use crate::model::leaf::renews_by_itself;
use crate::model::plan::HowToRun;
use crate::model::renewal::{Reader, Renewed, SETTINGS, Settings};
use crate::model::secret::Secret;
use crate::model::target::CertSpec;
use crate::model::timestamp::rfc3339;
use crate::protocol::OpError;
use std::fs;
use time::OffsetDateTime;

/// The holder of the lock meanwhile.
const HOLDER: &str = "the renewal of this host's certificates";

/// One round; `Err` inside: a run has the lock, and renews what is due itself.
///
/// # Errors
/// The failure, in words.
pub async fn renew(root: Root) -> Result<Result<Renewed, String>, OpError> {
    let host = &Host::new(root);
    let reading = host.root.blocking(|root| {
        let settings: Settings = files::settings(&root.own(SETTINGS))?;
        let due = due(root, &settings)?;
        Ok((settings, due.is_empty()))
    });
    let (settings, idle) = reading.await?;
    let own = settings.leaves.iter().filter(|leaf| leaf.id.may_be_renewed_by_its_host() && !leaf.self_renewing);
    let mut renewed = Renewed { looked_at: own.count(), ..Renewed::default() };
    // On most days there is nothing to do; then the host is not locked.
    let mut held = None;
    if !idle {
        held = match host.root.blocking(|root| lock::take(root, HOLDER, lock::Rank::Resident)).await? {
            Ok(held) => Some(held),
            Err(other) => return Ok(Err(format!("{} holds the lock of this host since {}", other.by, other.since))),
        };
        let settings = settings.clone();
        renewed = host.root.blocking(move |root| leaves(root, &settings, renewed)).await?;
    }
    for reader in &settings.readers {
        tell(host, reader, &settings.leaves).await?;
    }
    drop(held);
    Ok(Ok(renewed))
}

/// The leaf certificates that are due, with their facts and the reason.
fn due(root: &Root, settings: &Settings) -> Outcome<Vec<(CertSpec, LeafFact, String)>> {
    let mut due = Vec::new();
    for leaf in &settings.leaves {
        // A missing one was never issued, or is managed manually.
        let Some(fact) = pki::look(root, leaf)? else { continue };
        if let Some(why) = renews_by_itself(leaf, &fact, when::now_ms()) {
            due.push((leaf.clone(), fact, why));
        }
    }
    Ok(due)
}

/// One leaf certificate after the other, each in place before the next.
fn leaves(root: &Root, settings: &Settings, mut renewed: Renewed) -> Outcome<Renewed> {
    for (leaf, fact, why) in due(root, settings)? {
        match successor(root, settings, &leaf, &fact) {
            Ok(pem) => {
                pki::put(root, &[(leaf.clone(), pem)])?;
                renewed.leaves.push((leaf.id, why));
            }
            Err(fault) => renewed.left.push((leaf.id, format!("{why}, and {}", fault.what))),
        }
    }
    Ok(renewed)
}

/// Another certificate for a new key, by the issuer of the same CA.
fn successor(root: &Root, settings: &Settings, leaf: &CertSpec, fact: &LeafFact) -> Outcome<String> {
    let issuer = settings.leaves.iter().find(|other| other.id.issues() && other.authority == leaf.authority);
    let issuer = issuer.ok_or_else(|| failed("this host has no issuer for its CA"))?;
    let found = pki::look(root, issuer)?.ok_or_else(|| failed(format!("the {} does not exist", issuer.id)))?;
    if found.authority != leaf.authority || !found.key_matches {
        return Err(failed(format!("the {} was changed since hactl made it", issuer.id)));
    }
    let lasts = if fact.key_matches { fact.not_after_s } else { 0 };
    if found.not_after_s <= lasts.max(when::now_ms().div_euclid(1000)) {
        let end = rfc3339(found.not_after_s.saturating_mul(1000));
        return Err(failed(format!("the {} expires at {end}: only `hactl up` can renew it", issuer.id)));
    }
    let (cert_at, key_at) = (root.path(&issuer.cert_path)?, root.path(&issuer.key_path)?);
    let cert_pem = fs::read_to_string(&cert_at).explain("read", &cert_at)?;
    let key = Secret::new(fs::read_to_string(&key_at).explain("read", &key_at)?);
    let signer = Signer { cert_pem: &cert_pem, key: &key, not_after_s: found.not_after_s, behind: &cert_pem };
    let request = pki::request(root, leaf)?;
    let signed = issue::sign(&request, leaf, &signer, OffsetDateTime::now_utc());
    signed.map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        failed(format!("{error}{cause}"))
    })
}

/// Makes a unit that uses an older certificate read the new one.
async fn tell(host: &Host, reader: &Reader, leaves: &[CertSpec]) -> Outcome<()> {
    let read: Vec<CertSpec> = leaves.iter().filter(|leaf| reader.reads.contains(&leaf.id)).cloned().collect();
    let changed = host.root.blocking(move |root| {
        let facts = read.iter().map(|leaf| pki::look(root, leaf)).collect::<Outcome<Vec<_>>>()?;
        Ok(facts.into_iter().flatten().map(|fact| fact.changed_ms).max())
    });
    let Some(changed) = changed.await? else { return Ok(()) };
    let (facts, _) = units::facts(&host.root, std::slice::from_ref(&reader.unit), false).await?;
    let stale = |unit: &crate::model::facts::UnitFact| {
        unit.active == "active" && unit.started_ms.max(unit.reloaded_ms) < changed
    };
    if facts.get(&reader.unit).is_some_and(stale) {
        units::run_unit(host, &reader.unit, HowToRun::Reload, false).await?;
    }
    Ok(())
}
