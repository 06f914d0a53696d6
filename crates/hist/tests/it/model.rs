//! Reference model: all values, sorted. Its results are exact and rounded to a double once.

use crate::big::{BigInteger, UNIT, scaled};

/// A share as a decimal fraction, so that ranks use integer arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecimalShare {
    pub(crate) digits: u64,
    pub(crate) scale: u64,
}

impl DecimalShare {
    pub(crate) fn value(self) -> f64 {
        self.digits as f64 / self.scale as f64
    }
}

/// Recorded values in ascending order, without NaN, which are counted.
#[derive(Clone, Debug)]
pub(crate) struct SortedSample {
    pub(crate) sorted: Vec<f64>,
    pub(crate) nan: u64,
}

impl SortedSample {
    pub(crate) fn new(values: &[f64]) -> SortedSample {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let nan = (values.len() - sorted.len()) as u64;
        SortedSample { sorted, nan }
    }

    pub(crate) fn count(&self) -> u64 {
        self.sorted.len() as u64
    }

    pub(crate) fn is_finite(&self) -> bool {
        self.sorted.iter().all(|v| v.is_finite())
    }

    fn power_sum(&self, k: u32) -> BigInteger {
        BigInteger::sum(self.sorted.iter().map(|&v| BigInteger::from_f64(v).power(k)))
    }

    pub(crate) fn sum(&self) -> f64 {
        if !self.is_finite() {
            return self.sorted.iter().filter(|v| v.is_infinite()).sum();
        }
        self.power_sum(1).to_f64(1, UNIT)
    }

    pub(crate) fn mean(&self) -> f64 {
        self.moment(1)
    }

    pub(crate) fn moment(&self, k: u32) -> f64 {
        self.power_sum(k).to_f64(self.count(), UNIT * k as i32)
    }

    /// (n Σx² − (Σx)²) / n², over 2^exponent.
    fn variance_over(&self, exponent: impl Fn(i32) -> i32) -> (f64, i32) {
        let n = self.count();
        let sum = self.power_sum(1);
        let numerator = self.power_sum(2).times(&BigInteger::from_u64(n)).minus(&sum.times(&sum));
        let exponent = exponent(numerator.bits() + 2 * UNIT);
        (numerator.to_f64(n * n, 2 * UNIT - exponent), exponent)
    }

    pub(crate) fn variance(&self) -> f64 {
        self.variance_over(|_| 0).0
    }

    pub(crate) fn stddev(&self) -> f64 {
        let (variance, exponent) = self.variance_over(|bits| bits & !1);
        scaled(variance.sqrt(), exponent / 2)
    }

    pub(crate) fn nearest_rank(&self, q: DecimalShare) -> f64 {
        let rank = (q.digits * self.count()).div_ceil(q.scale).max(1);
        self.sorted[rank as usize - 1]
    }

    /// Type 7 of Hyndman and Fan.
    pub(crate) fn linear(&self, q: DecimalShare) -> f64 {
        let place = q.digits * (self.count() - 1);
        let (whole, part) = ((place / q.scale) as usize, place % q.scale);
        if part == 0 {
            return self.sorted[whole];
        }
        let (below, above) = (
            BigInteger::from_f64(self.sorted[whole]),
            BigInteger::from_f64(self.sorted[whole + 1]),
        );
        below
            .times(&BigInteger::from_u64(q.scale - part))
            .plus(&above.times(&BigInteger::from_u64(part)))
            .to_f64(q.scale, UNIT)
    }

    pub(crate) fn count_if(&self, is: impl Fn(f64) -> bool) -> u64 {
        self.sorted.iter().filter(|&&v| is(v)).count() as u64
    }

    /// Both distances to another sample: Kolmogorov–Smirnov and Wasserstein.
    pub(crate) fn distances(&self, other: &SortedSample) -> (f64, f64) {
        let (n, m) = (self.count(), other.count());
        let mut places: Vec<f64> = self.sorted.iter().chain(&other.sorted).copied().collect();
        places.sort_by(f64::total_cmp);
        let (mut greatest, mut work) = (0, BigInteger::default());
        for (i, &place) in places.iter().enumerate() {
            let ours = self.count_if(|v| v <= place) * m;
            let theirs = other.count_if(|v| v <= place) * n;
            let height = ours.abs_diff(theirs);
            greatest = greatest.max(height);
            let next = places.get(i + 1).copied().unwrap_or(place);
            let width = BigInteger::from_f64(next).minus(&BigInteger::from_f64(place));
            work = work.plus(&width.times(&BigInteger::from_u64(height)));
        }
        (greatest as f64 / (n * m) as f64, work.to_f64(n * m, UNIT))
    }
}
