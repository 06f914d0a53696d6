//! Histograms in another unit than the stored ones of their metric: no query merges them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use model::{Selector, Series, SeriesKind, selector};

use crate::ingest_writer::IngestWriter;

/// A new histogram of a batch, and one of the same metric in another unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitConflict {
    metric: String,
    unit: String,
    known_unit: String,
}

impl UnitConflict {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        let UnitConflict { metric, known_unit, .. } = self;
        format!(
            "send another name or unit; topdeck rename and delete take the series of one unit, as \
             in '{metric}{{__unit=\"{known_unit}\"}}'"
        )
    }
}

impl fmt::Display for UnitConflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnitConflict { metric, unit, known_unit } = self;
        write!(
            out,
            "metric {metric} has histograms in {known_unit}, these are in {unit}: different units \
             cannot be merged"
        )
    }
}

impl IngestWriter {
    /// The first histogram that is new in this process and in another unit than others of its
    /// metric, in the store or in the batch. Histograms without a unit are no conflict: queries
    /// leave them out. A store that cannot be read has none.
    pub fn unit_conflict(&self) -> Option<UnitConflict> {
        let store = &self.store()?;
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut view = None;
        for known in &self.new_series {
            let series = Series::from_canonical_key(&known.canonical_key).ok()?;
            let (metric, unit) = (series.name(), series.unit());
            if !matches!(series.kind(), SeriesKind::Histogram(_)) || unit.is_empty() {
                continue;
            }
            let conflict = |known_unit: &str| UnitConflict {
                metric: metric.to_owned(),
                unit: unit.to_owned(),
                known_unit: known_unit.to_owned(),
            };
            match seen.get(metric) {
                Some(other) if other == unit => continue,
                Some(other) => return Some(conflict(other)),
                None => seen.insert(metric.to_owned(), unit.to_owned()),
            };
            if view.is_none() {
                view = Some(store.view().ok()?);
            }
            let mut other = None;
            view.as_ref()?.each_series(&others(metric, unit), &mut |found| {
                other = Some(conflict(found.unit()));
                ControlFlow::Break(())
            });
            if other.is_some() {
                return other;
            }
        }
        None
    }
}

/// Histograms of a metric with another unit.
fn others(metric: &str, unit: &str) -> Selector {
    let kinds = ["delta-histogram", "cumulative-histogram"];
    let kinds = kinds.map(|kind| Selector::label_equals(selector::KIND, kind)).to_vec();
    let without = |unit| Selector::negate(Selector::label_equals(selector::UNIT, unit));
    let name = Selector::label_equals(selector::NAME, metric);
    Selector::and(vec![name, Selector::or(kinds), without(unit), without("")])
}
