//! Cases that test scripts do not cover: settings, limits and errors.

use std::ops::Range;
use std::sync::Arc;

use hist::{Histogram, Mixture, Scheme};
use model::{Selector, SeriesKind};
use proptest::prelude::*;
use store::{NumberAggregate, SECOND, TimeGrid};

use super::statistics::quantile_of;
use crate::{
    Error, LabelSet, Language, Limits, QueryRequest, QueryResult, QueryWarningKind, Result,
    ResultData, SeriesHandle, SeriesPoint, Settings, Source, SourceRead, StepValue, promql,
};

/// Series in memory; every selector matches all of them.
#[derive(Default)]
struct MemorySource(Vec<(LabelSet, Vec<SeriesPoint>)>);

impl MemorySource {
    fn with(mut self, labels: &[(&str, &str)], samples: Vec<SeriesPoint>) -> MemorySource {
        self.0.push((LabelSet::new(labels.iter().copied()), samples));
        self
    }
}

impl Source for MemorySource {
    fn select(&self, _: &Selector) -> Result<Vec<SeriesHandle>> {
        let handle = |(key, (labels, _)): (usize, &(LabelSet, Vec<SeriesPoint>))| SeriesHandle {
            labels: labels.clone(),
            kind: SeriesKind::Gauge,
            unit: String::new(),
            key,
        };
        Ok(self.0.iter().enumerate().map(handle).collect())
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        let is_within =
            |sample: &&SeriesPoint| range.start < sample.time && sample.time <= range.end;
        let values = self.0[series.key].1.iter().filter(is_within).cloned().collect();
        Ok(SourceRead { values, gaps: Vec::new() })
    }

    fn histograms(&self, _: &[&SeriesHandle], _: TimeGrid) -> Result<SourceRead<Mixture>> {
        panic!("BUG: gauges have no distributions")
    }

    fn numbers(
        &self,
        _: &[&SeriesHandle],
        _: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        panic!("BUG: functions over time read no rollups")
    }
}

/// Floats with timestamps and start timestamps in seconds.
fn numbers(samples: &[(f64, f64, f64)]) -> Vec<SeriesPoint> {
    let nanos = |seconds: f64| (seconds * 1e3).round() as i64 * (SECOND / 1000);
    let sample = |&(start, time, value): &(f64, f64, f64)| SeriesPoint {
        start: Some(nanos(start)),
        time: nanos(time),
        value: StepValue::Number(value),
    };
    samples.iter().map(sample).collect()
}

/// One sample every ten seconds from 0.
fn every_ten(values: &[f64]) -> Vec<SeriesPoint> {
    let at = |at: usize| at as f64 * 10.0;
    let samples = values.iter().enumerate().map(|(span, &value)| (at(span), at(span), value));
    numbers(&samples.collect::<Vec<_>>())
}

fn single_series(values: &[f64]) -> MemorySource {
    MemorySource::default().with(&[("__name__", "x_total")], every_ten(values))
}

fn run_query(memory: &MemorySource, text: &str, settings: &Settings) -> Result<QueryResult> {
    let question = QueryRequest {
        text,
        language: Language::PromQl,
        start: 0,
        end: 60 * SECOND,
        step: 20 * SECOND,
        options: promql::Options::all(),
    };
    crate::execute(memory, &question, settings, &|| false)
}

/// Results at 0, 20, 40 and 60 seconds; `-` for no value.
#[track_caller]
fn check_with(
    memory: &MemorySource,
    text: &str,
    settings: &Settings,
    expected: &str,
) -> Vec<String> {
    let answer =
        run_query(memory, text, settings).unwrap_or_else(|error| panic!("{text}: {error}"));
    let ResultData::Matrix(streams) = &answer.data else { panic!("{text}: no matrix") };
    let point = |point: &Option<StepValue>| match point {
        None => "-".to_owned(),
        Some(value) => value.number().map_or("?".to_owned(), |number| number.to_string()),
    };
    let shown = |stream: &crate::Stream| {
        let points: Vec<String> = stream.points.iter().map(point).collect();
        format!("{} {}", stream.labels, points.join(" "))
    };
    let found: Vec<String> = streams.iter().map(shown).collect();
    assert_eq!(found.join("; "), expected, "{text}");
    let notes = [QueryWarningKind::Warning, QueryWarningKind::Info]
        .map(|kind| answer.warnings.of_kind(kind));
    notes.into_iter().flatten().map(|(message, _)| message.to_owned()).collect()
}

#[track_caller]
fn check(memory: &MemorySource, text: &str, expected: &str) {
    let notes = check_with(memory, text, &Settings::default(), expected);
    assert!(notes.is_empty(), "{text}: {notes:?}");
}

