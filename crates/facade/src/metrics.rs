//! The `metrics` crate: what its macros record goes to shared memory.
//!
//! A series is registered when it is recorded to for the first time, with the description that its
//! name has by then. Counters and gauges are what they are there. Histograms of shared memory count
//! whole numbers, so what is recorded is multiplied and rounded to the nearest, by the unit that
//! the name is described with, or else ends with (`_seconds`, `_ms`, `_bytes` …):
//!
//! | unit | counted in | greatest |
//! |---|---|---|
//! | seconds to nanoseconds | `ns` | 292 years |
//! | bytes to tebibytes; bits a second to terabits | `By`; `bit/s` | 9.2 · 10^18 |
//! | count | nothing | 9.2 · 10^18 |
//! | percent, count per second | billionths: `10*-9.%`, `10*-9/s` | 9.2 · 10^9 |
//! | none | billionths: `10*-9`, so that a `Duration`, which comes as seconds, keeps its nanoseconds | 9.2 · 10^9 |
//!
//! What has no place is counted as `facade_rejected_total`, by metric and reason.

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

/// What the macros of the `metrics` crate record goes to shared memory from now on. Fails only if
/// there is another recorder.
pub fn install() -> Result<()> {
    ::metrics::set_global_recorder(MetricsRecorder).map_err(|_| Error::Recorder)
}

/// Recorder of the `metrics` crate, for use in a fanout. All are one: a process has one memory.
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
