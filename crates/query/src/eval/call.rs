//! Functions of what is there at each step: `abs`, `histogram_quantile`, `label_replace` and their like.
//!
//! Names, results and notes are Prometheus' (3.15). What is asked of numbers that have bounds is asked of the
//! bounds too, as far as a function never falls or never rises.

mod absent;
mod histogram;
mod info;
mod label;
mod math;
mod running_total;
mod scalar;
mod sort;
#[cfg(test)]
mod tests;
mod time;

use std::fmt;

use hist::Bracket;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::plan::{PlanNode, PlanOp};
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

use math::Monotonicity;

/// A function of streams.
pub(crate) struct InstantFunction {
    pub(crate) name: &'static str,
    work: fn(&mut Evaluation<'_>, &FunctionCall<'_>) -> Result<Vec<Stream>>,
}

/// What a function is asked for.
struct FunctionCall<'a> {
    args: &'a [PlanNode],
    span: SourceSpan,
    steps: StepGrid,
}

/// The function of that name.
pub(crate) fn function(name: &str) -> Option<&'static InstantFunction> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// What takes no range vector, by name; `end`, `range`, `start` and `step` are numbers by the time there is a plan.
static FUNCTIONS: &[InstantFunction] = &[
    define("abs", |e, call| math::map(e, call, Monotonicity::FromZero, f64::abs)),
    define("absent", absent::absent),
    define("acos", |e, call| math::map(e, call, Monotonicity::Falling, f64::acos)),
    define("acosh", |e, call| math::map(e, call, Monotonicity::Rising, math::acosh)),
    define("asin", |e, call| math::map(e, call, Monotonicity::Rising, f64::asin)),
    define("asinh", |e, call| math::map(e, call, Monotonicity::Rising, math::asinh)),
    define("atan", |e, call| math::map(e, call, Monotonicity::Rising, f64::atan)),
    define("atanh", |e, call| math::map(e, call, Monotonicity::Rising, f64::atanh)),
    define("ceil", |e, call| math::map(e, call, Monotonicity::Rising, f64::ceil)),
    define("clamp", math::clamp),
    define("clamp_max", math::clamp_max),
    define("clamp_min", math::clamp_min),
    define("cos", |e, call| math::map(e, call, Monotonicity::Any, f64::cos)),
    define("cosh", |e, call| math::map(e, call, Monotonicity::FromZero, f64::cosh)),
    define("day_of_month", |e, call| time::date(e, call, |date| date.day)),
    define("day_of_week", |e, call| time::date(e, call, |date| date.weekday)),
    define("day_of_year", |e, call| time::date(e, call, |date| date.day_of_year)),
    define("days_in_month", |e, call| time::date(e, call, |date| date.days_in_month)),
    define("deg", |e, call| {
        math::map(e, call, Monotonicity::Rising, |x| x * 180.0 / std::f64::consts::PI)
    }),
    define("exp", |e, call| math::map(e, call, Monotonicity::Rising, f64::exp)),
    define("floor", |e, call| math::map(e, call, Monotonicity::Rising, f64::floor)),
    define("histogram_avg", histogram::avg),
    define("histogram_count", histogram::count),
    define("histogram_count_above", histogram::count_above),
    define("histogram_count_below", histogram::count_below),
    define("histogram_count_between", histogram::count_between),
    define("histogram_fraction", histogram::fraction),
    define("histogram_inverse_quantile", histogram::inverse_quantile),
    define("histogram_max", histogram::max),
    define("histogram_min", histogram::min),
    define("histogram_quantile", histogram::quantile),
    define("histogram_quantiles", histogram::quantiles),
    define("histogram_stddev", histogram::stddev),
    define("histogram_stdvar", histogram::stdvar),
    define("histogram_sum", histogram::sum),
    define("hour", |e, call| time::date(e, call, |date| date.hour)),
    define("info", info::info),
    define("label_join", label::join),
    define("label_replace", label::replace),
    define("ln", |e, call| math::map(e, call, Monotonicity::Rising, f64::ln)),
    define("log10", |e, call| math::map(e, call, Monotonicity::Rising, f64::log10)),
    define("log2", |e, call| math::map(e, call, Monotonicity::Rising, f64::log2)),
    define("max_of", |e, call| scalar::combine_scalars(e, call, math::greater)),
    define("min_of", |e, call| scalar::combine_scalars(e, call, math::lesser)),
    define("minute", |e, call| time::date(e, call, |date| date.minute)),
    define("month", |e, call| time::date(e, call, |date| date.month)),
    define("pi", scalar::pi),
    define("rad", |e, call| {
        math::map(e, call, Monotonicity::Rising, |x| x * std::f64::consts::PI / 180.0)
    }),
    define("round", math::round),
    define("running_total", running_total::running_total),
    define("scalar", scalar::scalar),
    define("sgn", |e, call| math::map(e, call, Monotonicity::Rising, math::sign)),
    define("sin", |e, call| math::map(e, call, Monotonicity::Any, f64::sin)),
    define("sinh", |e, call| math::map(e, call, Monotonicity::Rising, f64::sinh)),
    define("sort", sort::by_value),
    define("sort_by_label", sort::by_label),
    define("sort_by_label_desc", sort::by_label_desc),
    define("sort_desc", sort::by_value_desc),
    define("sqrt", |e, call| math::map(e, call, Monotonicity::Rising, f64::sqrt)),
    define("start_timestamp", time::start_timestamp),
    define("tan", |e, call| math::map(e, call, Monotonicity::Any, f64::tan)),
    define("tanh", |e, call| math::map(e, call, Monotonicity::Rising, f64::tanh)),
    define("time", time::time),
    define("timestamp", time::timestamp),
    define("users_affected", histogram::users_affected),
    define("vector", scalar::vector),
    define("year", |e, call| time::date(e, call, |date| date.year)),
];

