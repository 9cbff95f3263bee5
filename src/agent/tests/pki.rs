//! Keys, CSRs and certificates, with a real CA.

use super::*;
use crate::model::certificate::CertFact;
use crate::model::facts::LeafFact;
use crate::model::target::{CaId, CertId, CertSpec};
use crate::protocol::{ObserveAsk, OpErrorKind};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType, IsCa, KeyPair,
};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test CA");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }
    fn sign(&self, request: &str) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(request).unwrap();
        request.params.use_authority_key_identifier_extension = true;
        request.signed_by(&self.0).unwrap().pem()
    }
}

fn leaf(cert_path: &str, key_path: &str) -> CertSpec {
    CertSpec {
        id: CertId::Apiserver,
        ca: CaId::Cluster,
        authority: String::new(),
        common_name: "kube-apiserver".to_owned(),
        organizations: vec!["system:masters".to_owned()],
        sans: vec!["DNS:kubernetes".to_owned(), "IP:10.96.0.1".to_owned(), "IP:fd00::1".to_owned()],
        server: true,
        client: false,
        days: 30,
        cert_path: cert_path.to_owned(),
        key_path: key_path.to_owned(),
        owner: me(),
        self_renewing: false,
        serves_by: None,
    }
}

async fn request(client: &mut Client, leaf: &CertSpec) -> String {
    let Reply::Requests(mut all) = client.ask(Op::MakeKeys { leaves: vec![leaf.clone()] }).await.unwrap() else {
        panic!()
    };
    all.remove(&leaf.id).unwrap()
}

async fn look(client: &mut Client, leaf: &CertSpec) -> Option<LeafFact> {
    let ask = ObserveAsk { leaves: vec![leaf.clone()], ..ObserveAsk::default() };
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::new(ask))).await.unwrap() else { panic!() };
    let leaves: BTreeMap<_, _> = facts.leaves;
    leaves.get(&leaf.id).cloned()
}

