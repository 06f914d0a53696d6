//! From what `hist` records to what PromQL reckons with.
//!
//! No value is lost. Infinities and whatever else lies beyond a grid are in a bucket after its last one, as
//! in Prometheus; of custom buckets, in the outermost. Values that are not numbers are in `count` and in no
//! bucket, and make the sum NaN; so does a sum that is not known.

use hist::{Histogram, MergeError, Mixture, Scheme};

use super::bound::BEYOND;
use super::counts::{Counts, drop_empty};
use super::{FloatHistogram, Grid, ResetHint};

impl From<&Histogram> for FloatHistogram {
    /// Base-2 exponential scales from −4 become Prometheus' schemas, explicit bounds custom ones; every other
    /// scheme stays what it is. No recorded scale is finer than schema 8.
    fn from(histogram: &Histogram) -> FloatHistogram {
        let native = hist::codec::prometheus::FloatHistogram::from_histogram(histogram);
        let (mut positive, mut negative) = (native.positive, native.negative);
        let mut zero_threshold = native.zero_threshold;
        let mut zero_count = native.zero_count;
        let grid = match native.scheme {
            Scheme::Exp2(grid) if (-4..=8).contains(&grid.scale()) => {
                // Prometheus numbers a bucket by its end, OTLP by its beginning.
                for (index, _) in positive.iter_mut().chain(&mut negative) {
                    *index = index.saturating_add(1);
                }
                Grid::Exponential(grid.scale().into())
            }
            Scheme::Explicit(grid) => {
                let last = grid.bounds().len() as i32;
                into_outermost(&mut positive, &mut negative, last);
                if zero_count > 0.0 {
                    let at = grid.bounds().partition_point(|&bound| bound < 0.0) as i32;
                    add_at(&mut positive, at, zero_count);
                }
                (zero_threshold, zero_count) = (0.0, 0.0);
                Grid::Custom(grid.bounds().into())
            }
            scheme => {
                if matches!(scheme, Scheme::LogLinear10) {
                    // This grid has no buckets nearer to zero.
                    zero_threshold = zero_threshold.max(1e-128f64.next_down());
                }
                Grid::Native(scheme)
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

impl FloatHistogram {
    /// One histogram of several families: the only part, if there is but one, or all on a grid that keeps
    /// their buckets nearly apart. None gives an empty one.
    pub fn from_mixture(mixture: &Mixture) -> Result<FloatHistogram, MergeError> {
        match mixture.parts() {
            [] => Ok(FloatHistogram::default()),
            [part] => Ok(part.into()),
            _ => Ok((&mixture.flatten()?.histogram).into()),
        }
    }
}

/// Moves what is beyond explicit bounds into the first and last bucket.
fn into_outermost(positive: &mut Counts, negative: &mut Counts, last: i32) {
    if let Some((_, count)) = positive.pop_if(|(index, _)| *index == BEYOND) {
        add_at(positive, last, count);
    }
    for (_, count) in negative.drain(..) {
        add_at(positive, 0, count);
    }
    drop_empty(positive);
}

fn add_at(counts: &mut Counts, index: i32, count: f64) {
    match counts.binary_search_by_key(&index, |held| held.0) {
        Ok(at) => counts[at].1 += count,
        Err(at) => counts.insert(at, (index, count)),
    }
}
