//! `window:*`: statistics of consecutive windows; shared code for `rolling:*`.
//!
//! `window:*` shows in each slot the window that contains the slot's start or, with `align="end"`,
//! the last window that ended by then. `rolling:*` shows the window that ends at the end of the
//! slot, or at the last multiple of `skip` before that; with `align="start"` it equals `window:*`.
//! Missing numbers are skipped. A window without numbers is missing, but `count` is 0, `absent` is
//! 1, and a histogram is empty.
//!
//! A slot belongs to a window if it starts in the window; a window that is shorter than a slot and
//! contains no slot start uses the slot around it. Costs do not grow with the window length, except
//! for percentiles (a memory move of the window's numbers for each slot).

mod calendar;
mod fold;
mod merged;
mod sorted_window;
#[cfg(test)]
mod tests;

use std::ops::Range;

use calendar::{CalendarClock, WindowCalendar};
use fold::{
    AllAbsent, AnyPresent, Changes, CounterIncrease, CounterResets, Delta, FirstValue, LastValue,
    Max, Min, PairwiseSum as Added, WindowAggregate, WindowCount, WindowMean, WindowSum,
    WindowVariance,
};

use super::arguments::Arguments;
use super::ast::Constant;
use super::function_table::StreamUnitRule::{Distributions, Named, SameAsInputs, Unknown};
use super::function_table::{
    AverageOver, CaqlFunctionRow, FunctionTable, PERCENT, QuantileRule, ResampleRule,
};
use super::kernel::{Kernel, KernelFn, KernelInput, SlotMargin};
use super::points::point;
use super::signature::ArgumentType::{Number, OneOf, PositiveDuration, ShiftOrZone};
use super::signature::InputKind::{Either, Histograms, Numbers};
use super::signature::{DefaultValue, InputKind, OutputKind};
use super::zone::Zone;
use crate::error::{Error, Result};
use crate::sliding::sliding_sums;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

/// Adds the functions of both packages: a package is the name before the colon.
pub(super) fn add_functions(table: &mut FunctionTable) {
    add_package::<false>(table, "window");
}

/// Adds the functions of a window package, `window` or `rolling`. In a rolling one a slot shows the
/// window that ends with it.
pub(super) fn add_package<const ROLLING: bool>(table: &mut FunctionTable, package: &str) {
    for (suffix, run) in numeric::<ROLLING>() {
        let unit = match suffix {
            "count" | "popvar" | "changes" | "resets" | "present" | "absent" => Unknown,
            _ => SameAsInputs,
        };
        let row = add_window::<ROLLING>(table, package, suffix, Numbers, run).unit(unit);
        if suffix == "mean" {
            row.quantiles(QuantileRule::Average(AverageOver::Windows));
        }
    }
    add_window::<ROLLING>(
        table,
        package,
        "percentile",
        Numbers,
        sorted_window::percentile::<ROLLING>,
    )
    .required("percentile", PERCENT)
    .unit(SameAsInputs);
    let inverse = sorted_window::inverse_percentile::<ROLLING>;
    add_window::<ROLLING>(table, package, "inverse_percentile", Numbers, inverse)
        .required("threshold", Number)
        .unit(Named("percent"));
    add_window::<ROLLING>(table, package, "histogram", Numbers, merged::histogram::<ROLLING>)
        .output(OutputKind::Histograms)
        .unit(Distributions);
    add_window::<ROLLING>(table, package, "merge", Histograms, merged::merge::<ROLLING>)
        .unit(SameAsInputs);
    let (alias, name) = (format!("histogram:{package}"), format!("{package}:merge"));
    let instead = if ROLLING { "rolling:merge" } else { "window:merge" };
    table.add_alias(&alias, &name).deprecated(instead);
}

/// Adds one function of a window package.
fn add_window<'a, const ROLLING: bool>(
    table: &'a mut FunctionTable,
    package: &str,
    suffix: &str,
    takes: InputKind,
    run: KernelFn,
) -> &'a mut CaqlFunctionRow {
    let skip = match ROLLING {
        true => DefaultValue::Duration(MINUTE_NS),
        false => DefaultValue::As("window_duration"),
    };
    let align = if ROLLING { "end" } else { "start" };
    table
        .add_map(format!("{package}:{suffix}"), takes, Kernel { margin: margin::<ROLLING>, run })
        .required("window_duration", PositiveDuration)
        .option("skip", PositiveDuration, skip)
        .option("offset", ShiftOrZone, DefaultValue::Duration(0))
        .option("align", OneOf(&["start", "end"]), DefaultValue::Text(align))
        .option("period", PositiveDuration, DefaultValue::Constant(Constant::ViewPeriod))
        .resample(if ROLLING { ResampleRule::Rolling } else { ResampleRule::First })
}

