//! Breakdown as JSON.

use model::Selector;
use query::breakdown::{Breakdown, HeatmapSelection, LabelBreakdown, ValueBreakdown};

use super::reader::DocumentReader;
use super::{count, gap};
use crate::error::{Result, unsuitable};
use render::json::Json::{self, Integer, List, Null, Object, Text};
use render::json::{integer, number};
use serde_json::Value;

/// The labels whose distributions differ inside a selection.
pub fn to_json(selection: &HeatmapSelection, unit: Option<String>, breakdown: &Breakdown) -> Json {
    Object(vec![
        ("schema", integer(2)),
        ("selector", Text(query::selector_text(&selection.selector))),
        ("unit", unit.map_or(Null, Text)),
        ("baseline_start_ns", Integer(selection.baseline.start.into())),
        ("baseline_end_ns", Integer(selection.baseline.end.into())),
        ("start_ns", Integer(selection.time.start.into())),
        ("end_ns", Integer(selection.time.end.into())),
        ("above", number(selection.above)),
        ("up_to", number(selection.up_to)),
        ("inside", count(breakdown.inside)),
        ("outside", count(breakdown.outside)),
        ("min", breakdown.values.map_or(Null, |(min, _)| number(min))),
        ("max", breakdown.values.map_or(Null, |(_, max)| number(max))),
        ("labels", List(breakdown.labels.iter().map(label_json).collect())),
        ("gaps", List(breakdown.gaps.iter().map(gap).collect())),
    ])
}

/// Reads the document: selection, unit, breakdown.
pub fn from_json(document: &Value) -> Result<(HeatmapSelection, Option<String>, Breakdown)> {
    let document = DocumentReader::new(document);
    let text = document.get("selector").text()?;
    let selector = Selector::parse(text)
        .map_err(|error| unsuitable(format!("cannot read the answer: selector {text}: {error}")))?;
    let time = |name| document.get(name).integer();
    let selection = HeatmapSelection {
        selector,
        baseline: time("baseline_start_ns")?..time("baseline_end_ns")?,
        time: time("start_ns")?..time("end_ns")?,
        above: document.get("above").number_or(f64::NEG_INFINITY)?,
        up_to: document.get("up_to").number_or(f64::INFINITY)?,
    };
    let end = |name| document.get(name).number_or(f64::NAN);
    let values = (end("min")?, end("max")?);
    let breakdown = Breakdown {
        values: Some(values).filter(|(min, max)| !min.is_nan() && !max.is_nan()),
        inside: document.get("inside").count_bracket()?,
        outside: document.get("outside").count_bracket()?,
        labels: document.get("labels").list()?.map(read_label).collect::<Result<_>>()?,
        gaps: document.get("gaps").gaps()?,
    };
    Ok((selection, document.get("unit").optional_text()?.map(str::to_owned), breakdown))
}

fn read_label(label: DocumentReader<'_>) -> Result<LabelBreakdown> {
    let read = |value: DocumentReader<'_>| {
        Ok(ValueBreakdown {
            value: value.get("value").text()?.to_owned(),
            inside: value.get("inside").count_bracket()?,
            outside: value.get("outside").count_bracket()?,
            share_inside: value.get("share_inside").number()?,
            share_outside: value.get("share_outside").number()?,
        })
    };
    Ok(LabelBreakdown {
        label: label.get("label").text()?.to_owned(),
        divergence: label.get("divergence").number()?,
        values: label.get("values").list()?.map(read).collect::<Result<_>>()?,
    })
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
