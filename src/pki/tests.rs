//! Certificates issued, parsed and checked.

use super::*;
use crate::issue::IssueError;
use crate::model::desired::{Desired, EndpointKind, Host, Role, SshTarget, sample};
use crate::model::facts::{HostFacts, InterfaceAddress, LeafFact};
use crate::model::healing::{self, Mode};
use crate::model::rotation::Rotatable;
use crate::model::secret::Secret;
use crate::model::target::{CaId, CertId, CertSpec};
use base64::Engine as _;
use rcgen::{CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P384_SHA384, SanType};
use std::path::Path;
use std::process::Command;
use time::{Duration, OffsetDateTime};
use x509_parser::extensions::ParsedExtension;
use x509_parser::parse_x509_certificate;
use x509_parser::pem::parse_x509_pem;

fn host(name: &str, address: &str, roles: &[Role]) -> Host {
    Host {
        name: name.parse().unwrap(),
        address: address.parse().unwrap(),
        ssh: SshTarget::new(address, "root"),
        roles: roles.to_vec(),
        ..sample(1).hosts.remove(0)
    }
}

fn desired() -> Desired {
    let hosts = vec![
        host("cp1", "10.88.0.11", &[Role::ControlPlane, Role::Etcd, Role::LoadBalancer]),
        host("e1", "10.88.0.12", &[Role::Etcd]),
        host("w1", "10.88.0.13", &[Role::Worker]),
        host("lb1", "10.88.0.14", &[Role::LoadBalancer]),
        host("s1", "10.88.0.15", &[Role::Spare]),
    ];
    let mut desired = Desired { hosts, ..sample(0) };
    desired.endpoint.sans = vec!["api.example.org".into(), "203.0.113.7".into()];
    desired
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc().replace_nanosecond(0).unwrap()
}

fn founded() -> Contents {
    found(&"lab".parse().unwrap(), brought::Brought::default(), now()).unwrap()
}

fn leaf_of(host: usize, id: CertId, contents: &Contents) -> CertSpec {
    let desired = desired();
    let all = leaves(&desired, &desired.hosts[host], &contents.publics());
    all.into_iter().find(|leaf| leaf.id == id).unwrap()
}

fn request(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

fn signed(contents: &Contents, leaf: &CertSpec) -> String {
    let key = KeyPair::generate().unwrap();
    sign(&request(&key), leaf, contents.issuer(leaf).unwrap(), now()).unwrap()
}

fn first_der(pem: &str) -> Vec<u8> {
    parse_x509_pem(pem.as_bytes()).unwrap().1.contents
}

#[test]
fn each_role_brings_its_own_leaves_and_no_others() {
    let (desired, publics) = (desired(), founded().publics());
    let ids = |i: usize| leaves(&desired, &desired.hosts[i], &publics).into_iter().map(|l| l.id).collect::<Vec<_>>();
    assert_eq!(
        ids(0),
        [
            CertId::EtcdServer,
            CertId::EtcdPeer,
            CertId::EtcdObserver,
            CertId::ApiserverEtcdClient,
            CertId::Apiserver,
            CertId::ApiserverKubeletClient,
            CertId::FrontProxyClient,
            CertId::ControllerManager,
            CertId::Scheduler,
            CertId::Kubelet,
            CertId::Observer,
            CertId::Approver,
            CertId::SnapshotSigner
        ]
    );
    assert_eq!(ids(1), [CertId::EtcdServer, CertId::EtcdPeer, CertId::EtcdObserver, CertId::SnapshotSigner]);
    assert_eq!(ids(2), [CertId::Kubelet]);
    assert_eq!((ids(3), ids(4)), (vec![], vec![]));
}

fn unattended() -> Desired {
    Desired { unattended_days: Some(1095), ..desired() }
}

#[test]
fn hosts_that_renew_their_own_certificates_have_an_issuer_for_each_signing_ca() {
    let publics = founded().publics();
    let issuers = |i: usize| {
        let all = leaves(&unattended(), &unattended().hosts[i], &publics).into_iter().filter(|leaf| leaf.id.issues());
        all.map(|leaf| leaf.id).collect::<Vec<_>>()
    };
    assert_eq!(issuers(0), CertId::ISSUERS);
    assert_eq!(issuers(1), [CertId::EtcdIssuer]);
    assert_eq!((issuers(2), issuers(3)), (vec![], vec![]));
    assert_eq!(attended(&unattended(), &publics), []);
    for issuer in leaves(&unattended(), &unattended().hosts[0], &publics).iter().filter(|leaf| leaf.id.issues()) {
        let place = crate::model::renewal::issuer_paths(issuer.id);
        assert_eq!(place, (issuer.cert_path.clone(), issuer.key_path.clone()));
        assert!(i64::from(issuer.days) * 9 / 10 >= 1095, "`up` accepts it until a tenth of its lifetime has passed");
    }
}

#[test]
fn each_guard_has_a_certificate_of_the_cluster_ca_for_both_ends_and_only_control_plane_hosts_renew_it() {
    let mut guarded = unattended();
    guarded.healing.mode = Mode::Watch;
    let contents = founded();
    let publics = contents.publics();
    let guard = |i: usize| leaves(&guarded, &guarded.hosts[i], &publics).into_iter().find(|l| l.id == CertId::Guard);
    for (i, has) in [true, true, false, true, false].into_iter().enumerate() {
        let host = &guarded.hosts[i];
        assert_eq!(guard(i).is_some(), has, "{:?}", host.roles);
        assert_eq!(healing::is_guarded(&guarded, host), has);
        let paths = [healing::CERT, healing::KEY].map(str::to_owned);
        let former: Vec<String> = former_files(host).into_iter().map(|(_, path)| path).collect();
        assert!(paths.iter().all(|path| former.contains(path) != has), "{former:?}");
    }
    let leaf = guard(0).unwrap();
    assert_eq!(healing::host_of(&leaf.common_name).as_ref(), Some(&guarded.hosts[0].name));
    assert_eq!((leaf.ca, leaf.organizations.as_slice()), (CaId::Cluster, &["hactl:guards".to_owned()][..]));
    assert!(leaf.server && leaf.client && leaf.sans.contains(&format!("IP:{}", guarded.hosts[0].address)));
    let pem = signed(&contents, &leaf);
    let der = first_der(&pem);
    let (_, cert) = parse_x509_certificate(&der).unwrap();
    let usage = cert.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && usage.client_auth);
    let renews = |i: usize| has_issuer(CertId::Guard, &guarded.hosts[i]);
    assert!(renews(0) && !renews(1) && !renews(3));
}

