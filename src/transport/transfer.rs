//! How long what is large may take on its way as a whole: each piece has a deadline of its own, and whoever sends a byte for each meets all of those.

use std::time::Duration;

/// What every transfer gets, and the slowest pace that is waited for, bytes a second.
const AT_LEAST: Duration = Duration::from_secs(120);
const SLOWEST: u64 = 128 << 10;

/// How long so many bytes may take.
pub fn transfer_within(bytes: u64) -> Duration {
    AT_LEAST + Duration::from_secs(bytes / SLOWEST)
}
