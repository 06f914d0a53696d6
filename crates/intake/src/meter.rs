//! Own metrics: counters, gauges and latency histograms; stored like any other metric.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hist::codec::header::Temporality;
use hist::{Histogram, SharedRecorder};
use model::{Sample, SampleValue, Series, SeriesKind};

use decode::SeriesSink;

/// A monotonic counter. An increment is an atomic addition, and a plain one in shared memory if it
/// is published.
#[derive(Clone, Debug, Default)]
pub struct EventCounter {
    count: Arc<AtomicU64>,
    published: Option<shm::Counter>,
}

impl EventCounter {
    /// Adds.
    pub fn add(&self, n: u64) {
        self.count.fetch_add(n, Ordering::Relaxed);
        if let Some(published) = &self.published {
            published.add(n);
        }
    }

    /// The value since the start of the process.
    pub fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Latency histogram in nanoseconds.
#[derive(Clone)]
pub struct LatencyHistogram {
    recorder: Arc<SharedRecorder>,
    published: Option<shm::Histogram>,
}

impl LatencyHistogram {
    /// Records one duration.
    pub fn record(&self, duration: Duration) {
        let took_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.recorder.record(took_ns);
        if let Some(published) = &self.published {
            published.record(took_ns);
        }
    }
}

/// Registry of own metrics (instruments by name and labels).
#[derive(Default)]
pub struct Meter {
    entries: Mutex<Vec<MeterEntry>>,
    collectors: Mutex<Vec<CollectFn>>,
    /// Whether counters and histograms are in shared memory too.
    publishes: bool,
}

/// Collects several metrics at once.
type CollectFn = Arc<dyn Fn(&mut Vec<MetricSnapshot>) + Send + Sync>;

#[derive(Clone)]
struct MeterEntry {
    name: &'static str,
    help: &'static str,
    labels: Vec<(String, String)>,
    instrument: Instrument,
}

#[derive(Clone)]
enum Instrument {
    Counter(EventCounter),
    Gauge(Arc<dyn Fn() -> f64 + Send + Sync>),
    Histogram(LatencyHistogram),
}

/// Snapshot of one metric.
#[derive(Clone, Debug)]
pub struct MetricSnapshot {
    /// Its name.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: SnapshotValue,
}

/// Value of an own metric.
#[derive(Clone, Debug)]
pub enum SnapshotValue {
    /// Value since the start of the process.
    Counter(f64),
    /// Current value.
    Gauge(f64),
    /// All durations since the start of the process, in nanoseconds.
    Histogram(Box<Histogram>),
}

fn to_owned_labels(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl Meter {
    /// A meter whose counters and histograms are also in shared memory, readable by other processes
    /// of this host. They are in the process's only file: use it for one meter per process. Without
    /// shared memory the meter works unpublished.
    pub(crate) fn with_shared_memory() -> Meter {
        Meter { publishes: true, ..Meter::default() }
    }

    fn metric_builder(
        &self,
        name: &'static str,
        about: &'static str,
        labels: &[(String, String)],
    ) -> Option<shm::MetricBuilder> {
        let new = || shm::MetricBuilder::new(name).help(about);
        let add =
            |made: shm::MetricBuilder, (name, value): &(String, String)| made.label(name, value);
        self.publishes.then(|| labels.iter().fold(new(), add))
    }

    fn lock_entries(&self) -> std::sync::MutexGuard<'_, Vec<MeterEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counter of a name and labels; every call returns the same counter.
    pub fn counter(
        &self,
        name: &'static str,
        about: &'static str,
        labels: &[(&str, &str)],
    ) -> EventCounter {
        let mut entries = self.lock_entries();
        let labels = to_owned_labels(labels);
        for entry in entries.iter().filter(|entry| entry.name == name && entry.labels == labels) {
            if let Instrument::Counter(counter) = &entry.instrument {
                return counter.clone();
            }
        }
        let described = self.metric_builder(name, about, &labels);
        let published = described.and_then(|described| described.counter().ok());
        let counter = EventCounter { published, ..EventCounter::default() };
        entries.push(MeterEntry {
            name,
            help: about,
            labels,
            instrument: Instrument::Counter(counter.clone()),
        });
        counter
    }

    /// The histogram of a name and labels; every call returns the same histogram.
    pub fn histogram(
        &self,
        name: &'static str,
        about: &'static str,
        labels: &[(&str, &str)],
    ) -> LatencyHistogram {
        let mut entries = self.lock_entries();
        let labels = to_owned_labels(labels);
        for entry in entries.iter().filter(|entry| entry.name == name && entry.labels == labels) {
            if let Instrument::Histogram(histogram) = &entry.instrument {
                return histogram.clone();
            }
        }
        let described = self.metric_builder(name, about, &labels);
        let described =
            described.map(|described| described.unit("ns").role(shm::MetricRole::Timing));
        let published = described.and_then(|described| described.histogram().ok());
        let histogram = LatencyHistogram { recorder: Arc::new(SharedRecorder::new()), published };
        entries.push(MeterEntry {
            name,
            help: about,
            labels,
            instrument: Instrument::Histogram(histogram.clone()),
        });
        histogram
    }

    /// Adds a gauge that `read` produces per snapshot. Replaces a gauge of the same name and
    /// labels.
    pub fn gauge(
        &self,
        name: &'static str,
        about: &'static str,
        labels: &[(&str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let mut entries = self.lock_entries();
        let labels = to_owned_labels(labels);
        entries.retain(|entry| entry.name != name || entry.labels != labels);
        entries.push(MeterEntry {
            name,
            help: about,
            labels,
            instrument: Instrument::Gauge(Arc::new(read)),
        });
    }

    /// Adds a collector of several metrics, called per snapshot: their labels may change.
    pub fn register_collector(
        &self,
        read: impl Fn(&mut Vec<MetricSnapshot>) + Send + Sync + 'static,
    ) {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(read));
    }

    /// Snapshot of all metrics.
    pub fn snapshot(&self) -> Vec<MetricSnapshot> {
        let now = |entry: &MeterEntry| MetricSnapshot {
            name: entry.name,
            help: entry.help,
            labels: entry.labels.clone(),
            value: match &entry.instrument {
                Instrument::Counter(counter) => SnapshotValue::Counter(counter.get() as f64),
                Instrument::Gauge(read) => SnapshotValue::Gauge(read()),
                Instrument::Histogram(histogram) => {
                    SnapshotValue::Histogram(Box::new(histogram.recorder.snapshot()))
                }
            },
        };
        // Collectors may be slow and may use the meter: the lock is not held.
        let entries = self.lock_entries().clone();
        let collectors = self.collectors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all: Vec<MetricSnapshot> = entries.iter().map(now).collect();
        collectors.iter().for_each(|collector| collector(&mut all));
        all
    }

    /// Writes all metrics as rows: read at `end`, counted since `start`, the start of the process.
    pub fn write_rows(&self, start: i64, end: i64, sink: &mut dyn SeriesSink) -> model::Result<()> {
        for MetricSnapshot { name, labels, value, .. } in self.snapshot() {
            let (kind, unit, value) = match value {
                SnapshotValue::Counter(n) => {
                    (SeriesKind::Counter(Temporality::Cumulative), "", SampleValue::Number(n))
                }
                SnapshotValue::Gauge(x) => (SeriesKind::Gauge, "", SampleValue::Number(x)),
                SnapshotValue::Histogram(histogram) => (
                    SeriesKind::Histogram(Temporality::Cumulative),
                    "ns",
                    SampleValue::Histogram(histogram),
                ),
            };
            let mut series = Series::new(name, kind).with_unit(unit);
            for (name, value) in labels {
                series = series.with_label(name, value);
            }
            let series = series.validate()?;
            let start = if kind == SeriesKind::Gauge { end } else { start };
            sink.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
            sink.sample(&Sample { start, end, value })?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("entries", &self.lock_entries().len()).finish()
    }
}

impl std::fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LatencyHistogram")
    }
}

#[cfg(test)]
mod tests {
    use shm::snapshot::{MetricValue, NumericValue};

    use super::*;

    #[test]
    fn published_and_stored_values_are_equal() {
        let meter = Meter::with_shared_memory();
        let Ok(path) = shm::status() else {
            println!("skipped: there is no memory for it here");
            return;
        };
        let labels = [("route", "home")];
        meter.counter("test_asked_total", "questions", &labels).add(3);
        meter.counter("test_asked_total", "questions", &labels).add(4);
        meter.histogram("test_took", "how long", &[]).record(Duration::from_micros(5));
        // Metrics of another meter are not visible.
        Meter::default().counter("test_quiet_total", "", &[]).add(1);
        let shown = shm::MetricsFileReader::attach(&path).unwrap().metrics().unwrap();
        let of = |name: &str| shown.iter().find(|metric| metric.name == name);
        let asked = of("test_asked_total").unwrap();
        assert_eq!(asked.value, MetricValue::Counter(NumericValue::Unsigned(7)));
        assert_eq!(asked.labels, to_owned_labels(&labels));
        let took = of("test_took").unwrap();
        let SnapshotValue::Histogram(stored) =
            &meter.snapshot().iter().find(|now| now.name == "test_took").unwrap().value.clone()
        else {
            panic!("no times")
        };
        assert_eq!(
            (took.unit.as_str(), &took.value),
            ("ns", &MetricValue::Histogram(stored.clone()))
        );
        assert!(of("test_quiet_total").is_none());
    }
}
