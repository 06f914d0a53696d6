//! The second reading of a file: into the store, in batches with an identity.
//!
//! A batch is cut where the readings in it are many or large enough, which depends on the file alone. So the
//! batches of the same contents are the same, and the store knows those that it has by number and sequence.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::ops::ControlFlow;

use anyhow::{Context as _, Result};
use collect::{Format, Over, Reading, Sink, Trouble, Value};
use journal::{Identity, Level};
use model::{BatchWriter, Sample, Series, SeriesId};
use store::Store;

use crate::hist::whole::Numbers;
use crate::import::look::Looked;
use crate::import::place::Rules;
use crate::import::source::{self, Source};
use crate::journal::progress::Progress;

/// Bytes in a batch, roughly: a quarter of what a record of a journal may have, and enough that waiting for the
/// disk at the end of each costs little.
const BATCH_BYTES: usize = 1 << 20;
/// How batches are cut. Another way of cutting is another number: it would not know what this way left.
const CUT: u64 = 1;
/// Rows in memory take about this much at the most before they are sealed.
const HEAD_BYTES_MAX: u64 = 128 << 20;
/// Batches between two looks at how much memory is taken.
const BATCHES_BETWEEN: u64 = 8;

/// What went in. Of batches that were in the store already, only their number.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    pub(crate) batches: u64,
    pub(crate) repeated: u64,
    pub(crate) series: u64,
    pub(crate) histograms: u64,
    /// In the histograms. A cumulative histogram counts with what its source had counted since its start.
    pub(crate) values: u64,
    pub(crate) numbers: u64,
    pub(crate) texts: u64,
    pub(crate) extent: Option<(i64, i64)>,
}

/// Reads all of it into the store.
pub(crate) fn fill(
    store: &Store,
    source: &Source,
    format: Format,
    rules: &Rules<'_>,
    looked: &Looked,
    progress: &mut Progress,
) -> Result<Filled> {
    let name = source.name();
    let cannot = || format!("cannot read {name}");
    let (input, _) = source.read()?;
    let mut input = Watched { input: input.take(looked.bytes), bytes: 0, looked, progress };
    let mut taker = Taker {
        store,
        rules,
        format,
        producer: looked.number,
        numbers: Numbers::new(&[]),
        groups: Vec::new(),
        places: HashMap::new(),
        cost: 0,
        known: HashSet::new(),
        filled: Filled::default(),
        failed: None,
    };
    let (head, _) = source::detect(&mut input, Some(format)).with_context(cannot)?;
    source::read(&head, &mut input, format, rules.unit, &mut taker).with_context(cannot)?;
    taker.finish().with_context(|| {
        format!("{name}: not all of it is imported; import it again, and it goes on where it was")
    })
}

/// Puts readings together, series by series, until they are a batch.
struct Taker<'a> {
    store: &'a Store,
    rules: &'a Rules<'a>,
    format: Format,
    producer: u64,
    numbers: Numbers,
    groups: Vec<(Series, Vec<Sample>)>,
    places: HashMap<Series, usize>,
    cost: usize,
    known: HashSet<SeriesId>,
    filled: Filled,
    failed: Option<anyhow::Error>,
}

impl Taker<'_> {
    fn add(&mut self, reading: Reading) {
        if self.failed.is_some() {
            return;
        }
        // What cannot be placed was told before.
        let Ok((series, sample)) = self.rules.place(reading, self.format) else { return };
        self.cost += cost(&sample);
        match self.places.get(&series) {
            Some(&at) => self.groups[at].1.push(sample),
            None => {
                self.cost += series.form().len();
                self.places.insert(series.clone(), self.groups.len());
                self.groups.push((series, vec![sample]));
            }
        }
        if self.cost >= BATCH_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if let Err(error) = self.put() {
            self.failed.get_or_insert(error);
        }
        self.groups.clear();
        self.places.clear();
        self.cost = 0;
    }

    fn put(&mut self) -> Result<()> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let mut batch = BatchWriter::default();
        for (series, samples) in &self.groups {
            batch.series(series);
            samples.iter().try_for_each(|sample| batch.sample(sample))?;
        }
        self.filled.batches += 1;
        let sequence = self.filled.batches;
        let identity = Identity { producer: self.producer, boot: CUT, sequence };
        let ack = self.store.ingest(Some(identity), &batch.finish(), Level::Disk)?;
        if ack.repeated {
            self.filled.repeated += 1;
        } else {
            self.count();
        }
        let is_due = self.filled.batches.is_multiple_of(BATCHES_BETWEEN);
        if is_due && self.store.stat()?.head_bytes > HEAD_BYTES_MAX {
            self.store.seal()?;
        }
        Ok(())
    }

    fn count(&mut self) {
        let filled = &mut self.filled;
        for (series, samples) in &self.groups {
            if self.known.insert(series.id()) {
                filled.series += 1;
            }
            for Sample { start, end, value } in samples {
                match value {
                    model::Value::Histogram(histogram) => {
                        filled.histograms += 1;
                        filled.values = filled.values.saturating_add(histogram.count());
                    }
                    model::Value::Number(_) => filled.numbers += 1,
                    model::Value::Text(_) => filled.texts += 1,
                }
                let (first, last) = filled.extent.unwrap_or((*start, *end));
                filled.extent = Some((first.min(*start), last.max(*end)));
            }
        }
    }

    fn finish(mut self) -> Result<Filled> {
        if let Some(histogram) = self.numbers.take() {
            self.add(Reading {
                metric: String::new(),
                labels: Vec::new(),
                unit: self.rules.numbers_unit(),
                start: None,
                end: None,
                over: Over::Interval,
                value: Value::Histogram(Box::new(histogram)),
            });
        }
        self.cut();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.filled),
        }
    }
}

/// Bytes that a sample is taken for: what it is in a batch, roughly, or more.
fn cost(sample: &Sample) -> usize {
    const TIMES: usize = 24;
    TIMES
        + match &sample.value {
            model::Value::Histogram(histogram) => {
                48 + 2 * (histogram.positive().len() + histogram.negative().len())
            }
            model::Value::Number(_) => 8,
            model::Value::Text(text) => text.len(),
        }
}

impl Sink for Taker<'_> {
    #[inline]
    fn number(&mut self, value: f64) {
        self.numbers.record(value);
    }

    fn reading(&mut self, reading: Reading) {
        self.add(reading);
    }

    fn skipped(&mut self, _: &'static str) {}

    fn trouble(&mut self, _: Trouble) -> ControlFlow<()> {
        match self.failed {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    }
}

/// An input that shows how far it has been read.
struct Watched<'a> {
    input: io::Take<Box<dyn Read + 'a>>,
    bytes: u64,
    looked: &'a Looked,
    progress: &'a mut Progress,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        // The second of two readings.
        self.progress.bar(self.looked.bytes + self.bytes, 2 * self.looked.bytes);
        Ok(read)
    }
}
