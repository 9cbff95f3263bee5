//! Defragments the database of a member while the member is stopped: the other members serve meanwhile, and no client
//! waits for a member that does not answer for that long.
//!
//! In: its unit and its data directory. Out: done; or a fault, and the member runs as before.

use crate::agent::etcd::member;
use crate::agent::etcd::scratch::ETCDUTL;
use crate::agent::host::Host;
use crate::agent::machine::run::{must, run_as};
use crate::agent::machine::tree::Tree;
use crate::agent::machine::units;
use crate::agent::op_error::Outcome;
use crate::model::names::UnitName;
use crate::model::plan::HowToRun;
use std::process::Stdio;
use std::time::Duration;

/// How long etcd may take to transfer the leadership and stop.
const STOP: Duration = Duration::from_secs(60);
/// For a database of the largest sensible quota, on a slow disk.
const WITHIN: Duration = Duration::from_secs(600);

/// Stops, rewrites, starts.
pub(crate) async fn defragment(host: &Host, unit: &UnitName, data_dir: &str) -> Outcome<()> {
    let data = host.root.path(data_dir)?;
    host.waits(format!("{unit} to stop"));
    // Not disabled: if power fails here, it starts at the next boot.
    must(&["systemctl", "stop", unit.as_str()], STOP).await?;
    host.waits("etcdutl to defragment the database");
    // As etcd: the files that it writes belong to the member.
    let owner = host.root.owner(member::OWNER)?;
    let ran = match Tree::there(&data) {
        Ok(data) => run_as(owner, &data, &[ETCDUTL, "defrag", "--data-dir=."], Stdio::null(), WITHIN).await,
        Err(fault) => Err(fault),
    };
    // The member must run again, whatever the result.
    units::run_unit(host, unit, HowToRun::Start, false).await?;
    let ran = ran?;
    if ran.ok() { Ok(()) } else { Err(ran.fault("etcdutl defrag")) }
}
