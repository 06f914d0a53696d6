//! Clock status for `topdeck doctor` and self-monitoring.

use hist::Histogram;

/// Current time source: counter or system clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockMode {
    /// Not yet calibrated: the system clock is used.
    #[default]
    Starting,
    /// The CPU counter is used.
    Counter,
    /// The system clock is used, because the counter is not trusted.
    System,
}

impl ClockMode {
    /// Name in one word.
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
    /// Current time source.
    pub mode: ClockMode,
    /// Why the counter is not used, if so.
    pub reason: Option<String>,
    /// Measured ticks per second; 0 if unknown.
    pub ticks_per_second: f64,
    /// Relative error of that rate.
    pub rate_error: f64,
    /// Successful comparisons of counter and system clock.
    pub comparisons: u64,
    /// Comparisons rejected because the thread was preempted.
    pub rejected_comparisons: u64,
    /// Comparisons at which the error exceeded its bound: counter or system clock jumped.
    pub discontinuities: u64,
    /// Detected steps of the wall clock.
    pub steps: u64,
    /// Absolute errors at comparisons, in nanoseconds.
    pub residuals: Histogram,
    /// Whether NTP or PTP disciplines the system clock.
    pub is_disciplined: bool,
}
