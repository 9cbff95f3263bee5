//! The probe of the API server: any answer counts. One that answers with an error works; its dependency does not.

use super::{Found, Seen};
use crate::agent::machine::root::Root;
use crate::agent::pki::tls;
use crate::agent::web::Web;
use crate::model::fault::FaultKind;
use crate::model::healing::{GuardedHost, Policy};
use std::time::Duration;

/// How long it may take: under load it answers late.
const WITHIN: Duration = Duration::from_secs(4);
const CA: &str = "/etc/kubernetes/pki/ca.crt";
const CERT: &str = "/etc/kubernetes/pki/observer.crt";
const KEY: &str = "/etc/kubernetes/pki/observer.key";

/// Whether it answers.
pub(super) async fn look(root: &Root, policy: &Policy, host: &GuardedHost) -> Seen {
    // Before its certificates are installed there is no API server.
    let tls = tls::client(root, CA, Some((CERT, KEY))).ok()?;
    let web = Web::new(tls, &host.address.to_string(), policy.api_port, WITHIN).ok()?;
    match web.get("/livez", WITHIN).await {
        Ok(_) => Some(Vec::new()),
        Err(why) => Some(vec![Found::new(FaultKind::ApiFrozen, why)]),
    }
}
