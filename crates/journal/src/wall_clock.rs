//! Wall clock, passed as a function; nanoseconds since the Unix epoch.

use std::sync::Arc;

/// Wall clock in nanoseconds since the Unix epoch. It may step; only displayed times and the age
/// limit depend on it.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's wall clock as of its last tick, some milliseconds old: a tenth of the cost of the
/// exact one.
pub fn wall_clock() -> WallClock {
    Arc::new(|| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    })
}
