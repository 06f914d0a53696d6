//! Batch builder for one append.

use std::sync::Arc;

use decode::spans::SpanSummary;
use decode::spans::trace::RawSpan;
use decode::{ExemplarProblem, SeriesSink};
use hist::codec::frame_body::HistogramBody;
use model::{
    BatchWriter, Exemplar, ExemplarSource, Gap, LadderCell, Sample, SampleValue, Series,
    span_sampling_key,
};
use store::{NewSeries, Store};

use crate::exemplar_intake::{ExemplarIntake, ExemplarRejection};
use crate::key_encoding::SeriesKeyEncoding;
use crate::rejections::{Rejection, Rejections};
use crate::series_cache::{CachedSeries, SeriesCache};
use crate::span_bytes::SpanBytes;
use crate::span_ranks::{RankedSpan, RankedSpans};

/// Maximum size of the exemplars of a batch; further ones are rejected. Some 10,000 without
/// attributes.
const BATCH_EXEMPLAR_BYTES_MAX: usize = 1 << 20;

/// Builds a batch from rows; the batch is appended as a whole or not at all.
#[derive(Debug)]
pub struct IngestWriter {
    series_cache: Arc<SeriesCache>,
    pub(crate) batch: BatchWriter,
    /// Series whose canonical key is in the batch.
    pub(crate) new_series: Vec<Arc<CachedSeries>>,
    /// Series that the batch references by id only.
    pub(crate) referenced_series: Vec<Arc<CachedSeries>>,
    /// Number of the key encoding in the cache.
    encoding_id: u8,
    /// Whether series that are in the journal may be referenced by id.
    uses_ids: bool,
    key: Vec<u8>,
    /// Maximum size of a batch; beyond it rows are skipped and the whole batch is rejected.
    bytes_max: usize,
    pub(crate) is_too_large: bool,
    pub(crate) exemplars: Arc<ExemplarIntake>,
    /// Whether a truncation of the last exemplar is to be counted: it was accepted, and is not
    /// counted as truncated yet.
    counts_truncation: bool,
    /// Spans among the exemplars, and numbers of all spans.
    ranked_spans: RankedSpans,
    /// All valid spans, of which some may be kept with their traces.
    pub(crate) spans: SpanBytes,
    /// Measurements: the count of a histogram, 1 for a number or text.
    pub(crate) values: u64,
    admission: Option<SeriesAdmission>,
    /// The rejection of the current series, if its rows are rejected.
    rejected: Option<Rejection>,
    /// Samples beyond a limit of series.
    samples_beyond_limit: u64,
}

/// Enforces the store's series limits.
#[derive(Debug)]
pub(crate) struct SeriesAdmission {
    pub(crate) store: Arc<Store>,
    /// Producer to which new series are attributed.
    pub(crate) producer: u64,
    pub(crate) rejections: Arc<Rejections>,
    new: NewSeries,
    writes_own_gaps: bool,
}

impl SeriesAdmission {
    pub(crate) fn new(
        store: Arc<Store>,
        producer: u64,
        rejections: Arc<Rejections>,
    ) -> SeriesAdmission {
        SeriesAdmission {
            store,
            producer,
            rejections,
            new: NewSeries::default(),
            writes_own_gaps: false,
        }
    }

    /// Returns an error for a series that is invalid for a reason other than a limit.
    fn check_series(&mut self, canonical_key: &[u8]) -> model::Result<Option<Rejection>> {
        match self.store.check_batch(canonical_key, self.producer, &mut self.new) {
            Err(store::Error::Cardinality(refused)) => {
                let series = Series::from_canonical_key(canonical_key)?;
                match Rejection::from_index_error(&refused, series.name()) {
                    Some(rejection) => Ok(Some(rejection)),
                    None => Err(model::Error::SeriesLimit { reason: refused.to_string() }),
                }
            }
            // Errors of the store are reported by the append.
            Ok(()) | Err(_) => Ok(None),
        }
    }
}

