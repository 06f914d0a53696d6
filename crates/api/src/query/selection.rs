//! Which series a question is about, their unit, and the time that it is about.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use collect::{Quantity, Unit};
use model::{Kind, Selector};
use store::{Found, View};

use crate::parameters::Parameters;
use crate::refusal::Refusal;

/// Names that are told where a selector picks nothing.
const NAMES_LISTED: usize = 10;

/// About how many rows there are to be read of the series that a selector picks, in a time and in
/// so many columns, and values to be made of them. Nothing is read for it.
pub(crate) fn rows_about(
    view: &View,
    selector: &Selector,
    (from, to): (Option<i64>, Option<i64>),
    columns: u64,
) -> u64 {
    let series = view.each_series(selector, &mut |_| ControlFlow::Break(())) as u64;
    let Some(all) = view.bounds() else { return 0 };
    let range = from.unwrap_or(all.start).max(all.start)..to.unwrap_or(all.end).min(all.end);
    let length = range.end.saturating_sub(range.start).max(0);
    let step = length / i64::try_from(columns.max(1)).unwrap_or(i64::MAX);
    view.rows_about(series, &range, Some(step)).saturating_add(columns)
}

/// The series of histograms that a selector picks, one at least and no more than may be.
pub(crate) fn histograms(
    view: &View,
    selector: &Selector,
    series_max: u64,
) -> Result<Vec<Found>, Refusal> {
    let picked = view.each_series(selector, &mut |_| ControlFlow::Break(()));
    if picked as u64 > series_max {
        return Err(Refusal::Execution(format!(
            "{selector} picks {picked} series, more than {series_max} (max_series); select fewer, or raise max_series"
        )));
    }
    let mut found = view.select(selector);
    found.retain(|found| matches!(found.series.kind(), Kind::Histogram(_)));
    match (found.is_empty(), picked) {
        (false, _) => Ok(found),
        (true, 0) => Err(Refusal::Missing(nothing(view, selector))),
        (true, picked) => Err(Refusal::Missing(format!(
            "{selector} picks no histograms, but {picked} series of other kinds"
        ))),
    }
}

/// From when to when something is known to be missing, within a time.
pub(crate) fn range_of_gaps(view: &View, asked: &Range<i64>) -> Option<Range<i64>> {
    let gaps = view.gaps(asked);
    let start = gaps.iter().map(|gap| gap.start).min()?.max(asked.start);
    let end = gaps.iter().map(|gap| gap.end).max()?.min(asked.end);
    Some(start..end.max(start.saturating_add(1)))
}

/// What there is instead: names that somebody sent come before those that topdeck makes itself.
fn nothing(view: &View, selector: &Selector) -> String {
    let own = |name: &str| name.starts_with("topdeck_") || name.starts_with("host_");
    let mut names: BTreeSet<(bool, String)> = BTreeSet::new();
    let n = view.each_series(&Selector::All, &mut |series| {
        let name = series.name();
        names.insert((own(name), name.to_owned()));
        if names.len() > 2 * NAMES_LISTED {
            names.pop_last();
        }
        ControlFlow::Continue(())
    });
    let missing = match view.gaps(&(i64::MIN..i64::MAX)).is_empty() {
        true => "",
        false => "; it may be of what is known to be missing",
    };
    if n == 0 {
        return format!("{selector} picks no series: there is nothing in the store yet{missing}");
    }
    let more = if names.len() > NAMES_LISTED { "; /v1/names lists all" } else { "" };
    let names: Vec<String> = names.into_iter().take(NAMES_LISTED).map(|(_, name)| name).collect();
    format!("{selector} picks no series; there are: {}{more}{missing}", names.join(", "))
}

