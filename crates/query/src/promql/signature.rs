//! Signatures of functions: what they take and give, and what the planner has to know of them.
//!
//! The functions themselves are rows of the table in `functions.rs`.

use std::fmt::{Display, Formatter};

use super::ast::ValueType;

/// Signature of a function of PromQL, and what the planner knows of it. Its name is its identity.
#[derive(Debug)]
pub struct PromqlFunction {
    /// Its name.
    pub name: &'static str,
    /// The types of its arguments; the last stands for all that follow.
    pub args: &'static [ValueType],
    /// Whether the last argument may be left out, or come again.
    pub variadic: Variadic,
    /// What it gives.
    pub returns: ValueType,
    /// Whether it has to be switched on.
    pub is_experimental: bool,
    /// Whether it is topdeck's own; Prometheus has no function of this name.
    pub is_topdeck_only: bool,
    pub(crate) call_plan: CallPlan,
    pub(crate) step_dependence: StepDependence,
    pub(crate) bucket_use: BucketUse,
    pub(crate) quantile_use: QuantileUse,
    pub(crate) unit: UnitRule,
    /// Of a series of deltas it reads the running total.
    pub(crate) reads_totals: bool,
    /// The argument that is label matchers and no series of its own.
    pub(crate) label_matchers_arg: Option<usize>,
}

impl PartialEq for PromqlFunction {
    fn eq(&self, other: &PromqlFunction) -> bool {
        self.name == other.name
    }
}

impl Eq for PromqlFunction {}

/// What the planner makes of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallPlan {
    /// A call at each step; of a range, a window of readings at each step.
    Evaluate,
    /// The same, but exact deltas out of the store where it has them.
    EvaluateOrExact,
    /// Exact deltas out of the store, by the second if `is_rate`.
    Exact { is_rate: bool },
    /// A number that the times of the request give.
    RequestNumber(fn(QueryTimes) -> f64),
}

/// Times of a request, in nanoseconds; the step is 0 where one moment is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryTimes {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) step: i64,
}

/// Whether a value depends on the step itself, not only on the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepDependence {
    /// It depends on the arguments alone.
    Arguments,
    /// It depends on the step.
    Step,
    /// The same, unless the argument is a selector: then on its readings.
    UnlessSelector,
}

/// How much of a histogram is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketUse {
    /// As much as the expression around the call needs.
    Unchanged,
    /// No more than its count and sum.
    CountAndSum,
    /// Its buckets.
    All,
}

/// What a call does with quantiles, so that averages of them can be rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantileUse {
    /// Its result is no quantile.
    Other,
    /// Its result is a quantile.
    Quantile,
    /// Its result is a quantile if its argument is one.
    Kept,
    /// It averages its argument over time.
    Average,
    /// It adds its argument up over time: with a count, an average.
    Sum,
    /// It counts its argument over time.
    Count,
}

/// Unit of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitRule {
    /// It cannot be named.
    Unknown,
    /// This one.
    Named(&'static str),
    /// That of an argument.
    Argument(usize),
    /// That of the values whose distributions an argument has.
    ValuesOf(usize),
    /// Its square.
    SquaredValuesOf(usize),
    /// That of the readings.
    Readings,
    /// The same by the second.
    PerSecond,
    /// Its square.
    Squared,
}

/// Whether the last argument may be left out, or come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variadic {
    /// Neither.
    No,
    /// Left out, or up to this often.
    UpTo(usize),
    /// Left out, or as often as one likes.
    Any,
}

impl PromqlFunction {
    /// How many arguments there must be at least.
    pub fn args_min(&self) -> usize {
        self.args.len() - usize::from(self.variadic != Variadic::No)
    }

    /// How many arguments there may be at most, if there is a limit.
    pub fn args_max(&self) -> Option<usize> {
        match self.variadic {
            Variadic::No => Some(self.args.len()),
            Variadic::UpTo(times) => Some(self.args_min() + times),
            Variadic::Any => None,
        }
    }
}

/// As one writes a call of it, with the types of its arguments; those in brackets may be left out.
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
