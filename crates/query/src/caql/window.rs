//! `window:*`: what happened in stretches of time, one after the other; and what `rolling:*` shares with it.
//!
//! `window:*` shows in each slot the window that the slot's start lies in, or with `align="end"` the one that ended
//! there last. `rolling:*` shows the window that ends where the slot ends, or where the last multiple of `skip` before
//! that lies; with `align="start"` it is as `window:*`. Missing numbers are passed over. A window without any is
//! missing itself, but counted as 0, `absent` as 1, and of histograms it is the empty one.
//!
//! A slot belongs to a window if it starts in it; to one that is shorter than a slot and has no start in it, the slot
//! around it. Costs do not grow with the window's length, but for percentiles (a memory move of the window's numbers
//! for each slot).

mod calendar;
mod fold;
mod merged;
mod ordered;
#[cfg(test)]
mod tests;

use std::ops::Range;

use calendar::{Calendar, Clock};
use fold::{
    Absent, Change, Count, Delta, First, Fold, Greatest, Last, Least, Mean, Present, Reset, Rise,
    Steps as Added, Total, Variance,
};

use super::arguments::Arguments;
use super::points::point;
use super::work::{Kernel, Work};
use super::zone::Zone;
use crate::error::{Error, Result};
use crate::sliding::sums;
use crate::stream::{Steps, Stream};
use crate::value::Value;

/// What works out a function of this package.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    kernel_of::<Fixed>(name.strip_prefix("window:")?)
}

/// Which window a slot shows.
pub(crate) trait Package {
    /// Whether the one that ends with it.
    const IS_ROLLING: bool;
}

/// `window:*`.
pub(crate) struct Fixed;
/// `rolling:*`.
pub(crate) struct Rolling;

impl Package for Fixed {
    const IS_ROLLING: bool = false;
}

impl Package for Rolling {
    const IS_ROLLING: bool = true;
}

/// What works out a function of either package, by its name without that of the package.
pub(crate) fn kernel_of<P: Package>(suffix: &str) -> Option<Kernel> {
    let work = match suffix {
        "sum" => folded::<Total, P>,
        "mean" => folded::<Mean, P>,
        "max" => folded::<Greatest, P>,
        "min" => folded::<Least, P>,
        "count" => folded::<Count, P>,
        "stddev" => folded::<Variance<true>, P>,
        "popvar" => folded::<Variance<false>, P>,
        "delta" => folded::<Delta, P>,
        "changes" => folded::<Added<Change>, P>,
        "resets" => folded::<Added<Reset>, P>,
        "increase" => folded::<Added<Rise>, P>,
        "first" => folded::<First, P>,
        "last" => folded::<Last, P>,
        "present" => folded::<Present, P>,
        "absent" => folded::<Absent, P>,
        "percentile" => ordered::percentile::<P>,
        "inverse_percentile" => ordered::inverse_percentile::<P>,
        "histogram" => merged::histogram::<P>,
        "merge" => merged::merge::<P>,
        _ => return None,
    };
    Some(Kernel { reach: reach::<P>, work })
}

/// What works out a function of `aggregate:*`: a window that is as long as its period.
pub(super) fn aggregate_of<P: Package>(suffix: &str) -> Option<Kernel> {
    match suffix {
        "histogram" => Some(Kernel { reach: reach::<P>, work: merged::either::<P> }),
        "count" | "max" | "mean" | "min" | "sum" => kernel_of::<P>(suffix),
        _ => None,
    }
}

fn folded<F: Fold, P: Package>(work: Work<'_>) -> Result<Vec<Stream>> {
    let windows = Windows::of::<P>(&work)?;
    let of = |stream: Stream| {
        let add = |held: &mut F, more: &F| {
            held.join(more);
            Ok(())
        };
        let found = windows.sums(&stream, |value| value.number().map(F::of), add)?;
        let points = found.into_iter().map(|held| point(F::result(held.as_ref())));
        Ok(Stream { points: windows.shown(points), ..stream })
    };
    work.inputs.into_iter().map(of).collect()
}

/// The windows of the slots that are asked for, each once, as slots of the inputs.
struct Windows {
    ranges: Vec<Range<usize>>,
    /// In how many slots each is shown.
    repeats: Vec<usize>,
}

