//! `graphite:*`: Graphite's functions on dotted paths, and some of its other functions.

use model::Selector;
use model::selector::{NAME, Pattern, Regex};

use super::function_table::{FunctionTable, INTEGER, PERCENT};
use super::kernel::{Kernel, KernelInput, LEGEND, SlotMargin};
use super::names::{common_labels, legend};
use super::points::{number, numbers, point};
use super::rank::mean;
use super::seasons;
use super::signature::ArgumentType::{self, Text};
use super::signature::DefaultValue::{self, Absent};
use super::signature::InputKind::{Either, Numbers};
use super::signature::OutputShape;
use super::stats::{each_slot, percentile};
use crate::error::{Error, Result};
use crate::labels::NAME as NAME_LABEL;
use crate::stream::{Stream, seconds};

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let renames: [(&str, Kernel, ArgumentType); 3] = [
        ("aliasbynode", Kernel::without_margin(alias_by_node), INTEGER),
        ("removenode", Kernel::without_margin(remove_node), INTEGER),
        ("aliasbytags", Kernel::without_margin(alias_by_tags), Text),
    ];
    for (name, kernel, wants) in renames {
        let parameter = if name == "aliasbytags" { "tag" } else { "node" };
        table.add_map(format!("graphite:{name}"), Either, kernel).variadic(parameter, wants);
    }
    table
        .add_map("graphite:aliassub", Either, Kernel::without_margin(alias_sub))
        .required("search", ArgumentType::Regex)
        .required("replace", Text);
    table
        .add_map("graphite:tagbynode", Either, Kernel::without_margin(tag_by_node))
        .required("key", Text)
        .variadic("node", INTEGER);
    let by_percentile: [(&str, Kernel); 2] = [
        ("averageoutsidepercentile", Kernel::without_margin(outside_percentiles)),
        ("removebetweenpercentile", Kernel::without_margin(remove_between)),
    ];
    for (name, kernel) in by_percentile {
        table
            .add_choice(format!("graphite:{name}"), Numbers, kernel)
            .required("lower_percentile", PERCENT)
            .needs_whole_range();
    }
    table
        .add_map("graphite:substr", Either, Kernel::without_margin(substr))
        .optional("start", INTEGER, DefaultValue::Number(0.0))
        .optional("stop", INTEGER, DefaultValue::Number(0.0));
    table.add_map("graphite:interpolate", Numbers, Kernel::without_margin(interpolate)).optional(
        "limit",
        ArgumentType::Number,
        Absent,
    );
    table
        .add_map("graphite:integralbyinterval", Numbers, Kernel::without_margin(integral))
        .required("interval", ArgumentType::PositiveDuration);
    table
        .add_map("graphite:linearregression", Numbers, Kernel::without_margin(regression))
        .optional("bootstrap", ArgumentType::Duration, Absent)
        .needs_whole_range();
    table
        .add_map("graphite:offsettozero", Numbers, Kernel::without_margin(offset))
        .needs_whole_range();
    table.add_fold("graphite:rangeofseries", Numbers, Kernel::without_margin(range_of_series));
    let seasonal = Kernel {
        margin: |_, steps| SlotMargin::before(seasons::lookback_slots(steps)),
        run: seasons::forecast_seasons,
    };
    for name in ["forecast", "confidencebands", "aberration"] {
        let name = format!("graphite:holtwinters{name}");
        table.add_map(name, Numbers, seasonal).shape(OutputShape::Other);
    }
}

fn range_of_series(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { inputs, steps, .. } = call;
    let mut points = Vec::with_capacity(steps.count);
    each_slot(&inputs, None, steps.count, |row| {
        let least = row.iter().flatten().copied().reduce(f64::min);
        let most = row.iter().flatten().copied().reduce(f64::max);
        points.push(point(most.zip(least).map(|(most, least)| most - least)));
    });
    Ok(vec![Stream::new(common_labels(inputs.iter().map(|stream| &stream.labels)), points)])
}

