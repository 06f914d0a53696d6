//! Metrics that are described while the program runs.

use crate::counter::{Counter, UpDown};
use crate::entry::Series;
use crate::error::Result;
use crate::gauge::{FloatGauge, Gauge};
use crate::heartbeat::Heartbeat;
use crate::here;
use crate::histogram::Histogram;
use crate::in_flight::InFlight;
use crate::metric::{Cells, Metric};
use crate::shown::Role;
use crate::text::Text;

/// A metric to be, while the program runs. What is known beforehand is better declared with [`crate::metrics!`].
///
/// ```
/// let answered = shm::Description::new("answered_total").label("peer", "a").help("Answers.").counter()?;
/// answered.add(1);
/// # Ok::<(), shm::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Description {
    pub(crate) series: Series,
}

impl Description {
    /// A metric of a name, 4,096 bytes at the most.
    pub fn new(name: impl Into<String>) -> Description {
        Description { series: Series { name: name.into(), ..Series::default() } }
    }

    /// What it is measured in, as UCUM writes it: "ns", "By", "1".
    pub fn unit(mut self, unit: impl Into<String>) -> Description {
        self.series.unit = unit.into();
        self
    }

    /// What it means.
    pub fn help(mut self, help: impl Into<String>) -> Description {
        self.series.help = help.into();
        self
    }

    /// One more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Description {
        self.series.labels.push((name.into(), value.into()));
        self.series.labels.sort();
        self
    }

    /// What it is to the program.
    pub fn role(mut self, role: Role) -> Description {
        self.series.role = role;
        self
    }

    /// What its role refers to: the capacity of what is used, the size of what is hit.
    pub fn linked_to(mut self, metric: &impl Metric) -> Description {
        self.series.link = Some(metric.cells().get());
        self
    }

    /// How often something happened.
    pub fn counter(self) -> Result<Counter> {
        self.register()
    }

    /// How much there is, told by what comes and goes.
    pub fn up_down(self) -> Result<UpDown> {
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
    pub fn text(self) -> Result<Text> {
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

    fn register<M: Metric>(mut self) -> Result<M> {
        self.series.kind = M::KIND;
        let writer = here::open()?;
        let cells = writer.register(&self.series)?;
        here::extend_shared(writer);
        Ok(M::at(Cells::at(cells)))
    }
}
