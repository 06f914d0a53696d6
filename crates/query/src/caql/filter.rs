//! `filter:*`: selects streams or values.
//!
//! The name states the operation: `filter:[not:]<mode>:[not:]<condition>`. The first `not` selects
//! the other streams, the second negates the condition of each value.

use std::collections::HashSet;

use super::arguments::{ArgumentValue, Arguments};
use super::function_table::{
    COUNT, CaqlFunctionRow, FunctionTable, PERCENT, QuantileRule, SHARE, StreamUnitRule,
};
use super::kernel::{Kernel, KernelInput, SlotMargin};
use super::names::legend;
use super::operators::compare;
use super::points::numbers;
use super::signature::ArgumentType::{Duration, Number, Regex, Time};
use super::signature::DefaultValue::Absent;
use super::signature::InputKind::{Either, Numbers};
use super::stats::percentile;
use crate::error::Result;
use crate::stream::{StepGrid, Stream, seconds};

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let some = Kernel::without_margin(streams);
    let latest = Kernel {
        margin: |arguments, steps| SlotMargin::before(lookback_slots(arguments, steps)),
        run: streams,
    };
    for outer in ["", "not:"] {
        for mode in ["any", "all"] {
            for inner in ["", "not:"] {
                for condition in CONDITIONS {
                    let name = format!("filter:{outer}{mode}:{inner}{condition}");
                    add_filter(table.add_choice(name, Numbers, some).required("x", Number));
                }
                add_filter(table.add_choice(
                    format!("filter:{outer}{mode}:{inner}missing"),
                    Either,
                    some,
                ));
            }
        }
        for condition in CONDITIONS {
            for mode in ["mean", "min", "max"] {
                let name = format!("filter:{outer}{mode}:{condition}");
                add_filter(
                    table.add_choice(name, Numbers, some).required("x", Number).needs_whole_range(),
                );
            }
            let name = format!("filter:{outer}latest:{condition}");
            let row = table.add_choice(name, Numbers, latest).required("x", Number);
            add_filter(row.option("lookback", Duration, Absent));
        }
        let name = format!("filter:{outer}label");
        add_filter(table.add_choice(name, Either, some).required("regex", Regex));
    }
    add_value_filters(table);
    for condition in CONDITIONS {
        let name = format!("filter:sum:{condition}");
        add_filter(table.add_choice(name, Numbers, some).required("x", Number).needs_whole_range());
    }
    table.add_alias("filter:label:matches", "filter:label");
    let unique = Kernel::without_margin(|mut call| {
        let mut names = HashSet::new();
        call.inputs.retain(|stream| names.insert(legend(&stream.labels)));
        Ok(call.inputs)
    });
    add_filter(table.add_choice("filter:label:unique", Either, unique));
    let limit = Kernel::without_margin(|mut call| {
        call.inputs.truncate(call.arguments.number("n").unwrap_or(0.0) as usize);
        Ok(call.inputs)
    });
    add_filter(table.add_choice("filter:limit", Either, limit).required("n", COUNT));
    let row = table.add_map("filter:whence", Either, Kernel::without_margin(by_time));
    add_filter(row.option("start", Time, Absent).option("end", Time, Absent));
}

const CONDITIONS: [&str; 6] = ["lt", "leq", "eq", "neq", "geq", "gt"];

/// Properties common to all filters: they do not change numbers.
fn add_filter(row: &mut CaqlFunctionRow) {
    row.unit(StreamUnitRule::SameAsInputs).quantiles(QuantileRule::Kept);
}

fn add_value_filters(table: &mut FunctionTable) {
    let kernel = Kernel::without_margin(values);
    for inner in ["", "not:"] {
        for condition in CONDITIONS {
            let name = format!("filter:values:{inner}{condition}");
            add_filter(table.add_map(name, Numbers, kernel).required("x", Number));
        }
        for condition in ["gt", "geq", "eq", "lt", "leq"] {
            for (statistic, wants) in [("percentile", PERCENT), ("quantile", SHARE)] {
                let name = format!("filter:values:{inner}{statistic}:{condition}");
                let row = table.add_map(name, Numbers, kernel).required(statistic, wants);
                add_filter(row.needs_whole_range());
            }
        }
    }
}

/// Parsed name of a filter function.
struct FilterName<'a> {
    /// Whether the selection of streams is inverted.
    is_inverted: bool,
    mode: &'a str,
    /// Whether the condition is negated.
    is_negated: bool,
    /// For percentiles: `percentile` or `quantile`.
    statistic: Option<&'a str>,
    condition: &'a str,
}