#[test]
fn a_ca_with_path_length_zero_has_no_issuers_and_is_named() {
    let mut contents = founded();
    contents.etcd = found::root("previous etcd CA", 0, now()).unwrap();
    let publics = contents.publics();
    let all = leaves(&unattended(), &unattended().hosts[0], &publics);
    assert!(!all.iter().any(|leaf| leaf.id == CertId::EtcdIssuer) && all.iter().any(|leaf| leaf.id.issues()));
    assert_eq!(attended(&unattended(), &publics), [CaId::Etcd]);
    assert_eq!(attended(&desired(), &publics), [], "nobody asked for it");
}

#[test]
fn certificates_of_a_hosts_issuer_are_trusted_by_clients_of_the_current_and_of_the_previous_ca() {
    let mut contents = founded();
    let before = contents.cluster.cert_pem().to_owned();
    rotate::begin(&"lab".parse().unwrap(), &mut contents, Rotatable::ClusterCa, now()).unwrap();
    rotate::issue(&mut contents, Rotatable::ClusterCa, now()).unwrap();
    let all = leaves(&unattended(), &unattended().hosts[0], &contents.publics());
    let of = |id: CertId| all.iter().find(|leaf| leaf.id == id).unwrap();
    let (key, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let cross = contents.rotations.cross.as_ref();
    let issuer = of(CertId::ClusterIssuer);
    let chain = sign_vouched(&request(&key), issuer, &contents.cluster, cross, now()).unwrap();
    let signer = crate::issue::Signer {
        cert_pem: &chain,
        key: &Secret::new(key.serialize_pem()),
        not_after_s: (now() + Duration::days(i64::from(issuer.days))).unix_timestamp(),
        behind: &chain,
    };
    let pem = crate::issue::sign(&request(&own), of(CertId::Apiserver), &signer, now()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("new.crt", contents.cluster.cert_pem()), ("old.crt", &before), ("leaf.crt", &pem)] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    for root in ["new.crt", "old.crt"] {
        let arguments = format!("verify -x509_strict -purpose sslserver -CAfile {root} -untrusted leaf.crt leaf.crt");
        let (good, said) = openssl(dir.path(), &arguments);
        assert!(good, "{root}: {said}");
    }
    // An issuer signs leaf certificates but no CAs. With its own name it would be self-issued, which does not count for
    // path lengths.
    let other = CertSpec { common_name: "another issuer".to_owned(), ..issuer.clone() };
    let below = crate::issue::sign(&request(&own), &other, &signer, now()).unwrap();
    std::fs::write(dir.path().join("below.crt"), below).unwrap();
    let by_below = crate::issue::Signer { key: &Secret::new(own.serialize_pem()), ..signer };
    let below = std::fs::read_to_string(dir.path().join("below.crt")).unwrap();
    let by_below = crate::issue::Signer { cert_pem: &below, behind: &below, ..by_below };
    let pem = crate::issue::sign(&request(&key), of(CertId::Apiserver), &by_below, now()).unwrap();
    std::fs::write(dir.path().join("leaf.crt"), pem).unwrap();
    let (good, said) = openssl(dir.path(), "verify -CAfile new.crt -untrusted leaf.crt leaf.crt");
    assert!(!good && said.contains("path length"), "{said}");
}

#[test]
fn an_api_server_answers_for_itself_and_the_endpoint_but_not_for_other_hosts() {
    let leaf = leaf_of(0, CertId::Apiserver, &founded());
    assert_eq!(
        leaf.sans,
        [
            "DNS:api.example.org",
            "DNS:cp1",
            "DNS:kubernetes",
            "DNS:kubernetes.default",
            "DNS:kubernetes.default.svc",
            "DNS:kubernetes.default.svc.cluster.local",
            "DNS:localhost",
            "IP:10.88.0.100",
            "IP:10.88.0.11",
            "IP:10.96.0.1",
            "IP:127.0.0.1",
            "IP:203.0.113.7",
        ]
    );
    let mut outside = desired();
    outside.endpoint.kind = EndpointKind::External("lb.example.org".into());
    let all = leaves(&outside, &outside.hosts[0], &founded().publics());
    assert!(all.iter().any(|l| l.sans.contains(&"DNS:lb.example.org".to_owned())));
}

#[test]
fn a_members_certificate_keeps_the_previous_address_while_its_host_has_it() {
    let on =
        |address: &str| InterfaceAddress { interface: "eth0".into(), address: address.parse().unwrap(), prefix: 24 };
    let found = LeafFact {
        common_name: "cp1".into(),
        organizations: vec![],
        sans: vec!["DNS:cp1".into(), "DNS:stranger".into(), "IP:10.88.0.7".into(), "IP:10.88.0.8".into()],
        authority: String::new(),
        through: None,
        not_before_s: 0,
        not_after_s: 0,
        key_matches: true,
        changed_ms: 0,
    };
    let mut facts =
        HostFacts { addresses: ["10.88.0.7", "10.88.0.9", "10.88.0.11"].map(on).into(), ..HostFacts::default() };
    let own = leaf_of(0, CertId::EtcdPeer, &founded()).sans;
    let kept = |facts: &HostFacts| {
        let mut leaves = vec![leaf_of(0, CertId::Apiserver, &founded()), leaf_of(0, CertId::EtcdPeer, &founded())];
        let api = leaves[0].clone();
        keep_addresses(&mut leaves, facts);
        assert_eq!(leaves[0], api, "clients reach an API server by its new address only");
        leaves.remove(1).sans
    };
    assert_eq!(kept(&facts), own, "a host without a certificate gets its own names");
    facts.leaves.insert(CertId::EtcdPeer, found);
    let mut both = own.clone();
    both.push("IP:10.88.0.7".into());
    both.sort();
    assert_eq!(kept(&facts), both, "addresses in the certificate that the host still has; neither alone");
    facts.addresses.remove(0);
    assert_eq!(kept(&facts), own, "the host no longer has the address, so the name goes too");
}

#[test]
fn no_two_certificates_of_a_host_share_a_file_and_every_one_has_a_name() {
    let desired = desired();
    let all = leaves(&desired, &desired.hosts[0], &founded().publics());
    let mut paths: Vec<_> = all.iter().map(|l| &l.cert_path).collect();
    paths.extend(all.iter().filter(|l| l.key_path != l.cert_path).map(|l| &l.key_path));
    let count = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), count);
    for leaf in &all {
        assert!(!leaf.common_name.contains('{') && !leaf.common_name.is_empty(), "{}", leaf.id);
        assert!(leaf.server || leaf.client || leaf.id == CertId::SnapshotSigner, "{} has no usage", leaf.id);
        assert_eq!(leaf.server, !leaf.sans.is_empty(), "{} is a server exactly when it has names", leaf.id);
    }
}

