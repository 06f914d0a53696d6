//! Label index: values and postings.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use super::series_keys::{KeyText, SeriesKeys};
use super::table::{HashIndex, capacity_bytes};

#[derive(Debug, Default)]
pub(super) struct LabelIndex {
    pub(super) name: KeyText,
    by_text: HashIndex,
    pub(super) values: Vec<LabelValue>,
    /// Number of series that have the label.
    pub(super) series: u32,
}

#[derive(Debug)]
pub(super) struct LabelValue {
    pub(super) text: KeyText,
    pub(super) postings: Postings,
}

/// Postings list: ascending series numbers. A list of one series, which is common, needs no
/// allocation.
///
/// Uncompressed: about 5.4 bytes per tag and series, with the slack of growing vectors (a million
/// series). Varint deltas would take a third of that, but postings are less than a sixth of a
/// series' memory and every selection would pay for decoding.
#[derive(Debug)]
pub(super) enum Postings {
    One(u32),
    Many(Vec<u32>),
}

impl Postings {
    fn push(&mut self, number: u32) {
        match self {
            Postings::One(first) => *self = Postings::Many(vec![*first, number]),
            Postings::Many(numbers) => numbers.push(number),
        }
    }

    pub(super) fn as_slice(&self) -> &[u32] {
        match self {
            Postings::One(number) => std::slice::from_ref(number),
            Postings::Many(numbers) => numbers,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// The smallest number.
    pub(super) fn first(&self) -> u32 {
        self.as_slice()[0]
    }

    /// Postings without deleted series; `None` if none is left.
    fn without_deleted(self, is_deleted: &[bool]) -> Option<Postings> {
        match self {
            Postings::One(number) => {
                (!is_deleted[number as usize]).then_some(Postings::One(number))
            }
            Postings::Many(mut numbers) => {
                numbers.retain(|number| !is_deleted[*number as usize]);
                match numbers[..] {
                    [] => None,
                    [number] => Some(Postings::One(number)),
                    _ => Some(Postings::Many(numbers)),
                }
            }
        }
    }
}

impl LabelIndex {
    pub(super) fn new_named(name: KeyText) -> LabelIndex {
        LabelIndex { name, ..LabelIndex::default() }
    }

    /// Index of a text among the values.
    pub(super) fn find(&self, keys: &SeriesKeys, hash: u64, text: &[u8]) -> Option<u32> {
        self.by_text.find(hash, |at| keys.is(self.values[at as usize].text, text))
    }

    /// Adds series `number` to the value that [`Self::find`] found at `at`.
    pub(super) fn add(&mut self, at: Option<u32>, hash: u64, text: KeyText, number: u32) {
        self.series = self.series.saturating_add(1);
        match at {
            Some(at) => self.values[at as usize].postings.push(number),
            None => {
                self.by_text.insert(hash, self.values.len() as u32);
                self.values.push(LabelValue { text, postings: Postings::One(number) });
            }
        }
    }

    /// Removes deleted series, by number; `text_of` returns a value as located in the key of a
    /// series that has it.
    pub(super) fn delete(&mut self, is_deleted: &[bool], text_of: &dyn Fn(u32) -> KeyText) {
        let mut locations = vec![None; self.values.len()];
        let (mut left, mut series) = (Vec::with_capacity(self.values.len()), 0);
        for (value, location) in std::mem::take(&mut self.values).into_iter().zip(&mut locations) {
            let LabelValue { text, postings: numbers } = value;
            let Some(numbers) = numbers.without_deleted(is_deleted) else { continue };
            *location = Some(left.len() as u32);
            series = (numbers.len() as u32).saturating_add(series);
            let text = match is_deleted[text.number() as usize] {
                true => text_of(numbers.first()),
                false => text,
            };
            left.push(LabelValue { text, postings: numbers });
        }
        if left.len() < locations.len() {
            left.shrink_to_fit();
            self.by_text.renumber(|at| locations[at as usize]);
        }
        (self.values, self.series) = (left, series);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let in_value = |value: &LabelValue| match &value.postings {
            Postings::One(_) => 0,
            Postings::Many(numbers) => capacity_bytes(numbers),
        };
        let numbers: usize = self.values.iter().map(in_value).sum();
        numbers
            .saturating_add(capacity_bytes(&self.values))
            .saturating_add(self.by_text.memory_bytes())
    }
}
