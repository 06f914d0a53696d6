//! `/v1/heatmap`: columns of complete distributions, merged by the store, never averaged.

use std::collections::BTreeSet;
use std::ops::Range;

use hist::Mixture;
use model::Gap;
use store::{ReadView, TimeColumn, TimeGrid};

use super::HEATMAP;
use super::histogram::{MetricSelection, counts_above, estimate_rows};
use super::indexed_cells::CellEdges;
use super::selection::distribution_columns;
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Integer, List, Object};
use crate::parameters::Parameters;
use crate::query_service::QueryService;
use report::document::{CellEncoding, distribution, encoded_distribution, gap};

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
    let cells = ColumnCells::parse(&parameters)?;
    let store = match lengths {
        ColumnWidth::Aligned(_) => Some(context.queries.store()?),
        _ => None,
    };
    let requested = parameters.clone();
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let columns = match lengths {
            ColumnWidth::Count(columns) | ColumnWidth::Aligned(columns) => columns,
            ColumnWidth::Step(_) => COLUMNS_MAX,
            ColumnWidth::Round => COLUMNS,
        };
        estimate_rows(&requested, view, now, columns)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let series_max = queries.settings.limits.series;
        let selection = MetricSelection::resolve(&parameters, view, now, (series_max, active))?;
        // Without an explicit `from` or `to`, gaps before or after the data are included.
        let gaps = view.gaps_of(&selection.series, &selection.requested).into_iter().collect();
        let total = Mixture::default();
        let (columns, bytes) = (Vec::new(), 0);
        let mut response = HeatmapResponse {
            selection: &selection,
            cells,
            columns,
            total,
            gaps,
            bytes,
            span: None,
        };
        match (lengths, &store) {
            (ColumnWidth::Aligned(most), Some(store)) => {
                let parts = store.stat()?.parts;
                let read = query::heatmap::columns(
                    view,
                    &parts,
                    &selection.series,
                    &selection.range,
                    most as usize,
                    &mut |_, _| match active.check_cancelled() {
                        Ok(()) => Ok(()),
                        Err(_) => Err(query::Error::Timeout),
                    },
                );
                let read = read.map_err(|error| ApiError::from_query_error(error, ""))?;
                read.iter().try_for_each(|column| response.add(column, &queries, active))?;
            }
            _ => {
                for grid in lengths.grids(&selection.range)? {
                    for column in distribution_columns(view, &selection.series, grid)? {
                        active.check_cancelled()?;
                        response.add(&column?, &queries, active)?;
                    }
                }
            }
        }
        active.json_response(&response.finish())
    };
    context.run_query("heatmap", timeout, estimate, work).await
}

/// A response under construction.
struct HeatmapResponse<'a> {
    selection: &'a MetricSelection,
    cells: ColumnCells,
    columns: Vec<Json>,
    total: Mixture,
    gaps: BTreeSet<Gap>,
    bytes: usize,
    /// Start, end and width of the first column, and end of the last one.
    span: Option<(i64, i64, i64)>,
}

impl HeatmapResponse<'_> {
    fn add(
        &mut self,
        column: &TimeColumn<Mixture>,
        queries: &QueryService,
        active: &ActiveQuery,
    ) -> Result<(), ApiError> {
        self.gaps.extend(column.gaps.iter().cloned());
        for part in column.value.components() {
            self.total.add(part).map_err(|error| ApiError::Unprocessable(error.to_string()))?;
        }
        let (start, _, width) =
            self.span.unwrap_or((column.start, column.end, column.end - column.start));
        self.span = Some((start, column.end, width));
        let column = self.cells.column(&self.selection.thresholds, column);
        let column_bytes = size_of::<Json>() + column.held_bytes();
        active.reserve(column_bytes)?;
        self.bytes += column_bytes;
        if self.bytes > queries.settings.max_response_bytes {
            return Err(queries.response_buffer().into_error());
        }
        self.columns.push(column);
        Ok(())
    }

    fn finish(self) -> Json {
        let (start, end, step) = self.span.expect("BUG: a heatmap has columns");
        let mut fields = self.selection.header_fields();
        fields.extend([
            ("start_ns", Integer(start.into())),
            ("end_ns", Integer(end.into())),
            ("step_ns", Integer(step.into())),
        ]);
        let mut sum = distribution(&self.total);
        sum.push(("above", counts_above(&self.selection.thresholds, &self.total)));
        sum.push(("gaps", List(self.gaps.iter().map(gap).collect())));
        fields.push(("total", Object(sum)));
        if let ColumnCells::Indexed(edges) = &self.cells {
            fields.push(("edges", edges.list()));
        }
        fields.push(("columns", List(self.columns)));
        fields.extend(self.selection.warnings(&self.total));
        Object(fields)
    }
}

