//! Certificates besides the leaf certificates of the table: those in files, and those that components present.
//!
//! In: a [`CertificatesAsk`]. Out: a [`CertificatesFact`]. The certificate that a component presents is recorded
//! without verification: an expired one is just what a user wants to see. Only ports of this host are probed, each
//! within a deadline.

use crate::agent::machine::addresses::addresses;
use crate::agent::machine::root::Root;
use crate::agent::op_error::Outcome;
use crate::agent::pki::tls;
use crate::model::certificate::{CertFact, CertificatesAsk, CertificatesFact, Presenting};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

/// A component on this host completes the handshake at once or not at all.
const WITHIN: Duration = Duration::from_millis(1500);
/// A bundle of CAs is a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// Observes files and components.
pub(super) async fn look(root: &Root, ask: CertificatesAsk) -> Outcome<CertificatesFact> {
    let CertificatesAsk { files, presented } = ask;
    let files = root.blocking(move |root| {
        let read = files.into_iter().map(|path| Ok((read(root, &path)?, path)));
        let read: Outcome<Vec<_>> = read.collect();
        Ok(read?.into_iter().filter_map(|(found, path)| Some((path, found?))).collect::<BTreeMap<_, _>>())
    });
    let (files, presented) = tokio::try_join!(files, all(root, presented))?;
    Ok(CertificatesFact { files, presented })
}

/// The certificates in a file; `None` if it does not exist.
fn read(root: &Root, path: &str) -> Outcome<Option<Vec<CertFact>>> {
    let Ok(file) = fs::File::open(root.path(path)?) else { return Ok(None) };
    // Some contain a key as well.
    let mut text = Zeroizing::new(Vec::new());
    // An unreadable entry, such as a directory, contains none.
    let whole = file.take(LARGEST + 1).read_to_end(&mut text).is_ok_and(|length| length as u64 <= LARGEST);
    Ok(Some(if whole { CertFact::read_pem(&text) } else { Vec::new() }))
}

async fn all(root: &Root, queries: Vec<Presenting>) -> Outcome<BTreeMap<String, Result<CertFact, String>>> {
    let mut own: Vec<IpAddr> = Vec::new();
    if queries.iter().any(|ask| !ask.at.0.is_loopback()) {
        own.extend(addresses().await?.into_iter().map(|found| found.address));
    }
    let one = async |ask: Presenting| {
        let to = ask.at.0;
        let shown = if to.is_loopback() || own.contains(&to) {
            presented(root, &ask).await
        } else {
            Err(format!("{to} is not an address of this host"))
        };
        (ask.path, shown)
    };
    Ok(futures::future::join_all(queries.into_iter().map(one)).await.into_iter().collect())
}

/// The certificate that a component presents.
async fn presented(root: &Root, ask: &Presenting) -> Result<CertFact, String> {
    let (to, port) = ask.at;
    let witness = Arc::new(Witness::new());
    let config = config(root, ask, &witness);
    let greeted = async {
        let stream = TcpStream::connect((to, port)).await.map_err(|e| e.to_string())?;
        let greeted = TlsConnector::from(Arc::new(config)).connect(ServerName::IpAddress(to.into()), stream).await;
        let mut stream = greeted.map_err(|e| e.to_string())?;
        // So that the other side ends without logging an error; whether it receives this does not matter.
        let _ = stream.shutdown().await;
        Ok(())
    };
    let ended = timeout(WITHIN, greeted).await;
    let ended = ended.unwrap_or_else(|_| Err(format!("no answer within {} ms", WITHIN.as_millis())));
    // A component that rejects us has presented its certificate before.
    match (witness.seen(), ended) {
        (Some(der), _) => {
            CertFact::read(&der).ok_or_else(|| "the certificate that it presents cannot be parsed".to_owned())
        }
        (None, Err(why)) => Err(why.chars().take(300).collect()),
        (None, Ok(())) => Err("it presents no certificate".to_owned()),
    }
}

fn config(root: &Root, ask: &Presenting, witness: &Arc<Witness>) -> ClientConfig {
    tls::install_provider();
    let builder = || {
        let witness: Arc<Witness> = Arc::clone(witness);
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(witness)
    };
    // A component is probed even without a complete identity: its certificate comes before ours.
    let identity = ask.identity.as_ref().and_then(|(cert, key)| {
        let (cert, key) = (tls::certificates(root, cert).ok()?, tls::private_key(root, key).ok()?);
        builder().with_client_auth_cert(cert, key).ok()
    });
    identity.unwrap_or_else(|| builder().with_no_client_auth())
}

/// Records the certificate of the other side and accepts any. Nothing is sent to that side, and nothing it sends is
/// trusted.
#[derive(Debug)]
struct Witness {
    seen: Mutex<Option<CertificateDer<'static>>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Witness {
    fn new() -> Self {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        Self { seen: Mutex::default(), algorithms }
    }
    fn seen(&self) -> Option<CertificateDer<'static>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(leaf.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signed, &self.algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, leaf, signed, &self.algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
