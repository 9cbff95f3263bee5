//! Cluster DNS as the pods of this host find it.
//!
//! In: the DNS service's address. Out: whether a question from inside a pod's network was answered.

use crate::agent::machine::run::run;
use crate::model::facts::{DROPS, DnsFact};
use crate::protocol::FaultKind;
use std::net::IpAddr;
use std::time::Duration;

/// What every cluster's DNS must know.
const NAME: &str = "kubernetes.default.svc.cluster.local";
/// How long a question may take.
const WITHIN: Duration = Duration::from_millis(1500);

/// Asks cluster DNS from the network of a pod of this host: hactl itself, run inside that network.
pub(super) async fn ask(server: Option<IpAddr>) -> Option<DnsFact> {
    let server = server?.to_string();
    let mut networks: Vec<_> = std::fs::read_dir("/run/netns")
        .ok()?
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("cni-"))
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
        .collect();
    // The newest: an older one may be about to go with its pod.
    networks.sort();
    let (_, network) = networks.pop()?;
    let (network, me) = (format!("--net={}", network.display()), std::env::current_exe().ok()?);
    let ran = run(&["nsenter", &network, me.to_str()?, "host-dns", &server, NAME], WITHIN).await;
    let why = match ran {
        Ok(ran) if ran.ok() => return Some(DnsFact::Answered),
        Ok(ran) => ran.tail().pop().unwrap_or_else(|| "the question was not answered".to_owned()),
        Err(fault) if fault.kind == FaultKind::TimedOut => {
            format!("the DNS server {server} did not answer within {} s", WITHIN.as_secs_f32())
        }
        Err(fault) => fault.what,
    };
    Some(DnsFact::Failed(if drops().await { format!("{why}; {DROPS}") } else { why }))
}

/// Whether this host forwards only what some rule lets through, as Docker leaves it. Where there is no iptables it has no such policy.
async fn drops() -> bool {
    let shown = run(&["iptables", "-w", "1", "-S", "FORWARD"], WITHIN).await;
    shown.is_ok_and(|shown| shown.out.lines().any(|line| line.trim() == "-P FORWARD DROP"))
}
