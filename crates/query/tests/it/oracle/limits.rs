//! Query cost limits: each is named in the error, holds, and leaves nothing charged.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hist::codec::header::Temporality::{Cumulative, Delta};
use hist::{Histogram, Mixture};
use model::{Selector, Series, SeriesKind};
use query::{
    Error, FloatHistogram, LabelSet, Language, Limits, NAME, QueryRequest, QueryResult, Result,
    SeriesHandle, SeriesPoint, Settings, Source, SourceRead, StepValue, promql,
};
use store::{NumberAggregate, SECOND, TimeGrid};

use super::random_queries::Splitmix64;

/// Many series with one sample per second, generated on read.
struct SyntheticSource {
    series: u64,
    /// Length in seconds from 0.
    seconds: i64,
    busy: Arc<Mixture>,
    /// Number of samples returned.
    given: AtomicU64,
}

/// Latencies of a busy service: about 130 buckets.
fn busy_histogram() -> Histogram {
    let mut random = Splitmix64(1);
    let mut histogram = Histogram::default();
    for _ in 0..2000 {
        let bits: u64 = (0..6).map(|_| random.below(1000)).sum();
        histogram.record((bits as f64 / 1000.0).exp2() * 1e6);
    }
    histogram
}

impl SyntheticSource {
    fn new(series: u64, seconds: i64) -> SyntheticSource {
        let busy = Arc::new(Mixture::from(busy_histogram()));
        SyntheticSource { series, seconds, busy, given: AtomicU64::default() }
    }
}

impl Source for SyntheticSource {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let kinds = [
            ("load", SeriesKind::Gauge),
            ("bytes_total", SeriesKind::Counter(Cumulative)),
            ("latency", SeriesKind::Histogram(Delta)),
            ("sparse", SeriesKind::Gauge),
        ];
        let mut handles = Vec::new();
        for (name, kind) in kinds {
            for at in 0..self.series {
                let host = at.to_string();
                if selector.matches(&Series::new(name, kind).with_label("host", host.as_str())) {
                    let labels = LabelSet::new([(NAME, name), ("host", host.as_str())]);
                    handles.push(SeriesHandle {
                        labels,
                        kind,
                        unit: String::new(),
                        key: at as usize,
                    });
                }
            }
        }
        Ok(handles)
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        let last = (range.end.div_euclid(SECOND)).min(self.seconds);
        let first = (range.start.div_euclid(SECOND) + 1).max(0);
        let every = if series.labels.name() == "sparse" { self.seconds.max(1) as usize } else { 1 };
        let sample = |second: i64| {
            let time = second * SECOND;
            let value = match series.kind {
                SeriesKind::Histogram(_) => StepValue::Distribution(Arc::clone(&self.busy)),
                _ => StepValue::Number((second + series.key as i64) as f64),
            };
            SeriesPoint { start: Some(time - SECOND), time, value }
        };
        let values: Vec<SeriesPoint> = (first..=last).step_by(every).map(sample).collect();
        self.given.fetch_add(values.len() as u64, Ordering::Relaxed);
        Ok(SourceRead { values, gaps: Vec::new() })
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        let mut sum = Mixture::default();
        for _ in series {
            for part in self.busy.components() {
                sum.add(part).unwrap();
            }
        }
        self.given.fetch_add(grid.columns * series.len() as u64, Ordering::Relaxed);
        let values = (0..grid.columns).map(|_| sum.clone()).collect();
        Ok(SourceRead { values, gaps: Vec::new() })
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        self.given.fetch_add(grid.columns * series.len() as u64, Ordering::Relaxed);
        let values = (0..grid.columns)
            .map(|_| Some(NumberAggregate::of_number(series.len() as f64)))
            .collect();
        Ok(SourceRead { values, gaps: Vec::new() })
    }
}

