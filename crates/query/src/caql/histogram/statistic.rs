//! Statistics of distributions: percentiles and their inverse, minimum, maximum, mean, standard
//! deviation, sum.

use hist::{Bracket, Histogram, LimitInclusion, Mixture, QuantileMethod};

use super::super::function_table::{FunctionTable, PERCENT, QuantileRule, StreamUnitRule};
use super::super::kernel::Kernel;
use super::super::signature::ArgumentType::PositiveDuration;
use super::super::signature::{DefaultValue, OutputShape};
use super::count::with_thresholds;
use super::{
    StatisticQuery, add, bins, circllhist, for_each_distribution, of_all, scale, with_estimate,
};

/// Adds the functions that compute a statistic.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let plain: [(&str, Kernel); 4] = [
        ("min", Kernel::without_margin(|call| of_all(call, |m, _| percentile(m, 0.0)))),
        ("max", Kernel::without_margin(|call| of_all(call, |m, _| percentile(m, 100.0)))),
        ("mean", Kernel::without_margin(|call| of_all(call, |m, _| mean(m)))),
        ("stddev", Kernel::without_margin(|call| of_all(call, |m, _| stddev(m)))),
    ];
    for (name, kernel) in plain {
        add(table, name, kernel).unit(StreamUnitRule::Values);
    }
    let median = Kernel::without_margin(|call| of_all(call, |m, _| percentile(m, 50.0)));
    add(table, "median", median).unit(StreamUnitRule::Values).quantiles(QuantileRule::Quantile);
    let sum = Kernel::without_margin(|call| of_all(call, |m, query| Some(sum(m, query))));
    add(table, "sum", sum)
        .option("period", PositiveDuration, DefaultValue::Absent)
        .unit(StreamUnitRule::Values);
    let range =
        Kernel::without_margin(|call| of_all(call, |m, query| span(m, query.number("range"))));
    add(table, "IQR", range)
        .optional("range", PERCENT, DefaultValue::Number(50.0))
        .unit(StreamUnitRule::Values);
    let inverse_percentile = Kernel::without_margin(|mut call| {
        let named = |threshold: f64| Some(threshold.to_string());
        for_each_distribution(&mut call, named, |m, query| inverse(m, query.argument))
    });
    with_thresholds(add(table, "inverse_percentile", inverse_percentile))
        .unit(StreamUnitRule::Named("percent"));
    let percentile = Kernel::without_margin(|mut call| {
        let named = |percent: f64| Some(format!("p{percent}"));
        for_each_distribution(&mut call, named, |m, query| percentile(m, query.argument))
    });
    add(table, "percentile", percentile)
        .variadic("percentile", PERCENT)
        .shape(OutputShape::EachPerArgument)
        .unit(StreamUnitRule::Values)
        .quantiles(QuantileRule::Quantile);
}

/// Value of rank ⌈pn⌉. In a bin of m values, the k-th is at k/(m + 1) of the width.
fn percentile(mixture: &Mixture, percent: f64) -> Option<Bracket> {
    let share = percent / 100.0;
    match circllhist(mixture) {
        Some(bins) => bins.quantile_with(share, QuantileMethod::Circllhist1),
        None => mixture.quantile(share),
    }
}

/// Percentage of values below a threshold. The values of the threshold's bin are taken as evenly
/// spread.
fn inverse(mixture: &Mixture, threshold: f64) -> Option<Bracket> {
    let all = mixture.count();
    if all == 0 {
        return None;
    }
    let below = mixture.count_above(threshold, LimitInclusion::Inclusive).complement(all);
    let known = scale(below.fraction_of(all), 100.0);
    let share = |left: f64, right: f64| match (threshold <= left, threshold >= right) {
        (true, _) => 0.0,
        (_, true) => 1.0,
        _ => (threshold - left) / (right - left),
    };
    let estimate: f64 = match circllhist(mixture) {
        Some(part) => bins(part).map(|bin| bin.count * share(bin.left, bin.right)).sum(),
        None => {
            let cells = mixture.components().iter().flat_map(Histogram::cells);
            cells.map(|cell| cell.count as f64 * share(cell.lower, cell.upper)).sum()
        }
    };
    Some(with_estimate(known, 100.0 * estimate / all as f64))
}

fn mean(mixture: &Mixture) -> Option<Bracket> {
    let known = mixture.mean()?;
    Some(match without_sum(mixture).map(midpoint_moments) {
        Some(middles) => with_estimate(known, middles.sum / mixture.count() as f64),
        None => known,
    })
}

/// Standard deviation of the population, not of a sample.
fn stddev(mixture: &Mixture) -> Option<Bracket> {
    if mixture.count() == 1 {
        return Some(Bracket::exact(0.0));
    }
    let known = mixture.stddev()?;
    Some(match circllhist(mixture).map(midpoint_moments) {
        Some(middles) => with_estimate(known, middles.deviation),
        None => known,
    })
}

fn sum(mixture: &Mixture, query: &StatisticQuery<'_>) -> Bracket {
    let known = mixture.sum();
    let middles = without_sum(mixture).map(midpoint_moments);
    let sum = middles.map_or(known, |middles| with_estimate(known, middles.sum));
    match query.call.arguments.duration("period") {
        Some(period) => scale(sum, 1.0 / query.periods(Some(period))),
        None => sum,
    }
}

/// Distance between the percentiles that enclose `range` percent of the values.
fn span(mixture: &Mixture, range: f64) -> Option<Bracket> {
    let low = percentile(mixture, 50.0 - range / 2.0)?;
    let high = percentile(mixture, 50.0 + range / 2.0)?;
    let known = Bracket {
        lower: (high.lower - low.upper).max(0.0),
        estimate: (high.estimate - low.estimate).max(0.0),
        upper: (high.upper - low.lower).max(0.0),
    };
    Some(known)
}

/// The only part, if it has circllhist bins and its source has no sum of its own, exact or not.
fn without_sum(mixture: &Mixture) -> Option<&Histogram> {
    circllhist(mixture).filter(|part| part.tracked_sum().value().is_none())
}

/// Sum and deviation computed from bin midpoints as in libcircllhist.
struct MidpointMoments {
    sum: f64,
    deviation: f64,
}

fn midpoint_moments(part: &Histogram) -> MidpointMoments {
    let count = part.count() as f64;
    let sum: f64 = bins(part).map(|bin| bin.count * bin.middle()).sum();
    let mean = sum / count;
    // Equal to the mean of squares less the square of the mean, without cancellation.
    let squares: f64 = bins(part)
        .map(|bin| {
            let difference = bin.middle() - mean;
            bin.count * difference * difference
        })
        .sum();
    MidpointMoments { sum, deviation: (squares / count).sqrt() }
}
