//! Series of numbers of a store view in groups by some of their labels.

use std::ops::Range;

use model::{Gap, Sample, SampleValue, Selector, SeriesKind};
use store::{LabelGroups, NumberRows, Row};

use super::{AHEAD_BYTES_MAX, ReadMemory, StoreSource};
use crate::error::Result;
use crate::labels::{LabelSet, NAME};
use crate::source::{GroupedRow, NumberGroups};

/// Memory of a selected series without its labels: its group, and its position in an order.
const SERIES_BYTES: u64 = 24;
/// Memory of a group with its labels, in several forms.
const GROUP_BYTES: u64 = 1024;
/// Least number of series per group: label sets of a selection take less memory than groups of
/// few series.
const SERIES_PER_GROUP: u64 = 8;

/// Groups of a store view.
pub(super) struct StoreNumberGroups<'s> {
    source: &'s StoreSource<'s>,
    range: Range<i64>,
    groups: LabelGroups,
    labels: Vec<LabelSet>,
    kind: SeriesKind,
    _memory: ReadMemory<'s>,
}

/// Rows of a series between two requests for memory.
const ROWS_AT_ONCE: usize = 4096;

impl<'s> StoreNumberGroups<'s> {
    /// `None` if the series, whose number is known, are not of numbers of a time, may have gaps, or
    /// have too many groups.
    pub(super) fn select(
        source: &'s StoreSource<'s>,
        (selector, count): (&Selector, u64),
        range: &Range<i64>,
        keeps: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<StoreNumberGroups<'s>>> {
        if !source.view.gaps(range).is_empty() {
            return Ok(None);
        }
        let groups_max = count / SERIES_PER_GROUP;
        let mut memory = ReadMemory { context: source.context, bytes: 0 };
        memory.grow(groups_max.saturating_mul(GROUP_BYTES))?;
        memory.grow(count.saturating_mul(SERIES_BYTES))?;
        let groups_max = usize::try_from(groups_max).unwrap_or(usize::MAX);
        let mut grow = |bytes| memory.grow(bytes).is_ok();
        let groups = source.view.label_groups(selector, keeps, groups_max, &mut grow);
        let Some(groups) = groups else { return Ok(None) };
        let Some(kind) = groups.series.first().map(|series| series.kind) else { return Ok(None) };
        let is_number = match kind {
            SeriesKind::Gauge => true,
            SeriesKind::Counter(_) => kind.is_cumulative(),
            SeriesKind::Histogram(_) | SeriesKind::Text => false,
        };
        if !is_number {
            return Ok(None);
        }
        let name = (NAME, groups.name.as_str());
        let labels = |group: &Vec<(String, String)>| {
            let labels = group.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            LabelSet::new(labels.chain([name]))
        };
        let labels = groups.groups.iter().map(labels).collect();
        let range = range.clone();
        Ok(Some(StoreNumberGroups { source, range, groups, labels, kind, _memory: memory }))
    }

    /// Series that are read at a time.
    fn at_once(&self, rows_max: u64) -> usize {
        let series = self.groups.series.len() as u64;
        let rows = self.source.view.estimate_rows(series, &self.range, None);
        let at_once = rows_max.saturating_mul(series) / rows.max(1);
        usize::try_from(at_once).unwrap_or(usize::MAX).max(1)
    }

    /// Reads series one by one.
    fn each_series(
        &self,
        series: Range<usize>,
        each: &mut dyn FnMut(GroupedRow<'_>) -> Result<()>,
    ) -> Result<Vec<Gap>> {
        let mut reader = self.source.view.sample_reader(self.range.clone());
        let (mut rows, mut gaps) = (Vec::new(), Vec::new());
        for at in series {
            rows.clear();
            let mut memory = ReadMemory { context: self.source.context, bytes: 0 };
            let mut reserved = Ok(());
            gaps.extend(reader.samples(&self.groups.series[at], &mut |sample: Sample| {
                if let SampleValue::Number(value) = sample.value
                    && reserved.is_ok()
                {
                    if rows.len().is_multiple_of(ROWS_AT_ONCE) {
                        reserved = memory.grow((ROWS_AT_ONCE * size_of::<Row<f64>>()) as u64);
                    }
                    rows.push(Row { start: sample.start, end: sample.end, value });
                }
            })?);
            reserved?;
            each(self.row(at, &rows))?;
        }
        Ok(gaps)
    }

    fn row<'r>(&self, series: usize, rows: &'r [Row<f64>]) -> GroupedRow<'r> {
        GroupedRow { series, group: self.groups.group_of[series] as usize, rows }
    }
}

impl NumberGroups for StoreNumberGroups<'_> {
    fn kind(&self) -> SeriesKind {
        self.kind
    }

    fn unit(&self) -> &str {
        &self.groups.unit
    }

    fn series(&self) -> usize {
        self.groups.series.len()
    }

    fn labels(&self) -> &[LabelSet] {
        &self.labels
    }

    fn each(
        &self,
        rows_max: u64,
        each: &mut dyn FnMut(GroupedRow<'_>) -> Result<()>,
    ) -> Result<Vec<Gap>> {
        let (count, at_once) = (self.series(), self.at_once(rows_max));
        let mut gaps = Vec::new();
        for first in (0..count).step_by(at_once) {
            let series = first..first.saturating_add(at_once).min(count);
            let mut memory = ReadMemory { context: self.source.context, bytes: 0 };
            let of_series = &self.groups.series[series.clone()];
            let mut grow =
                |bytes| memory.bytes + bytes <= AHEAD_BYTES_MAX && memory.try_grow(bytes);
            let read: Option<NumberRows> =
                self.source.view.number_rows(of_series, &self.range, &mut grow)?;
            let Some(rows) = read else {
                drop(memory);
                gaps.extend(self.each_series(series, each)?);
                continue;
            };
            for at in series {
                each(self.row(at, rows.rows(at - first)))?;
            }
            gaps.extend(rows.gaps().cloned());
        }
        Ok(gaps)
    }

    fn order(&self, is_counted: &dyn Fn(usize) -> bool) -> Vec<usize> {
        self.source.view.group_order(&self.groups, is_counted)
    }
}
