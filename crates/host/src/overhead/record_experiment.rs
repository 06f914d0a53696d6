//! Records into shared memory while observers read all metrics of this process: no system call is
//! involved, but reading a word takes its cache line from the CPU that writes it.

use shm::{Counter, Histogram, MetricBuilder};

use super::experiment::PreparedExperiment;
use render::value_formatter::count;

/// Number of counters: similar to a server.
const COUNTERS: usize = 100;
const HISTOGRAMS: usize = 20;
/// Number of initial values, spread over many buckets.
const VALUES: u64 = 10_000;

/// Metrics of this process, with values.
pub(crate) struct ExampleMetrics {
    counters: Vec<Counter>,
    histograms: Vec<Histogram>,
}

impl ExampleMetrics {
    /// Creates the metrics with the same values each time.
    pub(crate) fn create() -> shm::Result<ExampleMetrics> {
        shm::status()?;
        let of = |name: &str, at: usize| MetricBuilder::new(name).label("number", at.to_string());
        let counters = (0..COUNTERS).map(|at| of("doctor_counted_total", at).counter());
        let histograms = (0..HISTOGRAMS).map(|at| of("doctor_recorded", at).unit("ns").histogram());
        let shown = ExampleMetrics {
            counters: counters.collect::<shm::Result<_>>()?,
            histograms: histograms.collect::<shm::Result<_>>()?,
        };
        (0..VALUES).for_each(|n| shown.record(n));
        Ok(shown)
    }

    fn record(&self, n: u64) {
        let at = n as usize;
        self.counters[at % COUNTERS].add(1);
        // Values of all sizes: as many buckets as in a server.
        self.histograms[at % HISTOGRAMS].record((n + 1).wrapping_mul(n % 1_009 + 1));
    }
}

pub(crate) fn prepare() -> Result<PreparedExperiment, String> {
    let example_metrics =
        ExampleMetrics::create().map_err(|error| format!("cannot record: {error}"))?;
    let mut n = 0;
    let once = move || {
        n += 1;
        example_metrics.record(n);
        Ok(())
    };
    let series = count((COUNTERS + HISTOGRAMS) as u64);
    Ok(PreparedExperiment {
        title: format!("count and record in shared memory, in a process with {series} series"),
        operation: "count and record",
        operation_once: Box::new(once),
    })
}
