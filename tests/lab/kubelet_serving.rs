//! Serving certificates of kubelets: which requests are signed, and which clients trust them.

#[path = "../csr/craft.rs"]
mod craft;

use super::support::wait_for;
use super::{Scenario, World, in_one_line};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use craft::{LABEL, attacks, info, pem, proper, signed};
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::time::Duration;

/// One control-plane host and a worker.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "ambiguous CSRs give a worker no serving certificate for other names", cut: false, run: requests },
    Scenario {
        name: "the kubelet-serving CA is rotated, and API servers still reach every kubelet",
        cut: false,
        run: replaced,
    },
];

const USER: &str = "system:node:w1";
const PKI: &str = "/etc/kubernetes/pki";
/// Calls the API with the credential of the worker's kubelet.
const ASK: &str = "sudo curl -sS --cacert /etc/kubernetes/pki/ca.crt --cert /var/lib/kubelet/pki/kubelet-client-current.pem \
                   -H 'Content-Type: application/json'";
const SERVER: &str = "$(sudo sed -n 's/.*server: //p' /etc/kubernetes/kubelet.conf | tr -d '\"')";
const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Creates a CSR with the credential of the worker's kubelet.
fn ask(w: &World, name: &str, request: &str) {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
            "request": STANDARD.encode(request),
        },
    });
    let body = STANDARD.encode(object.to_string());
    let said = w.on("w1", &format!("echo {body} | base64 -d | {ASK} --data-binary @- {SERVER}{PATH}"));
    assert!(said.contains("\"uid\""), "{name} is created: {said}");
}

fn asked(w: &World, name: &str) -> Value {
    let ran = w.hactl.kubectl(&["get", "csr", name, "-o", "json"]).ok();
    serde_json::from_str(&ran.out).expect("an object")
}

fn node(w: &World, name: &str) -> String {
    let path = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    w.hactl.kubectl(&["get", "node", name, "-o", path]).ok().out.trim().to_owned()
}

fn requests(w: &World) {
    w.hactl.up().ok();
    let good = ["DNS:w1".to_owned(), format!("IP:{}", node(w, "w1"))];
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let cp1 = format!("IP:{}", node(w, "cp1"));
    let evil = ["DNS:kubernetes", "DNS:kubernetes.default.svc", "IP:10.96.0.1", &cp1];
    let key = KeyPair::generate().expect("a key");
    let attacks = attacks(&key, USER, &good, &evil);
    for (name, request) in &attacks {
        ask(w, &format!("t-{name}"), request);
    }
    ask(w, "t-honest", &pem(&signed(&key, &info(&key, USER, &[proper(&good)])), LABEL));
    wait_for("the honest CSR is signed", Duration::from_secs(40), || {
        asked(w, "t-honest").pointer("/status/certificate").is_some()
    });
    let journal = w.on("cp1", "sudo journalctl -u hactl-approver --no-pager -o cat");
    for (name, _) in &attacks {
        let status = asked(w, &format!("t-{name}"))["status"].clone();
        assert_eq!(status, json!({}), "t-{name} is neither approved nor denied");
        assert!(journal.contains(&format!("did not approve t-{name} of {USER}: ")), "{journal}");
    }

    let certificate = asked(w, "t-honest");
    let certificate = certificate.pointer("/status/certificate").and_then(Value::as_str).expect("it was issued");
    w.on("cp1", &format!("echo {certificate} | base64 -d >/tmp/t-honest.crt"));
    let verify =
        |trust: &str| w.on("cp1", &format!("openssl verify -purpose sslserver {trust} /tmp/t-honest.crt 2>&1"));
    let serving = verify(&format!("-CAfile {PKI}/kubelet-serving-ca.crt"));
    assert!(serving.contains("OK"), "API servers trust it for a kubelet: {serving}");
    let api =
        verify(&format!("-CAfile {PKI}/ca.crt -untrusted {PKI}/signing.crt -untrusted {PKI}/kubelet-serving-ca.crt"));
    assert!(!api.contains("OK"), "clients that trust the cluster CA do not trust it: {api}");
    reached(w);
    for (name, _) in &attacks {
        w.hactl.kubectl(&["delete", "csr", &format!("t-{name}")]).ok();
    }
    w.hactl.up().ok().says("nothing to do");
}

/// API servers reach every kubelet and trust its certificate.
fn reached(w: &World) {
    for host in ["cp1", "w1"] {
        let path = format!("/api/v1/nodes/{host}/proxy/healthz");
        // A connection that the API server keeps to a kubelet may have been closed: a call that meets it fails once.
        let answers = || w.hactl.kubectl(&["get", "--raw", &path]).out.contains("ok");
        wait_for(&format!("an API server reaches the kubelet of {host}"), Duration::from_secs(10), answers);
    }
    let kept = ["logs", "-n", "kube-system", "-l", "k8s-app=kube-dns", "--tail=1", "--prefix"];
    w.hactl.kubectl(&kept).ok().says("coredns");
}

fn replaced(w: &World) {
    w.hactl.up().ok();
    let shown =
        |host: &str| w.on(host, "sudo openssl x509 -noout -issuer -in /var/lib/kubelet/pki/kubelet-server-current.pem");
    let before = ["cp1", "w1"].map(shown);
    let ran = w.hactl.run(&["certs", "rotate", "kubelet-serving-ca", "--yes"]).ok().says("the old one is gone");
    println!("        replaced in {:.1?}", ran.took);
    let after = ["cp1", "w1"].map(shown);
    assert!(
        before.iter().zip(&after).all(|(before, after)| before != after && after.contains("kubelet-serving")),
        "{after:?}"
    );
    assert_eq!(w.on("cp1", &format!("sudo grep -c BEGIN {PKI}/kubelet-serving-ca.crt")).trim(), "1");
    reached(w);
    let listed = in_one_line(&w.hactl.run(&["certs", "list"]).ok());
    assert!(!listed.contains("kubelet-serving-ca.") && !listed.contains("unknown"), "{listed}");
    w.hactl.up().ok().says("nothing to do");
}
