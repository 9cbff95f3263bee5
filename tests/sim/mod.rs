//! A deterministic world of hosts and etcd members, for tests only: plan steps have effects here as they would on real
//! hosts, facts are reported as `observe/` would report them, and laws are judged after every single effect.
//!
//! It lives beside the tests, not under `src/`: integration tests need it and the product must not carry it.

#![allow(dead_code, unused_imports, reason = "each test binary that includes this world uses its own part of it")]

pub mod agent;
pub mod api;
pub mod dice;
pub mod effect;
pub mod holds;
pub mod hosting;
pub mod law;
pub mod live;
pub mod make;
pub mod member;
pub mod observe;
pub mod run;
pub mod world;

pub use dice::Dice;
pub use law::Broken;
pub use make::Release;
pub use run::{Chaos, Ended, Script};
pub use world::World;

/// The same cases on every run: half of them, or ten times as many with `HACTL_ALL_CASES`. `PROPTEST_CASES` asks for
/// another number.
pub fn config(cases: u32, max_shrink_iters: u32) -> proptest::prelude::ProptestConfig {
    use proptest::test_runner::{RngAlgorithm, RngSeed};
    let cases = if std::env::var_os("HACTL_ALL_CASES").is_some() { cases * 10 } else { cases.div_ceil(2) };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
    proptest::prelude::ProptestConfig {
        cases,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(0x0068_6163_746c),
        failure_persistence: None,
        max_shrink_iters,
        ..Default::default()
    }
}
