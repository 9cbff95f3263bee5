//! A real API server, over HTTP/2.
//!
//! In: how to connect to it, and requests. Out: answers, and watches. An API server serves 100 requests at once on one
//! connection, and a watch is one of them as long as it lasts. So watches have connections of their own: otherwise many of
//! them would keep all other requests waiting.

use super::KubeError;
use super::client::{Answer, Chunks, Http, Request};
use crate::model::causes::causes;
use crate::model::secret::Secret;
use futures::future::BoxFuture;
use futures::stream::StreamExt as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time limit of one request. An API server itself gives up after a minute.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The most watches on one connection: an API server admits 100 streams (`HTTP2MaxStreamsPerConnection`).
const WATCHES: usize = 80;

/// Opens a connection.
pub(super) type Connect = Box<dyn Fn() -> reqwest::Result<reqwest::Client> + Send + Sync>;

/// An API server.
pub(super) struct Server {
    base: String,
    connect: Connect,
    /// The connection for all requests but watches.
    requests: reqwest::Client,
    /// The connections for watches.
    watches: Mutex<Vec<Watches>>,
}

/// A connection for watches. Each of them holds a clone of `live`.
struct Watches {
    connection: reqwest::Client,
    live: Arc<()>,
}

impl Server {
    /// One at this URL.
    pub(super) fn new(base: String, connect: Connect) -> reqwest::Result<Self> {
        Ok(Self { base, requests: connect()?, connect, watches: Mutex::default() })
    }

    fn build(&self, connection: &reqwest::Client, request: Request) -> reqwest::RequestBuilder {
        let Request { method, path, accept, media, body } = request;
        let mut built = connection.request(method, format!("{}{path}", self.base));
        if let Some(accept) = accept {
            built = built.header("accept", accept);
        }
        if !body.is_empty() {
            built = built.header("content-type", media).body(body);
        }
        built
    }

    /// A connection with room for a watch, which holds the second part as long as it lasts.
    fn room(&self) -> reqwest::Result<(reqwest::Client, Arc<()>)> {
        let mut all = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = all.iter().find(|one| Arc::strong_count(&one.live) <= WATCHES) {
            return Ok((one.connection.clone(), Arc::clone(&one.live)));
        }
        let (connection, live) = ((self.connect)()?, Arc::new(()));
        all.push(Watches { connection: connection.clone(), live: Arc::clone(&live) });
        Ok((connection, live))
    }
}

impl Http for Server {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
        Box::pin(async move {
            let built = self.build(&self.requests, request).timeout(REQUEST_TIMEOUT);
            let response = built.send().await.map_err(|e| causes(&e))?;
            let status = response.status().as_u16();
            let retry_after = response.headers().get("retry-after");
            let retry_after_s = retry_after.and_then(|text| text.to_str().ok()?.parse().ok());
            let body = response.bytes().await.map_err(|e| causes(&e))?.into();
            Ok(Answer { status, retry_after_s, body })
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        Box::pin(async move {
            let (connection, live) = self.room().map_err(|e| causes(&e))?;
            let response = self.build(&connection, request).send().await.map_err(|e| causes(&e))?;
            let status = response.status().as_u16();
            // The stream holds `live` as its state.
            let chunks = response
                .bytes_stream()
                .scan(live, |_, chunk| ready(Some(chunk.map(|bytes| bytes.to_vec()).map_err(|e| causes(&e)))));
            Ok((status, chunks.boxed()))
        })
    }
}

/// Trusts only this CA, and authenticates with this certificate.
pub(super) fn tls(ca_pem: &str, cert_pem: &str, key_pem: &Secret<String>) -> Result<rustls::ClientConfig, KubeError> {
    let bad = |what: &str, error: &dyn std::error::Error| KubeError::Credentials { why: format!("{what}: {error}") };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        let certificate = certificate.map_err(|e| bad("the CA certificate", &e))?;
        roots.add(certificate).map_err(|e| bad("the CA certificate", &e))?;
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect();
    let chain = chain.map_err(|e| bad("the client certificate", &e))?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.reveal().as_bytes()).map_err(|e| bad("the client key", &e))?;
    // The crypto provider is explicit: the default panics if a program links two.
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("TLS", &e))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|e| bad("the client certificate", &e))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// What connects with this.
pub(super) fn builder(tls: &rustls::ClientConfig) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls.clone())
        // The proxy from the environment is for other traffic.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_fill_a_connection_leave_room_for_others_on_another_one_until_they_end() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let server = Server::new("https://api".to_owned(), Box::new(move || builder(&tls).build())).expect("a client");
        let connections = || server.watches.lock().expect("no panic holds it").len();
        let mut live: Vec<Arc<()>> = (0..WATCHES).map(|_| server.room().expect("a connection").1).collect();
        assert_eq!(connections(), 1);
        live.push(server.room().expect("a connection").1);
        assert_eq!(connections(), 2);
        live.truncate(1);
        live.extend((1..WATCHES).map(|_| server.room().expect("a connection").1));
        assert_eq!((connections(), Arc::strong_count(&live[0])), (2, WATCHES + 1), "the first one has room again");
    }
}
