//! Bucket schemes of the supported histogram families.
//!
//! A scheme maps a value to an `i32` index and an index to the smallest and largest double of its
//! bucket. These two are closed bounds whichever edge the source format leaves open, so that
//! callers need not distinguish `(lo, hi]` from `[lo, hi)`. Grids of magnitudes have a mirror image
//! for negative values.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]
// `wrapping_` methods, here and in the modules below: an index is an `i32` and is computed in 64
// bits, the exponent of a double has 11 bits, and the parameters of a grid are bounded by its
// constructor. They are the instructions of `+` and `-` in a release build.

mod bounds;
mod exp2;
mod explicit;
mod integers;
mod log;
mod log_linear10;
mod log_linear2;
mod scaled;

pub use exp2::Exp2;
pub use explicit::Explicit;
pub use integers::Integers;
pub use log::{Interpolation, Logarithmic};
pub use log_linear2::LogLinear2;
pub use scaled::ScaledGrid;

pub(crate) use log_linear2::times_power_of_two;

use crate::error::SchemeError;

/// A bucket layout: a family with its parameters. The buckets themselves are its grid.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scheme {
    /// Base-2 exponential: OTLP exponential, Prometheus native.
    Exp2(Exp2),
    /// Base-2 log-linear: HdrHistogram, H2, BPF.
    LogLinear2(LogLinear2),
    /// Base-10 log-linear with two digits: circllhist.
    LogLinear10,
    /// Logarithmic: DDSketch.
    Logarithmic(Logarithmic),
    /// User-defined bounds: classic Prometheus, OTLP explicit, Prometheus custom buckets.
    Explicit(Explicit),
    /// Another scheme in another unit, see [`Scheme::divide`].
    Scaled(ScaledGrid),
}

/// Bucket class and index of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketPosition {
    /// Positive bucket with this index.
    Positive(i32),
    /// Negative bucket with this index.
    Negative(i32),
    /// Within the zero threshold.
    Zero,
    /// Above the largest bucket.
    Overflow,
    /// Below the smallest bucket.
    Underflow,
    /// Not a number.
    Nan,
}

impl Default for Scheme {
    fn default() -> Scheme {
        Scheme::Exp2(Exp2::DEFAULT)
    }
}

impl Scheme {
    /// Base-2 exponential of a scale, −10..=8.
    pub fn exp2(scale: i32) -> Result<Scheme, SchemeError> {
        Exp2::new(scale).map(Scheme::Exp2)
    }

    /// Base-2 log-linear over all doubles, 0..=18 sub-bits.
    pub fn log_linear2(bits: u32) -> Result<Scheme, SchemeError> {
        LogLinear2::new(bits).map(Scheme::LogLinear2)
    }

    /// Logarithmic with relative accuracy 0 < `accuracy` < 1.
    pub fn log(accuracy: f64) -> Result<Scheme, SchemeError> {
        Logarithmic::new((1.0 + accuracy) / (1.0 - accuracy), 0.0, Interpolation::None)
            .map(Scheme::Logarithmic)
    }

    /// Explicit upper bounds.
    pub fn explicit(bounds: &[f64]) -> Result<Scheme, SchemeError> {
        Explicit::new(bounds).map(Scheme::Explicit)
    }

    /// Maximum relative error of a value read back from its bucket; `None` if it is unbounded. If
    /// the grid has a floor, the error holds above it.
    pub fn relative_error(&self) -> Option<f64> {
        match self {
            Scheme::Exp2(grid) => Some(grid.relative_error()),
            Scheme::LogLinear2(grid) => Some(grid.relative_error()),
            Scheme::LogLinear10 => Some(log_linear10::RELATIVE_ERROR),
            Scheme::Logarithmic(grid) => Some(grid.relative_error()),
            Scheme::Scaled(grid) => grid.base().relative_error(),
            Scheme::Explicit(_) => None,
        }
    }

    /// The [`Scheme::LogLinear10`] index of a bucket, from its two digits (10..=99) and the power
    /// of ten of the first digit (−128..=127).
    pub fn index_of_digits(digits: i32, exponent: i32) -> i32 {
        log_linear10::index_of(digits, exponent)
    }

