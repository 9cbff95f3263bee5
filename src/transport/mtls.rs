//! Mutual TLS between the guards of a cluster, and to clients that read their metrics.
//!
//! In: the own certificate and key, and the certificate of the cluster CA. Out: TLS configurations, and the host that a
//! peer is. A peer is a guard by its certificate alone: of group `hactl:guards`, issued by the cluster CA itself or by
//! the issuer of that very host. A certificate that came through the intermediate CA of CSRs is refused, because an
//! approver of CSRs could obtain it. A reader of metrics has one that the cluster CA itself issued: no host can.

use crate::model::causes::causes;
use crate::model::healing::{GUARDS, METRICS_READERS, host_of};
use crate::model::names::HostName;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::prelude::X509Certificate;

/// The common name of the issuer on a host (`pki/table.rs`), before the host's name.
const ISSUER: &str = "hactl cluster issuer on ";

/// How long a connection and its handshake may take.
pub const CONNECT: Duration = Duration::from_secs(3);

/// What a guard authenticates with.
pub struct Identity {
    /// The certificates of the cluster CA: both during its rotation.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Its certificate, with that of its issuer behind it, if the host renewed it.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
}

/// Why an identity or a peer is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MtlsError {
    /// The own files do not fit together.
    #[error("the guard's certificate, its key and the CA cannot be used: {0}")]
    Identity(String),
    /// It sent none.
    #[error("it has no certificate")]
    NoCertificate,
    /// It cannot be read.
    #[error("its certificate cannot be read")]
    Unreadable,
    /// It is none of a guard.
    #[error("its certificate is not a guard's: {0}")]
    NotGuard(&'static str),
    /// It is none of a reader of metrics.
    #[error("its certificate is not of group {METRICS_READERS} alone, issued by the cluster CA itself")]
    NotReader,
    /// Too many certificates, or one of another issuer.
    #[error("its certificate was not issued by the cluster CA or by the issuer of {0}")]
    Issuer(HostName),
    /// The guard of another host sent it.
    #[error("the certificate is that of {named}, the address that of {host}")]
    Another {
        /// By the certificate.
        named: HostName,
        /// By the address.
        host: HostName,
    },
}

impl Identity {
    fn roots(&self) -> Result<Arc<RootCertStore>, MtlsError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            roots.add(authority.clone()).map_err(unusable)?;
        }
        Ok(Arc::new(roots))
    }

    /// For connections to other guards. The server's certificate must be valid for the address that is connected to.
    ///
    /// # Errors
    /// The identity cannot be used.
    pub fn client(&self) -> Result<ClientConfig, MtlsError> {
        let builder = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
        let builder = builder.with_root_certificates(self.roots()?);
        builder.with_client_auth_cert(self.chain.clone(), self.key.clone_key()).map_err(unusable)
    }

    /// For connections from other guards. A client without a certificate of the cluster CA gets no handshake.
    ///
    /// # Errors
    /// The identity cannot be used.
    pub fn server(&self) -> Result<ServerConfig, MtlsError> {
        let clients = WebPkiClientVerifier::builder(self.roots()?).build().map_err(unusable)?;
        let builder = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
        let builder = builder.with_client_cert_verifier(clients);
        let mut server = builder.with_single_cert(self.chain.clone(), self.key.clone_key()).map_err(unusable)?;
        // A resumed session would outlive the client's certificate.
        server.send_tls13_tickets = 0;
        Ok(server)
    }
}

/// Opens a connection to the guard of a host at a port, from the own address, by which that guard knows this one.
///
/// # Errors
/// It cannot be opened, or another guard than that of this host answers.
pub async fn dial(
    own: IpAddr,
    (host, to): (&HostName, SocketAddr),
    connector: &TlsConnector,
    authorities: &[CertificateDer<'static>],
) -> io::Result<TlsStream<TcpStream>> {
    let connected = async {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(own, 0))?;
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        connector.connect(ServerName::from(to.ip()), stream).await
    };
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = timeout(CONNECT, connected).await.map_err(late)??;
    is_guard_of(host, stream.get_ref().1.peer_certificates(), authorities).map_err(io::Error::other)?;
    Ok(stream)
}

fn unusable(error: impl std::error::Error + 'static) -> MtlsError {
    MtlsError::Identity(causes(&error))
}

/// Whether the guard of this host sent these certificates; their signatures and their time are verified already.
///
/// # Errors
/// They are no guard's, or another one's.
pub fn is_guard_of(
    host: &HostName,
    certificates: Option<&[CertificateDer<'_>]>,
    authorities: &[CertificateDer<'_>],
) -> Result<(), MtlsError> {
    let named = guard(certificates, authorities)?;
    if named == *host { Ok(()) } else { Err(MtlsError::Another { named, host: host.clone() }) }
}

/// The host whose guard sent these certificates; their signatures and their time are verified already.
///
/// # Errors
/// They are no guard's.
pub fn guard(
    certificates: Option<&[CertificateDer<'_>]>,
    authorities: &[CertificateDer<'_>],
) -> Result<HostName, MtlsError> {
    let (leaf, behind) = chain(certificates, authorities)?;
    let host = one(leaf.subject().iter_common_name()).and_then(host_of);
    let host = host.ok_or(MtlsError::NotGuard("its common name is another"))?;
    if one(leaf.subject().iter_organization()) != Some(GUARDS) {
        return Err(MtlsError::NotGuard("it is of another group"));
    }
    let issued = match behind.as_slice() {
        [] => true,
        [issuer] => one(parse(issuer)?.subject().iter_common_name()) == Some(&format!("{ISSUER}{host}")),
        _ => false,
    };
    if issued { Ok(host) } else { Err(MtlsError::Issuer(host)) }
}

/// Whether a reader of metrics sent these certificates; their signatures and their time are verified already.
///
/// # Errors
/// They are of another group, or came through any CA below the cluster's: that of CSRs, or the issuer of a host.
pub fn is_reader(
    certificates: Option<&[CertificateDer<'_>]>,
    authorities: &[CertificateDer<'_>],
) -> Result<(), MtlsError> {
    let (leaf, behind) = chain(certificates, authorities)?;
    let reads = one(leaf.subject().iter_organization()) == Some(METRICS_READERS);
    if reads && behind.is_empty() { Ok(()) } else { Err(MtlsError::NotReader) }
}

/// A certificate, and those of the CAs between it and the cluster CA.
type Chain<'a, 'b> = (X509Certificate<'a>, Vec<&'a CertificateDer<'b>>);

fn chain<'a, 'b>(
    certificates: Option<&'a [CertificateDer<'b>]>,
    authorities: &[CertificateDer<'_>],
) -> Result<Chain<'a, 'b>, MtlsError> {
    let (leaf, behind) = certificates.and_then(<[_]>::split_first).ok_or(MtlsError::NoCertificate)?;
    // A CA that is itself an intermediate follows the certificates that it issued.
    let behind = behind.iter().filter(|certificate| !authorities.contains(certificate)).collect();
    Ok((parse(leaf)?, behind))
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, MtlsError> {
    match x509_parser::parse_x509_certificate(der) {
        Ok((_, certificate)) => Ok(certificate),
        Err(_) => Err(MtlsError::Unreadable),
    }
}

/// The only attribute of its kind.
fn one<'a>(mut all: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>) -> Option<&'a str> {
    let first = all.next()?.as_str().ok()?;
    all.next().is_none().then_some(first)
}
