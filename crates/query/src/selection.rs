//! What a selector matches: series by kind and unit, and the time range of their rows.

use std::ops::Range;

use model::{Selector, SeriesKind};
use store::{ReadView, SeriesEntryRef};

use crate::error::Result;

/// Maximum number of existing metrics that are named if nothing matches.
const METRICS_NAMED: usize = 12;

/// What a selector matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectionSummary {
    /// Matching series by kind and unit, in order of their first series.
    pub groups: Vec<SeriesGroup>,
    /// Time range of all matching rows, in nanoseconds since the Unix epoch.
    pub rows: Option<Range<i64>>,
    /// The same of histograms only.
    pub histogram_rows: Option<Range<i64>>,
    /// Range of the store's known gaps within the requested range.
    pub gaps: Option<Range<i64>>,
    /// Whether the store has known gaps at any time.
    pub has_gaps: bool,
    /// If nothing matches: names of the first existing metrics.
    pub metrics: Vec<String>,
    /// If nothing matches: number of existing metrics.
    pub metric_count: u64,
    /// If nothing matches: number of matching series whose rows were deleted or have expired, and
    /// one of them.
    pub deleted: Option<(u64, String)>,
}

/// Series of one kind and unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesGroup {
    /// Kind of the series.
    pub kind: SeriesKind,
    /// Unit of the values; empty if there is none.
    pub unit: String,
    /// Number of series.
    pub series: u64,
    /// The first series.
    pub example: String,
}

impl SeriesGroup {
    /// Whether the series are histograms.
    pub fn is_histogram(&self) -> bool {
        is_histogram(self.kind)
    }
}

fn is_histogram(kind: SeriesKind) -> bool {
    matches!(kind, SeriesKind::Histogram(_))
}

impl SelectionSummary {
    /// Summarizes what a selector matches. `asked` limits the gaps.
    pub fn read(
        view: &ReadView,
        selector: &Selector,
        asked: &Range<i64>,
    ) -> Result<SelectionSummary> {
        let found = view.select(selector);
        let gaps = view.gaps(asked);
        let start = gaps.iter().map(|gap| gap.start).min().map(|start| start.max(asked.start));
        let end = gaps.iter().map(|gap| gap.end).max().map(|end| end.min(asked.end));
        let gaps = start.zip(end).map(|(start, end)| start..end.max(start.saturating_add(1)));
        let mut summary = SelectionSummary {
            groups: groups(&found),
            rows: view.time_range(&found)?,
            gaps,
            has_gaps: !view.gaps(&(i64::MIN..i64::MAX)).is_empty(),
            ..SelectionSummary::default()
        };
        let all_histograms = summary.groups.iter().all(SeriesGroup::is_histogram);
        summary.histogram_rows = match all_histograms {
            true => summary.rows.clone(),
            false => {
                let mut histograms = found;
                histograms.retain(|found| is_histogram(found.series.kind()));
                view.time_range(&histograms)?
            }
        };
        if summary.groups.is_empty() {
            summary.name_alternatives(view, selector)?;
        }
        Ok(summary)
    }

    fn name_alternatives(&mut self, view: &ReadView, selector: &Selector) -> Result<()> {
        let deleted = view.select_deleted(selector)?;
        let first = deleted.iter().map(ToString::to_string).min();
        self.deleted = first.map(|first| (deleted.len() as u64, first));
        let all = view.select(&Selector::All);
        let mut names: Vec<&str> = all.iter().map(|found| found.series.name()).collect();
        names.sort_unstable();
        names.dedup();
        self.metric_count = names.len() as u64;
        self.metrics = names.into_iter().take(METRICS_NAMED).map(str::to_owned).collect();
        Ok(())
    }

    /// Number of matching series.
    pub fn series(&self) -> u64 {
        self.groups.iter().map(|group| group.series).sum()
    }

    /// Units of the histograms, each with its number of series and the first of them.
    pub fn units(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let mut units: Vec<(&str, u64, &str)> = Vec::new();
        for group in self.histograms() {
            match units.iter_mut().find(|known| known.0 == group.unit) {
                Some(known) => known.1 += group.series,
                None => units.push((&group.unit, group.series, &group.example)),
            }
        }
        units.into_iter()
    }

    /// Groups of histograms.
    pub fn histograms(&self) -> impl Iterator<Item = &SeriesGroup> {
        self.groups.iter().filter(|group| group.is_histogram())
    }
}

fn groups(found: &[SeriesEntryRef]) -> Vec<SeriesGroup> {
    let mut groups: Vec<SeriesGroup> = Vec::new();
    for SeriesEntryRef { series, .. } in found {
        let (kind, unit) = (series.kind(), series.unit());
        match groups.iter_mut().find(|known| known.kind == kind && known.unit == unit) {
            Some(known) => known.series += 1,
            None => groups.push(SeriesGroup {
                kind,
                unit: unit.to_owned(),
                series: 1,
                example: series.to_string(),
            }),
        }
    }
    groups
}
