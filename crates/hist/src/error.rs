//! Error types.

use crate::histogram::PartsError;
use crate::scheme::{Exp2, Explicit, LogLinear2, LogarithmicScheme, Scheme};

/// A scheme's parameter is out of range: the caller, or the bytes it came from, is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// No exponential grid has this scale.
    #[error("exponential scale {found} is outside {}..={}", Exp2::SCALE_MIN, Exp2::SCALE_MAX)]
    Scale {
        /// The scale asked for.
        found: i32,
    },
    /// Folding makes buckets coarser, never finer, and only exponential ones have a scale.
    #[error("cannot fold {scheme} to scale {found}: it is finer, or the grid has no scale")]
    NotCoarser {
        /// The scale asked for.
        found: i32,
        /// The grid to be folded.
        scheme: Box<Scheme>,
    },
    /// No log-linear grid has this many sub-bits.
    #[error("{found} sub-bits are outside 0..={}", LogLinear2::BITS_MAX)]
    Bits {
        /// The sub-bits asked for.
        found: u32,
    },
    /// The linear part of a log-linear grid cannot end there.
    #[error(
        "log-linear floor 2^{found} is outside 2^{}..=2^{}",
        LogLinear2::FLOOR_MIN,
        LogLinear2::FLOOR_MAX
    )]
    Floor {
        /// The exponent asked for.
        found: i32,
    },
    /// Not the ratio of two bucket edges.
    #[error("gamma {found} is outside 1.000001..=1000000")]
    Gamma {
        /// The gamma asked for.
        found: f64,
    },
    /// An index offset that leaves no distinct indexes.
    #[error("index offset {found} is outside ±{:e}", LogarithmicScheme::OFFSET_MAX)]
    Offset {
        /// The offset asked for.
        found: f64,
    },
    /// A bound that is not finite or not above the one before it.
    #[error("bound {found} at position {position} is not finite or not above the bound before it")]
    Bound {
        /// Place in the list, from 0.
        position: usize,
        /// The offending bound.
        found: f64,
    },
    /// More bounds than a histogram may have.
    #[error("{found} bounds are more than {}", Explicit::BOUNDS_MAX)]
    TooManyBounds {
        /// How many there are.
        found: usize,
    },
}

/// Error merging or subtracting histograms.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// Their grids do not nest. A [`crate::Mixture`] keeps both.
    #[error("cannot fold {other} into {target}: their buckets do not nest; keep a mixture instead")]
    SchemesDiffer {
        /// The scheme merged into.
        target: Box<Scheme>,
        /// The scheme that does not fit.
        other: Box<Scheme>,
    },
    /// What is taken away has coarser buckets or a wider zero than what it is taken from.
    #[error(
        "cannot subtract {other} (zero within ±{other_zero}) from {target} (zero within \
         ±{target_zero}): what is taken away must be as fine; fold the other first"
    )]
    TooCoarse {
        /// The scheme subtracted from.
        target: Box<Scheme>,
        /// Its zero threshold.
        target_zero: f64,
        /// The scheme subtracted.
        other: Box<Scheme>,
        /// Its zero threshold.
        other_zero: f64,
    },
    /// The total no longer fits 64 bits.
    #[error("the merged count exceeds 2^64 - 1")]
    CountOverflow,
    /// What is taken away was never there.
    #[error("cannot subtract {subtracted} from {held} in the bucket that holds {value:e}")]
    NotContained {
        /// A value of the bucket.
        value: f64,
        /// How many the bucket holds.
        held: u64,
        /// How many were to be taken.
        subtracted: u64,
    },
}

/// Error decoding input.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early. More may be on the way.
    #[error("at byte {offset}: the input ends inside {field}")]
    Truncated {
        /// Where the field begins.
        offset: usize,
        /// What was being read.
        field: &'static str,
    },
    /// A field has a value its format does not allow.
    #[error("at byte {offset}: {field} is {found}, expected {expected}")]
    Invalid {
        /// Where the field begins.
        offset: usize,
        /// What was being read.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// More than a named limit allows.
    #[error("at byte {offset}: {field} is {found}, the limit is {limit}")]
    Limit {
        /// Where the field begins.
        offset: usize,
        /// What was being read.
        field: &'static str,
        /// How much there is.
        found: u64,
        /// How much may be.
        limit: u64,
    },
    /// A field of a decoded message contradicts its format or the other fields.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// The field, as its message names it.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What it may hold.
        expected: String,
    },
    /// The bytes were changed since they were written.
    #[error("checksum is {found:08x}, the bytes say {expected:08x}: damaged")]
    Checksum {
        /// Computed over the bytes.
        found: u32,
        /// Written in the bytes.
        expected: u32,
    },
    /// The scheme's parameters are impossible.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// Each field is possible, together they make no histogram.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// The counts do not fit together.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// Histogram not representable in the target format.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The format has buckets of another kind: [`crate::Histogram::convert`] says what moving them
    /// costs.
    #[error("{format} cannot hold {scheme} buckets: convert the histogram first")]
    Scheme {
        /// The format.
        format: &'static str,
        /// What the histogram has.
        scheme: Box<Scheme>,
    },
    /// The format has no place for something the histogram holds.
    #[error("{format} has no place for {detail}")]
    Unrepresentable {
        /// The format.
        format: &'static str,
        /// What would be lost.
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
    /// A format cannot hold the buckets of a scheme.
    pub fn scheme(format: &'static str, scheme: &Scheme) -> EncodeError {
        EncodeError::Scheme { format, scheme: Box::new(scheme.clone()) }
    }
}
