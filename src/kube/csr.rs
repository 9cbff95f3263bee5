//! Decides whether a kubelet's request for a serving certificate is approved; a pure function.
//!
//! In: a CertificateSigningRequest and the names allowed for each Node. Out: approve, leave (with the reason, for the
//! log), or nothing to do. Without this check any kubelet could get a certificate for any other host.

use base64::Engine as _;
use serde_json::Value;
use std::collections::BTreeMap;

use super::request::{KubeletRequest, NODES};

/// The signer of kubelet serving certificates.
pub const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// What to do about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It requests only what is allowed for this Node.
    Approve,
    /// It does not; it stays pending, for a person to inspect.
    Leave(String),
    /// It has another signer, or is decided already.
    Settled,
}

/// Names and addresses allowed in each Node's serving certificate: `DNS:cp1`, `IP:10.0.0.1`.
pub type Allowed = BTreeMap<String, Vec<String>>;

/// Decides about one request.
pub fn decide(csr: &Value, allowed: &Allowed) -> Decision {
    let text = |path: &str| csr.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let decided = csr.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|c| !c.is_empty());
    if decided || text("/spec/signerName") != SIGNER {
        return Decision::Settled;
    }
    match check(csr, text("/spec/username"), text("/spec/request"), allowed) {
        Ok(()) => Decision::Approve,
        Err(why) => Decision::Leave(why),
    }
}

fn check(csr: &Value, user: &str, request: &str, allowed: &Allowed) -> Result<(), String> {
    let node = user.strip_prefix("system:node:").ok_or_else(|| format!("{user:?} is not a kubelet"))?;
    let may_have = allowed.get(node).ok_or_else(|| format!("{node:?} is not a host of this cluster"))?;
    let groups = strings(csr, "/spec/groups");
    if !groups.contains(&NODES) {
        return Err(format!("{user} is not in the group {NODES}"));
    }
    let mut usages = strings(csr, "/spec/usages");
    usages.sort_unstable();
    usages.retain(|usage| *usage != "key encipherment");
    if usages != ["digital signature", "server auth"] {
        return Err(format!("it requests the usages {usages:?}"));
    }

    let pem = base64::engine::general_purpose::STANDARD.decode(request).map_err(|_| "the request is not base64")?;
    let names = KubeletRequest::read(&pem, user)?.names();
    if names.is_empty() {
        return Err("it contains no name or address".to_owned());
    }
    match names.iter().find(|name| !may_have.contains(name)) {
        Some(name) => Err(format!("{node} may not have {name:?} in its certificate")),
        None => Ok(()),
    }
}

fn strings<'a>(csr: &'a Value, path: &str) -> Vec<&'a str> {
    csr.pointer(path).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};
    use serde_json::json;

    struct Ask {
        user: &'static str,
        organization: &'static str,
        sans: Vec<SanType>,
        usages: Vec<&'static str>,
    }

    fn ask() -> Ask {
        Ask {
            user: "system:node:cp1",
            organization: "system:nodes",
            sans: vec![SanType::DnsName("cp1".try_into().unwrap()), SanType::IpAddress("10.88.0.11".parse().unwrap())],
            usages: vec!["digital signature", "server auth"],
        }
    }

    fn csr(ask: &Ask) -> Value {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let text = |text: &str| DnValue::PrintableString(text.try_into().unwrap());
        params.distinguished_name.push(DnType::OrganizationName, text(ask.organization));
        params.distinguished_name.push(DnType::CommonName, text(ask.user));
        params.subject_alt_names.clone_from(&ask.sans);
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        json!({
            "metadata": {"name": "csr-1"},
            "spec": {
                "signerName": SIGNER, "username": ask.user, "groups": ["system:nodes", "system:authenticated"],
                "usages": ask.usages, "request": base64::engine::general_purpose::STANDARD.encode(pem),
            },
        })
    }

    fn allowed() -> Allowed {
        let own = |name: &str, ip: &str| (name.to_owned(), vec![format!("DNS:{name}"), format!("IP:{ip}")]);
        BTreeMap::from([own("cp1", "10.88.0.11"), own("cp2", "10.88.0.12")])
    }

    fn left(csr: &Value) -> String {
        match decide(csr, &allowed()) {
            Decision::Leave(why) => why,
            other => panic!("expected it to be left, got {other:?}"),
        }
    }

    #[test]
    fn a_kubelet_gets_a_certificate_for_its_own_name_and_address() {
        assert_eq!(decide(&csr(&ask()), &allowed()), Decision::Approve);
        let with_rsa_usage = Ask { usages: vec!["key encipherment", "digital signature", "server auth"], ..ask() };
        assert_eq!(decide(&csr(&with_rsa_usage), &allowed()), Decision::Approve);
    }

    #[test]
    fn a_kubelet_gets_none_for_the_name_or_address_of_another_host() {
        let other = Ask { sans: vec![SanType::IpAddress("10.88.0.12".parse().unwrap())], ..ask() };
        assert!(left(&csr(&other)).contains("10.88.0.12"));
        let api = Ask { sans: vec![SanType::DnsName("kubernetes".try_into().unwrap())], ..ask() };
        assert!(left(&csr(&api)).contains("kubernetes"));
        let mail = Ask { sans: vec![SanType::Rfc822Name("a@b".try_into().unwrap())], ..ask() };
        assert!(left(&csr(&mail)).contains("requests the name"));
        let nameless = left(&csr(&Ask { sans: vec![], ..ask() }));
        assert!(nameless.contains("not encoded the way kubelets encode"), "{nameless}");
    }

    #[test]
    fn an_unknown_host_or_another_subject_or_usage_is_not_approved() {
        assert!(left(&csr(&Ask { user: "system:node:evil", ..ask() })).contains("not a host"));
        assert!(left(&csr(&Ask { user: "kubernetes-admin", ..ask() })).contains("not a kubelet"));
        assert!(left(&csr(&Ask { organization: "system:masters", ..ask() })).contains("subject"));
        assert!(left(&csr(&Ask { usages: vec!["client auth", "digital signature"], ..ask() })).contains("usages"));
        let mut impostor = csr(&ask());
        impostor["spec"]["username"] = json!("system:node:cp2");
        assert!(left(&impostor).contains("subject"));
        let mut no_group = csr(&ask());
        no_group["spec"]["groups"] = json!(["system:authenticated"]);
        assert!(left(&no_group).contains("system:nodes"));
    }

    #[test]
    fn requests_of_another_signer_and_decided_requests_are_left_alone() {
        let mut other = csr(&ask());
        other["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client-kubelet");
        assert_eq!(decide(&other, &allowed()), Decision::Settled);
        let mut denied = csr(&ask());
        denied["status"] = json!({"conditions": [{"type": "Denied", "status": "True"}]});
        assert_eq!(decide(&denied, &allowed()), Decision::Settled);
    }

    #[test]
    fn rubbish_in_place_of_a_request_is_left_and_does_no_harm() {
        for rubbish in ["", "!!!", "aGVsbG8=", "LS0tLS1CRUdJTg=="] {
            let mut csr = csr(&ask());
            csr["spec"]["request"] = json!(rubbish);
            assert!(!left(&csr).is_empty());
        }
    }
}
