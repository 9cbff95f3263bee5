//! Serves metrics over HTTP: on loopback to everybody, or over TLS to readers, the clients with a certificate for it.
//!
//! In: a listener, and what answers a request. Out: answers. Clients are bounded in number, time and size, before and
//! after their certificate is known.

use super::shared::refusal;
use crate::transport::mtls::{self, CONNECT};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections at the same time; more wait.
const AT_ONCE: usize = 8;
/// How long a client may take to send its request.
const REQUEST: Duration = Duration::from_secs(5);
/// The largest request, bytes: the least that hyper reads at once.
const LARGEST: usize = 8 << 10;
/// Before the next attempt when no connection can be accepted.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The clients with a certificate for it.
#[derive(Clone)]
pub(super) struct Readers {
    acceptor: TlsAcceptor,
    authorities: Arc<[CertificateDer<'static>]>,
    /// What was said about refused connections: anybody may connect, from many addresses.
    pub refused: Arc<Mutex<BTreeSet<String>>>,
}

impl Readers {
    /// Those with a certificate of these CAs.
    pub fn of(server: ServerConfig, authorities: Vec<CertificateDer<'static>>) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(server));
        Self { acceptor, authorities: authorities.into(), refused: Arc::default() }
    }

    /// The connection of one of them, or why it is none.
    async fn admit(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let stream = match timeout(CONNECT, self.acceptor.accept(stream)).await {
            Ok(accepted) => accepted.map_err(|error| error.to_string())?,
            Err(_) => return Err("the TLS handshake took too long".to_owned()),
        };
        let reader = mtls::is_reader(stream.get_ref().1.peer_certificates(), &self.authorities);
        reader.map_err(|why| why.to_string())?;
        Ok(stream)
    }
}

/// What answers requests.
pub(super) trait Handler: Send + Sync + 'static {
    /// How long any client may take in all.
    const WITHIN: Duration;

    /// The answer to a request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;

    /// Writes a line to the journal.
    fn say(&self, line: &str);
}

/// Serves until the program ends: these readers, or everybody who can connect.
pub(super) async fn serve<H: Handler>(listener: TcpListener, readers: Option<Readers>, handler: Arc<H>) {
    let free = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(turn) = Arc::clone(&free).acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (handler, readers) = (Arc::clone(&handler), readers.clone());
        tokio::spawn(async move {
            match readers {
                None => respond(&handler, stream).await,
                Some(readers) => match readers.admit(stream).await {
                    Ok(stream) => respond(&handler, stream).await,
                    Err(why) => {
                        if let Some(line) = refusal(&readers.refused, from.ip(), &why) {
                            handler.say(&line);
                        }
                    }
                },
            }
            drop(turn);
        });
    }
}

/// Answers the request of one connection.
async fn respond<H: Handler>(handler: &Arc<H>, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let answer = service_fn(|request| {
        let handler = Arc::clone(handler);
        async move { Ok::<_, Infallible>(handler.answer(request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_buf_size(LARGEST).keep_alive(false);
    // A client that breaks off needs no answer.
    let _ = timeout(H::WITHIN, http.serve_connection(TokioIo::new(stream), answer)).await;
}

/// An answer of text.
pub(super) fn text(status: StatusCode, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"));
    response
}
