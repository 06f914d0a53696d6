//! How many values there are, and how many above, below and between thresholds.
//!
//! Thresholds count whole bins, theirs included: the estimate is every value that may be meant, the
//! bracket leaves out those of which that is not sure. A threshold on the edge of a bin, as are all
//! of two digits on circllhist's grid, is exact from that side; so is one that the histogram was
//! told to count, and what lies past its extremes.

use hist::{Bracket, LimitInclusion, Mixture};

use super::super::function_table::{CaqlFunctionRow, FunctionTable, SECOND_NS, StreamUnitRule};
use super::super::kernel::{Kernel, KernelInput};
use super::super::signature::ArgumentType::{Number, Span};
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
    let count = Kernel::slotwise(|work| of_all(work, |m, _| Some(total_count(m))));
    add(table, "count", count).unit(VALUES);
    let kernels: [(&str, Kernel); 3] = [
        (
            "count_above",
            Kernel::slotwise(|work| by_threshold(work, |m, asked| Some(above(m, asked)))),
        ),
        (
            "count_below",
            Kernel::slotwise(|work| by_threshold(work, |m, asked| Some(below(m, asked.argument)))),
        ),
        ("count_bin", Kernel::slotwise(|work| by_threshold(work, |m, asked| Some(bin(m, asked))))),
    ];
    for (name, kernel) in kernels {
        with_thresholds(add(table, name, kernel)).unit(VALUES);
    }
    let between = Kernel::slotwise(|work| of_all(work, |m, asked| Some(between(m, asked))));
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
        Kernel::slotwise(|work| of_all(work, |m, asked| Some(rate(total_count(m), asked))));
    add(table, "rate", all_values).option("period", Span, SECOND).unit(StreamUnitRule::Rate);
    let above_threshold =
        Kernel::slotwise(|work| by_threshold(work, |m, asked| Some(rate(above(m, asked), asked))));
    let below_threshold = Kernel::slotwise(|work| {
        by_threshold(work, |m, asked| Some(rate(below(m, asked.argument), asked)))
    });
    for (name, kernel) in [("rate_above", above_threshold), ("rate_below", below_threshold)] {
        with_thresholds(add(table, name, kernel))
            .option("period", Span, SECOND)
            .unit(StreamUnitRule::Rate);
    }
    let in_bin =
        Kernel::slotwise(|work| by_threshold(work, |m, asked| Some(rate(bin(m, asked), asked))));
    with_thresholds(add(table, "rate_bin", in_bin)).unit(StreamUnitRule::Rate);
    table.add_alias("histogram:rate_bucket", "histogram:rate_bin").deprecated("histogram:rate_bin");
}

fn add_ratios(table: &mut FunctionTable) {
    let above_threshold =
        Kernel::slotwise(|work| by_threshold(work, |m, asked| ratio(above(m, asked), m)));
    let below_threshold =
        Kernel::slotwise(|work| by_threshold(work, |m, asked| ratio(below(m, asked.argument), m)));
    for (name, kernel) in [("ratio_above", above_threshold), ("ratio_below", below_threshold)] {
        with_thresholds(add(table, name, kernel)).unit(SHARE_UNIT);
    }
    let between = Kernel::slotwise(|work| of_all(work, |m, asked| ratio(between(m, asked), m)));
    add(table, "ratio_between", between)
        .required("lower", Number)
        .required("upper", Number)
        .unit(SHARE_UNIT);
}

const SECOND: DefaultValue = DefaultValue::Duration(SECOND_NS);
const VALUES: StreamUnitRule = StreamUnitRule::Named("values");
const SHARE_UNIT: StreamUnitRule = StreamUnitRule::Named("share, 0 to 1");

/// One stream for each of some thresholds.
pub(super) fn with_thresholds(row: &mut CaqlFunctionRow) -> &mut CaqlFunctionRow {
    row.variadic("threshold", Number).shape(OutputShape::EachPerArgument)
}

fn by_threshold(mut work: KernelInput<'_>, ask: StatisticFn) -> Result<Vec<Stream>> {
    for_each_distribution(&mut work, threshold_name, ask)
}

fn threshold_name(threshold: f64) -> Option<String> {
    Some(threshold.to_string())
}

fn total_count(mixture: &Mixture) -> Bracket {
    Bracket::exact(mixture.count() as f64)
}

/// Those at or above the threshold, and all that share a bin with it.
fn above(mixture: &Mixture, asked: &StatisticQuery<'_>) -> Bracket {
    max_bracket(mixture.count_above(asked.argument, LimitInclusion::Inclusive))
}

/// Those at or below the threshold, and all that share a bin with it.
fn below(mixture: &Mixture, threshold: f64) -> Bracket {
    let above = mixture.count_above(threshold, LimitInclusion::Exclusive);
    max_bracket(above.complement(mixture.count()))
}

fn max_bracket(known: Bracket<u64>) -> Bracket {
    let upper = known.upper as f64;
    Bracket { lower: known.lower as f64, estimate: upper, upper }
}

/// Those in the bins of each part that hold the threshold.
fn bin(mixture: &Mixture, asked: &StatisticQuery<'_>) -> Bracket {
    let counts = mixture.parts().iter().map(|part| part.count_nearby(asked.argument) as f64);
    Bracket::exact(counts.sum())
}

/// Those above the lower threshold and not above the upper: what is below the one and not below the
/// other.
fn between(mixture: &Mixture, asked: &StatisticQuery<'_>) -> Bracket {
    let (lower, upper) = (asked.number("lower"), asked.number("upper"));
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

/// So many in the period that is asked for.
fn rate(count: Bracket, asked: &StatisticQuery<'_>) -> Bracket {
    scale(count, 1.0 / asked.periods(asked.work.arguments.duration("period")))
}

/// As a share of all; of none there is no share.
fn ratio(count: Bracket, mixture: &Mixture) -> Option<Bracket> {
    let all = mixture.count();
    (all > 0).then(|| count.map(|count| count / all as f64))
}
