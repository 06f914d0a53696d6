//! Series without a unit beside series of one unit.
//!
//! One value sent without a unit would otherwise leave its metric without an answer. It is left out
//! and reported, so that it can be deleted, or renamed to the unit of the others.

use model::selector;
use store::SeriesEntryRef;

use crate::json::Json::{self, List, Object};
use crate::json::integer;
use report::document::series_fields;

/// Series listed as examples.
const EXAMPLES: usize = 10;

/// The series without a unit, removed from `found`, if all others have one and the same unit.
/// Otherwise `found` is unchanged.
pub(crate) fn split_off_unitless(found: &mut Vec<SeriesEntryRef>) -> Vec<SeriesEntryRef> {
    let mut units = found.iter().map(|found| found.series.unit()).filter(|unit| !unit.is_empty());
    let Some(first) = units.next() else { return Vec::new() };
    if units.any(|unit| unit != first) {
        return Vec::new();
    }
    let (with, without) =
        std::mem::take(found).into_iter().partition(|found| !found.series.unit().is_empty());
    *found = with;
    without
}

/// The series left out, for a document.
pub(crate) fn left_out_json(left_out: &[SeriesEntryRef]) -> Json {
    let examples = left_out.iter().take(EXAMPLES).map(|it| Object(series_fields(&it.series)));
    let reason = format!("no unit; select them with {{{}=\"\"}}", selector::UNIT);
    Object(vec![
        ("series", integer(left_out.len() as u64)),
        ("reason", Json::Text(reason)),
        ("examples", List(examples.collect())),
    ])
}
