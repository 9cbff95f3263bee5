//! Introduces a separate CA for kubelets' serving certificates in clusters in which the signing intermediate still
//! signs them.
//!
//! In: the state, the facts that `up` has just observed. Out: the state at the next stage of that rotation, which `up`
//! then brings to all hosts: API servers trust the new CA beside the old one; it signs, and every kubelet gets another
//! certificate; the old one is no longer trusted for kubelets.

use super::{Failure, Session, State};
use crate::model::desired::Desired;
use crate::model::facts::{Facts, HostFacts};
use crate::model::names::HostName;
use crate::model::rotation::{Rotatable, Stage};
use crate::model::target::KUBELET_SERVES_WITH;
use crate::observe::Wait;
use crate::pki::rotate;
use crate::reconcile::Round;
use std::time::Duration;
use tokio::time::Instant;

const WHAT: Rotatable = Rotatable::KubeletServingCa;
/// Timeout until kubelets have their next certificate: they request it within seconds, and the approver polls every
/// three seconds.
const ISSUED_WITHIN: Duration = Duration::from_secs(90);
/// The interval of the checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The note before it begins.
pub(super) const BEGINS: &str = "kubelets' serving certificates get a separate CA, which is not trusted for the API: \
                                 first API servers trust it, then it signs and every kubelet gets another \
                                 certificate, then the old one is no longer trusted for kubelets";

/// Whether the cluster needs one. Not while the CA that signs now is being rotated itself.
pub(super) fn lacks(state: &State) -> bool {
    let contents = state.contents();
    let under_way = [WHAT, Rotatable::SigningCa, Rotatable::ClusterCa];
    contents.kubelet_serving.is_none() && under_way.into_iter().all(|what| contents.stage(what).is_none())
}

/// Creates it if the cluster has none.
pub(super) fn begin(session: &Session, state: &mut State) -> Result<(), Failure> {
    if !lacks(state) {
        return Ok(());
    }
    session.sink.note(BEGINS.to_owned());
    state.rotate(WHAT, |cluster, contents, now| rotate::begin(cluster, contents, WHAT, now))
}

/// Starts the next stage when every host has reached this one. Returns whether `up` has to run for it.
pub(super) async fn advance(session: &Session, seen: &Facts) -> Result<bool, Failure> {
    let Some(mut state) = session.kept()? else { return Ok(false) };
    let Some(stage) = state.contents().stage(WHAT) else { return Ok(false) };
    let _held = state.hold("up")?;
    match stage {
        Stage::Spread => state.rotate(WHAT, |_, contents, now| rotate::issue(contents, WHAT, now))?,
        Stage::Issued => {
            let behind = wait(session, &state, seen).await?;
            if !behind.is_empty() {
                let names: Vec<&str> = behind.iter().map(HostName::as_str).collect();
                session.sink.warn(format!(
                    "the kubelet of {} has no serving certificate of {WHAT} yet, so the old one is still trusted for \
                     kubelets: journalctl -u kubelet -u hactl-approver there; then hactl up",
                    names.join(", ")
                ));
                return Ok(false);
            }
            state.advance(WHAT, |contents, now| {
                rotate::arrived(contents, WHAT, now);
                rotate::end(contents, WHAT, now);
            })?;
        }
        Stage::Ending => {
            state.advance(WHAT, |contents, _| rotate::finish(contents, WHAT))?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until every kubelet has a certificate of the CA that signs now; returns the hosts without one.
async fn wait(session: &Session, state: &State, seen: &Facts) -> Result<Vec<HostName>, Failure> {
    let (begun, signer) = (Instant::now(), &state.publics().kubelet_serving.id);
    let mut behind = lagging(&session.desired, |host| seen.host(host), signer);
    if !behind.is_empty() {
        session.sink.phase("waiting until kubelets have their next serving certificates");
    }
    while !behind.is_empty() && begun.elapsed() < ISSUED_WITHIN && !session.stop.is_cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
        let look = Round::take(session, state, Wait::ForAll).await?;
        behind = lagging(&session.desired, |host| look.facts.host(host), signer);
    }
    Ok(behind)
}

/// The Nodes with a certificate of another CA or with none, and those that do not answer.
fn lagging<'a>(desired: &Desired, of: impl Fn(&HostName) -> Option<&'a HostFacts>, signer: &str) -> Vec<HostName> {
    let has = |host: &HostName| {
        let file = of(host).and_then(|found| found.certificates.files.get(KUBELET_SERVES_WITH)?.first());
        file.is_some_and(|certificate| certificate.authority == signer)
    };
    let nodes = desired.hosts.iter().filter(|host| host.is_node()).map(|host| &host.name);
    nodes.filter(|host| !has(host)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::certificate::CertFact;
    use crate::model::desired::sample;
    use crate::model::names::Digest;
    use crate::pki::brought::Brought;
    use crate::statedir::{Contents, StateDir};
    use std::collections::BTreeMap;
    use time::OffsetDateTime;

    fn state(dir: &std::path::Path, change: impl FnOnce(&mut Contents)) -> State {
        let cluster = sample(3).cluster;
        let mut contents = crate::pki::found(&cluster, Brought::default(), OffsetDateTime::now_utc()).unwrap();
        change(&mut contents);
        drop(StateDir::create(dir, &cluster, contents).unwrap());
        State::open(dir, &cluster).unwrap().unwrap()
    }

    #[test]
    fn a_state_of_an_earlier_version_lacks_one_unless_the_signing_ca_is_being_replaced() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        assert!(!lacks(&state(&at("new"), |_| {})));
        assert!(lacks(&state(&at("old"), |contents| contents.kubelet_serving = None)));
        for what in [Rotatable::SigningCa, Rotatable::ClusterCa] {
            let turned = state(&at(what.name()), |contents| {
                contents.kubelet_serving = None;
                rotate::begin(&sample(3).cluster, contents, what, OffsetDateTime::now_utc()).unwrap();
            });
            assert!(!lacks(&turned), "{what}");
        }
    }

    #[test]
    fn a_node_lags_until_it_shows_a_certificate_of_the_new_ca() {
        let desired = sample(3);
        let of = |authority: &str| CertFact {
            common_name: String::new(),
            key_id: String::new(),
            authority: authority.to_owned(),
            serial: String::new(),
            fingerprint: Digest::of(b"x"),
            not_before_s: 0,
            not_after_s: 1,
        };
        let mut facts = BTreeMap::new();
        for (host, shown) in desired.hosts.iter().zip([Some("new"), Some("old"), None]) {
            let mut found = HostFacts::default();
            let files = shown.map(|authority| (KUBELET_SERVES_WITH.to_owned(), vec![of(authority)]));
            found.certificates.files.extend(files);
            facts.insert(host.name.clone(), found);
        }
        let lag = lagging(&desired, |host| facts.get(host), "new");
        assert_eq!(lag, [desired.hosts[1].name.clone(), desired.hosts[2].name.clone()]);
        assert_eq!(lagging(&desired, |_| None, "new").len(), 3, "no answer is no certificate");
    }
}
