//! MMV errors.

use super::{COUNT_MAX, LABELS_MAX, SECTIONS_MAX, TEXT_MAX};

/// Error of a file, or of one of its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another file format.
    #[error("not an MMV file: starts with {found:02x?}, expected \"MMV\\0\"")]
    Magic {
        /// First bytes.
        found: Vec<u8>,
    },
    /// Unsupported version.
    #[error("unsupported MMV version {found}: expected 1 to 3")]
    Version {
        /// Value in the file.
        found: u32,
    },
    /// The program is rewriting the structure of the file.
    #[error("file is being written (generations {first} and {second}); try again")]
    BeingWritten {
        /// First generation field, set when the rewrite starts.
        first: u64,
        /// Second generation field, set to the same value when it ends.
        second: u64,
    },
    /// The file is shorter than its header says.
    #[error("file has {have} bytes, {part} would end at {need}; try again")]
    Truncated {
        /// Part that does not fit.
        part: &'static str,
        /// Size of the file in bytes.
        have: u64,
        /// Required size in bytes.
        need: u64,
    },
    /// The number of entries of a section exceeds the limit.
    #[error("{found} {part}, limit {COUNT_MAX}")]
    Count {
        /// Kind of entries.
        part: &'static str,
        /// Their number.
        found: u64,
    },
    /// The number of sections exceeds the limit or is negative.
    #[error("{found} sections, limit {SECTIONS_MAX}")]
    Sections {
        /// Value in the file.
        found: u32,
    },
    /// Duplicate section.
    #[error("duplicate section {part}")]
    DuplicateSection {
        /// Kind of section.
        part: &'static str,
    },
    /// A required section is missing.
    #[error("missing section {part}")]
    MissingSection {
        /// Kind of section.
        part: &'static str,
    },
    /// A reference does not point to an entry.
    #[error("value {index}: offset {offset} is not a {part}")]
    Reference {
        /// Index of the value, from 0.
        index: u64,
        /// Expected kind of entry.
        part: &'static str,
        /// Offset in the reference.
        offset: u64,
    },
    /// A name is missing, empty, not UTF-8, or has control characters.
    #[error("value {index} has no valid {part}")]
    Name {
        /// Index of the value, from 0.
        index: u64,
        /// Kind of name.
        part: &'static str,
    },
    /// A label of version 3 is malformed, or exceeds the limit.
    #[error("label {index} is not a supported JSON object, or exceeds {LABELS_MAX} labels")]
    Label {
        /// Index of the label, from 0.
        index: u64,
    },
    /// Values with the name and labels of an earlier one.
    #[error("{count} values with duplicate name and labels")]
    Duplicates {
        /// Their number.
        count: u64,
    },
    /// Texts exceed the limit.
    #[error("names, labels and texts from value {index} on exceed {TEXT_MAX} bytes")]
    Text {
        /// Index of the first rejected value, from 0.
        index: u64,
    },
}

impl Error {
    /// Whether a retry a moment later may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::BeingWritten { .. } | Error::Truncated { .. })
    }
}
