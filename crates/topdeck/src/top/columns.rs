//! What stands in the rows: of processes, and of the metrics of one.

use collect::Unit;
use hist::Bracket;
use shm::Fate;
use shm::show::Value;

use crate::hist::show::{self, Show};
use crate::hist::terminal::Paint;
use crate::processes::values;
use crate::top::process::{Pending, Process, pending};
use crate::top::series::Series;
use crate::top::spark::{self, Spark};
use crate::top::table::{Cell, Heading};

/// A column of either table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Pid,
    Program,
    Metric,
    Value,
    Rate,
    P50,
    P99,
    Max,
    InFlight,
    Errors,
    Spark,
}

/// What is not known.
const UNKNOWN: &str = "?";
/// What is known to be nothing.
const NOTHING: &str = "-";

impl Column {
    /// Those of processes; without those that no process has anything for.
    pub(crate) fn of_processes(all: &[&Process]) -> Vec<Column> {
        use Column::{Errors, InFlight, Max, Metric, P50, P99, Pid, Program, Rate, Spark};
        let mut columns = vec![Pid, Program, Metric, Rate, P50, P99, Max, InFlight, Errors, Spark];
        columns.retain(|column| match column {
            InFlight => all.iter().any(|process| process.pending().is_some()),
            Errors => all.iter().any(|process| process.errors().is_some()),
            _ => true,
        });
        columns
    }

    /// Those of the metrics of a process.
    pub(crate) const OF_SERIES: [Column; 7] = [
        Column::Metric,
        Column::Value,
        Column::Rate,
        Column::P50,
        Column::P99,
        Column::Max,
        Column::Spark,
    ];

    /// Its heading; the column that rows are sorted by is marked.
    pub(crate) fn heading(self, sorted: Option<bool>) -> Heading {
        let (text, is_right, rank, least, most) = match self {
            Column::Program => ("program", false, 0, 8, 24),
            Column::Max => ("max", true, 1, 9, 12),
            Column::P99 => ("p99", true, 2, 8, 12),
            Column::Rate => ("rate", true, 3, 8, 10),
            // A number that is cut is another number.
            Column::Pid => ("pid", true, 4, 10, 10),
            Column::InFlight => ("in flight", true, 5, 12, 18),
            Column::Value => ("value", true, 5, 9, 24),
            Column::Metric => ("metric", false, 6, 16, 48),
            Column::P50 => ("p50", true, 7, 8, 12),
            Column::Errors => ("errors", true, 8, 8, 10),
            Column::Spark => ("p99, last 60 s", false, 9, 14, spark::CELLS_MAX),
        };
        let mark = match sorted {
            Some(true) => "▼",
            Some(false) => "▲",
            None => "",
        };
        Heading { text: format!("{text}{mark}"), is_right, rank, least, most }
    }

    /// Its cell in the row of a process.
    pub(crate) fn of_process(self, process: &Process) -> Cell {
        let series = process.busiest();
        match self {
            Column::Pid => Cell::text(process.pid.to_string()),
            Column::Program => Cell::Text(process.program.clone(), Some(Paint::Heading)),
            Column::Metric => match (gone(process), &process.trouble, series) {
                (Some(gone), ..) => Cell::Text(gone_text(gone, process), Some(Paint::Max)),
                (None, Some(_), _) => Cell::Text("cannot be read".into(), Some(Paint::Max)),
                (None, None, Some(series)) => Cell::text(&series.shown),
                (None, None, None) => Cell::Text("no histogram".into(), Some(Paint::Faint)),
            },
            Column::InFlight => match process.pending() {
                Some(pending) => Cell::text(pending_text(pending)),
                None => Cell::Text(NOTHING.into(), Some(Paint::Faint)),
            },
            Column::Errors => match process.errors() {
                Some(Some(rate)) => {
                    let paint = if rate > 0.0 { Some(Paint::Max) } else { None };
                    Cell::Text(values::rate(None, rate), paint)
                }
                Some(None) => Cell::text(UNKNOWN),
                None => Cell::Text(NOTHING.into(), Some(Paint::Faint)),
            },
            _ => match series {
                Some(series) => self.of_series(series, process.looked_ns),
                None => Cell::Text(NOTHING.into(), Some(Paint::Faint)),
            },
        }
    }