const fn define(
    name: &'static str,
    work: fn(&mut Evaluation<'_>, &FunctionCall<'_>) -> Result<Vec<Stream>>,
) -> InstantFunction {
    InstantFunction { name, work }
}

impl fmt::Debug for InstantFunction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl Evaluation<'_> {
    pub(crate) fn call(
        &mut self,
        function: &'static InstantFunction,
        args: &[PlanNode],
        place: SourceSpan,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        (function.work)(self, &FunctionCall { args, span: place, steps })
    }

    /// Streams with each point changed, or gone where it says `None`. What they are called does not describe
    /// them any more.
    fn map_points(
        &mut self,
        call: &FunctionCall<'_>,
        at: usize,
        mut change: impl FnMut(usize, &StepValue) -> Option<StepValue>,
    ) -> Result<Vec<Stream>> {
        let mut streams = self.streams(&call.args[at], call.steps)?;
        let held = samples(&streams);
        for stream in &mut streams {
            for (step, point) in stream.points.iter_mut().enumerate() {
                *point = point.as_ref().and_then(|value| change(step, value));
            }
            self.drop_name(stream);
        }
        self.replace_streams(held, &mut streams)?;
        self.merge_equal_labels(streams, call.span)
    }

    /// Counts what streams became instead of what they were; empty ones go.
    fn replace_streams(&mut self, held: u64, streams: &mut Vec<Stream>) -> Result<()> {
        streams.retain(|stream| !stream.is_empty());
        let result = self.budget.charge_samples(samples(streams));
        self.budget.release_samples(held);
        result
    }
}

fn samples(streams: &[Stream]) -> u64 {
    streams.iter().map(Stream::samples).sum()
}

/// A number with its bounds, if these are numbers; widened where the number lies outside.
fn bracket_widened(lower: f64, estimate: f64, upper: f64) -> StepValue {
    if lower.is_nan() || estimate.is_nan() || upper.is_nan() {
        return StepValue::Number(estimate);
    }
    let (lower, upper) = (lower.min(estimate), upper.max(estimate));
    StepValue::from_bracket(Bracket { lower, estimate, upper })
}

/// What is worked out where the same is worked out once.
fn unwrap_once(node: &PlanNode) -> &PlanNode {
    match &node.op {
        PlanOp::Once(inner) => inner,
        _ => node,
    }
}

/// The text of an argument that is one.
fn text_argument(node: &PlanNode) -> &str {
    match &unwrap_once(node).op {
        PlanOp::Text(text) => text,
        _ => panic!("BUG: the argument is no text"),
    }
}
