//! Logarithmic and percentile axes with ticks.

/// Logarithmic axis over a range of positive values.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The low end.
    pub low: f64,
    /// The high end.
    pub high: f64,
}

/// Minimum ratio of the ends: a single value is drawn in the middle of such a range.
const RATIO_MIN: f64 = 2.0;
/// The axis extends beyond the values by this factor, so that no point touches an end.
const MARGIN: f64 = 1.02;

/// Whether a bucket has no smallest value to draw: it begins at zero, or at the smallest double
/// above zero, as the explicit bucket `(0, 5]` does.
pub(crate) fn begins_at_zero(lower: f64, upper: f64) -> bool {
    lower <= 0.0 || upper.is_finite() && lower <= upper * 1e-9
}

impl Axis {
    /// Axis over `low..=high`, both positive and finite, widened to the minimum ratio.
    pub fn covering(low: f64, high: f64) -> Axis {
        // Keeps squares and roots of extreme values finite.
        let (low, high) = (low.clamp(1e-300, 1e300), high.clamp(1e-300, 1e300));
        let widen = (RATIO_MIN / (high / low)).sqrt().max(MARGIN);
        Axis { low: low / widen, high: high * widen }
    }

    /// Position of a value, clamped: 0 at the low end, 1 at the high end.
    pub fn position(&self, value: f64) -> f64 {
        if value <= self.low {
            return 0.0;
        }
        ((value / self.low).ln() / (self.high / self.low).ln()).min(1.0)
    }

    /// Tick values, ascending: at most `most` round values, powers of ten if there are enough of
    /// them.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let on_axis = |value: &f64| *value >= self.low && *value <= self.high;
        let steps: [&[f64]; 3] =
            [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], &[1.0, 2.0, 5.0], &[1.0]];
        if decades < 0.8 {
            return self.even_ticks(most);
        }
        for steps in steps {
            let marks: Vec<f64> = (first..=last)
                .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
                .filter(on_axis)
                .collect();
            if marks.len() <= most {
                return marks;
            }
        }
        let stride = (decades / most as f64).ceil() as i32;
        (first..=last)
            .filter(|power| power % stride == 0)
            .map(|power| 10f64.powi(power))
            .filter(on_axis)
            .collect()
    }

    /// Multiples of a round step, for an axis too short for powers of ten.
    fn even_ticks(&self, most: usize) -> Vec<f64> {
        linear_ticks(self.low, self.high, most)
    }
}

/// Smallest of 1, 2, 5 times a power of ten that is not below `rough`.
pub(crate) fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|&step| step >= rough).unwrap_or(10.0 * power)
}

/// Multiples of a round step from `low` to `high`, ascending: at most `most` + 1.
pub(crate) fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let step = round_step((high - low) / most as f64);
    let first = (low / step).ceil();
    (0..=most)
        .map(|k| {
            // Computed from integers: repeated addition would give 0.30000000000000004.
            let n = first + k as f64;
            if step >= 1.0 { n * step } else { n / (1.0 / step).round() }
        })
        .take_while(|&value| value <= high)
        .collect()
}

/// Axis of nines of the percentile spectrum: 0 %, 90 %, 99 %, 99.9 % … at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct PercentileAxis {
    /// Number of nines at the right end: one value in 10^nines.
    pub nines: f64,
}

impl PercentileAxis {
    /// Axis for `n` values: the slowest one is at the right end.
    pub fn for_count(n: u64) -> PercentileAxis {
        PercentileAxis { nines: (n as f64).log10().max(1.0) }
    }

    /// Quantile at a position from 0 to 1.
    pub fn quantile(&self, position: f64) -> f64 {
        if position >= 1.0 { 1.0 } else { 1.0 - 10f64.powf(-position * self.nines) }
    }

    /// Position and label of each tick except the right end.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        (0..=self.nines.floor() as usize)
            .map(|nines| (nines as f64 / self.nines, percentile_name(nines)))
            .filter(|&(place, _)| place < 1.0)
            .collect()
    }
}

fn percentile_name(nines: usize) -> String {
    match nines {
        0 => "0 %".into(),
        1 => "90 %".into(),
        2 => "99 %".into(),
        more => format!("99.{} %", "9".repeat(more - 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(low: f64, high: f64, most: usize, expected: &[f64]) {
        assert_eq!(Axis { low, high }.ticks(most), expected);
    }

    #[test]
    fn ticks_are_round() {
        check(0.5, 2e6, 8, &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        check(0.5, 2e6, 4, &[1.0, 100.0, 1e4, 1e6]);
        check(0.9, 120.0, 8, &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        check(98.0, 104.0, 6, &[98.0, 99.0, 100.0, 101.0, 102.0, 103.0, 104.0]);
        check(0.25, 0.35, 5, &[0.26, 0.28, 0.3, 0.32, 0.34]);
    }

    #[test]
    fn single_value_has_a_margin_on_both_sides() {
        let axis = Axis::covering(5.0, 5.0);
        assert!((axis.position(5.0) - 0.5).abs() < 1e-9);
        let extremes = Axis::covering(1e-320, f64::MAX);
        assert!(extremes.low > 0.0 && extremes.high.is_finite());
        assert!(extremes.ticks(8).len() <= 9);
    }

    #[test]
    fn percentile_axis_ticks() {
        let nines = PercentileAxis::for_count(10_000);
        assert_eq!(nines.quantile(0.25), 0.9);
        assert_eq!(nines.quantile(1.0), 1.0);
        let names: Vec<String> = nines.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(names, ["0 %", "90 %", "99 %", "99.9 %"]);
        assert_eq!(PercentileAxis::for_count(1).ticks().len(), 1);
    }
}
