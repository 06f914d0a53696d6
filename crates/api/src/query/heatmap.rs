//! `/v1/heatmap`: columns of complete distributions, merged by the store, never averaged.

use std::collections::BTreeSet;
use std::ops::Range;

use hist::Mixture;
use model::Gap;
use store::{ReadView, TimeColumn, TimeGrid};

use super::HEATMAP;
use super::histogram::{SelectedSeries, counts_above, estimate_rows};
use super::indexed_cells::CellEdges;
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Integer, List, Object};
use crate::parameters::Parameters;
use report::document::{distribution, gap};

/// Maximum number of columns: more than screens have pixels.
const COLUMNS_MAX: u64 = 10_000;
/// Default number of columns, approximately.
const COLUMNS: u64 = 120;

pub(super) async fn heatmap(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(HEATMAP)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let (timeout, lengths) = (parameters.timeout()?, ColumnWidth::parse(&parameters)?);
    let mut edges = cell_edges(&parameters)?;
    let asked = parameters.clone();
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let columns = match lengths {
            ColumnWidth::Count(columns) => columns,
            ColumnWidth::Step(_) => COLUMNS_MAX,
            ColumnWidth::Round => COLUMNS,
        };
        estimate_rows(&asked, view, now, columns)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let picked =
            SelectedSeries::resolve(&parameters, view, now, queries.settings.limits.series)?;
        let (mut columns, mut total, mut bytes) = (Vec::new(), Mixture::default(), 0);
        // Without an explicit `from` or `to`, gaps before or after the data are included.
        let mut gaps: BTreeSet<Gap> = view.gaps(&picked.requested).into_iter().collect();
        let grids = lengths.grids(&picked.range)?;
        for grid in &grids {
            for column in view.histograms(&picked.series, *grid)? {
                active.check_cancelled()?;
                let column = column?;
                gaps.extend(column.gaps.iter().cloned());
                for part in column.value.parts() {
                    total.add(part).map_err(|error| ApiError::Unprocessable(error.to_string()))?;
                }
                let column = document(&picked.thresholds, &column, edges.as_mut());
                let held = size_of::<Json>() + column.held_bytes();
                active.reserve(held)?;
                bytes += held;
                if bytes > queries.settings.max_response_bytes {
                    return Err(queries.response_buffer().into_error());
                }
                columns.push(column);
            }
        }
        let (start, end) = (grids[0].start, grids[grids.len() - 1].range().end);
        let mut fields = picked.header_fields();
        fields.extend([
            ("start_ns", Integer(start.into())),
            ("end_ns", Integer(end.into())),
            ("step_ns", Integer(grids[0].step.into())),
        ]);
        let mut sum = distribution(&total);
        sum.push(("above", counts_above(&picked.thresholds, &total)));
        sum.push(("gaps", List(gaps.iter().map(gap).collect())));
        fields.push(("total", Object(sum)));
        fields.extend(edges.as_ref().map(|edges| ("edges", edges.list())));
        fields.push(("columns", List(columns)));
        active.json_response(&Object(fields))
    };
    context.run_query("heatmap", timeout, estimate, work).await
}

/// The list of cell edges, if columns are to reference edges by index.
fn cell_edges(parameters: &Parameters) -> Result<Option<CellEdges>, ApiError> {
    match parameters.get("cells") {
        None | Some("objects") => Ok(None),
        Some("indexed") => Ok(Some(CellEdges::default())),
        Some(other) => Err(ApiError::invalid_parameter("cells", other, "objects or indexed")),
    }
}

fn document(
    limits: &[(String, f64)],
    column: &TimeColumn<Mixture>,
    edges: Option<&mut CellEdges>,
) -> Json {
    let mut fields =
        vec![("start_ns", Integer(column.start.into())), ("end_ns", Integer(column.end.into()))];
    fields.extend(distribution(&column.value));
    if let Some(edges) = edges {
        for (name, value) in &mut fields {
            if *name == "cells" {
                *value = edges.cells(&column.value);
            }
        }
    }
    fields.push(("above", counts_above(limits, &column.value)));
    fields.push(("gaps", List(column.gaps.iter().map(gap).collect())));
    Object(fields)
}