/// Parses a path: `*` and `?` match within a node, `**` matches across nodes, `{a,b}` matches
/// either.
pub(super) fn selector(path: &str) -> Result<Selector, String> {
    if !path.contains(['*', '?', '{', '[']) {
        return Ok(Selector::tag(NAME, Pattern::Exact(path.to_owned())));
    }
    let mut regex = String::from("^");
    let mut depth = 0;
    let mut rest = path.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '*' if rest.next_if_eq(&'*').is_some() => regex.push_str(".*"),
            '*' => regex.push_str("[^.]*"),
            '?' => regex.push_str("[^.]"),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            ',' if depth > 0 => regex.push('|'),
            '[' | ']' | '-' => regex.push(character),
            character => regex.push_str(&regex::escape(&character.to_string())),
        }
    }
    regex.push('$');
    let regex = Regex::search(&regex).map_err(|error| {
        format!("invalid path {path:?}: found {}, expected {}", error.found, error.expected)
    })?;
    Ok(Selector::tag(NAME, Pattern::Regex(regex)))
}

/// Selected node indices of a path; a negative number counts from the end.
fn selected_nodes(call: &KernelInput<'_>, count: usize) -> Vec<usize> {
    let numbers = call.arguments.variadic().iter().filter_map(|given| given.number());
    let index_of = |number: f64| {
        let at = if number < 0.0 { count as f64 + number } else { number };
        (at >= 0.0 && at < count as f64).then_some(at as usize)
    };
    numbers.filter_map(index_of).collect()
}

fn join_nodes(call: &KernelInput<'_>, stream: &Stream) -> String {
    let nodes: Vec<&str> = stream.labels.name().split('.').collect();
    selected_nodes(call, nodes.len()).into_iter().map(|at| nodes[at]).collect::<Vec<_>>().join(".")
}

fn alias_by_node(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let mut streams = std::mem::take(&mut call.inputs);
    for stream in &mut streams {
        stream.labels = stream.labels.with(LEGEND, &join_nodes(&call, stream));
    }
    Ok(streams)
}

fn tag_by_node(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let key = call.arguments.text("key").unwrap_or_default();
    if !super::names::is_tag(key) {
        let message = format!("{key:?} is not a tag category");
        return Err(Error::Parse { span: call.span, message });
    }
    let mut streams = std::mem::take(&mut call.inputs);
    for stream in &mut streams {
        stream.labels = stream.labels.with(key, &join_nodes(&call, stream));
    }
    Ok(streams)
}

fn remove_node(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let mut streams = std::mem::take(&mut call.inputs);
    for stream in &mut streams {
        let nodes: Vec<&str> = stream.labels.name().split('.').collect();
        let removed = selected_nodes(&call, nodes.len());
        let left = nodes.iter().enumerate().filter(|(at, _)| !removed.contains(at));
        let left: Vec<&str> = left.map(|(_, node)| *node).collect();
        stream.labels = stream.labels.with(NAME_LABEL, &left.join("."));
    }
    Ok(streams)
}

/// `\1` is an alias of `$1`.
fn alias_sub(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let Some(regex) = arguments.regex("search") else { return Ok(inputs) };
    let mut replacement = String::new();
    let mut rest = arguments.text("replace").unwrap_or_default().chars().peekable();
    while let Some(character) = rest.next() {
        match (character, rest.peek()) {
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                replacement.push_str(&format!("${{{digit}}}"));
                rest.next();
            }
            _ => replacement.push(character),
        }
    }
    for stream in &mut inputs {
        let legend_text = legend(&stream.labels);
        let label = regex.replace_all(&legend_text, replacement.as_str());
        stream.labels = stream.labels.with(LEGEND, &label);
    }
    Ok(inputs)
}

fn alias_by_tags(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    for stream in &mut inputs {
        let value = |category: &str| match category {
            "name" => stream.labels.name().to_owned(),
            category => stream.labels.get(category).to_owned(),
        };
        let values = arguments.variadic().iter().filter_map(|given| given.text()).map(value);
        let values: Vec<String> = values.filter(|value| !value.is_empty()).collect();
        stream.labels = stream.labels.with(LEGEND, &values.join("."));
    }
    Ok(inputs)
}

/// Legend from a range of nodes; the end is exclusive.
fn substr(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let of = |name: &str| arguments.number(name).unwrap_or(0.0);
    for stream in &mut inputs {
        let nodes: Vec<&str> = stream.labels.name().split('.').collect();
        let index_of = |number: f64| {
            let from = if number < 0.0 { nodes.len() as f64 } else { 0.0 };
            (from + number).clamp(0.0, nodes.len() as f64) as usize
        };
        let start = index_of(of("start"));
        let end = if of("stop") == 0.0 { nodes.len() } else { index_of(of("stop")) };
        let label = nodes.get(start..end).unwrap_or(&[]).join(".");
        stream.labels = stream.labels.with(LEGEND, &label);
    }
    Ok(inputs)
}

