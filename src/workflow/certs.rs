//! `hactl certs list`: every certificate of every host, as the host reports it, and those of the administrator.
//!
//! In: a session, the names of hosts. Out: a list that also contains unreachable hosts. It needs neither quorum nor the
//! API nor a bundle of components, and works with expired certificates: files are read over SSH, and certificates that
//! components present are read without verification.

use super::{Failure, Session, State};
use crate::model::certificate::{CertFact, Listing, OfHost};
use crate::model::desired::Host;
use crate::model::facts::Unreachable;
use crate::model::names::HostName;
use crate::model::timestamp::millis;
use crate::pki::{self, Publics};
use crate::protocol::ObserveAsk;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;
use time::OffsetDateTime;
use zeroize::Zeroizing;

/// Timeout of a host, which reads its certificates and makes a TLS handshake with each of its components.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The certificates of these hosts, or of all if none is named, and those on this machine.
///
/// # Errors
/// State that is lost or unusable.
pub async fn list(session: &Session, hosts: &[HostName]) -> Result<Listing, Failure> {
    let state = session.state(false).await?;
    let hosts = of_hosts(session, &state.publics(), hosts).await;
    Ok(Listing { hosts, own: own(&state) })
}

/// The certificates as the hosts report them, in the inventory's order.
pub(super) async fn of_hosts(
    session: &Session,
    publics: &Publics,
    hosts: &[HostName],
) -> Vec<(HostName, Result<OfHost, Unreachable>)> {
    let wanted = session.desired.hosts.iter().filter(|host| hosts.is_empty() || hosts.contains(&host.name));
    session.each(wanted, async |host| of_host(session, publics, host).await).await
}

async fn of_host(session: &Session, publics: &Publics, host: &Host) -> Result<OfHost, Unreachable> {
    let mut leaves = pki::leaves(&session.desired, host, publics);
    let certificates = pki::certificates_ask(&session.desired, host, &leaves);
    let ask = ObserveAsk { leaves: leaves.clone(), certificates, ..ObserveAsk::default() };
    let facts = session.observe(&host.name, ask, TIMEOUT).await?;
    pki::keep_addresses(&mut leaves, &facts);
    Ok(pki::list::of_host(&session.desired, host, &leaves, publics, &facts))
}

/// The certificates on this machine; none if there is no state yet.
fn own(state: &State) -> OfHost {
    let now_ms = millis(OffsetDateTime::now_utc()).unwrap_or(0);
    match state.kubeconfig_path() {
        Some(path) => {
            let text = std::fs::read_to_string(&path).map(Zeroizing::new).unwrap_or_default();
            pki::list::of_administrator(&state.publics(), (path.display().to_string(), in_kubeconfig(&text)), now_ms)
        }
        None => OfHost::sorted(vec![], now_ms),
    }
}

/// The certificate in a kubeconfig as hactl writes it.
pub(super) fn in_kubeconfig(text: &str) -> Option<CertFact> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("client-certificate-data:"))?;
    let pem = STANDARD.decode(line.trim().trim_matches('"')).ok()?;
    CertFact::read_pem(&pem).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::brought::Brought;

    #[test]
    fn the_certificate_of_a_kubeconfig_is_read_from_its_own_text() {
        let (cluster, now) = ("lab".parse().unwrap(), OffsetDateTime::now_utc());
        let contents = pki::found(&cluster, Brought::default(), now).unwrap();
        let credential = pki::admin_credential(&contents.cluster, now).unwrap();
        let text = pki::kubeconfig(&cluster, "https://10.0.0.100:6443", contents.cluster.cert_pem(), &credential);
        let found = in_kubeconfig(text.reveal()).unwrap();
        assert_eq!((found.common_name.as_str(), found.not_after_s), ("admin", credential.not_after.unix_timestamp()));
        assert_eq!(in_kubeconfig("client-certificate-data: \"%%%\"\n"), None);
        assert_eq!(in_kubeconfig(""), None);
    }
}
