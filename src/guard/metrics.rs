//! The metrics of a guard, in Prometheus' text format, at `/metrics`: over HTTP on loopback, and, if the inventory asks for
//! it, over TLS on the address of the host, to clients with a certificate for it.
//!
//! In: the report and the figures. Out: text. Names of hosts and kinds are plain, so that no label needs an escape.
//! Clients are bounded in number, time and size, before and after their certificate is known.

use super::figures::{Effect, Figures, Snapshots};
use super::shared::Shared;
use super::state::EtcdSeen;
use crate::model::fault::{Class, Fault, FaultKind};
use crate::model::guard_report::GuardReport;
use crate::model::healing::METRICS_PORT;
use crate::model::heartbeat::Sight;
use crate::model::maintained::Maintained;
use crate::model::names::HostName;
use crate::model::repair::{Decision, LocalStep};
use crate::transport::mtls::{self, CONNECT};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections at the same time; more wait.
const AT_ONCE: usize = 8;
/// How long a client may take to send its request, and any client may take in all.
const REQUEST: Duration = Duration::from_secs(5);
/// The largest request, bytes: the least that hyper reads at once.
const LARGEST: usize = 8 << 10;
const PAUSE: Duration = Duration::from_secs(10);

/// The clients on the address of the host.
#[derive(Clone)]
pub(super) struct Readers {
    acceptor: TlsAcceptor,
    authorities: Arc<[CertificateDer<'static>]>,
}

impl Readers {
    /// Those with a certificate of these CAs.
    pub fn of(server: ServerConfig, authorities: Vec<CertificateDer<'static>>) -> Self {
        Self { acceptor: TlsAcceptor::from(Arc::new(server)), authorities: authorities.into() }
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

/// Serves the metrics until the guard ends: on loopback to everybody, or on the address of the host to these readers.
pub(super) async fn serve(shared: Arc<Shared>, readers: Option<Readers>) {
    let address = readers.as_ref().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |_| shared.own.address);
    let free = Arc::new(Semaphore::new(AT_ONCE));
    let listener = shared.listen(SocketAddr::new(address, METRICS_PORT), "serve metrics", PAUSE).await;
    loop {
        let Ok(turn) = Arc::clone(&free).acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (shared, readers) = (Arc::clone(&shared), readers.clone());
        tokio::spawn(async move {
            match readers {
                None => respond(&shared, stream).await,
                Some(readers) => match readers.admit(stream).await {
                    Ok(stream) => respond(&shared, stream).await,
                    Err(why) => shared.refused(from.ip(), &why),
                },
            }
            drop(turn);
        });
    }
}

/// Answers the request of one connection.
async fn respond(shared: &Shared, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let answer = service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(shared, &request))));
    let mut http = hyper::server::conn::http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_buf_size(LARGEST).keep_alive(false);
    // A client that breaks off needs no answer.
    let _ = timeout(REQUEST, http.serve_connection(TokioIo::new(stream), answer)).await;
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let found = request.method() == Method::GET && request.uri().path() == "/metrics";
    let look = || {
        let now = shared.now();
        shared.with(|state| text(&state.report(now), state.etcd(now), &state.figures))
    };
    let text = found.then(look).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(text)));
    if !found {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    let plain = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// The metrics of a report, of etcd as this guard sees it, and of what it counts and measures.
pub(super) fn text(report: &GuardReport, etcd: Option<EtcdSeen>, figures: &Figures) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, help: &str, samples: &[(String, f64)]| {
        let of = if name.ends_with("_total") { "counter" } else { "gauge" };
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {of}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let faults: Vec<&Fault> = report.own.iter().chain(&report.presumed).collect();
    #[allow(clippy::cast_precision_loss, reason = "milliseconds, shown as seconds")]
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let class = |fault: &Fault| match fault.kind.class() {
        Class::Confirmed => "confirmed",
        Class::Presumed => "presumed",
    };
    metric("hactl_guard_up", "The guard works.", &[(String::new(), 1.0)]);
    let info = format!("{{release=\"{}\",policy=\"{}\"}}", report.release.short(), report.policy.short());
    metric("hactl_guard_policy_info", "Its program and its policy, by their digests.", &[(info, 1.0)]);
    let open = |fault: &&Fault| {
        (format!("{{host=\"{}\",kind=\"{}\",class=\"{}\"}}", fault.host, fault.kind, class(fault)), 1.0)
    };
    let open: Vec<_> = faults.iter().map(open).collect();
    metric("hactl_faults", "Raised faults, by the host that has them.", &open);
    let age = |fault: &&Fault| {
        let labels = format!("{{host=\"{}\",kind=\"{}\"}}", fault.host, fault.kind);
        (labels, seconds(report.at_ms.saturating_sub(fault.since_ms)))
    };
    let ages: Vec<_> = faults.iter().map(age).collect();
    metric("hactl_fault_seconds", "How long a raised fault has lasted.", &ages);
    let heard: Vec<_> = report
        .others
        .iter()
        .map(|(host, other)| (format!("{{host=\"{host}\"}}"), f64::from(u8::from(other.sight == Sight::Heard))))
        .collect();
    metric("hactl_guard_heard", "Whether the heartbeats of another guard arrive.", &heard);
    let clocks: Vec<_> = report
        .others
        .iter()
        .filter_map(|(host, other)| Some((format!("{{host=\"{host}\"}}"), seconds(other.ahead_ms?))))
        .collect();
    metric("hactl_clock_offset_seconds", "How far the clock of another host is ahead.", &clocks);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let one = |number: usize| [(String::new(), number as f64)];
    if let Some(EtcdSeen { serves, members, tolerated }) = etcd {
        metric("hactl_etcd_serves", "Whether the etcd member of this host serves.", &one(serves.into()));
        metric("hactl_etcd_members", "How many members etcd has by the policy.", &one(members));
        metric("hactl_failures_tolerated", "How many more etcd members may fail.", &one(tolerated));
    }
    let of = |is: fn(&Decision) -> bool| -> Vec<(String, f64)> {
        let decided = report.decided.iter().filter(|decided| is(&decided.decision));
        decided.map(|decided| (format!("{{kind=\"{}\"}}", decided.kind), 1.0)).collect()
    };
    let held_back = of(|decision| matches!(decision, Decision::HeldBack { .. }));
    metric("hactl_held_back", "Faults of this host whose repair is held back.", &held_back);
    let gave_up = of(|decision| matches!(decision, Decision::GaveUp { .. }));
    metric("hactl_gave_up", "Faults of this host that repairs did not end.", &gave_up);
    metric("hactl_guard_paused", "Whether a person holds this host.", &one(report.hold.is_some().into()));
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = |(&(kind, step, effect), count): (&(FaultKind, LocalStep, Effect), &u64)| {
        let labels = format!("{{kind=\"{kind}\",step=\"{}\",outcome=\"{}\"}}", step.word(), effect.word());
        (labels, *count as f64)
    };
    let repairs: Vec<_> = figures.repairs.iter().map(count).collect();
    metric("hactl_guard_repairs_total", "Repairs of this host since the start of its guard.", &repairs);
    if let Some(ends_s) = figures.certificate_ends_s {
        let left_s = seconds(ends_s.saturating_mul(1000).saturating_sub(report.at_ms));
        let help = "Days until the first certificate of this host expires that hactl renews.";
        metric("hactl_certificate_days", help, &[(String::new(), left_s / 86_400.0)]);
    }
    if let Some(Snapshots { newest_ms, every_s }) = figures.snapshots {
        if let Some(newest_ms) = newest_ms {
            let age = seconds(report.at_ms.saturating_sub(newest_ms));
            metric("hactl_snapshot_age_seconds", "Age of the newest snapshot on this host.", &[(String::new(), age)]);
        }
        #[allow(clippy::cast_precision_loss, reason = "an interval in seconds")]
        let every = every_s as f64;
        metric("hactl_snapshot_interval_seconds", "The interval of snapshots.", &[(String::new(), every)]);
    }
    if let Some(Maintained { states, blocked_pods, drains, reboots, evictions }) = &figures.maintained {
        let states: Vec<_> =
            states.iter().map(|(state, count)| (format!("{{state=\"{state}\"}}"), one(*count)[0].1)).collect();
        metric("hactl_maintenances", "Maintenances of Nodes, by how far they are.", &states);
        metric("hactl_drain_blocked_pods", "Pods that do not leave a Node that is being drained.", &one(*blocked_pods));
        let of = |node: &HostName, value: f64| (format!("{{node=\"{node}\"}}"), value);
        let drains: Vec<_> = drains.iter().map(|(node, lasted)| of(node, lasted.as_secs_f64())).collect();
        metric("hactl_drain_seconds", "For how long the drain of a Node has lasted.", &drains);
        let asked = |(node, asked_ms): (&HostName, &i64)| of(node, seconds(report.at_ms.saturating_sub(*asked_ms)));
        let reboots: Vec<_> = reboots.iter().map(asked).collect();
        metric("hactl_reboot_seconds", "How long ago a host was asked to reboot that is not back.", &reboots);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let counted = |(result, count): (&&str, &u64)| (format!("{{result=\"{result}\"}}"), *count as f64);
        let evictions: Vec<_> = evictions.iter().map(counted).collect();
        metric("hactl_evictions_total", "Evictions that this guard has asked for, by their result.", &evictions);
    }
    text
}
