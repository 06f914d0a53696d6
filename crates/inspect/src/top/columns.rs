//! Columns of the process list and of the metric list.

use decode::{Unit, rounded_duration_text};
use hist::Bracket;
use shm::ProcessState;
use shm::snapshot::MetricValue;

use crate::top::column_table::{ColumnHeading, TableCell};
use crate::top::process_history::{OperationsInFlight, ProcessHistory, in_flight_of};
use crate::top::series_history::SeriesHistory;
use crate::values;
use render::terminal::TextStyle;
use render::terminal::sparkline::{self, Sparkline};
use render::value_formatter::{self, ValueFormatter};

/// A column of either table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableColumn {
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

/// Cell of an unknown value.
const UNKNOWN: &str = "?";
/// Cell without a value.
const NO_VALUE: &str = "-";

impl TableColumn {
    /// Columns of the process list, without those that are empty for all processes.
    pub(crate) fn process_columns(all: &[&ProcessHistory]) -> Vec<TableColumn> {
        use TableColumn::{Errors, InFlight, Max, Metric, P50, P99, Pid, Program, Rate, Spark};
        let mut columns = vec![Pid, Program, Metric, Rate, P50, P99, Max, InFlight, Errors, Spark];
        columns.retain(|column| match column {
            InFlight => all.iter().any(|process| process.in_flight().is_some()),
            Errors => all.iter().any(|process| process.errors().is_some()),
            _ => true,
        });
        columns
    }

    /// Columns of the metric list.
    pub(crate) const SERIES_COLUMNS: [TableColumn; 7] = [
        TableColumn::Metric,
        TableColumn::Value,
        TableColumn::Rate,
        TableColumn::P50,
        TableColumn::P99,
        TableColumn::Max,
        TableColumn::Spark,
    ];

    /// Heading; the sort column is marked.
    pub(crate) fn heading(self, sorted: Option<bool>) -> ColumnHeading {
        let (text, is_right, rank, least, most) = match self {
            TableColumn::Program => ("program", false, 0, 8, 24),
            TableColumn::Max => ("max", true, 1, 9, 12),
            TableColumn::P99 => ("p99", true, 2, 8, 12),
            TableColumn::Rate => ("rate", true, 3, 8, 10),
            // A truncated number would be another number.
            TableColumn::Pid => ("pid", true, 4, 10, 10),
            TableColumn::InFlight => ("in flight", true, 5, 12, 18),
            TableColumn::Value => ("value", true, 5, 9, 24),
            TableColumn::Metric => ("metric", false, 6, 16, 48),
            TableColumn::P50 => ("p50", true, 7, 8, 12),
            TableColumn::Errors => ("errors", true, 8, 8, 10),
            TableColumn::Spark => ("p99, last 60 s", false, 9, 14, sparkline::CELLS_MAX),
        };
        let mark = match sorted {
            Some(true) => "▼",
            Some(false) => "▲",
            None => "",
        };
        ColumnHeading { text: format!("{text}{mark}"), is_right, rank, least, most }
    }

    /// Cell in the row of a process.
    pub(crate) fn process_cell(self, process: &ProcessHistory) -> TableCell {
        let series = process.busiest();
        match self {
            TableColumn::Pid => TableCell::text(process.pid.to_string()),
            TableColumn::Program => {
                TableCell::Text(process.program.clone(), Some(TextStyle::Heading))
            }
            TableColumn::Metric => match (exit_word(process), &process.error, series) {
                (Some(exit_word_text), ..) => {
                    TableCell::Text(exit_text(exit_word_text, process), Some(TextStyle::Max))
                }
                (None, Some(_), _) => {
                    TableCell::Text("cannot be read".into(), Some(TextStyle::Max))
                }
                (None, None, Some(series)) => TableCell::text(&series.display_name),
                (None, None, None) => {
                    TableCell::Text("no histogram".into(), Some(TextStyle::Faint))
                }
            },
            TableColumn::InFlight => match process.in_flight() {
                Some(in_flight) => TableCell::text(in_flight_text(in_flight)),
                None => TableCell::Text(NO_VALUE.into(), Some(TextStyle::Faint)),
            },
            TableColumn::Errors => match process.errors() {
                Some(Some(rate)) => {
                    let paint = if rate > 0.0 { Some(TextStyle::Max) } else { None };
                    TableCell::Text(values::format_rate(None, rate), paint)
                }
                Some(None) => TableCell::text(UNKNOWN),
                None => TableCell::Text(NO_VALUE.into(), Some(TextStyle::Faint)),
            },
            _ => match series {
                Some(series) => self.series_cell(series, process.sampled_ns),
                None => TableCell::Text(NO_VALUE.into(), Some(TextStyle::Faint)),
            },
        }
    }

    /// Cell in the row of a metric.
    pub(crate) fn series_cell(self, series: &SeriesHistory, now_ns: u64) -> TableCell {
        let quantile =
            |pick: fn(&crate::top::metric_interval::IntervalStats) -> Option<Bracket>| {
                if !series.is_histogram() {
                    return TableCell::text("");
                }
                match series.stats.as_ref() {
                    None => TableCell::text(UNKNOWN),
                    Some(figures) => {
                        TableCell::text(pick(figures).map_or(NO_VALUE.to_owned(), |value| {
                            ValueFormatter::new(series.unit.as_ref()).estimate(value.estimate)
                        }))
                    }
                }
            };
        match self {
            TableColumn::Metric => TableCell::text(&series.display_name),
            TableColumn::Value => TableCell::text(value_text(series, now_ns)),
            TableColumn::Rate => match (&series.interval, series.value()) {
                (_, Some(MetricValue::Gauge(_) | MetricValue::Text(_))) => TableCell::text(""),
                (Some(interval), _) => TableCell::text(
                    interval.rate().map_or(UNKNOWN.to_owned(), |rate| rate_text(series, rate)),
                ),
                (None, _) => TableCell::text(UNKNOWN),
            },
            TableColumn::P50 => quantile(|figures| figures.p50),
            TableColumn::P99 => quantile(|figures| figures.p99),
            TableColumn::Max => match series.stats.as_ref().map(|figures| figures.max) {
                Some(Some(max)) => {
                    let formatter =
                        ValueFormatter::new(series.unit.as_ref()).estimate(max.estimate);
                    let mark = if max.is_exact() { "" } else { "~" };
                    TableCell::Text(format!("{mark}{formatter}"), Some(TextStyle::Max))
                }
                _ => quantile(|figures| figures.max),
            },
            TableColumn::Spark => TableCell::Spark(p99_sparkline(series)),
            _ => TableCell::text(""),
        }
    }
}