    /// The two digits and the exponent of a [`Scheme::LogLinear10`] bucket.
    pub fn digits_and_exponent(index: i32) -> (i32, i32) {
        log_linear10::digits_and_exponent(index)
    }

    /// Position of a value. Values within `±zero_threshold` are zero, except on a grid whose own
    /// buckets reach zero or extend across it.
    #[inline]
    pub fn position(&self, value: f64, zero_threshold: f64) -> BucketPosition {
        if value.is_nan() {
            return BucketPosition::Nan;
        }
        if let Scheme::Explicit(grid) = self {
            return BucketPosition::Positive(grid.index(value));
        }
        let magnitude = value.abs();
        // A value outside the grid stays there, however wide zero is: a merge could not distinguish
        // it.
        if magnitude <= zero_threshold && magnitude < self.end() {
            let in_bucket = zero_threshold == 0.0 && self.has_bucket_at_zero();
            return if in_bucket { BucketPosition::Positive(0) } else { BucketPosition::Zero };
        }
        let index = match self {
            _ if magnitude.is_infinite() => None,
            Scheme::Exp2(grid) => Some(grid.index(magnitude)),
            Scheme::LogLinear2(grid) => Some(grid.index(magnitude)),
            Scheme::LogLinear10 if magnitude < log_linear10::MIN_MAGNITUDE => {
                return BucketPosition::Zero;
            }
            Scheme::LogLinear10 => {
                (magnitude < log_linear10::END).then(|| log_linear10::index(magnitude))
            }
            Scheme::Logarithmic(grid) => Some(grid.index(magnitude)),
            Scheme::Scaled(grid) => match grid.position(magnitude) {
                BucketPosition::Positive(index) => Some(index),
                BucketPosition::Overflow => None,
                other => return other,
            },
            Scheme::Explicit(_) => unreachable!("handled above"),
        };
        match (index, value >= 0.0) {
            (Some(index), true) => BucketPosition::Positive(index),
            (Some(index), false) => BucketPosition::Negative(index),
            (None, true) => BucketPosition::Overflow,
            (None, false) => BucketPosition::Underflow,
        }
    }

    /// HdrHistogram's integers: index 0 is the bucket of zero.
    pub(crate) fn has_bucket_at_zero(&self) -> bool {
        matches!(self.family(), Scheme::LogLinear2(grid) if *grid != LogLinear2::UNIVERSAL && grid.floor() != LogLinear2::FLOOR_MIN)
    }

    /// The edges of positive bucket `index` as the source format defines them; `None` if the bucket
    /// contains no double. Which edge is open depends on the family: [`Self::span`] is closed for
    /// all.
    #[inline]
    pub fn edges(&self, index: i32) -> Option<(f64, f64)> {
        match self {
            Scheme::Exp2(grid) => grid.edges(index),
            Scheme::LogLinear2(grid) => grid.edges(index),
            Scheme::LogLinear10 => log_linear10::edges(index),
            Scheme::Logarithmic(grid) => grid.edges(index),
            Scheme::Explicit(grid) => grid.edges(index),
            Scheme::Scaled(grid) => grid.base().edges(index).map(|ends| grid.divide(ends)),
        }
    }

    /// The smallest and largest value of positive bucket `index`, both closed; `None` if the bucket
    /// contains no double. Logarithmic buckets, whose edges are rounded differently by each
    /// library, are widened by about 1e-12 and overlap slightly.
    #[inline]
    pub fn span(&self, index: i32) -> Option<(f64, f64)> {
        match self {
            Scheme::Logarithmic(grid) => return grid.span(index),
            // The quotients of the smallest and largest value are those of the bucket.
            Scheme::Scaled(grid) => return grid.base().span(index).map(|ends| grid.divide(ends)),
            _ => {}
        }
        let (lower, upper) = self.edges(index)?;
        Some(match self {
            Scheme::Exp2(_) => (lower.next_up(), upper),
            Scheme::Explicit(_) if lower.is_infinite() => (lower, upper),
            Scheme::Explicit(_) => (lower.next_up(), upper),
            Scheme::LogLinear2(_) | Scheme::LogLinear10 => (lower, upper.next_down()),
            Scheme::Logarithmic(_) | Scheme::Scaled(_) => unreachable!("handled above"),
        })
    }

