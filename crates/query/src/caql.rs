//! CAQL, the stream language of Circonus.
//!
//! [`parse`] makes a tree of a text, [`Signature`] says what functions there are, and [`bind()`] makes of it what can be
//! evaluated: every call with its function and the values of its arguments.
//!
//! Limits: [`EXPRESSION_BYTES_MAX`], [`DEPTH_MAX`], [`SOURCES_MAX`] and [`ARGUMENTS_MAX`], which together bound what
//! a text from outside can take.

mod aggregate;
mod anomaly;
mod arguments;
pub mod ast;
mod bind;
mod change;
mod each;
mod exclude;
mod fill;
mod filter;
mod finer;
mod forecasting;
mod functions;
mod global;
mod graphite;
mod group;
mod histogram;
mod integrate;
pub mod label;
mod legends;
mod lexer;
mod math;
mod names;
mod op;
mod outlier;
mod packages;
mod parse;
mod plan;
mod points;
mod quantiles;
mod rank;
mod rates;
mod rolling;
mod seasons;
mod show;
pub mod signature;
mod sources;
mod spread;
mod stage;
mod stats;
mod time;
mod units;
mod vector;
mod walk;
mod window;
mod work;
mod zone;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;

pub use arguments::{Arguments, Context, Given};
pub use ast::{Argument, Body, Call, Constant, Directives, Expr, Form, Literal, Operator, Query};
pub use bind::{Bound, Kind, Meaning, REGEXES_MAX, bind};
pub use functions::FIND_LIMIT_MAX;
pub use parse::parse;
pub(crate) use plan::plan;
pub use signature::Signature;
pub(crate) use stage::{Stage, name};
pub use work::LABEL;

/// Bytes of an expression at the most: some thousands of calls.
pub const EXPRESSION_BYTES_MAX: usize = 256 << 10;
/// How deep a tree is at the most; a pipe of so many calls is as deep. What walks a tree is recursive.
pub const DEPTH_MAX: usize = 100;
/// Sources of a call, and operands of a chain of one operator, at the most.
pub const SOURCES_MAX: usize = 1000;
/// Arguments of a call at the most.
pub const ARGUMENTS_MAX: usize = 1000;
