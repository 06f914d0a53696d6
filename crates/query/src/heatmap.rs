//! Columns of a heatmap that a person looks at: at most so many, of a round width, aligned with the
//! rows of the series, so that no column has more or fewer rows than its neighbours.

use std::ops::Range;

use hist::Mixture;
use store::{PartInfo, ReadView, Resolution, SeriesEntryRef, TimeColumn};

use crate::classic_buckets::distribution_columns;
use crate::column_grid::{ColumnGrid, RowPeriod};
use crate::compare::merge_error;
use crate::error::Result;

/// Number of series whose row period is detected; at most one base part is read per series.
const PERIOD_SERIES_MAX: usize = 4;
/// Length of the range in which a row period is detected: six hours.
const PERIOD_WINDOW_NS: i64 = 6 * store::HOUR;

/// Reads series of histograms, or of the buckets of classic ones, over a range as at most `most`
/// columns, plus one if the ends of the range are not round. `parts` are those of the store.
/// `progress` is called after each column with the number of columns so far and in all; an error of
/// it ends the read.
pub fn columns(
    view: &ReadView,
    parts: &[PartInfo],
    series: &[SeriesEntryRef],
    range: &Range<i64>,
    most: usize,
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Vec<TimeColumn<Mixture>>> {
    let steps = ColumnGrid::covering(range.clone(), period(view, parts, series, range)?, most);
    let mut columns = Vec::new();
    for column in distribution_columns(view, series, steps.store_grid())? {
        let mut column = column?;
        column.start -= steps.offset;
        column.end -= steps.offset;
        columns.push(column);
        progress(columns.len() as u64, steps.grid.columns)?;
    }
    // Columns that start later than shown omit shorter rows before the first of them.
    if let (Some(first), Some(early)) = (columns.first_mut(), steps.before_store_range(range)) {
        for column in distribution_columns(view, series, early)? {
            let column = column?;
            for histogram in column.value.into_components() {
                first.value.add(&histogram).map_err(merge_error)?;
            }
            first.gaps.extend(column.gaps);
        }
    }
    Ok(columns)
}

/// Row period of the series in a range; `None` if there are too few rows.
fn period(
    view: &ReadView,
    parts: &[PartInfo],
    series: &[SeriesEntryRef],
    range: &Range<i64>,
) -> Result<Option<RowPeriod>> {
    let extent = view.time_range(series)?;
    let first = extent.map_or(range.start, |extent| extent.start.max(range.start));
    Ok(longer_period(row_period(view, series, range)?, rollup_period(parts, first)))
}

/// The longest period of the rows of some series.
fn row_period(
    view: &ReadView,
    found: &[SeriesEntryRef],
    range: &Range<i64>,
) -> Result<Option<RowPeriod>> {
    let mut longest: Option<RowPeriod> = None;
    for series in found.iter().take(PERIOD_SERIES_MAX) {
        let Some(extent) = view.time_range(std::slice::from_ref(series))? else { continue };
        let start = range.start.max(extent.start);
        let end = range.end.min(start.saturating_add(PERIOD_WINDOW_NS));
        let mut rows = Vec::new();
        view.samples(series, start..end, &mut |sample| rows.push((sample.start, sample.end)))?;
        model::sort::by_key(&mut rows, |row| row.1);
        longest = longer_period(longest, RowPeriod::detect(&rows));
    }
    Ok(longest)
}

fn longer_period(a: Option<RowPeriod>, b: Option<RowPeriod>) -> Option<RowPeriod> {
    let interval = |period: Option<RowPeriod>| period.map(|period| period.interval);
    if interval(b) > interval(a) { b } else { a }
}

/// Resolution of the time from `from` on, if base rows were dropped: narrower columns would be
/// empty.
fn rollup_period(parts: &[PartInfo], from: i64) -> Option<RowPeriod> {
    let reaches = |resolution: &Resolution| {
        parts.iter().any(|part| part.resolution == *resolution && part.start <= from)
    };
    let interval = Resolution::ALL.into_iter().find(reaches)?.period()?;
    Some(RowPeriod { interval, first: 0, is_steady: true })
}
