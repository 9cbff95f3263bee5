//! Runs scenarios one after the other in one world and counts them, for suites without a harness.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// One scenario: what it shows, as a sentence, whether it belongs to the cut that `make test` runs, and what it does.
pub type Scenario<W> = (&'static str, bool, fn(&W));

/// Runs the scenarios of the cut if the command line says `cut`, those whose name contains one of its other words, or
/// all of them; drops the world, and exits with 1 if one failed. The last line is `SUITE: N passed, N failed`.
pub fn run<W>(suite: &str, world: W, scenarios: &[Scenario<W>]) {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str, cut: bool| match chosen.first().map(String::as_str) {
        None | Some("all" | "first") => true,
        Some("cut") => cut,
        Some(_) => chosen.iter().any(|word| name.contains(word.as_str())),
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, _, act) in scenarios.iter().filter(|(name, cut, _)| wanted(name, *cut)) {
        let begun = Instant::now();
        let well = catch_unwind(AssertUnwindSafe(|| act(&world))).is_ok();
        *(if well { &mut passed } else { &mut failed }) += 1;
        let word = if well { "ok     " } else { "FAILED " };
        println!("{word} {suite}: {name} ({:.1} s)", begun.elapsed().as_secs_f32());
    }
    drop(world);
    println!("{suite}: {passed} passed, {failed} failed");
    if failed > 0 {
        std::process::exit(1);
    }
}
