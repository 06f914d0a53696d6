//! Query request: text, language and steps.

use crate::promql;

/// Query language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// PromQL.
    #[default]
    PromQl,
    /// CAQL.
    Caql,
}

/// Query request.
#[derive(Clone, Debug)]
pub struct QueryRequest<'a> {
    /// Query text.
    pub text: &'a str,
    /// Query language.
    pub language: Language,
    /// Start in nanoseconds since the Unix epoch.
    pub start: i64,
    /// End; inclusive in PromQL, exclusive in CAQL.
    pub end: i64,
    /// Step in nanoseconds; 0 for an instant query at `start`.
    pub step: i64,
    /// Enabled PromQL features.
    pub options: promql::Options,
}
