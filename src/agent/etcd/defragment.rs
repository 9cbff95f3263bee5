//! A member's store written anew without the room that holds nothing, while the member is down: the others serve meanwhile, and nobody waits
//! for a member that does not answer for as long as that takes.
//!
//! In: its unit and its data directory. Out: done; or why not, and it runs as before.

use crate::agent::Host;
use crate::agent::etcd::scratch::ETCDUTL;
use crate::agent::fault::Outcome;
use crate::agent::machine::run::{must, run_as};
use crate::agent::machine::tree::Tree;
use crate::agent::{etcd::member, machine::units};
use crate::model::names::UnitName;
use crate::model::plan::HowToRun;
use std::process::Stdio;
use std::time::Duration;

/// How long etcd may take to hand over and to stop.
const STOP: Duration = Duration::from_secs(60);
/// A store of the largest quota that is sensible, on a disk that is slow.
const WITHIN: Duration = Duration::from_secs(600);

/// Stops, rewrites, starts.
pub(in crate::agent) async fn defragment(host: &Host, unit: &UnitName, data_dir: &str) -> Outcome<()> {
    let data = host.root.path(data_dir)?;
    host.waits(format!("{unit} to stop"));
    // Not disabled: where this is cut off by a loss of power it starts at the next boot.
    must(&["systemctl", "stop", unit.as_str()], STOP).await?;
    host.waits("etcdutl to write the store anew");
    // As etcd: what it writes is the member's.
    let owner = host.root.owner(member::OWNER)?;
    let ran = match Tree::there(&data) {
        Ok(data) => run_as(owner, &data, &[ETCDUTL, "defrag", "--data-dir=."], Stdio::null(), WITHIN).await,
        Err(fault) => Err(fault),
    };
    // Whatever became of it, the member must run again.
    units::run_unit(host, unit, HowToRun::Start, false).await?;
    let ran = ran?;
    if ran.ok() { Ok(()) } else { Err(ran.fault("etcdutl defrag")) }
}
