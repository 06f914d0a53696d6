//! Buckets with user-defined bounds: classic Prometheus and OTLP explicit histograms, and
//! Prometheus native histograms with custom buckets.
//!
//! n bounds define n + 1 buckets over the whole line: `(-inf, b0]`, `(b0, b1]`, … `(b(n-1), +inf]`.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::error::SchemeError;

/// Strictly ascending finite bounds; copies share them.
#[derive(Clone, Debug, PartialEq)]
pub struct Explicit {
    bounds: Arc<[f64]>,
}

/// Bounds are finite, and 0 has one sign: equal bounds have equal bits.
impl Eq for Explicit {}

impl Hash for Explicit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bounds.iter().for_each(|bound| bound.to_bits().hash(state));
    }
}

impl PartialOrd for Explicit {
    fn partial_cmp(&self, other: &Explicit) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By the first bound that differs, else by the number of bounds.
impl Ord for Explicit {
    fn cmp(&self, other: &Explicit) -> Ordering {
        if Arc::ptr_eq(&self.bounds, &other.bounds) {
            return Ordering::Equal;
        }
        let mut pairs = self.bounds.iter().zip(&*other.bounds).map(|(a, b)| a.total_cmp(b));
        let differing = pairs.find(|order| order.is_ne());
        differing.unwrap_or_else(|| self.bounds.len().cmp(&other.bounds.len()))
    }
}

impl Explicit {
    /// Maximum number of bounds of one histogram.
    pub const BOUNDS_MAX: usize = 100_000;

    /// Buckets between `bounds`, which must be finite and strictly ascending. Without bounds there
    /// is one bucket.
    pub fn new(bounds: &[f64]) -> Result<Explicit, SchemeError> {
        if bounds.len() > Self::BOUNDS_MAX {
            return Err(SchemeError::TooManyBounds { found: bounds.len() });
        }
        for (position, &bound) in bounds.iter().enumerate() {
            let previous = position.checked_sub(1).map(|previous| bounds[previous]);
            if !bound.is_finite() || previous.is_some_and(|previous| previous >= bound) {
                return Err(SchemeError::Bound { position, found: bound });
            }
        }
        // −0.0 and 0.0 are the same bound; only 0.0 is stored, so that equal bounds have equal
        // bytes.
        Ok(Explicit { bounds: bounds.iter().map(|&b| b + 0.0).collect() })
    }

    /// The upper bounds of all buckets except the last.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// The bucket of a value that is not NaN.
    pub(crate) fn index(&self, value: f64) -> i32 {
        self.bounds.partition_point(|&bound| bound < value) as i32
    }

    /// The edges of bucket `index`, which holds `(lower, upper]`; `None` if there is no such
    /// bucket.
    pub(crate) fn edges(&self, index: i32) -> Option<(f64, f64)> {
        let index = usize::try_from(index).ok().filter(|&i| i <= self.bounds.len())?;
        let lower = index.checked_sub(1).map_or(f64::NEG_INFINITY, |below| self.bounds[below]);
        let upper = self.bounds.get(index).copied().unwrap_or(f64::INFINITY);
        Some((lower, upper))
    }

    /// The bounds divided by a number. Bounds that rounding would make equal stay apart.
    pub(super) fn divide(&self, divisor: f64) -> Explicit {
        let mut previous = f64::NEG_INFINITY;
        let divided = |&bound: &f64| {
            // Small negative bounds become 0, which has one sign.
            previous = (bound / divisor).max(previous.next_up()) + 0.0;
            previous
        };
        Explicit { bounds: self.bounds.iter().map(divided).collect() }
    }

    /// The common bounds; `None` if there are none, because all resolution would be lost.
    pub(crate) fn common(&self, other: &Explicit) -> Option<Explicit> {
        let bounds: Arc<[f64]> = self
            .bounds
            .iter()
            .copied()
            .filter(|bound| other.bounds.binary_search_by(|b| b.total_cmp(bound)).is_ok())
            .collect();
        (!bounds.is_empty()).then_some(Explicit { bounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bounds: &[f64], value: f64, index: i32) {
        let grid = Explicit::new(bounds).unwrap();
        assert_eq!(grid.index(value), index, "value {value}");
        let (lower, upper) = grid.edges(index).unwrap();
        assert!((lower < value || index == 0) && value <= upper);
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below() {
        check(&[1.0, 2.0], f64::NEG_INFINITY, 0);
        check(&[1.0, 2.0], 1.0, 0);
        check(&[1.0, 2.0], 1f64.next_up(), 1);
        check(&[1.0, 2.0], 2.0, 1);
        check(&[1.0, 2.0], 3.0, 2);
        check(&[1.0, 2.0], f64::INFINITY, 2);
        check(&[], 3.0, 0);
        check(&[-0.0], 0.0, 0);
    }

    #[test]
    fn bad_bounds_are_named() {
        for bounds in [&[1.0, 1.0][..], &[2.0, 1.0], &[f64::NAN], &[1.0, f64::INFINITY]] {
            assert!(Explicit::new(bounds).is_err(), "{bounds:?}");
        }
    }

    #[test]
    fn common_bounds() {
        let a = Explicit::new(&[1.0, 2.0, 3.0]).unwrap();
        let b = Explicit::new(&[0.5, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(a.common(&b).unwrap().bounds(), [2.0, 3.0]);
        assert_eq!(a.common(&Explicit::new(&[9.0]).unwrap()), None);
    }
}
