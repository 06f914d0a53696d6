//! The logarithmic grid of DDSketch, with the index mappings of its Java and Go libraries.
//!
//! Bucket `i` holds `[L⁻¹((i − offset) / m), L⁻¹((i + 1 − offset) / m))`, where `L` is the natural
//! logarithm or a cheaper approximation that is exact at powers of two, and `m = ln(b) / ln(gamma)`
//! with the base b of `L` (DataDog sketches-java, `LogLikeIndexMapping`). Approximations divide an
//! octave by a polynomial of the mantissa. Below index 0, a value on the computed lower edge of a
//! bucket is counted in the bucket below, as in sketches-java.
//!
//! Edges are transcendental and each library rounds them differently, so a value may lie outside
//! the computed edges of its bucket by the relative amount in [`Logarithmic::span`].

use crate::error::SchemeError;

/// Maximum relative distance of a recorded value from the computed edges, if no offset shifts the
/// index: several roundings of the largest logarithm, 745.
const EDGE_ERROR: f64 = 1e-12;

/// Approximation of the logarithm between powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Exact logarithm.
    None,
    /// Linear.
    Linear,
    /// Quadratic.
    Quadratic,
    /// Cubic.
    Cubic,
}

/// A logarithmic grid.
#[derive(Clone, Copy, Debug)]
pub struct Logarithmic {
    gamma: f64,
    offset: f64,
    interpolation: Interpolation,
}

/// Grids are equal if their parameters are equal to the bit.
impl PartialEq for Logarithmic {
    fn eq(&self, other: &Logarithmic) -> bool {
        self.gamma.to_bits() == other.gamma.to_bits()
            && self.offset.to_bits() == other.offset.to_bits()
            && self.interpolation == other.interpolation
    }
}

impl Logarithmic {
    /// Maximum index offset: beyond it neighbouring indexes are no longer distinct as doubles.
    pub(crate) const OFFSET_MAX: f64 = 1e9;

    /// A grid whose bucket edges have the ratio `gamma`: `gamma = (1 + a) / (1 - a)` for accuracy
    /// `a`.
    pub fn new(
        gamma: f64,
        offset: f64,
        interpolation: Interpolation,
    ) -> Result<Logarithmic, SchemeError> {
        // Below 1 + 1e-6 the index of a double does not fit 31 bits.
        if !(gamma > 1.0 + 1e-6 && gamma <= 1e6) {
            return Err(SchemeError::Gamma { found: gamma });
        }
        if !(-Self::OFFSET_MAX..=Self::OFFSET_MAX).contains(&offset) {
            return Err(SchemeError::Offset { found: offset });
        }
        // Only 0.0 is stored, as for explicit bounds: protobuf treats −0.0 as 0.0.
        Ok(Logarithmic { gamma, offset: offset + 0.0, interpolation })
    }

    /// Ratio of a bucket's edges.
    pub fn gamma(self) -> f64 {
        self.gamma
    }

    /// Offset added to every index.
    pub fn offset(self) -> f64 {
        self.offset
    }

    /// Approximation of the logarithm.
    pub fn interpolation(self) -> Interpolation {
        self.interpolation
    }

    /// The bucket of a finite `value` above zero.
    pub(crate) fn index(self, value: f64) -> i32 {
        let index = self.interpolation.log(value) * self.multiplier() + self.offset;
        // Not exactly the floor: a negative whole number goes one lower, as in sketches-java and
        // sketches-go.
        if index >= 0.0 { index as i32 } else { (index as i32).saturating_sub(1) }
    }

    /// The computed edges of bucket `index`; `None` if it contains no double. Below 1e-300 doubles
    /// are sparser than buckets, and both edges may be equal.
    pub(crate) fn edges(self, index: i32) -> Option<(f64, f64)> {
        let by = self.interpolation;
        let log = |i: f64| (i - self.offset) / self.multiplier();
        let (from, to) = (log(f64::from(index)), log(f64::from(index) + 1.0));
        let (least, greatest) = (by.log(f64::from_bits(1)), by.log(f64::MAX));
        let uncertainty = 745.0 * self.edge_error();
        if to < least - uncertainty || from > greatest + uncertainty {
            return None;
        }
        let edge = |log: f64| by.exp(log.min(greatest)).min(f64::MAX);
        Some((edge(from), edge(to)))
    }

    /// The smallest and largest value of bucket `index`, closed.
    pub(crate) fn span(self, index: i32) -> Option<(f64, f64)> {
        let (lower, upper) = self.edges(index)?;
        let uncertainty = self.edge_error();
        // For subnormal numbers, a rounding is the smallest step, independent of the value.
        let step = f64::from_bits(2);
        Some((
            (lower * (1.0 - uncertainty) - step).max(0.0),
            (upper * (1.0 + uncertainty) + step).min(f64::MAX),
        ))
    }

    /// Maximum relative distance of a recorded value from the computed edges. With an offset,
    /// rounding is relative to the index.
    fn edge_error(self) -> f64 {
        EDGE_ERROR + 4.0 * f64::EPSILON * self.offset.abs() * self.gamma.ln()
    }

