//! Bucket bounds.
//!
//! Prometheus takes its exponential bounds from tables that are off the exact powers of two by up
//! to three ulps. Quantiles that agree with it to the last bit need the same bounds, so
//! [`STEPS_OFF`] holds that difference; powers of two themselves are exact. A recorder with exact
//! bounds, such as `hist`, may count a value within that distance of a bound on the other side of
//! it.

use std::sync::LazyLock;

use hist::Scheme;

use super::BucketGrid;

/// Index of values beyond the last bucket of a [`BucketGrid::Scheme`].
pub(super) const BEYOND_INDEX: i32 = i32::MAX;

/// For Prometheus' entry `k` of 256: its distance in ulps above the greatest double not above
/// `2^(k/256)`, plus 3.
#[rustfmt::skip]
const STEPS_OFF: &[u8; 256] = b"\
3434433334333433332234323333332243333333333333223322343334333323\
3334343333223322343344333433343433334444332234233323343333223322\
3333332133223322332223222222221133333334332233222312332322122222\
2311332222121212121112010100110022222212231123122211231211011200";

/// `2^(k/256 - 1)` as in Prometheus.
static FRACTIONS: LazyLock<[f64; 256]> = LazyLock::new(|| {
    let octave = Scheme::exp2(8).expect("BUG: 8 is a scale");
    std::array::from_fn(|k| {
        let (floor, _) = octave.edges(k as i32 - 256).expect("BUG: an octave below 1");
        f64::from_bits(floor.to_bits() + u64::from(STEPS_OFF[k] - b'0') - 3)
    })
});

impl BucketGrid {
    /// Lower and upper bound of bucket `index`, for positive values. An index without a bucket has
    /// width 0.
    pub fn edges(&self, index: i32) -> (f64, f64) {
        match self {
            BucketGrid::Exponential(schema) => {
                (exponential(i64::from(index) - 1, *schema), exponential(index.into(), *schema))
            }
            BucketGrid::Custom(bounds) => {
                (custom(i64::from(index) - 1, bounds), custom(index.into(), bounds))
            }
            BucketGrid::Scheme(scheme) => {
                scheme.edges(index).unwrap_or_else(|| outside(scheme, index))
            }
        }
    }

    /// Whether a bucket includes its upper bound rather than its lower one.
    pub(super) fn is_upper_inclusive(&self) -> bool {
        let BucketGrid::Scheme(scheme) = self else { return true };
        !matches!(scheme.family(), Scheme::LogLinear2(_) | Scheme::LogLinear10)
    }

    /// Whether values are evenly spread within a bucket; otherwise their logarithms are.
    pub(crate) fn is_linear(&self) -> bool {
        match self {
            BucketGrid::Exponential(_) => false,
            BucketGrid::Custom(_) => true,
            BucketGrid::Scheme(scheme) => {
                !matches!(scheme.family(), Scheme::Exp2(_) | Scheme::Logarithmic(_))
            }
        }
    }

    /// Whether buckets are custom ones, without a zero bucket and negative buckets.
    pub fn is_custom(&self) -> bool {
        matches!(self, BucketGrid::Custom(_))
    }
}

/// Upper bound of a bucket. The last finite one ends at the greatest double; the next is for
/// infinities.
fn exponential(index: i64, schema: i32) -> f64 {
    let schema = schema.clamp(-10, 8);
    let (fraction, exponent) = if schema < 0 {
        (0.5, (index << -schema) + 1)
    } else {
        let step = (index & ((1 << schema) - 1)) << (8 - schema);
        (FRACTIONS[step as usize], (index >> schema) + 1)
    };
    if fraction == 0.5 && exponent == 1025 { f64::MAX } else { scaled(fraction, exponent) }
}

/// `fraction * 2^exponent`, rounded once.
pub(super) fn scaled(fraction: f64, exponent: i64) -> f64 {
    let power = |exponent: i64| f64::from_bits(((exponent + 1023) as u64) << 52);
    match exponent {
        1025.. => f64::INFINITY,
        -1000..=1024 => fraction * 2.0 * power(exponent - 1),
        -1080..=-1001 => fraction * power(-1000) * power(exponent + 1000),
        _ => 0.0,
    }
}

fn custom(index: i64, bounds: &[f64]) -> f64 {
    match usize::try_from(index) {
        Ok(index) => bounds.get(index).copied().unwrap_or(f64::INFINITY),
        Err(_) => f64::NEG_INFINITY,
    }
}

/// Bounds of an index for which a scheme has no bucket.
fn outside(scheme: &Scheme, index: i32) -> (f64, f64) {
    match scheme {
        _ if index <= 0 => (0.0, 0.0),
        Scheme::Scaled(grid) => {
            let (lower, upper) = outside(grid.base(), index);
            (lower / grid.divisor(), upper / grid.divisor())
        }
        Scheme::LogLinear10 => (1e128, f64::INFINITY),
        _ => (f64::MAX, f64::INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: i32, index: i32, lower: f64, upper: f64) {
        assert_eq!(BucketGrid::Exponential(schema).edges(index), (lower, upper));
    }

    #[test]
    fn bounds_match_prometheus() {
        check(0, 1, 1.0, 2.0);
        check(-1, 1, 1.0, 4.0);
        check(1, 1, 1.0, 2f64.sqrt().next_down());
        check(2, 0, 0.8408964152537144, 1.0);
        check(3, -7, 0.5, 0.5452538663326288);
        check(8, -249, 0.5081891574554764, 0.509566998038869);
        check(8, 0, 0.9972960560854698, 1.0);
    }

    #[test]
    fn the_last_finite_bucket_ends_at_the_greatest_double() {
        check(0, 1024, 2f64.powi(1023), f64::MAX);
        check(0, 1025, f64::MAX, f64::INFINITY);
        check(-4, 64, 2f64.powi(1008), f64::MAX);
        check(-4, 65, f64::MAX, f64::INFINITY);
        check(8, 1024 << 8 | 1, f64::MAX, f64::INFINITY);
    }

    #[test]
    fn no_index_panics() {
        for index in [i32::MIN, i32::MIN + 1, -1, 0, 1, i32::MAX - 1, i32::MAX] {
            for schema in [i32::MIN, -53, -10, -4, 0, 8, 9, i32::MAX] {
                let (lower, upper) = BucketGrid::Exponential(schema).edges(index);
                assert!(lower <= upper);
            }
            let (lower, upper) = BucketGrid::Custom([1.0, 2.0].into()).edges(index);
            assert!(lower <= upper);
            for scheme in
                [Scheme::LogLinear10, Scheme::log_linear2(3).unwrap(), Scheme::log(0.01).unwrap()]
            {
                let (lower, upper) = BucketGrid::Scheme(scheme).edges(index);
                assert!(lower <= upper);
            }
        }
    }

    #[test]
    fn bounds_are_close_to_recorder_bounds() {
        let scheme = Scheme::exp2(8).unwrap();
        for index in -2000..2000 {
            let (lower, _) = scheme.edges(index).unwrap();
            let (close, _) = BucketGrid::Exponential(8).edges(index + 1);
            assert!(lower.to_bits().abs_diff(close.to_bits()) <= 3);
        }
    }
}
