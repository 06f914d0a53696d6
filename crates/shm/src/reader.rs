//! Metrics file reader: lock-free, without cooperation of the process, also after its end.

mod catalog;
mod value;

use std::path::Path;

use catalog::Catalog;

use crate::error::Result;
use crate::identity::ProcessIdentity;
use crate::layout::{self, header};
use crate::metric_snapshot::{MetricValue, ProcessSeries};
use crate::source::{FileSource, ReadBudget};

/// Open metrics file of a process.
#[derive(Debug)]
pub struct MetricsFileReader {
    source: FileSource,
    header: [u64; header::WORDS],
    catalog: Catalog,
}

/// Process description in its metrics file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Identity of the process.
    pub identity: ProcessIdentity,
    /// User id.
    pub uid: u32,
    /// Executable.
    pub program: String,
    /// Command line.
    pub command: String,
    /// Creation time of the file: nanoseconds since the Unix epoch.
    pub created_unix_ns: i64,
    /// Creation time of the file: nanoseconds of `CLOCK_MONOTONIC`.
    pub created_ns: u64,
    /// Whether the process exited by itself.
    pub has_exited: bool,
    /// Time at which the process exited, or was found terminated: nanoseconds of
    /// `CLOCK_MONOTONIC`; 0 if unknown.
    pub ended_ns: u64,
    /// Number of series.
    pub series: usize,
    /// Number of lanes that have been used.
    pub lanes: usize,
    /// Series rejected for lack of space: missing, or counted under `overflow="true"` of their
    /// name.
    pub rejected_series: u64,
    /// Values lost for lack of space.
    pub lost_values: u64,
    /// Threads that found no lane of their own.
    pub shared_lane_threads: u64,
    /// Memory of the file in bytes.
    pub bytes: u64,
}

impl MetricsFileReader {
    /// Opens a file.
    pub fn attach(path: &Path) -> Result<MetricsFileReader> {
        MetricsFileReader::open(path, false)
    }

    /// Opens a file as if it belonged to another user: it is not mapped; [`Self::refresh`] copies
    /// it.
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

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Reads new registrations, and copies the values if the file is not mapped.
    pub fn refresh(&mut self) -> Result<()> {
        if let Some(now) = self.source.live_header()
            && now[header::LANES_USED] == self.header[header::LANES_USED]
            && !self.catalog.is_stale_for(&now)
        {
            self.header = now;
            return Ok(());
        }
        // The process may have changed the header: it is checked again before use.
        self.header = self.source.refresh()?;
        self.catalog.extend(&self.source, &self.header)
    }

    /// Description of the process.
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
            has_exited: word(header::STATE) == layout::state::EXITED,
            ended_ns: word(header::ENDED),
            series: self.catalog.len(),
            lanes: self.lanes(),
            rejected_series: word(header::REJECTED_SERIES),
            lost_values: word(header::LOST_VALUES),
            shared_lane_threads: word(header::SHARED_LANE_THREADS),
            bytes: self.source.bytes(),
        }
    }

    /// Number of known series. [`Self::refresh`] only adds series; they keep their indexes.
    pub fn len(&self) -> usize {
        self.catalog.len()
    }

    /// Whether there are no series.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Current values of all series.
    pub fn metrics(&mut self) -> Result<Vec<ProcessSeries>> {
        self.refresh()?;
        let budget = self.source.budget();
        (0..self.len()).map(|at| self.metric_within(&budget, at)).collect()
    }

    /// Current value of one series, with its description.
    pub fn metric(&self, at: usize) -> Result<ProcessSeries> {
        self.metric_within(&self.source.budget(), at)
    }

    fn metric_within(&self, budget: &ReadBudget, at: usize) -> Result<ProcessSeries> {
        let entry = self.catalog.entry(at);
        // The catalog checked that the texts are valid.
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let labels = entry.labels().unwrap_or_default().into_iter();
        Ok(ProcessSeries {
            name: owned(entry.name()),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            unit: owned(entry.unit()),
            help: owned(entry.help()),
            role: entry.role(),
            related_metric: entry.related_entry().and_then(|number| self.catalog.index_of(number)),
            value: self.value_within(budget, at)?,
        })
    }

    /// Current values of the series from an index on.
    pub fn metrics_from(&self, first: usize) -> Result<Vec<ProcessSeries>> {
        let budget = self.source.budget();
        (first..self.len()).map(|at| self.metric_within(&budget, at)).collect()
    }

    /// Current values of some series. Together they may read as many bytes as one read of all
    /// series: the limit protects from files whose contents are forged.
    pub fn values(&self, places: &[usize]) -> Result<Vec<MetricValue>> {
        let budget = self.source.budget();
        places.iter().map(|&at| self.value_within(&budget, at)).collect()
    }

    /// Name of a series.
    pub fn name(&self, at: usize) -> &str {
        self.catalog.entry(at).name().unwrap_or_default()
    }

    /// Current value of a series.
    pub fn value(&self, at: usize) -> Result<MetricValue> {
        self.value_within(&self.source.budget(), at)
    }

    /// Counters and up-down counters among the first `values.len()` series, each modulo 2^64; 0 for
    /// other kinds. The fast way to read many: series registered consecutively are read in one
    /// pass.
    pub fn counts(&self, values: &mut [u64]) -> Result<()> {
        // Lane 0 is that of all threads without a lane of their own.
        let lanes = (0..self.lanes()).filter(|&lane| lane > 0 || self.source.uses_shared_lane());
        let lanes: Vec<_> =
            lanes.map(|lane| (lane, self.source.reserved_small_cells(lane))).collect();
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
                self.source.add_small_cells(lane, run.small, &mut values[..have], is_first)?;
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
