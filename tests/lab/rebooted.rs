//! Reboots for maintenances: hosts of the control plane one after the other, while clients read and write.

use super::drains::stands_on;
use super::guard::guarded;
use super::leaving::move_leadership_to;
use super::maintain::{HEAL, kubectl};
use super::reboot::booted;
use super::support::{Hactl, Writer};
use super::trials::{LATE, unnoticed_but_for_moves};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

/// On three control-plane hosts and one worker.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "control-plane hosts reboot one after the other by guards and by a command, and clients are served",
    cut: false,
    run: rebooted,
}];

const OFTEN: Duration = Duration::from_millis(20);
/// How long a write may take when the host of etcd's leader reboots and nobody hands over the lead before: a proposal
/// that a follower forwards during etcd's own handover is lost, which etcd reports after 7.2 s, and the client tries again.
const LEADER_LOST: Duration = Duration::from_secs(9);

/// Reboots a host while clients read and write; no write fails, and none takes as long as this on a machine without
/// stalls.
fn reboots(w: &World, hactl: &Hactl, (by, host): (&str, &str), most: Duration) -> String {
    stands_on(w, "3");
    let before = booted(w, host);
    let (reading, writer) = (w.api().reads(OFTEN), Writer::every(OFTEN, &w.api(), &format!("w-{by}-{host}")));
    let begun = Instant::now();
    let said = in_one_line(&hactl.run(&["maintain", "reboot", host, "--yes", "--reason", "new kernel"]).ok());
    let took = begun.elapsed();
    assert!(said.contains(&format!("{host} has rebooted, and is ready and restored")), "{said}");
    assert_ne!(booted(w, host), before, "{host} has booted");
    assert_eq!(kubectl(w, &format!("get node {host} -o jsonpath={{.spec.unschedulable}}")).ok().out, "");
    let (written, refused, longest) = writer.account();
    println!(
        "        {host}: {took:.1?}; {written} writes acknowledged, none lost, {refused} failed; the longest pause: \
         {longest:.2?}"
    );
    let reads = reading.end();
    unnoticed_but_for_moves(w, &reads, 2);
    assert!(longest < most + reads.stalled, "a write took {longest:?}");
    assert!(refused == 0 || most == LEADER_LOST, "{refused} writes failed");
    w.healthy(HEAL);
    said
}

fn rebooted(w: &World) {
    let hactl = guarded(w, "healing: on");
    for host in ["cp1", "cp2", "cp3"] {
        // The lead is handed over before, so the host that reboots may be the leader's.
        move_leadership_to(w, host);
        let said = reboots(w, &hactl, ("guards", host), LATE);
        assert!(said.contains("acts on it"), "{said}");
    }
    let acted = w.on("cp2", "sudo journalctl -u hactl-node-agent --no-pager");
    assert!(acted.contains("another member leads etcd before this host reboots"), "{acted}");
    assert!(acted.contains("the host reboots for NodeMaintenance cp2"), "{acted}");
    hactl.up().ok().says("nothing to do");

    let plain = super::guard::asked(w, "");
    plain.up().ok();
    let agent = w.on("cp1", "ls /etc/systemd/system/hactl-node-agent.service 2>/dev/null || echo none");
    assert_eq!(agent.trim(), "none");
    reboots(w, &plain, ("command", "cp1"), LEADER_LOST);
    kubectl(w, "delete nmt cp1 cp2 cp3").ok();
    plain.up().ok().says("nothing to do");
    w.healthy(HEAL);
}
