//! Which series have newer rows than a reader knows.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::SeriesKind;

use super::ReadView;
use super::selection::KEYS_AT_ONCE;
use crate::error::Result;
use crate::index::{SelectedSeries, SeriesNumber};
use crate::manifest::PartInfo;

/// A series and its newest row.
#[derive(Clone, Copy, Debug)]
pub struct SeriesActivity {
    /// Position of the series in the index: dense, from 0, not used again while the store is open.
    pub position: u32,
    /// The series.
    pub series: SelectedSeries,
    /// The producer that sent it first, if known.
    pub producer: Option<u64>,
    /// End of its newest row, if it follows the known end.
    pub newer_end: Option<i64>,
}

impl ReadView {
    /// Calls `each` for all series except texts, in the order of their positions. `known` has the
    /// known end of the series at a position: only rows that end later are looked for, in heads and
    /// in base parts, so that a series whose rows are all known costs little.
    pub fn each_activity(
        &self,
        known: &dyn Fn(u32) -> i64,
        each: &mut dyn FnMut(SeriesActivity),
    ) -> Result<()> {
        let mut parts: Vec<&PartInfo> = self.manifest.base_parts().collect();
        model::sort::by_key(&mut parts, |info| std::cmp::Reverse(info.end));
        let len = u32::try_from(self.inner.index().len()).unwrap_or(u32::MAX);
        let mut some: Vec<(u32, SelectedSeries, Option<u64>)> = Vec::with_capacity(KEYS_AT_ONCE);
        for first in (0..len).step_by(KEYS_AT_ONCE) {
            self.check()?;
            some.clear();
            let index = self.inner.index();
            let last = first.saturating_add(KEYS_AT_ONCE as u32).min(len);
            for position in first..last {
                let number = SeriesNumber(position);
                if index.is_live(number) && index.kind(number) != SeriesKind::Text {
                    let (id, kind) = (index.id(number), index.kind(number));
                    let series = SelectedSeries { number, id, kind };
                    some.push((position, series, index.producer(number)));
                }
            }
            drop(index);
            for (position, series, producer) in &some {
                let newer_end = self.newer_end(series, known(*position), &parts)?;
                let (position, series, producer) = (*position, *series, *producer);
                each(SeriesActivity { position, series, producer, newer_end });
            }
        }
        Ok(())
    }

    /// Name and labels of a series, if it was not deleted.
    pub fn entry(&self, series: &SelectedSeries) -> Option<crate::index::SeriesEntryRef> {
        let index = self.inner.index();
        index.is_live(series.number).then(|| index.entry(series.number))
    }

    /// End of the newest row that ends after `known`. `parts` are those of the base resolution, the
    /// latest first.
    fn newer_end(
        &self,
        series: &SelectedSeries,
        known: i64,
        parts: &[&PartInfo],
    ) -> Result<Option<i64>> {
        let in_heads = self.heads().filter_map(|head| head.series_range(series.number));
        let mut newest = in_heads.map(|range| range.1).max().filter(|end| *end > known);
        for info in parts {
            if info.end <= newest.unwrap_or(known) {
                break;
            }
            let Ok(part) = self.inner.part(info.number) else { continue };
            let ends = part.find(&series.id)?.into_iter().map(|location| location.end);
            newest = newest.max(ends.max().filter(|end| *end > known));
        }
        Ok(newest)
    }
}
