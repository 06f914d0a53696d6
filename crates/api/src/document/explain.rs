//! An explanation as JSON.

use query::explain::{Explanation, LabelSplit, Rectangle, ValueSplit};

use super::{count, gap};
use crate::json::Json::{self, Integer, List, Null, Object, Text};
use crate::json::{integer, number};

/// What sets a rectangle apart.
pub fn of(rectangle: &Rectangle, unit: Option<String>, explanation: &Explanation) -> Json {
    Object(vec![
        ("schema", integer(1)),
        ("selector", Text(rectangle.selector.to_string())),
        ("unit", unit.map_or(Null, Text)),
        ("picture_start_ns", Integer(rectangle.picture.start.into())),
        ("picture_end_ns", Integer(rectangle.picture.end.into())),
        ("start_ns", Integer(rectangle.time.start.into())),
        ("end_ns", Integer(rectangle.time.end.into())),
        ("above", number(rectangle.above)),
        ("up_to", number(rectangle.up_to)),
        ("inside", count(explanation.inside)),
        ("outside", count(explanation.outside)),
        ("labels", List(explanation.labels.iter().map(label).collect())),
        ("gaps", List(explanation.gaps.iter().map(gap).collect())),
    ])
}

fn label(label: &LabelSplit) -> Json {
    Object(vec![
        ("label", Text(label.label.clone())),
        ("divergence", number(label.divergence)),
        ("values", List(label.values.iter().map(value).collect())),
    ])
}

fn value(value: &ValueSplit) -> Json {
    Object(vec![
        ("value", Text(value.value.clone())),
        ("inside", count(value.inside)),
        ("outside", count(value.outside)),
        ("share_inside", number(value.share_inside)),
        ("share_outside", number(value.share_outside)),
    ])
}
