//! Comparison of a server's answers with those of the model.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::super::model::{
    COUNTER, ModelCounts, ModelKind, NEGATIVE, POSITIVE, SeriesModel, ZERO, coarse, sum,
};
use super::{BlackboxRun, DAY, DAYS, MINUTE, SECOND, SentSeries, command, percent_encode, time};
use crate::topdeck;

impl BlackboxRun {
    fn columns(&self, step: i64, off: i64) -> Vec<Range<i64>> {
        let begin = self.begin + off;
        (0..DAYS * DAY / step).map(|at| begin + at * step..begin + (at + 1) * step).collect()
    }

    /// Checks all queries of the server.
    #[track_caller]
    pub(super) fn check_server(&self) {
        for sent in self.sent.iter().filter(|sent| !sent.model.is_empty()) {
            let kind = sent.model.kind;
            let day_columns = self.columns(DAY, 0);
            for promql in promql_checks(kind, "1d") {
                let path = format!(
                    "/v1/query?query={}&from={}&to={}&step=1d",
                    percent_encode(&promql.expression),
                    time(self.begin + DAY),
                    time(self.begin + DAYS * DAY)
                );
                let answer = self.get_json(&path);
                self.compare_points(sent, &promql, &day_columns, &answer);
            }
            if kind.is_gauge() {
                self.compare_caql(sent);
            }
            if kind.is_histogram() {
                self.compare_total(sent);
                // Days are read from rollups. Columns that end a second before a row split rollups
                // everywhere: the first row after dropped ones is in a column without a gap.
                let steps = [
                    (DAY, 0),
                    (307 * MINUTE, 0),
                    (6 * 60 * MINUTE, -SECOND),
                    (10 * MINUTE, -SECOND),
                ];
                for (step, off) in steps {
                    self.compare_heatmap(sent, step, off);
                }
            }
        }
    }

    /// Checks the commands on a store that is not in use.
    pub(super) fn check_commands(&self, store: &str) {
        for sent in self.sent.iter().filter(|sent| !sent.model.is_empty()) {
            let kind = sent.model.kind;
            let (from, to) = (time(self.begin + DAY), time(self.begin + DAYS * DAY));
            for promql in promql_checks(kind, "1d") {
                let arguments = [
                    "query",
                    store,
                    &promql.expression,
                    "--from",
                    &from,
                    "--to",
                    &to,
                    "--step",
                    "1d",
                    "--json",
                ];
                let answer = serde_json::from_str(&command(&arguments)).expect("it is JSON");
                self.compare_points(sent, &promql, &self.columns(DAY, 0), &answer);
            }
            if kind.is_histogram() {
                let (from, to) = (time(self.begin), time(self.begin + DAYS * DAY));
                let arguments =
                    ["heatmap", store, kind.name(), "--from", &from, "--to", &to, "--json"];
                let run = topdeck(&arguments, b"");
                assert_eq!(run.status, 0, "{}\n{}", run.all(), self.trace());
                let answer: Value = serde_json::from_str(&run.stdout).expect("it is JSON");
                let columns = answer["columns"].as_array().expect("there are columns");
                let count = columns.iter().map(counts_in).sum::<u64>();
                let whole = self.columns(DAYS * DAY, 0);
                let expected = sum(&sent.model.columns(&whole)[0]);
                let has_gap = answer["gaps"].as_array().is_some_and(|gaps| !gaps.is_empty())
                    || columns.iter().any(has_gaps);
                let is_right = count == expected || has_gap && self.may_have_gap(sent, false);
                assert!(is_right, "heatmap of {kind:?}: {count}, not {expected}; {}", self.trace());
            }
        }
    }

    /// Whether a series may have a reported gap. Whole days are read from rollups.
    fn may_have_gap(&self, sent: &SentSeries, are_days: bool) -> bool {
        let kind = sent.model.kind;
        self.dropped > i64::MIN && (!are_days || kind.is_gauge() || sent.may_have_gaps)
    }

    /// A late row is reported as a gap of its time in queries of any series.
    fn is_any_disturbed(&self) -> bool {
        self.sent.iter().any(|sent| sent.may_have_gaps)
    }