#[test]
fn a_signed_certificate_matches_the_table() {
    let contents = founded();
    let leaf = leaf_of(0, CertId::EtcdPeer, &contents);
    let der = first_der(&signed(&contents, &leaf));
    let (_, cert) = parse_x509_certificate(&der).unwrap();
    assert_eq!(cert.subject().to_string(), "CN=cp1");
    let (from, to) = (cert.validity().not_before.timestamp(), cert.validity().not_after.timestamp());
    let now = now().unix_timestamp();
    assert!((now - 302..=now - 298).contains(&from), "valid from five minutes ago");
    assert!((to - now - 365 * 86_400).abs() <= 2);
    assert_eq!(cert.raw_serial().len(), 16);
    let constraints = cert.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && !constraints.value.ca);
    let usage = cert.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && !usage.value.key_cert_sign());
    let extended = cert.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.server_auth && extended.client_auth && !extended.any);
    let names = &cert.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names.len(), leaf.sans.len());
    let authority = cert.iter_extensions().find_map(|e| match e.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|k| format!("{k:x}")),
        _ => None,
    });
    assert_eq!(authority.unwrap().replace(':', ""), leaf.authority);
}

#[test]
fn of_a_request_only_the_public_key_is_believed() {
    let contents = founded();
    let leaf = leaf_of(2, CertId::Kubelet, &contents);
    let key = KeyPair::generate().unwrap();
    let mut greedy = CertificateParams::default();
    greedy.distinguished_name.push(rcgen::DnType::CommonName, "root-of-all");
    greedy.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    greedy.subject_alt_names = vec![SanType::DnsName("kubernetes".try_into().unwrap())];
    greedy.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let csr = greedy.serialize_request(&key).unwrap().pem().unwrap();
    let der = first_der(&sign(&csr, &leaf, contents.issuer(&leaf).unwrap(), now()).unwrap());
    let (_, cert) = parse_x509_certificate(&der).unwrap();
    assert_eq!(cert.subject().to_string(), "O=system:nodes, CN=system:node:w1");
    assert!(cert.subject_alternative_name().unwrap().is_none());
    assert!(!cert.is_ca());
    assert_eq!(cert.public_key().raw, rcgen::PublicKeyData::subject_public_key_info(&key));
}

