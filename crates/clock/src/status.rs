//! Clock status for `topdeck doctor` and self-monitoring.

use hist::Histogram;

/// Current time source: counter or system clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockMode {
    /// Nothing was read yet, or the counter's rate is not known yet: from the system.
    #[default]
    Starting,
    /// From the processor's counter.
    Counter,
    /// From the system, because the counter cannot be trusted.
    System,
}

impl ClockMode {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            ClockMode::Starting => "starting",
            ClockMode::Counter => "counter",
            ClockMode::System => "system",
        }
    }
}

/// Clock status for diagnostics.
#[derive(Clone, Debug)]
pub struct ClockStatus {
    /// Where readings come from.
    pub mode: ClockMode,
    /// Why, if it is not the counter.
    pub reason: Option<String>,
    /// Ticks of the counter in a second, as measured; 0 if that is not known.
    pub ticks_per_second: f64,
    /// How far the rate may be off, as a share of it.
    pub rate_error: f64,
    /// Comparisons of counter and system that were taken.
    pub comparisons: u64,
    /// And those that took too long, because something else ran meanwhile.
    pub rejected_comparisons: u64,
    /// How often a line was off by more than it said: the counter or the system's clock jumped.
    pub discontinuities: u64,
    /// Steps of the time of day that were seen.
    pub steps: u64,
    /// By how many nanoseconds readings were off when they were compared, whichever the sign.
    pub residuals: Histogram,
    /// Whether somebody steers the system's clocks.
    pub is_disciplined: bool,
}
