//! Maintenances that wait: for approval, for a window, and for the next one.

use super::acting::{TAKEN_OVER, occupied, reaches, status};
use super::guard::asked;
use super::maintain::{HEAL, is_cordoned, kubectl};
use super::support::wait_for;
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// On one control-plane host and one worker.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a maintenance waits for approval and for its window, and a drain that is not complete ends with the window",
    cut: false,
    run: gated,
}];

/// The shortest window.
const OPEN: Duration = Duration::from_secs(300);
/// A guard looks at what waits this often.
const LOOKED_AT: Duration = Duration::from_secs(30);

/// A daily window that opens at a minute, of five minutes.
pub fn window(opens: OffsetDateTime) -> String {
    format!("{} {} * * * 5m", opens.minute(), opens.hour())
}

fn gated(w: &World) {
    let hactl = asked(w, "healing: watch");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    occupied(w);

    // It opens at the begin of a minute, in 240 to 300 s.
    let opens = OffsetDateTime::now_utc() + Duration::from_secs(300);
    let opens = opens.replace_second(0).expect("a second of a minute");
    let begin = ["maintain", "start", "w1", "--yes", "--approval", "--window", &window(opens)];
    let said = in_one_line(&hactl.run(&[&begin[..], &["--dry-run"]].concat()).ok());
    assert!(said.contains("it begins later: nobody has approved it yet"), "{said}");
    hactl.run(&begin).ok().says("nobody has approved it yet: hactl maintain approve w1");
    reaches(w, "w1", "Waiting", TAKEN_OVER);
    assert!(!is_cordoned(w));
    hactl.run(&["maintain", "approve", "w1"]).ok().says("the maintenance of w1 is approved");
    wait_for("the window is named", LOOKED_AT * 2, || status(w, "w1", "nextWindow").ends_with(":00Z"));
    let said = in_one_line(&hactl.run(&["maintain", "status", "w1"]).ok());
    assert!(said.contains("its next window opens at") && !is_cordoned(w), "{said}");
    let patch = ["patch", "nmt", "w1", "--type", "merge", "-p", "{\"spec\":{\"windows\":[]}}"];
    hactl.kubectl(&patch).exits(1).says("what was approved cannot be changed");
    wait_for("the drain begins", Duration::from_secs(420), || is_cordoned(w));
    let late = OffsetDateTime::now_utc() - opens;
    println!("        the drain began {late:.0} after the window had opened");
    assert!(late >= Duration::ZERO && late < LOOKED_AT * 2, "{late}");

    // The budget refuses, and the window ends.
    reaches(w, "w1", "Blocked", TAKEN_OVER);
    let begun = Instant::now();
    wait_for("the worker is as before", OPEN + LOOKED_AT, || !is_cordoned(w));
    println!("        the worker was restored {:.0} after the window had opened", OffsetDateTime::now_utc() - opens);
    assert!(OffsetDateTime::now_utc() - opens >= OPEN, "after {:?}", begun.elapsed());
    reaches(w, "w1", "Waiting", TAKEN_OVER);
    wait_for("tomorrow's window is named", LOOKED_AT * 2, || !status(w, "w1", "nextWindow").is_empty());
    let said = in_one_line(&hactl.run(&["maintain", "status", "w1"]).ok());
    assert!(said.contains("its next window opens at"), "{said}");
    assert!(kubectl(w, "describe node w1").ok().out.contains("DrainHeldBack"));
    hactl.run(&["maintain", "cancel", "w1"]).ok();

    // A rollout waits as well, and once it is approved its Node has a maintenance.
    let reboot = ["maintain", "reboot", "--selector", "kubernetes.io/hostname=w1", "--name", "kernel", "--yes"];
    hactl.run(&[&reboot[..], &["--approval"]].concat()).ok().says("hactl maintain approve kernel");
    wait_for("the rollout waits", TAKEN_OVER, || {
        kubectl(w, "get nmr kernel -o jsonpath={.status.state}").out == "Waiting"
    });
    assert!(kubectl(w, "get nmt -o name").ok().out.is_empty() && !is_cordoned(w));
    hactl.run(&["maintain", "approve", "kernel"]).ok().says("the rollout kernel is approved");
    wait_for("its Node begins", TAKEN_OVER, || is_cordoned(w));
    hactl.run(&["maintain", "cancel", "kernel"]).ok();
    assert!(!is_cordoned(w));
    kubectl(w, "delete namespace rules").ok();
    asked(w, "").up().ok();
    w.healthy(HEAL);
}