#[test]
fn a_request_that_is_not_its_own_keys_or_of_another_kind_is_refused() {
    let contents = founded();
    let leaf = leaf_of(2, CertId::Kubelet, &contents);
    let issuer = contents.issuer(&leaf).unwrap();
    let refused = |csr: &str| match sign(csr, &leaf, issuer, now()) {
        Err(PkiError::Issue(IssueError::Request { why, .. })) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was signed"),
    };
    let good = request(&KeyPair::generate().unwrap());
    let mut lines: Vec<String> = good.lines().map(str::to_owned).collect();
    // The last full line is part of the signature.
    let at = lines.len() - 2;
    lines[at] = lines[at].chars().map(|c| if c == 'A' { 'B' } else { 'A' }).take(lines[at].len()).collect();
    assert!(!refused(&lines.join("\n")).is_empty());
    assert!(refused("").contains("PEM"));
    assert!(refused(&good.replace("CERTIFICATE REQUEST", "CERTIFICATE")).contains("labelled"));
    assert!(refused(&"A".repeat(20_000)).contains("bytes"));
    let other_curve = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    assert!(refused(&request(&other_curve)).contains("P-256"));
}

#[test]
fn a_ca_signs_only_certificates_that_name_it_and_none_beyond_its_own_end() {
    let contents = founded();
    let leaf = leaf_of(0, CertId::Apiserver, &contents);
    let csr = request(&KeyPair::generate().unwrap());
    assert!(matches!(sign(&csr, &leaf, &contents.etcd, now()), Err(PkiError::WrongAuthority { .. })));
    let late = now() + Duration::days(3600);
    let der = first_der(&sign(&csr, &leaf, &contents.cluster, late).unwrap());
    let (_, cert) = parse_x509_certificate(&der).unwrap();
    assert_eq!(cert.validity().not_after.timestamp(), contents.cluster.public().not_after_s);
    let too_late = now() + Duration::days(3700);
    assert!(matches!(sign(&csr, &leaf, &contents.cluster, too_late), Err(PkiError::Issue(IssueError::Expired { .. }))));
}

