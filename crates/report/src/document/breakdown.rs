//! Breakdown as JSON.

use query::breakdown::{Breakdown, HeatmapSelection, LabelBreakdown, ValueBreakdown};

use super::{count, gap};
use render::json::Json::{self, Integer, List, Null, Object, Text};
use render::json::{integer, number};

/// The labels whose distributions differ inside a rectangle.
pub fn to_json(
    rectangle: &HeatmapSelection,
    unit: Option<String>,
    explanation: &Breakdown,
) -> Json {
    Object(vec![
        ("schema", integer(2)),
        ("selector", Text(rectangle.selector.to_string())),
        ("unit", unit.map_or(Null, Text)),
        ("baseline_start_ns", Integer(rectangle.baseline.start.into())),
        ("baseline_end_ns", Integer(rectangle.baseline.end.into())),
        ("start_ns", Integer(rectangle.time.start.into())),
        ("end_ns", Integer(rectangle.time.end.into())),
        ("above", number(rectangle.above)),
        ("up_to", number(rectangle.up_to)),
        ("inside", count(explanation.inside)),
        ("outside", count(explanation.outside)),
        ("labels", List(explanation.labels.iter().map(label_json).collect())),
        ("gaps", List(explanation.gaps.iter().map(gap).collect())),
    ])
}

fn label_json(label: &LabelBreakdown) -> Json {
    Object(vec![
        ("label", Text(label.label.clone())),
        ("divergence", number(label.divergence)),
        ("values", List(label.values.iter().map(value_json).collect())),
    ])
}

fn value_json(value: &ValueBreakdown) -> Json {
    Object(vec![
        ("value", Text(value.value.clone())),
        ("inside", count(value.inside)),
        ("outside", count(value.outside)),
        ("share_inside", number(value.share_inside)),
        ("share_outside", number(value.share_outside)),
    ])
}
