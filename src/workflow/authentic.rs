//! Verifies the signatures of snapshots with the CA in the state directory, before hactl uses them.
//!
//! In: snapshots on hosts, shares and object storage. Out: the same with an
//! [`Authenticity`](crate::model::authentic::Authenticity), and refusals. Every snapshot from outside is verified here
//! once, on receipt.

use super::{Session, State, Unusable};
use crate::model::authentic::Authenticity;
use crate::model::copies::CopiesFact;
use crate::model::desired::{Desired, Host};
use crate::model::facts::Facts;
use crate::model::names::HostName;
use crate::model::snapshot::{BundleFact, BundlesFact};
use crate::model::timestamp::is_ahead;
use crate::snapshot::{Bundle, Trust};
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// The CAs that verify this cluster's snapshots; `None`: there is no state.
pub(super) async fn trust(session: &Session) -> Option<Trust> {
    let state = session.state(false).await.ok()?;
    state.state_dir()?;
    Some(state.contents().snapshot_trust())
}

/// Verifies the snapshots that a host reports.
pub(super) fn own(trust: &Trust, host: &HostName, fact: &mut BundlesFact) {
    fact.bundles.iter_mut().for_each(|bundle| trust.judge_fact(bundle, Some(host)));
}

/// Verifies the snapshots that all hosts report. Only etcd hosts take snapshots, so reports of hosts that never
/// have a member are dropped.
pub(super) fn all(state: &State, desired: &Desired, facts: &mut Facts) {
    let trust = state.contents().snapshot_trust();
    for (host, answer) in &mut facts.hosts {
        let Ok(answer) = answer else { continue };
        if desired.host(host).is_some_and(Host::may_vote) {
            answer.bundles.iter_mut().for_each(|fact| own(&trust, host, fact));
        } else {
            answer.bundles = None;
        }
    }
}

/// Verifies copies in directories.
pub(super) fn copies(trust: &Trust, found: &mut [CopiesFact]) {
    let copies = found.iter_mut().flat_map(|fact| &mut fact.copies);
    copies.for_each(|copy| trust.judge_fact(&mut copy.bundle, None));
}

/// Warns of each forged snapshot once.
pub(super) fn tell<'a>(session: &Session, bundles: impl Iterator<Item = (String, &'a BundleFact)>) {
    let forged = bundles.filter_map(|(at, bundle)| match &bundle.authenticity {
        Authenticity::Forged(why) => Some(format!("ignoring a snapshot: {at} is forged: {why}")),
        _ => None,
    });
    for text in forged.collect::<BTreeSet<_>>() {
        session.sink.warn(text);
    }
}

/// The signer of a snapshot's manifest, if the snapshot may be used.
///
/// # Errors
/// It is forged, or it is not signed and `accept_unsigned` is not set.
pub(super) fn admitted(trust: &Trust, bundle: &Bundle, accept_unsigned: bool) -> Result<Authenticity, Unusable> {
    match trust.judge(&bundle.claimed) {
        Authenticity::Forged(why) => Err(Unusable::Forged { path: bundle.path().to_owned(), why }),
        Authenticity::Unsigned if !accept_unsigned => Err(Unusable::Unsigned(bundle.path().to_owned())),
        judged => Ok(judged),
    }
}

/// The order of preference: first signed snapshots, then those not dated in the future, then the newest.
pub(super) fn worth(bundle: &BundleFact) -> (u8, bool, i64) {
    let rank = match bundle.authenticity {
        Authenticity::Signed(_) => 3,
        Authenticity::Unchecked => 2,
        Authenticity::Unsigned => 1,
        Authenticity::Forged(_) => 0,
    };
    (rank, !is_ahead(bundle.taken_ms, now_ms()), bundle.taken_ms)
}

pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