    #[track_caller]
    fn compare_heatmap(&self, sent: &SentSeries, step: i64, off: i64) {
        let columns = self.columns(step, off);
        let (from, to) = (columns[0].start, columns[columns.len() - 1].end);
        let path = format!(
            "/v1/heatmap?selector={}&from={}&to={}&step={}s",
            sent.model.kind.name(),
            time(from),
            time(to),
            step / SECOND
        );
        let answer = self.get_json(&path);
        let found = answer["columns"].as_array().expect("there are columns");
        let expected = sent.model.columns(&columns);
        let timely = sent.timely.columns(&columns);
        assert_eq!(found.len(), expected.len(), "{path}: {}", self.trace());
        for ((column, expected), timely) in found.iter().zip(&expected).zip(&timely) {
            let place = || {
                let start = column["start_ns"].as_i64().unwrap_or_default();
                format!("{path}, column from {}: {}", self.at(start), self.trace())
            };
            let has_gap = has_gaps(column);
            let may_miss = self.may_have_gap(sent, step == DAY);
            assert!(!has_gap || may_miss || self.is_any_disturbed(), "{column}\n{}", place());
            let cells = column_counts(column);
            // If the buckets differ, results may be in the buckets into which all can be merged.
            let is = |expected: &ModelCounts| match sent.model.has_coarse() {
                true => coarse(&cells) == coarse(expected),
                false => cells == *expected,
            };
            let range = range_of(column);
            let has_untimely = sent.has_untimely(&range);
            let is_right = is(expected) || has_gap && may_miss || !has_untimely && is(timely);
            assert!(is_right, "{cells:?}, not {expected:?}\n{}", place());
            assert_eq!(counts_in(column), sum(&cells), "{}", place());
        }
    }

    /// Queries a series without a time range.
    #[track_caller]
    fn compare_total(&self, sent: &SentSeries) {
        let path = format!("/v1/histogram?selector={}", sent.model.kind.name());
        let answer = self.get_json(&path);
        let expected = sum(&sent.model.columns(&self.columns(DAYS * DAY, 0))[0]);
        let is_right =
            counts_in(&answer) == expected || has_gaps(&answer) && self.may_have_gap(sent, false);
        assert!(is_right, "{path}: {answer}, not {expected}\n{}", self.trace());
    }

    /// A sample belongs to the slot that has started by then.
    #[track_caller]
    fn compare_caql(&self, sent: &SentSeries) {
        let slots = self.columns(60 * MINUTE, -1);
        for (function, expected) in [
            ("sum", sent.model.columns(&slots).iter().map(sum).collect::<Vec<_>>()),
            ("count", sent.model.rows_in(&slots)),
        ] {
            let expression = format!("find:{function}(\"{}\")", sent.model.kind.name());
            let path = format!(
                "/v1/query?language=caql&query={}&from={}&to={}&step=1h",
                percent_encode(&expression),
                time(self.begin),
                time(self.begin + DAYS * DAY)
            );
            let answer = self.get_json(&path);
            let is_empty = |name: &str| answer[name].as_array().is_none_or(Vec::is_empty);
            let has_note = ["gaps", "warnings", "infos"].iter().any(|name| !is_empty(name));
            let found = result_points(&answer);
            for (slot, expected) in slots.iter().zip(expected) {
                let value = found.get(&(slot.start + 1)).copied().unwrap_or(0.0);
                let may_miss = has_note && self.may_have_gap(sent, false);
                let is_right = value == expected as f64 || may_miss;
                let place = || format!("{expression}: {answer}\n{}", self.trace());
                assert!(
                    is_right,
                    "from {}: {value}, not {expected}\n{}",
                    self.at(slot.start + 1),
                    place()
                );
            }
        }
    }

    #[track_caller]
    fn compare_points(
        &self,
        sent: &SentSeries,
        promql: &PromqlCheck,
        columns: &[Range<i64>],
        answer: &Value,
    ) {
        let found = result_points(answer);
        let warns =
            |warning: &Value| !(sent.model.kind == ModelKind::Retyped && is_of_type(warning));
        let has_gap = has_gaps(answer)
            || answer["warnings"].as_array().is_some_and(|warnings| warnings.iter().any(warns));
        let are_rows = matches!(promql.aggregate, ModelAggregate::Rows);
        let may_miss = self.may_have_gap(sent, !are_rows);
        let place = || format!("{}: {answer}\n{}", promql.expression, self.trace());
        assert!(!has_gap || may_miss || self.is_any_disturbed(), "{}", place());
        let is_retyped = sent.model.kind == ModelKind::Retyped;
        if (found.is_empty() || is_retyped) && self.may_be_gone(sent) {
            return;
        }
        let numbers = |model: &SeriesModel| -> Vec<u64> {
            match promql.aggregate {
                ModelAggregate::Sum => model.columns(columns).iter().map(sum).collect(),
                ModelAggregate::Rows => model.rows_in(columns),
            }
        };
        let expected = numbers(&sent.model).into_iter().zip(numbers(&sent.timely));
        for (column, (expected, timely)) in columns.iter().zip(expected) {
            let value = found.get(&column.end).copied().unwrap_or(0.0);
            let is_timely = !sent.has_untimely(column) && value == timely as f64;
            let is_right = value == expected as f64 || has_gap && may_miss || is_timely;
            assert!(
                is_right,
                "until {}: {value}, not {expected}\n{}",
                self.at(column.end),
                place()
            );
        }
    }