fn execute(
    source: &dyn Source,
    text: &str,
    (start, end, step): (i64, i64, i64),
    limits: Limits,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<QueryResult> {
    let options = promql::Options::all();
    let (start, end, step) = (start * SECOND, end * SECOND, step * SECOND);
    let question = QueryRequest { text, language: Language::PromQl, start, end, step, options };
    let settings = Settings { limits, ..Settings::default() };
    let (answer, beside) =
        query::testing::execute_with_stats(source, &question, &settings, &is_over)?;
    assert_eq!(beside, 0, "{text}");
    Ok(answer)
}

#[track_caller]
fn check_limit(text: &str, limits: Limits, expected: &str) {
    let many = SyntheticSource::new(20, 1000);
    let found = execute(&many, text, (0, 1000, 10), limits, &|| false);
    let message = found.map(drop).unwrap_err().to_string();
    assert!(message.contains(expected), "{message:?}");
}

#[test]
fn each_limit_is_named() {
    let limits = Limits::default();
    check_limit("load", Limits { samples: 2019, ..limits }, "(max_samples)");
    check_limit("load", Limits { samples: 2019, ..limits }, "raise max_samples");
    check_limit("load", Limits { bytes: 2019 * 16, ..limits }, "(max_bytes)");
    check_limit(
        "load",
        Limits { series: 19, ..limits },
        "limit of 19 series (max_series) exceeded (20)",
    );
    check_limit(
        "load",
        Limits { steps: 100, ..limits },
        "limit of 100 steps (max_steps) exceeded (101)",
    );
    check_limit("sum(load)", Limits { samples: 2000, ..limits }, "(max_samples)");
    check_limit("exact_increase(latency[10s])", Limits { samples: 5000, ..limits }, "max_samples");
    check_limit("rate(latency[10s])", Limits { samples: 5000, ..limits }, "max_samples");
    let many = SyntheticSource::new(20, 1000);
    let late = execute(&many, "load", (0, 1000, 10), limits, &|| true);
    assert!(late.unwrap_err().to_string().contains("raise timeout"));
    let enough = Limits { samples: 2020, series: 20, steps: 101, bytes: 2020 * 16 };
    assert!(execute(&many, "load", (0, 1000, 10), enough, &|| false).is_ok());
}

#[test]
fn steps_of_a_subquery_are_counted_before_they_are_made() {
    let limits = Limits::default();
    check_limit("max_over_time(load[200y:1ms])", limits, "(max_samples)");
    check_limit("absent_over_time(load[200y:1ms])", limits, "(max_samples)");
    check_limit("count_over_time(vector(1)[200y:1ms])", limits, "(max_samples)");
}

/// Peak memory relative to `max_bytes`.
#[track_caller]
fn check_memory(text: &str, times: (i64, i64, i64), bytes: u64, is_enough: bool) {
    let many = SyntheticSource::new(50, 40_000);
    let limits = Limits { bytes, ..Limits::default() };
    let mut is_ok = false;
    let measured = allocation_counter::measure(|| {
        let found = execute(&many, text, times, limits, &|| false);
        if let Err(error) = &found {
            assert!(matches!(error, Error::Limit { .. }), "{error}");
        }
        is_ok = found.is_ok();
    });
    let of_limit = measured.bytes_max as f64 / bytes as f64;
    println!("{text}: {} bytes, {of_limit:.2} of the limit; answered: {is_ok}", measured.bytes_max);
    assert_eq!(is_ok, is_enough, "{text}");
    // Data is allocated before it is charged, growing vectors exist twice, and a raw sample is
    // larger than a value.
    assert!(of_limit <= 3.0, "{text}: {of_limit}");
}

#[test]
fn memory_stays_near_its_limit() {
    const MB: u64 = 1 << 20;
    let day = (0, 40_000, 300);
    check_memory("histogram_quantile(0.999, sum(sum_over_time(latency[5m])))", day, 8 * MB, true);
    check_memory("sum_over_time(latency[5m])", day, 32 * MB, true);
    check_memory("sum_over_time(latency[5m])", day, 8 * MB, false);
    check_memory("exact_rate(latency[5m])", day, 8 * MB, false);
    check_memory("exact_increase(latency[20s])", (0, 40_000, 20), 4 * MB, false);
    check_memory("sum(exact_increase(latency[7s]))", (0, 40_000, 2), 4 * MB, false);
    check_memory("avg_over_time(load[5m])", (0, 40_000, 1), 4 * MB, false);
    check_memory("load * 2", (0, 40_000, 1), 4 * MB, false);
    check_memory("rate(bytes_total[11h])", (40_000, 40_000, 1), 8 * MB, true);
    check_memory("load[11h]", (40_000, 40_000, 0), 8 * MB, false);
    check_memory("increase(latency[1h])", (40_000, 40_000, 1), 4 * MB, false);
    check_memory("sparse", (0, 40_000, 1), 8 * MB, false);
    check_memory("max_over_time(sparse[1s])", (0, 40_000, 1), 8 * MB, false);
}

#[test]
fn cancellation_is_polled_often() {
    // A million points each.
    let questions = [
        ("load", (0, 10_000, 1)),
        ("rate(bytes_total[1m])", (0, 10_000, 10)),
        ("sum by (host) (load) / on (host) bytes_total", (0, 10_000, 1)),
        ("topk(3, load)", (0, 10_000, 10)),
        ("sum(exact_increase(bytes_total[10s]))", (0, 10_000, 5)),
        ("max_over_time(load[10s:1s])", (0, 10_000, 10)),
        ("histogram_count(sum_over_time(latency[1m]))", (0, 10_000, 50)),
    ];
    let limits = Limits { bytes: 4 << 30, ..Limits::default() };
    for (text, times) in questions {
        let many = SyntheticSource::new(100, 10_000);
        let (asked, given, most) = <(AtomicU64, AtomicU64, AtomicU64)>::default();
        let watched = || {
            asked.fetch_add(1, Ordering::Relaxed);
            let now = many.given.load(Ordering::Relaxed);
            most.fetch_max(now - given.swap(now, Ordering::Relaxed), Ordering::Relaxed);
            false
        };
        execute(&many, text, times, limits, &watched).unwrap();
        let (asked, most) = (asked.into_inner(), most.into_inner());
        println!("{text}: asked {asked} times, after {most} samples at the most");
        // Two series of ten thousand samples, or a thousand columns of all hundred.
        assert!(asked > 50 && most <= 110_000, "{text}: {asked} times, after {most}");
        for patience in [0, 1, asked / 3, asked / 2, asked - 1] {
            let again = AtomicU64::new(0);
            let is_over = || again.fetch_add(1, Ordering::Relaxed) >= patience;
            let found = execute(&many, text, times, limits, &is_over);
            assert!(matches!(found, Err(Error::Timeout)), "{text}");
            assert_eq!(again.into_inner(), patience + 1, "{text}");
        }
    }
}

#[test]
fn a_histogram_counts_for_its_buckets() {
    let histogram = FloatHistogram::from(&busy_histogram());
    let count = (histogram.positive.len() + 8) as u64;
    assert!((120..160).contains(&count));
    let many = SyntheticSource::new(1, 10);
    let one = |samples: u64| {
        let limits = Limits { samples, ..Limits::default() };
        execute(&many, "latency", (5, 5, 0), limits, &|| false)
    };
    assert!(one(count).is_ok() && one(count - 1).is_err());
}
