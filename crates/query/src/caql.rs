//! CAQL, the stream language of Circonus.
//!
//! [`parse`] builds a tree from a text, [`Signature`] describes each function, and [`bind()`]
//! resolves functions and argument values so that the tree can be evaluated.
//!
//! Limits: [`EXPRESSION_BYTES_MAX`], [`DEPTH_MAX`], [`INPUTS_MAX`] and `ARGUMENTS_MAX` together
//! bound the cost of parsing untrusted text.

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
#[path = "../../../testdata/extensions/caql_package/cube.rs"]
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
pub use kernel::LEGEND;
pub use parse::parse;
pub(crate) use plan::plan;
pub use signature::Signature;
pub(crate) use stage::set_names;

/// Maximum length of an expression in bytes: some thousands of calls.
pub(crate) const EXPRESSION_BYTES_MAX: usize = 256 << 10;
/// Maximum depth of a tree. A pipe of n calls has depth n. Functions that walk a tree are
/// recursive.
pub const DEPTH_MAX: usize = 100;
/// Maximum number of inputs of a call, and of operands in a chain of one operator.
pub(crate) const INPUTS_MAX: usize = 1000;
/// Maximum number of arguments of a call.
pub(crate) const ARGUMENTS_MAX: usize = 1000;