    /// End of the last day with dropped rows.
    pub(super) fn dropped_days_end(&self) -> i64 {
        self.dropped.saturating_sub(self.dropped.rem_euclid(DAY)).saturating_add(DAY)
    }

    /// Whether a series may have no rows left: it was deleted, or was late. A series that changed
    /// its type has two.
    pub(super) fn may_be_gone(&self, sent: &SentSeries) -> bool {
        let dropped = self.dropped_days_end();
        let is_retyped = sent.model.kind == ModelKind::Retyped;
        let mut rows = sent.model.rows.iter().filter(|row| !is_retyped || row.schema == COUNTER);
        sent.model.is_empty() || sent.may_have_gaps && rows.all(|row| row.end <= dropped)
    }
}

/// PromQL query, and its expected result.
struct PromqlCheck {
    expression: String,
    aggregate: ModelAggregate,
}

#[derive(Clone, Copy)]
enum ModelAggregate {
    Sum,
    Rows,
}

fn promql_checks(kind: ModelKind, window: &str) -> Vec<PromqlCheck> {
    let name = kind.name();
    let ask = |expression: String, of| PromqlCheck { expression, aggregate: of };
    match kind {
        ModelKind::Gauge | ModelKind::Lines | ModelKind::Httptrap => vec![
            ask(format!("sum_over_time({name}[{window}])"), ModelAggregate::Sum),
            ask(format!("count_over_time({name}[{window}])"), ModelAggregate::Rows),
        ],
        ModelKind::Counter | ModelKind::Statsd => {
            vec![ask(format!("exact_increase({name}[{window}])"), ModelAggregate::Sum)]
        }
        ModelKind::Retyped => {
            // A gauge alone is rejected, and the counter may have been deleted.
            let counter = format!("{name}{{__kind=\"cumulative-counter\"}}");
            vec![
                ask(format!("count_over_time({name}[{window}])"), ModelAggregate::Rows),
                ask(format!("exact_increase({counter}[{window}])"), ModelAggregate::Sum),
            ]
        }
        ModelKind::Points => vec![
            ask(format!("histogram_count(exact_increase({name}[{window}]))"), ModelAggregate::Sum),
            ask(format!("count_over_time({name}[{window}])"), ModelAggregate::Rows),
        ],
        _ => vec![ask(
            format!("histogram_count(exact_increase({name}[{window}]))"),
            ModelAggregate::Sum,
        )],
    }
}

/// Sums of all series of a result, by timestamp.
fn result_points(answer: &Value) -> BTreeMap<i64, f64> {
    let mut found = BTreeMap::new();
    for series in answer["data"].as_array().expect("there is data") {
        for point in series["points"].as_array().expect("there are points") {
            let time = point["time_ns"].as_i64().expect("a time");
            found.insert(time, point["value"].as_f64().unwrap_or(f64::NAN));
        }
    }
    found
}

/// Whether a warning reports a type change of a metric, or a consequence.
fn is_of_type(warning: &Value) -> bool {
    let text = warning.as_str().expect("a warning is a text");
    ["was sent as", "gauge"].iter().any(|part| text.contains(part))
}

fn range_of(column: &Value) -> Range<i64> {
    let time = |name: &str| column[name].as_i64().expect("a column has times");
    time("start_ns")..time("end_ns")
}

fn has_gaps(document: &Value) -> bool {
    document["gaps"].as_array().is_some_and(|gaps| !gaps.is_empty())
}

fn counts_in(column: &Value) -> u64 {
    column["count"].as_u64().expect("a column has a count")
}

/// Values by the bucket bound that is farther from zero: 1, 2, 4 and so on, 0, -1, -2.
fn column_counts(column: &Value) -> ModelCounts {
    let mut counts = ModelCounts::default();
    for cell in column["cells"].as_array().expect("a column has cells") {
        // The first explicit bucket has no lower bound.
        let edge = |name: &str| cell[name].as_f64().unwrap_or(f64::NEG_INFINITY);
        let (lower, upper) = (edge("lower"), edge("upper"));
        let at = match upper {
            _ if upper > 0.0 => power_of_two(upper).filter(|&at| at < POSITIVE),
            0.0 if lower == 0.0 => Some(ZERO),
            _ => power_of_two(-lower).filter(|&at| at < NEGATIVE).map(|at| ZERO + 1 + at),
        };
        let at = at.unwrap_or_else(|| panic!("nothing was sent in {cell}"));
        counts[at] += cell["count"].as_u64().expect("a cell has a count");
    }
    counts
}

/// Exponent of a power of two.
fn power_of_two(edge: f64) -> Option<usize> {
    (0..POSITIVE).find(|&at| edge == f64::from(1 << at))
}
