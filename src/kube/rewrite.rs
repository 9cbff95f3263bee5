//! Rewrites objects unchanged, so that the API server stores them in etcd with the current encryption key.
//!
//! In: a client. Out: how many objects. hactl never reads their content: it lists names only and applies an empty
//! change.

use super::client::{Client, ObjectRef};
use super::error::KubeError;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Concurrent writes: few enough to leave capacity for other clients.
const AT_ONCE: usize = 8;
const SECRETS: &str = "/api/v1/secrets";

/// Rewrites every Secret; one that was deleted meanwhile is skipped.
///
/// # Errors
/// The first Secret that could not be written.
pub async fn secrets(client: &Client, until: Instant, stated: impl Fn(usize, usize)) -> Result<usize, KubeError> {
    let all = client.names(SECRETS, "Secret", until).await?;
    let (number, mut done) = (all.len(), 0);
    let writes = all.iter().map(async |secret| client.merge(secret, &json!({}), until).await);
    let mut writes = futures::stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
    while let Some(written) = writes.next().await {
        match written {
            Err(error) if error.is_not_found() => {}
            written => drop(written?),
        }
        done += 1;
        stated(done, number);
    }
    Ok(number)
}

/// Secrets of type service account token whose token is signed by the key with this identifier. Kubernetes creates them
/// on request.
///
/// # Errors
/// The Secrets cannot be listed.
pub async fn tokens(client: &Client, kid: &str, until: Instant) -> Result<Vec<ObjectRef>, KubeError> {
    let query = "fieldSelector=type%3Dkubernetes.io%2Fservice-account-token";
    let all = client.list(SECRETS, query, until).await?;
    let signed = all.iter().filter(|secret| key_of(secret).as_deref() == Some(kid));
    let text = |secret: &Value, at: &str| secret.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let reference = |secret: &Value| {
        let (namespace, name) = (text(secret, "/metadata/namespace"), text(secret, "/metadata/name"));
        ObjectRef::new("v1", "Secret", Some(&namespace), &name)
    };
    Ok(signed.map(reference).collect())
}

/// Removes the token from such a Secret; the controller manager puts a new one in its place.
///
/// # Errors
/// The Secret cannot be changed.
pub async fn renew_token(client: &Client, secret: &ObjectRef, until: Instant) -> Result<(), KubeError> {
    match client.merge(secret, &json!({"data": {"token": null}}), until).await {
        Err(error) if error.is_not_found() => Ok(()),
        changed => changed.map(drop),
    }
}

/// The identifier of the key that signed the token in a Secret.
fn key_of(secret: &Value) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let token = STANDARD.decode(secret.pointer("/data/token")?.as_str()?).ok()?;
    let header = token.split(|byte| *byte == b'.').next()?;
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    header.get("kid")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_token_is_read_from_its_header() {
        use base64::Engine as _;
        use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
        let secret = |header: &str| {
            let token = format!("{}.e30.sig", URL_SAFE_NO_PAD.encode(header));
            json!({"data": {"token": STANDARD.encode(token)}})
        };
        assert_eq!(key_of(&secret(r#"{"alg":"ES256","kid":"abc"}"#)).as_deref(), Some("abc"));
        assert_eq!(key_of(&secret(r#"{"alg":"ES256"}"#)), None);
        assert_eq!(key_of(&secret("no JSON")), None);
        assert_eq!(key_of(&json!({"data": {}})), None, "the controller manager has yet to fill it");
    }
}
