//! Whether the target of a series is down: the newest value of its series `up` is 0.
//!
//! The series `up` of a series has the same `job` and `instance`, and no label that the series does
//! not have: of several clusters it is that of the same one.

use std::collections::BTreeMap;

use model::{SampleValue, Selector, Series, selector};
use store::ReadView;

const UP: &str = "up";
/// Labels of a target.
const TARGET_LABELS: [&str; 2] = ["instance", "job"];
/// How old the newest value may be: the longest usual interval of a scrape, twice.
const AGE_MAX_NS: i64 = 600 * 1_000_000_000;

/// Reads the health of targets, of each one once.
pub(crate) struct TargetHealth<'a> {
    view: &'a ReadView,
    now_ns: i64,
    /// By the labels of the target: labels of each series `up`, and whether its value is 0.
    known: BTreeMap<TargetLabels, Vec<(Series, bool)>>,
}

type TargetLabels = Vec<(&'static str, String)>;

impl TargetHealth<'_> {
    pub(crate) fn new(view: &ReadView, now_ns: i64) -> TargetHealth<'_> {
        TargetHealth { view, now_ns, known: BTreeMap::new() }
    }

    /// Whether the target of a series is down. That of a series without one is not.
    pub(crate) fn is_down(&mut self, series: &Series) -> store::Result<bool> {
        let label = |name| Some((name, series.label(name)?.to_owned()));
        let labels: TargetLabels = TARGET_LABELS.into_iter().filter_map(label).collect();
        if labels.is_empty() {
            return Ok(false);
        }
        if !self.known.contains_key(&labels) {
            let found = self.read(&labels)?;
            self.known.insert(labels.clone(), found);
        }
        let is_of = |up: &Series| {
            up.labels().iter().all(|(name, value)| series.label(name) == Some(value.as_str()))
        };
        Ok(self.known[&labels].iter().any(|(up, is_down)| *is_down && is_of(up)))
    }

    fn read(&self, labels: &TargetLabels) -> store::Result<Vec<(Series, bool)>> {
        let mut conditions = vec![Selector::label_equals(selector::NAME, UP)];
        conditions.extend(labels.iter().map(|(name, value)| Selector::label_equals(*name, value)));
        let range = self.now_ns.saturating_sub(AGE_MAX_NS)..self.now_ns.saturating_add(1);
        let mut found = Vec::new();
        for entry in self.view.select(&Selector::and(conditions)) {
            let (mut newest_ns, mut is_down) = (i64::MIN, false);
            self.view.samples(&entry, range.clone(), &mut |sample| {
                if sample.end >= newest_ns {
                    newest_ns = sample.end;
                    is_down = matches!(sample.value, SampleValue::Number(up) if up == 0.0);
                }
            })?;
            found.push(((*entry.series).clone(), is_down));
        }
        Ok(found)
    }
}