fn parse_filter_name(name: &str) -> Option<FilterName<'_>> {
    let rest = name.strip_prefix("filter:")?;
    if rest == "label:unique" {
        return Some(FilterName {
            is_inverted: false,
            mode: "unique",
            is_negated: false,
            statistic: None,
            condition: "",
        });
    }
    let (is_inverted, rest) = negation(rest);
    let (mode, rest) = rest.split_once(':').unwrap_or((rest, ""));
    let (is_negated, rest) = negation(rest);
    let (statistic, condition) = match rest.split_once(':') {
        Some((statistic, condition)) => (Some(statistic), condition),
        None => (None, rest),
    };
    Some(FilterName { is_inverted, mode, is_negated, statistic, condition })
}

fn negation(text: &str) -> (bool, &str) {
    match text.strip_prefix("not:") {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// Selects whole streams.
fn streams(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { name, mut inputs, arguments, slots_before: before, steps, .. } = call;
    let Some(read) = parse_filter_name(name) else { return Ok(inputs) };
    let x = arguments.number("x").unwrap_or(f64::NAN);
    let meets = |number: f64| compare(read.condition, number, x) != read.is_negated;
    let is_meant = |stream: &Stream| {
        let mut present = numbers(stream).flatten();
        match (read.mode, read.condition) {
            ("any", "missing") => {
                stream.points.iter().any(|point| point.is_none() != read.is_negated)
            }
            ("all", "missing") => {
                stream.points.iter().all(|point| point.is_none() != read.is_negated)
            }
            ("any", _) => present.any(meets),
            ("all", _) => present.all(meets),
            ("label", _) => arguments
                .regex("regex")
                .is_some_and(|regex| regex.is_match(&legend(&stream.labels))),
            ("latest", _) => latest(stream, arguments, steps).is_some_and(meets),
            ("mean", _) => super::rank::mean(stream).is_some_and(meets),
            ("sum", _) => meets(present.sum()),
            ("min", _) => present.reduce(f64::min).is_some_and(meets),
            ("max", _) => present.reduce(f64::max).is_some_and(meets),
            _ => true,
        }
    };
    inputs.retain(|stream| is_meant(stream) != read.is_inverted);
    for stream in &mut inputs {
        stream.points.drain(..before);
    }
    Ok(inputs)
}

/// Slots before the first one in which the newest value may be.
fn lookback_slots(arguments: &Arguments, steps: StepGrid) -> usize {
    let slots = arguments.duration("lookback").unwrap_or(0) / steps.step;
    usize::try_from(slots).unwrap_or(0).saturating_sub(steps.count)
}

fn latest(stream: &Stream, arguments: &Arguments, steps: StepGrid) -> Option<f64> {
    let slots = match arguments.duration("lookback") {
        None => usize::MAX,
        Some(lookback) => usize::try_from(lookback / steps.step).unwrap_or(0).max(1),
    };
    stream.points.iter().rev().take(slots).flatten().find_map(|value| value.number())
}

/// Keeps all streams and removes the values that do not meet the condition.
fn values(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { name, mut inputs, arguments, .. } = call;
    let Some(read) = parse_filter_name(name) else { return Ok(inputs) };
    for stream in &mut inputs {
        let x = match read.statistic {
            None => arguments.number("x"),
            Some(statistic) => {
                let scale = if statistic == "quantile" { 100.0 } else { 1.0 };
                let percent = arguments.number(statistic).unwrap_or(0.0) * scale;
                percentile(&mut numbers(stream).flatten().collect::<Vec<f64>>(), percent)
            }
        };
        for point in &mut stream.points {
            let number = point.as_ref().and_then(|value| value.number());
            let meets = |(number, x)| compare(read.condition, number, x) != read.is_negated;
            if !number.zip(x).is_some_and(meets) {
                *point = None;
            }
        }
    }
    Ok(inputs)
}

/// Keeps the values of a time range. A bound given as a duration is relative to the end of the
/// range.
fn by_time(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, steps, .. } = call;
    let end = seconds(steps.time(steps.count));
    let timestamp = |name: &str| match arguments.get(name) {
        Some(ArgumentValue::Duration(before)) => Some(end - seconds(*before)),
        Some(ArgumentValue::Number(timestamp)) => Some(*timestamp),
        _ => None,
    };
    let from = timestamp("start").unwrap_or(f64::NEG_INFINITY);
    let to = timestamp("end").unwrap_or(f64::INFINITY);
    for stream in &mut inputs {
        for (time, point) in steps.times().zip(&mut stream.points) {
            if !(from..to).contains(&seconds(time)) {
                *point = None;
            }
        }
    }
    Ok(inputs)
}
