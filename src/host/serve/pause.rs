//! Keeps a unit's processes from running for a moment.
//!
//! In: the unit, and for how long at most. Out: nothing; whoever talks through the unit waits, and its connections stay. Who is to let it
//! run again is set up first and belongs to systemd alone: neither a killed hactl nor a lost connection leaves a unit stopped.

use super::Host;
use super::fault::Outcome;
use super::run::must;
use super::units::own_systemd;
use crate::model::names::UnitName;
use std::time::Duration;

/// How long systemd may take to send a signal.
const ANSWER: Duration = Duration::from_secs(5);
/// No unit is kept for longer, whatever is asked for.
const MOST: Duration = Duration::from_secs(2);
const STOP: &str = "--signal=SIGSTOP";
const CONTINUE: &str = "--signal=SIGCONT";
/// The second time counts where the first signal was sent before the one that stops: that one has [`ANSWER`] to be sent.
const LATER: &str = "sleep \"$1\"; shift; \"$@\"; sleep 6; \"$@\"";

/// Stops the processes where they are.
pub(super) async fn pause(host: &Host, unit: &UnitName, most: Duration) -> Outcome<()> {
    own_systemd(host)?;
    let after = format!("{:.3}", most.min(MOST).as_secs_f64());
    let mut later =
        vec!["systemd-run", "--quiet", "--collect", "--no-block", "--", "/bin/sh", "-c", LATER, "later", &after];
    later.extend(["systemctl", "kill", CONTINUE, "--", unit.as_str()]);
    must(&later, ANSWER).await?;
    must(&["systemctl", "kill", STOP, "--", unit.as_str()], ANSWER).await.map(drop)
}

/// Lets them go on.
pub(super) async fn resume(host: &Host, unit: &UnitName) -> Outcome<()> {
    own_systemd(host)?;
    must(&["systemctl", "kill", CONTINUE, "--", unit.as_str()], ANSWER).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_that_stands_for_a_host_pauses_nothing_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new(super::super::Root::at(folder.path()));
        let unit: UnitName = "hactl-etcd-balancer.service".parse().unwrap();
        assert!(pause(&host, &unit, Duration::from_millis(1)).await.is_err());
        assert!(resume(&host, &unit).await.is_err());
    }
}