/// The unit of all of them.
pub(crate) fn unit(selector: &Selector, found: &[Found]) -> Result<Option<Unit>, Refusal> {
    let first = found.first().map_or("", |found| found.series.unit());
    let named = |unit: &str| if unit.is_empty() { "none".to_owned() } else { unit.to_owned() };
    match found.iter().find(|found| found.series.unit() != first) {
        None if first.is_empty() => Ok(None),
        None => {
            let other = || Unit::Other(first.to_owned());
            Ok(Some(Unit::parse(first).filter(|unit| unit.name() == first).unwrap_or_else(other)))
        }
        Some(other) => Err(Refusal::Execution(format!(
            "{selector}: these series have different units ({}, {}): choose, as in 'and(__unit:ns)'",
            named(first),
            named(other.series.unit())
        ))),
    }
}

/// Limits and shares that may be asked for at once: every column of a heatmap tells of each.
const ASKED_MAX: usize = 100;

/// All that a parameter names, in one value or in several, with commas between.
pub(crate) fn several<T>(
    parameters: &Parameters,
    name: &str,
    read: impl Fn(&str) -> Result<T, Refusal>,
) -> Result<Vec<T>, Refusal> {
    let written = parameters.all(name).flat_map(|text| text.split(',')).map(str::trim);
    let mut all = Vec::new();
    for text in written.filter(|text| !text.is_empty()) {
        if all.len() == ASKED_MAX {
            return Err(Refusal::Bad(format!(
                "parameter {name}: found more than {ASKED_MAX} of them, expected no more; ask for less at once"
            )));
        }
        all.push(read(text)?);
    }
    Ok(all)
}

/// Limits that were written as quantities, in the unit of the values.
pub(crate) fn limits(
    parameters: &Parameters,
    name: &str,
    unit: Option<&Unit>,
) -> Result<Vec<(String, f64)>, Refusal> {
    limits_in(parameters, name, unit, |quantity| quantity.value_in(unit))
}

/// The same where there are no values: each limit in the unit that it was written with.
pub(crate) fn limits_of_nothing(
    parameters: &Parameters,
    name: &str,
) -> Result<Vec<(String, f64)>, Refusal> {
    limits_in(parameters, name, None, |quantity| quantity.value_in(quantity.unit()))
}

fn limits_in(
    parameters: &Parameters,
    name: &str,
    unit: Option<&Unit>,
    in_unit: impl Fn(&Quantity) -> Option<f64>,
) -> Result<Vec<(String, f64)>, Refusal> {
    several(parameters, name, |text| {
        let quantity = Quantity::parse(text)
            .ok_or_else(|| Refusal::parameter(name, text, "a quantity such as 100ms"))?;
        let value = in_unit(&quantity).ok_or_else(|| {
            let expected = match unit {
                Some(unit) => format!("a quantity in the unit of the values, {unit}"),
                None => "a plain number: the values have no unit".to_owned(),
            };
            Refusal::parameter(name, text, &expected)
        })?;
        Ok((text.to_owned(), value))
    })
}

/// An end of a time: the parameter that says it, and what it says.
pub(crate) type End<'a> = (&'a str, Option<i64>);

/// The time from one parameter to another: to the ends of the rows, where it is not said.
pub(crate) fn range(
    view: &View,
    found: &[Found],
    (from, to): (End<'_>, End<'_>),
) -> Result<Range<i64>, Refusal> {
    let range = match (from.1, to.1) {
        (Some(start), Some(end)) => start..end,
        (start, end) => {
            let extent = view.stretch(found)?;
            let Some(extent) = extent else {
                let why = "these series have no rows yet";
                return Err(Refusal::Missing(why.to_owned()));
            };
            start.unwrap_or(extent.start)..end.unwrap_or(extent.end)
        }
    };
    let shown = |ns: i64| jiff::Timestamp::from_nanosecond(ns.into()).map(|at| at.to_string());
    match range.start < range.end && range.end.checked_sub(range.start).is_some() {
        true => Ok(range),
        false => Err(Refusal::Bad(format!(
            "parameters {} and {}: from {} to {} there is no time; to is excluded, and the first or last row counts where one is not said",
            from.0,
            to.0,
            shown(range.start).unwrap_or_default(),
            shown(range.end).unwrap_or_default()
        ))),
    }
}