#[test]
fn the_same_ca_signs_a_kubelets_first_certificate_and_its_renewals() {
    let contents = founded();
    let leaf = leaf_of(2, CertId::Kubelet, &contents);
    assert_eq!(leaf.authority, contents.signing.id());
    let pem = signed(&contents, &leaf);
    assert_eq!(pem.matches("BEGIN CERTIFICATE").count(), 2, "the intermediate follows");
    let apiserver = signed(&contents, &leaf_of(0, CertId::Apiserver, &contents));
    assert_eq!(apiserver.matches("BEGIN CERTIFICATE").count(), 1);
}

#[test]
fn two_clusters_of_one_name_share_no_ca() {
    let (one, two) = (founded(), founded());
    assert_ne!(one.cluster.fingerprint(), two.cluster.fingerprint());
    assert_ne!(one.cluster.id(), two.cluster.id());
    assert_ne!(one.encryption.reveal(), two.encryption.reveal());
}

#[test]
fn a_subject_that_cannot_be_written_is_refused_rather_than_shortened() {
    let contents = founded();
    let day = Duration::days(1);
    let two = ["a".to_owned(), "b".to_owned()];
    assert!(matches!(
        client_credential(&contents.cluster, "x", &two, day, now()),
        Err(PkiError::Issue(IssueError::Name { .. }))
    ));
    assert!(matches!(
        client_credential(&contents.cluster, "", &[], day, now()),
        Err(PkiError::Issue(IssueError::Name { .. }))
    ));
    let mut leaf = leaf_of(0, CertId::Apiserver, &contents);
    leaf.sans.push("mailto:x".into());
    let csr = request(&KeyPair::generate().unwrap());
    assert!(matches!(sign(&csr, &leaf, &contents.cluster, now()), Err(PkiError::Issue(IssueError::Name { .. }))));
}

#[test]
fn a_kubeconfig_is_yaml_whose_names_stay_text() {
    let contents = found(&"no".parse().unwrap(), brought::Brought::default(), now()).unwrap();
    let credential = admin_credential(&contents.cluster, now()).unwrap();
    let text = kubeconfig(&"no".parse().unwrap(), "https://10.88.0.100:6443", contents.cluster.cert_pem(), &credential);
    let yaml: serde_json::Value = serde_saphyr::from_str(text.reveal()).unwrap();
    assert_eq!(yaml["clusters"][0]["name"], "no");
    assert_eq!(yaml["current-context"], "no");
    assert_eq!(yaml["contexts"][0]["context"]["user"], "admin@no");
    assert_eq!(yaml["clusters"][0]["cluster"]["server"], "https://10.88.0.100:6443");
    let data = yaml["users"][0]["user"]["client-key-data"].as_str().unwrap();
    let key = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    assert_eq!(&key, credential.key_pem.reveal().as_bytes());
    assert_eq!(credential.organizations, [ADMINISTRATORS]);
}

