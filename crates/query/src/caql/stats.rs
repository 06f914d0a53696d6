//! `stats:*`: statistics across streams, slot by slot; missing values are left out.

use std::collections::HashMap;

use super::function_table::StreamUnitRule::{Named, SameAsInputs, Unknown};
use super::function_table::{AverageOver, COUNT, FunctionTable, PERCENT, POSITION, QuantileRule};
use super::kernel::{Kernel, KernelInput, LEGEND};
use super::names::{StreamIdentities, common_labels};
use super::points::{number, numbers, point, stream};
use super::rates::{deviation, variance};
use super::signature::ArgumentType::{Format, Number, Text};
use super::signature::DefaultValue::{self, Absent};
use super::signature::InputKind::{Either, Numbers};
use super::signature::{OutputKind, OutputShape};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    type Kernels<const N: usize> = [(&'static str, Kernel); N];
    let with_number: Kernels<6> = [
        ("sum", Kernel::without_margin(|call| across(call, |values| reduce("sum", values)))),
        ("sub", Kernel::without_margin(|call| across(call, |values| reduce("sub", values)))),
        ("prod", Kernel::without_margin(|call| across(call, |values| reduce("prod", values)))),
        ("div", Kernel::without_margin(|call| across(call, |values| reduce("div", values)))),
        ("max", Kernel::without_margin(|call| across(call, |values| reduce("max", values)))),
        ("min", Kernel::without_margin(|call| across(call, |values| reduce("min", values)))),
    ];
    for (name, kernel) in with_number {
        let has_unit = !matches!(name, "prod" | "div");
        table
            .add_fold(format!("stats:{name}"), Numbers, kernel)
            .optional("x", Number, Absent)
            .unit(if has_unit { SameAsInputs } else { Unknown });
    }
    let plain: Kernels<4> = [
        ("mean", Kernel::without_margin(|call| across(call, |values| reduce("mean", values)))),
        ("stddev", Kernel::without_margin(|call| across(call, |values| reduce("stddev", values)))),
        ("var", Kernel::without_margin(|call| across(call, |values| reduce("var", values)))),
        ("popvar", Kernel::without_margin(|call| across(call, |values| reduce("popvar", values)))),
    ];
    for (name, kernel) in plain {
        let row = table.add_fold(format!("stats:{name}"), Numbers, kernel);
        match name {
            "mean" => row.unit(SameAsInputs).quantiles(QuantileRule::Average(AverageOver::Streams)),
            "stddev" => row.unit(SameAsInputs),
            _ => row.unit(Unknown),
        };
    }
    table
        .add_fold("stats:count", Either, Kernel::without_margin(count_present))
        .output(OutputKind::Numbers)
        .unit(Named("streams"));
    let any_present = Kernel::without_margin(|call| map_presence(call, |any| any.then_some(1.0)));
    table.add_fold("stats:alwaysone", Either, any_present).output(OutputKind::Numbers);
    let none_present =
        Kernel::without_margin(|call| map_presence(call, |any| if any { None } else { Some(1.0) }));
    table.add_fold("stats:absent", Either, none_present).output(OutputKind::Numbers);
    table
        .add_fold("stats:percentile", Numbers, Kernel::without_margin(percentiles))
        .variadic("percentile", PERCENT)
        .shape(OutputShape::OnePerArgument)
        .unit(SameAsInputs);
    table
        .add_map("stats:ratio", Numbers, Kernel::without_margin(ratio))
        .option("partition_fmt", Format, Absent)
        .option("partition", Text, Absent)
        .option("of", Number, DefaultValue::Number(1.0));
    table
        .add_map("stats:clamp", Numbers, Kernel::without_margin(clamp))
        .required("min", Number)
        .required("max", Number)
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table
        .add_map("stats:trim", Numbers, Kernel::without_margin(trim))
        .required("n", COUNT)
        .shape(OutputShape::Other)
        .unit(SameAsInputs);
    table
        .add_fold("stats:select", Numbers, Kernel::without_margin(select))
        .required("n", POSITION)
        .unit(SameAsInputs);
}

/// Reduces the numbers of a slot to one.
pub(super) fn reduce(operator: &str, slot_values: &[Option<f64>]) -> Option<f64> {
    let present = || slot_values.iter().flatten().copied();
    let first = |missing: f64| slot_values.first().copied().flatten().unwrap_or(missing);
    let rest = || slot_values.iter().skip(1).flatten().copied();
    match operator {
        "sum" => Some(present().sum::<f64>() + 0.0),
        "sub" => Some(rest().fold(first(0.0), |left, right| left - right)),
        "prod" => Some(present().product()),
        "div" => Some(first(1.0) / rest().product::<f64>()),
        "mean" => match present().count() {
            0 => None,
            count => Some(present().sum::<f64>() / count as f64),
        },
        "max" => present().reduce(f64::max),
        "min" => present().reduce(f64::min),
        // As in Circonus, `var` is that of a sample (divisor n - 1) and `popvar` that of the
        // population (n). The divisor of `stddev` is not documented there: it is n, as in PromQL.
        "stddev" => deviation(present()),
        "popvar" => variance(present()).map(|(variance, _)| variance),
        "var" => {
            let (variance, count) = variance(present())?;
            (count > 1.0).then(|| variance * count / (count - 1.0))
        }
        "count" => Some(present().count() as f64),
        "alwaysone" => present().next().map(|_| 1.0),
        _ => None,
    }
}

/// Calls `each` with the numbers of each slot, one per stream; the argument `x` adds one.
pub(super) fn each_slot(
    inputs: &[Stream],
    x: Option<f64>,
    slots: usize,
    mut each: impl FnMut(&[Option<f64>]),
) {
    let mut numbers = Vec::with_capacity(inputs.len() + 1);
    for at in 0..slots {
        numbers.clear();
        numbers.extend(inputs.iter().map(|stream| number(stream, at)));
        numbers.extend(x.map(Some));
        each(&numbers);
    }
}

/// Computes one stream from all.
fn across(call: KernelInput<'_>, of: fn(&[Option<f64>]) -> Option<f64>) -> Result<Vec<Stream>> {
    let KernelInput { inputs, arguments, steps, .. } = call;
    let mut points = Vec::with_capacity(steps.count);
    each_slot(&inputs, arguments.number("x"), steps.count, |slot_values| {
        points.push(point(of(slot_values)))
    });
    Ok(vec![Stream::new(common_labels(inputs.iter().map(|stream| &stream.labels)), points)])
}

pub(super) fn count_present(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let count = |at: usize| call.inputs.iter().filter(|stream| stream.points[at].is_some()).count();
    let counts = (0..call.steps.count).map(|at| Some(count(at) as f64));
    Ok(vec![stream(common_labels(call.inputs.iter().map(|stream| &stream.labels)), counts)])
}

fn map_presence(call: KernelInput<'_>, of: fn(bool) -> Option<f64>) -> Result<Vec<Stream>> {
    let any = |at: usize| call.inputs.iter().any(|stream| stream.points[at].is_some());
    let numbers = (0..call.steps.count).map(|at| of(any(at)));
    Ok(vec![stream(common_labels(call.inputs.iter().map(|stream| &stream.labels)), numbers)])
}

/// Percentile of numbers, which are sorted in place; interpolated between adjacent ranks (type 7 of
/// Hyndman and Fan).
pub(super) fn percentile(numbers: &mut [f64], percent: f64) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().checked_sub(1)?;
    let rank = percent / 100.0 * last as f64;
    let below = (rank.floor() as usize).min(last);
    let above = (below + 1).min(last);
    Some(numbers[below] + (numbers[above] - numbers[below]) * (rank - below as f64))
}

