//! `outlier:*`: streams that differ from the others, slot by slot. Missing numbers are left out.
//!
//! Circonus does not define normal for `count` and `normal_range`. Here a number is normal within
//! some deviations of the median; a deviation is 1.4826 times the median absolute deviation, which
//! equals the standard deviation for a normal distribution. If more than half of the numbers are
//! equal, it is 1.2533 times the mean absolute deviation (B. Iglewicz and D. Hoaglin, How to detect
//! and handle outliers, 1993). A sensitivity of 50 allows three deviations, 0 six, 100 none.

use super::function_table::{COUNT, FunctionTable, PERCENT, SWITCH};
use super::kernel::{Kernel, KernelInput, LEGEND};
use super::names::common_labels;
use super::points::{number, stream};
use super::running_variance::RunningVariance;
use super::signature::InputKind::Numbers;
use super::signature::{ArgumentType, DefaultValue, OutputShape};
use crate::error::Result;
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    const NORMALIZE: ArgumentType = ArgumentType::IntegerWithin(0.0, 2.0);
    const ZERO: DefaultValue = DefaultValue::Number(0.0);
    table.add_map("outlier:cluster_score", Numbers, Kernel::without_margin(cluster_score)).option(
        "normalize",
        NORMALIZE,
        ZERO,
    );
    table.add_fold("outlier:count", Numbers, Kernel::without_margin(count)).option(
        "sensitivity",
        PERCENT,
        DefaultValue::Number(50.0),
    );
    table
        .add_fold("outlier:normal_range", Numbers, Kernel::without_margin(normal_range))
        .option("sensitivity", PERCENT, DefaultValue::Number(50.0))
        .shape(OutputShape::Other);
    table
        .add_fold("outlier:std_score", Numbers, Kernel::without_margin(std_score))
        .option("trim", COUNT, ZERO)
        .option("show_model", SWITCH, ZERO)
        .option("normalize", NORMALIZE, ZERO);
}

/// Distance of each number from the mean of the others.
fn cluster_score(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let norm = DeviationUnit::from_arguments(&call);
    let mut scores = vec![Vec::with_capacity(call.steps.count); call.inputs.len()];
    for at in 0..call.steps.count {
        let row: Vec<Option<f64>> = call.inputs.iter().map(|input| number(input, at)).collect();
        // Sums without each number: its prefix plus its suffix.
        let spread = |number: &Option<f64>| {
            number.map_or_else(RunningVariance::default, RunningVariance::from_number)
        };
        let mut after = vec![RunningVariance::default(); row.len() + 1];
        for i in (0..row.len()).rev() {
            after[i] = spread(&row[i]);
            let rest = after[i + 1];
            after[i].merge(&rest);
        }
        let mut before = RunningVariance::default();
        for (i, number) in row.iter().enumerate() {
            let mut others = before;
            others.merge(&after[i + 1]);
            scores[i].push(number.and_then(|number| norm.score(number, others)));
            before.merge(&spread(number));
        }
    }
    let streams = call.inputs.iter().zip(scores);
    Ok(streams.map(|(input, scores)| stream(input.labels.clone(), scores)).collect())
}

/// Distance of the first number from the trimmed mean of the others.
fn std_score(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let norm = DeviationUnit::from_arguments(&call);
    let trim = call.arguments.number("trim").unwrap_or(0.0) as usize;
    let shows_model = call.arguments.number("show_model") == Some(1.0);
    let Some((first, others)) = call.inputs.split_first() else { return Ok(Vec::new()) };
    let scores = (0..call.steps.count).map(|at| {
        let rest = sorted_numbers(others, at);
        let trimmed = rest.get(trim..rest.len().checked_sub(trim)?)?;
        let model: RunningVariance = trimmed.iter().copied().collect();
        match shows_model {
            true => (model.count > 0.0).then_some(model.mean),
            false => norm.score(number(first, at)?, model),
        }
    });
    Ok(vec![stream(
        common_labels(call.inputs.iter().map(|input| &input.labels)),
        scores.collect::<Vec<_>>(),
    )])
}

fn count(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let allowed = allowed_deviations(&call);
    let counts = (0..call.steps.count).map(|at| {
        let sorted = sorted_numbers(&call.inputs, at);
        let outliers = normal_range_of(&sorted, allowed).map_or(0, |(low, high)| {
            sorted.iter().filter(|number| **number < low || **number > high).count()
        });
        Some(outliers as f64)
    });
    Ok(vec![stream(
        common_labels(call.inputs.iter().map(|input| &input.labels)),
        counts.collect::<Vec<_>>(),
    )])
}

