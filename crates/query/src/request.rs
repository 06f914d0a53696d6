//! What is asked: a query, its language and its steps.

use crate::promql;

/// Query language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// Prometheus'.
    #[default]
    PromQl,
    /// Circonus'.
    Caql,
}

/// Query request.
#[derive(Clone, Debug)]
pub struct QueryRequest<'a> {
    /// What is asked.
    pub text: &'a str,
    /// In which language.
    pub language: Language,
    /// The first moment that is asked about, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// The last; in CAQL, the end, which is excluded.
    pub end: i64,
    /// Nanoseconds from one to the next; 0 asks about one moment, the start.
    pub step: i64,
    /// Which parts of PromQL are understood.
    pub options: promql::Options,
}
