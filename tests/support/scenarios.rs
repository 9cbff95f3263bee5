//! Runs scenarios one after the other in one world and counts them, for suites without a harness.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// What it shows, as a sentence, and what it does.
pub type Scenario<W> = (&'static str, fn(&W));

/// Runs the scenarios whose name contains one of the words on the command line, or all of them; drops the world, and
/// exits with 1 if one failed. The last line is `SUITE: N passed, N failed`.
pub fn run<W>(suite: &str, world: W, scenarios: &[Scenario<W>]) {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|word| name.contains(word.as_str()));
    let (mut passed, mut failed) = (0, 0);
    for (name, act) in scenarios.iter().filter(|(name, _)| wanted(name)) {
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
