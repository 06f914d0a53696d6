//! Threshold of a row, and where it comes from.
//!
//! In this order: the user's, because it is the most specific; that of an SLO for the row; one
//! that the recording program declared; that of an SLO for some of the row's series; the
//! 99th percentile of the last seven days (UTC). With values on fewer than three of these days an
//! incident of some hours would define it: then the median of the 99th percentiles of the hours
//! before today, else of those of today that have ended, else the 99th percentile of the values
//! before the last minutes, which are not yet counted in it.

use std::ops::Range;

use hist::{Bracket, LimitInclusion, Mixture};

use super::excess::EXPECTED_SHARE;

/// Least number of values from which a 99th percentile is learned.
pub const VALUES_MIN: u64 = 500;

/// Ratio of the bounds of a bucket from which on it is wide: values in it differ noticeably.
const WIDE_RATIO: f64 = 1.5;

/// Source of a threshold.
#[derive(Clone, Debug, PartialEq)]
pub enum ThresholdOrigin {
    /// Set by the user.
    User,
    /// That of a service level objective with this name.
    Slo(String),
    /// That of a service level objective with this name, for some of the row's series.
    SloOfPart(String),
    /// Declared by the program that records the values, which counts it exactly.
    Declared,
    /// 99th percentile of a time range, in nanoseconds since the Unix epoch.
    Learned(Range<i64>),
    /// Median of the 99th percentiles of the hours of a time range.
    LearnedByHour(Range<i64>),
}

/// Threshold of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowThreshold {
    /// Value, in the unit of the row.
    pub value: f64,
    /// Where it comes from.
    pub origin: ThresholdOrigin,
    /// Share of the values that is expected above it: what the objective of an SLO allows.
    pub expected_share: f64,
}

impl RowThreshold {
    /// The user's.
    pub fn of_user(value: f64) -> RowThreshold {
        RowThreshold::new(value, ThresholdOrigin::User)
    }

    /// That of an SLO, and the share that its objective allows above it.
    pub fn of_slo(value: f64, name: &str, expected_share: f64) -> RowThreshold {
        RowThreshold { value, origin: ThresholdOrigin::Slo(name.to_owned()), expected_share }
    }

    /// That of an SLO for some of the row's series: what is slow for the row, too, but without an
    /// objective for the others.
    pub fn of_slo_of_part(value: f64, name: &str) -> RowThreshold {
        RowThreshold::new(value, ThresholdOrigin::SloOfPart(name.to_owned()))
    }

    /// One without an objective.
    fn new(value: f64, origin: ThresholdOrigin) -> RowThreshold {
        RowThreshold { value, origin, expected_share: EXPECTED_SHARE }
    }

    /// Whether it was learned from values.
    pub(super) fn is_learned(&self) -> bool {
        matches!(self.origin, ThresholdOrigin::Learned(_) | ThresholdOrigin::LearnedByHour(_))
    }

    /// The smallest threshold that a program declared.
    pub(super) fn declared(values: &Mixture) -> Option<RowThreshold> {
        let all = values.components().iter().flat_map(|part| part.thresholds());
        let value = all.map(|threshold| threshold.value).min_by(f64::total_cmp)?;
        Some(RowThreshold::new(value, ThresholdOrigin::Declared))
    }

    /// The upper bound of the 99th percentile: an estimate within its bucket would count values of
    /// that bucket as above. `None` if that is a wide bucket and the highest with values: it has
    /// the slow values too, which would never be above.
    pub(super) fn learned(values: &Mixture, range: Range<i64>) -> Option<RowThreshold> {
        if values.count() < VALUES_MIN {
            return None;
        }
        let Bracket { lower, upper: value, .. } = values.quantile(1.0 - EXPECTED_SHARE)?;
        let origin = ThresholdOrigin::Learned(range);
        let is_wide = value > lower * WIDE_RATIO;
        if is_wide && values.count_above(value, LimitInclusion::Exclusive).upper == 0 {
            return None;
        }
        value.is_finite().then(|| RowThreshold::new(value, origin))
    }
}

impl RowThreshold {
    /// The median of what is learned from each of some hours, see
    /// [`RowThreshold::median_of_hours`].
    pub(super) fn learned_by_hour(hours: &[Mixture], range: Range<i64>) -> Option<RowThreshold> {
        let learned = hours.iter().filter_map(RowThreshold::value_of_hour).collect();
        RowThreshold::median_of_hours(learned, range)
    }

