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
pub use matcher::{MatchOp, Matcher, REGEX_SIZE_MAX, anchored_regex, is_label_name};
pub use number::{parse_duration, parse_number, show_duration};
pub use parse::{parse, parse_series_labels};
pub(crate) use plan::plan;
pub use plan::selector_of;
pub use signature::{PromqlFunction, Variadic};
pub(crate) use signature::{StepDependence, UnitRule};

/// Bytes of an expression at the most.
pub const LENGTH_MAX: usize = 256 << 10;
/// How deep parentheses, calls, signs and right sides nest at the most: reading is recursive in
/// these.
pub const NESTING_MAX: usize = 100;
/// How high a tree is at the most: checking, showing and evaluating are recursive. Operators in a
/// row count, as `a + b + c` is `(a + b) + c`.
pub const HEIGHT_MAX: usize = 256;
/// Regexes of an expression at the most, each of which may take [`REGEX_SIZE_MAX`] once compiled.
pub const REGEXES_MAX: usize = 128;

/// Which parts of the language that Prometheus has behind feature flags may be used. Without any,
/// the default, it is the language of a Prometheus without flags.
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
    /// Functions of topdeck's own are not known.
    pub standard_only: bool,
}

impl Options {
    /// Everything.
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