    /// Its cell in the row of a metric.
    pub(crate) fn of_series(self, series: &Series, now_ns: u64) -> Cell {
        let quantile = |pick: fn(&crate::top::interval::Figures) -> Option<Bracket>| {
            if !series.is_histogram() {
                return Cell::text("");
            }
            match series.figures.as_ref() {
                None => Cell::text(UNKNOWN),
                Some(figures) => Cell::text(pick(figures).map_or(NOTHING.to_owned(), |value| {
                    Show::new(series.unit.as_ref()).estimate(value.estimate)
                })),
            }
        };
        match self {
            Column::Metric => Cell::text(&series.shown),
            Column::Value => Cell::text(value_text(series, now_ns)),
            Column::Rate => match (&series.interval, series.value()) {
                (_, Some(Value::Gauge(_) | Value::Text(_))) => Cell::text(""),
                (Some(interval), _) => Cell::text(
                    interval.rate().map_or(UNKNOWN.to_owned(), |rate| rate_text(series, rate)),
                ),
                (None, _) => Cell::text(UNKNOWN),
            },
            Column::P50 => quantile(|figures| figures.p50),
            Column::P99 => quantile(|figures| figures.p99),
            Column::Max => match series.figures.as_ref().map(|figures| figures.max) {
                Some(Some(max)) => {
                    let shown = Show::new(series.unit.as_ref()).estimate(max.estimate);
                    let mark = if max.is_exact() { "" } else { "~" };
                    Cell::Text(format!("{mark}{shown}"), Some(Paint::Max))
                }
                _ => quantile(|figures| figures.max),
            },
            Column::Spark => Cell::Spark(Spark::of(series)),
            _ => Cell::text(""),
        }
    }
}

/// The word for one that is gone.
fn gone(process: &Process) -> Option<&'static str> {
    process.fate.is_gone().then(|| process.fate.name())
}

fn gone_text(gone: &str, process: &Process) -> String {
    match process.pending() {
        Some(Pending { count: 0, .. }) | None => gone.to_owned(),
        Some(Pending { count, .. }) => format!("{gone}, {} in flight", show::count(count)),
    }
}

/// `12, 3.400 s`: how many, and how old the oldest is.
fn pending_text(pending: Pending) -> String {
    match pending {
        Pending { count: 0, .. } => "0".into(),
        Pending { count, oldest_ns: Some(age) } => {
            format!("{}, {}", show::count(count), age_text(age))
        }
        Pending { count, oldest_ns: None } => format!("{}, ?", show::count(count)),
    }
}

/// Three digits are enough of an age.
pub(crate) fn age_text(ns: u64) -> String {
    let (number, unit) = match ns {
        0..1_000 => (ns as f64, "ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{} {unit}", values::three_digits(number))
}

/// How much was counted in a second: with its unit where that scales, so that there is room for it.
fn rate_text(series: &Series, per_second: f64) -> String {
    let scales = |unit: &&Unit| **unit == Unit::Bytes || unit.in_nanoseconds().is_some();
    let unit = series.unit.as_ref().filter(|_| !series.is_histogram()).filter(scales);
    values::rate(unit, per_second)
}

fn value_text(series: &Series, now_ns: u64) -> String {
    let unit = series.unit.as_ref();
    if let Some(count) = series.recorded() {
        return format!("{} values", show::count(count));
    }
    match series.value() {
        None => UNKNOWN.into(),
        Some(value) => match value {
            Value::Counter(number) | Value::Gauge(number) => values::number(unit, *number),
            Value::Text(text) => crate::command::plain(text),
            Value::InFlight(table) => match pending_text(pending(table, now_ns)).as_str() {
                "0" => "none in flight".into(),
                text => text.to_owned(),
            },
            Value::Heartbeat(beat) if beat.last_ns == 0 => "no beat yet".into(),
            Value::Heartbeat(beat) => {
                let age = now_ns.saturating_sub(beat.last_ns);
                let is_late = beat.every_ns > 0 && age > beat.every_ns.saturating_mul(2);
                let late = if is_late { "LATE, " } else { "" };
                format!("{late}beat {} ago", age_text(age))
            }
            _ => UNKNOWN.into(),
        },
    }
}

/// Why something in a row is not known, or what is wrong; nothing where all is well.
pub(crate) fn trouble(process: &Process) -> Option<String> {
    if let Some(trouble) = &process.trouble {
        return Some(format!("cannot be read: {trouble}"));
    }
    if process.lost + process.refused > 0 {
        let (lost, refused) = (show::count(process.lost), show::count(process.refused));
        return Some(format!(
            "{lost} records found no room and are missing; {refused} times a series found none: it is missing, or in overflow=\"true\""
        ));
    }
    if let Some(gone) = gone(process) {
        return Some(format!("{gone}: the numbers are the last it showed"));
    }
    if let Some(why) = process.busiest().and_then(Series::why_unknown) {
        return Some(format!("? {why}"));
    }
    (process.fate == Fate::Unknown).then(|| {
        "whether it runs cannot be seen: it is in another namespace of process ids".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short_and_have_units() {
        assert_eq!(age_text(0), "0 ns");
        assert_eq!(age_text(2_500_000_000), "2.50 s");
        assert_eq!(age_text(86_400_000_000_000), "86,400 s");
        let one = Pending { count: 1_200, oldest_ns: None };
        assert_eq!(pending_text(one), "1,200, ?");
    }
}
