//! The members with which the local one has a connection, as it says in its metrics.
//!
//! In: the metrics of etcd. Out: ids. A connection that only the kernel still holds does not count: etcd ends one on
//! which it hears nothing for five seconds.

use crate::agent::plain_http::etcd_metrics;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long etcd may take to write its metrics.
const WITHIN: Duration = Duration::from_secs(1);
/// A gauge for each other member that etcd ever had a connection with: 1 while it has one.
const ACTIVE: &str = "etcd_network_active_peers{";

/// The ids of the members with which the local one has a connection; `None`: it does not tell.
pub(super) async fn connected() -> Option<BTreeSet<u64>> {
    active(&etcd_metrics(WITHIN).await?)
}

/// A member of a quorum of several has a connection with one of them: one that names none does not tell.
fn active(metrics: &str) -> Option<BTreeSet<u64>> {
    let peer = |line: &str| {
        let (labels, value) = line.strip_prefix(ACTIVE)?.split_once("} ")?;
        let id = labels.split(',').find_map(|label| label.strip_prefix("Remote=\"")?.strip_suffix('"'))?;
        let id = u64::from_str_radix(id, 16).ok()?;
        Some((id, value.trim().parse::<f64>().ok()? >= 1.0))
    };
    let peers: Vec<(u64, bool)> = metrics.lines().filter_map(peer).collect();
    let connected = peers.iter().filter(|(_, active)| *active).map(|(id, _)| *id);
    (!peers.is_empty()).then(|| connected.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_with_an_active_connection_count_and_a_page_that_names_none_tells_nothing() {
        let page = "# TYPE etcd_network_active_peers gauge\n\
                    etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1\n\
                    etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"fd422379fda50e48\"} 0\n\
                    etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"no id\"} 1\n";
        assert_eq!(active(page), Some([0x91bc_3c39_8fb3_c146].into()));
        assert_eq!(active(&page.replace("} 1", "} 0")), Some(BTreeSet::new()), "it hears nobody");
        assert_eq!(active("etcd_server_has_leader 1\n"), None, "another version of etcd may not have the gauge");
        assert_eq!(active(""), None);
    }
}
