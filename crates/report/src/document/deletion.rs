//! A deletion of rows, or what it would delete, as JSON.

use render::json::Json::{self, Bool, Integer, Object, Text};
use render::json::integer;
use serde_json::Value;
use store::DeletionResult;

use super::reader::DocumentReader;
use crate::deletion::Deletion;
use crate::error::Result;

/// Matching series and range, and the numbers of deleted rows.
pub fn to_json(deletion: &Deletion) -> Json {
    let mut fields = vec![
        ("schema", integer(1)),
        ("series", integer(deletion.series)),
        ("from_ns", Integer(deletion.range.start.into())),
        ("to_ns", Integer(deletion.range.end.into())),
    ];
    match &deletion.result {
        Some(deleted) => fields.extend([
            ("rows", integer(deleted.rows)),
            ("rollup_rows", integer(deleted.rollup_rows)),
            ("kept_rollup_rows", integer(deleted.retained_rows)),
        ]),
        None => {
            fields.extend([("dry_run", Bool(true)), ("example", Text(deletion.example.clone()))])
        }
    }
    Object(fields)
}

/// Reads the document.
pub fn from_json(document: &Value) -> Result<Deletion> {
    let document = DocumentReader::new(document);
    let series = document.get("series").count()?;
    let result = match document.get("rows").is_null() {
        true => None,
        false => Some(DeletionResult {
            rows: document.get("rows").count()?,
            rollup_rows: document.get("rollup_rows").count()?,
            retained_rows: document.get("kept_rollup_rows").count()?,
            series: 0,
        }),
    };
    Ok(Deletion {
        series,
        example: document.get("example").optional_text()?.unwrap_or("").to_owned(),
        range: document.get("from_ns").integer()?..document.get("to_ns").integer()?,
        result,
    })
}
