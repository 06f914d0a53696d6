//! Builder for metrics registered at run time.

use crate::counter::{Counter, UpDownCounter};
use crate::entry::SeriesDefinition;
use crate::error::Result;
use crate::gauge::{FloatGauge, Gauge};
use crate::heartbeat::Heartbeat;
use crate::histogram::Histogram;
use crate::in_flight::InFlight;
use crate::metric::{CellLocation, MetricHandle};
use crate::metric_snapshot::MetricRole;
use crate::text::TextMetric;
use crate::thread_lane;

/// Builder for metrics registered at run time. Metrics known at compile time are better declared
/// with [`crate::metrics!`].
///
/// ```
/// let answered = shm::MetricBuilder::new("answered_total").label("peer", "a").help("Answers.").counter()?;
/// answered.add(1);
/// # Ok::<(), shm::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MetricBuilder {
    pub(crate) series: SeriesDefinition,
}

impl MetricBuilder {
    /// A metric with a name of at most 4,096 bytes.
    pub fn new(name: impl Into<String>) -> MetricBuilder {
        MetricBuilder {
            series: SeriesDefinition { name: name.into(), ..SeriesDefinition::default() },
        }
    }

    /// Unit in UCUM: "ns", "By", "1".
    pub fn unit(mut self, unit: impl Into<String>) -> MetricBuilder {
        self.series.unit = unit.into();
        self
    }

    /// Help text.
    pub fn help(mut self, help: impl Into<String>) -> MetricBuilder {
        self.series.help = help.into();
        self
    }

    /// Adds a label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> MetricBuilder {
        self.series.labels.push((name.into(), value.into()));
        self.series.labels.sort_unstable();
        self
    }

    /// Role of the metric.
    pub fn role(mut self, role: MetricRole) -> MetricBuilder {
        self.series.role = role;
        self
    }

    /// Related metric of the role: the capacity of a usage, the size of a cache with hits.
    pub fn related_to(mut self, metric: &impl MetricHandle) -> MetricBuilder {
        self.series.related_cells = Some(metric.cells().get());
        self
    }

    /// Registers a counter.
    pub fn counter(self) -> Result<Counter> {
        self.register()
    }

    /// Registers an up-down counter.
    pub fn up_down_counter(self) -> Result<UpDownCounter> {
        self.register()
    }

    /// Registers an integer gauge.
    pub fn gauge(self) -> Result<Gauge> {
        self.register()
    }

    /// Registers a floating-point gauge.
    pub fn float_gauge(self) -> Result<FloatGauge> {
        self.register()
    }

    /// Registers a text.
    pub fn text(self) -> Result<TextMetric> {
        self.register()
    }

    /// Registers a histogram.
    pub fn histogram(self) -> Result<Histogram> {
        self.register()
    }

    /// Registers in-flight operations with the names of up to four tags.
    pub fn in_flight(mut self, tags: &[&str]) -> Result<InFlight> {
        self.series.tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        self.register()
    }

    /// Registers a heartbeat with its intended period in nanoseconds; 0 if it has none.
    pub fn heartbeat(mut self, every_ns: u64) -> Result<Heartbeat> {
        self.series.parameter = every_ns;
        self.register()
    }

    fn register<M: MetricHandle>(mut self) -> Result<M> {
        self.series.kind = M::KIND;
        let writer = thread_lane::open()?;
        let cells = writer.register(&self.series)?;
        thread_lane::extend_shared(writer);
        Ok(M::at(CellLocation::at(cells)))
    }
}