    /// What is learned from an hour.
    pub(super) fn value_of_hour(values: &Mixture) -> Option<f64> {
        RowThreshold::learned(values, 0..0).map(|learned| learned.value)
    }

    /// The median of what was learned from hours, the lower one of two: hours of an incident, if
    /// they are fewer than half, do not raise it.
    pub(super) fn median_of_hours(mut values: Vec<f64>, range: Range<i64>) -> Option<RowThreshold> {
        values.sort_by(f64::total_cmp);
        let value = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(RowThreshold::new(value, ThresholdOrigin::LearnedByHour(range)))
    }
}

#[cfg(test)]
mod tests {
    use hist::{Histogram, Scheme};

    use super::*;

    fn values(count: u32) -> Mixture {
        let mut histogram = Histogram::default();
        (1..=count).for_each(|n| histogram.record(f64::from(n)));
        Mixture::from(histogram)
    }

    #[test]
    fn learned_threshold_leaves_at_most_the_expected_share_above() {
        let of = values(10_000);
        let learned = RowThreshold::learned(&of, 0..7).unwrap();
        let above = of.count_above(learned.value, LimitInclusion::Exclusive);
        assert!(above.upper as f64 <= of.count() as f64 * EXPECTED_SHARE, "{above:?}");
        assert_eq!(learned.origin, ThresholdOrigin::Learned(0..7));
    }

    #[test]
    fn few_values_give_no_threshold() {
        assert_eq!(RowThreshold::learned(&values(499), 0..7), None);
        assert!(RowThreshold::learned(&values(500), 0..7).is_some());
    }

    /// The threshold was 1 s, the edge of the highest bucket with values: 0 of 5,400 requests were
    /// above it, where 54 were expected, and the slow ones were below it.
    #[test]
    fn edge_of_the_highest_wide_bucket_with_values_is_no_threshold() {
        let classic = |slow: u64, slower: u64| {
            let mut histogram = Histogram::new(Scheme::explicit(&[0.1, 0.25, 1.0, 2.5]).unwrap());
            histogram.record_n(0.05, 5_000 - slow - slower);
            histogram.record_n(0.7, slow);
            histogram.record_n(2.0, slower);
            Mixture::from(histogram)
        };
        let learned = |slow, slower| {
            RowThreshold::learned(&classic(slow, slower), 0..7).map(|found| found.value)
        };
        assert_eq!([learned(400, 0), learned(400, 10)], [None, Some(1.0)]);
        // In a narrow bucket nothing slower hides.
        let mut same = Histogram::default();
        same.record_n(100.0, 5_000);
        assert!(RowThreshold::learned(&Mixture::from(same), 0..7).is_some());
    }

    #[test]
    fn hours_of_an_incident_do_not_raise_the_threshold_of_the_others() {
        let hour = |slowest: f64| {
            let mut histogram = Histogram::default();
            histogram.record_n(10.0, 900);
            histogram.record_n(slowest, 100);
            Mixture::from(histogram)
        };
        let check = |slowest: &[f64], expected: Option<f64>| {
            let hours: Vec<Mixture> = slowest.iter().map(|slowest| hour(*slowest)).collect();
            let found = RowThreshold::learned_by_hour(&hours, 0..7);
            assert_eq!(found.as_ref().map(|found| found.value.round()), expected);
            if let Some(found) = found {
                assert_eq!(found.origin, ThresholdOrigin::LearnedByHour(0..7));
            }
        };
        check(&[100.0, 100.0, 5_000.0, 5_000.0, 100.0], Some(100.0));
        check(&[5_000.0, 100.0], Some(100.0));
        check(&[100.0], Some(100.0));
        check(&[], None);
        // Hours with few values say nothing.
        assert_eq!(RowThreshold::learned_by_hour(&[values(499)], 0..7), None);
    }

    #[test]
    fn declared_threshold_is_the_smallest() {
        let declared = Histogram::default().with_thresholds(&[250.0, 500.0]).unwrap();
        let found = RowThreshold::declared(&Mixture::from(declared)).unwrap();
        assert_eq!((found.value, found.origin), (250.0, ThresholdOrigin::Declared));
        assert_eq!(RowThreshold::declared(&values(10)), None);
    }
}