impl IngestWriter {
    pub(crate) fn new(
        cache: Arc<SeriesCache>,
        encoding: SeriesKeyEncoding,
        by_id: bool,
        (bytes_max, exemplars): (usize, Arc<ExemplarIntake>),
    ) -> IngestWriter {
        IngestWriter {
            encoding_id: cache.encoding_id(encoding),
            series_cache: cache,
            batch: BatchWriter::default(),
            new_series: Vec::new(),
            referenced_series: Vec::new(),
            uses_ids: by_id,
            key: Vec::new(),
            bytes_max,
            is_too_large: false,
            exemplars,
            counts_truncation: false,
            ranked_spans: RankedSpans::default(),
            spans: SpanBytes::default(),
            values: 0,
            admission: None,
            rejected: None,
            samples_beyond_limit: 0,
        }
    }

    /// Applies a store's limits to new series.
    pub(crate) fn with_admission(self, admission: SeriesAdmission) -> IngestWriter {
        IngestWriter { admission: Some(admission), ..self }
    }

    /// Writes no gaps for rejected samples: the source writes its own gaps.
    pub fn with_own_gaps(mut self) -> IngestWriter {
        if let Some(admission) = &mut self.admission {
            admission.writes_own_gaps = true;
        }
        self
    }

    /// The store whose limits apply.
    pub(crate) fn store(&self) -> Option<Arc<Store>> {
        self.admission.as_ref().map(|admission| Arc::clone(&admission.store))
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.batch.len()
    }

    /// Number of measurements in the samples: the count of a histogram, 1 for a number or text.
    pub fn values(&self) -> u64 {
        self.values
    }