/// State of an exited process.
fn exit_word(process: &ProcessHistory) -> Option<&'static str> {
    process.state.has_ended().then(|| process.state.name())
}

fn exit_text(exit_word: &str, process: &ProcessHistory) -> String {
    match process.in_flight() {
        Some(OperationsInFlight { count: 0, .. }) | None => exit_word.to_owned(),
        Some(OperationsInFlight { count, .. }) => {
            format!("{exit_word}, {} in flight", value_formatter::count(count))
        }
    }
}

/// `12, 3.400 s`: number, and age of the oldest.
fn in_flight_text(in_flight: OperationsInFlight) -> String {
    match in_flight {
        OperationsInFlight { count: 0, .. } => "0".into(),
        OperationsInFlight { count, oldest_ns: Some(age) } => {
            format!("{}, {}", value_formatter::count(count), age_text(age))
        }
        OperationsInFlight { count, oldest_ns: None } => {
            format!("{}, ?", value_formatter::count(count))
        }
    }
}

/// Age with three digits; of a minute and longer, in two units.
pub(crate) fn age_text(ns: u64) -> String {
    let (number, unit) = match ns {
        60_000_000_000.. => return rounded_duration_text(i64::try_from(ns).unwrap_or(i64::MAX)),
        0..1_000 => (ns as f64, "ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{} {unit}", values::format_three_digits(number))
}

/// Rate per second; with its unit if that scales, to save space.
fn rate_text(series: &SeriesHistory, per_second: f64) -> String {
    let scales = |unit: &&Unit| **unit == Unit::Bytes || unit.in_nanoseconds().is_some();
    let unit = series.unit.as_ref().filter(|_| !series.is_histogram()).filter(scales);
    values::format_rate(unit, per_second)
}

fn value_text(series: &SeriesHistory, now_ns: u64) -> String {
    let unit = series.unit.as_ref();
    if let Some(count) = series.recorded() {
        return format!("{} values", value_formatter::count(count));
    }
    match series.value() {
        None => UNKNOWN.into(),
        Some(value) => match value {
            MetricValue::Counter(number) | MetricValue::Gauge(number) => {
                values::format_number(unit, *number)
            }
            MetricValue::Text(text) => render::text::escape_control(text),
            MetricValue::InFlight(table) => {
                match in_flight_text(in_flight_of(table, now_ns)).as_str() {
                    "0" => "none in flight".into(),
                    text => text.to_owned(),
                }
            }
            MetricValue::Heartbeat(beat) if beat.last_ns == 0 => "no beat yet".into(),
            MetricValue::Heartbeat(beat) => {
                let age = now_ns.saturating_sub(beat.last_ns);
                let is_late = beat.every_ns > 0 && age > beat.every_ns.saturating_mul(2);
                let late = if is_late { "LATE, " } else { "" };
                format!("{late}beat {} ago", age_text(age))
            }
            _ => UNKNOWN.into(),
        },
    }
}

/// Why a value in a row is unknown, or a problem; `None` if there is none.
pub(crate) fn row_status(process: &ProcessHistory) -> Option<String> {
    if let Some(error) = &process.error {
        return Some(format!("cannot be read: {error}"));
    }
    if process.dropped + process.rejected > 0 {
        let (lost, refused) =
            (value_formatter::count(process.dropped), value_formatter::count(process.rejected));
        return Some(format!(
            "{lost} records lost and {refused} series rejected for lack of space; rejected series \
             are missing, or in overflow=\"true\""
        ));
    }
    if let Some(exit_word_text) = exit_word(process) {
        return Some(format!("{exit_word_text}: last values before the exit"));
    }
    if let Some(reason) = process.busiest().and_then(SeriesHistory::unknown_reason) {
        return Some(format!("? {reason}"));
    }
    (process.state == ProcessState::Unknown).then(|| {
        "whether it runs cannot be seen: it is in another namespace of process ids".to_owned()
    })
}

/// p99 of each interval of the last minute.
fn p99_sparkline(series: &SeriesHistory) -> Sparkline {
    let points = series.points.iter().filter_map(|past| {
        let p99 = past.p99.filter(|p99| p99.is_finite())?;
        Some((past.interval.start_ns, past.interval.end_ns, p99))
    });
    Sparkline::new(points.collect(), series.last.as_ref().map_or(0, |last| last.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short_and_have_units() {
        assert_eq!(age_text(0), "0 ns");
        assert_eq!(age_text(2_500_000_000), "2.50 s");
        assert_eq!(age_text(59_900_000_000), "59.9 s");
        assert_eq!(age_text(86_400_000_000_000), "1 d");
        let one = OperationsInFlight { count: 1_200, oldest_ns: None };
        assert_eq!(in_flight_text(one), "1,200, ?");
    }
}
