//! Damaged heartbeats, reports and certificates of guards.

use super::mutate::damaged;
use super::{fuzz, plain};
use hactl::model::fault::Class;
use hactl::model::guard_report::GuardReport;
use hactl::model::healing::Policy;
use hactl::model::heartbeat::Heartbeat;
use hactl::model::names::HostName;

const WORDS: [&str; 14] = [
    "\"cp2\"",
    "\"cp9\"",
    "\"HostUnreachable\"",
    "\"EtcdFull\"",
    "9223372036854775807",
    "-9223372036854775808",
    "1e999",
    "null",
    "\\u001b[31m",
    "\\u202e",
    "\"silent\"",
    "{}",
    "[]",
    "\"sees\":",
];
const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

fn policy() -> Policy {
    let guard = |name: &str, n: u8| serde_json::json!({"name": name, "address": format!("10.0.0.{n}"), "roles": ["control-plane"], "balances": true});
    let policy = serde_json::json!({
        "cluster": "lab",
        "healing": {"mode": "watch", "after": {"host_unreachable_s": 180, "frozen_s": 15, "not_voting_s": 600}},
        "guards": [guard("cp1", 1), guard("cp2", 2), guard("cp3", 3)],
        "etcd_data_dir": "/var/lib/etcd",
        "api_port": 6443,
        "vip": null,
    });
    serde_json::from_value(policy).expect("a policy")
}

fn faults(kind: &str) -> String {
    format!(r#"[{{"host":"cp1","kind":"{kind}","since_ms":5,"evidence":"process 7 is suspended"}}]"#)
}

#[test]
fn no_heartbeat_makes_a_guard_panic_or_confirm_a_fault_of_another_host() {
    let (policy, from): (Policy, HostName) = (policy(), "cp1".parse().expect("a name"));
    let own = faults("EtcdFrozen");
    let good = vec![
        format!(
            r#"{{"release":"{DIGEST}","policy":"{DIGEST}","boot":"0f3c-7d2c","now_ms":7,"faults":{own},"vip":true,"sees":{{"cp2":"heard","cp3":"answers"}},"etcd":true,"repairing":["EtcdFrozen"]}}"#
        )
        .into_bytes(),
    ];
    assert!(serde_json::from_slice::<Heartbeat>(&good[0]).expect("one").plausible(&from, &policy).is_ok());
    fuzz("heartbeats", 20_000, |dice| {
        let bytes = damaged(dice, &good, &WORDS);
        let (input, policy, from) = (bytes.clone(), policy.clone(), from.clone());
        let run = move || {
            let Ok(read) = serde_json::from_slice::<Heartbeat>(&bytes) else { return };
            let Ok(beat) = read.plausible(&from, &policy) else { return };
            assert!(beat.faults.iter().all(|f| f.host == from && f.kind.class() == Class::Confirmed));
            assert!(beat.sees.keys().all(|host| *host != from && policy.guard(host).is_some()));
            assert!(beat.faults.iter().all(|f| !f.evidence.chars().any(char::is_control)));
        };
        (input, Box::new(run))
    });
}

#[test]
fn no_report_of_a_guard_confirms_a_fault_of_another_host() {
    let host: HostName = "cp1".parse().expect("a name");
    let (own, presumed) = (faults("DiskFull"), faults("Partitioned"));
    let good = vec![
        format!(
            r#"{{"host":"cp1","at_ms":9,"started_ms":1,"release":"{DIGEST}","policy":"{DIGEST}","mode":"watch","own":{own},"presumed":{presumed},"pending":[],"others":{{"cp2":{{"sight":"heard","since_ms":1,"ahead_ms":3,"trouble":""}}}},"decided":[{{"kind":"DiskFull","decision":"held-back","step":"free-space","gate":"lock","by":"up"}}],"hold":{{"by":"ops","reason":"swap","since_ms":1,"until_ms":9}},"repairs":[{{"kind":"EtcdFrozen","step":"restart","begun_ms":1,"after_ms":2,"outcome":{{"failed":"no"}}}}]}}"#
        )
        .into_bytes(),
    ];
    assert!(serde_json::from_slice::<GuardReport>(&good[0]).expect("one").plausible(&host).is_some());
    fuzz("guard-reports", 20_000, |dice| {
        let bytes = damaged(dice, &good, &WORDS);
        let (input, host) = (bytes.clone(), host.clone());
        let run = move || {
            let Ok(read) = serde_json::from_slice::<GuardReport>(&bytes) else { return };
            let Some(report) = read.plausible(&host) else { return };
            assert!(report.own.iter().all(|fault| fault.host == host));
            for fault in report.own.iter().chain(&report.presumed) {
                plain("evidence", &fault.evidence);
            }
            if let Some(hold) = &report.hold {
                plain("hold", &format!("{}{}", hold.by, hold.reason));
            }
            for record in &report.repairs {
                plain("outcome", &serde_json::to_string(&record.outcome).expect("a text"));
            }
        };
        (input, Box::new(run))
    });
}

#[test]
fn no_certificate_makes_the_check_of_a_guard_panic() {
    use rustls::pki_types::CertificateDer;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "hactl:guard:cp1");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "hactl:guards");
    let key = rcgen::KeyPair::generate().expect("a key");
    let good = vec![params.self_signed(&key).expect("a certificate").der().to_vec()];
    let leaf = [CertificateDer::from(good[0].clone())];
    let host = hactl::transport::mtls::guard(Some(&leaf), &[]).expect("a guard's");
    assert_eq!(host.as_str(), "cp1");
    fuzz("guard-certificates", 5000, |dice| {
        let bytes = damaged(dice, &good, &["hactl:guard:", "hactl:guards", "\u{0}", "\u{30}\u{7f}"]);
        let input = bytes.clone();
        let run = move || {
            let chain = [CertificateDer::from(bytes.clone()), CertificateDer::from(bytes)];
            // Its signature was verified before; here it may only be refused or name a host.
            drop(hactl::transport::mtls::guard(Some(&chain), &chain[1..]));
        };
        (input, Box::new(run))
    });
}
