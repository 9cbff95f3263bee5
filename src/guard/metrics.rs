//! The metrics of a guard, in Prometheus' text format, at `/metrics`: over HTTP on loopback, and, if the inventory asks for
//! it, over TLS on the address of the host, to clients with a certificate for it.
//!
//! In: the report and the figures. Out: text. Names of hosts and kinds are plain, so that no label needs an escape.

use super::figures::{Effect, Figures, Snapshots};
use super::readers::{self, Body, Handler, PAUSE, Readers};
use super::shared::Shared;
use super::state::EtcdSeen;
use crate::model::drill::LastDrill;
use crate::model::fault::{Class, Fault, FaultKind};
use crate::model::guard_report::GuardReport;
use crate::model::healing::METRICS_PORT;
use crate::model::heartbeat::Sight;
use crate::model::maintained::Maintained;
use crate::model::names::HostName;
use crate::model::repair::{Decision, LocalStep};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Serves the metrics until the guard ends: on loopback to everybody, or on the address of the host to these readers.
pub(super) async fn serve(shared: Arc<Shared>, readers: Option<Readers>) {
    let address = readers.as_ref().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |_| shared.own.address);
    let listener = shared.listen(SocketAddr::new(address, METRICS_PORT), "serve metrics", PAUSE).await;
    readers::serve(listener, readers, shared).await;
}

impl Handler for Shared {
    const WITHIN: Duration = Duration::from_secs(5);

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.method() != Method::GET || request.uri().path() != "/metrics" {
            return readers::text(StatusCode::NOT_FOUND, String::new());
        }
        let now = self.now();
        let text = self.with(|state| text(&state.report(now), state.etcd(now), &state.figures));
        readers::text(StatusCode::OK, text)
    }

    fn say(&self, line: &str) {
        self.say(line);
    }
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
    let drill = |last: &LastDrill| {
        let labels = format!("{{identity=\"{}\",outcome=\"{}\"}}", last.identity, last.outcome);
        (labels, seconds(report.at_ms.saturating_sub(last.at_ms)))
    };
    let drills: Vec<_> = figures.drills.iter().map(drill).collect();
    metric("hactl_drill_age_seconds", "How long ago the last drill on this host was, by its outcome.", &drills);
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
