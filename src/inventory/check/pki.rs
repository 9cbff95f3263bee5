//! The files of the administrator's own CAs and keys. `pki::brought` validates their contents when the cluster is
//! bootstrapped, because they need not exist afterwards.

use super::validator::Validator;
use crate::inventory::at::At;
use crate::inventory::schema::{self, Pair};
use crate::model::desired::{BroughtAuthority, BroughtPki};
use std::path::PathBuf;

/// The files named.
pub fn brought(judge: &mut Validator<'_>, raw: Option<&At<schema::Pki>>) -> BroughtPki {
    let Some(raw) = raw.map(|p| &p.value) else { return BroughtPki::default() };
    let mut seen: Vec<(PathBuf, &'static str)> = Vec::new();
    BroughtPki {
        cluster: pair(judge, ["pki.ca", "pki.ca.cert", "pki.ca.key"], raw.ca.as_ref(), &mut seen),
        etcd: pair(judge, ["pki.etcdCa", "pki.etcdCa.cert", "pki.etcdCa.key"], raw.etcd_ca.as_ref(), &mut seen),
        front_proxy: pair(
            judge,
            ["pki.frontProxyCa", "pki.frontProxyCa.cert", "pki.frontProxyCa.key"],
            raw.front_proxy_ca.as_ref(),
            &mut seen,
        ),
        service_account: raw
            .service_account_key
            .as_ref()
            .and_then(|text| own_file(judge, "pki.serviceAccountKey", text, &mut seen)),
    }
}

fn pair(
    judge: &mut Validator<'_>,
    [whole, cert_key, key_key]: [&'static str; 3],
    raw: Option<&At<Pair>>,
    seen: &mut Vec<(PathBuf, &'static str)>,
) -> Option<BroughtAuthority> {
    let raw = raw?;
    let (Some(cert), Some(key)) = (raw.value.cert.as_ref(), raw.value.key.as_ref()) else {
        let missing = if raw.value.cert.is_none() { "cert" } else { "key" };
        return judge.none(
            raw.place,
            format!("{whole} has no {missing}"),
            "the files of a certificate and of its private key",
            format!("add `{missing}: FILE`: hactl signs certificates with this CA"),
        );
    };
    let cert = judge.absolute(cert_key, cert)?;
    let key = own_file(judge, key_key, key, seen)?;
    Some(BroughtAuthority { cert, key })
}

/// A key that has no second use.
fn own_file(
    judge: &mut Validator<'_>,
    key: &'static str,
    text: &At<String>,
    seen: &mut Vec<(PathBuf, &'static str)>,
) -> Option<PathBuf> {
    let path = judge.absolute(key, text)?;
    if let Some((_, other)) = seen.iter().find(|(known, _)| *known == path) {
        let remedy = "create another: with one key, a credential for one purpose would be valid for the other too";
        return judge.none(text.place, format!("{key} is the same file as {other}"), "a separate key for each", remedy);
    }
    seen.push((path.clone(), key));
    Some(path)
}