fn openssl(dir: &Path, arguments: &str) -> (bool, String) {
    let done = Command::new("openssl").current_dir(dir).args(arguments.split(' ')).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[test]
fn openssl_agrees_with_every_certificate() {
    let contents = founded();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, authority) in [
        ("cluster.crt", &contents.cluster),
        ("etcd.crt", &contents.etcd),
        ("front-proxy.crt", &contents.front_proxy),
        ("signing.crt", &contents.signing),
    ] {
        std::fs::write(at(name), authority.cert_pem()).unwrap();
    }
    std::fs::write(
        at("bundle.crt"),
        format!("{}{}", contents.publics().trusted.cluster, contents.publics().trusted.signing),
    )
    .unwrap();
    assert!(openssl(dir.path(), "verify -x509_strict -CAfile cluster.crt signing.crt").0);
    let (_, text) = openssl(dir.path(), "x509 -in signing.crt -noout -text");
    assert!(text.contains("CA:TRUE, pathlen:0") && text.contains("Certificate Sign"), "{text}");

    let desired = desired();
    let key = KeyPair::generate().unwrap();
    std::fs::write(at("csr.pem"), request(&key)).unwrap();
    for leaf in leaves(&desired, &desired.hosts[0], &contents.publics()) {
        let pem = sign(&request(&key), &leaf, contents.issuer(&leaf).unwrap(), now()).unwrap();
        std::fs::write(at("leaf.crt"), pem).unwrap();
        let root = match leaf.ca {
            crate::model::target::CaId::Cluster => "cluster.crt",
            crate::model::target::CaId::Etcd => "etcd.crt",
            crate::model::target::CaId::FrontProxy => "front-proxy.crt",
        };
        for (purpose, meant) in [("sslserver", leaf.server), ("sslclient", leaf.client)] {
            let arguments =
                format!("verify -x509_strict -purpose {purpose} -CAfile {root} -untrusted leaf.crt leaf.crt");
            let (good, said) = openssl(dir.path(), &arguments);
            assert_eq!(good, meant, "{} as {purpose}: {said}", leaf.id);
        }
        let (_, text) = openssl(dir.path(), "x509 -in leaf.crt -noout -text -certopt ext_parse");
        assert!(text.contains("Digital Signature") && text.contains("CA:FALSE"), "{text}");
        for san in &leaf.sans {
            let shown = san.replace("IP:", "IP Address:");
            assert!(text.contains(&shown), "{}: {shown} is not in {text}", leaf.id);
        }
        assert!(text.contains("Version: 3") && text.contains("ecdsa-with-SHA256") && text.contains("prime256v1"));
    }
    // Certificates signed by the controller manager come without the intermediate: the CA bundle must contain it.
    let kubelet = signed(&contents, &leaf_of(0, CertId::Kubelet, &contents));
    let end = kubelet.find("-----END CERTIFICATE-----").unwrap() + 26;
    std::fs::write(at("alone.crt"), &kubelet[..end]).unwrap();
    assert!(openssl(dir.path(), "verify -x509_strict -purpose sslclient -CAfile bundle.crt alone.crt").0);
    assert!(!openssl(dir.path(), "verify -CAfile cluster.crt alone.crt").0);

    // The CA for kubelet serving certificates: servers only, path length 0, and not certified by any other CA.
    let serving = contents.kubelet_serving.as_ref().unwrap();
    std::fs::write(at("serving.crt"), serving.cert_pem()).unwrap();
    let (_, text) = openssl(dir.path(), "x509 -in serving.crt -noout -text");
    assert!(text.contains("CA:TRUE, pathlen:0") && text.contains("TLS Web Server Authentication"), "{text}");
    assert!(!text.contains("Client"), "{text}");
    let leaf = CertSpec { authority: serving.id().to_owned(), ..leaf_of(0, CertId::Apiserver, &contents) };
    std::fs::write(at("served.crt"), sign(&request(&key), &leaf, serving, now()).unwrap()).unwrap();
    assert!(openssl(dir.path(), "verify -x509_strict -purpose sslserver -CAfile serving.crt served.crt").0);
    for arguments in ["-CAfile cluster.crt", "-CAfile bundle.crt", "-CAfile cluster.crt -untrusted serving.crt"] {
        assert!(!openssl(dir.path(), &format!("verify {arguments} served.crt")).0, "{arguments}");
    }

    let reader = reader_credential(&contents.cluster, "prometheus", now()).unwrap();
    std::fs::write(at("reader.crt"), &reader.cert_pem).unwrap();
    assert!(openssl(dir.path(), "verify -x509_strict -purpose sslclient -CAfile cluster.crt reader.crt").0);
    let (_, subject) = openssl(dir.path(), "x509 -in reader.crt -noout -subject");
    assert!(subject.trim().ends_with("O = hactl:metrics, CN = hactl:metrics:prometheus"), "{subject}");

    let own = own_credential(&contents.cluster, now()).unwrap();
    std::fs::write(at("own.crt"), &own.cert_pem).unwrap();
    std::fs::write(at("own.key"), own.key_pem.reveal()).unwrap();
    let (_, subject) = openssl(dir.path(), "x509 -in own.crt -noout -subject -serial");
    assert!(
        subject.contains("O = system:masters, CN = hactl") && subject.to_lowercase().contains(&own.serial),
        "{subject}"
    );
    let (_, from_key) = openssl(dir.path(), "pkey -in own.key -pubout");
    let (_, from_cert) = openssl(dir.path(), "x509 -in own.crt -noout -pubkey");
    assert_eq!(from_key, from_cert);
    std::fs::write(at("sa.key"), contents.service_account.private.reveal()).unwrap();
    assert_eq!(openssl(dir.path(), "pkey -in sa.key -pubout").1, contents.service_account.public.replace("\r\n", "\n"));
}
