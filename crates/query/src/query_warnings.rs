//! Query warnings and infos (Prometheus annotations).

use std::collections::BTreeMap;

use crate::error::SourceSpan;

/// Severity of a query warning: warning or info.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryWarningKind {
    /// The answer may not be what was meant.
    Warning,
    /// Something about the expression could be better.
    Info,
}

/// Query warnings, deduplicated by text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryWarnings {
    warnings: BTreeMap<(QueryWarningKind, String), SourceSpan>,
}

impl QueryWarnings {
    /// Adds a warning.
    pub fn warn(&mut self, place: SourceSpan, message: impl Into<String>) {
        self.warnings.insert((QueryWarningKind::Warning, message.into()), place);
    }

    /// Adds a remark.
    pub fn info(&mut self, place: SourceSpan, message: impl Into<String>) {
        self.warnings.insert((QueryWarningKind::Info, message.into()), place);
    }

    /// Adds those of another.
    pub fn append(&mut self, other: QueryWarnings) {
        self.warnings.extend(other.warnings);
    }

    /// The same, of a text that begins so many bytes later.
    pub(crate) fn shift(mut self, by: usize) -> QueryWarnings {
        for place in self.warnings.values_mut() {
            *place = place.shift(by);
        }
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }

    /// All of a kind, each with its place.
    pub fn of_kind(&self, kind: QueryWarningKind) -> impl Iterator<Item = (&str, SourceSpan)> {
        self.warnings
            .iter()
            .filter(move |((found, _), _)| *found == kind)
            .map(|((_, message), place)| (message.as_str(), *place))
    }
}