    /// Whether negative values have their own buckets, as the mirror image of the positive ones.
    pub fn is_mirrored(&self) -> bool {
        !matches!(self, Scheme::Explicit(_))
    }

    /// Start of the overflow range; infinity if every finite value has a bucket.
    pub(crate) fn end(&self) -> f64 {
        match self {
            Scheme::LogLinear10 => log_linear10::END,
            Scheme::Scaled(grid) => grid.base().end() / grid.divisor(),
            _ => f64::INFINITY,
        }
    }

    /// Largest magnitude that is counted as zero.
    pub(crate) fn zero_end(&self, zero_threshold: f64) -> f64 {
        match self {
            Scheme::LogLinear10 => zero_threshold.max(log_linear10::MIN_MAGNITUDE.next_down()),
            Scheme::Scaled(grid) => zero_threshold.max(grid.base().zero_end(0.0) / grid.divisor()),
            _ => zero_threshold,
        }
    }

    /// Whether the bounds of its buckets were chosen one by one.
    pub fn is_explicit(&self) -> bool {
        matches!(self, Scheme::Explicit(_))
    }

    /// The finest scheme to which histograms of both schemes can be downscaled, if there is one.
    pub fn common(&self, other: &Scheme) -> Option<Scheme> {
        if self == other {
            return Some(self.clone());
        }
        match (self, other) {
            (Scheme::Exp2(a), Scheme::Exp2(b)) => {
                Some(Scheme::Exp2(if a.scale() < b.scale() { *a } else { *b }))
            }
            (Scheme::LogLinear2(a), Scheme::LogLinear2(b)) => a.common(*b).map(Scheme::LogLinear2),
            (Scheme::Explicit(a), Scheme::Explicit(b)) => a.common(b).map(Scheme::Explicit),
            (Scheme::Scaled(a), Scheme::Scaled(b)) => a.common(b),
            _ => None,
        }
    }

    /// Index in `coarser`, a scheme returned by [`Self::common`], of the bucket that contains
    /// bucket `index` of this scheme.
    pub(crate) fn coarser_index(&self, index: i32, coarser: &Scheme) -> i32 {
        match (self, coarser) {
            (Scheme::Exp2(from), Scheme::Exp2(to)) => {
                index >> from.scale().wrapping_sub(to.scale())
            }
            (Scheme::Scaled(from), Scheme::Scaled(to)) => {
                from.base().coarser_index(index, to.base())
            }
            _ => {
                let position = self.span(index).map(|(first, last)| {
                    coarser.position(if first.is_finite() { first } else { last }, -1.0)
                });
                match position {
                    Some(BucketPosition::Positive(index)) => index,
                    position => {
                        panic!("BUG: bucket {index} of {self:?} is in {position:?} of {coarser:?}")
                    }
                }
            }
        }
    }
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scheme::Exp2(grid) => write!(f, "exp2 scale {}", grid.scale()),
            Scheme::LogLinear2(grid) if grid.floor() == LogLinear2::FLOOR_MIN => {
                write!(f, "log-linear base 2, {} bits", grid.bits())
            }
            Scheme::LogLinear2(grid) => {
                write!(f, "log-linear base 2, {} bits, even below 2^{}", grid.bits(), grid.floor())
            }
            Scheme::LogLinear10 => write!(f, "log-linear base 10, two digits"),
            Scheme::Logarithmic(grid) => write!(f, "logarithmic gamma {}", grid.gamma()),
            Scheme::Explicit(grid) => write!(f, "{} explicit bounds", grid.bounds().len()),
            Scheme::Scaled(grid) => write!(f, "{} / {}", grid.base(), grid.divisor()),
        }
    }
}
