//! Series of one metric in groups that have the same values of some labels: aggregations of very
//! many series need no other labels.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cmp::Ordering;
use std::collections::HashMap;

use model::Selector;
use model::wire::{WireReader, put_bytes};

use super::ReadView;
use super::selection::{KEYS_AT_ONCE, NAME_LABEL};
use crate::index::{SelectedSeries, SeriesIndex, SeriesKeyRef, SeriesNumber, metric_of_key};

/// Series of one metric, which has one kind and one spelling of its unit, by some of their labels.
#[derive(Debug)]
pub struct LabelGroups {
    /// Name of the metric.
    pub name: String,
    /// Its unit; empty for plain numbers.
    pub unit: String,
    /// All series by ascending id, the order of the chunks of a part.
    pub series: Vec<SelectedSeries>,
    /// Group of each series.
    pub group_of: Vec<u32>,
    /// The series of each group that is the first one by its labels.
    first: Vec<SeriesNumber>,
    /// Names and values of the labels of each group, by ascending name.
    pub groups: Vec<Vec<(String, String)>>,
}

impl ReadView {
    /// Series that match a selector, in at most `groups_max` groups by the labels that `keeps`
    /// accepts; `None` as [`ReadView::select_distinct`], with more groups, and if no series
    /// matches.
    pub fn label_groups(
        &self,
        selector: &Selector,
        keeps: &dyn Fn(&[u8]) -> bool,
        groups_max: usize,
        grow: &mut dyn FnMut(u64) -> bool,
    ) -> Option<LabelGroups> {
        let (mut group_of, mut groups, mut first) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: HashMap<Box<[u8]>, u32> = HashMap::new();
        let mut metric: Option<(String, String, usize)> = None;
        let mut kept = Vec::new();
        let series = self.each_distinct(selector, grow, &mut |index, number| {
            if groups.len() > groups_max {
                return;
            }
            let key = index.key(number);
            let (.., metric_bytes) = metric.get_or_insert_with(|| {
                let SeriesKeyRef { name, unit, .. } = index.key_ref(number);
                let name = String::from_utf8_lossy(name).into_owned();
                (name, unit.to_owned(), metric_of_key(key).len())
            });
            kept.clear();
            for (name, value) in labels(key, *metric_bytes).filter(|(name, _)| keeps(name)) {
                put_bytes(&mut kept, name);
                put_bytes(&mut kept, value);
            }
            let group = known.get(&*kept).copied().unwrap_or_else(|| {
                let group = groups.len() as u32;
                known.insert(kept.as_slice().into(), group);
                groups.push(labels_of(&kept));
                first.push(number);
                group
            });
            if let Some(first) = first.get_mut(group as usize)
                && compare_labels(index, *metric_bytes, (number, *first)).is_lt()
            {
                *first = number;
            }
            group_of.push(group);
        })?;
        let (name, unit, _) = metric.filter(|_| groups.len() <= groups_max)?;
        let mut all: Vec<(SelectedSeries, u32)> = series.into_iter().zip(group_of).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.compare_ids(b));
        let (series, group_of) = all.into_iter().unzip();
        Some(LabelGroups { name, unit, series, group_of, first, groups })
    }

    /// Groups with a series for which `is_counted` holds, by its position, in the order of the
    /// labels of the first such series of each.
    pub fn group_order(
        &self,
        groups: &LabelGroups,
        is_counted: &dyn Fn(usize) -> bool,
    ) -> Vec<usize> {
        let metric_bytes = self.metric_bytes(groups);
        let mut first: Vec<Option<SeriesNumber>> = vec![None; groups.groups.len()];
        let group_of = |at: usize| groups.group_of.get(at).map(|group| *group as usize);
        // Mostly the first series of all is counted.
        for (at, series) in groups.series.iter().enumerate().filter(|(at, _)| is_counted(*at)) {
            let Some(group) = group_of(at) else { continue };
            if groups.first.get(group) == Some(&series.number)
                && let Some(first) = first.get_mut(group)
            {
                *first = Some(series.number);
            }
        }
        let is_known: Vec<bool> = first.iter().map(Option::is_some).collect();
        let others = groups.series.iter().enumerate().filter(|(at, _)| {
            group_of(*at).is_some_and(|group| is_known.get(group) == Some(&false))
        });
        let others: Vec<(usize, &SelectedSeries)> = others.collect();
        for some in others.chunks(KEYS_AT_ONCE) {
            let index = self.inner.index();
            for &(at, series) in some.iter().filter(|(at, _)| is_counted(*at)) {
                let held = group_of(at).and_then(|group| first.get_mut(group));
                let Some(first) = held else { continue };
                let is_before = |held: SeriesNumber| {
                    compare_labels(&index, metric_bytes, (series.number, held)).is_lt()
                };
                if first.is_none_or(is_before) {
                    *first = Some(series.number);
                }
            }
        }
        let index = self.inner.index();
        let mut order: Vec<(usize, SeriesNumber)> = first
            .into_iter()
            .enumerate()
            .filter_map(|(group, first)| Some((group, first?)))
            .collect();
        order.sort_by(|a, b| compare_labels(&index, metric_bytes, (a.1, b.1)));
        order.into_iter().map(|(group, _)| group).collect()
    }
}

