//! Values of stored series in another unit: each is divided by a number.
//!
//! A distribution is converted as a whole, bucket edges and sum, so statistics of the converted one
//! are those of the stored one in the other unit.

use std::sync::Arc;

use hist::Mixture;
use store::NumberAggregate;

use crate::error::{Error, Result, SourceSpan};
use crate::source::SourceRead;
use crate::stream::SeriesPoint;
use crate::value::StepValue;

/// Divides samples.
pub(super) fn divide_samples(read: &mut SourceRead<SeriesPoint>, divisor: f64) {
    if divisor == 1.0 {
        return;
    }
    for point in &mut read.values {
        match &mut point.value {
            // The staleness marker is a NaN that a division would change.
            StepValue::Number(number) if number.is_nan() => {}
            StepValue::Number(number) => *number /= divisor,
            StepValue::Bracket(bracket) => **bracket = bracket.map(|bound| bound / divisor),
            StepValue::Histogram(histogram) => {
                *histogram = Arc::new(histogram.divide_values(divisor));
            }
            StepValue::Distribution(mixture) => *mixture = Arc::new(mixture.divide(divisor)),
        }
    }
}

/// Divides the values of distributions.
pub(super) fn divide_mixtures(read: &mut SourceRead<Mixture>, divisor: f64) {
    if divisor != 1.0 {
        read.values.iter_mut().for_each(|mixture| *mixture = mixture.divide(divisor));
    }
}

/// Divides aggregates of numbers.
pub(super) fn divide_numbers(read: &mut SourceRead<Option<NumberAggregate>>, divisor: f64) {
    if divisor != 1.0 {
        read.values
            .iter_mut()
            .flatten()
            .for_each(|aggregate| *aggregate = aggregate.divide(divisor));
    }
}

/// Merges the distributions of each column.
pub(super) fn add_mixtures(all: &mut SourceRead<Mixture>, more: SourceRead<Mixture>) -> Result<()> {
    all.gaps.extend(more.gaps);
    for (sum, more) in all.values.iter_mut().zip(more.values) {
        more.components().iter().try_for_each(|part| sum.add(part)).map_err(|error| {
            let message = format!("{error}; use a shorter range or fewer series");
            Error::Execution { span: SourceSpan::default(), message }
        })?;
    }
    Ok(())
}

/// Merges the aggregates of each column.
pub(super) fn add_numbers(
    all: &mut SourceRead<Option<NumberAggregate>>,
    more: SourceRead<Option<NumberAggregate>>,
) {
    all.gaps.extend(more.gaps);
    for (aggregate, more) in all.values.iter_mut().zip(more.values) {
        match (aggregate.as_mut(), more) {
            (_, None) => {}
            (None, more) => *aggregate = more,
            (Some(aggregate), Some(more)) => aggregate.add(&more),
        }
    }
}

#[cfg(test)]
mod tests {
    use hist::{Histogram, Scheme};

    use super::*;
    use crate::histogram::FloatHistogram;
    use crate::value::{STALE_BITS, is_stale};

    fn divided(value: StepValue) -> StepValue {
        let point = SeriesPoint { time: 1, value, start: None };
        let mut read = SourceRead { values: vec![point], gaps: Vec::new() };
        divide_samples(&mut read, 1e9);
        read.values.remove(0).value
    }

    #[test]
    fn a_staleness_marker_is_kept() {
        let stale = f64::from_bits(STALE_BITS);
        assert!(divided(StepValue::Number(stale)).number().is_some_and(is_stale));
        let histogram = FloatHistogram { sum: stale, ..FloatHistogram::default() };
        let histogram = divided(StepValue::Histogram(Arc::new(histogram))).histogram().unwrap();
        assert!(is_stale(histogram.sum));
    }

    #[test]
    fn samples_of_all_kinds_have_the_same_buckets_in_seconds() {
        let schemes = [
            Scheme::exp2(3).unwrap(),
            Scheme::exp2(-7).unwrap(),
            Scheme::log_linear2(4).unwrap(),
            Scheme::LogLinear10,
            Scheme::explicit(&[5e6, 1e8]).unwrap(),
        ];
        for scheme in schemes {
            let mut recorded = Histogram::new(scheme.clone());
            let values = [0.0, 3e5, 7e6, 2.5e8, -3.0, f64::INFINITY];
            values.iter().for_each(|&value| recorded.record(value));
            let stored = FloatHistogram::from(&recorded);
            let from_float = divided(StepValue::Histogram(Arc::new(stored.clone())));
            let from_float = from_float.histogram().unwrap();
            let from_exact = divided(StepValue::Distribution(Arc::new(Mixture::from(recorded))));
            let from_exact = from_exact.histogram().unwrap();
            assert_eq!(from_float.grid, from_exact.grid, "{scheme}");
            assert_eq!(from_float.positive, from_exact.positive, "{scheme}");
            assert_eq!(from_float.negative, from_exact.negative, "{scheme}");
            assert_eq!(from_float.zero_count, from_exact.zero_count, "{scheme}");
            assert_eq!(from_float.count, stored.count);
            for (seconds, stored) in from_float.buckets().zip(stored.buckets()) {
                let is_near = |seconds: f64, stored: f64| {
                    let expected = stored / 1e9;
                    // Bounds of Prometheus are off by up to three ulps.
                    seconds == expected || (seconds - expected).abs() <= 1e-15 * expected.abs()
                };
                let is_same = is_near(seconds.lower, stored.lower)
                    && is_near(seconds.upper, stored.upper)
                    && seconds.count == stored.count;
                assert!(is_same, "{scheme}: {seconds} is not {stored}");
            }
        }
    }
}
