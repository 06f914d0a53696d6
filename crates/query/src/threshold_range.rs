//! Thresholds beyond all values: often numbers without their unit, such as 0.25 for values in ns.

use hist::Mixture;

use crate::histogram::GoNumber;

/// Range of a threshold, and of all values that it is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThresholdRange {
    thresholds: Option<(f64, f64)>,
    values: Option<(f64, f64)>,
}

impl ThresholdRange {
    /// Range of the values of a distribution; `None` if it is empty.
    pub fn values_of(mixture: &Mixture) -> Option<(f64, f64)> {
        Some((mixture.min()?.lower, mixture.max()?.upper))
    }

    /// Adds a threshold and the range of the values that it is compared with.
    pub(crate) fn add(&mut self, threshold: f64, (min, max): (f64, f64)) {
        if !threshold.is_finite() {
            return;
        }
        let widen = |range: Option<(f64, f64)>, low: f64, high: f64| match range {
            Some((least, greatest)) => Some((least.min(low), greatest.max(high))),
            None => Some((low, high)),
        };
        self.thresholds = widen(self.thresholds, threshold, threshold);
        self.values = widen(self.values, min, max);
    }

    /// Warning of a threshold below or above all values, which are in `unit`. `written` is the
    /// threshold as the user wrote it, `is_bare` whether without a unit.
    pub fn threshold_warning(
        (written, threshold): (&str, f64),
        (min, max): (f64, f64),
        unit: Option<&str>,
        is_bare: bool,
    ) -> Option<String> {
        let (place, end) = match threshold {
            threshold if threshold < min && threshold > 0.0 => {
                ("below all values, which begin", min)
            }
            threshold if threshold > max && threshold.is_finite() => {
                ("above all values, which end", max)
            }
            _ => return None,
        };
        let text = format!("threshold {written} is {place} at {}", GoNumber(end));
        Some(match unit {
            None => text,
            Some(unit) if is_bare => {
                format!("{text} {unit}; write the threshold with its unit, such as 250ms")
            }
            Some(unit) => format!("{text} {unit}"),
        })
    }

    /// Text without the unit of the values, which follows it.
    pub(crate) fn warning(&self) -> Option<String> {
        let ((lowest, highest), (min, max)) = self.thresholds.zip(self.values)?;
        if highest < min && highest > 0.0 {
            return Some(format!(
                "threshold {} is below all values, which begin at {}",
                GoNumber(highest),
                GoNumber(min)
            ));
        }
        // A threshold of an objective is above all values as long as nothing is wrong.
        (lowest > max && max > 0.0 && lowest / max >= 1000.0).then(|| {
            format!(
                "threshold {} is far above all values, which end at {}",
                GoNumber(lowest),
                GoNumber(max)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(threshold: f64, values: (f64, f64), expected: &str) {
        let mut range = ThresholdRange::default();
        range.add(threshold, values);
        assert_eq!(range.warning().unwrap_or_default(), expected);
    }

    #[test]
    fn threshold_beyond_all_values_has_a_warning() {
        check(0.25, (1.0, 5.0), "threshold 0.25 is below all values, which begin at 1");
        check(5000.0, (1.0, 5.0), "threshold 5000 is far above all values, which end at 5");
        check(4999.0, (1.0, 5.0), "");
        check(0.0, (1.0, 5.0), "");
        check(f64::INFINITY, (1.0, 5.0), "");
        check(2.0, (1.0, 5.0), "");
    }

    /// `above=250` of values sent in ms counted all values above 250 ns, without a word; and
    /// `--above 1h` of values up to 2 s counted none.
    #[test]
    fn threshold_beyond_all_values_names_their_unit() {
        let check = |threshold, unit, is_bare, expected: &str| {
            let found =
                ThresholdRange::threshold_warning(threshold, (12.5e6, 2.1e9), unit, is_bare);
            assert_eq!(found.unwrap_or_default(), expected);
        };
        let below = "threshold 250 is below all values, which begin at 1.25e+07 ns; write the \
                     threshold with its unit, such as 250ms";
        check(("250", 250.0), Some("ns"), true, below);
        let above = "threshold 1h is above all values, which end at 2.1e+09 ns";
        check(("1h", 3.6e12), Some("ns"), false, above);
        let above = "threshold 3e9 is above all values, which end at 2.1e+09";
        check(("3e9", 3e9), None, true, above);
        for within in [0.0, 12.5e6, 2.5e8, 2.1e9, f64::INFINITY, f64::NEG_INFINITY] {
            check(("", within), Some("ns"), true, "");
        }
    }
}
