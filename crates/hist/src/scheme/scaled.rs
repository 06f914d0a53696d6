//! A grid of another unit: all edges of a grid, divided by a number.
//!
//! Nanoseconds as seconds are the quotients by 1e9, each rounded once. Buckets keep their indexes,
//! so a conversion moves no value. Scaled grids are for results of queries; no format has them.

use std::sync::Arc;

use super::{BucketPosition, Scheme};

/// A grid whose edges are those of its base, divided by a number.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledGrid {
    base: Arc<Scheme>,
    divisor: f64,
}

impl ScaledGrid {
    /// The grid whose edges are divided.
    pub fn base(&self) -> &Scheme {
        &self.base
    }

    /// The divisor.
    pub fn divisor(&self) -> f64 {
        self.divisor
    }

    /// Position of a value above zero. A value at an edge may be counted on either side of it,
    /// because the product is rounded.
    pub(super) fn position(&self, magnitude: f64) -> BucketPosition {
        self.base.position(magnitude * self.divisor, 0.0)
    }

    /// Divides both ends of a bucket of the base.
    pub(super) fn divide(&self, (lower, upper): (f64, f64)) -> (f64, f64) {
        (lower / self.divisor, upper / self.divisor)
    }

    /// The common grid of two with the same divisor.
    pub(super) fn common(&self, other: &ScaledGrid) -> Option<Scheme> {
        let is_same_unit = self.divisor.to_bits() == other.divisor.to_bits();
        let base = is_same_unit.then(|| self.base.common(&other.base))??;
        Some(Scheme::Scaled(ScaledGrid { base: Arc::new(base), divisor: self.divisor }))
    }
}

impl Scheme {
    /// The scheme of the values divided by a number, which is finite and above zero.
    #[must_use]
    pub fn divide(&self, divisor: f64) -> Scheme {
        assert!(divisor.is_finite() && divisor > 0.0, "BUG: {divisor} is no unit");
        let base = match self {
            _ if divisor == 1.0 => return self.clone(),
            Scheme::Explicit(grid) => return Scheme::Explicit(grid.divide(divisor)),
            Scheme::Scaled(grid) => return grid.base.divide(grid.divisor * divisor),
            base => Arc::new(base.clone()),
        };
        Scheme::Scaled(ScaledGrid { base, divisor })
    }

