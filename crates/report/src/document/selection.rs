//! What a selector matches, as JSON.

use std::ops::Range;

use model::selector;
use query::selection::{SelectionSummary, SeriesGroup};
use render::json::Json::{self, Integer, List, Null, Object, Text};
use render::json::integer;
use serde_json::Value;

use super::reader::DocumentReader;
use super::unit_json;
use crate::error::Result;

/// Series by kind and unit, ranges, and alternatives if there are none.
pub fn to_json(summary: &SelectionSummary) -> Json {
    let group = |group: &SeriesGroup| {
        Object(vec![
            ("kind", Text(selector::kind_name(group.kind).to_owned())),
            ("unit", unit_json(&group.unit)),
            ("series", integer(group.series)),
            ("example", Text(group.example.clone())),
        ])
    };
    let deleted = summary.deleted.as_ref().map_or(Null, |(series, example)| {
        Object(vec![("series", integer(*series)), ("example", Text(example.clone()))])
    });
    Object(vec![
        ("schema", integer(1)),
        ("groups", List(summary.groups.iter().map(group).collect())),
        ("points", range_json(summary.rows.as_ref())),
        ("histogram_points", range_json(summary.histogram_rows.as_ref())),
        ("histogram_range", range_json(summary.histogram_range.as_ref())),
        ("gaps", range_json(summary.gaps.as_ref())),
        ("has_gaps", Json::Bool(summary.has_gaps)),
        ("metrics", List(summary.metrics.iter().cloned().map(Text).collect())),
        ("metric_count", integer(summary.metric_count)),
        ("deleted", deleted),
        ("hint", summary.hint.clone().map_or(Null, Text)),
    ])
}

fn range_json(range: Option<&Range<i64>>) -> Json {
    range.map_or(Null, |range| {
        Object(vec![
            ("start_ns", Integer(range.start.into())),
            ("end_ns", Integer(range.end.into())),
        ])
    })
}

/// Reads the document.
pub fn from_json(document: &Value) -> Result<SelectionSummary> {
    let document = DocumentReader::new(document);
    let deleted = document.get("deleted");
    let hint = document.get("hint");
    let histogram_rows = read_range(document.get("histogram_points"))?;
    let histogram_range = read_range(document.get("histogram_range"))?;
    Ok(SelectionSummary {
        groups: document.get("groups").list()?.map(read_group).collect::<Result<_>>()?,
        rows: read_range(document.get("points"))?,
        // Earlier servers have no range.
        histogram_range: histogram_range.or_else(|| histogram_rows.clone()),
        histogram_rows,
        gaps: read_range(document.get("gaps"))?,
        has_gaps: document.get("has_gaps").flag()?,
        metrics: document
            .get("metrics")
            .list()?
            .map(|name| name.text().map(str::to_owned))
            .collect::<Result<_>>()?,
        metric_count: document.get("metric_count").count()?,
        deleted: match deleted.is_null() {
            true => None,
            false => {
                let example = deleted.get("example").text()?.to_owned();
                Some((deleted.get("series").count()?, example))
            }
        },
        // Earlier servers have none.
        hint: if hint.is_null() { None } else { Some(hint.text()?.to_owned()) },
    })
}

fn read_group(group: DocumentReader<'_>) -> Result<SeriesGroup> {
    Ok(SeriesGroup {
        kind: group.get("kind").kind()?,
        unit: group.get("unit").optional_text()?.unwrap_or("").to_owned(),
        series: group.get("series").count()?,
        example: group.get("example").text()?.to_owned(),
    })
}

fn read_range(range: DocumentReader<'_>) -> Result<Option<Range<i64>>> {
    if range.is_null() {
        return Ok(None);
    }
    Ok(Some(range.get("start_ns").integer()?..range.get("end_ns").integer()?))
}
