//! Additional checks after a recovery: whether the restored Secrets and service account tokens still work.
//!
//! In: a session whose API servers answer. Out: named checks. `up` has verified before that the API can be written and
//! read, and that a pod runs.

use super::{Failure, Session};
use crate::model::check::{Check, Outcome};
use crate::pki::key_id;
use reqwest::Method;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of the checks: to list Secrets, an API server decrypts every one.
const WITHIN: Duration = Duration::from_secs(60);
/// The error of an API server that has no key for an object (`apiserver/pkg/storage/value/transformer.go`).
const UNDECRYPTABLE: &str = "unable to transform key";
/// The checks' names.
const SECRETS: &str = "Secrets decrypt";
const TOKENS: &str = "earlier tokens are accepted";

/// Whether the restored Secrets can be read, and whether earlier tokens are accepted.
///
/// # Errors
/// No API server could be asked.
pub(super) async fn prove(session: &Session) -> Result<Vec<Check>, Failure> {
    let state = session.state(false).await?;
    let client = crate::reconcile::api_client(session, &state.api_access()).await?;
    let until = Instant::now() + WITHIN;
    let (secrets, keys) = tokio::join!(
        client.names("/api/v1/secrets", "Secret", until),
        client.raw(Method::GET, "/openid/v1/jwks", until)
    );
    let check = |name, outcome, detail: String, hint| crate::model::check::check(name, None, outcome, detail, hint);
    let secrets = match secrets {
        Ok(all) => check(SECRETS, Outcome::Pass, format!("all {} of them", all.len()), None),
        Err(error) if error.to_string().contains(UNDECRYPTABLE) => {
            let hint = "they are encrypted with a key that is not in this state, but in a snapshot of their time: \
                        hactl state pull --identity FILE --from SNAPSHOT";
            check(SECRETS, Outcome::Fail, format!("they cannot be read: {error}"), Some(hint))
        }
        Err(error) => check(SECRETS, Outcome::Warn, format!("could not check: {error}"), None),
    };
    let publics = state.publics();
    let wanted = key_id(&publics.service_account_pem);
    let kid = |key: &serde_json::Value| key.get("kid").and_then(serde_json::Value::as_str).map(str::to_owned);
    let tokens = match keys {
        Ok(answer) => {
            let keys = answer.get("keys").and_then(serde_json::Value::as_array);
            let accepted: BTreeSet<String> = keys.into_iter().flatten().filter_map(kid).collect();
            if wanted.as_ref().is_some_and(|wanted| accepted.contains(wanted)) {
                check(TOKENS, Outcome::Pass, "API servers accept the key that signed them".to_owned(), None)
            } else {
                let hint = "the API rejects pods with such tokens until the pods are restarted";
                check(TOKENS, Outcome::Fail, "API servers do not know the key that signed them".to_owned(), Some(hint))
            }
        }
        Err(error) => {
            check(TOKENS, Outcome::Warn, format!("could not check which keys API servers accept: {error}"), None)
        }
    };
    Ok(vec![secrets, tokens])
}