    /// The family of the scheme: for a scaled one, the scheme whose edges are divided.
    pub fn family(&self) -> &Scheme {
        match self {
            Scheme::Scaled(grid) => &grid.base,
            own => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Histogram, LimitInclusion, Mixture, Scheme};

    fn schemes() -> [Scheme; 5] {
        [
            Scheme::exp2(3).unwrap(),
            Scheme::log_linear2(5).unwrap(),
            Scheme::LogLinear10,
            Scheme::log(0.01).unwrap(),
            Scheme::explicit(&[5e6, 1e7, 2.5e8]).unwrap(),
        ]
    }

    fn recorded(scheme: Scheme, seed: u64) -> Histogram {
        let mut histogram = Histogram::new(scheme).with_thresholds(&[2.5e8]).unwrap();
        for i in 0..500u64 {
            // From 0 and 1 us to about 10 s, in ns; some of them below zero.
            let random = (i.wrapping_add(seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let value = 1e3 * 10f64.powf(random as f64 / (1u64 << 24) as f64 * 7.0);
            histogram.record(if i % 50 == 0 { -value } else { value });
        }
        histogram.record_n(0.0, 3);
        histogram
    }

    #[test]
    fn nanoseconds_as_seconds_are_the_same_distribution() {
        for scheme in schemes() {
            let ns = recorded(scheme.clone(), 1);
            let seconds = ns.divide(1e9);
            assert_eq!(seconds.count(), ns.count(), "{scheme}");
            assert_eq!(seconds.max().unwrap().estimate, ns.max().unwrap().estimate / 1e9);
            assert_eq!(seconds.sum().estimate, ns.sum().estimate / 1e9, "{scheme}");
            let cells = |histogram: &Histogram, divisor: f64| {
                let of =
                    |cell: crate::Cell| (cell.lower / divisor, cell.upper / divisor, cell.count);
                histogram.cells().map(of).collect::<Vec<_>>()
            };
            assert_eq!(cells(&seconds, 1.0), cells(&ns, 1e9), "{scheme}");
            for q in [0.0, 0.01, 0.5, 0.99, 1.0] {
                let (found, expected) = (seconds.quantile(q).unwrap(), ns.quantile(q).unwrap());
                assert_eq!(found.lower, expected.lower / 1e9, "{scheme}: {q}");
                assert_eq!(found.upper, expected.upper / 1e9, "{scheme}: {q}");
            }
            let above = |histogram: &Histogram, limit| {
                histogram.count_above(limit, LimitInclusion::Exclusive)
            };
            assert!(above(&seconds, 0.25).is_exact(), "a declared threshold is converted");
            assert_eq!(above(&seconds, 0.25), above(&ns, 2.5e8), "{scheme}");
            assert_eq!(above(&seconds, 0.1), above(&ns, 1e8), "{scheme}");
        }
    }

    #[test]
    fn answer_in_seconds_that_is_sent_as_a_frame_keeps_its_numbers() {
        for scheme in schemes() {
            let seconds = recorded(scheme.clone(), 1).divide(1e9);
            let sent = seconds.to_explicit().unwrap();
            let cells = |histogram: &Histogram| histogram.cells().collect::<Vec<_>>();
            let (found, expected) = (cells(&sent), cells(&seconds));
            assert_eq!(found.len(), expected.len(), "{scheme}");
            for (found, expected) in found.iter().zip(&expected) {
                // Buckets that overlap by rounding end where the next one begins.
                let is_near = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-11 * b.abs();
                assert!(is_near(found.lower, expected.lower), "{scheme}: {found:?} {expected:?}");
                assert!(is_near(found.upper, expected.upper), "{scheme}: {found:?} {expected:?}");
                assert_eq!(found.count, expected.count);
            }
            assert_eq!(sent.tracked_max(), seconds.tracked_max(), "{scheme}");
            assert_eq!(sent.tracked_min(), seconds.tracked_min(), "{scheme}");
            assert_eq!(sent.sum(), seconds.sum(), "{scheme}");
            assert_eq!(sent.count(), seconds.count(), "{scheme}");
        }
        assert!(Histogram::default().divide(1e9).to_explicit().unwrap().is_empty());
    }

    #[test]
    fn sums_in_seconds_are_sums_of_nanoseconds() {
        for scheme in schemes() {
            let (one, other) = (recorded(scheme.clone(), 1), recorded(scheme.clone(), 7));
            let mut ns = Mixture::from(one.clone());
            ns.add(&other).unwrap();
            let mut seconds = Mixture::from(one.divide(1e9));
            seconds.add(&other.divide(1e9)).unwrap();
            assert_eq!(seconds.components().len(), 1, "{scheme}");
            let expected = ns.components()[0].divide(1e9);
            assert_eq!(seconds.components()[0].positive(), expected.positive(), "{scheme}");
            assert_eq!(seconds.components()[0].negative(), expected.negative(), "{scheme}");
            assert_eq!(seconds.quantile(0.9), Mixture::from(expected).quantile(0.9), "{scheme}");
        }
        // A coarser scale of the same family.
        let mut fine = recorded(Scheme::exp2(5).unwrap(), 1).divide(1e9);
        fine.merge(&recorded(Scheme::exp2(3).unwrap(), 1).divide(1e9)).unwrap();
        let coarse = recorded(Scheme::exp2(3).unwrap(), 1);
        assert_eq!(*fine.scheme(), coarse.scheme().divide(1e9));
        assert_eq!(fine.positive().indexes(), coarse.positive().indexes());
        // Milliseconds as seconds are no nanoseconds as seconds.
        let ms = recorded(Scheme::LogLinear10, 1).divide(1e3);
        assert!(recorded(Scheme::LogLinear10, 1).divide(1e9).merge(&ms).is_err());
    }

    #[test]
    fn explicit_bounds_stay_bounds_in_another_unit() {
        let bounds = [0.0, 5.0, 10.0, 2500.0];
        let Scheme::Explicit(seconds) = Scheme::explicit(&bounds).unwrap().divide(1e3) else {
            panic!("explicit bounds are no longer explicit");
        };
        assert_eq!(seconds.bounds(), [0.0, 0.005, 0.01, 2.5]);
        // Bounds that would become equal stay apart.
        let close = Scheme::explicit(&[1.0, 1f64.next_up()]).unwrap().divide(1e9);
        assert!(close.edges(1).unwrap().0 < close.edges(1).unwrap().1);
    }
}
