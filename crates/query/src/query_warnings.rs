//! Query warnings and infos (Prometheus annotations).

use std::collections::BTreeMap;

use crate::error::SourceSpan;

/// Severity of a query warning: warning or info.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryWarningKind {
    /// The result may not be what was meant.
    Warning,
    /// Hint for a better expression.
    Info,
}

/// Query warnings, deduplicated by text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryWarnings {
    warnings: BTreeMap<(QueryWarningKind, String), SourceSpan>,
}

impl QueryWarnings {
    /// Adds a warning.
    pub fn warn(&mut self, span: SourceSpan, message: impl Into<String>) {
        self.warnings.insert((QueryWarningKind::Warning, message.into()), span);
    }

    /// Adds an info.
    pub fn info(&mut self, span: SourceSpan, message: impl Into<String>) {
        self.warnings.insert((QueryWarningKind::Info, message.into()), span);
    }

    /// Adds the warnings of another set.
    pub fn append(&mut self, other: QueryWarnings) {
        self.warnings.extend(other.warnings);
    }

    /// Shifts the spans for an expression that starts some bytes into the text.
    pub(crate) fn shift(mut self, by: usize) -> QueryWarnings {
        for span in self.warnings.values_mut() {
            *span = span.shift(by);
        }
        self
    }

    /// Whether there are no warnings.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }

    /// All warnings of a kind with their spans.
    pub fn of_kind(&self, kind: QueryWarningKind) -> impl Iterator<Item = (&str, SourceSpan)> {
        self.warnings
            .iter()
            .filter(move |((found, _), _)| *found == kind)
            .map(|((_, message), span)| (message.as_str(), *span))
    }
}