fn percentiles(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { inputs, arguments, steps, .. } = call;
    let percents: Vec<f64> =
        arguments.variadic().iter().filter_map(|given| given.number()).collect();
    let mut all = vec![Vec::with_capacity(steps.count); percents.len()];
    each_slot(&inputs, None, steps.count, |slot_values| {
        let mut present: Vec<f64> = slot_values.iter().flatten().copied().collect();
        for (points, percent) in all.iter_mut().zip(&percents) {
            points.push(point(percentile(&mut present, *percent)));
        }
    });
    let labels = common_labels(inputs.iter().map(|stream| &stream.labels));
    let named = |(points, percent): (_, &f64)| {
        Stream::new(labels.with(LEGEND, &format!("p{percent}")), points)
    };
    Ok(all.into_iter().zip(&percents).map(named).collect())
}

fn ratio(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, steps, .. } = call;
    let of = arguments.number("of").unwrap_or(1.0);
    let partitions: Vec<String> =
        match (arguments.format("partition_fmt"), arguments.text("partition")) {
            (Some(format), _) => {
                StreamIdentities::from_streams(&inputs).texts(std::slice::from_ref(format))
            }
            (None, Some(category)) => {
                inputs.iter().map(|stream| stream.labels.get(category).to_owned()).collect()
            }
            (None, None) => vec![String::new(); inputs.len()],
        };
    let mut sums: HashMap<&str, Vec<f64>> = HashMap::new();
    for (stream, partition) in inputs.iter().zip(&partitions) {
        let sums = sums.entry(partition).or_insert_with(|| vec![0.0; steps.count]);
        for (sum, number) in sums.iter_mut().zip(numbers(stream)) {
            *sum += number.unwrap_or(0.0);
        }
    }
    for (stream, partition) in inputs.iter_mut().zip(&partitions) {
        let sums = &sums[partition.as_str()];
        let shares = numbers(stream).zip(sums).map(|(number, sum)| point(Some(number? * of / sum)));
        stream.points = shares.collect();
    }
    Ok(inputs)
}

fn clamp(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let least = call.arguments.number("min").unwrap_or(f64::NEG_INFINITY);
    let most = call.arguments.number("max").unwrap_or(f64::INFINITY);
    Ok(super::points::map(call.inputs, |number| number.max(least).min(most)))
}

/// Numbers of each slot after trimming, sorted.
fn trim(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { inputs, arguments, steps, .. } = call;
    let n = arguments.number("n").unwrap_or(0.0) as usize;
    let left = inputs.len().saturating_sub(n.saturating_mul(2));
    let labels = common_labels(inputs.iter().map(|stream| &stream.labels));
    let mut all = vec![Vec::with_capacity(steps.count); left];
    each_slot(&inputs, None, steps.count, |slot_values| {
        let mut present: Vec<f64> = slot_values.iter().flatten().copied().collect();
        present.sort_by(f64::total_cmp);
        let end = present.len().saturating_sub(n);
        let trimmed = present.get(n..end).unwrap_or(&[]);
        for (at, points) in all.iter_mut().enumerate() {
            points.push(point(trimmed.get(at).copied()));
        }
    });
    let named =
        |(at, points)| Stream::new(labels.with(LEGEND, &format!("rank {}", n + at + 1)), points);
    Ok(all.into_iter().enumerate().map(named).collect())
}

fn select(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let n = call.arguments.number("n").unwrap_or(1.0) as usize;
    let count = call.inputs.len();
    match call.inputs.into_iter().nth(n.saturating_sub(1)) {
        Some(stream) => Ok(vec![stream]),
        None => {
            let message = format!(
                "stats:select({n}) is out of range: there are {count} streams, numbered from 1"
            );
            Err(Error::Execution { span: call.span, message })
        }
    }
}