impl Windows {
    fn of<P: Package>(work: &Work<'_>) -> Result<Windows> {
        let calendar = calendar(work.arguments)
            .map_err(|message| Error::Execution { place: work.place, message })?;
        let steps = work.steps;
        let is_trailing = ends::<P>(work.arguments) || work.context.is_serial;
        let slots = work.before + steps.count + work.after;
        let start = i128::from(steps.start) - work.before as i128 * i128::from(steps.step);
        // The first slot that starts at or after a moment.
        let slot = |time: i64| {
            let since = i128::from(time) - start;
            let at = -(-since).div_euclid(i128::from(steps.step));
            at.clamp(-1, slots as i128)
        };
        let (mut ranges, mut repeats): (Vec<Range<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
        for time in steps.times() {
            let (from, to) = window::<P>(&calendar, is_trailing, time, steps.step);
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
        Ok(Windows { ranges, repeats })
    }

    /// Sums over what there is in each window.
    fn sums<T: Clone>(
        &self,
        stream: &Stream,
        of: impl Fn(&Value) -> Option<T>,
        add: impl Fn(&mut T, &T) -> Result<()>,
    ) -> Result<Vec<Option<T>>> {
        let (items, before) = present(stream, of);
        sums(&items, self.ranges_of(&before), add)
    }

    /// The windows as parts of what there is, of which so much lies before each slot.
    fn ranges_of(&self, before: &[usize]) -> impl Iterator<Item = Range<usize>> {
        let of = |at: usize| before[at.min(before.len() - 1)];
        self.ranges.iter().map(move |range| of(range.start)..of(range.end))
    }

    /// One value for each slot, from one for each window.
    fn shown(&self, values: impl Iterator<Item = Option<Value>>) -> Vec<Option<Value>> {
        let repeated = values.zip(&self.repeats);
        repeated.flat_map(|(value, repeat)| std::iter::repeat_n(value, *repeat)).collect()
    }
}

/// What there is of a stream, and how much of it lies before each slot and before its end.
fn present<T>(stream: &Stream, of: impl Fn(&Value) -> Option<T>) -> (Vec<T>, Vec<usize>) {
    let mut items = Vec::new();
    let mut before = Vec::with_capacity(stream.points.len() + 1);
    before.push(0);
    for held in &stream.points {
        items.extend(held.as_ref().and_then(&of));
        before.push(items.len());
    }
    (items, before)
}

/// From when to when the window is that a slot shows.
fn window<P: Package>(calendar: &Calendar, is_trailing: bool, time: i64, step: i64) -> (i64, i64) {
    if !is_trailing {
        let start = calendar.floor(time);
        return (start, calendar.end_of(start));
    }
    let end = calendar.floor(if P::IS_ROLLING { time.saturating_add(step) } else { time });
    (calendar.start_of(end), end)
}

/// How many slots lie before and after those asked for that some window has.
fn reach<P: Package>(arguments: &Arguments, steps: Steps) -> (usize, usize) {
    let Ok(calendar) = calendar(arguments) else { return (0, 0) };
    let (first, last) = (steps.start, steps.end());
    let slots = |time: i128| {
        usize::try_from((time + i128::from(steps.step) - 1).div_euclid(i128::from(steps.step)))
            .unwrap_or(0)
    };
    // Checks always look back, whatever they are asked for, and it is not known here whether it is one.
    let (start, _) = window::<P>(&calendar, true, first, steps.step);
    if ends::<P>(arguments) {
        return (slots(i128::from(first) - i128::from(start)), 0);
    }
    let start = start.min(window::<P>(&calendar, false, first, steps.step).0);
    let (_, end) = window::<P>(&calendar, false, last, steps.step);
    let after = i128::from(end) - i128::from(last) - i128::from(steps.step);
    (slots(i128::from(first) - i128::from(start)), slots(after))
}

/// Whether a value is shown where its window ends.
fn ends<P: Package>(arguments: &Arguments) -> bool {
    arguments.text("align").map_or(P::IS_ROLLING, |align| align == "end")
}

/// Where windows begin and end; what is wrong with the arguments.
fn calendar(arguments: &Arguments) -> std::result::Result<Calendar, String> {
    let length = arguments.duration("window_duration").or_else(|| arguments.duration("period"));
    let length = length.unwrap_or(MINUTE_NS).max(1);
    let skip = arguments.duration("skip").unwrap_or(length).max(1);
    let clock = match arguments.text("offset") {
        Some(zone) => Clock::Local(Zone::named(zone)?),
        None => Clock::Utc(arguments.duration("offset").unwrap_or(0)),
    };
    Ok(Calendar { clock, length, skip })
}

const MINUTE_NS: i64 = 60_000_000_000;