#[track_caller]
fn check_error(memory: &MemorySource, text: &str, expected: &str) {
    match run_query(memory, text, &Settings::default()) {
        Err(error) => assert_eq!(error.to_string(), expected, "{text}"),
        Ok(found) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn kernels_fit_signatures() {
    for function in promql::functions() {
        let is_of_ranges = function.args.contains(&promql::ValueType::Matrix);
        let is_over_time = match promql::kernel(function) {
            promql::PromqlKernel::Instant(_) => false,
            promql::PromqlKernel::Range(_) => true,
            promql::PromqlKernel::Planned => continue,
        };
        assert_eq!(is_over_time, is_of_ranges, "{}", function.name);
    }
}

#[test]
fn windows_leave_out_their_start() {
    let memory = single_series(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    check(&memory, "count_over_time(x[20s])", "{} 1 2 2 2");
    check(&memory, "count_over_time(x[20s] offset -20s)", "{} 2 2 2 -");
    check(&memory, "sum_over_time(x[20s] @ 30)", "{} 7 7 7 7");
    check(&memory, "last_over_time(x[20s])", "x_total 1 3 5 7");
    check(&memory, "increase(x[20s])", "{} - 2 2 2");
    check(&memory, "increase(x[20s] anchored)", "{} 0 2 2 2");
}

#[test]
fn a_fixed_window_follows_its_arguments() {
    let memory = single_series(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    check(&memory, "predict_linear(x[20s] @ 40, 10)", "{} 2 4 6 8");
    let notes = check_with(
        &memory,
        "quantile_over_time(2, x[20s])",
        &Settings::default(),
        "{} inf inf inf inf",
    );
    assert_eq!(notes, ["PromQL warning: quantile value should be between 0 and 1, got 2"]);
}

#[test]
fn start_times_are_used_only_when_enabled() {
    let samples = numbers(&[(0.0, 30.0, 5.0), (0.0, 40.0, 7.0), (45.0, 50.0, 9.0)]);
    let memory = MemorySource::default().with(&[("__name__", "x_total")], samples);
    check(&memory, "resets(x[1m])", "{} - - 0 0");
    let settings = Settings { start_timestamps: true, ..Settings::default() };
    check_with(&memory, "resets(x[1m])", &settings, "{} - - 0 1");
    // The start timestamp at 45 s, within the window, counts as a sample of 0.
    check_with(&memory, "increase(x[10s] offset -10s)", &settings, "{} - - 9 -");
}

#[test]
fn overlapping_starts_are_warned_about() {
    let samples = numbers(&[(10.0, 30.0, 5.0), (20.0, 40.0, 7.0)]);
    let memory = MemorySource::default().with(&[("__name__", "x_total")], samples);
    let settings = Settings { start_timestamps: true, ..Settings::default() };
    let notes = check_with(&memory, "increase(x[30s])", &settings, "{} - - 3 -");
    let expected = "PromQL warning: sample has start time that overlaps with previous sample \
                    timestamp for metric \"x_total\"";
    assert_eq!(notes, [expected]);
}

#[test]
fn non_counter_names_are_warned_about() {
    let memory = MemorySource::default().with(&[("__name__", "x")], every_ten(&[1.0, 2.0, 3.0]));
    let notes = check_with(&memory, "rate(x[20s])", &Settings::default(), "{} - 0.1 - -");
    let expected = "PromQL info: metric might not be a counter, name does not end in \
                    _total/_sum/_count/_bucket: \"x\"";
    assert_eq!(notes, [expected]);
    let settings = Settings { type_and_unit_labels: true, ..Settings::default() };
    let notes = check_with(&memory, "rate(x[20s])", &settings, "{} - 0.1 - -");
    let expected = "PromQL info: metric might not be a counter, __type__ label is not set to \
                    \"counter\" or \"histogram\", got \"gauge\": \"x\"";
    assert_eq!(notes, [expected]);
}

#[test]
fn dropped_names_may_collide() {
    let memory = MemorySource::default()
        .with(&[("__name__", "x"), ("host", "a")], every_ten(&[1.0]))
        .with(&[("__name__", "y"), ("host", "a")], every_ten(&[2.0]));
    let same = "vector cannot contain metrics with the same labelset";
    check_error(&memory, "count_over_time({host=\"a\"}[20s])", same);
    check(
        &memory,
        "last_over_time({host=\"a\"}[20s])",
        r#"x{host="a"} 1 - - -; y{host="a"} 2 - - -"#,
    );
}

#[test]
fn absent_has_the_selector_labels() {
    let memory = single_series(&[1.0, 2.0, 3.0]);
    check(&memory, r#"absent_over_time(x{job="a",host=~".+"}[10s])"#, r#"{job="a"} - - 1 1"#);
    check(&memory, "absent_over_time(x[10s:10s] offset 10m)", "{} 1 1 1 1");
    check(&memory, "absent_over_time(x[2m])", "");
}

#[test]
fn extensions_are_for_a_few_functions() {
    let memory = single_series(&[1.0]);
    check_error(
        &memory,
        "avg_over_time(x[20s] anchored)",
        "anchored modifier can only be used with: changes, delta, increase, rate, resets - not \
         with avg_over_time",
    );
    check_error(
        &memory,
        "changes(x[20s] smoothed)",
        "smoothed modifier can only be used with: delta, increase, rate - not with changes",
    );
}

#[test]
fn factors_lie_between_zero_and_one() {
    let memory = single_series(&[1.0, 2.0, 3.0]);
    check_error(
        &memory,
        "double_exponential_smoothing(x[1m], 1, 0.5)",
        "invalid smoothing factor. Expected: 0 < sf < 1, got: 1.000000",
    );
    check_error(
        &memory,
        "double_exponential_smoothing(x[1m], 0.5, -Inf)",
        "invalid trend factor. Expected: 0 < tf < 1, got: -Inf",
    );
    // Without samples, the argument is not checked.
    check(&MemorySource::default(), "double_exponential_smoothing(x[1m], 1, 0.5)", "");
}

#[test]
fn nan_is_no_extreme() {
    let memory = single_series(&[f64::NAN, 1.0, f64::NAN, 3.0, f64::NAN, f64::NAN, 2.0]);
    check(&memory, "max_over_time(x[30s])", "{} NaN 1 3 2");
}

#[test]
fn rounding_is_compensated() {
    let memory = single_series(&[1.0, 1e100, 1.0, -1e100]);
    let huge = 1e100.to_string();
    check(&memory, "sum_over_time(x[40s])", &format!("{{}} 1 {huge} 1 -{huge}"));
}

#[test]
fn distributions_are_kept_without_arithmetic() {
    let mut histogram = Histogram::new(Scheme::exp2(3).expect("a scheme"));
    histogram.record(0.25);
    let whole = StepValue::Distribution(Arc::new(Mixture::from(histogram)));
    let sample = SeriesPoint { start: None, time: 0, value: whole.clone() };
    let memory = MemorySource::default().with(&[("__name__", "x")], vec![sample]);
    for (text, is_whole) in [("last_over_time(x[1m])", true), ("sum_over_time(x[1m])", false)] {
        let found = run_query(&memory, text, &Settings::default()).expect("an answer");
        let ResultData::Matrix(streams) = found.data else { panic!("{text}: no matrix") };
        assert_eq!(streams[0].points[0] == Some(whole.clone()), is_whole, "{text}");
        let count = streams[0].points[0].as_ref().and_then(StepValue::histogram);
        assert_eq!(count.map(|histogram| histogram.count), Some(1.0), "{text}");
    }
}

#[test]
fn limits_hold() {
    let memory = single_series(&[1.0; 7]);
    let limits = Limits { samples: 10, ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    assert!(run_query(&memory, "count_over_time(x[20s])", &settings).is_err());
    let limits = Limits { samples: 11, ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    assert!(run_query(&memory, "count_over_time(x[20s])", &settings).is_ok());
    let question = QueryRequest {
        text: "count_over_time(x[20s])",
        language: Language::PromQl,
        start: 0,
        end: 60 * SECOND,
        step: SECOND,
        options: promql::Options::default(),
    };
    let found = crate::execute(&memory, &question, &Settings::default(), &|| true);
    assert!(matches!(found, Err(Error::Timeout)));
}

proptest! {
    #[test]
    fn quantiles_are_those_of_sorted_numbers(
        mut values in prop::collection::vec(prop_oneof![9 => -1e3f64..1e3, 1 => Just(f64::NAN)], 1..40),
        rank in 0.0f64..=1.0,
    ) {
        let mut sorted = values.clone();
        sorted.sort_by(|a, b| b.is_nan().cmp(&a.is_nan()).then(a.total_cmp(b)));
        let position = rank * (sorted.len() - 1) as f64;
        let (below, weight) = (position.floor() as usize, position - position.floor());
        let above = (below + 1).min(sorted.len() - 1);
        let expected = sorted[below] * (1.0 - weight) + sorted[above] * weight;
        prop_assert_eq!(quantile_of(rank, &mut values).to_bits(), expected.to_bits());
    }
}
