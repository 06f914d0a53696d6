//! Thresholds beyond all values: often numbers without their unit, such as 0.25 for values in ns.

use hist::Mixture;

use crate::histogram::GoNumber;

/// Ratio of a threshold with a unit and the values beyond which it is more likely a mistake: that
/// all values are slower than a threshold is what its user wants to know.
const FAR: f64 = 1000.0;

/// Maximum number of bounds that a warning names.
const BOUNDS_NAMED: usize = 8;

/// Warning about explicit bounds that not all buckets of merged distributions have, in `unit`.
pub fn differing_bounds_warning(bounds: &[f64], unit: Option<&str>) -> Option<String> {
    let named = bounds.iter().take(BOUNDS_NAMED).map(|bound| value_text(*bound, unit));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match bounds.len().saturating_sub(BOUNDS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!bounds.is_empty()).then(|| {
        format!(
            "the bounds of buckets have changed or differ between series: {named}{more} are not \
             bounds of all; counts and quantiles near these are between bounds"
        )
    })
}

/// Range of a threshold, and of all values that it is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThresholdRange {
    thresholds: Option<(f64, f64)>,
    values: Option<(f64, f64)>,
    /// Whether the threshold was written with a unit.
    has_unit: bool,
}

impl ThresholdRange {
    /// Range of a threshold that was written with a unit, or as a bare number.
    pub(crate) fn new(has_unit: bool) -> ThresholdRange {
        ThresholdRange { has_unit, ..ThresholdRange::default() }
    }

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
            threshold if is_below(threshold, min, !is_bare) => {
                ("below all values, which begin", min)
            }
            threshold if threshold > max && threshold.is_finite() => {
                ("above all values, which end", max)
            }
            _ => return None,
        };
        let end = value_text(end, unit);
        Some(match unit.filter(|_| is_bare) {
            None => format!("threshold {written} is {place} at {end}"),
            Some(unit) => format!(
                "threshold {written} (in {unit}) is {place} at {end}; write the threshold with \
                 its unit, such as 250ms"
            ),
        })
    }

    /// Warning of a threshold of an expression, whose values are in `unit`.
    pub(crate) fn warning(&self, unit: Option<&str>) -> Option<String> {
        let ((lowest, highest), (min, max)) = self.thresholds.zip(self.values)?;
        let (threshold, place, end) = if is_below(highest, min, self.has_unit) {
            (highest, "below all values, which begin", min)
        } else if lowest > max && max > 0.0 && lowest / max >= FAR {
            // A threshold of an objective is above all values as long as nothing is wrong.
            (lowest, "far above all values, which end", max)
        } else {
            return None;
        };
        let end = value_text(end, unit);
        Some(match unit.filter(|_| !self.has_unit) {
            None => format!("threshold {} is {place} at {end}", value_text(threshold, unit)),
            Some(unit) => format!(
                "threshold {} (in {unit}) is {place} at {end}; a duration such as 250ms is \
                 converted to this unit",
                GoNumber(threshold)
            ),
        })
    }
}

/// Whether a threshold is below all values, maybe because its unit is missing or wrong.
fn is_below(threshold: f64, min: f64, has_unit: bool) -> bool {
    threshold > 0.0 && threshold < min && (!has_unit || min / threshold >= FAR)
}

/// `1.73 s`: a time in the unit in which it is at least 1.
fn value_text(value: f64, unit: Option<&str>) -> String {
    let Some(unit) = unit else { return GoNumber(value).to_string() };
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let Some((_, length)) = units.iter().find(|(name, _)| *name == unit) else {
        return format!("{} {unit}", GoNumber(value));
    };
    let ns = value * length;
    let largest = units.iter().rev().find(|(_, length)| ns.abs() >= *length);
    let (name, length) = largest.unwrap_or(&units[0]);
    format!("{} {name}", GoNumber((ns / length * FAR).round() / FAR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(threshold: f64, values: (f64, f64), expected: &str) {
        let mut range = ThresholdRange::default();
        range.add(threshold, values);
        assert_eq!(range.warning(None).unwrap_or_default(), expected);
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
        let below = "threshold 250 (in ns) is below all values, which begin at 12.5 ms; write the \
                     threshold with its unit, such as 250ms";
        check(("250", 250.0), Some("ns"), true, below);
        let above = "threshold 1h is above all values, which end at 2.1 s";
        check(("1h", 3.6e12), Some("ns"), false, above);
        let above = "threshold 3e9 is above all values, which end at 2.1e+09";
        check(("3e9", 3e9), None, true, above);
        let far = "threshold 12us is below all values, which begin at 12.5 ms";
        check(("12us", 12e3), Some("ns"), false, far);
        for within in [0.0, 12.5e6, 2.5e8, 2.1e9, f64::INFINITY, f64::NEG_INFINITY] {
            check(("", within), Some("ns"), true, "");
        }
    }

    /// The first example of the README, one request of 1.73 s and the threshold 1.5 s, had a
    /// warning although nothing was wrong.
    #[test]
    fn a_threshold_with_a_unit_below_a_slow_request_is_no_mistake() {
        let found =
            ThresholdRange::threshold_warning(("1.5s", 1.5e9), (1.73e9, 1.73e9), Some("ns"), false);
        assert_eq!(found, None);
        let warning = |has_unit, threshold| {
            let mut range = ThresholdRange::new(has_unit);
            range.add(threshold, (1.73e9, 1.73e9));
            range.warning(Some("ns")).unwrap_or_default()
        };
        assert_eq!(warning(true, 1.5e9), "");
        let bare = "threshold 1.5 (in ns) is below all values, which begin at 1.73 s; a duration \
                    such as 250ms is converted to this unit";
        assert_eq!(warning(false, 1.5), bare);
        let above = "threshold 3600 s is far above all values, which end at 1.73 s";
        assert_eq!(warning(true, 3.6e12), above);
    }
}