/// Two streams: the lower and the upper bound of normal numbers.
fn normal_range(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let allowed = allowed_deviations(&call);
    let ranges =
        (0..call.steps.count).map(|at| normal_range_of(&sorted_numbers(&call.inputs, at), allowed));
    let (low, high): (Vec<_>, Vec<_>) =
        ranges.map(|range| (range.map(|range| range.0), range.map(|range| range.1))).unzip();
    let labels = common_labels(call.inputs.iter().map(|input| &input.labels));
    Ok(vec![
        stream(labels.with(LEGEND, "lower bound"), low),
        stream(labels.with(LEGEND, "upper bound"), high),
    ])
}

/// Allowed deviations from the median.
fn allowed_deviations(call: &KernelInput<'_>) -> f64 {
    6.0 * (1.0 - call.arguments.number("sensitivity").unwrap_or(50.0) / 100.0)
}

/// Sorted numbers of a slot.
fn sorted_numbers(inputs: &[Stream], at: usize) -> Vec<f64> {
    let numbers = inputs.iter().filter_map(|input| number(input, at));
    let mut sorted: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Bounds of normal numbers.
fn normal_range_of(sorted: &[f64], allowed: f64) -> Option<(f64, f64)> {
    let middle = median(sorted)?;
    let mut distances: Vec<f64> = sorted.iter().map(|number| (number - middle).abs()).collect();
    distances.sort_by(f64::total_cmp);
    let deviation = match median(&distances)? {
        0.0 => 1.2533 * distances.iter().sum::<f64>() / distances.len() as f64,
        median => 1.4826 * median,
    };
    Some((middle - allowed * deviation, middle + allowed * deviation))
}

fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[last - last / 2]))
}

/// Unit of a deviation score.
enum DeviationUnit {
    Plain,
    Deviation,
    Mean,
}

impl DeviationUnit {
    fn from_arguments(call: &KernelInput<'_>) -> DeviationUnit {
        match call.arguments.number("normalize") {
            Some(1.0) => DeviationUnit::Deviation,
            Some(2.0) => DeviationUnit::Mean,
            _ => DeviationUnit::Plain,
        }
    }

    /// `None` if there are no others, or the divisor is 0.
    fn score(&self, number: f64, others: RunningVariance) -> Option<f64> {
        let difference = number - others.mean;
        match self {
            _ if others.count == 0.0 => None,
            _ if difference == 0.0 => Some(0.0),
            DeviationUnit::Plain => Some(difference),
            DeviationUnit::Deviation => Some(difference / others.variance().sqrt()),
            DeviationUnit::Mean => Some(difference / others.mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kernel::{StreamFn, format_streams, numbers, run_kernel, view};

    #[track_caller]
    fn check(streams: &[&str], call: &str, expected: &str) {
        let made: Vec<_> = streams.iter().map(|text| numbers(text)).collect();
        let made: Vec<StreamFn<'_>> = made.iter().map(|made| made as StreamFn<'_>).collect();
        assert_eq!(format_streams(&run_kernel(call, &made, view(3)).unwrap()), expected, "{call}");
    }

    const FIVE: [&str; 5] = ["10 10 .", "11 10 .", "12 10 .", "13 10 .", "100 11 7"];

    #[test]
    fn against_the_others() {
        check(&["5 5 .", "1 5 1", "3 5 ."], "outlier:std_score()", "3 0 .");
        check(&["5 5 .", "1 5 1", "3 5 ."], "outlier:std_score(normalize=1)", "3 0 .");
        check(&["5 5 .", "1 5 1", "3 5 ."], "outlier:std_score(normalize=2)", "1.5 0 .");
        check(&["5 5 .", "1 5 1", "3 5 ."], "outlier:std_score(show_model=1)", "2 5 1");
        check(&["5", "1", "3", "100"], "outlier:std_score(trim=1)", "2 . .");
        check(&["5", "1", "3"], "outlier:std_score(trim=2)", ". . .");
        check(&["5 1", "1 .", "3 ."], "outlier:cluster_score()", "3 . .; -3 . .; 0 . .");
        check(&["5", "1", "3"], "outlier:cluster_score(normalize=1)", "3 . .; -3 . .; 0 . .");
    }

    #[test]
    fn normal_range_is_computed() {
        // The median is 12, the absolute deviations are 0 1 1 2 88: a deviation is 1.4826.
        check(&FIVE, "outlier:normal_range()", "7.5522 9.24802 7; 16.4478 10.75198 7");
        check(&FIVE, "outlier:count()", "1 1 0");
        check(&FIVE, "outlier:count(sensitivity=100)", "4 1 0");
        check(&FIVE, "outlier:count(sensitivity=0)", "1 0 0");
    }
}
