//! A statistic of the coordinated-omission test, and the limits that a calibration sets.

/// Lowest rate tested. Requests per second.
pub(crate) const CALIBRATION_RATE_MIN: f64 = 10_000.0;
/// Share of the calibrated rate that a run may schedule.
pub(crate) const SAFE_UTILISATION: f64 = 0.8;

/// A measured statistic and its expected value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalibrationCheck {
    /// `mean`, `p50`, `p99` or `max`.
    pub statistic: &'static str,
    /// Measured value. Nanoseconds.
    pub measured_ns: f64,
    /// Expected value. Nanoseconds.
    pub expected_ns: f64,
    /// Allowed difference. Nanoseconds.
    pub tolerance_ns: f64,
}

impl CalibrationCheck {
    /// Whether measured and expected value differ by at most the tolerance.
    pub fn is_within_tolerance(&self) -> bool {
        (self.measured_ns - self.expected_ns).abs() <= self.tolerance_ns
    }
}
