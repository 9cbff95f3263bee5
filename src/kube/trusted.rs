//! The ConfigMap that gives aggregated API servers their trusted CAs: `extension-apiserver-authentication`.
//!
//! In: a client, certificates. Out: the ConfigMap contains them, or no longer does. API servers only add to it
//! (apiserver, `pkg/server/dynamiccertificates` and the controller `clusterauthenticationtrust`), so hactl removes old
//! certificates.

use super::client::{Client, ObjectRef};
use super::error::KubeError;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The keys of the client CAs and of the front proxy CAs.
const KEYS: [&str; 2] = ["client-ca-file", "requestheader-client-ca-file"];
/// An API server that has not reloaded its file adds the CAs that it still trusts again as soon as the object changes.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(3);

fn object() -> ObjectRef {
    ObjectRef::new("v1", "ConfigMap", Some("kube-system"), "extension-apiserver-authentication")
}

/// The certificates of a PEM text, each without white space.
fn certificates(pem: &str) -> Vec<String> {
    let all =
        pem.split_inclusive("-----END CERTIFICATE-----").filter(|one| one.contains("-----BEGIN CERTIFICATE-----"));
    all.map(|one| one.split_whitespace().collect()).collect()
}

/// The text without these certificates; `None` if it contains none of them.
fn without(pem: &str, old: &[String]) -> Option<String> {
    let is_old = |one: &&str| old.contains(&one.split_whitespace().collect::<String>());
    let parts: Vec<&str> = pem.split_inclusive("-----END CERTIFICATE-----").collect();
    let left: Vec<&str> = parts.iter().copied().filter(|one| !is_old(one)).collect();
    (left.len() < parts.len()).then(|| format!("{}\n", left.concat().trim()))
}

/// Waits until the ConfigMap contains this front proxy CA.
///
/// # Errors
/// It does not in time.
pub async fn holds(client: &Client, pem: &str, until: Instant) -> Result<(), KubeError> {
    let wanted = certificates(pem);
    let stated = |live: Option<&Value>| {
        let text = live.and_then(|live| live.pointer(&format!("/data/{}", KEYS[1]))?.as_str()).unwrap_or_default();
        let there = certificates(text);
        let all = wanted.iter().all(|one| there.contains(one));
        if all { Ok(()) } else { Err("the new CA is not among the front proxy CAs".to_owned()) }
    };
    client.wait(&object(), "publication of the new front proxy CA by the API servers", until, stated).await.map(drop)
}

/// Removes these certificates, and checks that they stay removed.
///
/// # Errors
/// An API server keeps adding them until the deadline.
pub async fn forget(client: &Client, old: &[&str], until: Instant) -> Result<(), KubeError> {
    let old: Vec<String> = old.iter().flat_map(|pem| certificates(pem)).collect();
    loop {
        let Some(live) = client.get(&object(), until).await? else { return Ok(()) };
        let left = KEYS.into_iter().filter_map(|key| {
            let text = live.pointer(&format!("/data/{key}"))?.as_str()?;
            Some((key.to_owned(), Value::String(without(text, &old)?)))
        });
        let left: serde_json::Map<String, Value> = left.collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() + PUT_BACK_WITHIN >= until {
            let (what, seen) = ("removal of the old CA by the API servers", "one of them still publishes it");
            return Err(KubeError::TimedOut { what: what.to_owned(), seen: seen.to_owned() });
        }
        let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        match client.merge(&object(), &json!({"metadata": {"resourceVersion": version}, "data": left}), until).await {
            // Another client changed it first: read it again.
            Err(error) if error.is_conflict() => {}
            changed => drop(changed?),
        }
        sleep(PUT_BACK_WITHIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(text: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn a_removed_certificate_is_found_with_any_line_breaks_and_the_rest_stays() {
        let all = [pem("b2xk"), pem("bmV3"), pem("b3RoZXI=")].concat();
        let old = certificates(&pem("b2\nxk"));
        assert_eq!(without(&all, &old), Some([pem("bmV3"), pem("b3RoZXI=")].concat()));
        assert_eq!(without(&pem("bmV3"), &old), None, "nothing to do");
        assert_eq!(certificates(&all).len(), 3);
        assert_eq!(certificates("no certificate"), Vec::<String>::new());
    }
}
