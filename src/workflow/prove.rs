//! What a cluster is asked after a recovery, beside what every run of `up` asks: whether what was restored is good for those who had it before.
//!
//! In: a session whose API servers answer. Out: named checks. That something can be written and read, and that a pod lives, is known by then.

use super::{Failure, Session};
use crate::model::check::{Check, Outcome};
use crate::pki::key_id;
use reqwest::Method;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// How long the answers may take: to list Secrets an API server decrypts every one.
const WITHIN: Duration = Duration::from_secs(60);
/// What an API server says of what it has no key for (`apiserver/pkg/storage/value/transformer.go`).
const UNDECRYPTABLE: &str = "unable to transform key";
/// The checks' names.
const SECRETS: &str = "Secrets decrypt";
const TOKENS: &str = "tokens of before are good";

/// Whether Secrets of before can be read, and whether tokens of before are accepted.
///
/// # Errors
/// No API server could be asked.
pub(super) async fn prove(session: &Session) -> Result<Vec<Check>, Failure> {
    let state = session.state(false).await?;
    let client = crate::reconcile::api_client(session, &state.api_access()?).await?;
    let until = Instant::now() + WITHIN;
    let (secrets, keys) = tokio::join!(
        client.names("/api/v1/secrets", "Secret", until),
        client.raw(Method::GET, "/openid/v1/jwks", until)
    );
    let check = |name, outcome, detail: String, hint: Option<&str>| Check {
        name,
        host: None,
        outcome,
        detail,
        hint: hint.map(str::to_owned),
    };
    let secrets = match secrets {
        Ok(all) => check(SECRETS, Outcome::Pass, format!("all {} of them", all.len()), None),
        Err(error) if error.to_string().contains(UNDECRYPTABLE) => {
            let hint = "they are encrypted with a key that this state has not; a bundle of their time has it: hactl state pull --identity FILE --from BUNDLE";
            check(SECRETS, Outcome::Fail, format!("they cannot be read: {error}"), Some(hint))
        }
        Err(error) => check(SECRETS, Outcome::Warn, format!("whether they do is not known: {error}"), None),
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
                let hint = "pods that hold such tokens are refused until they are started anew";
                check(TOKENS, Outcome::Fail, "API servers do not know the key that signed them".to_owned(), Some(hint))
            }
        }
        Err(error) => {
            check(TOKENS, Outcome::Warn, format!("which keys API servers accept is not known: {error}"), None)
        }
    };
    Ok(vec![secrets, tokens])
}