    fn multiplier(self) -> f64 {
        let base =
            if self.interpolation == Interpolation::None { 1.0 } else { std::f64::consts::LN_2 };
        base / (self.gamma - 1.0).ln_1p()
    }

    /// Maximum relative error of a value read back from its bucket.
    pub fn relative_error(self) -> f64 {
        // The slope of an approximation differs from that of the logarithm, which widens some
        // buckets by this factor (Masson, Rim, Lee: DDSketch, and the `correctingFactor` of
        // sketches-java).
        let widest = match self.interpolation {
            Interpolation::None => 1.0,
            Interpolation::Linear => 1.0 / std::f64::consts::LN_2,
            Interpolation::Quadratic => 3.0 / (4.0 * std::f64::consts::LN_2),
            Interpolation::Cubic => 7.0 / (10.0 * std::f64::consts::LN_2),
        };
        let ratio = (self.gamma.ln() * widest).exp();
        (ratio - 1.0) / (ratio + 1.0)
    }
}

impl Interpolation {
    /// The logarithm, zero at one: natural, or base 2 if interpolated.
    fn log(self, value: f64) -> f64 {
        if self == Interpolation::None {
            return value.ln();
        }
        let (exponent, s) = split(value);
        exponent
            + match self {
                Interpolation::None => unreachable!("handled above"),
                Interpolation::Linear => s,
                Interpolation::Quadratic => s * (4.0 - s) / 3.0,
                Interpolation::Cubic => ((6.0 / 35.0 * s - 0.6) * s + 10.0 / 7.0) * s,
            }
    }

    /// The inverse of [`Self::log`].
    fn exp(self, log: f64) -> f64 {
        if self == Interpolation::None {
            return log.exp();
        }
        let exponent = log.floor();
        let part = log - exponent;
        let s = match self {
            Interpolation::None => unreachable!("handled above"),
            Interpolation::Linear => part,
            Interpolation::Quadratic => 2.0 - (4.0 - 3.0 * part).sqrt(),
            Interpolation::Cubic => bisect(part, |s| ((6.0 / 35.0 * s - 0.6) * s + 10.0 / 7.0) * s),
        };
        // In two steps: below 2^-1022 the power of two alone may underflow although its multiple
        // does not.
        let half = (exponent * 0.5).floor();
        (1.0 + s) * half.exp2() * (exponent - half).exp2()
    }
}

/// Argument in [0, 1] at which the increasing function `f` reaches `target`.
fn bisect(target: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if f(middle) <= target {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Exponent and mantissa − 1 of a positive double, including subnormal ones.
fn split(value: f64) -> (f64, f64) {
    let (value, shift) =
        if value < f64::MIN_POSITIVE { (value * 2f64.powi(54), 54.0) } else { (value, 0.0) };
    let bits = value.to_bits();
    let exponent = (bits >> 52) as f64 - 1023.0 - shift;
    (exponent, f64::from_bits((bits & ((1 << 52) - 1)) | 1f64.to_bits()) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(grid: Logarithmic) {
        let mut value = 1e-9;
        while value < 1e15 {
            let (lower, upper) = grid.span(grid.index(value)).unwrap();
            assert!(
                lower <= value && value <= upper,
                "{grid:?}: {value:e} in [{lower:e}, {upper:e}]"
            );
            assert!((upper - lower) / (upper + lower) <= grid.relative_error() * 1.000001 + 1e-11);
            value *= 1.0137;
        }
    }

    #[test]
    fn values_lie_in_their_bucket() {
        for interpolation in [
            Interpolation::None,
            Interpolation::Linear,
            Interpolation::Quadratic,
            Interpolation::Cubic,
        ] {
            for gamma in [1.001, 1.02 / 0.98, 1.1, 2.0] {
                check(Logarithmic::new(gamma, 0.0, interpolation).unwrap());
                check(Logarithmic::new(gamma, 1000.5, interpolation).unwrap());
            }
        }
    }

    #[test]
    fn a_value_on_an_edge_below_index_zero_falls_beneath() {
        let grid = Logarithmic::new(2.0, 0.0, Interpolation::Linear).unwrap();
        // sketches-go 1.4.8 counts 0.25, 0.5, 1, 2 in these buckets
        // (testdata/hist/ddsketch/go.tsv).
        assert_eq!([0.25, 0.5, 1.0, 2.0].map(|value| grid.index(value)), [-3, -2, 0, 1]);
        assert_eq!([0.3, 0.6].map(|value| grid.index(value)), [-2, -1]);
    }

    #[test]
    fn an_offset_of_negative_zero_is_an_offset_of_zero() {
        let grid = |offset| Logarithmic::new(2.0, offset, Interpolation::Cubic);
        assert_eq!(grid(-0.0), grid(0.0));
    }

    #[test]
    fn bad_parameters_are_rejected() {
        for gamma in [1.0, 0.5, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Logarithmic::new(gamma, 0.0, Interpolation::None).is_err(), "gamma {gamma}");
        }
        for offset in [f64::NAN, f64::INFINITY, 1e10] {
            assert!(
                Logarithmic::new(1.02, offset, Interpolation::None).is_err(),
                "offset {offset}"
            );
        }
    }
}
