//! Reads a process's file: without a lock, a call or a word to the process, at any moment, also after it died.

mod catalog;
mod value;

use std::path::Path;

use catalog::Catalog;

use crate::error::Result;
use crate::identity::Identity;
use crate::layout::{self, header};
use crate::shown::{Metric, Value};
use crate::source::{Budget, Source};

/// A process's file of metrics, opened.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    header: [u64; header::WORDS],
    catalog: Catalog,
}

/// What a process's file says of it, beside its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which process it is.
    pub identity: Identity,
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
    pub has_ended: bool,
    /// When it ended, or was found dead: nanoseconds of `CLOCK_MONOTONIC`; 0 while nobody knows.
    pub ended_ns: u64,
    /// How many series it has.
    pub series: usize,
    /// How many threads have lanes, or had.
    pub lanes: usize,
    /// How often a series found no room: it is missing, or is among `overflow="true"` of its name.
    pub refused: u64,
    /// Records that found no room: they are missing.
    pub lost: u64,
    /// Threads that found no lane of their own.
    pub sharing: u64,
    /// Bytes of memory that the file takes.
    pub bytes: u64,
}

impl Reader {
    /// Opens a file.
    pub fn attach(path: &Path) -> Result<Reader> {
        Reader::open(path, false)
    }

    /// Opens a file as if it were another user's: nothing is mapped, what is read is copied by [`Self::refresh`].
    pub fn attach_copied(path: &Path) -> Result<Reader> {
        Reader::open(path, true)
    }

    fn open(path: &Path, is_copied: bool) -> Result<Reader> {
        let mut source = Source::open(path, is_copied)?;
        let header = source.refresh()?;
        let mut catalog = Catalog::default();
        catalog.extend(&source, &header)?;
        Ok(Reader { source, header, catalog })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Takes note of what was registered since; and copies the values, where the file is somebody else's.
    pub fn refresh(&mut self) -> Result<()> {
        if let Some(now) = self.source.live_header()
            && now[header::LANES_USED] == self.header[header::LANES_USED]
            && !self.catalog.lacks(&now)
        {
            self.header = now;
            return Ok(());
        }
        // What the process may have changed is believed only after it was checked.
        self.header = self.source.refresh()?;
        self.catalog.extend(&self.source, &self.header)
    }

    /// What the file says of its process.
    pub fn process(&self) -> Process {
        let word = |at: usize| self.header[at];
        let text = |at| {
            let text = self.catalog.text(word(at)).unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        Process {
            identity: Identity::of(&self.header),
            uid: word(header::UID) as u32,
            program: text(header::PROGRAM),
            command: text(header::COMMAND),
            created_unix_ns: word(header::CREATED_UNIX) as i64,
            created_ns: word(header::CREATED),
            has_ended: word(header::STATE) == layout::state::ENDED,
            ended_ns: word(header::ENDED),
            series: self.catalog.len(),
            lanes: self.lanes(),
            refused: word(header::REFUSED),
            lost: word(header::LOST),
            sharing: word(header::SHARING),
            bytes: self.source.bytes(),
        }
    }

    /// How many series are known. There are more after [`Self::refresh`], never fewer, and they keep their numbers.
    pub fn len(&self) -> usize {
        self.catalog.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that the process shows, now.
    pub fn metrics(&mut self) -> Result<Vec<Metric>> {
        self.refresh()?;
        let budget = self.source.budget();
        (0..self.len()).map(|at| self.metric_within(&budget, at)).collect()
    }

    /// One series of the process, now.
    pub fn metric(&self, at: usize) -> Result<Metric> {
        self.metric_within(&self.source.budget(), at)
    }

    fn metric_within(&self, budget: &Budget, at: usize) -> Result<Metric> {
        let entry = self.catalog.entry(at);
        // That they are texts was checked when it was noted.
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let labels = entry.labels().unwrap_or_default().into_iter();
        Ok(Metric {
            name: owned(entry.name()),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            unit: owned(entry.unit()),
            help: owned(entry.help()),
            role: entry.role(),
            link: entry.link().and_then(|number| self.catalog.place_of(number)),
            value: self.value_within(budget, at)?,
        })
    }

    /// The series from a place on, now.
    pub fn metrics_from(&self, first: usize) -> Result<Vec<Metric>> {
        let budget = self.source.budget();
        (first..self.len()).map(|at| self.metric_within(&budget, at)).collect()
    }

    /// The values of some series, now: together they may cost no more than all of them.
    pub fn values(&self, places: &[usize]) -> Result<Vec<Value>> {
        let budget = self.source.budget();
        places.iter().map(|&at| self.value_within(&budget, at)).collect()
    }

    /// The name of a series.
    pub fn name(&self, at: usize) -> &str {
        self.catalog.entry(at).name().unwrap_or_default()
    }

    /// The value of a series, now.
    pub fn value(&self, at: usize) -> Result<Value> {
        self.value_within(&self.source.budget(), at)
    }

    /// The counters and up-down gauges among the first `values.len()` series, each modulo 2^64; 0 for what is none of them. The fast way
    /// to see many: those that were registered one after the other are read one after the other.
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
