//! Function signatures: argument and result types, and planner traits.
//!
//! The functions themselves are rows of the table in `functions.rs`.

use std::fmt::{Display, Formatter};

use super::ast::ValueType;

/// Signature and planner traits of a PromQL function. Its name is its identity.
#[derive(Debug)]
pub struct PromqlFunction {
    /// Name.
    pub name: &'static str,
    /// Types of the arguments; the last one applies to all that follow.
    pub args: &'static [ValueType],
    /// Whether the last argument is optional or variadic.
    pub variadic: Variadic,
    /// Type of the result.
    pub returns: ValueType,
    /// Whether the function is experimental.
    pub is_experimental: bool,
    /// Whether the function is topdeck's own; Prometheus has no function of this name.
    pub is_topdeck_only: bool,
    pub(crate) call_plan: CallPlan,
    pub(crate) step_dependence: StepDependence,
    pub(crate) bucket_use: BucketUse,
    pub(crate) quantile_use: QuantileUse,
    pub(crate) unit: UnitRule,
    /// Whether series of deltas are read as running totals.
    pub(crate) reads_totals: bool,
    /// Index of the argument that holds label matchers and is not evaluated as a vector.
    pub(crate) label_matchers_arg: Option<usize>,
}

impl PartialEq for PromqlFunction {
    fn eq(&self, other: &PromqlFunction) -> bool {
        self.name == other.name
    }
}

impl Eq for PromqlFunction {}

/// Planning of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallPlan {
    /// Evaluated at each step; for a range vector, on the window of each step.
    Evaluate,
    /// The same, but with exact deltas from the store if it has them.
    EvaluateOrExact,
    /// Exact deltas from the store, per second if `is_rate`.
    Exact { is_rate: bool },
    /// Number computed from the times of the request.
    RequestNumber(fn(QueryTimes) -> f64),
}

/// Times of a request in nanoseconds; the step is 0 for an instant query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryTimes {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) step: i64,
}

/// Whether a value depends on the step itself, not only on the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepDependence {
    /// Only on the arguments.
    Arguments,
    /// On the step.
    Step,
    /// On the step, unless the argument is a selector: then on its samples.
    UnlessSelector,
}

/// Parts of a histogram that a function needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketUse {
    /// Parts that the enclosing expression needs.
    Unchanged,
    /// Only count and sum.
    CountAndSum,
    /// Buckets.
    All,
}

/// Effect of a call on quantiles, used to reject averages of quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantileUse {
    /// Its result is not a quantile.
    Other,
    /// Its result is a quantile.
    Quantile,
    /// Its result is a quantile if its argument is one.
    Kept,
    /// It averages its argument over time.
    Average,
    /// It sums its argument over time: divided by a count, an average.
    Sum,
    /// It counts its argument over time.
    Count,
}

/// Unit of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitRule {
    /// Unknown unit.
    Unknown,
    /// Fixed unit.
    Named(&'static str),
    /// Unit of an argument.
    Argument(usize),
    /// Unit of the values in an argument's distributions.
    ValuesOf(usize),
    /// Square of the unit of the values in an argument's distributions.
    SquaredValuesOf(usize),
    /// Unit of the samples.
    Samples,
    /// Unit of the samples per second.
    PerSecond,
    /// Square of the unit of the samples.
    Squared,
}

/// Whether the last argument is optional or variadic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variadic {
    /// Required.
    No,
    /// Optional, up to this many times.
    UpTo(usize),
    /// Optional, any number of times.
    Any,
}

impl PromqlFunction {
    /// Minimum number of arguments.
    pub fn args_min(&self) -> usize {
        self.args.len() - usize::from(self.variadic != Variadic::No)
    }

    /// Whether it reads classic histograms by the name of the histogram.
    pub fn finds_classic_histograms(&self) -> bool {
        matches!(self.call_plan, CallPlan::Exact { .. })
    }

    /// Maximum number of arguments, if there is one.
    pub fn args_max(&self) -> Option<usize> {
        match self.variadic {
            Variadic::No => Some(self.args.len()),
            Variadic::UpTo(times) => Some(self.args_min() + times),
            Variadic::Any => None,
        }
    }
}

/// Call syntax with argument types; optional arguments are in brackets.
impl Display for PromqlFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(", self.name)?;
        let many = if self.variadic == Variadic::Any { ", …" } else { "" };
        for (at, of) in self.args.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match at < self.args_min() {
                true => write!(f, "{comma}{}", of.documented())?,
                false => write!(f, "[{comma}{}{many}]", of.documented())?,
            }
        }
        f.write_str(")")
    }
}
