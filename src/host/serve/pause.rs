//! Keeps a unit's processes from running for a moment.
//!
//! In: the unit, and for how long at most. Out: nothing; whoever talks through the unit waits, and its connections stay. Who is to let it
//! run again is set up first and belongs to nobody: neither a killed hactl nor a lost connection leaves a unit stopped.

use super::Host;
use super::fault::{Outcome, failed};
use super::run::{PATH, must};
use super::units::own_systemd;
use crate::model::names::UnitName;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How long systemd may take to send a signal.
const ANSWER: Duration = Duration::from_secs(5);
const STOP: &str = "--signal=SIGSTOP";
const CONTINUE: &str = "--signal=SIGCONT";

/// Stops the processes where they are.
pub(super) async fn pause(host: &Host, unit: &UnitName, most: Duration) -> Outcome<()> {
    own_systemd(host)?;
    later(most, &["systemctl", "kill", CONTINUE, "--", unit.as_str()])?;
    must(&["systemctl", "kill", STOP, "--", unit.as_str()], ANSWER).await.map(drop)
}

/// Lets them go on.
pub(super) async fn resume(host: &Host, unit: &UnitName) -> Outcome<()> {
    own_systemd(host)?;
    must(&["systemctl", "kill", CONTINUE, "--", unit.as_str()], ANSWER).await.map(drop)
}

/// Runs a program after a while, whatever has become of this one by then.
fn later(after: Duration, argv: &[&str]) -> Outcome<()> {
    let seconds = format!("{:.3}", after.as_secs_f64());
    let mut child = Command::new("/bin/sh")
        .args(["-c", "sleep \"$1\" && shift && exec \"$@\"", "later", &seconds])
        .args(argv)
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| failed(format!("could not run /bin/sh: {e}")))?;
    // Nobody asks how it ended, but somebody has to take note that it did.
    tokio::spawn(async move { child.wait().await });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_to_happen_later_happens_though_nobody_waits_for_it_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("it was here");
        later(Duration::from_millis(300), &["touch", mark.to_str().unwrap()]).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!mark.exists());
        let begun = std::time::Instant::now();
        while !mark.exists() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_directory_that_stands_for_a_host_pauses_nothing_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new(super::super::Root::at(folder.path()));
        let unit: UnitName = "hactl-etcd-balancer.service".parse().unwrap();
        assert!(pause(&host, &unit, Duration::from_millis(1)).await.is_err());
        assert!(resume(&host, &unit).await.is_err());
    }
}
