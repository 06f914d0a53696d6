//! Integration tests in one binary: a reader of shared memory sees what programs record.

mod metrics;
#[path = "../../../shm/tests/it/room.rs"]
mod room;
mod tracing;

use shm::MetricsFileReader;
use shm::snapshot::{MetricValue, NumericValue, ProcessSeries};

/// Series of this process with exactly these labels.
fn find(name: &str, labels: &[(&str, &str)]) -> Option<ProcessSeries> {
    let mut labels: Vec<_> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    labels.sort();
    let path = exporter::status().expect("a file of metrics");
    let metrics =
        MetricsFileReader::attach(&path).and_then(|mut reader| reader.metrics()).expect("metrics");
    metrics.into_iter().find(|metric| metric.name == name && metric.labels == labels)
}

#[track_caller]
fn series(name: &str, labels: &[(&str, &str)]) -> ProcessSeries {
    find(name, labels).unwrap_or_else(|| panic!("no series {name} {labels:?}"))
}

/// Value of a counter; 0 if there is no series.
#[track_caller]
fn count(name: &str, labels: &[(&str, &str)]) -> u64 {
    match find(name, labels).map(|metric| metric.value) {
        None => 0,
        Some(MetricValue::Counter(NumericValue::Unsigned(count))) => count,
        Some(other) => panic!("no counter: {other:?}"),
    }
}

#[track_caller]
fn histogram(name: &str, labels: &[(&str, &str)]) -> hist::Histogram {
    match series(name, labels).value {
        MetricValue::Histogram(histogram) => *histogram,
        other => panic!("no histogram: {other:?}"),
    }
}

/// Count, sum, minimum and maximum.
fn exact(histogram: &hist::Histogram) -> (u64, f64, f64, f64) {
    let side = |side: Option<f64>| side.expect("exact");
    let sum = histogram.tracked_sum().exact().map(|sum| sum.value());
    let (min, max) = (histogram.tracked_min().exact(), histogram.tracked_max().exact());
    (histogram.count(), side(sum), side(min), side(max))
}
