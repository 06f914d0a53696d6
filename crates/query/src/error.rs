//! Query errors with source spans.

use std::fmt;
use std::ops::Range;

/// Byte range in the query text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceSpan {
    /// First byte.
    pub start: usize,
    /// End, exclusive.
    pub end: usize,
}

impl SourceSpan {
    /// Span between two byte offsets.
    pub fn new(start: usize, end: usize) -> SourceSpan {
        SourceSpan { start, end: end.max(start) }
    }

    /// Span from the start of this one to the end of the other.
    pub fn to(self, other: SourceSpan) -> SourceSpan {
        SourceSpan::new(self.start, other.end)
    }

    /// Shifts the span by some bytes.
    pub(crate) fn shift(self, by: usize) -> SourceSpan {
        SourceSpan::new(self.start + by, self.end + by)
    }

    /// Line and column in a text, both from 1; columns are characters.
    pub fn line_and_column(self, text: &str) -> (usize, usize) {
        let before = text.get(..self.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column)
    }
}

impl From<Range<usize>> for SourceSpan {
    fn from(range: Range<usize>) -> SourceSpan {
        SourceSpan::new(range.start, range.end)
    }
}

/// Query error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Syntax or type error, or an unsupported query: the client's fault.
    #[error("{message}")]
    Parse {
        /// Span in the expression.
        span: SourceSpan,
        /// Cause and remedy.
        message: String,
    },
    /// The data does not allow the operation: the fault of the client or the data.
    #[error("{message}")]
    Execution {
        /// Span in the expression.
        span: SourceSpan,
        /// Cause and remedy.
        message: String,
    },
    /// A limit was exceeded.
    #[error("limit of {max} {limit} exceeded ({found}); {remedy}")]
    Limit {
        /// Limited quantity.
        limit: &'static str,
        /// Amount when the limit was exceeded.
        found: u64,
        /// Limit.
        max: u64,
        /// Remedy and the setting that raises the limit.
        remedy: String,
    },
    /// Deadline exceeded, or cancelled by the client.
    #[error("query timeout exceeded; reduce the range or the number of series, or raise timeout")]
    Timeout,
    /// The memory shared by all queries does not suffice.
    #[error("{message}")]
    Memory {
        /// Exhausted limit and its setting.
        message: String,
        /// Whether other queries hold the memory, so that a retry may succeed.
        is_transient: bool,
    },
    /// Stored data cannot be read.
    #[error(transparent)]
    Store(store::Error),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        match error {
            store::Error::Cancelled => Error::Timeout,
            error => Error::Store(error),
        }
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Span in the expression, if known.
    pub fn span(&self) -> Option<SourceSpan> {
        match self {
            Error::Parse { span, .. } | Error::Execution { span, .. } => Some(*span),
            _ => None,
        }
    }

    /// Shifts the span for an expression that starts some bytes into the text.
    pub(crate) fn shift(mut self, by: usize) -> Error {
        if let Error::Parse { span, .. } | Error::Execution { span, .. } = &mut self {
            *span = span.shift(by);
        }
        self
    }

    /// Message with the line of the expression and a marker below the span.
    pub fn format_with_source(&self, expression: &str) -> String {
        let Some(span) = self.span() else { return self.to_string() };
        let (line, column) = span.line_and_column(expression);
        let text = expression.lines().nth(line - 1).unwrap_or("");
        let within = text.chars().count() + 1 - column.min(text.chars().count() + 1);
        let length = expression
            .get(span.start..span.end)
            .map_or(1, |marked| marked.lines().next().unwrap_or("").chars().count());
        let mark = "^".repeat(length.min(within).max(1));
        let blank: String =
            text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        format!("{line}:{column}: {self}\n  {text}\n  {blank}{mark}")
    }
}

impl fmt::Display for SourceSpan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}..{}", self.start, self.end)
    }
}
