//! A deletion of rows, or what it would delete, as JSON.

use std::ops::Range;

use render::json::Json::{self, Bool, Integer, Object, Text};
use render::json::integer;
use serde_json::Value;
use store::{DeletionResult, RowCount};

use super::reader::DocumentReader;
use crate::deletion::{Deletion, DeletionOutcome};
use crate::error::Result;

/// Matching series and range, and the numbers of deleted rows: what `topdeck delete --json` prints.
pub fn to_json(deletion: &Deletion) -> Json {
    let mut fields = vec![
        ("schema", integer(1)),
        ("series", integer(deletion.series)),
        ("from_ns", Integer(deletion.range.start.into())),
        ("to_ns", Integer(deletion.range.end.into())),
    ];
    match &deletion.outcome {
        DeletionOutcome::Deleted(deleted) => fields.extend([
            ("rows", integer(deleted.rows)),
            ("rollup_rows", integer(deleted.rollup_rows)),
            ("kept_rollup_rows", integer(deleted.retained_rows)),
        ]),
        DeletionOutcome::DryRun(count) => fields.extend([
            ("dry_run", Bool(true)),
            ("example", Text(deletion.example.clone())),
            ("rows", integer(count.rows)),
            ("rows_is_lower_bound", Bool(count.is_lower_bound)),
        ]),
    }
    Object(fields)
}

/// Reads the response to `POST /v1/series/delete` with this range.
pub fn from_response(document: &Value, range: Range<i64>) -> Result<Deletion> {
    let document = DocumentReader::new(document);
    let example = document.get("examples").list()?.next();
    let deleted = || -> Result<DeletionResult> {
        Ok(DeletionResult {
            rows: document.get("rows").count()?,
            rollup_rows: document.get("rollup_rows").count()?,
            retained_rows: document.get("kept_rollup_rows").count()?,
            series: document.get("removed_series").count()?,
        })
    };
    Ok(Deletion {
        series: document.get("series").count()?,
        example: example.map_or(Ok(String::new()), |it| it.series().map(|it| it.to_string()))?,
        range,
        outcome: match document.get("dry_run").flag()? {
            true => DeletionOutcome::DryRun(RowCount {
                rows: document.get("rows").count()?,
                is_lower_bound: document.get("rows_is_lower_bound").flag()?,
            }),
            false => DeletionOutcome::Deleted(deleted()?),
        },
    })
}
