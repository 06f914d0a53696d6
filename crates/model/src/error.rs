//! Errors in received data.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What was refused, and why. The sender is to blame, or what changed the bytes on their way.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shorter than it says.
    #[error("{field} at byte {offset} ends early")]
    Truncated {
        /// Where the field begins.
        offset: usize,
        /// Which.
        field: &'static str,
    },
    /// Something else was expected.
    #[error("{field} at byte {offset} is {found}, expected {expected}")]
    Invalid {
        /// Where the field begins.
        offset: usize,
        /// Which.
        field: &'static str,
        /// What was there.
        found: String,
        /// What may be there.
        expected: &'static str,
    },
    /// A part of a series is empty or larger than it may be.
    #[error("{part} has {found} {unit}, allowed are {min} to {max}")]
    Size {
        /// Which part.
        part: &'static str,
        /// Its size.
        found: usize,
        /// The least.
        min: usize,
        /// The most.
        max: usize,
        /// What is counted.
        unit: &'static str,
    },
    /// Two labels of one name.
    #[error("label \"{name}\" is given twice")]
    DuplicateLabel {
        /// The name.
        name: String,
    },
    /// A sample that ends before it begins.
    #[error("a sample of {series} begins at {start} ns and ends at {end} ns, before it begins")]
    NegativeInterval {
        /// Whose.
        series: String,
        /// When it begins.
        start: i64,
        /// When it ends.
        end: i64,
    },
    /// A sample whose value is not of the series' kind.
    #[error("{series} holds {kind}, not {found}")]
    Kind {
        /// Whose.
        series: String,
        /// What the series holds.
        kind: &'static str,
        /// What the value is.
        found: &'static str,
    },
    /// A histogram that counts more than is taken.
    #[error(
        "a histogram of {series} counts {count} values, at most {max} are taken; the sender multiplies them"
    )]
    HistogramTooLarge {
        /// Whose.
        series: String,
        /// How many values, those that are no number among them.
        count: u128,
        /// The most.
        max: u64,
    },
    /// A histogram that cannot be read.
    #[error("histogram at byte {offset}: {source}")]
    Histogram {
        /// Where it begins.
        offset: usize,
        /// Why not.
        source: hist::DecodeError,
    },
    /// A series is named by its number only, and its form is not known.
    #[error("series {id} is named by its number only, and its form is not known here")]
    UnknownSeries {
        /// The number.
        id: crate::SeriesId,
    },
    /// A new series is beyond a limit of the store: its samples are not taken.
    #[error("{reason}")]
    SeriesLimit {
        /// Which limit, and what to do.
        reason: String,
    },
}
