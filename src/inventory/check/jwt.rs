//! JWT authenticators, by the rules of Kubernetes' AuthenticationConfiguration: an API server does not start with an
//! invalid one. Only the API server can validate CEL expressions: it does so on the first host, before hactl changes
//! the next one.

use super::validator::Validator;
use crate::inventory::at::{At, Place};
use crate::inventory::problem::shorten;
use crate::inventory::schema;
use crate::inventory::suggest::nearest;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The issuer of service account tokens, which no other issuer may claim to be.
const OWN_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Kubernetes' limit.
const MOST: usize = 64;

/// The keys that a mapping may have.
const AUTHENTICATOR: &[&str] = &["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
const ISSUER: &[&str] =
    &["url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy", "egressSelectorType"];
const MAPPINGS: &[&str] = &["username", "groups", "uid", "extra"];
const PREFIXED: &[&str] = &["claim", "prefix", "expression"];
const CLAIM: &[&str] = &["claim", "expression"];
const EXTRA: &[&str] = &["key", "valueExpression"];
const CLAIM_RULE: &[&str] = &["claim", "requiredValue", "expression", "message"];
const USER_RULE: &[&str] = &["expression", "message"];

/// The authenticators, passed on as they are.
pub fn authenticators(judge: &mut Validator<'_>, raw: Option<&At<schema::Authentication>>) -> Vec<Value> {
    let Some(list) = raw.and_then(|a| a.value.jwt.as_ref()) else { return Vec::new() };
    if list.value.len() > MOST {
        judge.refuse(list.place, format!("{} JWT authenticators", list.value.len()), "at most 64", "remove some");
        return Vec::new();
    }
    let (mut urls, mut discoveries) = (BTreeSet::new(), BTreeSet::new());
    let mut out = Vec::new();
    for entry in &list.value {
        let mut one = One { judge, place: entry.place };
        one.authenticator(&entry.value);
        for (seen, path) in [(&mut urls, "/issuer/url"), (&mut discoveries, "/issuer/discoveryURL")] {
            let whole = Value::Object(entry.value.clone());
            if let Some(text) = whole.pointer(path).and_then(Value::as_str)
                && !seen.insert(text.to_owned())
            {
                one.refuse(
                    format!("{} is in two authenticators", shorten(text)),
                    "one authenticator per issuer",
                    "merge them",
                );
            }
        }
        out.push(Value::Object(entry.value.clone()));
    }
    out
}

/// One authenticator. A free mapping records no places of its parts, so all problems point to its start.
struct One<'a, 'j> {
    judge: &'a mut Validator<'j>,
    place: Place,
}

impl One<'_, '_> {
    fn refuse(&mut self, what: String, expected: &str, remedy: &str) {
        self.judge.refuse(self.place, format!("this JWT authenticator: {what}"), expected, remedy);
    }

    fn authenticator(&mut self, map: &Map<String, Value>) {
        self.known("", map, AUTHENTICATOR);
        match map.get("issuer") {
            Some(Value::Object(issuer)) => self.issuer(issuer),
            _ => self.refuse(
                "it has no issuer".to_owned(),
                "issuer: {url, audiences}",
                "add `issuer: {url: https://..., audiences: [...]}`",
            ),
        }
        match map.get("claimMappings") {
            Some(Value::Object(mappings)) => self.mappings(mappings),
            _ => self.refuse(
                "it has no claimMappings".to_owned(),
                "claimMappings.username: the user name, from a claim or an expression",
                "add something like `claimMappings: {username: {claim: sub, prefix: \"oidc:\"}}`",
            ),
        }
        for (key, known) in [("claimValidationRules", CLAIM_RULE), ("userValidationRules", USER_RULE)] {
            for (at, rule) in self.list(key, map.get(key)).into_iter().enumerate() {
                let path = format!("{key}[{at}]");
                let Some(rule) = self.map(&path, &rule, known) else { continue };
                let says = |field: &str| text(&rule, field).is_some();
                if key == "userValidationRules" && !says("expression") {
                    self.refuse(format!("{path} has no expression"), "a CEL expression", "add `expression: ...`");
                }
                if key == "claimValidationRules" {
                    self.one_of(&path, &rule, true);
                    let odd = if says("claim") { "message" } else { "requiredValue" };
                    if says(odd) {
                        let what = format!("{path}.{odd} cannot be combined with the other keys");
                        self.refuse(what, "claim with requiredValue, or expression with message", "remove it");
                    }
                }
            }
        }
    }

    fn issuer(&mut self, issuer: &Map<String, Value>) {
        self.known("issuer.", issuer, ISSUER);
        let Some(url) = text(issuer, "url") else {
            self.refuse(
                "it has no issuer.url".to_owned(),
                "the issuer, as in the `iss` claim of its tokens",
                "add `url: https://...` to the issuer",
            );
            return;
        };
        self.https("issuer.url", url);
        if url == OWN_ISSUER {
            let what = format!("{url} issues this cluster's own service account tokens");
            self.refuse(what, "an issuer outside the cluster", "remove this authenticator");
        }
        if let Some(discovery) = text(issuer, "discoveryURL") {
            self.https("issuer.discoveryURL", discovery);
            if discovery.trim_end_matches('/') == url.trim_end_matches('/') {
                self.refuse("issuer.discoveryURL is issuer.url".to_owned(), "another URL", "remove discoveryURL");
            }
        }
        let audiences = self.list("issuer.audiences", issuer.get("audiences"));
        let texts: BTreeSet<&str> = audiences.iter().filter_map(Value::as_str).filter(|a| !a.is_empty()).collect();
        if audiences.is_empty() || texts.len() != audiences.len() {
            self.refuse(
                "issuer.audiences must be a list of texts, each once".to_owned(),
                "the audiences of the tokens, such as the client ID",
                "add `audiences: [...]` to the issuer",
            );
        }
        let policy = issuer.get("audienceMatchPolicy").and_then(Value::as_str);
        if audiences.len() > 1 && policy != Some("MatchAny") || policy.is_some_and(|p| p != "MatchAny" && !p.is_empty())
        {
            self.refuse(
                "issuer.audienceMatchPolicy is not MatchAny".to_owned(),
                "MatchAny, which several audiences require",
                "write `audienceMatchPolicy: MatchAny`",
            );
        }
        match issuer.get("certificateAuthority") {
            None => {}
            Some(Value::String(pem)) if pem.is_empty() || is_certificate(pem) => {}
            Some(_) => self.refuse(
                "issuer.certificateAuthority is not a certificate".to_owned(),
                "the text of a PEM file, not its path",
                "write `certificateAuthority: |` and the file's lines below it, indented",
            ),
        }
    }

    fn mappings(&mut self, mappings: &Map<String, Value>) {
        self.known("claimMappings.", mappings, MAPPINGS);
        for (key, known, needed) in [("username", PREFIXED, true), ("groups", PREFIXED, false), ("uid", CLAIM, false)] {
            let path = format!("claimMappings.{key}");
            let Some(value) = mappings.get(key) else {
                if needed {
                    let remedy = "add something like `username: {claim: sub, prefix: \"oidc:\"}`";
                    self.refuse(format!("{path} is missing"), "the user name, from a claim or an expression", remedy);
                }
                continue;
            };
            let Some(mapping) = self.map(&path, value, known) else { continue };
            self.one_of(&path, &mapping, needed);
            let (claim, prefix) = (text(&mapping, "claim").is_some(), mapping.contains_key("prefix"));
            if known == PREFIXED && claim && !prefix {
                self.refuse(
                    format!("{path} has a claim and no prefix"),
                    "a prefix, so that no user name can start with system:; \"\" for none",
                    "add `prefix: \"oidc:\"`",
                );
            }
            if prefix && !claim {
                let what = format!("{path}.prefix requires a claim");
                self.refuse(what, "claim and prefix, or expression", "remove prefix; the expression can add one");
            }
        }
        let mut keys = BTreeSet::new();
        for (at, extra) in self.list("claimMappings.extra", mappings.get("extra")).into_iter().enumerate() {
            let path = format!("claimMappings.extra[{at}]");
            let Some(extra) = self.map(&path, &extra, EXTRA) else { continue };
            let key = text(&extra, "key").unwrap_or_default().to_owned();
            let domain = key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
            let reserved =
                ["kubernetes.io", "k8s.io"].iter().any(|d| domain == *d || domain.ends_with(&format!(".{d}")));
            if domain.is_empty() || reserved || key != key.to_lowercase() || !keys.insert(key.clone()) {
                self.refuse(
                    format!("{path}.key {:?} is invalid", shorten(&key)),
                    "example.org/name: lower case, with a domain of your own, each once",
                    "rename it",
                );
            }
            if text(&extra, "valueExpression").is_none() {
                self.refuse(format!("{path} has no valueExpression"), "a CEL expression", "add one");
            }
        }
    }

    fn one_of(&mut self, path: &str, map: &Map<String, Value>, needed: bool) {
        match (text(map, "claim"), text(map, "expression")) {
            (Some(_), Some(_)) => {
                self.refuse(format!("{path} has a claim and an expression"), "one of them", "remove one of them");
            }
            (None, None) if needed => {
                self.refuse(format!("{path} has neither claim nor expression"), "one of them", "add `claim: NAME`");
            }
            _ => {}
        }
    }

    fn https(&mut self, key: &str, url: &str) {
        let host = url.strip_prefix("https://").map(|rest| rest.split('/').next().unwrap_or_default());
        let clean = url.bytes().all(|b| b.is_ascii_graphic()) && !url.contains(['?', '#', '"', '\\']);
        if host.is_some_and(|host| !host.is_empty() && !host.contains('@')) && clean {
            return;
        }
        let what = format!("{key} is invalid: {}", shorten(url.split('@').next_back().unwrap_or(url)));
        self.refuse(
            what,
            "https://host/path, without user, query and fragment",
            "write the URL as the issuer publishes it",
        );
    }

    fn known(&mut self, prefix: &str, map: &Map<String, Value>, known: &[&'static str]) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let remedy = match nearest(key, known.iter().copied()) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "remove it".to_owned(),
            };
            let what = format!("unknown key {prefix}{}", shorten(key));
            self.refuse(what, &format!("one of {}", known.join(", ")), &remedy);
        }
    }

    fn map(&mut self, path: &str, value: &Value, known: &[&'static str]) -> Option<Map<String, Value>> {
        let Value::Object(map) = value else {
            self.refuse(format!("{path} is not a mapping"), "a mapping", "write `{key: value}`");
            return None;
        };
        self.known(&format!("{path}."), map, known);
        for (key, value) in map.iter().filter(|(_, value)| !value.is_string()) {
            self.refuse(format!("{path}.{key} is {value}"), "a text", "put it in quotes");
        }
        Some(map.clone())
    }

    fn list(&mut self, path: &str, value: Option<&Value>) -> Vec<Value> {
        match value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.clone(),
            Some(_) => {
                self.refuse(format!("{path} is not a list"), "a list", "write `[one, two]`");
                Vec::new()
            }
        }
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Whether a text is PEM whose first block is a certificate that can be read.
pub fn is_certificate(pem: &str) -> bool {
    x509_parser::pem::parse_x509_pem(pem.as_bytes())
        .is_ok_and(|(_, pem)| pem.label == "CERTIFICATE" && pem.parse_x509().is_ok())
}
