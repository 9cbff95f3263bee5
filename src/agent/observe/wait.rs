//! Waits on the host itself: no round trip between two polls.
//!
//! In: a condition and a deadline. Out: done, or a fault with the last observed state.

use crate::agent::etcd::member;
use crate::agent::host::Host;
use crate::agent::machine::ends::{Ends, exit_report};
use crate::agent::machine::processes;
use crate::agent::machine::when::{changed_ms, now_ms};
use crate::agent::op_error::{Outcome, fault};
use crate::agent::pki::tls;
use crate::agent::web::Web;
use crate::etcd;
use crate::model::control_plane::API_SERVER;
use crate::protocol::{OpError, OpErrorKind, WaitCondition};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The interval of the polls.
const LOOK: Duration = Duration::from_millis(60);
/// How long one poll may take.
const TRY: Duration = Duration::from_secs(2);
/// How long a connection may take. If an address is just moving here, the first packet is lost, and the kernel
/// repeats it only after a second: a new connection is faster.
const CONNECT: Duration = Duration::from_millis(400);

/// Waits until the condition holds.
pub(crate) async fn wait(host: &Host, condition: &WaitCondition, within: Duration) -> Outcome<()> {
    let until = Instant::now() + within;
    let what = name(condition);
    host.waits(&what);
    let mut look = Poll::new(condition);
    loop {
        let seen = match look.once(host).await {
            Ok(()) => return Ok(()),
            Err(seen) => seen,
        };
        if let Some(fault) = look.in_vain(host).await {
            return Err(fault);
        }
        if Instant::now() > until {
            return Err(fault(
                OpErrorKind::TimedOut,
                format!("waited {:.1} s for {what}; last seen: {seen}", within.as_secs_f32()),
            ));
        }
        host.waits(format!("{what} ({seen})"));
        sleep(LOOK).await;
    }
}

fn name(condition: &WaitCondition) -> String {
    match condition {
        WaitCondition::EtcdQuorum(_) => "etcd to have a quorum".to_owned(),
        WaitCondition::ApiServes { at: (host, port), .. } => format!("an API server to serve at {host}:{port}"),
        WaitCondition::ApiReady { at: (host, port), .. } => format!("the API server at {host}:{port} to be ready"),
    }
}

/// Whether each program's process started after its manifest last changed: an API server that is about to be replaced
/// still reports that it is ready.
fn runs_by_its_manifests(host: &Host, newer: &[(String, String)], settled_ms: u64) -> Result<(), String> {
    if newer.is_empty() {
        return Ok(());
    }
    let started = processes::started();
    for (program, manifest) in newer {
        let path = host.root.present(manifest).map_err(|f| f.what)?;
        // A pod of the DaemonSet runs instead, and may be older than the move of the manifest.
        if path != host.root.path(manifest).map_err(|f| f.what)? {
            continue;
        }
        let meta = std::fs::metadata(&path).map_err(|e| format!("{manifest}: {e}"))?;
        let changed = changed_ms(&meta);
        match started.get(program) {
            // The API server reports its own readiness.
            Some(at) if *at >= changed && program == API_SERVER => {}
            Some(at) if *at >= changed => {
                let ran = now_ms().saturating_sub(*at);
                if u64::try_from(ran).unwrap_or(0) < settled_ms {
                    return Err(format!("{program} has just started"));
                }
            }
            Some(_) => return Err(format!("{program} still runs with its previous manifest")),
            None => return Err(format!("{program} does not run yet")),
        }
    }
    Ok(())
}

/// The condition, with the connection kept between two polls.
struct Poll<'a> {
    condition: &'a WaitCondition,
    web: Option<Web>,
    ends: Ends,
}

impl<'a> Poll<'a> {
    fn new(condition: &'a WaitCondition) -> Self {
        Self { condition, web: None, ends: Ends::default() }
    }

    async fn once(&mut self, host: &Host) -> Result<(), String> {
        match self.condition {
            WaitCondition::EtcdQuorum(ask) => {
                let access = member::access(&host.root, ask).map_err(|f| f.what)?;
                etcd::holds_quorum(&access, TRY).await.map_err(|e| e.to_string())
            }
            WaitCondition::ApiReady { at: (name, port), ca, newer, settled_ms, ends: _ } => {
                let by_their_manifests = runs_by_its_manifests(host, newer, *settled_ms);
                let web = self.web(host, ca, (name, *port))?;
                by_their_manifests?;
                web.ready(TRY).await
            }
            WaitCondition::ApiServes { at: (name, port), ca } => self.web(host, ca, (name, *port))?.serves(TRY).await,
        }
    }

    fn web(&mut self, host: &Host, ca: &str, (name, port): (&str, u16)) -> Result<&Web, String> {
        let web = match self.web.take() {
            Some(web) => web,
            // Certificates may not be installed yet: they are read again until they exist.
            None => Web::new(tls::client(&host.root, ca, None).map_err(|f| f.what)?, name, port, CONNECT)?,
        };
        Ok(self.web.insert(web))
    }

    /// A program that has exited too often. A program that requires the API server is only counted while that is
    /// ready.
    async fn in_vain(&mut self, host: &Host) -> Option<OpError> {
        let WaitCondition::ApiReady { newer, ends: Some(most), .. } = self.condition else { return None };
        for (program, _) in newer {
            let first = program == API_SERVER;
            if !first && !self.api_serves().await {
                continue;
            }
            let ended = self.ends.of(&host.root, program);
            if ended >= *most {
                let what = format!("{program} has exited {ended} times with its new manifest");
                return Some(OpError { tail: exit_report(&host.root, program), ..fault(OpErrorKind::Failed, what) });
            }
        }
        None
    }

    async fn api_serves(&self) -> bool {
        match &self.web {
            Some(web) => web.ready(TRY).await.is_ok(),
            None => false,
        }
    }
}
