//! What a selector matches: series by kind and unit, and the time range of their rows.

use std::collections::BTreeSet;
use std::ops::Range;

use model::{Selector, SeriesKind, selector};
use store::{ReadView, SeriesEntryRef};

use crate::classic_buckets::{distribution_name, is_counter, labels_of, select_distributions};
use crate::error::Result;
use crate::selector_hint::selector_hint;
use crate::store_source::StoreSource;

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
    /// Time range that has all rows of the histograms: a cumulative row belongs to the nanosecond
    /// before it.
    pub histogram_range: Option<Range<i64>>,
    /// Range of the store's known gaps within the requested range.
    pub gaps: Option<Range<i64>>,
    /// Whether the store has known gaps at any time.
    pub has_gaps: bool,
    /// If nothing matches: names of existing metrics, the first `METRICS_NAMED`.
    pub metrics: Vec<String>,
    /// If nothing matches: number of existing metrics.
    pub metric_count: u64,
    /// If nothing matches: number of matching series whose rows were deleted or have expired, and
    /// one of them.
    pub deleted: Option<(u64, String)>,
    /// If no series or no histogram matches: what may have been meant.
    pub hint: Option<String>,
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

/// Series without a unit beside series of one unit: they are left out, since their values cannot be
/// merged with the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitlessSeries {
    /// Number of series without a unit.
    pub series: u64,
    /// The first of them.
    pub example: String,
    /// Unit of the others.
    pub unit: String,
}

impl UnitlessSeries {
    /// Selector of the others.
    pub fn narrow(&self, selector: &Selector) -> Selector {
        let same = Selector::label_equals(selector::UNIT, &self.unit);
        Selector::and(vec![selector.clone(), same])
    }
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
    /// Summarizes what a selector matches: classic histograms whose buckets are counters are
    /// histograms. `range` limits the gaps.
    pub fn read(
        view: &ReadView,
        selector: &Selector,
        range: &Range<i64>,
    ) -> Result<SelectionSummary> {
        let mut found = view.select(selector);
        let matches_none = found.is_empty();
        let histograms = select_distributions(view, selector);
        let of_classic = histograms.iter().filter(|found| is_counter(found));
        let buckets: BTreeSet<u32> = of_classic.map(|found| found.as_ref().position()).collect();
        // A selector by the name of the buckets matches the counters, too.
        found.retain(|found| !buckets.contains(&found.as_ref().position()));
        found.extend(histograms.iter().filter(|found| is_counter(found)).cloned());
        let mut gaps = view.gaps(range);
        gaps.retain(|gap| gap.may_hide_series_of(selector));
        let start = gaps.iter().map(|gap| gap.start).min().map(|start| start.max(range.start));
        let end = gaps.iter().map(|gap| gap.end).max().map(|end| end.min(range.end));
        let gaps = start.zip(end).map(|(start, end)| start..end.max(start.saturating_add(1)));
        let mut summary = SelectionSummary {
            groups: groups(&found),
            rows: view.time_range(&found)?,
            gaps,
            has_gaps: (view.gaps(&(i64::MIN..i64::MAX)).iter())
                .any(|gap| gap.may_hide_series_of(selector)),
            ..SelectionSummary::default()
        };
        let all_histograms = summary.groups.iter().all(SeriesGroup::is_histogram);
        summary.histogram_rows = match all_histograms {
            true => summary.rows.clone(),
            false => view.time_range(&histograms)?,
        };
        summary.histogram_range = view.complete_range(&histograms)?;
        if histograms.is_empty() || matches_none {
            summary.hint = selector_hint(&StoreSource::new(view), selector)?;
        }
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
        model::sort::by(&mut names, Ord::cmp);
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

    /// Histograms without a unit, if all others have one and the same unit.
    pub fn unitless(&self) -> Option<UnitlessSeries> {
        let units: Vec<(&str, u64, &str)> = self.units().collect();
        let [a, b] = units[..] else { return None };
        let ((_, series, example), (unit, _, _)) = if a.0.is_empty() { (a, b) } else { (b, a) };
        let is_without = a.0.is_empty() || b.0.is_empty();
        is_without.then(|| UnitlessSeries {
            series,
            example: example.to_owned(),
            unit: unit.to_owned(),
        })
    }

    /// Groups of histograms.
    pub fn histograms(&self) -> impl Iterator<Item = &SeriesGroup> {
        self.groups.iter().filter(|group| group.is_histogram())
    }
}

fn groups(found: &[SeriesEntryRef]) -> Vec<SeriesGroup> {
    let mut groups: Vec<SeriesGroup> = Vec::new();
    let mut classic = BTreeSet::new();
    for found in found {
        let series = &found.series;
        let (kind, unit) = (series.kind(), series.unit());
        // Buckets that differ only in their bounds are one series.
        let is_bucket = is_histogram(kind) && is_counter(found);
        if is_bucket && !classic.insert((labels_of(found), unit)) {
            continue;
        }
        match groups.iter_mut().find(|known| known.kind == kind && known.unit == unit) {
            Some(known) => known.series += 1,
            None => groups.push(SeriesGroup {
                kind,
                unit: unit.to_owned(),
                series: 1,
                example: if is_bucket { distribution_name(found) } else { series.to_string() },
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use hist::codec::header::Temporality;

    use super::*;

    #[track_caller]
    fn check(units: &[(SeriesKind, &str)], expected: Option<&str>) {
        let group = |(kind, unit): &(SeriesKind, &str)| SeriesGroup {
            kind: *kind,
            unit: (*unit).to_owned(),
            series: 2,
            example: format!("example of {unit:?}"),
        };
        let groups = units.iter().map(group).collect();
        let unitless = SelectionSummary { groups, ..SelectionSummary::default() }.unitless();
        assert_eq!(unitless.as_ref().map(|it| &it.unit[..]), expected);
        if let Some(unitless) = unitless {
            assert_eq!((unitless.series, &unitless.example[..]), (2, "example of \"\""));
            let selector = Selector::parse("latency").unwrap();
            let expected = Selector::parse("latency{__unit=\"ms\"}").unwrap();
            assert_eq!(unitless.narrow(&selector), expected);
        }
    }

    #[test]
    fn histograms_without_a_unit_are_left_out_beside_those_of_one_unit() {
        let histogram = SeriesKind::Histogram(Temporality::Delta);
        check(&[(histogram, "ms"), (histogram, "")], Some("ms"));
        check(&[(histogram, ""), (SeriesKind::Gauge, "s"), (histogram, "ms")], Some("ms"));
        // Others are not merged, or there is no choice.
        check(&[(histogram, ""), (SeriesKind::Gauge, "ms")], None);
        check(&[(histogram, ""), (histogram, "ms"), (histogram, "s")], None);
        check(&[(histogram, "ms"), (histogram, "s")], None);
        check(&[(histogram, "")], None);
    }
}