    /// Number of samples of new series beyond a limit, which are counted and reported as a gap.
    pub fn samples_beyond_limit(&self) -> u64 {
        self.samples_beyond_limit
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Memory of spans that wait for the decision on their trace, beside the batch, in bytes.
    pub fn span_memory(&self) -> usize {
        self.spans.memory()
    }

    /// Whether half of the maximum batch size is reached: a source whose rows may be split then
    /// starts another batch.
    pub fn is_half_full(&self) -> bool {
        self.batch.bytes() > self.bytes_max / 2
    }

    /// Leaves out all exemplars if the batch would be too large with them: they never cause the
    /// rejection of samples. An append does so, too. Returns their number.
    pub fn discard_excess_exemplars(&mut self) -> u64 {
        if self.batch.bytes().saturating_add(self.batch.exemplar_bytes()) <= self.bytes_max {
            return 0;
        }
        let discarded = self.batch.discard_exemplars();
        self.exemplars.count_rejected(ExemplarRejection::BatchFull, discarded);
        discarded
    }

    /// The spans among the exemplars of the batch that is appended; decides which of their traces
    /// are kept.
    pub(crate) fn take_ranked_spans(&mut self) -> RankedSpans {
        self.discard_excess_exemplars();
        let mut ranked = std::mem::take(&mut self.ranked_spans);
        if self.batch.exemplar_bytes() == 0 {
            ranked.spans.clear();
        }
        self.spans.kept = self.series_cache.spans.ranks.kept_traces(&mut ranked);
        ranked
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && !self.is_too_large
    }

    /// The series of a key, without a group of the batch: an exemplar names it by its id.
    fn series_of_exemplar(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<Arc<CachedSeries>> {
        self.key.clear();
        self.key.push(self.encoding_id);
        self.key.extend_from_slice(key);
        match self.series_cache.get(&self.key) {
            Some(known) => Ok(known),
            None => {
                let canonical_key = series()?.validate()?.canonical_key();
                Ok(self.series_cache.insert(&self.key, canonical_key))
            }
        }
    }

    /// Whether the next sample of the current series, with its interval, goes into the batch. An
    /// error if the series is rejected.
    fn takes_sample(&mut self, interval: (i64, i64)) -> model::Result<bool> {
        self.is_too_large |= self.batch.bytes() > self.bytes_max;
        if self.is_too_large {
            return Ok(false);
        }
        if let (Some(rejection), Some(admission)) = (&self.rejected, &self.admission) {
            self.samples_beyond_limit = self.samples_beyond_limit.saturating_add(1);
            match admission.writes_own_gaps {
                true => admission.rejections.count(rejection, 1),
                false => admission.rejections.add(admission.producer, rejection, interval),
            }
            return Err(model::Error::SeriesLimit { reason: rejection.message.clone() });
        }
        Ok(true)
    }
}

impl SeriesSink for IngestWriter {
    fn series(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<()> {
        // Stops growing: the whole batch is going to be rejected.
        self.is_too_large |= self.batch.bytes() > self.bytes_max;
        if self.is_too_large {
            return Ok(());
        }
        self.rejected = None;
        self.key.clear();
        self.key.push(self.encoding_id);
        self.key.extend_from_slice(key);
        let known = match self.series_cache.get(&self.key) {
            Some(known) => {
                if let Some(admission) = &mut self.admission
                    && !known.is_registered()
                {
                    self.rejected = admission.check_series(&known.canonical_key)?;
                }
                known
            }
            None => {
                let canonical_key = series()?.validate()?.canonical_key();
                if let Some(admission) = &mut self.admission {
                    self.rejected = admission.check_series(&canonical_key)?;
                    // Samples of a rejected series take no space in the batch.
                    if self.rejected.is_some() {
                        return Ok(());
                    }
                }
                self.series_cache.insert(&self.key, canonical_key)
            }
        };
        if self.rejected.is_some() {
            return Ok(());
        }
        let is_by_id = self.uses_ids && known.is_registered();
        self.batch.series_by_key(&known.canonical_key, is_by_id.then_some(known.id));
        match is_by_id {
            true => self.referenced_series.push(known),
            false => self.new_series.push(known),
        }
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> model::Result<()> {
        if !self.takes_sample((sample.start, sample.end))? {
            return Ok(());
        }
        self.batch.sample(sample)?;
        self.values = self.values.saturating_add(match &sample.value {
            SampleValue::Histogram(histogram) => histogram.count(),
            SampleValue::Number(_) | SampleValue::Text(_) => 1,
        });
        Ok(())
    }

    fn frame(&mut self, interval: (i64, i64), body: &HistogramBody<'_>) -> model::Result<()> {
        if !self.takes_sample(interval)? {
            return Ok(());
        }
        self.batch.frame(interval, body)?;
        self.values = self.values.saturating_add(body.count());
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.batch.gap(gap);
    }

    fn description(&mut self, metric: &str, text: &str) {
        self.series_cache.descriptions.set(metric, text);
    }

    fn exemplar(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
        exemplar: &Exemplar,
    ) -> bool {
        let rejection = if !self.exemplars.is_enabled() {
            ExemplarRejection::Disabled
        } else if self.batch.exemplar_bytes() >= BATCH_EXEMPLAR_BYTES_MAX {
            ExemplarRejection::BatchFull
        } else {
            match self.series_of_exemplar(key, series) {
                Ok(known) => {
                    let (redacted, is_cut) = self.exemplars.redact(exemplar);
                    self.batch.exemplar(known.id, &redacted);
                    if is_cut {
                        self.exemplars.count_problem(ExemplarProblem::Truncated);
                    }
                    self.counts_truncation = !is_cut;
                    if exemplar.source == ExemplarSource::Span {
                        let rank = span_sampling_key(&exemplar.trace_id, &exemplar.span_id);
                        let (time, value) = (exemplar.time, exemplar.value);
                        let ranked = RankedSpan::new(key, time, value, rank);
                        self.ranked_spans.spans.push((ranked, exemplar.trace_id));
                    }
                    return true;
                }
                Err(_) => ExemplarRejection::InvalidSeries,
            }
        };
        self.exemplars.count_rejected(rejection, 1);
        self.counts_truncation = false;
        false
    }

    fn exemplar_problem(&mut self, problem: ExemplarProblem) {
        // It is that of the last exemplar.
        if problem != ExemplarProblem::Truncated || self.counts_truncation {
            self.exemplars.count_problem(problem);
        }
    }

    fn wants_span(&mut self, key: &[u8], time: i64, value: f64, rank: u64) -> bool {
        self.exemplars.is_enabled()
            && self.series_cache.spans.ranks.wants(&RankedSpan::new(key, time, value, rank))
    }

    fn span_counts(&mut self, key: &[u8], time: i64, counts: &[(LadderCell, u64)]) {
        if self.exemplars.is_enabled() {
            self.ranked_spans.count(key, time, counts);
        }
    }

    fn admits_span_name(&mut self, service: &str, namespace: &str, name: &str) -> bool {
        self.series_cache.spans.admits_name(service, namespace, name)
    }

    fn span(&mut self, span: &RawSpan<'_>, root: Option<LadderCell>) {
        if self.exemplars.is_enabled() && self.series_cache.spans.traces.is_enabled() {
            self.spans.push(span, root);
        }
    }

    fn count_spans(&mut self, summary: &SpanSummary) {
        self.series_cache.spans.count(summary);
    }
}