impl ReadView {
    /// Bytes at the start of all keys: kind, name and unit.
    fn metric_bytes(&self, groups: &LabelGroups) -> usize {
        let index = self.inner.index();
        let mut numbers = groups.series.iter().map(|series| series.number);
        let live = numbers.find(|number| index.is_live(*number));
        live.map_or(0, |number| metric_of_key(index.key(number)).len())
    }
}

/// Names and values of the labels of a key, which begins with so many bytes of its metric.
fn labels(key: &[u8], metric_bytes: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = WireReader::new(key.get(metric_bytes..).unwrap_or_default());
    let count = rest.count(2, "label count").unwrap_or(0);
    // The key was validated, so all of them parse.
    (0..count).map_while(move |_| Some((rest.bytes("name").ok()?, rest.bytes("value").ok()?)))
}

/// Labels that were written as the bytes of a group.
fn labels_of(kept: &[u8]) -> Vec<(String, String)> {
    let mut reader = WireReader::new(kept);
    let mut text = || Some(String::from_utf8_lossy(reader.bytes("label").ok()?).into_owned());
    std::iter::from_fn(|| Some((text()?, text()?))).collect()
}

/// Order of the label sets of two series of one metric, with its name. A series that was deleted in
/// between comes first.
fn compare_labels(
    index: &SeriesIndex,
    metric_bytes: usize,
    (a, b): (SeriesNumber, SeriesNumber),
) -> Ordering {
    if !index.is_live(a) || !index.is_live(b) {
        return index.is_live(a).cmp(&index.is_live(b));
    }
    let name = NAME_LABEL.as_bytes();
    let labels_of = |number| labels(index.key(number), metric_bytes).peekable();
    let mut labels = (labels_of(a), labels_of(b));
    // The name is equal and has its place among the labels.
    let mut is_name_passed = (false, false);
    loop {
        let next = (
            next_label(&mut labels.0, &mut is_name_passed.0, name),
            next_label(&mut labels.1, &mut is_name_passed.1, name),
        );
        match next {
            (None, None) => return Ordering::Equal,
            (a, b) if a != b => return a.cmp(&b),
            _ => {}
        }
    }
}

/// The next label with its value; the metric's name has none here.
fn next_label<'k>(
    labels: &mut std::iter::Peekable<impl Iterator<Item = (&'k [u8], &'k [u8])>>,
    is_name_passed: &mut bool,
    name: &'k [u8],
) -> Option<(&'k [u8], &'k [u8])> {
    if !*is_name_passed && labels.peek().is_none_or(|label| label.0 > name) {
        *is_name_passed = true;
        return Some((name, b""));
    }
    labels.next()
}