/// Functions that fold the numbers of each window, by name suffix.
fn numeric<const ROLLING: bool>() -> [(&'static str, KernelFn); 15] {
    [
        ("sum", fold_windows::<WindowSum, ROLLING>),
        ("mean", fold_windows::<WindowMean, ROLLING>),
        ("max", fold_windows::<Max, ROLLING>),
        ("min", fold_windows::<Min, ROLLING>),
        ("count", fold_windows::<WindowCount, ROLLING>),
        ("stddev", fold_windows::<WindowVariance<true>, ROLLING>),
        ("popvar", fold_windows::<WindowVariance<false>, ROLLING>),
        ("delta", fold_windows::<Delta, ROLLING>),
        ("changes", fold_windows::<Added<Changes>, ROLLING>),
        ("resets", fold_windows::<Added<CounterResets>, ROLLING>),
        ("increase", fold_windows::<Added<CounterIncrease>, ROLLING>),
        ("last", fold_windows::<LastValue, ROLLING>),
        ("first", fold_windows::<FirstValue, ROLLING>),
        ("present", fold_windows::<AnyPresent, ROLLING>),
        ("absent", fold_windows::<AllAbsent, ROLLING>),
    ]
}

/// Adds the functions that fold values finer than a slot.
pub(super) fn add_aggregates(table: &mut FunctionTable) {
    const MINUTE: DefaultValue = DefaultValue::Duration(MINUTE_NS);
    for (suffix, run) in numeric::<false>() {
        // Counts and sums of parts of a slot are added.
        let fold = match suffix {
            "count" | "sum" => "sum",
            "max" | "min" | "mean" => suffix,
            _ => continue,
        };
        let row = table
            .add_map(
                format!("aggregate:{suffix}"),
                Numbers,
                Kernel { margin: margin::<false>, run },
            )
            .optional("period", PositiveDuration, MINUTE)
            .unit(if suffix == "count" { Unknown } else { SameAsInputs })
            .resample(ResampleRule::Numbers(fold));
        if suffix == "mean" {
            row.quantiles(QuantileRule::Average(AverageOver::Period));
        }
    }
    let merge = Kernel { margin: margin::<false>, run: merged::merge_mixed };
    table
        .add_map("aggregate:histogram", Either, merge)
        .output(OutputKind::Histograms)
        .optional("period", PositiveDuration, MINUTE)
        .unit(Distributions)
        .resample(ResampleRule::Merged);
}

fn fold_windows<F: WindowAggregate, const ROLLING: bool>(
    call: KernelInput<'_>,
) -> Result<Vec<Stream>> {
    fold_all::<F>(call, ROLLING)
}

fn fold_all<F: WindowAggregate>(call: KernelInput<'_>, is_rolling: bool) -> Result<Vec<Stream>> {
    let windows = SlotWindows::for_call(&call, is_rolling)?;
    let of = |stream: Stream| {
        let add = |held: &mut F, more: &F| {
            held.merge(more);
            Ok(())
        };
        let found = windows.sums(&stream, |value| value.number().map(F::from_number), add)?;
        let points = found.into_iter().map(|held| point(F::result(held.as_ref())));
        Ok(Stream { points: windows.to_slots(points), ..stream })
    };
    call.inputs.into_iter().map(of).collect()
}

/// Distinct windows of the requested slots.
struct SlotWindows {
    ranges: Vec<Range<usize>>,
    /// Number of slots that show each window.
    repeats: Vec<usize>,
}

impl SlotWindows {
    fn for_call(call: &KernelInput<'_>, is_rolling: bool) -> Result<SlotWindows> {
        let calendar = parse_calendar(call.arguments)
            .map_err(|message| Error::Execution { span: call.span, message })?;
        let steps = call.steps;
        let is_trailing = is_shown_at_end(call.arguments, is_rolling) || call.context.is_serial;
        let slots = call.slots_before + steps.count + call.slots_after;
        let start = i128::from(steps.start) - call.slots_before as i128 * i128::from(steps.step);
        // First slot that starts at or after a time.
        let slot = |time: i64| {
            let since = i128::from(time) - start;
            let at = -(-since).div_euclid(i128::from(steps.step));
            at.clamp(-1, slots as i128)
        };
        let (mut ranges, mut repeats): (Vec<Range<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
        for time in steps.times() {
            let (from, to) = window_of_slot(&calendar, (is_trailing, is_rolling), time, steps.step);
            let (mut first, mut end) = (slot(from), slot(to));
            if first >= end {
                first = slot(from.saturating_add(1)) - 1;
                end = first + 1;
            }
            let range = first.max(0) as usize..end.max(0) as usize;
            match (ranges.last(), repeats.last_mut()) {
                (Some(last), Some(repeat)) if *last == range => *repeat += 1,
                _ => {
                    ranges.push(range);
                    repeats.push(1);
                }
            }
        }
        Ok(SlotWindows { ranges, repeats })
    }

    /// Aggregates of the values in each window.
    fn sums<T: Clone>(
        &self,
        stream: &Stream,
        of: impl Fn(&StepValue) -> Option<T>,
        add: impl Fn(&mut T, &T) -> Result<()>,
    ) -> Result<Vec<Option<T>>> {
        let (items, before) = present_values(stream, of);
        sliding_sums(&items, self.value_ranges(&before), add)
    }

    /// Index range of each window in the present values; `before` holds the number of values before
    /// each slot.
    fn value_ranges(&self, before: &[usize]) -> impl Iterator<Item = Range<usize>> {
        let of = |at: usize| before[at.min(before.len() - 1)];
        self.ranges.iter().map(move |range| of(range.start)..of(range.end))
    }

    /// Expands one value per window to one value per slot.
    fn to_slots(&self, values: impl Iterator<Item = Option<StepValue>>) -> Vec<Option<StepValue>> {
        let repeated = values.zip(&self.repeats);
        repeated.flat_map(|(value, repeat)| std::iter::repeat_n(value, *repeat)).collect()
    }
}

/// Present values of a stream, and the number of them before each slot and before its end.
fn present_values<T>(
    stream: &Stream,
    of: impl Fn(&StepValue) -> Option<T>,
) -> (Vec<T>, Vec<usize>) {
    let mut items = Vec::new();
    let mut before = Vec::with_capacity(stream.points.len() + 1);
    before.push(0);
    for held in &stream.points {
        items.extend(held.as_ref().and_then(&of));
        before.push(items.len());
    }
    (items, before)
}

/// Start and end of the window that a slot shows.
fn window_of_slot(
    calendar: &WindowCalendar,
    (is_trailing, is_rolling): (bool, bool),
    time: i64,
    step: i64,
) -> (i64, i64) {
    if !is_trailing {
        let start = calendar.floor(time);
        return (start, calendar.end_of(start));
    }
    let end = calendar.floor(if is_rolling { time.saturating_add(step) } else { time });
    (calendar.start_of(end), end)
}

/// Slots before and after the requested ones that windows need.
fn margin<const ROLLING: bool>(arguments: &Arguments, steps: StepGrid) -> SlotMargin {
    margin_of(arguments, steps, ROLLING)
}

fn margin_of(arguments: &Arguments, steps: StepGrid, is_rolling: bool) -> SlotMargin {
    let Ok(calendar) = parse_calendar(arguments) else { return SlotMargin::default() };
    let (first, last) = (steps.start, steps.end());
    let slots = |time: i128| {
        usize::try_from((time + i128::from(steps.step) - 1).div_euclid(i128::from(steps.step)))
            .unwrap_or(0)
    };
    // With #serial, windows always look back, whatever the arguments say, and this function does
    // not know whether the query has it.
    let (start, _) = window_of_slot(&calendar, (true, is_rolling), first, steps.step);
    if is_shown_at_end(arguments, is_rolling) {
        return SlotMargin::before(slots(i128::from(first) - i128::from(start)));
    }
    let untrailed = |time| window_of_slot(&calendar, (false, is_rolling), time, steps.step);
    let start = start.min(untrailed(first).0);
    let (_, end) = untrailed(last);
    let after = i128::from(end) - i128::from(last) - i128::from(steps.step);
    SlotMargin { before: slots(i128::from(first) - i128::from(start)), after: slots(after) }
}

/// Whether a value is shown where its window ends.
fn is_shown_at_end(arguments: &Arguments, is_rolling: bool) -> bool {
    arguments.text("align").map_or(is_rolling, |align| align == "end")
}

/// Window calendar from the arguments, or an error.
fn parse_calendar(arguments: &Arguments) -> std::result::Result<WindowCalendar, String> {
    let length = arguments.duration("window_duration").or_else(|| arguments.duration("period"));
    let length = length.unwrap_or(MINUTE_NS).max(1);
    let skip = arguments.duration("skip").unwrap_or(length).max(1);
    let clock = match arguments.text("offset") {
        Some(zone) => CalendarClock::Local(Zone::find(zone)?),
        None => CalendarClock::Utc(arguments.duration("offset").unwrap_or(0)),
    };
    Ok(WindowCalendar { clock, length, skip })
}

const MINUTE_NS: i64 = 60_000_000_000;
