//! Columns of a heatmap. Each is a whole distribution, merged by the store; nothing is ever averaged, and the total
//! is the sum of the columns.

use std::collections::BTreeSet;
use std::ops::Range;

use hist::Mixture;
use model::Gap;
use store::{Column, Grid, View};

use super::HEATMAP;
use super::histogram::{Picked, above, rows_about};
use super::indexed::Edges;
use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::document::{distribution, gap};
use crate::json::Json::{self, Integer, List, Object};
use crate::parameters::Parameters;
use crate::refusal::Refusal;

/// Columns of an answer at the most: more than any screen has.
const COLUMNS_MAX: u64 = 10_000;
/// About so many, where nobody says.
const COLUMNS: u64 = 120;

pub(super) async fn heatmap(context: Context, parameters: Parameters) -> Result<Written, Refusal> {
    let parameters = parameters.only(HEATMAP)?;
    let (desk, now) = (context.desk.clone(), context.intake.now());
    let (timeout, lengths) = (parameters.timeout()?, Lengths::read(&parameters)?);
    let mut edges = indexed(&parameters)?;
    let asked = parameters.clone();
    let estimate = move |view: &View, _: &Asking| {
        let columns = match lengths {
            Lengths::Columns(columns) => columns,
            Lengths::Step(_) => COLUMNS_MAX,
            Lengths::Round => COLUMNS,
        };
        rows_about(&asked, view, now, columns)
    };
    let work = move |view: &View, asking: &Asking| {
        let picked = Picked::read(&parameters, view, now, desk.settings.limits.series)?;
        let (mut columns, mut total, mut bytes) = (Vec::new(), Mixture::default(), 0);
        // Where nobody says from or until when, what is missing before or after the rows is
        // missing, too.
        let mut gaps: BTreeSet<Gap> = view.gaps(&picked.asked).into_iter().collect();
        let grids = lengths.grids(&picked.range)?;
        for grid in &grids {
            for column in view.histograms(&picked.found, *grid)? {
                asking.check()?;
                let column = column?;
                gaps.extend(column.gaps.iter().cloned());
                for part in column.value.parts() {
                    total.add(part).map_err(|error| Refusal::Execution(error.to_string()))?;
                }
                let column = document(&picked.above, &column, edges.as_mut());
                let held = size_of::<Json>() + column.held_bytes();
                asking.hold(held)?;
                bytes += held;
                if bytes > desk.settings.answer_bytes_max {
                    return Err(desk.page().refusal());
                }
                columns.push(column);
            }
        }
        let (start, end) = (grids[0].start, grids[grids.len() - 1].range().end);
        let mut fields = picked.head();
        fields.extend([
            ("start_ns", Integer(start.into())),
            ("end_ns", Integer(end.into())),
            ("step_ns", Integer(grids[0].step.into())),
        ]);
        let mut sum = distribution(&total);
        sum.push(("above", above(&picked.above, &total)));
        sum.push(("gaps", List(gaps.iter().map(gap).collect())));
        fields.push(("total", Object(sum)));
        fields.extend(edges.as_ref().map(|edges| ("edges", edges.list())));
        fields.push(("columns", List(columns)));
        asking.answer(&Object(fields))
    };
    context.query("heatmap", timeout, estimate, work).await
}

/// Somewhere for the ends of cells, where columns are to name them by their place.
fn indexed(parameters: &Parameters) -> Result<Option<Edges>, Refusal> {
    match parameters.get("cells") {
        None | Some("objects") => Ok(None),
        Some("indexed") => Ok(Some(Edges::default())),
        Some(other) => Err(Refusal::parameter("cells", other, "objects or indexed")),
    }
}

fn document(limits: &[(String, f64)], column: &Column<Mixture>, edges: Option<&mut Edges>) -> Json {
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
    fields.push(("above", above(limits, &column.value)));
    fields.push(("gaps", List(column.gaps.iter().map(gap).collect())));
    Object(fields)
}

/// How long columns are to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lengths {
    Columns(u64),
    Step(i64),
    /// Round lengths, about so many as a person looks at.
    Round,
}

impl Lengths {
    fn read(parameters: &Parameters) -> Result<Lengths, Refusal> {
        let expected = format!("a whole number from 1 to {COLUMNS_MAX}");
        let columns = parameters.read_by("columns", &expected, |text| {
            text.parse().ok().filter(|columns| (1..=COLUMNS_MAX).contains(columns))
        })?;
        match (columns, parameters.length("step")?) {
            (Some(_), Some(_)) => Err(Refusal::Bad(
                "parameters columns and step: found both, expected one of them".to_owned(),
            )),
            (Some(columns), None) => Ok(Lengths::Columns(columns)),
            (None, Some(step)) => Ok(Lengths::Step(step)),
            (None, None) => Ok(Lengths::Round),
        }
    }

    /// Grids that follow each other, one at least: the last one has the rest of the time.
    fn grids(self, range: &Range<i64>) -> Result<Vec<Grid>, Refusal> {
        let length = range.end - range.start;
        let step = match self {
            Lengths::Round => return Ok(vec![Grid::over(range.clone(), COLUMNS)]),
            Lengths::Step(step) => step,
            // The time of a single reading is a nanosecond: no column is shorter.
            Lengths::Columns(columns) => (length / columns as i64).max(1),
        };
        let columns = match self {
            Lengths::Columns(columns) => columns.min(length as u64),
            _ => (length as u64).div_ceil(step as u64),
        };
        if columns > COLUMNS_MAX {
            let expected = format!("a length that the time has no more than {COLUMNS_MAX} of");
            return Err(Refusal::parameter("step", &format!("{step}ns"), &expected));
        }
        let equal = Grid { start: range.start, step, columns: columns - 1 };
        let start = range.start + step * (columns as i64 - 1);
        let last = Grid { start, step: range.end - start, columns: 1 };
        Ok(if equal.columns == 0 { vec![last] } else { vec![equal, last] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lengths: Lengths, range: Range<i64>, expected: &[(i64, i64, u64)]) {
        let grids = lengths.grids(&range).unwrap();
        let found: Vec<_> =
            grids.iter().map(|grid| (grid.start, grid.step, grid.columns)).collect();
        assert_eq!(found, expected);
        assert_eq!((grids[0].start, grids[grids.len() - 1].range().end), (range.start, range.end));
    }

    #[test]
    fn columns_fill_the_time() {
        check(Lengths::Columns(3), 0..9, &[(0, 3, 2), (6, 3, 1)]);
        check(Lengths::Columns(4), 5..16, &[(5, 2, 3), (11, 5, 1)]);
        check(Lengths::Columns(1), 5..16, &[(5, 11, 1)]);
        check(Lengths::Step(4), 0..10, &[(0, 4, 2), (8, 2, 1)]);
        check(Lengths::Step(40), 0..10, &[(0, 10, 1)]);
        let refused = |lengths: Lengths| lengths.grids(&(0..20_000)).unwrap_err().status();
        assert_eq!(refused(Lengths::Step(1)), 400);
        // No column is shorter than a nanosecond.
        check(Lengths::Columns(11), 0..10, &[(0, 1, 9), (9, 1, 1)]);
        check(Lengths::Columns(11), 5..6, &[(5, 1, 1)]);
    }
}
