//! Columns of a heatmap, read from a document of `/v1/heatmap` with frames.

use hist::Mixture;
use serde_json::Value;
use store::TimeColumn;

use super::reader::DocumentReader;
use crate::error::Result;

/// Reads the columns.
pub fn columns_from_json(document: &Value) -> Result<Vec<TimeColumn<Mixture>>> {
    let read = |column: DocumentReader<'_>| {
        Ok(TimeColumn {
            start: column.get("start_ns").integer()?,
            end: column.get("end_ns").integer()?,
            value: column.mixture()?,
            gaps: column.get("gaps").gaps()?,
        })
    };
    DocumentReader::new(document).get("columns").list()?.map(read).collect()
}
