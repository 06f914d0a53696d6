//! The `metrics` crate: what its macros record goes to shared memory.
//!
//! A series is registered when it is recorded to for the first time, with the description that its name has by then. Counters
//! and gauges are what they are there. Histograms of shared memory count whole numbers, so what is recorded is multiplied and rounded
//! to the nearest, by the unit that the name is described with, or else ends with (`_seconds`, `_ms`, `_bytes` …):
//!
//! | unit | counted in | greatest |
//! |---|---|---|
//! | seconds to nanoseconds | `ns` | 292 years |
//! | bytes to tebibytes; bits a second to terabits | `By`; `bit/s` | 9.2 · 10^18 |
//! | count | nothing | 9.2 · 10^18 |
//! | percent, count per second | billionths: `10*-9.%`, `10*-9/s` | 9.2 · 10^9 |
//! | none | billionths: `10*-9`, so that a `Duration`, which comes as seconds, keeps its nanoseconds | 9.2 · 10^9 |
//!
//! What has no place is counted as `facade_refused_total`, by metric and reason.

mod cache;
mod counter;
mod gauge;
mod histogram;
mod names;
mod refused;
mod series;
mod unit;

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

use crate::error::{Error, Result};
use cache::Cache;
use counter::Total;
use histogram::Scaled;

/// What the macros of the `metrics` crate record goes to shared memory from now on. Fails only if there is another recorder.
pub fn install() -> Result<()> {
    ::metrics::set_global_recorder(Recorder).map_err(|_| Error::Recorder)
}

/// The recorder, for those who put it together with others. All are one: a process has one memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorder;

static COUNTERS: Cache<Total> = Cache::new();
static GAUGES: Cache<shm::FloatGauge> = Cache::new();
static HISTOGRAMS: Cache<Scaled> = Cache::new();

impl ::metrics::Recorder for Recorder {
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
