//! The object by which API servers tell aggregated API servers whom to trust: `extension-apiserver-authentication`.
//!
//! In: a client, certificates. Out: it holds them, or does not any more. API servers only ever add to it (apiserver,
//! `pkg/server/dynamiccertificates` and the controller `clusterauthenticationtrust`); what is to go, somebody else takes out.

use super::client::{Client, ObjectRef};
use super::error::KubeError;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Where clients' authorities stand, and those of the front proxy.
const KEYS: [&str; 2] = ["client-ca-file", "requestheader-client-ca-file"];
/// An API server that has not read its file anew puts back what it still trusts as soon as the object changes.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(3);

fn object() -> ObjectRef {
    ObjectRef::new("v1", "ConfigMap", Some("kube-system"), "extension-apiserver-authentication")
}

/// The certificates of a text in PEM, each without white space.
fn certificates(pem: &str) -> Vec<String> {
    let all =
        pem.split_inclusive("-----END CERTIFICATE-----").filter(|one| one.contains("-----BEGIN CERTIFICATE-----"));
    all.map(|one| one.split_whitespace().collect()).collect()
}

/// What is left of a text when these certificates are taken out; `None` where it holds none of them.
fn without(pem: &str, old: &[String]) -> Option<String> {
    let is_old = |one: &&str| old.contains(&one.split_whitespace().collect::<String>());
    let parts: Vec<&str> = pem.split_inclusive("-----END CERTIFICATE-----").collect();
    let left: Vec<&str> = parts.iter().copied().filter(|one| !is_old(one)).collect();
    (left.len() < parts.len()).then(|| format!("{}\n", left.concat().trim()))
}

/// Waits until aggregated API servers are told of this front proxy's authority.
///
/// # Errors
/// They are not in time.
pub async fn holds(client: &Client, pem: &str, until: Instant) -> Result<(), KubeError> {
    let wanted = certificates(pem);
    let told = |live: Option<&Value>| {
        let text = live.and_then(|live| live.pointer(&format!("/data/{}", KEYS[1]))?.as_str()).unwrap_or_default();
        let there = certificates(text);
        let all = wanted.iter().all(|one| there.contains(one));
        if all { Ok(()) } else { Err("the new authority is not among those of the front proxy".to_owned()) }
    };
    client.wait(&object(), "API servers tell of the next front proxy", until, told).await.map(drop)
}

/// Takes these certificates out, and sees that they stay out.
///
/// # Errors
/// An API server puts them back until the end of the time.
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
            let (what, seen) = ("API servers let go of the old authority", "one of them still tells of it");
            return Err(KubeError::TimedOut { what: what.to_owned(), seen: seen.to_owned() });
        }
        let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        match client.merge(&object(), &json!({"metadata": {"resourceVersion": version}, "data": left}), until).await {
            // Somebody was faster: it is looked at again.
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
    fn what_is_taken_out_is_found_however_its_lines_are_broken_and_the_rest_stays() {
        let all = [pem("b2xk"), pem("bmV3"), pem("b3RoZXI=")].concat();
        let old = certificates(&pem("b2\nxk"));
        assert_eq!(without(&all, &old), Some([pem("bmV3"), pem("b3RoZXI=")].concat()));
        assert_eq!(without(&pem("bmV3"), &old), None, "nothing to do");
        assert_eq!(certificates(&all).len(), 3);
        assert_eq!(certificates("no certificate"), Vec::<String>::new());
    }
}
