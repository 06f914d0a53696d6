//! Batches of the samples of a Prometheus block.

use anyhow::Result;
use decode::SeriesSink;
use model::{BatchWriter, Gap, Sample, SampleValue, Series};

use crate::batch_output::BatchOutput;
use crate::import_batches::{BATCH_BYTES, ImportSummary};

/// Sink that writes batches, whose boundaries depend only on the samples.
pub(crate) struct BlockBatchSink<'a> {
    output: BatchOutput<'a>,
    batch: BatchWriter,
    /// Series of the following samples, and its key.
    series: Option<Series>,
    key: Vec<u8>,
    /// Kinds of samples of the series in the block so far: the first bytes of its keys.
    kinds: Vec<u8>,
    /// Whether the batch has a group of that series.
    is_open: bool,
    /// Counts of the batch.
    pending: ImportSummary,
    error: Option<anyhow::Error>,
}

impl<'a> BlockBatchSink<'a> {
    pub(crate) fn new(output: BatchOutput<'a>) -> BlockBatchSink<'a> {
        BlockBatchSink {
            output,
            batch: BatchWriter::default(),
            series: None,
            key: Vec::new(),
            kinds: Vec::new(),
            is_open: false,
            pending: ImportSummary::default(),
            error: None,
        }
    }

    fn finish_batch(&mut self) {
        let (batch, pending) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.pending));
        self.is_open = false;
        if batch.is_empty() || self.error.is_some() {
            return;
        }
        if let Err(error) = self.output.push(&batch.finish(), pending) {
            self.error = Some(error);
        }
    }

    /// Whether a batch could not be written; later samples are ignored.
    pub(crate) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    pub(crate) fn finish(mut self) -> Result<ImportSummary> {
        self.finish_batch();
        match self.error {
            Some(error) => Err(error),
            None => self.output.finish(),
        }
    }
}

impl SeriesSink for BlockBatchSink<'_> {
    fn series(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<()> {
        if self.series.is_none() || self.key != key {
            self.series = None;
            self.series = Some(series()?);
            if self.key.get(1..) != key.get(1..) {
                self.kinds.clear();
            }
            if !self.kinds.contains(&key[0]) {
                self.kinds.push(key[0]);
                self.pending.series += 1;
            }
            self.key = key.to_owned();
            self.is_open = false;
        }
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> model::Result<()> {
        let Some(series) = &self.series else { return Ok(()) };
        if !self.is_open {
            self.batch.series(series);
            self.is_open = true;
        }
        self.batch.sample(sample)?;
        match &sample.value {
            SampleValue::Histogram(histogram) => {
                let is_cumulative = series.kind().is_cumulative();
                self.pending.add_histogram(is_cumulative, histogram.count());
            }
            SampleValue::Number(_) => self.pending.numbers += 1,
            SampleValue::Text(_) => self.pending.texts += 1,
        }
        self.pending.extend_range(sample.start, sample.end);
        if self.batch.bytes() >= BATCH_BYTES {
            self.finish_batch();
        }
        Ok(())
    }

    fn gap(&mut self, _: Gap) {}
}
