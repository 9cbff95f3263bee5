//! A cluster that was switched off for longer than its certificates are valid.

use super::recover::members;
use super::support::{Writer, wait_for};
use super::{Scenario, World, in_one_line};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use std::time::Duration;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "every certificate of the cluster has expired, and up brings it back without losing a write",
    cut: false,
    run: expired,
}];
/// On five members.
pub const FIVE: &[Scenario] =
    &[Scenario { name: "five members: every certificate has expired", cut: false, run: expired }];

const BOOT: Duration = Duration::from_secs(60);
/// Each certificate: its file, and the name of its CA in the state.
pub const LEAVES: [(&str, &str); 12] = [
    ("/etc/etcd/pki/server.crt", "etcd-ca"),
    ("/etc/etcd/pki/peer.crt", "etcd-ca"),
    ("/etc/etcd/pki/observer.crt", "etcd-ca"),
    ("/etc/kubernetes/pki/apiserver-etcd-client.crt", "etcd-ca"),
    ("/etc/kubernetes/pki/apiserver.crt", "cluster-ca"),
    ("/etc/kubernetes/pki/apiserver-kubelet-client.crt", "cluster-ca"),
    ("/etc/kubernetes/pki/front-proxy-client.crt", "front-proxy-ca"),
    ("/etc/kubernetes/pki/controller-manager.crt", "cluster-ca"),
    ("/etc/kubernetes/pki/scheduler.crt", "cluster-ca"),
    ("/etc/kubernetes/pki/observer.crt", "cluster-ca"),
    ("/etc/kubernetes/pki/approver.crt", "cluster-ca"),
    ("/var/lib/kubelet/pki/kubelet-client-current.pem", "signing-ca"),
];

/// The same certificate by the same CA for the same key, which expires this many hours from now and is valid for a day
/// or a year.
pub fn reissued(pem: &str, ca: &Path, left_hours: i64) -> String {
    let block = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).flatten().find(|b| b.label == "CERTIFICATE");
    let block = block.expect("there is a certificate");
    let (_, cert) = X509Certificate::from_der(&block.contents).expect("it can be read");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for name in cert.subject().iter_common_name() {
        params.distinguished_name.push(rcgen::DnType::CommonName, name.as_str().expect("text"));
    }
    for name in cert.subject().iter_organization() {
        params.distinguished_name.push(rcgen::DnType::OrganizationName, name.as_str().expect("text"));
    }
    let names = cert.subject_alternative_name().expect("readable").map(|names| names.value.general_names.clone());
    params.subject_alt_names = names
        .unwrap_or_default()
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(name) => rcgen::SanType::DnsName((*name).try_into().expect("a name")),
            GeneralName::IPAddress(bytes) => rcgen::SanType::IpAddress(match <[u8; 4]>::try_from(*bytes) {
                Ok(four) => four.into(),
                Err(_) => <[u8; 16]>::try_from(*bytes).expect("an address").into(),
            }),
            other => panic!("a name of another kind: {other}"),
        })
        .collect();
    params.extended_key_usages =
        vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let hours = time::Duration::hours;
    let end = time::OffsetDateTime::now_utc() + hours(left_hours);
    let life = if left_hours > 0 { 365 * 24 } else { 24 };
    (params.not_before, params.not_after) = (end - hours(life), end);
    let read = |ending: &str| std::fs::read_to_string(ca.with_extension(ending)).expect("it is in the state");
    let key = rcgen::KeyPair::from_pem(&read("key")).expect("a key");
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("crt"), key).expect("a CA");
    let public = rcgen::SubjectPublicKeyInfo::from_der(cert.public_key().raw).expect("a key");
    params.signed_by(&public, &issuer).expect("a certificate").pem()
}

/// Encoded so that a shell can pass it.
pub fn packed(text: &str) -> String {
    STANDARD.encode(text)
}

fn expired(w: &World) {
    w.hactl.up().ok();
    let writer = Writer::start(&w.api(), "w-expired");
    std::thread::sleep(Duration::from_secs(2));
    let state = w.hactl.state(w.lab.name());
    for host in members(w) {
        for (path, ca) in LEAVES {
            let pem = w.on(host, &format!("sudo cat {path}"));
            if pem.is_empty() {
                continue;
            }
            let mut text = reissued(&pem, &state.join(ca), -1);
            // The kubelet's certificate is in one file with its key.
            let key = pem.find("-----BEGIN").map(|_| pem.lines().skip_while(|l| !l.contains("PRIVATE KEY")));
            for line in key.into_iter().flatten() {
                text.push_str(line);
                text.push('\n');
            }
            let packed = packed(&text);
            w.on(host, &format!("echo {packed} | base64 -d | sudo tee $(sudo readlink -f {path}) > /dev/null"));
        }
    }
    for host in members(w) {
        w.lab.kill(host).expect("the power can be cut");
    }
    for host in members(w) {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    let status = w.hactl.run(&["status"]);
    println!("{}", status.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    assert_eq!(status.code, 7, "{}", status.all());
    w.hactl.run(&["recover", "--dry-run"]).ok().says("nothing is lost: members have their data");
    let ran = w.hactl.up().ok();
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    assert!(in_one_line(&ran).contains("etcd-server: it expired"), "{}", ran.all());
    let (written, longest) = writer.end();
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
    wait_for("status passes", Duration::from_secs(120), || w.hactl.run(&["status"]).code == 0);
    w.hactl.up().ok().says("nothing to do");
}
