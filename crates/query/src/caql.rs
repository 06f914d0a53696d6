//! CAQL, the stream language of Circonus.
//!
//! [`parse`] makes a tree of a text, [`Signature`] says what functions there are, and [`bind()`]
//! makes of it what can be evaluated: every call with its function and the values of its arguments.
//!
//! Limits: [`EXPRESSION_BYTES_MAX`], [`DEPTH_MAX`], [`SOURCES_MAX`] and [`ARGUMENTS_MAX`], which
//! together bound what a text from outside can take.

mod aggregate;
mod anomaly;
mod arguments;
pub mod ast;
mod bind;
mod change;
mod elementwise;
mod exclude;
mod fill;
mod filter;
mod forecasting;
mod format;
mod function_table;
mod function_traits;
mod functions;
mod global;
mod graphite;
mod group;
mod histogram;
mod integrate;
mod kernel;
pub mod label;
mod legends;
mod lexer;
mod math;
mod names;
mod operators;
mod outlier;
mod parse;
mod plan;
mod points;
mod quantiles;
mod random_variates;
mod random_walk;
mod rank;
mod rates;
mod resample;
mod rolling;
mod running_variance;
mod seasons;
pub mod signature;
mod sources;
mod stage;
mod stats;
mod time;
mod units;
mod vector;
mod window;
mod zone;

#[cfg(test)]
mod example;
#[cfg(test)]
mod test_kernel;
#[cfg(test)]
mod tests;

pub use arguments::{ArgumentValue, Arguments, CaqlContext};
pub use ast::{
    Argument, Body, CallExpr, CaqlExpr, CaqlExprKind, CaqlQuery, Constant, Directives, Literal,
    Operator,
};
pub use bind::{BoundExpr, BoundKind, REGEXES_MAX, StreamKind, bind};
pub use kernel::LABEL;
pub use parse::parse;
pub(crate) use plan::plan;
pub use signature::Signature;
pub use sources::FIND_LIMIT_MAX;
pub(crate) use stage::set_names;

/// Bytes of an expression at the most: some thousands of calls.
pub const EXPRESSION_BYTES_MAX: usize = 256 << 10;
/// How deep a tree is at the most; a pipe of so many calls is as deep. What walks a tree is
/// recursive.
pub const DEPTH_MAX: usize = 100;
/// Sources of a call, and operands of a chain of one operator, at the most.
pub const SOURCES_MAX: usize = 1000;
/// Arguments of a call at the most.
pub const ARGUMENTS_MAX: usize = 1000;
