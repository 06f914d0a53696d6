//! Conversion of `hist` histograms to float histograms.
//!
//! No value is lost. Infinities and values beyond the grid are in a bucket after the last one, as
//! in Prometheus; with custom buckets, in the outermost one. NaN values are in `count` and in no
//! bucket, and make the sum NaN, as does an unknown sum.

use hist::{Histogram, Mixture, Scheme};

use super::bound::BEYOND_INDEX;
use super::counts::{BucketCounts, drop_empty};
use super::{BucketGrid, FloatHistogram, ResetHint};

impl From<&Histogram> for FloatHistogram {
    /// Base-2 exponential scales from −4 become Prometheus' schemas, explicit bounds become custom
    /// bounds; every other scheme is kept. No recorded scale is finer than schema 8.
    fn from(histogram: &Histogram) -> FloatHistogram {
        let native = codecs::prometheus::FractionalHistogram::from_histogram(histogram);
        let (mut positive, mut negative) = (native.positive, native.negative);
        let mut zero_threshold = native.zero_threshold;
        let mut zero_count = native.zero_count;
        let grid = match native.scheme {
            Scheme::Exp2(grid) if (-4..=8).contains(&grid.scale()) => {
                // Prometheus numbers a bucket by its upper bound, OTLP by its lower bound.
                for (index, _) in positive.iter_mut().chain(&mut negative) {
                    *index = index.saturating_add(1);
                }
                BucketGrid::Exponential(grid.scale().into())
            }
            Scheme::Explicit(grid) => {
                let last = grid.bounds().len() as i32;
                into_outermost(&mut positive, &mut negative, last);
                if zero_count > 0.0 {
                    let at = grid.bounds().partition_point(|&bound| bound < 0.0) as i32;
                    add_at(&mut positive, at, zero_count);
                }
                (zero_threshold, zero_count) = (0.0, 0.0);
                BucketGrid::Custom(grid.bounds().into())
            }
            scheme => {
                if matches!(scheme, Scheme::LogLinear10) {
                    // This grid has no buckets nearer to zero.
                    zero_threshold = zero_threshold.max(1e-128f64.next_down());
                }
                BucketGrid::Native(scheme)
            }
        };
        FloatHistogram {
            grid,
            zero_threshold,
            zero_count,
            count: native.count,
            sum: native.sum,
            positive,
            negative,
            hint: ResetHint::Unknown,
        }
    }
}

impl From<&Mixture> for FloatHistogram {
    /// Merges several schemes: the only part if there is one, otherwise all parts on a grid that
    /// nearly preserves their buckets; empty for no parts. The result covers an interval, so it is
    /// a gauge.
    fn from(mixture: &Mixture) -> FloatHistogram {
        let mut histogram = match mixture.parts() {
            [] => FloatHistogram::default(),
            [part] => part.into(),
            _ => {
                (&mixture.flatten().expect("BUG: a mixture counts within 64 bits").histogram).into()
            }
        };
        histogram.hint = ResetHint::Gauge;
        histogram
    }
}

/// Moves counts beyond explicit bounds into the first and last bucket.
fn into_outermost(positive: &mut BucketCounts, negative: &mut BucketCounts, last: i32) {
    if let Some((_, count)) = positive.pop_if(|(index, _)| *index == BEYOND_INDEX) {
        add_at(positive, last, count);
    }
    for (_, count) in negative.drain(..) {
        add_at(positive, 0, count);
    }
    drop_empty(positive);
}

fn add_at(counts: &mut BucketCounts, index: i32, count: f64) {
    match counts.binary_search_by_key(&index, |held| held.0) {
        Ok(at) => counts[at].1 += count,
        Err(at) => counts.insert(at, (index, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scheme: Scheme, values: &[f64], expected: &str) {
        let mut histogram = Histogram::new(scheme);
        values.iter().for_each(|&value| histogram.record(value));
        let float = FloatHistogram::from(&histogram);
        assert_eq!(float.to_string(), expected);
        assert_eq!(float.count, values.len() as f64);
        assert_eq!(float.validate(), Ok(()));
    }

    #[test]
    fn nothing_is_lost() {
        let values = [-3.0, 0.0, 3.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        check(
            Scheme::exp2(0).unwrap(),
            &values,
            "{count:6, sum:NaN, [-Inf,-1.7976931348623157e+308):1, [-4,-2):1, [-0,0]:1, (2,4]:1, \
             (1.7976931348623157e+308,+Inf]:1}",
        );
        check(
            Scheme::explicit(&[0.0, 5.0]).unwrap(),
            &values,
            "{count:6, sum:NaN, [-Inf,0]:3, (0,5]:1, (5,+Inf]:1}",
        );
        check(
            Scheme::LogLinear10,
            &[1.05, 1e-200, 1e200],
            "{count:3, sum:1e+200, [-9.999999999999999e-129,9.999999999999999e-129]:1, [1,1.1):1, \
             [1e+128,+Inf]:1}",
        );
        check(Scheme::log_linear2(1).unwrap(), &[3.5], "{count:1, sum:3.5, [3,4):1}");
        check(Scheme::exp2(-5).unwrap(), &[3.0], "{count:1, sum:3, (1,4.294967296e+09]:1}");
    }

    #[test]
    fn mixtures() {
        let mut mixture = Mixture::default();
        let none = FloatHistogram { hint: ResetHint::Gauge, ..FloatHistogram::default() };
        assert_eq!(FloatHistogram::from(&mixture), none);
        let mut one = Histogram::new(Scheme::exp2(3).unwrap());
        one.record(2.0);
        mixture.add(&one).unwrap();
        let gauge = FloatHistogram { hint: ResetHint::Gauge, ..(&one).into() };
        assert_eq!(FloatHistogram::from(&mixture), gauge);
        let mut other = Histogram::new(Scheme::LogLinear10);
        other.record(7.0);
        mixture.add(&other).unwrap();
        let both = FloatHistogram::from(&mixture);
        assert!(
            matches!(both.grid, BucketGrid::Native(Scheme::LogLinear2(_))) && both.count == 2.0
        );
    }
}