/// How columns contain their buckets.
enum ColumnCells {
    Encoded(CellEncoding),
    /// Columns reference a list of cell edges by index.
    Indexed(CellEdges),
}

impl ColumnCells {
    fn parse(parameters: &Parameters) -> Result<ColumnCells, ApiError> {
        match parameters.get("cells") {
            None | Some("objects") => Ok(ColumnCells::Encoded(CellEncoding::Objects)),
            Some("frames") => Ok(ColumnCells::Encoded(CellEncoding::Frames)),
            Some("indexed") => Ok(ColumnCells::Indexed(CellEdges::default())),
            Some(other) => {
                let expected = "objects, indexed or frames";
                Err(ApiError::invalid_parameter("cells", other, expected))
            }
        }
    }

    fn column(&mut self, limits: &[(String, f64)], column: &TimeColumn<Mixture>) -> Json {
        let mut fields = vec![
            ("start_ns", Integer(column.start.into())),
            ("end_ns", Integer(column.end.into())),
        ];
        match self {
            ColumnCells::Encoded(cells) => {
                fields.extend(encoded_distribution(&column.value, *cells));
            }
            ColumnCells::Indexed(edges) => {
                fields.extend(distribution(&column.value));
                for (name, value) in &mut fields {
                    if *name == "cells" {
                        *value = edges.cells(&column.value);
                    }
                }
            }
        }
        fields.push(("above", counts_above(limits, &column.value)));
        fields.push(("gaps", List(column.gaps.iter().map(gap).collect())));
        Object(fields)
    }
}

/// Column width of a heatmap.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ColumnWidth {
    Count(u64),
    Step(i64),
    /// At most so many columns, of a round width, aligned with the points.
    Aligned(u64),
    /// A usual interval length that gives about the default number of columns.
    Round,
}

impl ColumnWidth {
    fn parse(parameters: &Parameters) -> Result<ColumnWidth, ApiError> {
        let expected = format!("a whole number from 1 to {COLUMNS_MAX}");
        let count = |name| {
            parameters.parse_with(name, &expected, |text| {
                text.parse().ok().filter(|columns| (1..=COLUMNS_MAX).contains(columns))
            })
        };
        match (count("columns")?, count("max_columns")?, parameters.duration("step")?) {
            (Some(columns), None, None) => Ok(ColumnWidth::Count(columns)),
            (None, Some(columns), None) => Ok(ColumnWidth::Aligned(columns)),
            (None, None, Some(step)) => Ok(ColumnWidth::Step(step)),
            (None, None, None) => Ok(ColumnWidth::Round),
            (Some(_), None, Some(_)) => Err(ApiError::BadRequest(
                "parameters columns and step: found both, expected one of them".to_owned(),
            )),
            _ => Err(ApiError::BadRequest(
                "parameters columns, max_columns and step: found several, expected one of them"
                    .to_owned(),
            )),
        }
    }

    /// Consecutive grids, at least one: the last one has the rest of the range.
    fn grids(self, range: &Range<i64>) -> Result<Vec<TimeGrid>, ApiError> {
        let length = range.end - range.start;
        let step = match self {
            ColumnWidth::Round | ColumnWidth::Aligned(_) => {
                return Ok(vec![TimeGrid::covering(range.clone(), COLUMNS)]);
            }
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
