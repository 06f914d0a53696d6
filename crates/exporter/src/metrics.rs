//! Recorder of the `metrics` crate that writes to shared memory.
//!
//! A series is registered at its first record, with the description that its name has by then.
//! Counters and gauges are recorded as they are. Shared-memory histograms hold integers: values are
//! multiplied and rounded to the nearest integer, by the unit in the description of the name, or
//! else by the suffix of the name (`_seconds`, `_ms`, `_bytes` …):
//!
//! | unit | counted in | greatest |
//! |---|---|---|
//! | seconds to nanoseconds | `ns` | 292 years |
//! | bytes to tebibytes; bits a second to terabits | `By`; `bit/s` | 9.2 · 10^18 |
//! | count | nothing | 9.2 · 10^18 |
//! | percent, count per second | billionths: `10*-9.%`, `10*-9/s` | 9.2 · 10^9 |
//! | none | billionths: `10*-9`, so that a `Duration`, which arrives as seconds, keeps its nanoseconds | 9.2 · 10^9 |
//!
//! Rejected values are counted in `exporter_rejected_total`, by metric and reason.

mod cache;
mod counter;
mod gauge;
mod histogram;
mod names;
mod rejected;
mod series;
mod unit;

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

use crate::error::{Error, Result};
use cache::MetricCache;
use counter::CounterState;
use histogram::ScaledHistogram;

/// Installs the recorder of the `metrics` crate. Fails only if there is another recorder.
pub fn install() -> Result<()> {
    ::metrics::set_global_recorder(MetricsRecorder).map_err(|_| Error::Recorder)
}

/// Recorder of the `metrics` crate, for use in a fanout. All instances share the process' shared
/// memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsRecorder;

static COUNTERS: MetricCache<CounterState> = MetricCache::new();
static GAUGES: MetricCache<shm::FloatGauge> = MetricCache::new();
static HISTOGRAMS: MetricCache<ScaledHistogram> = MetricCache::new();

impl ::metrics::Recorder for MetricsRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        names::describe(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        names::describe(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        names::describe(key, unit, description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(COUNTERS.find(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(GAUGES.find(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(HISTOGRAMS.find(key))
    }
}
