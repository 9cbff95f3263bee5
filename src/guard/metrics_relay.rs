//! `hactl host-metrics`: serves the metrics of the components of this host, which serve them on loopback only, to readers.
//!
//! In: [`Settings`], a certificate and its key, the CA by which readers are known; requests for `/metrics/COMPONENT`. Out:
//! what the component answers, as it is. It needs no etcd, no API and no other host; the scheduler and the controller
//! manager ask the API what its certificate may read.

use super::notify;
use super::readers::{self, Body, Handler, Readers};
use super::setup::{GuardError, identity, settings};
use crate::agent::Root;
use crate::model::causes::causes;
use crate::model::metrics::{CA, CERT, KEY, PORT, SETTINGS, Settings, Source};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long a component may take to begin its answer: less than the 10 s that Prometheus waits by default.
const ANSWERS: Duration = Duration::from_secs(8);
/// The largest answer of a component that is passed on, bytes.
const LARGEST: usize = 64 << 20;

/// The program.
struct Relay {
    settings: Settings,
    client: reqwest::Client,
    say: fn(&str),
}

/// Serves until it is stopped.
///
/// # Errors
/// Its files cannot be used, or another program listens at its port.
pub async fn run(root: Root, say: fn(&str)) -> Result<(), GuardError> {
    let settings: Settings = settings(&root, SETTINGS)?;
    let identity = identity(&root, [CA, CERT, KEY])?;
    let server = identity.server()?;
    let client = client(&root)?;
    let address = SocketAddr::new(settings.address, PORT);
    let unbound = |error| GuardError::Files(format!("cannot listen at {address}: {error}"));
    // At boot the address may come later than this program: systemd starts it again.
    let listener = TcpListener::bind(address).await.map_err(unbound)?;
    notify::ready();
    let relay = Relay { settings, client, say };
    readers::serve(listener, Some(Readers::of(server, identity.authorities)), Arc::new(relay)).await;
    Ok(())
}

/// A client for the components of this host.
fn client(root: &Root) -> Result<reqwest::Client, GuardError> {
    let read = |path| std::fs::read(root.own(path)).map_err(|e| GuardError::File { path, why: e.to_string() });
    let pem = [read(CERT)?, read(KEY)?].concat();
    let made = reqwest::Identity::from_pem(&pem).and_then(|identity| {
        reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .identity(identity)
            // The scheduler and the controller manager make a certificate of their own at each start. What listens on
            // loopback instead of them could show false metrics; the key of this program does not leave it.
            .tls_danger_accept_invalid_certs(true)
            .build()
    });
    made.map_err(|error| GuardError::Files(format!("the certificate for metrics cannot be used: {}", causes(&error))))
}

impl Handler for Relay {
    /// Longer than a component may take, for the transfer.
    const WITHIN: Duration = Duration::from_secs(20);

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (asked, _) = request.into_parts();
        match self.settings.source(asked.uri.path()) {
            Some(source) if asked.method == Method::GET => self.of(source, &asked.headers).await,
            _ => {
                let paths = self.settings.sources.iter().map(|source| format!("/metrics/{}\n", source.word()));
                readers::text(StatusCode::NOT_FOUND, format!("This host serves:\n{}", paths.collect::<String>()))
            }
        }
    }

    fn say(&self, line: &str) {
        (self.say)(&format!("metrics: {line}"));
    }
}

impl Relay {
    /// What a component answers to a request with these headers: they choose the format.
    async fn of(&self, source: Source, headers: &HeaderMap) -> Response<Body> {
        let mut ask = self.client.get(source.url());
        for name in [ACCEPT, ACCEPT_ENCODING] {
            if let Some(value) = headers.get(&name) {
                ask = ask.header(name, value);
            }
        }
        let answered = match tokio::time::timeout(ANSWERS, ask.send()).await {
            Ok(Ok(answered)) => Response::<reqwest::Body>::from(answered),
            Ok(Err(error)) => return unanswered(source, &causes(&error)),
            Err(_) => return unanswered(source, &format!("no answer within {} s", ANSWERS.as_secs())),
        };
        let (parts, body) = answered.into_parts();
        let mut response = Response::new(Limited::new(body, LARGEST).boxed_unsync());
        *response.status_mut() = parts.status;
        for name in [CONTENT_TYPE, CONTENT_ENCODING] {
            if let Some(value) = parts.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }
}

fn unanswered(source: Source, why: &str) -> Response<Body> {
    readers::text(StatusCode::BAD_GATEWAY, format!("{} of this host does not answer: {why}\n", source.word()))
}
