//! The time of day, which comes in as a function; nanoseconds since the Unix epoch.

use std::sync::Arc;

/// Tells the time in nanoseconds since the Unix epoch. It may step; nothing but the times shown and
/// the age limit depends on it.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's wall clock as of its last tick, some milliseconds old: a tenth of the cost of the
/// exact one.
pub fn wall_clock() -> WallClock {
    Arc::new(|| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    })
}
