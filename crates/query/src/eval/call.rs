//! Functions of what is there at each step: `abs`, `histogram_quantile`, `label_replace` and their like.
//!
//! Names, results and notes are Prometheus' (3.15). What is asked of numbers that have bounds is asked of the
//! bounds too, as far as a function never falls or never rises.

mod absent;
mod histogram;
mod info;
mod label;
mod math;
mod running;
mod scalar;
mod sort;
#[cfg(test)]
mod tests;
mod time;

use std::fmt;

use hist::Bracket;

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::plan::{Node, Op};
use crate::stream::{Steps, Stream};
use crate::value::Value;

use math::Trend;

/// A function of streams.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    work: fn(&mut Evaluation<'_>, &Call<'_>) -> Result<Vec<Stream>>,
}

/// What a function is asked for.
struct Call<'a> {
    args: &'a [Node],
    place: Place,
    steps: Steps,
}

/// The function of that name.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// What takes no range vector, by name; `end`, `range`, `start` and `step` are numbers by the time there is a plan.
static FUNCTIONS: &[Function] = &[
    of("abs", |e, call| math::map(e, call, Trend::FromZero, f64::abs)),
    of("absent", absent::absent),
    of("acos", |e, call| math::map(e, call, Trend::Falling, f64::acos)),
    of("acosh", |e, call| math::map(e, call, Trend::Rising, math::acosh)),
    of("asin", |e, call| math::map(e, call, Trend::Rising, f64::asin)),
    of("asinh", |e, call| math::map(e, call, Trend::Rising, math::asinh)),
    of("atan", |e, call| math::map(e, call, Trend::Rising, f64::atan)),
    of("atanh", |e, call| math::map(e, call, Trend::Rising, f64::atanh)),
    of("ceil", |e, call| math::map(e, call, Trend::Rising, f64::ceil)),
    of("clamp", math::clamp),
    of("clamp_max", math::clamp_max),
    of("clamp_min", math::clamp_min),
    of("cos", |e, call| math::map(e, call, Trend::Any, f64::cos)),
    of("cosh", |e, call| math::map(e, call, Trend::FromZero, f64::cosh)),
    of("day_of_month", |e, call| time::date(e, call, |date| date.day)),
    of("day_of_week", |e, call| time::date(e, call, |date| date.weekday)),
    of("day_of_year", |e, call| time::date(e, call, |date| date.day_of_year)),
    of("days_in_month", |e, call| time::date(e, call, |date| date.days_in_month)),
    of("deg", |e, call| math::map(e, call, Trend::Rising, |x| x * 180.0 / std::f64::consts::PI)),
    of("exp", |e, call| math::map(e, call, Trend::Rising, f64::exp)),
    of("floor", |e, call| math::map(e, call, Trend::Rising, f64::floor)),
    of("histogram_avg", histogram::avg),
    of("histogram_count", histogram::count),
    of("histogram_count_above", histogram::count_above),
    of("histogram_count_below", histogram::count_below),
    of("histogram_count_between", histogram::count_between),
    of("histogram_fraction", histogram::fraction),
    of("histogram_inverse_quantile", histogram::inverse_quantile),
    of("histogram_max", histogram::max),
    of("histogram_min", histogram::min),
    of("histogram_quantile", histogram::quantile),
    of("histogram_quantiles", histogram::quantiles),
    of("histogram_stddev", histogram::stddev),
    of("histogram_stdvar", histogram::stdvar),
    of("histogram_sum", histogram::sum),
    of("hour", |e, call| time::date(e, call, |date| date.hour)),
    of("info", info::info),
    of("label_join", label::join),
    of("label_replace", label::replace),
    of("ln", |e, call| math::map(e, call, Trend::Rising, f64::ln)),
    of("log10", |e, call| math::map(e, call, Trend::Rising, f64::log10)),
    of("log2", |e, call| math::map(e, call, Trend::Rising, f64::log2)),
    of("max_of", |e, call| scalar::of_two(e, call, math::greater)),
    of("min_of", |e, call| scalar::of_two(e, call, math::lesser)),
    of("minute", |e, call| time::date(e, call, |date| date.minute)),
    of("month", |e, call| time::date(e, call, |date| date.month)),
    of("pi", scalar::pi),
    of("rad", |e, call| math::map(e, call, Trend::Rising, |x| x * std::f64::consts::PI / 180.0)),
    of("round", math::round),
    of("running_total", running::total),
    of("scalar", scalar::scalar),
    of("sgn", |e, call| math::map(e, call, Trend::Rising, math::sign)),
    of("sin", |e, call| math::map(e, call, Trend::Any, f64::sin)),
    of("sinh", |e, call| math::map(e, call, Trend::Rising, f64::sinh)),
    of("sort", sort::by_value),
    of("sort_by_label", sort::by_label),
    of("sort_by_label_desc", sort::by_label_desc),
    of("sort_desc", sort::by_value_desc),
    of("sqrt", |e, call| math::map(e, call, Trend::Rising, f64::sqrt)),
    of("start_timestamp", time::start_timestamp),
    of("tan", |e, call| math::map(e, call, Trend::Any, f64::tan)),
    of("tanh", |e, call| math::map(e, call, Trend::Rising, f64::tanh)),
    of("time", time::time),
    of("timestamp", time::timestamp),
    of("users_harmed", histogram::users_harmed),
    of("vector", scalar::vector),
    of("year", |e, call| time::date(e, call, |date| date.year)),
];

