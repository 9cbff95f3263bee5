//! The metrics of a guard, in Prometheus' text format, at `/metrics` on loopback.
//!
//! In: the report. Out: text. Names of hosts and kinds are plain, so that no label needs an escape.

use super::shared::Shared;
use crate::model::fault::{Class, Fault};
use crate::model::guard_report::GuardReport;
use crate::model::healing::METRICS_PORT;
use crate::model::heartbeat::Sight;
use crate::model::repair::Decision;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Requests at the same time; more wait.
const AT_ONCE: usize = 4;
/// How long a client may take to send its request, and any client may take in all.
const REQUEST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(10);

/// Serves the metrics until the guard ends.
pub(super) async fn serve(shared: Arc<Shared>) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT));
    let free = Arc::new(Semaphore::new(AT_ONCE));
    let listener = shared.listen(address, "serve metrics", PAUSE).await;
    loop {
        let Ok(turn) = Arc::clone(&free).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let answer = service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&shared, &request))));
            let mut http = hyper::server::conn::http1::Builder::new();
            let http = http.timer(TokioTimer::new()).header_read_timeout(REQUEST).keep_alive(false);
            // A client that breaks off needs no answer.
            let _ = tokio::time::timeout(REQUEST, http.serve_connection(TokioIo::new(stream), answer)).await;
            drop(turn);
        });
    }
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let found = request.method() == Method::GET && request.uri().path() == "/metrics";
    let look = || {
        let now = shared.now();
        shared.with(|state| text(&state.report(now), state.etcd()))
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

/// The metrics of a report, and of the own etcd member: whether it serves linearizable reads, and how many members etcd
/// has by the policy.
pub fn text(report: &GuardReport, etcd: Option<(bool, u32)>) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, help: &str, samples: &[(String, f64)]| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
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
    if let Some((serves, members)) = etcd {
        let serves = f64::from(u8::from(serves));
        metric("hactl_etcd_serves", "Whether the etcd member of this host serves.", &[(String::new(), serves)]);
        let members = f64::from(members);
        metric("hactl_etcd_members", "How many members etcd has by the policy.", &[(String::new(), members)]);
    }
    let of = |is: fn(&Decision) -> bool| -> Vec<(String, f64)> {
        let decided = report.decided.iter().filter(|decided| is(&decided.decision));
        decided.map(|decided| (format!("{{kind=\"{}\"}}", decided.kind), 1.0)).collect()
    };
    let held_back = of(|decision| matches!(decision, Decision::HeldBack { .. }));
    metric("hactl_held_back", "Faults of this host whose repair is held back.", &held_back);
    let gave_up = of(|decision| matches!(decision, Decision::GaveUp { .. }));
    metric("hactl_gave_up", "Faults of this host that repairs did not end.", &gave_up);
    let held = f64::from(u8::from(report.hold.is_some()));
    metric("hactl_guard_paused", "Whether a person holds this host.", &[(String::new(), held)]);
    text
}
