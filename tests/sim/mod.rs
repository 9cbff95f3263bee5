//! A deterministic world of hosts and etcd members, for tests only: plan steps have effects here as they would on real
//! hosts, facts are told as `observe/` would tell them, and laws are judged after every single effect.
//!
//! It lives beside the tests, not under `src/`: integration tests need it and the product must not carry it.

#![allow(dead_code, unused_imports, reason = "each test binary that includes this world uses its own part of it")]

pub mod effect;
pub mod holds;
pub mod law;
pub mod make;
pub mod member;
pub mod observe;
pub mod run;
pub mod world;

pub use law::Broken;
pub use make::Release;
pub use run::{Chaos, Ended, Script};
pub use world::World;
