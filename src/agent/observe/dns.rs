//! Cluster DNS from the point of view of the pods on this host.
//!
//! In: the address of the DNS service. Out: whether a query from the network of a pod was answered.

use crate::agent::machine::run::run;
use crate::model::facts::{DROPS, DnsFact};
use crate::protocol::OpErrorKind;
use std::net::IpAddr;
use std::time::Duration;

/// A name that the DNS of every cluster must resolve.
const NAME: &str = "kubernetes.default.svc.cluster.local";
/// How long a query may take.
const WITHIN: Duration = Duration::from_millis(1500);

/// Queries cluster DNS from the network of a pod on this host: hactl itself runs inside that network.
pub(super) async fn ask(server: Option<IpAddr>) -> Option<DnsFact> {
    let server = server?.to_string();
    let mut networks: Vec<_> = std::fs::read_dir("/run/netns")
        .ok()?
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("cni-"))
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
        .collect();
    // The newest: an older one may be about to disappear with its pod.
    networks.sort();
    let (_, network) = networks.pop()?;
    let (network, me) = (format!("--net={}", network.display()), std::env::current_exe().ok()?);
    let ran = run(&["nsenter", &network, me.to_str()?, "host-dns", &server, NAME], WITHIN).await;
    let why = match ran {
        Ok(ran) if ran.ok() => return Some(DnsFact::Answered),
        Ok(ran) => ran.tail().pop().unwrap_or_else(|| "the DNS query was not answered".to_owned()),
        Err(fault) if fault.kind == OpErrorKind::TimedOut => {
            format!("the DNS server {server} did not answer within {} s", WITHIN.as_secs_f32())
        }
        Err(fault) => fault.what,
    };
    Some(DnsFact::Failed(if drops().await { format!("{why}; {DROPS}") } else { why }))
}

/// Whether this host forwards only traffic that a rule accepts, as Docker configures it. A host without iptables has
/// no such policy.
async fn drops() -> bool {
    let shown = run(&["iptables", "-w", "1", "-S", "FORWARD"], WITHIN).await;
    shown.is_ok_and(|shown| shown.out.lines().any(|line| line.trim() == "-P FORWARD DROP"))
}
