//! A member's store written anew without the room that holds nothing, while the member is down: the others serve meanwhile, and nobody waits
//! for a member that does not answer for as long as that takes.
//!
//! In: its unit and its data directory. Out: done; or why not, and it runs as before.

use super::Host;
use super::fault::Outcome;
use super::run::{blocking, must, run};
use super::units;
use crate::model::names::UnitName;
use crate::model::plan::HowToRun;
use std::time::Duration;

const ETCDUTL: &str = "/usr/local/bin/etcdutl";
/// How long etcd may take to hand over and to stop.
const STOP: Duration = Duration::from_secs(60);
/// A store of the largest quota that is sensible, on a disk that is slow.
const WITHIN: Duration = Duration::from_secs(600);

/// Stops, rewrites, starts.
pub(super) async fn defragment(host: &Host, unit: &UnitName, data_dir: &str) -> Outcome<()> {
    let data = host.root.path(data_dir)?;
    host.waits(format!("{unit} to stop"));
    // Not disabled: where this is cut off by a loss of power it starts at the next boot.
    must(&["systemctl", "stop", unit.as_str()], STOP).await?;
    host.waits("etcdutl to write the store anew");
    let ran = run(&[ETCDUTL, "defrag", "--data-dir", &data.display().to_string()], WITHIN).await;
    // What it wrote is its own, not the member's; and whatever became of it, the member must run again.
    let root = host.root.clone();
    let owned = blocking(move || super::prepare::own(&data.join("member"), root.owner(super::member::OWNER)?)).await;
    units::run_unit(host, unit, HowToRun::Start, false).await?;
    owned?;
    let ran = ran?;
    if ran.ok() { Ok(()) } else { Err(ran.fault("etcdutl defrag")) }
}
