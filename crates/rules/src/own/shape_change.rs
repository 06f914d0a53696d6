//! Change of shape: the distribution of a window differs from those around the same time before,
//! even if its quantiles stand still; or from those that somebody saved.
//!
//! Two distances are used: Kolmogorov–Smirnov (the share of requests that moved, so a second mode)
//! and Wasserstein (by how far they moved, so a tail). Both are taken of the estimates.
//!
//! The number of requests says little about how much windows differ by chance: requests of a minute
//! are correlated. The unit is therefore the window: each of the [`BASELINE_WINDOWS`] windows is
//! compared with all of them together, and the window in question must be further away than the
//! mean of these distances by [`DEVIATIONS`] standard deviations, and than the greatest by
//! [`GREATEST_FACTOR`]. For Kolmogorov's distribution (mean 0.869, deviation 0.260) six deviations
//! are 2.43, so 1.5 in 100,000 windows; the margin covers that mean and deviation are estimated
//! from 24 windows. `crates/rules/tests/it/shape_changes.rs` counts false alarms.

use hist::{Bracket, Mixture};

use super::criterion::{CriterionOutcome, MeasuredValue};

/// Windows of the baseline, half of them before and half after the same time.
pub(super) const BASELINE_WINDOWS: u64 = 24;
/// Windows with values below which nothing is known.
pub(super) const BASELINE_WINDOWS_MIN: usize = 12;
/// Values of a window below which its shape is not known.
pub(super) const WINDOW_COUNT_MIN: u64 = 200;
/// Standard deviations above the mean distance.
const DEVIATIONS: f64 = 6.0;
/// Factor above the greatest distance of the baseline.
const GREATEST_FACTOR: f64 = 1.1;

/// Windows of a baseline: all of them together, and how far each is from them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShapeBaseline {
    pooled: Mixture,
    windows: Vec<BaselineWindow>,
}

/// A window of a baseline, and its distances from all of them together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BaselineWindow {
    count: f64,
    /// Kolmogorov–Smirnov.
    shift: Option<f64>,
    /// Wasserstein.
    distance: Option<f64>,
}

impl ShapeBaseline {
    /// Baseline of some windows; `None` if too few of them have values.
    pub(super) fn new(windows: &[Mixture]) -> Result<Option<ShapeBaseline>, String> {
        let usable: Vec<&Mixture> = windows.iter().filter(|window| has_shape(window)).collect();
        if usable.len() < BASELINE_WINDOWS_MIN {
            return Ok(None);
        }
        let mut pooled = Mixture::default();
        for part in usable.iter().flat_map(|mixture| mixture.components()) {
            pooled.add(part).map_err(|error| format!("cannot merge the baseline: {error}"))?;
        }
        // A window is part of what it is compared with, which shortens the distance.
        let count = usable.len() as f64;
        let factor = count / (count - 1.0);
        let of = |distance: Option<Bracket>| distance.map(|found| found.estimate * factor);
        let windows = usable
            .iter()
            .map(|window| BaselineWindow {
                count: window.count() as f64,
                shift: of(window.kolmogorov_smirnov(&pooled)),
                distance: of(window.wasserstein(&pooled)),
            })
            .collect();
        Ok(Some(ShapeBaseline { pooled, windows }))
    }

    /// Compares a window with the baseline. The value is the Kolmogorov–Smirnov distance: the share
    /// of requests that moved.
    pub(super) fn compare(&self, window: &Mixture, min_shift: f64) -> CriterionOutcome {
        let Some(shift) = window.kolmogorov_smirnov(&self.pooled).filter(|_| has_shape(window))
        else {
            return CriterionOutcome::Unknown;
        };
        let shift_limit = self.limit(window, |of| of.shift).max(min_shift);
        let distance_holds = || {
            let distance = window.wasserstein(&self.pooled)?.estimate;
            let least = min_shift * self.pooled.mean()?.estimate.abs();
            Some(distance > self.limit(window, |of| of.distance).max(least))
        };
        let unit = String::new();
        let measured = MeasuredValue { value: shift, threshold: Some(shift_limit), unit };
        match shift.estimate > shift_limit || distance_holds().unwrap_or(false) {
            true => CriterionOutcome::Holds(measured),
            false => CriterionOutcome::Clear,
        }
    }

    /// Distance that a window does not reach by chance.
    ///
    /// If requests are independent, distances shrink with the square root of their number; if they
    /// are correlated, they do not. The greater of both limits is used.
    fn limit(&self, window: &Mixture, distance: fn(&BaselineWindow) -> Option<f64>) -> f64 {
        let found: Vec<(f64, f64)> = (self.windows.iter())
            .filter_map(|other| {
                let distance = distance(other)?;
                let size = other.count / window.count() as f64;
                Some((distance, distance * size.sqrt()))
            })
            .collect();
        let correlated: Vec<f64> = found.iter().map(|(distance, _)| *distance).collect();
        let independent: Vec<f64> = found.iter().map(|(_, distance)| *distance).collect();
        chance_limit(&correlated).max(chance_limit(&independent))
    }
}

/// Whether a window has enough values for its shape to be known.
pub(super) fn has_shape(window: &Mixture) -> bool {
    window.count() >= WINDOW_COUNT_MIN
}

/// Distance that chance does not reach.
fn chance_limit(distances: &[f64]) -> f64 {
    let count = distances.len() as f64;
    let mean = distances.iter().sum::<f64>() / count;
    let squares: f64 = distances.iter().map(|distance| (distance - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    let greatest = distances.iter().copied().fold(0.0, f64::max);
    (mean + DEVIATIONS * deviation).max(greatest * GREATEST_FACTOR)
}
