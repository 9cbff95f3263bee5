//! A rollout over zones in windows: what a window leaves is done in the next one.

use super::acting::TAKEN_OVER;
use super::gated::window;
use super::guard::asked;
use super::maintain::{HEAL, kubectl};
use super::reboot::booted;
use super::refusals::{budget, created, deploy};
use super::rolled::watched;
use super::support::wait_for;
use super::{Scenario, World, in_one_line};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use time::OffsetDateTime;

/// On three control-plane hosts and three workers.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a rollout goes zone by zone, a drain that its window ends is undone, and the next window goes on",
    cut: false,
    run: windows,
}];

const ZONES: [(&str, &str); 3] = [("w1", "a"), ("w2", "b"), ("w3", "a")];
/// The shortest window, and from its begin to that of the next one.
const OPEN: Duration = Duration::from_secs(300);
const NEXT: Duration = Duration::from_secs(480);
/// A guard looks at what waits this often, and a host takes some time to boot.
const LATE: Duration = Duration::from_secs(120);

fn until(at: OffsetDateTime) -> Duration {
    (at - OffsetDateTime::now_utc()).try_into().unwrap_or_default()
}

fn windows(w: &World) {
    let hactl = asked(w, "healing: watch");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
    for (host, zone) in ZONES {
        kubectl(w, &format!("label node {host} topology.kubernetes.io/zone={zone} --overwrite")).ok();
    }
    // A pod that cannot leave the second Node of the first zone.
    created(w, "rules");
    deploy(w, ("rules", "web"), json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "w3"}}}), json!({}));
    budget(w, "web", "web");

    let before = ZONES.map(|(host, _)| booted(w, host));
    let has_booted = |at: usize| booted(w, ZONES[at].0) != before[at];
    let state = || kubectl(w, "get nmr zoned -o jsonpath={.status.state}").out;
    let is_cordoned =
        |host: &str| kubectl(w, &format!("get node {host} -o jsonpath={{.spec.unschedulable}}")).ok().out == "true";
    let opens = (OffsetDateTime::now_utc() + Duration::from_secs(150)).truncate_to_minute();
    let stop = Arc::new(AtomicBool::new(false));
    let cordoned = watched(&hactl, &stop);
    let begin = ["maintain", "reboot", "w1", "w2", "w3", "--yes", "--no-wait", "--name", "zoned", "--soak", "5s"];
    let both = ["--window", &window(opens), "--window", &window(opens + NEXT)];
    hactl.run(&[&begin[..], &both[..]].concat()).ok();
    wait_for("it waits for its window", TAKEN_OVER, || state() == "Waiting");
    assert!(OffsetDateTime::now_utc() < opens && ZONES.iter().all(|(host, _)| !is_cordoned(host)));

    wait_for("the first Node has rebooted", until(opens) + LATE, || has_booted(0));
    wait_for("the drain of the second one begins", LATE, || is_cordoned("w3"));
    println!("        w3 began {:.0} after the window had opened", OffsetDateTime::now_utc() - opens);
    wait_for("its window ends, and it is as before", until(opens + OPEN) + LATE, || !is_cordoned("w3"));
    let ended = OffsetDateTime::now_utc() - opens;
    println!("        w3 was restored {ended:.0} after the window had opened");
    assert!(ended >= OPEN, "{ended}");
    assert!(!has_booted(1) && !has_booted(2));
    let said = in_one_line(&hactl.run(&["maintain", "status", "zoned"]).ok());
    assert!(said.contains("zoned-w3") && said.contains("its next window opens at"), "{said}");
    kubectl(w, "-n rules delete pdb web").ok();

    wait_for("the next window opens", until(opens + NEXT) + LATE, || is_cordoned("w3"));
    assert!(OffsetDateTime::now_utc() >= opens + NEXT);
    wait_for("the rollout is complete", LATE * 2, || state() == "Completed");
    println!("        it was complete {:.0} after the first window had opened", OffsetDateTime::now_utc() - opens);
    stop.store(true, Ordering::Relaxed);
    let seen = cordoned.join().expect("it ends");
    assert!((0..ZONES.len()).all(has_booted));
    assert!(seen.iter().all(|now| now.len() <= 1), "{seen:?}");
    let first = |host: &str| seen.iter().position(|now| now.contains(host)).expect("it was cordoned");
    let last = |host: &str| seen.iter().rposition(|now| now.contains(host)).expect("it was cordoned");
    assert!(last("w1") < first("w3") && last("w3") < first("w2"), "{seen:?}");

    kubectl(w, "delete nmr zoned").ok();
    kubectl(w, "delete namespace rules").ok();
    for (host, _) in ZONES {
        kubectl(w, &format!("label node {host} topology.kubernetes.io/zone-")).ok();
    }
    asked(w, "").up().ok();
    w.healthy(HEAL);
}
