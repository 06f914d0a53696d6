//! Change of shape: the distribution of a window differs from those around the same time before,
//! even if its quantiles stand still.
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
const BASELINE_WINDOWS_MIN: usize = 12;
/// Values of a window below which its shape is not known.
const WINDOW_COUNT_MIN: u64 = 200;
/// Standard deviations above the mean distance.
const DEVIATIONS: f64 = 6.0;
/// Factor above the greatest distance of the baseline.
const GREATEST_FACTOR: f64 = 1.1;

/// Compares a window with those of the baseline. The value is the Kolmogorov–Smirnov distance: the
/// share of requests that moved.
pub(super) fn compare_shapes(
    window: &Mixture,
    baseline: &[Mixture],
    min_shift: f64,
) -> Result<CriterionOutcome, String> {
    let usable: Vec<&Mixture> =
        baseline.iter().filter(|mixture| mixture.count() >= WINDOW_COUNT_MIN).collect();
    if window.count() < WINDOW_COUNT_MIN || usable.len() < BASELINE_WINDOWS_MIN {
        return Ok(CriterionOutcome::Unknown);
    }
    let mut pooled = Mixture::default();
    for part in usable.iter().flat_map(|mixture| mixture.parts()) {
        pooled.add(part).map_err(|error| format!("cannot merge the baseline: {error}"))?;
    }
    let Some(shift) = window.kolmogorov_smirnov(&pooled) else {
        return Ok(CriterionOutcome::Unknown);
    };
    let baseline = BaselineDistances { windows: &usable, pooled: &pooled };
    let shift_limit = baseline.limit(window, Mixture::kolmogorov_smirnov).max(min_shift);
    let distance_holds = || {
        let distance = window.wasserstein(&pooled)?.estimate;
        let least = min_shift * pooled.mean()?.estimate.abs();
        Some(distance > baseline.limit(window, Mixture::wasserstein).max(least))
    };
    let unit = String::new();
    let measured = MeasuredValue { value: shift, threshold: Some(shift_limit), unit };
    match shift.estimate > shift_limit || distance_holds().unwrap_or(false) {
        true => Ok(CriterionOutcome::Holds(measured)),
        false => Ok(CriterionOutcome::Clear),
    }
}

type Distance = fn(&Mixture, &Mixture) -> Option<Bracket>;

/// Windows of the baseline, and all of them together.
struct BaselineDistances<'a> {
    windows: &'a [&'a Mixture],
    pooled: &'a Mixture,
}

impl BaselineDistances<'_> {
    /// Distance that a window does not reach by chance.
    ///
    /// If requests are independent, distances shrink with the square root of their number; if they
    /// are correlated, they do not. The greater of both limits is used.
    fn limit(&self, window: &Mixture, distance: Distance) -> f64 {
        // A window is part of what it is compared with, which shortens the distance.
        let count = self.windows.len() as f64;
        let factor = count / (count - 1.0);
        let found: Vec<(f64, f64)> = (self.windows.iter())
            .filter_map(|other| {
                let distance = distance(other, self.pooled)?.estimate * factor;
                let size = other.count() as f64 / window.count() as f64;
                Some((distance, distance * size.sqrt()))
            })
            .collect();
        let correlated: Vec<f64> = found.iter().map(|(distance, _)| *distance).collect();
        let independent: Vec<f64> = found.iter().map(|(_, distance)| *distance).collect();
        chance_limit(&correlated).max(chance_limit(&independent))
    }
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
