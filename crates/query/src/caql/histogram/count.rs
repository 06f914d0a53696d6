//! Count of values: total, and above, below and between thresholds.
//!
//! Thresholds count whole bins, the threshold's own bin included: the estimate counts every value
//! that may qualify, the bracket's lower bound only those that certainly do. A threshold on a bin
//! edge, as every two-digit threshold on circllhist's grid, is exact from that side. So is a
//! threshold that the histogram counted exactly, and one beyond its minimum or maximum.

use hist::{Bracket, LimitInclusion, Mixture};

use super::super::function_table::{CaqlFunctionRow, FunctionTable, SECOND_NS, StreamUnitRule};
use super::super::kernel::{Kernel, KernelInput};
use super::super::signature::ArgumentType::{Number, PositiveDuration};
use super::super::signature::{DefaultValue, OutputShape};
use super::{StatisticFn, StatisticQuery, add, for_each_distribution, of_all, scale};
use crate::error::Result;
use crate::stream::Stream;

/// Adds the functions that count values.
pub(super) fn add_functions(table: &mut FunctionTable) {
    add_counts(table);
    add_rates(table);
    add_ratios(table);
}

fn add_counts(table: &mut FunctionTable) {
    let count = Kernel::without_margin(|call| of_all(call, |m, _| Some(total_count(m))));
    add(table, "count", count).unit(VALUES);
    let kernels: [(&str, Kernel); 3] = [
        (
            "count_above",
            Kernel::without_margin(|call| by_threshold(call, |m, query| Some(above(m, query)))),
        ),
        (
            "count_below",
            Kernel::without_margin(|call| {
                by_threshold(call, |m, query| Some(below(m, query.argument)))
            }),
        ),
        (
            "count_bin",
            Kernel::without_margin(|call| by_threshold(call, |m, query| Some(bin(m, query)))),
        ),
    ];
    for (name, kernel) in kernels {
        with_thresholds(add(table, name, kernel)).unit(VALUES);
    }
    let between = Kernel::without_margin(|call| of_all(call, |m, query| Some(between(m, query))));
    add(table, "count_between", between)
        .required("lower", Number)
        .required("upper", Number)
        .unit(VALUES);
    table
        .add_alias("histogram:count_bucket", "histogram:count_bin")
        .deprecated("histogram:count_bin");
}

fn add_rates(table: &mut FunctionTable) {
    let all_values =
        Kernel::without_margin(|call| of_all(call, |m, query| Some(rate(total_count(m), query))));
    add(table, "rate", all_values)
        .option("period", PositiveDuration, SECOND)
        .unit(StreamUnitRule::Rate);
    let above_threshold = Kernel::without_margin(|call| {
        by_threshold(call, |m, query| Some(rate(above(m, query), query)))
    });
    let below_threshold = Kernel::without_margin(|call| {
        by_threshold(call, |m, query| Some(rate(below(m, query.argument), query)))
    });
    for (name, kernel) in [("rate_above", above_threshold), ("rate_below", below_threshold)] {
        with_thresholds(add(table, name, kernel))
            .option("period", PositiveDuration, SECOND)
            .unit(StreamUnitRule::Rate);
    }
    let in_bin = Kernel::without_margin(|call| {
        by_threshold(call, |m, query| Some(rate(bin(m, query), query)))
    });
    with_thresholds(add(table, "rate_bin", in_bin)).unit(StreamUnitRule::Rate);
    table.add_alias("histogram:rate_bucket", "histogram:rate_bin").deprecated("histogram:rate_bin");
}

fn add_ratios(table: &mut FunctionTable) {
    let above_threshold =
        Kernel::without_margin(|call| by_threshold(call, |m, query| ratio(above(m, query), m)));
    let below_threshold = Kernel::without_margin(|call| {
        by_threshold(call, |m, query| ratio(below(m, query.argument), m))
    });
    for (name, kernel) in [("ratio_above", above_threshold), ("ratio_below", below_threshold)] {
        with_thresholds(add(table, name, kernel)).unit(SHARE_UNIT);
    }
    let between =
        Kernel::without_margin(|call| of_all(call, |m, query| ratio(between(m, query), m)));
    add(table, "ratio_between", between)
        .required("lower", Number)
        .required("upper", Number)
        .unit(SHARE_UNIT);
}

const SECOND: DefaultValue = DefaultValue::Duration(SECOND_NS);
const VALUES: StreamUnitRule = StreamUnitRule::Named("values");
const SHARE_UNIT: StreamUnitRule = StreamUnitRule::Named("share, 0 to 1");

/// One stream for each threshold.
pub(super) fn with_thresholds(row: &mut CaqlFunctionRow) -> &mut CaqlFunctionRow {
    row.variadic("threshold", Number).shape(OutputShape::EachPerArgument)
}

fn by_threshold(mut call: KernelInput<'_>, statistic: StatisticFn) -> Result<Vec<Stream>> {
    for_each_distribution(&mut call, threshold_name, statistic)
}

fn threshold_name(threshold: f64) -> Option<String> {
    Some(threshold.to_string())
}

fn total_count(mixture: &Mixture) -> Bracket {
    Bracket::exact(mixture.count() as f64)
}

/// Number of values at or above the threshold, plus all that share a bin with it.
fn above(mixture: &Mixture, query: &StatisticQuery<'_>) -> Bracket {
    max_bracket(mixture.count_above(query.argument, LimitInclusion::Inclusive))
}

/// Number of values at or below the threshold, plus all that share a bin with it.
fn below(mixture: &Mixture, threshold: f64) -> Bracket {
    let above = mixture.count_above(threshold, LimitInclusion::Exclusive);
    max_bracket(above.complement(mixture.count()))
}

fn max_bracket(known: Bracket<u64>) -> Bracket {
    let upper = known.upper as f64;
    Bracket { lower: known.lower as f64, estimate: upper, upper }
}

/// Number of values in the bins that contain the threshold, over all parts.
fn bin(mixture: &Mixture, query: &StatisticQuery<'_>) -> Bracket {
    let counts = mixture.components().iter().map(|part| part.count_nearby(query.argument) as f64);
    Bracket::exact(counts.sum())
}

/// Number of values above the lower and not above the upper threshold: the difference of the counts
/// below both.
fn between(mixture: &Mixture, query: &StatisticQuery<'_>) -> Bracket {
    let (lower, upper) = (query.number("lower"), query.number("upper"));
    if upper <= lower {
        return Bracket::exact(0.0);
    }
    let (low, high) = (below(mixture, lower), below(mixture, upper));
    Bracket {
        lower: (high.lower - low.upper).max(0.0),
        estimate: high.estimate - low.estimate,
        upper: high.upper - low.lower,
    }
}

/// Count per requested period.
fn rate(count: Bracket, query: &StatisticQuery<'_>) -> Bracket {
    scale(count, 1.0 / query.periods(query.call.arguments.duration("period")))
}

/// Count as a share of all values; `None` for an empty histogram.
fn ratio(count: Bracket, mixture: &Mixture) -> Option<Bracket> {
    let all = mixture.count();
    (all > 0).then(|| count.map(|count| count / all as f64))
}
