//! Hosts that reboot for a maintenance and are not back in time: guards leave them alone, unless its author lets them
//! repair such a host.

use super::acting::reaches;
use super::drains::stands_on;
use super::maintain::{HEAL, apply, kubectl, object};
use super::power::{ACTS, BOOT, Bmcs, UNREACHABLE, back, explained, powered};
use super::support::{Hactl, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

/// On three control-plane hosts whose power guards may switch.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a host that does not come back from its reboot stays off and cordoned, and its maintenance ends when it is on",
        cut: false,
        run: held,
    },
    Scenario {
        name: "a host that does not come back from its reboot is switched on if its maintenance lets guards repair it",
        cut: false,
        run: healed,
    },
];

/// The shortest time after which a host is overdue, and how late that may be known.
const TIMEOUT: Duration = Duration::from_secs(60);
const SLACK: Duration = Duration::from_secs(30);
/// Until a drained host was asked to reboot.
const ASKED: Duration = Duration::from_secs(120);

fn is_cordoned(w: &World) -> bool {
    kubectl(w, "get node cp3 -o jsonpath={.spec.unschedulable}").ok().out == "true"
}

/// cp3 loses its power while it reboots for a maintenance, which is overdue by then.
fn lost(w: &World, name: &str, reboot: &str) -> (Hactl, Bmcs) {
    let hactl = powered(w);
    let bmcs = Bmcs::start(w);
    bmcs.install(w);
    stands_on(w, "3");
    let spec = |stage: &str| format!("{{nodeName: cp3, stage: {stage}, action: Reboot, reboot: {reboot}}}");
    apply(w, &object(name, &spec("Cordon"))).ok();
    // As in a drain that takes its time.
    wait_for("the guard of the host knows that it is held", ASKED, || {
        w.on("cp3", "curl -s http://127.0.0.1:10272/metrics").contains("hactl_guard_paused 1")
    });
    apply(w, &object(name, &spec("Drain"))).ok();
    reaches(w, name, "Rebooting", ASKED);
    w.lab.kill("cp3").expect("the power can be cut");
    let since = Instant::now();
    reaches(w, name, "Overdue", TIMEOUT + SLACK);
    println!("        overdue {:.1?} after it lost its power", since.elapsed());
    assert!(is_cordoned(w));
    let said = in_one_line(&hactl.run(&["maintain", "status"]).exits(4));
    assert!(said.contains("cp3 is not back 1 min after it was asked to reboot"), "{said}");
    (hactl, bmcs)
}

/// The host is back, and in service.
fn over(w: &World, hactl: &Hactl, name: &str) {
    reaches(w, name, "Completed", HEAL);
    assert!(!is_cordoned(w));
    kubectl(w, &format!("delete nmt {name}")).ok();
    back(w, hactl);
    stands_on(w, "3");
    hactl.up().ok().says("nothing to do");
}

fn held(w: &World) {
    let (hactl, bmcs) = lost(w, "held", "{timeout: 1m}");
    wait_for("a guard says why it does nothing", UNREACHABLE + ACTS + SLACK, || {
        explained(&hactl, "cp3").contains("the host is held")
    });
    assert!(is_cordoned(w));
    assert!(!bmcs.calls.of("cp3").iter().any(|call| call == "on" || call == "off"), "{:?}", bmcs.calls.of("cp3"));
    w.lab.start("cp3", BOOT).expect("the host boots");
    over(w, &hactl, "held");
}

fn healed(w: &World) {
    let (hactl, bmcs) = lost(w, "healed", "{timeout: 1m, onTimeout: Heal}");
    let since = Instant::now();
    wait_for("its power is switched on", UNREACHABLE + ACTS + SLACK, || {
        bmcs.calls.of("cp3").contains(&"on".to_owned())
    });
    println!("        switched on {:.1?} after it was overdue", since.elapsed());
    over(w, &hactl, "healed");
}
