//! Error types.

use crate::histogram::PartsError;
use crate::scheme::{Exp2, Explicit, LogLinear2, Logarithmic, Scheme};

/// A scheme parameter is out of range: the caller, or the source of the bytes, is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// The scale of the exponential grid is out of range.
    #[error("exponential scale {found} is outside {}..={}", Exp2::SCALE_MIN, Exp2::SCALE_MAX)]
    Scale {
        /// Requested scale.
        found: i32,
    },
    /// Downscaling makes buckets coarser, never finer, and only exponential grids have a scale.
    #[error("cannot downscale {scheme} to scale {found}: it is finer, or the grid has no scale")]
    NotCoarser {
        /// Requested scale.
        found: i32,
        /// Grid to downscale.
        scheme: Box<Scheme>,
    },
    /// The number of sub-bits of the log-linear grid is out of range.
    #[error("{found} sub-bits are outside 0..={}", LogLinear2::BITS_MAX)]
    Bits {
        /// Requested number of sub-bits.
        found: u32,
    },
    /// The end of the linear part of the log-linear grid is out of range.
    #[error(
        "log-linear floor 2^{found} is outside 2^{}..=2^{}",
        LogLinear2::FLOOR_MIN,
        LogLinear2::FLOOR_MAX
    )]
    Floor {
        /// Requested exponent.
        found: i32,
    },
    /// Gamma is not a valid ratio of two bucket edges.
    #[error("gamma {found} is outside 1.000001..=1000000")]
    Gamma {
        /// Requested gamma.
        found: f64,
    },
    /// The index offset is so large that indexes are no longer distinct.
    #[error("index offset {found} is outside ±{:e}", Logarithmic::OFFSET_MAX)]
    Offset {
        /// Requested offset.
        found: f64,
    },
    /// A bound is not finite or not above the previous bound.
    #[error(
        "invalid bound {found} at position {position}: not finite or not above the previous bound"
    )]
    Bound {
        /// Index of the bound, from 0.
        position: usize,
        /// The invalid bound.
        found: f64,
    },
    /// The number of bounds exceeds the limit of a histogram.
    #[error("{found} bounds exceed the limit of {}", Explicit::BOUNDS_MAX)]
    TooManyBounds {
        /// Number of bounds.
        found: usize,
    },
}

/// Error merging or subtracting histograms.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The grids do not nest. A [`crate::Mixture`] keeps both.
    #[error(
        "cannot merge or subtract {other} and {target}: the buckets do not nest; use a mixture"
    )]
    SchemesDiffer {
        /// Scheme of the target.
        target: Box<Scheme>,
        /// Scheme that does not nest.
        other: Box<Scheme>,
    },
    /// The subtrahend has coarser buckets or a wider zero bucket than the minuend.
    #[error(
        "cannot subtract {other} (zero within ±{other_zero}) from {target} (zero within \
         ±{target_zero}): the subtracted histogram is coarser; downscale the other one first"
    )]
    TooCoarse {
        /// Scheme of the minuend.
        target: Box<Scheme>,
        /// Zero threshold of the minuend.
        target_zero: f64,
        /// Scheme of the subtrahend.
        other: Box<Scheme>,
        /// Zero threshold of the subtrahend.
        other_zero: f64,
    },
    /// The total exceeds 64 bits.
    #[error("the merged count exceeds 2^64 - 1")]
    CountOverflow,
    /// A bucket has fewer values than are subtracted.
    #[error("cannot subtract {subtracted} from {count} in the bucket of {value:e}")]
    NotContained {
        /// A value of the bucket.
        value: f64,
        /// Count of the bucket.
        count: u64,
        /// Count to subtract.
        subtracted: u64,
    },
}

/// Error decoding input.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early; more may follow.
    #[error("at byte {offset}: the input ends inside {field}")]
    Truncated {
        /// Offset of the field.
        offset: usize,
        /// Field that was read.
        field: &'static str,
    },
    /// A field has a value that its format does not allow.
    #[error("at byte {offset}: {field} is {found}, expected {expected}")]
    Invalid {
        /// Offset of the field.
        offset: usize,
        /// Field that was read.
        field: &'static str,
        /// Value found.
        found: String,
        /// Values allowed.
        expected: &'static str,
    },
    /// A value exceeds a named limit.
    #[error("at byte {offset}: {field} is {found}, the limit is {limit}")]
    Limit {
        /// Offset of the field.
        offset: usize,
        /// Field that was read.
        field: &'static str,
        /// Value found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A field of a decoded message contradicts its format or another field.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Name of the field in its format.
        field: &'static str,
        /// Value found.
        found: String,
        /// Value expected.
        expected: String,
    },
    /// The bytes were changed after they were written.
    #[error("checksum mismatch: computed {found:08x}, stored {expected:08x}")]
    Checksum {
        /// Checksum computed over the bytes.
        found: u32,
        /// Checksum stored in the bytes.
        expected: u32,
    },
    /// The scheme's parameters are invalid.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// Each field is valid, but together they do not form a histogram.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// The counts cannot be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// Histogram not representable in the target format.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The format has another kind of buckets. [`crate::Histogram::convert`] returns the error of a
    /// conversion.
    #[error("{format} cannot represent {scheme} buckets; convert the histogram first")]
    Scheme {
        /// Name of the format.
        format: &'static str,
        /// Scheme of the histogram.
        scheme: Box<Scheme>,
    },
    /// The format cannot represent a part of the histogram.
    #[error("{format} cannot represent {detail}")]
    Unrepresentable {
        /// Name of the format.
        format: &'static str,
        /// The part that would be lost.
        detail: String,
    },
}

impl MergeError {
    pub(crate) fn schemes_differ(ours: &Scheme, theirs: &Scheme) -> MergeError {
        let (ours, theirs) = (Box::new(ours.clone()), Box::new(theirs.clone()));
        MergeError::SchemesDiffer { target: ours, other: theirs }
    }
}

impl EncodeError {
    /// Error for a format that cannot represent the buckets of a scheme.
    pub fn scheme(format: &'static str, scheme: &Scheme) -> EncodeError {
        EncodeError::Scheme { format, scheme: Box::new(scheme.clone()) }
    }
}
