//! Backoff of maintenance work that panicked: a minute, then twice as long each time.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::time::Duration;

/// Backoff of maintenance work that panicked.
#[derive(Clone, Copy)]
pub(crate) struct WorkBackoff {
    /// Start of the backoff, in nanoseconds since the Unix epoch.
    pub(crate) since: i64,
    pub(crate) wait: Duration,
    pub(crate) panics: u32,
}

impl WorkBackoff {
    /// Whether the backoff has elapsed. Setting the clock back ends it.
    pub(crate) fn has_elapsed(self, now: i64) -> bool {
        let wait = i64::try_from(self.wait.as_nanos()).unwrap_or(i64::MAX);
        !(0..wait).contains(&now.saturating_sub(self.since))
    }
}