const fn of(
    name: &'static str,
    work: fn(&mut Evaluation<'_>, &Call<'_>) -> Result<Vec<Stream>>,
) -> Function {
    Function { name, work }
}

impl fmt::Debug for Function {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl Evaluation<'_> {
    pub(crate) fn call(
        &mut self,
        function: &'static Function,
        args: &[Node],
        place: Place,
        steps: Steps,
    ) -> Result<Vec<Stream>> {
        (function.work)(self, &Call { args, place, steps })
    }

    /// Streams with each point changed, or gone where it says `None`. What they are called does not describe
    /// them any more.
    fn changed(
        &mut self,
        call: &Call<'_>,
        at: usize,
        mut change: impl FnMut(usize, &Value) -> Option<Value>,
    ) -> Result<Vec<Stream>> {
        let mut streams = self.streams(&call.args[at], call.steps)?;
        let held = samples(&streams);
        for stream in &mut streams {
            for (step, point) in stream.points.iter_mut().enumerate() {
                *point = point.as_ref().and_then(|value| change(step, value));
            }
            self.drop_name(stream);
        }
        self.exchange(held, &mut streams)?;
        self.merge_same(streams, call.place)
    }

    /// Counts what streams became instead of what they were; empty ones go.
    fn exchange(&mut self, held: u64, streams: &mut Vec<Stream>) -> Result<()> {
        streams.retain(|stream| !stream.is_empty());
        let result = self.budget.hold(samples(streams));
        self.budget.release(held);
        result
    }
}

fn samples(streams: &[Stream]) -> u64 {
    streams.iter().map(Stream::samples).sum()
}

/// A number with its bounds, if these are numbers; widened where the number lies outside.
fn bounded(lower: f64, estimate: f64, upper: f64) -> Value {
    if lower.is_nan() || estimate.is_nan() || upper.is_nan() {
        return Value::Number(estimate);
    }
    let (lower, upper) = (lower.min(estimate), upper.max(estimate));
    Value::of_bracket(Bracket { lower, estimate, upper })
}

/// What is worked out where the same is worked out once.
fn unwrapped(node: &Node) -> &Node {
    match &node.op {
        Op::Once(inner) => inner,
        _ => node,
    }
}

/// The text of an argument that is one.
fn text(node: &Node) -> &str {
    match &unwrapped(node).op {
        Op::Text(text) => text,
        _ => panic!("BUG: the argument is no text"),
    }
}
