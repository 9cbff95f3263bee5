//! How long a large transfer may take in total: each piece has a deadline of its own, and a peer that sends a byte
//! per deadline meets all of them.

use std::time::Duration;

/// The base duration of every transfer, and the slowest accepted throughput, bytes a second.
const AT_LEAST: Duration = Duration::from_secs(120);
const SLOWEST: u64 = 128 << 10;

/// How long so many bytes may take.
pub fn transfer_within(bytes: u64) -> Duration {
    AT_LEAST + Duration::from_secs(bytes / SLOWEST)
}