fn mode(place: &Place, path: &str) -> u32 {
    std::fs::metadata(place.at(path)).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_request_becomes_a_pair_that_belongs_together_and_says_all_that_was_asked() {
    let (place, authority) = (Place::new(), Authority::new());
    let mut client = place.locked().await;
    let leaf = leaf("/etc/pki/a.crt", "/etc/pki/a.key");
    assert_eq!(look(&mut client, &leaf).await, None);
    let first = request(&mut client, &leaf).await;
    assert_eq!(place.list("/etc/pki"), ["a.key.new"]);
    let cert = authority.sign(&first);
    client.ask(Op::InstallCerts { certs: vec![(leaf.clone(), cert.clone())] }).await.unwrap();
    assert_eq!(place.list("/etc/pki"), ["a.crt", "a.key"]);
    assert_eq!((mode(&place, "/etc/pki/a.crt"), mode(&place, "/etc/pki/a.key")), (0o600, 0o600));
    let fact = look(&mut client, &leaf).await.unwrap();
    assert_eq!(
        (fact.common_name.as_str(), &fact.organizations, &fact.sans),
        ("kube-apiserver", &leaf.organizations, &leaf.sans)
    );
    assert!(fact.key_matches && fact.not_after_s > fact.not_before_s && fact.authority.len() == 40, "{fact:?}");
    // The same answer again, after an interrupted run: nothing changes.
    client.ask(Op::InstallCerts { certs: vec![(leaf.clone(), cert)] }).await.unwrap();
}

#[tokio::test]
async fn a_key_that_waits_is_kept_and_the_old_pair_works_on_until_the_new_one_is_whole() {
    let (place, authority) = (Place::new(), Authority::new());
    let mut client = place.locked().await;
    let leaf = leaf("/etc/pki/a.crt", "/etc/pki/a.key");
    let cert = authority.sign(&request(&mut client, &leaf).await);
    client.ask(Op::InstallCerts { certs: vec![(leaf.clone(), cert.clone())] }).await.unwrap();
    request(&mut client, &leaf).await;
    let waiting = place.read("/etc/pki/a.key.new");
    let again = request(&mut client, &leaf).await;
    assert_eq!(place.read("/etc/pki/a.key.new"), waiting);
    assert!(look(&mut client, &leaf).await.unwrap().key_matches);
    client.ask(Op::InstallCerts { certs: vec![(leaf.clone(), authority.sign(&again))] }).await.unwrap();
    assert!(look(&mut client, &leaf).await.unwrap().key_matches && place.read("/etc/pki/a.crt") != cert);
}

#[tokio::test]
async fn a_certificate_of_another_key_is_refused_and_nothing_changes() {
    let (place, elsewhere, authority) = (Place::new(), Place::new(), Authority::new());
    let leaf = leaf("/etc/pki/a.crt", "/etc/pki/a.key");
    let foreign = authority.sign(&request(&mut elsewhere.locked().await, &leaf).await);
    let mut client = place.locked().await;
    request(&mut client, &leaf).await;
    for pem in [foreign.as_str(), "nonsense", ""] {
        let fault = client.ask(Op::InstallCerts { certs: vec![(leaf.clone(), pem.to_owned())] }).await.unwrap_err();
        assert_eq!(fault.kind, OpErrorKind::BadRequest);
        assert_eq!(place.list("/etc/pki"), ["a.key.new"]);
    }
}

#[tokio::test]
async fn one_path_for_both_makes_one_private_file() {
    let (place, authority) = (Place::new(), Authority::new());
    let mut client = place.locked().await;
    let leaf = leaf("/var/lib/kubelet/pki/current.pem", "/var/lib/kubelet/pki/current.pem");
    for _ in 0..2 {
        let cert = authority.sign(&request(&mut client, &leaf).await);
        client.ask(Op::InstallCerts { certs: vec![(leaf.clone(), cert)] }).await.unwrap();
        let text = place.read("/var/lib/kubelet/pki/current.pem");
        assert!(text.matches("BEGIN CERTIFICATE").count() == 1 && text.matches("BEGIN PRIVATE KEY").count() == 1);
        assert_eq!(mode(&place, "/var/lib/kubelet/pki/current.pem"), 0o600);
        assert!(look(&mut client, &leaf).await.unwrap().key_matches);
    }
}

#[tokio::test]
async fn a_kubelet_keeps_its_serving_certificate_until_another_ca_signs_it() {
    let (place, authority) = (Place::new(), Authority::new());
    let mut client = place.locked().await;
    let link = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let serves_with = "/var/lib/kubelet/pki/kubelet-server-current.pem";
    let mut kubelet = CertSpec { id: CertId::Kubelet, self_renewing: true, ..leaf(link, link) };
    let served = authority.sign(&request(&mut client, &kubelet).await);
    let signer = CertFact::read_pem(served.as_bytes()).remove(0).authority;
    let mut renewed = async |kubelet: &CertSpec| {
        place.write(serves_with, &served);
        let cert = authority.sign(&request(&mut client, kubelet).await);
        client.ask(Op::InstallCerts { certs: vec![(kubelet.clone(), cert)] }).await.unwrap();
        place.list("/var/lib/kubelet/pki").iter().any(|name| name == "kubelet-server-current.pem")
    };
    kubelet.serves_by = Some(signer);
    assert!(renewed(&kubelet).await);
    kubelet.serves_by = Some("another".to_owned());
    assert!(!renewed(&kubelet).await, "it requests another one when it starts");
}

#[tokio::test]
async fn a_file_in_place_of_a_certificate_that_is_none_is_ignored() {
    let place = Place::new();
    let mut client = place.locked().await;
    let leaf = leaf("/etc/pki/a.crt", "/etc/pki/a.key");
    place.write("/etc/pki/a.crt", "nonsense");
    assert_eq!(look(&mut client, &leaf).await, None);
    place.write("/etc/pki/a.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert_eq!(look(&mut client, &leaf).await, None);
}
