//! PromQL, as of Prometheus 3.15.

mod aggregate_op;
mod ast;
mod check;
mod duration;
mod format;
mod functions;
mod lexer;
mod matcher;
mod number;
mod parse;
mod pattern;
mod plan;
pub mod quantile;
mod quantiles;
mod quote;
mod repeated_arguments;
mod signature;
#[cfg(test)]
mod tests;
mod token;

pub use aggregate_op::AggregateOp;
pub use ast::{
    AtModifier, BinaryOp, Expr, ExprKind, MatchCardinality, ValueType, VectorMatching,
    VectorSelector,
};
pub use duration::{DurationExpr, DurationKind, DurationOp, DurationValue};
pub(crate) use functions::{PromqlKernel, kernel, names_with_extension};
pub use functions::{function, functions};
pub(crate) use matcher::labels_from_matchers;
pub use matcher::{MatchOp, Matcher, unanchored_regex};
pub(crate) use matcher::{anchored_regex, is_label_name};
pub use number::{parse_duration, parse_number};
pub use parse::{parse, parse_series_labels};
pub(crate) use plan::plan;
pub use plan::selector_of;
pub use signature::{PromqlFunction, Variadic};
pub(crate) use signature::{StepDependence, UnitRule};

/// Checks an expression as a range query does before it reads data: syntax, types, averages of
/// quantiles.
pub fn check_range_query(text: &str, options: &Options) -> crate::error::Result<()> {
    const STEP: i64 = store::MINUTE;
    let expression = parse(text, options)?;
    let language = crate::request::Language::PromQl;
    let options = *options;
    let question =
        crate::request::QueryRequest { text, language, start: 0, end: STEP, step: STEP, options };
    plan(&expression, &question, &crate::settings::Settings::default()).map(drop)
}

/// Maximum length of an expression in bytes.
pub const LENGTH_MAX: usize = 256 << 10;
/// Maximum nesting of parentheses, calls, signs and right operands: the parser is recursive in
/// these.
pub const NESTING_MAX: usize = 100;
/// Maximum height of a tree: checking, formatting and evaluation are recursive. A chain of
/// operators counts, because `a + b + c` is `(a + b) + c`.
pub(crate) const HEIGHT_MAX: usize = 256;
/// Maximum number of regexes in an expression, each of at most [`REGEX_SIZE_MAX`] once compiled.
pub const REGEXES_MAX: usize = 128;

/// Enabled parts of the language that Prometheus has behind feature flags. By default, all are
/// disabled, as in a Prometheus without flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Functions and aggregations: `promql-experimental-functions`.
    pub experimental_functions: bool,
    /// Durations with operators, `step()` and so on: `promql-duration-expr`.
    pub duration_expressions: bool,
    /// `anchored` and `smoothed`: `promql-extended-range-selectors`.
    pub extended_selectors: bool,
    /// `fill`, `fill_left` and `fill_right`: `promql-binop-fill-modifiers`.
    pub binop_fill: bool,
    /// Whether topdeck's own functions are unknown.
    pub standard_only: bool,
}

impl Options {
    /// All features enabled.
    pub fn all() -> Options {
        Options {
            experimental_functions: true,
            duration_expressions: true,
            extended_selectors: true,
            binop_fill: true,
            standard_only: false,
        }
    }
}
