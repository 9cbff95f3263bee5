//! Certificates in real files and of real servers, which present the expected one, another one, or none.

use super::*;
use crate::model::certificate::{CertFact, CertificatesAsk, CertificatesFact, Presenting};
use crate::protocol::ObserveAsk;
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Certificate and key in PEM, expired long ago.
fn expired(name: &str) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A server with this certificate; `strict` requires one of its clients, and accepts none. Its port.
async fn serve(pair: &(String, String), strict: bool, versions: &[&'static rustls::SupportedProtocolVersion]) -> u16 {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let certificate = CertificateDer::from_pem_slice(pair.0.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.1.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_protocol_versions(versions);
    let builder = if strict {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![certificate], key).unwrap()));
    let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A rejected client does not matter here.
            drop(acceptor.accept(stream).await);
        }
    });
    port
}

async fn look(place: &Place, ask: CertificatesAsk) -> Result<CertificatesFact, OpError> {
    let ask = ObserveAsk { certificates: ask, ..ObserveAsk::default() };
    match place.client().ask(Op::Observe(Box::new(ask))).await? {
        Reply::Facts(facts) => Ok(facts.certificates),
        other => panic!("{other:?}"),
    }
}

fn presenting(path: &str, at: (IpAddr, u16), identity: Option<(&str, &str)>) -> Presenting {
    let identity = identity.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
    Presenting { path: path.to_owned(), at, identity }
}

#[tokio::test]
async fn certificates_of_files_are_listed_in_order_and_other_content_is_left_out() {
    let place = Place::new();
    let (one, other) = (expired("one"), expired("other"));
    place.write("/pki/both.crt", format!("{}{}", one.0, other.0));
    place.write("/pki/current.pem", format!("{}{}", one.1, one.0));
    place.write("/pki/words", "nothing of the kind");
    place.write("/pki/large", vec![b'\n'; 2 << 20]);
    place.write("/pki/folder/x", "");
    let files = ["both.crt", "current.pem", "words", "large", "folder", "absent"].map(|n| format!("/pki/{n}"));
    let found = look(&place, CertificatesAsk { files: files.into(), presented: vec![] }).await.unwrap().files;
    let names = |name: &str| {
        let all = found.get(&format!("/pki/{name}"))?;
        Some(all.iter().map(|c| c.common_name.as_str()).collect::<Vec<_>>())
    };
    assert_eq!(names("both.crt"), Some(vec!["one", "other"]));
    assert_eq!(names("current.pem"), Some(vec!["one"]));
    assert_eq!((names("words"), names("large"), names("folder")), (Some(vec![]), Some(vec![]), Some(vec![])));
    assert_eq!(names("absent"), None);
    let outside = CertificatesAsk { files: vec!["/pki/../../etc/shadow".to_owned()], presented: vec![] };
    assert!(look(&place, outside).await.is_err());
}

#[tokio::test]
async fn the_presented_certificate_is_read_even_if_it_is_expired_or_the_server_rejects_the_client() {
    let place = Place::new();
    let (pair, stranger) = (expired("server"), expired("stranger"));
    place.write("/pki/c.crt", &stranger.0);
    place.write("/pki/c.key", &stranger.1);
    let wanted = CertFact::read_pem(pair.0.as_bytes()).remove(0);
    let both = [&rustls::version::TLS13, &rustls::version::TLS12];
    for versions in [&both[..1], &both[1..]] {
        for strict in [false, true] {
            let port = serve(&pair, strict, versions).await;
            let identities = [None, Some(("/pki/c.crt", "/pki/c.key")), Some(("/pki/absent", "/pki/c.key"))];
            for identity in identities {
                let presented = vec![presenting("/pki/s.crt", (LOCAL, port), identity)];
                let found = look(&place, CertificatesAsk { files: vec![], presented }).await.unwrap();
                let seen = found.presented.get("/pki/s.crt");
                assert_eq!(seen, Some(&Ok(wanted.clone())), "{versions:?}, strict: {strict}, with {identity:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_unresponsive_port_is_reported_in_time_and_no_other_host_is_asked() {
    let place = Place::new();
    let mute = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let free = TcpListener::bind((LOCAL, 0)).await.unwrap().local_addr().unwrap().port();
    let presented = vec![
        presenting("/mute", (LOCAL, mute.local_addr().unwrap().port()), None),
        presenting("/refused", (LOCAL, free), None),
        presenting("/other", ([192, 0, 2, 1].into(), 443), None),
    ];
    let begun = std::time::Instant::now();
    let found = look(&place, CertificatesAsk { files: vec![], presented }).await.unwrap().presented;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let why = |path: &str| found[path].clone().unwrap_err();
    assert!(why("/mute").contains("no answer within"), "{}", why("/mute"));
    assert!(why("/refused").contains("refused"), "{}", why("/refused"));
    assert_eq!(why("/other"), "192.0.2.1 is not an address of this host");
}