/// Column width of a heatmap.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ColumnWidth {
    Count(u64),
    Step(i64),
    /// A usual interval length that gives about the default number of columns.
    Round,
}

impl ColumnWidth {
    fn parse(parameters: &Parameters) -> Result<ColumnWidth, ApiError> {
        let expected = format!("a whole number from 1 to {COLUMNS_MAX}");
        let columns = parameters.parse_with("columns", &expected, |text| {
            text.parse().ok().filter(|columns| (1..=COLUMNS_MAX).contains(columns))
        })?;
        match (columns, parameters.duration("step")?) {
            (Some(_), Some(_)) => Err(ApiError::BadRequest(
                "parameters columns and step: found both, expected one of them".to_owned(),
            )),
            (Some(columns), None) => Ok(ColumnWidth::Count(columns)),
            (None, Some(step)) => Ok(ColumnWidth::Step(step)),
            (None, None) => Ok(ColumnWidth::Round),
        }
    }

    /// Consecutive grids, at least one: the last one has the rest of the range.
    fn grids(self, range: &Range<i64>) -> Result<Vec<TimeGrid>, ApiError> {
        let length = range.end - range.start;
        let step = match self {
            ColumnWidth::Round => return Ok(vec![TimeGrid::covering(range.clone(), COLUMNS)]),
            ColumnWidth::Step(step) => step,
            // A single sample covers a nanosecond: the minimum column width.
            ColumnWidth::Count(columns) => (length / columns as i64).max(1),
        };
        let columns = match self {
            ColumnWidth::Count(columns) => columns.min(length as u64),
            _ => (length as u64).div_ceil(step as u64),
        };
        if columns > COLUMNS_MAX {
            let expected = format!("a duration that gives at most {COLUMNS_MAX} columns");
            return Err(ApiError::invalid_parameter("step", &format!("{step}ns"), &expected));
        }
        let equal = TimeGrid { start: range.start, step, columns: columns - 1 };
        let start = range.start + step * (columns as i64 - 1);
        let last = TimeGrid { start, step: range.end - start, columns: 1 };
        Ok(if equal.columns == 0 { vec![last] } else { vec![equal, last] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lengths: ColumnWidth, range: Range<i64>, expected: &[(i64, i64, u64)]) {
        let grids = lengths.grids(&range).unwrap();
        let found: Vec<_> =
            grids.iter().map(|grid| (grid.start, grid.step, grid.columns)).collect();
        assert_eq!(found, expected);
        assert_eq!((grids[0].start, grids[grids.len() - 1].range().end), (range.start, range.end));
    }

    #[test]
    fn columns_cover_the_range() {
        check(ColumnWidth::Count(3), 0..9, &[(0, 3, 2), (6, 3, 1)]);
        check(ColumnWidth::Count(4), 5..16, &[(5, 2, 3), (11, 5, 1)]);
        check(ColumnWidth::Count(1), 5..16, &[(5, 11, 1)]);
        check(ColumnWidth::Step(4), 0..10, &[(0, 4, 2), (8, 2, 1)]);
        check(ColumnWidth::Step(40), 0..10, &[(0, 10, 1)]);
        let refused = |lengths: ColumnWidth| lengths.grids(&(0..20_000)).unwrap_err().status();
        assert_eq!(refused(ColumnWidth::Step(1)), 400);
        // A column is at least a nanosecond wide.
        check(ColumnWidth::Count(11), 0..10, &[(0, 1, 9), (9, 1, 1)]);
        check(ColumnWidth::Count(11), 5..6, &[(5, 1, 1)]);
    }
}
