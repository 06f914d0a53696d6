//! Series that a selector matched, as reads and queries need them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::wire::WireReader;
use model::{Series, SeriesId, SeriesKind};

use super::{ParsedKey, SeriesIndex, SeriesNumber};

/// Selected series, with what its reads need.
#[derive(Clone, Copy, Debug)]
pub struct SelectedSeries {
    pub(crate) number: SeriesNumber,
    pub(crate) id: SeriesId,
    /// Kind of its samples.
    pub kind: SeriesKind,
}

impl SelectedSeries {
    /// Order of ids: they are hashes, so their first bytes decide nearly every comparison.
    pub(crate) fn compare_ids(&self, other: &SelectedSeries) -> Ordering {
        self.id.prefix().cmp(&other.id.prefix()).then_with(|| self.id.cmp(&other.id))
    }

    /// ID of the series.
    pub fn id(&self) -> SeriesId {
        self.id
    }

    /// Position of the series in the index, as in `SeriesActivity`.
    pub fn position(&self) -> u32 {
        self.number.0
    }
}

impl AsRef<SelectedSeries> for SelectedSeries {
    fn as_ref(&self) -> &SelectedSeries {
        self
    }
}

/// Selected series with its name and labels.
#[derive(Clone, Debug)]
pub struct SeriesEntryRef {
    selected: SelectedSeries,
    /// The series.
    pub series: Arc<Series>,
}

impl AsRef<SelectedSeries> for SeriesEntryRef {
    fn as_ref(&self) -> &SelectedSeries {
        &self.selected
    }
}

/// Selected series by the bytes of its key: nothing is copied.
pub struct SeriesKeyRef<'a> {
    /// The series, for reads.
    pub selected: SelectedSeries,
    /// Unit; empty for plain numbers.
    pub unit: &'a str,
    /// Metric name, UTF-8.
    pub name: &'a [u8],
    key: ParsedKey<'a>,
}

impl<'a> SeriesKeyRef<'a> {
    /// Names and values of the labels, UTF-8, by ascending name.
    pub fn labels(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.key.labels()
    }
}

impl SeriesIndex {
    /// Calls `each` with the values that series of numbers or histograms have of a label, until it
    /// returns false; in any order.
    pub(crate) fn each_label_value(
        &self,
        label: &str,
        each: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) {
        let Some(label) = self.label(label) else { return };
        let is_text = |number: &u32| self.kind(SeriesNumber(*number)) == SeriesKind::Text;
        for value in &label.values {
            if !value.postings.as_slice().iter().all(is_text)
                && each(self.keys.text(value.text)).is_break()
            {
                break;
            }
        }
    }

    /// A live series, for reads.
    pub(crate) fn selected(&self, number: SeriesNumber) -> SelectedSeries {
        SelectedSeries { number, id: self.id(number), kind: self.kind(number) }
    }

    /// A live series with its name and labels.
    pub(crate) fn entry(&self, number: SeriesNumber) -> SeriesEntryRef {
        SeriesEntryRef { selected: self.selected(number), series: Arc::new(self.series(number)) }
    }

    /// A live series, by the bytes of its key.
    pub(crate) fn key_ref(&self, number: SeriesNumber) -> SeriesKeyRef<'_> {
        let key = ParsedKey::parse(self.key(number));
        let selected = self.selected(number);
        let unit = std::str::from_utf8(key.unit).unwrap_or_default();
        SeriesKeyRef { selected, unit, name: key.name, key }
    }
}

/// Kind, name and unit at the start of a key, the unit not in topdeck's spelling. Each has its
/// length: of no other metric the key begins so.
pub(crate) fn metric_of_key(key: &[u8]) -> &[u8] {
    let mut rest = WireReader::new(key);
    let skipped = rest.u8("kind").and_then(|_| rest.bytes("name")).and_then(|_| rest.text("unit"));
    let metric = skipped.ok().and_then(|_| key.get(..rest.offset()));
    metric.unwrap_or_default()
}
