//! Sort order and filter.

use std::cmp::Ordering;

use crate::top::columns::TableColumn;
use crate::top::metric_interval::IntervalStats;
use crate::top::process_history::ProcessHistory;
use crate::top::series_history::SeriesHistory;

/// Sort key and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortOrder {
    pub(crate) by: SortKey,
    pub(crate) is_reversed: bool,
}

/// Sort key: numbers descending, names ascending, unless reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortKey {
    Rate,
    P99,
    Max,
    P50,
    InFlight,
    Oldest,
    Errors,
    Program,
    Metric,
    Pid,
}

/// In the order in which the sort key cycles.
const PROCESS_KEYS: [SortKey; 10] = [
    SortKey::Rate,
    SortKey::P99,
    SortKey::Max,
    SortKey::P50,
    SortKey::InFlight,
    SortKey::Oldest,
    SortKey::Errors,
    SortKey::Program,
    SortKey::Metric,
    SortKey::Pid,
];
const SERIES_KEYS: [SortKey; 5] =
    [SortKey::Metric, SortKey::Rate, SortKey::P99, SortKey::Max, SortKey::P50];

enum SortValue<'a> {
    Number(Option<f64>),
    Text(&'a str),
}

impl SortKey {
    /// Name of the key.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SortKey::Rate => "rate",
            SortKey::P99 => "p99",
            SortKey::Max => "max",
            SortKey::P50 => "p50",
            SortKey::InFlight => "in flight",
            SortKey::Oldest => "oldest in flight",
            SortKey::Errors => "errors",
            SortKey::Program => "program",
            SortKey::Metric => "metric",
            SortKey::Pid => "pid",
        }
    }

    fn column(self) -> TableColumn {
        match self {
            SortKey::Rate => TableColumn::Rate,
            SortKey::P99 => TableColumn::P99,
            SortKey::Max => TableColumn::Max,
            SortKey::P50 => TableColumn::P50,
            SortKey::InFlight | SortKey::Oldest => TableColumn::InFlight,
            SortKey::Errors => TableColumn::Errors,
            SortKey::Program => TableColumn::Program,
            SortKey::Metric => TableColumn::Metric,
            SortKey::Pid => TableColumn::Pid,
        }
    }

    /// Next key, of the process list or the metric list.
    pub(crate) fn next(self, is_of_series: bool) -> SortKey {
        let all: &[SortKey] = if is_of_series { &SERIES_KEYS } else { &PROCESS_KEYS };
        let at = all.iter().position(|by| *by == self).map_or(0, |at| at + 1);
        all[at % all.len()]
    }

    fn process_value<'a>(self, process: &'a ProcessHistory) -> SortValue<'a> {
        let number = |number: Option<u64>| SortValue::Number(number.map(|number| number as f64));
        match self {
            SortKey::Program => SortValue::Text(&process.program),
            SortKey::Pid => SortValue::Number(Some(-f64::from(process.pid))),
            SortKey::InFlight => number(process.in_flight().map(|in_flight| in_flight.count)),
            SortKey::Oldest => {
                number(process.in_flight().and_then(|in_flight| in_flight.oldest_ns))
            }
            SortKey::Errors => SortValue::Number(process.errors().flatten()),
            _ => process
                .busiest()
                .map_or(SortValue::Number(None), |series| self.series_value(series)),
        }
    }

    fn series_value<'a>(self, series: &'a SeriesHistory) -> SortValue<'a> {
        let figure = |pick: fn(&IntervalStats) -> Option<hist::Bracket>| {
            let value = series.stats.as_ref().and_then(pick).map(|value| value.estimate);
            // Durations in different units are compared as durations.
            let in_ns = series.unit.as_ref().and_then(decode::Unit::in_nanoseconds).unwrap_or(1.0);
            SortValue::Number(value.map(|value| value * in_ns))
        };
        match self {
            SortKey::Metric => SortValue::Text(&series.display_name),
            SortKey::P99 => figure(|figures| figures.p99),
            SortKey::Max => figure(|figures| figures.max),
            SortKey::P50 => figure(|figures| figures.p50),
            _ => SortValue::Number(series.interval.as_ref().and_then(|interval| interval.rate())),
        }
    }
}

impl SortOrder {
    pub(crate) fn new(by: SortKey) -> SortOrder {
        SortOrder { by, is_reversed: false }
    }

    /// Sorts processes; the sort is stable, and unknown values come last in both directions.
    pub(crate) fn sort_processes(self, rows: &mut [&ProcessHistory]) {
        model::sort::by(rows, |a, b| {
            self.compare(self.by.process_value(a), self.by.process_value(b))
        });
    }

    /// Sorts the metrics of a process. By metric they keep the order of the process: histograms
    /// first.
    pub(crate) fn sort_series(self, rows: &mut [&SeriesHistory]) {
        match (self.by, self.is_reversed) {
            (SortKey::Metric, false) => {}
            (SortKey::Metric, true) => rows.reverse(),
            _ => model::sort::by(rows, |a, b| {
                self.compare(self.by.series_value(a), self.by.series_value(b))
            }),
        }
    }

    fn compare(self, a: SortValue<'_>, b: SortValue<'_>) -> Ordering {
        let turned = |order: Ordering| if self.is_reversed { order.reverse() } else { order };
        match (a, b) {
            (SortValue::Text(a), SortValue::Text(b)) => turned(a.cmp(b)),
            (SortValue::Number(Some(a)), SortValue::Number(Some(b))) => turned(b.total_cmp(&a)),
            (SortValue::Number(Some(_)) | SortValue::Text(_), SortValue::Number(None)) => {
                Ordering::Less
            }
            (SortValue::Number(None), SortValue::Number(Some(_)) | SortValue::Text(_)) => {
                Ordering::Greater
            }
            _ => Ordering::Equal,
        }
    }

    /// Mark of the sort column: whether the largest is first; `None` for other columns.
    pub(crate) fn column_mark(self, column: TableColumn) -> Option<bool> {
        let is_name = matches!(self.by, SortKey::Program | SortKey::Metric | SortKey::Pid);
        (self.by.column() == column).then_some(is_name == self.is_reversed)
    }
}

/// Whether a row with these texts matches: each word of the filter is in one of them, ignoring
/// case.
pub(crate) fn matches_filter(filter: &str, texts: &[&str]) -> bool {
    filter.split_whitespace().all(|word| {
        let word = word.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_matches_all_words() {
        assert!(matches_filter("", &["shop"]));
        assert!(matches_filter("SHOP 81", &["shop", "812"]));
        assert!(!matches_filter("shop 82", &["shop", "812"]));
    }

    #[test]
    fn unknown_values_sort_last_in_both_directions() {
        for is_reversed in [false, true] {
            let order = SortOrder { by: SortKey::Max, is_reversed };
            assert_eq!(
                order.compare(SortValue::Number(None), SortValue::Number(Some(1.0))),
                Ordering::Greater
            );
        }
        let order = SortOrder::new(SortKey::Max);
        assert_eq!(
            order.compare(SortValue::Number(Some(2.0)), SortValue::Number(Some(1.0))),
            Ordering::Less
        );
    }

    #[test]
    fn sort_key_cycles_through_all_columns() {
        let mut by = SortKey::Rate;
        for _ in 0..10 {
            by = by.next(false);
        }
        assert_eq!(by, SortKey::Rate);
        assert_eq!(SortKey::Errors.next(true), SortKey::Metric);
    }
}