/// The two percentiles that bound the middle.
fn bounds(call: &KernelInput<'_>) -> (f64, f64) {
    let lower = call.arguments.number("lower_percentile").unwrap_or(0.0);
    (lower.min(100.0 - lower), lower.max(100.0 - lower))
}

/// Streams whose average is outside the middle.
fn outside_percentiles(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let (lower, upper) = bounds(&call);
    let mut means: Vec<f64> = call.inputs.iter().filter_map(mean).collect();
    let ends = percentile(&mut means, lower).zip(percentile(&mut means, upper));
    call.inputs.retain(|stream| {
        let is_inside = |((least, most), mean)| (least..=most).contains(&mean);
        !ends.zip(mean(stream)).is_some_and(is_inside)
    });
    Ok(call.inputs)
}

/// Streams that leave the middle of all streams at least once.
fn remove_between(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let (lower, upper) = bounds(&call);
    let mut keeps = vec![false; call.inputs.len()];
    each_slot(&call.inputs, None, call.steps.count, |row| {
        let mut present: Vec<f64> = row.iter().flatten().copied().collect();
        let ends = percentile(&mut present, lower).zip(percentile(&mut present, upper));
        let Some((least, most)) = ends else { return };
        for (keep, number) in keeps.iter_mut().zip(row) {
            *keep |= number.is_some_and(|number| !(least..=most).contains(&number));
        }
    });
    let mut keeps = keeps.into_iter();
    call.inputs.retain(|_| keeps.next().unwrap_or(false));
    Ok(call.inputs)
}

/// Fills gaps up to the maximum length by linear interpolation.
fn interpolate(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let limit = arguments.number("limit").unwrap_or(f64::INFINITY);
    for stream in &mut inputs {
        let known_points: Vec<(usize, f64)> =
            numbers(stream).enumerate().filter_map(|(at, number)| Some((at, number?))).collect();
        for pair in known_points.windows(2) {
            let [(from, first), (to, last)] = *pair else { continue };
            if (to - from - 1) as f64 > limit {
                continue;
            }
            for at in from + 1..to {
                let part = (at - from) as f64 / (to - from) as f64;
                stream.points[at] = point(Some(first + (last - first) * part));
            }
        }
    }
    Ok(inputs)
}

/// Running sum that restarts with each interval.
fn integral(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, steps, .. } = call;
    let interval = arguments.duration("interval").unwrap_or(steps.step).max(1);
    for stream in &mut inputs {
        let (mut sum, mut current) = (0.0, None);
        for at in 0..steps.count {
            let this = steps.time(at).div_euclid(interval);
            if current.replace(this) != Some(this) {
                sum = 0.0;
            }
            let Some(number) = number(stream, at) else { continue };
            sum += number;
            stream.points[at] = point(Some(sum));
        }
    }
    Ok(inputs)
}

/// Least-squares line through the first part of the range, or all of it.
fn regression(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, steps, .. } = call;
    let length = arguments.duration("bootstrap").unwrap_or(i64::MAX);
    let slots = usize::try_from(length / steps.step).unwrap_or(usize::MAX).max(1);
    let time = |at: usize| seconds(steps.step.saturating_mul(at as i64));
    for stream in &mut inputs {
        let known_points: Vec<(f64, f64)> = numbers(stream)
            .take(slots)
            .enumerate()
            .filter_map(|(at, number)| Some((time(at), number?)))
            .collect();
        let count = known_points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| known_points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let (top, bottom) = known_points.iter().fold((0.0, 0.0), |sum, point| {
            (sum.0 + (point.0 - x) * (point.1 - y), sum.1 + (point.0 - x) * (point.0 - x))
        });
        let slope = if bottom > 0.0 { top / bottom } else { 0.0 };
        let line = |at| (count > 0.0).then(|| y + slope * (time(at) - x));
        stream.points = (0..steps.count).map(|at| point(line(at))).collect();
    }
    Ok(inputs)
}

/// Subtracts the minimum from each stream.
fn offset(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    for stream in &mut call.inputs {
        let least = numbers(stream).flatten().fold(f64::INFINITY, f64::min);
        stream.points = numbers(stream).map(|number| point(number.map(|x| x - least))).collect();
    }
    Ok(call.inputs)
}
