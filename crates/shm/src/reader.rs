//! Metrics file reader: lock-free, without cooperation of the process, also after its exit.

mod catalog;
mod value;

use std::path::Path;

use catalog::Catalog;

use crate::error::Result;
use crate::identity::ProcessIdentity;
use crate::layout::{self, header};
use crate::metric_snapshot::{MetricValue, ProcessMetric};
use crate::source::{FileSource, ReadBudget};

/// A process's file of metrics, opened.
#[derive(Debug)]
pub struct MetricsFileReader {
    source: FileSource,
    header: [u64; header::WORDS],
    catalog: Catalog,
}

/// Process description in its metrics file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Which process it is.
    pub identity: ProcessIdentity,
    /// Whose it is.
    pub uid: u32,
    /// The file of its program.
    pub program: String,
    /// Its command line.
    pub command: String,
    /// When the file was made: nanoseconds since 1970.
    pub created_unix_ns: i64,
    /// When the file was made: nanoseconds of `CLOCK_MONOTONIC`.
    pub created_ns: u64,
    /// Whether it said goodbye.
    pub has_exited: bool,
    /// When it ended, or was found dead: nanoseconds of `CLOCK_MONOTONIC`; 0 while nobody knows.
    pub ended_ns: u64,
    /// How many series it has.
    pub series: usize,
    /// How many threads have lanes, or had.
    pub lanes: usize,
    /// How often a series found no room: it is missing, or is among `overflow="true"` of its name.
    pub rejected_series: u64,
    /// Records that found no room: they are missing.
    pub lost_records: u64,
    /// Threads that found no lane of their own.
    pub shared_lane_threads: u64,
    /// Bytes of memory that the file takes.
    pub bytes: u64,
}

impl MetricsFileReader {
    /// Opens a file.
    pub fn attach(path: &Path) -> Result<MetricsFileReader> {
        MetricsFileReader::open(path, false)
    }

    /// Opens a file as if it were another user's: nothing is mapped, what is read is copied by
    /// [`Self::refresh`].
    pub fn attach_copy(path: &Path) -> Result<MetricsFileReader> {
        MetricsFileReader::open(path, true)
    }

    fn open(path: &Path, is_copied: bool) -> Result<MetricsFileReader> {
        let mut source = FileSource::open(path, is_copied)?;
        let header = source.refresh()?;
        let mut catalog = Catalog::default();
        catalog.extend(&source, &header)?;
        Ok(MetricsFileReader { source, header, catalog })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Takes note of what was registered since; and copies the values, where the file is somebody
    /// else's.
    pub fn refresh(&mut self) -> Result<()> {
        if let Some(now) = self.source.live_header()
            && now[header::LANES_USED] == self.header[header::LANES_USED]
            && !self.catalog.is_stale_for(&now)
        {
            self.header = now;
            return Ok(());
        }
        // What the process may have changed is believed only after it was checked.
        self.header = self.source.refresh()?;
        self.catalog.extend(&self.source, &self.header)
    }

    /// What the file says of its process.
    pub fn process(&self) -> ProcessInfo {
        let word = |at: usize| self.header[at];
        let text = |at| {
            let text = self.catalog.text(word(at)).unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        ProcessInfo {
            identity: ProcessIdentity::from_header(&self.header),
            uid: word(header::UID) as u32,
            program: text(header::PROGRAM),
            command: text(header::COMMAND),
            created_unix_ns: word(header::CREATED_UNIX) as i64,
            created_ns: word(header::CREATED),
            has_exited: word(header::STATE) == layout::state::ENDED,
            ended_ns: word(header::ENDED),
            series: self.catalog.len(),
            lanes: self.lanes(),
            rejected_series: word(header::REFUSED),
            lost_records: word(header::LOST),
            shared_lane_threads: word(header::SHARING),
            bytes: self.source.bytes(),
        }
    }

    /// How many series are known. There are more after [`Self::refresh`], never fewer, and they
    /// keep their numbers.
    pub fn len(&self) -> usize {
        self.catalog.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that the process shows, now.
    pub fn metrics(&mut self) -> Result<Vec<ProcessMetric>> {
        self.refresh()?;
        let budget = self.source.budget();
        (0..self.len()).map(|at| self.metric_within(&budget, at)).collect()
    }

    /// One series of the process, now.
    pub fn metric(&self, at: usize) -> Result<ProcessMetric> {
        self.metric_within(&self.source.budget(), at)
    }

    fn metric_within(&self, budget: &ReadBudget, at: usize) -> Result<ProcessMetric> {
        let entry = self.catalog.entry(at);
        // That they are texts was checked when it was noted.
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let labels = entry.labels().unwrap_or_default().into_iter();
        Ok(ProcessMetric {
            name: owned(entry.name()),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            unit: owned(entry.unit()),
            help: owned(entry.help()),
            role: entry.role(),
            related_metric: entry.related_entry().and_then(|number| self.catalog.index_of(number)),
            value: self.value_within(budget, at)?,
        })
    }

    /// The series from a place on, now.
    pub fn metrics_from(&self, first: usize) -> Result<Vec<ProcessMetric>> {
        let budget = self.source.budget();
        (first..self.len()).map(|at| self.metric_within(&budget, at)).collect()
    }

    /// The values of some series, now: together they may cost no more than all of them.
    pub fn values(&self, places: &[usize]) -> Result<Vec<MetricValue>> {
        let budget = self.source.budget();
        places.iter().map(|&at| self.value_within(&budget, at)).collect()
    }

    /// The name of a series.
    pub fn name(&self, at: usize) -> &str {
        self.catalog.entry(at).name().unwrap_or_default()
    }

    /// The value of a series, now.
    pub fn value(&self, at: usize) -> Result<MetricValue> {
        self.value_within(&self.source.budget(), at)
    }

    /// The counters and up-down gauges among the first `values.len()` series, each modulo 2^64; 0
    /// for what is none of them. The fast way to see many: those that were registered one after the
    /// other are read one after the other.
    pub fn counts(&self, values: &mut [u64]) -> Result<()> {
        let lanes = (0..self.lanes()).filter(|&lane| lane > 0 || self.source.is_shared());
        let lanes: Vec<_> = lanes.map(|lane| (lane, self.source.small_reserved(lane))).collect();
        let mut done = 0;
        for run in self.catalog.runs() {
            let end = (run.first + run.count).min(values.len());
            if run.first >= end {
                break;
            }
            values[done..run.first].fill(0);
            done = end;
            let values = &mut values[run.first..end];
            let mut is_first = true;
            for &(lane, reserved) in &lanes {
                let have = (reserved.saturating_sub(run.small) / 8).min(values.len());
                if is_first {
                    values[have..].fill(0);
                }
                self.source.add_small(lane, run.small, &mut values[..have], is_first)?;
                is_first = false;
            }
            if is_first {
                values.fill(0);
            }
        }
        values[done..].fill(0);
        Ok(())
    }

    fn lanes(&self) -> usize {
        self.header[header::LANES_USED] as usize
    }
}
