//! Errors in received data.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why received data was rejected. The sender or the transport is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input ends inside a field.
    #[error("{field} at byte {offset} is truncated")]
    Truncated {
        /// Byte offset of the field.
        offset: usize,
        /// Name of the field.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("{field} at byte {offset} is {found}, expected {expected}")]
    Invalid {
        /// Byte offset of the field.
        offset: usize,
        /// Name of the field.
        field: &'static str,
        /// Actual value.
        found: String,
        /// Expected value.
        expected: &'static str,
    },
    /// A part of a series is empty or exceeds its limit.
    #[error("invalid {part}: {found} {unit}, allowed {min} to {max}")]
    Size {
        /// Name of the part.
        part: &'static str,
        /// Its size.
        found: usize,
        /// Minimum size.
        min: usize,
        /// Maximum size.
        max: usize,
        /// Unit of the sizes.
        unit: &'static str,
    },
    /// A label name occurs twice.
    #[error("duplicate label \"{name}\"")]
    DuplicateLabel {
        /// The label name.
        name: String,
    },
    /// A sample that ends before its start.
    #[error("invalid sample of {series}: start {start} ns is after end {end} ns")]
    NegativeInterval {
        /// Name of the series.
        series: String,
        /// Start, in nanoseconds since the Unix epoch.
        start: i64,
        /// End, in nanoseconds since the Unix epoch.
        end: i64,
    },
    /// A value of another kind than its series.
    #[error("cannot add {found} to {series}: its kind is {kind}")]
    Kind {
        /// Name of the series.
        series: String,
        /// Kind of the series.
        kind: &'static str,
        /// Kind of the value.
        found: &'static str,
    },
    /// A histogram whose count exceeds the limit.
    #[error("histogram of {series} has count {count}, limit {max}; the sender multiplies values")]
    HistogramTooLarge {
        /// Name of the series.
        series: String,
        /// Count of the histogram, NaN values included.
        count: u128,
        /// The limit.
        max: u64,
    },
    /// A histogram whose number of buckets of one sign exceeds the limit.
    #[error(
        "histogram of {series} has {buckets} buckets, limit {max}; record it with a lower \
         resolution"
    )]
    HistogramTooManyBuckets {
        /// Name of the series.
        series: String,
        /// Number of positive or of negative buckets.
        buckets: u64,
        /// The limit.
        max: u64,
    },
    /// A histogram that cannot be decoded.
    #[error("invalid histogram at byte {offset}: {source}")]
    Histogram {
        /// Byte offset of the histogram.
        offset: usize,
        /// Cause.
        source: hist::DecodeError,
    },
    /// A series ID without a known canonical key.
    #[error("unknown series {id}: its canonical key was not sent")]
    UnknownSeries {
        /// The ID.
        id: crate::SeriesId,
    },
    /// A new series exceeds a limit of the store: its samples are rejected.
    #[error("{reason}")]
    SeriesLimit {
        /// The limit, and the remedy.
        reason: String,
    },
}
