//! Query errors with source spans.

use std::fmt;
use std::ops::Range;

/// Byte range in the query text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceSpan {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl SourceSpan {
    /// From one byte to another.
    pub fn new(start: usize, end: usize) -> SourceSpan {
        SourceSpan { start, end: end.max(start) }
    }

    /// From where this begins to where the other ends.
    pub fn to(self, other: SourceSpan) -> SourceSpan {
        SourceSpan::new(self.start, other.end)
    }

    /// The same, so many bytes later.
    pub(crate) fn shift(self, by: usize) -> SourceSpan {
        SourceSpan::new(self.start + by, self.end + by)
    }

    /// As line and column of a text, both from 1; columns are characters.
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
    /// The expression cannot be read, or asks for what cannot be: the asker's.
    #[error("{message}")]
    Parse {
        /// Where in the expression.
        span: SourceSpan,
        /// What is wrong there, and what would be right.
        message: String,
    },
    /// What was found does not allow what is asked: the asker's, or the data's.
    #[error("{message}")]
    Execution {
        /// Where in the expression.
        span: SourceSpan,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// More than a limit allows.
    #[error("the query needs more {limit} than {max} ({found}); {remedy}")]
    Limit {
        /// What there is too much of.
        limit: &'static str,
        /// How much there was when it was noticed.
        found: u64,
        /// How much is allowed.
        max: u64,
        /// What to ask instead, and which setting raises the limit.
        remedy: String,
    },
    /// It took too long, or nobody waits for it any more.
    #[error("the query took longer than it may; ask for less, or raise timeout")]
    Timeout,
    /// The memory that queries share does not suffice.
    #[error("{message}")]
    Memory {
        /// What there is too little of, and which setting says how much there is.
        message: String,
        /// Whether other queries hold it, so that the same may be answered later.
        is_transient: bool,
    },
    /// What is stored cannot be read.
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

/// What this crate gives back.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Where in the expression, if it is known.
    pub fn span(&self) -> Option<SourceSpan> {
        match self {
            Error::Parse { span: place, .. } | Error::Execution { span: place, .. } => Some(*place),
            _ => None,
        }
    }

    /// The same, of a text that begins so many bytes later.
    pub(crate) fn shift(mut self, by: usize) -> Error {
        if let Error::Parse { span: place, .. } | Error::Execution { span: place, .. } = &mut self {
            *place = place.shift(by);
        }
        self
    }

    /// The message, with the line of the expression and a mark below the place.
    pub fn format_with_source(&self, expression: &str) -> String {
        let Some(place) = self.span() else { return self.to_string() };
        let (line, column) = place.line_and_column(expression);
        let text = expression.lines().nth(line - 1).unwrap_or("");
        let within = text.chars().count() + 1 - column.min(text.chars().count() + 1);
        let length = expression
            .get(place.start..place.end)
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
