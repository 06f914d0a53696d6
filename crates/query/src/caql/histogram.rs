//! `histogram:*`: creation, merging and statistics of distributions.
//!
//! Every result is a bracket that contains the true value, with CAQL's estimate in it:
//! libcircllhist's result for circllhist bins (base 10, two digits), and the histogram's own
//! estimate for other histograms. If a histogram has more than bins (an exact sum, minimum and
//! maximum, exactly counted thresholds), the result is the exact number instead of the estimate:
//! `histogram{1, 2, 3} | histogram:mean()` is 2, not 2.0485, the mean of the bin midpoints.
//! Histograms from Circonus have only bins, so their results equal those of Circonus.

mod count;
mod make;
mod random;
mod statistic;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hist::{Bracket, Histogram, Mixture, Scheme};

use super::arguments::ArgumentValue;
use super::function_table::{CaqlFunctionRow, FunctionTable};
use super::kernel::{Kernel, KernelInput, LEGEND};
use super::names::legend;
use super::signature::InputKind::Histograms;
use super::signature::OutputKind;
use crate::error::Result;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    make::add_functions(table);
    count::add_functions(table);
    statistic::add_functions(table);
    random::add_functions(table);
}

/// Adds a function from histograms to numbers.
fn add<'a>(table: &'a mut FunctionTable, name: &str, kernel: Kernel) -> &'a mut CaqlFunctionRow {
    table.add_map(format!("histogram:{name}"), Histograms, kernel).output(OutputKind::Numbers)
}

/// Distribution of one number; `None` for a missing number.
pub(super) fn from_number(number: f64) -> Option<Arc<Mixture>> {
    if number.is_nan() {
        return None;
    }
    let mut histogram = Histogram::new(Scheme::LogLinear10);
    histogram.record(number);
    Some(Arc::new(Mixture::from(histogram)))
}

/// Distribution in a value.
pub(super) fn from_value(value: &StepValue) -> Option<&Arc<Mixture>> {
    match value {
        StepValue::Distribution(mixture) => Some(mixture),
        StepValue::Number(_) | StepValue::Bracket(_) | StepValue::Histogram(_) => None,
    }
}

/// Statistic of one distribution, with its argument and the slot length.
type StatisticFn = fn(&Mixture, &StatisticQuery<'_>) -> Option<Bracket>;

/// Arguments of a statistic.
struct StatisticQuery<'a> {
    call: &'a KernelInput<'a>,
    /// Variadic argument; 0 if the function has none.
    argument: f64,
}

impl StatisticQuery<'_> {
    /// Number passed for a parameter.
    fn number(&self, name: &str) -> f64 {
        self.call.arguments.number(name).unwrap_or(0.0)
    }

    /// Slot length in requested periods.
    fn periods(&self, period: Option<i64>) -> f64 {
        let StepGrid { step, .. } = self.call.steps;
        step as f64 / period.unwrap_or(SECOND_NS) as f64
    }
}

const SECOND_NS: i64 = 1_000_000_000;

/// Evaluates each distribution once per argument (once if there are none). For each stream, the
/// results follow the order of the arguments.
fn for_each_distribution(
    call: &mut KernelInput<'_>,
    named: fn(f64) -> Option<String>,
    statistic: StatisticFn,
) -> Result<Vec<Stream>> {
    let inputs = std::mem::take(&mut call.inputs);
    let rest: Vec<f64> =
        call.arguments.variadic().iter().filter_map(ArgumentValue::number).collect();
    let arguments = if rest.is_empty() { vec![0.0] } else { rest };
    let empty = Mixture::default();
    let mut streams = Vec::with_capacity(inputs.len() * arguments.len());
    for input in &inputs {
        for argument in &arguments {
            let query = StatisticQuery { call, argument: *argument };
            let of = |value: &Option<StepValue>| {
                let held = value.as_ref().and_then(from_value);
                let found = statistic(held.map_or(&empty, |held| held), &query)?;
                found.estimate.is_finite().then(|| StepValue::from_bracket(found))
            };
            let points = input.points.iter().map(of).collect();
            let mut labels = input.labels.clone();
            if let Some(named) = named(*argument) {
                labels = labels.with(LEGEND, format!("{} {named}", legend(&labels)).trim_start());
            }
            streams.push(Stream { labels, drops_name: input.drops_name, points });
        }
    }
    Ok(streams)
}

/// Evaluates each distribution once.
fn of_all(mut call: KernelInput<'_>, statistic: StatisticFn) -> Result<Vec<Stream>> {
    for_each_distribution(&mut call, |_| None, statistic)
}

/// Places an estimate in a bracket.
fn with_estimate(known: Bracket, estimate: f64) -> Bracket {
    let estimate = if estimate.is_nan() { known.estimate } else { estimate };
    Bracket { estimate: estimate.max(known.lower).min(known.upper), ..known }
}

/// Scales each bound by a positive factor.
fn scale(known: Bracket, factor: f64) -> Bracket {
    known.map(|bound| bound * factor)
}

/// The only part, if it has circllhist bins.
fn circllhist(mixture: &Mixture) -> Option<&Histogram> {
    match mixture.components() {
        [part] if *part.scheme() == Scheme::LogLinear10 && !part.is_empty() => Some(part),
        _ => None,
    }
}

/// Bin with its edges and count.
struct HistogramBin {
    left: f64,
    right: f64,
    count: f64,
}

impl HistogramBin {
    /// libcircllhist's representative value of a bin: the harmonic mean of its edges, which bounds
    /// the relative error for all values in the bin.
    fn middle(&self) -> f64 {
        match self.left == self.right {
            true => self.left,
            false => 2.0 * self.left * self.right / (self.left + self.right),
        }
    }
}

/// circllhist bins in no particular order. Values beyond the grid are placed at its end.
fn bins(histogram: &Histogram) -> impl Iterator<Item = HistogramBin> + '_ {
    let edges = |index| histogram.scheme().edges(index).unwrap_or_default();
    let bin = |left, right, count: u64| HistogramBin { left, right, count: count as f64 };
    let positive = histogram.positive().iter().map(move |(index, count)| {
        let (left, right) = edges(index);
        bin(left, right, count)
    });
    let negative = histogram.negative().iter().map(move |(index, count)| {
        let (left, right) = edges(index);
        bin(-right, -left, count)
    });
    const END: f64 = 1e128;
    let others = [
        bin(0.0, 0.0, histogram.zero_count()),
        bin(END, END, histogram.overflow()),
        bin(-END, -END, histogram.underflow()),
    ];
    positive.chain(negative).chain(others).filter(|bin| bin.count > 0.0)
}
