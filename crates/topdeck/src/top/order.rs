//! What rows are sorted by, and which of them are shown.

use std::cmp::Ordering;

use crate::top::columns::Column;
use crate::top::interval::Figures;
use crate::top::process::Process;
use crate::top::series::Series;

/// A column, and whether it is upside down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) by: By,
    pub(crate) is_reversed: bool,
}

/// What rows are sorted by: numbers from the greatest down, names from A on, unless that is reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
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

/// In the order of the key that goes through them.
const OF_PROCESSES: [By; 10] = [
    By::Rate,
    By::P99,
    By::Max,
    By::P50,
    By::InFlight,
    By::Oldest,
    By::Errors,
    By::Program,
    By::Metric,
    By::Pid,
];
const OF_SERIES: [By; 5] = [By::Metric, By::Rate, By::P99, By::Max, By::P50];

enum Key<'a> {
    Number(Option<f64>),
    Text(&'a str),
}

impl By {
    /// What is said of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            By::Rate => "rate",
            By::P99 => "p99",
            By::Max => "max",
            By::P50 => "p50",
            By::InFlight => "in flight",
            By::Oldest => "oldest in flight",
            By::Errors => "errors",
            By::Program => "program",
            By::Metric => "metric",
            By::Pid => "pid",
        }
    }

    fn column(self) -> Column {
        match self {
            By::Rate => Column::Rate,
            By::P99 => Column::P99,
            By::Max => Column::Max,
            By::P50 => Column::P50,
            By::InFlight | By::Oldest => Column::InFlight,
            By::Errors => Column::Errors,
            By::Program => Column::Program,
            By::Metric => Column::Metric,
            By::Pid => Column::Pid,
        }
    }

    /// The next one, of processes or of the metrics of one.
    pub(crate) fn next(self, is_of_series: bool) -> By {
        let all: &[By] = if is_of_series { &OF_SERIES } else { &OF_PROCESSES };
        let at = all.iter().position(|by| *by == self).map_or(0, |at| at + 1);
        all[at % all.len()]
    }

    fn of_process<'a>(self, process: &'a Process) -> Key<'a> {
        let number = |number: Option<u64>| Key::Number(number.map(|number| number as f64));
        match self {
            By::Program => Key::Text(&process.program),
            By::Pid => Key::Number(Some(-f64::from(process.pid))),
            By::InFlight => number(process.pending().map(|pending| pending.count)),
            By::Oldest => number(process.pending().and_then(|pending| pending.oldest_ns)),
            By::Errors => Key::Number(process.errors().flatten()),
            _ => process.busiest().map_or(Key::Number(None), |series| self.of_series(series)),
        }
    }

    fn of_series<'a>(self, series: &'a Series) -> Key<'a> {
        let figure = |pick: fn(&Figures) -> Option<hist::Bracket>| {
            let value = series.figures.as_ref().and_then(pick).map(|value| value.estimate);
            // Times of other units are put beside each other as times.
            let in_ns = series.unit.as_ref().and_then(collect::Unit::in_nanoseconds).unwrap_or(1.0);
            Key::Number(value.map(|value| value * in_ns))
        };
        match self {
            By::Metric => Key::Text(&series.shown),
            By::P99 => figure(|figures| figures.p99),
            By::Max => figure(|figures| figures.max),
            By::P50 => figure(|figures| figures.p50),
            _ => Key::Number(series.interval.as_ref().and_then(|interval| interval.rate())),
        }
    }
}

impl Order {
    pub(crate) fn of(by: By) -> Order {
        Order { by, is_reversed: false }
    }

    /// Sorts processes; equal ones keep their order, and what is not known comes last either way.
    pub(crate) fn processes(self, rows: &mut [&Process]) {
        rows.sort_by(|a, b| self.compare(self.by.of_process(a), self.by.of_process(b)));
    }

    /// Sorts the metrics of a process. By metric they stay as the process has them: histograms first.
    pub(crate) fn series(self, rows: &mut [&Series]) {
        match (self.by, self.is_reversed) {
            (By::Metric, false) => {}
            (By::Metric, true) => rows.reverse(),
            _ => rows.sort_by(|a, b| self.compare(self.by.of_series(a), self.by.of_series(b))),
        }
    }

    fn compare(self, a: Key<'_>, b: Key<'_>) -> Ordering {
        let turned = |order: Ordering| if self.is_reversed { order.reverse() } else { order };
        match (a, b) {
            (Key::Text(a), Key::Text(b)) => turned(a.cmp(b)),
            (Key::Number(Some(a)), Key::Number(Some(b))) => turned(b.total_cmp(&a)),
            (Key::Number(Some(_)) | Key::Text(_), Key::Number(None)) => Ordering::Less,
            (Key::Number(None), Key::Number(Some(_)) | Key::Text(_)) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// How the column of this order is marked: whether the greatest is on top; `None` of other columns.
    pub(crate) fn mark(self, column: Column) -> Option<bool> {
        let is_name = matches!(self.by, By::Program | By::Metric | By::Pid);
        (self.by.column() == column).then_some(is_name == self.is_reversed)
    }
}

/// Whether a row is shown that has these texts: each word of the filter is in one of them, in whichever case.
pub(crate) fn is_shown(filter: &str, texts: &[&str]) -> bool {
    filter.split_whitespace().all(|word| {
        let word = word.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_words() {
        assert!(is_shown("", &["shop"]));
        assert!(is_shown("SHOP 81", &["shop", "812"]));
        assert!(!is_shown("shop 82", &["shop", "812"]));
    }

    #[test]
    fn what_is_not_known_comes_last_either_way() {
        for is_reversed in [false, true] {
            let order = Order { by: By::Max, is_reversed };
            assert_eq!(order.compare(Key::Number(None), Key::Number(Some(1.0))), Ordering::Greater);
        }
        let order = Order::of(By::Max);
        assert_eq!(order.compare(Key::Number(Some(2.0)), Key::Number(Some(1.0))), Ordering::Less);
    }

    #[test]
    fn the_key_goes_through_all() {
        let mut by = By::Rate;
        for _ in 0..10 {
            by = by.next(false);
        }
        assert_eq!(by, By::Rate);
        assert_eq!(By::Errors.next(true), By::Metric);
    }
}
