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

/// Builder for metrics registered at run time. What is known beforehand is better declared with
/// [`crate::metrics!`].
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
    /// A metric of a name, 4,096 bytes at the most.
    pub fn new(name: impl Into<String>) -> MetricBuilder {
        MetricBuilder {
            series: SeriesDefinition { name: name.into(), ..SeriesDefinition::default() },
        }
    }

    /// What it is measured in, as UCUM writes it: "ns", "By", "1".
    pub fn unit(mut self, unit: impl Into<String>) -> MetricBuilder {
        self.series.unit = unit.into();
        self
    }

    /// What it means.
    pub fn help(mut self, help: impl Into<String>) -> MetricBuilder {
        self.series.help = help.into();
        self
    }

    /// One more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> MetricBuilder {
        self.series.labels.push((name.into(), value.into()));
        self.series.labels.sort();
        self
    }

    /// What it is to the program.
    pub fn role(mut self, role: MetricRole) -> MetricBuilder {
        self.series.role = role;
        self
    }

    /// What its role refers to: the capacity of what is used, the size of what is hit.
    pub fn related_to(mut self, metric: &impl MetricHandle) -> MetricBuilder {
        self.series.related_metric = Some(metric.cells().get());
        self
    }

    /// How often something happened.
    pub fn counter(self) -> Result<Counter> {
        self.register()
    }

    /// How much there is, told by what comes and goes.
    pub fn up_down_counter(self) -> Result<UpDownCounter> {
        self.register()
    }

    /// How much there is, a whole number.
    pub fn gauge(self) -> Result<Gauge> {
        self.register()
    }

    /// How much there is.
    pub fn float_gauge(self) -> Result<FloatGauge> {
        self.register()
    }

    /// A text.
    pub fn text(self) -> Result<TextMetric> {
        self.register()
    }

    /// How values are distributed.
    pub fn histogram(self) -> Result<Histogram> {
        self.register()
    }

    /// What has begun and has not ended, with the names of up to four tags.
    pub fn in_flight(mut self, tags: &[&str]) -> Result<InFlight> {
        self.series.tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        self.register()
    }

    /// A sign of life that means to come every so many nanoseconds; 0 if it does not say.
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
