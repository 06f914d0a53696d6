//! MMV errors.

use super::{COUNT_MAX, LABELS_MAX, SECTIONS_MAX, TEXT_MAX};

/// What is wrong with a file, or with one of its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another kind of file.
    #[error("not an MMV file: starts with {found:02x?}, expected \"MMV\\0\"")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// A version that is not read.
    #[error("unsupported MMV version {found}: expected 1 to 3")]
    Version {
        /// As the file says.
        found: u32,
    },
    /// The program is about to write the file.
    #[error("file is being written (generations {first} and {second}); try again")]
    BeingWritten {
        /// Set when writing begins.
        first: u64,
        /// Set to the same when it ends.
        second: u64,
    },
    /// Shorter than it says it is.
    #[error("the file has {have} bytes, its {part} would end at {need}: try again")]
    Truncated {
        /// What does not fit.
        part: &'static str,
        /// Bytes that there are.
        have: u64,
        /// Bytes that would be needed.
        need: u64,
    },
    /// A section with more entries than are read.
    #[error("{found} {part}, at most {COUNT_MAX} are read")]
    Count {
        /// What there are too many of.
        part: &'static str,
        /// How many.
        found: u64,
    },
    /// A table of sections that is too long, or negative.
    #[error("{found} sections, limit {SECTIONS_MAX}")]
    Sections {
        /// As the file says.
        found: u32,
    },
    /// A section that is there twice.
    #[error("two sections of {part}")]
    DuplicateSection {
        /// Which.
        part: &'static str,
    },
    /// A section without which there is nothing to show.
    #[error("no section of {part}")]
    MissingSection {
        /// Which.
        part: &'static str,
    },
    /// A reference that leads to no entry.
    #[error("value {index} refers to byte {offset}, where no {part} begins")]
    Reference {
        /// Number of the value, from 0.
        index: u64,
        /// What it should be.
        part: &'static str,
        /// Where it leads.
        offset: u64,
    },
    /// A name that is not there, empty, no UTF-8, or with control characters.
    #[error("value {index} has no {part} that can be shown")]
    Name {
        /// Number of the value, from 0.
        index: u64,
        /// Name of what.
        part: &'static str,
    },
    /// A label of version 3 that cannot be read, or one too many.
    #[error("label {index} is not a supported JSON object, or exceeds {LABELS_MAX} labels")]
    Label {
        /// Number of the label, from 0.
        index: u64,
    },
    /// Values that have name and labels in common with one before them.
    #[error("{count} values with duplicate name and labels")]
    Duplicates {
        /// How many.
        count: u64,
    },
    /// Texts beyond what is kept.
    #[error("names, labels and texts from value {index} on exceed {TEXT_MAX} bytes")]
    Text {
        /// Number of the first value that is not shown, from 0.
        index: u64,
    },
}

impl Error {
    /// Whether the same file may be read well a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::BeingWritten { .. } | Error::Truncated { .. })
    }
}
