//! What changed: series that vanished, and the ones that appeared in their place.
//!
//! 1. [`SeriesInventory`] learns the interval of each series and notices which ones fall silent and
//!    which ones are new.
//! 2. [`match_changes`] matches both by name and labels and says what changed in a sentence.
//! 3. A [`SeriesSetChange`] is stored as an annotation, which charts show at its time. Its
//!    acceptance is a text sample, too.

mod inventory;
mod inventory_file;
mod matching;

use std::collections::BTreeMap;
use std::ops::Range;

use model::{Sample, SampleValue, Selector, Series, SeriesKind, blake3_128, selector};
use store::ReadView;

pub use self::inventory::{SeriesEvent, SeriesInventory};
pub use self::inventory_file::{
    InventoryError, StoredInventory, decode_inventory, encode_inventory,
};
pub use self::matching::{MatchedChange, ObservedSeries, match_changes};

/// Name of the series of annotations.
const ANNOTATION: &str = "annotation";
/// Tag of annotations that are changes of series, and its value.
const EVENT_TAG: &str = "event";
const EVENT: &str = "series";
/// Tag with the name of the source.
const SOURCE_TAG: &str = "source";
/// Name of the series of acceptances. A text is the id, the person and the note, by lines.
const ACCEPTED: &str = "annotation_accepted";
/// Changes that a list has, at most.
const CHANGES_MAX: usize = 10_000;

/// A change of the series of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSetChange {
    /// When the series that vanished sent last, or when new ones appeared.
    pub time_ns: i64,
    /// Name of the source.
    pub source: String,
    /// Sentence.
    pub text: String,
    /// Who accepted it.
    pub acceptance: Option<ChangeAcceptance>,
}

/// Acceptance of a change: somebody knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeAcceptance {
    /// Time.
    pub at_ns: i64,
    /// Who.
    pub by: String,
    /// Note; may be empty.
    pub note: String,
}

impl SeriesSetChange {
    /// Identity, from time, source and text.
    pub fn id(&self) -> String {
        let key = format!("{}\0{}\0{}", self.time_ns, self.source, self.text);
        let hash = blake3_128(key.as_bytes());
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Annotation, to be appended.
    pub fn sample(&self) -> (Series, Sample) {
        let series = Series::new(ANNOTATION, SeriesKind::Text)
            .with_label(EVENT_TAG, EVENT)
            .with_label(SOURCE_TAG, &self.source);
        (series, text_sample(self.time_ns, self.text.clone()))
    }
}

impl ChangeAcceptance {
    /// Sample, to be appended.
    pub fn sample(&self, change_id: &str) -> (Series, Sample) {
        let by = self.by.replace('\n', " ");
        let text = format!("{change_id}\n{by}\n{}", self.note);
        (Series::new(ACCEPTED, SeriesKind::Text), text_sample(self.at_ns, text))
    }
}

fn text_sample(time_ns: i64, text: String) -> Sample {
    Sample { start: time_ns, end: time_ns, value: SampleValue::Text(text) }
}

/// Changes in a range (start exclusive, end inclusive) by time, with their acceptances; the latest
/// ones if there are more than 10,000.
pub fn read_changes(view: &ReadView, range: Range<i64>) -> store::Result<Vec<SeriesSetChange>> {
    let mut changes: Vec<SeriesSetChange> = Vec::new();
    let event = [(EVENT_TAG, EVENT)];
    each_text(view, ANNOTATION, &event, &range, &mut |series, time_ns, text| {
        let source = series.label(SOURCE_TAG).unwrap_or_default().to_owned();
        changes.push(SeriesSetChange { time_ns, source, text, acceptance: None });
    })?;
    model::sort::by(&mut changes, |a, b| {
        (a.time_ns, &a.text, &a.source).cmp(&(b.time_ns, &b.text, &b.source))
    });
    // After a kill, a change may be stored again.
    changes.dedup();
    changes.drain(..changes.len().saturating_sub(CHANGES_MAX));
    let mut acceptances = BTreeMap::new();
    // A change is accepted after it happened.
    let since = range.start..i64::MAX;
    each_text(view, ACCEPTED, &[], &since, &mut |_, at_ns, text| {
        let mut lines = text.splitn(3, '\n').map(str::to_owned);
        let (id, by) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let note = lines.next().unwrap_or_default();
        acceptances.entry(id).or_insert(ChangeAcceptance { at_ns, by, note });
    })?;
    for change in &mut changes {
        change.acceptance = acceptances.remove(&change.id());
    }
    Ok(changes)
}

fn each_text(
    view: &ReadView,
    name: &str,
    labels: &[(&str, &str)],
    range: &Range<i64>,
    each: &mut dyn FnMut(&Series, i64, String),
) -> store::Result<()> {
    let mut conditions = vec![
        Selector::label_equals(selector::NAME, name),
        Selector::label_equals(selector::KIND, "text"),
    ];
    conditions.extend(labels.iter().map(|(name, value)| Selector::label_equals(*name, *value)));
    for series in view.select(&Selector::and(conditions)) {
        let Some(extent) = view.time_range(std::slice::from_ref(&series))? else { continue };
        let start = range.start.max(extent.start.saturating_sub(1));
        let end = range.end.min(extent.end.saturating_add(1));
        if start < end {
            view.samples(&series, start..end, &mut |sample| {
                if let SampleValue::Text(text) = sample.value {
                    each(&series.series, sample.end, text);
                }
            })?;
        }
    }
    Ok(())
}
