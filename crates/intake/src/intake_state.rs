//! State shared by the intake's threads: producers, accepted counts, the append path.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use journal::log::LogLevel;
use journal::{Ack, BatchIdentity, Level};
use model::{Batch, BatchSeries, SeriesId};

use crate::absence_monitor::AbsenceMonitor;
use crate::acknowledged_damage::AcknowledgedDamage;
use crate::audit::{Audit, AuditInputs, DownstreamStage, SourceCounts};
use crate::batch_outcomes::{BatchOutcomes, IdentityRejections};
use crate::counts::{self, ProducerCounts};
use crate::error::{Error, Result};
use crate::exemplar_intake::{ExemplarIntake, ExemplarRejection};
use crate::group_commit::{GroupCommit, PendingAck};
use crate::ingest_writer::{IngestWriter, SeriesAdmission};
use crate::key_encoding::SeriesKeyEncoding;
use crate::known_keys::{KEYS_MAX, KeyCheck, KnownKeys, ProducerKey};
use crate::last_sequences::LastSequences;
use crate::ledger::{Ledger, PRODUCERS_MAX};
use crate::ledger_reader::LedgerReader;
use crate::meter::{LatencyHistogram, Meter};
use crate::producer::Producer;
use crate::rejected_input::RejectedInputs;
use crate::rejections::{Rejection, Rejections};
use crate::series_cache::SeriesCache;
use crate::settings::Settings;
use crate::space_monitor::SpaceMonitor;
use crate::trace_buffer::{SpanFailure, TraceBuffer};
use crate::write_target::WriteTarget;

/// Producer of the own metrics.
pub(crate) const SELF_PRODUCER: &str = "topdeck";
/// Duration of one wait for the batch that records the unclean shutdown.
const GAP_DURABLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a batch behind other batches of its producer that wait for journal space.
const APPEND_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of producers with separate accepted counts in this process; beyond it, producers
/// without a ledger entry are counted together.
const ACCEPTED_PRODUCERS_MAX: usize = 4 * PRODUCERS_MAX;

/// State shared by the intake's threads.
#[derive(Debug)]
pub(crate) struct IntakeState {
    pub(crate) target: WriteTarget,
    pub(crate) settings: Settings,
    pub(crate) epoch: u64,
    pub(crate) started_at: i64,
    pub(crate) producers: Mutex<HashMap<String, Producer>>,
    /// Accepted counts since the start of the process, by producer.
    pub(crate) accepted: Mutex<BTreeMap<Option<u64>, ProducerCounts>>,
    /// Last accepted sequence of each producer epoch.
    pub(crate) sequences: Mutex<LastSequences>,
    pub(crate) known_keys: KnownKeys,
    pub(crate) acknowledged_damage: AcknowledgedDamage,
    pub(crate) identity_rejections: IdentityRejections,
    pub(crate) series_cache: Arc<SeriesCache>,
    pub(crate) rejections: Arc<Rejections>,
    pub(crate) rejected_inputs: RejectedInputs,
    pub(crate) logged_unit_conflicts: Mutex<BTreeSet<String>>,
    pub(crate) exemplars: Arc<ExemplarIntake>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) space: Arc<SpaceMonitor>,
    pub(crate) absence: AbsenceMonitor,
    pub(crate) group_commit: GroupCommit,
    pub(crate) ledger_reader: LedgerReader,
    pub(crate) stages: Mutex<Vec<(String, Arc<dyn DownstreamStage>)>>,
    pub(crate) warnings: Mutex<Vec<String>>,
    pub(crate) outcomes: BatchOutcomes,
    pub(crate) append_latency: LatencyHistogram,
    /// Pending acknowledgement of the batch that records the unclean shutdown, until it is durable.
    pub(crate) shutdown_gap_receipt: Mutex<Option<PendingAck>>,
    /// Whether data was lost at shutdown; only the next start can record it.
    pub(crate) is_unclean: AtomicBool,
    /// Maximum size of a batch, in bytes.
    pub(crate) batch_bytes_max: usize,
    /// Stop flag of the housekeeping thread.
    pub(crate) stop: (Mutex<bool>, Condvar),
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a producer for an append. If other batches of the producer wait for journal space, the
/// wait is short and ends in a retryable error.
fn lock_sequence(sequence: &Mutex<u64>) -> Result<MutexGuard<'_, u64>> {
    let until = Instant::now() + APPEND_LOCK_TIMEOUT;
    loop {
        match sequence.try_lock() {
            Ok(sequence) => return Ok(sequence),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(50));
            }
            Err(TryLockError::WouldBlock) => {
                let reason =
                    "other batches of this producer wait for space in the journal".to_owned();
                return Err(Error::Full { reason, retry_after: Duration::from_secs(1) });
            }
        }
    }
}

/// Maximum size of a batch: a quarter of a journal segment.
pub(crate) fn batch_bytes_max(home: &WriteTarget) -> usize {
    let segment = home.journal().stat().map_or(u64::MAX, |stat| stat.settings.segment_bytes);
    usize::try_from(segment / 4).unwrap_or(usize::MAX)
}

impl IntakeState {
    pub(crate) fn producer(&self, name: &str) -> Producer {
        let mut producers = lock(&self.producers);
        if let Some(producer) = producers.get(name) {
            return producer.clone();
        }
        // Distinct from numbers of other journals, whose batches may be appended here too.
        let mut bytes = self.target.journal().id().to_le_bytes().to_vec();
        bytes.extend_from_slice(name.as_bytes());
        let hash = SeriesId::from_canonical_key(&bytes);
        let id = u64::from_le_bytes(*hash.0.first_chunk().expect("BUG: a hash has 16 bytes"));
        let producer = Producer::new(name, id);
        if name == SELF_PRODUCER {
            // This process writes it in the thread that would notice its absence.
            producer.disable_absence_monitor();
        }
        self.ledger_reader.set_name(id, name);
        producers.insert(name.to_owned(), producer.clone());
        producer
    }

    pub(crate) fn writer(&self, encoding: SeriesKeyEncoding) -> IngestWriter {
        let by_id = self.target.store().is_some();
        let limits = (self.batch_bytes_max, Arc::clone(&self.exemplars));
        IngestWriter::new(Arc::clone(&self.series_cache), encoding, by_id, limits)
    }

    pub(crate) fn writer_for(&self, producer: u64, encoding: SeriesKeyEncoding) -> IngestWriter {
        let writer = self.writer(encoding);
        match self.target.store() {
            // An agent has no limits: the remote applies its limits to forwarded batches.
            None => writer,
            Some(store) => {
                let (store, rejections) = (Arc::clone(store), Arc::clone(&self.rejections));
                writer.with_admission(SeriesAdmission::new(store, producer, rejections))
            }
        }
    }

    pub(crate) fn append(&self, producer: &Producer, writer: IngestWriter) -> Result<PendingAck> {
        self.absence.record_from(producer, (self.settings.clock)());
        let mut sequence = lock_sequence(&producer.0.sequence)?;
        // A sequence is never reused, even if the outcome of its batch is unknown: otherwise the
        // next batch could be dropped as a duplicate.
        *sequence += 1;
        let identity =
            BatchIdentity { producer: producer.id(), epoch: self.epoch, sequence: *sequence };
        self.append_written(identity, writer)
    }

    pub(crate) fn append_written(
        &self,
        identity: BatchIdentity,
        mut writer: IngestWriter,
    ) -> Result<PendingAck> {
        let ranked = writer.take_ranked_spans();
        let IngestWriter {
            new_series: told,
            referenced_series: named,
            mut batch,
            values,
            is_too_large,
            mut spans,
            ..
        } = writer;
        if is_too_large {
            self.outcomes.rejected.add(1);
            let (found, max) = (batch.bytes() as u64, self.batch_bytes_max as u64);
            return Err(Error::TooLarge { size: found, max });
        }
        let (traces, now) = (&self.series_cache.spans.traces, (self.settings.clock)());
        if traces.has_work(&spans) && self.target.flush_backlog().is_some() {
            // The batch is refused below.
            traces.pause(now);
        }
        let left = self.batch_bytes_max.saturating_sub(batch.bytes() + batch.exemplar_bytes());
        let room = TraceBuffer::room(left, self.batch_bytes_max);
        let mut taken = traces.take(&mut spans, room, now);
        let filter =
            |name: &str, value: &dyn Fn() -> String| self.exemplars.span_action(name, value);
        traces.write(&mut taken, &spans, (&filter, left - left / 8), &mut batch);
        let batch = batch.finish();
        let counts = ProducerCounts {
            batches: 1,
            samples: batch.samples(),
            values,
            ..ProducerCounts::default()
        };
        let mut is_dropped = false;
        let append = || {
            let (ack, without_sections) = match self.target.append(identity, &batch) {
                // The store does not know a series any more: the batch is sent with canonical keys.
                Err(store::Error::UnknownSeries { .. }) => {
                    self.series_cache.clear();
                    let keys = named.iter().map(|it| (it.id, it.canonical_key.to_vec()));
                    let keys: HashMap<SeriesId, Vec<u8>> = keys.collect();
                    let full_batch = batch.with_canonical_keys(&mut |id| keys.get(&id).cloned())?;
                    self.target.append(identity, &full_batch)?
                }
                done => done?,
            };
            is_dropped = without_sections;
            Ok(ack)
        };
        let appended = self.append_counted(batch.bytes().len(), identity.producer, &counts, append);
        let failure = match &appended {
            Ok(ack) if ack.is_duplicate() => Some(SpanFailure::Refused),
            Ok(_) => is_dropped.then_some(SpanFailure::Stripped),
            Err(Error::TooLarge { .. }) => Some(SpanFailure::TooLarge),
            Err(_) => Some(SpanFailure::Refused),
        };
        match failure {
            None => traces.commit(&taken, spans, now),
            Some(why) => traces.put_back(taken, spans, why, now),
        }
        if appended.as_ref().is_err_and(Error::is_retryable) {
            traces.pause(now);
        }
        let pending_ack = appended?;
        // A duplicate is not in the journal, and the canonical keys in it need not be either.
        if !pending_ack.is_duplicate() {
            self.exemplars.count_appended(batch.exemplars(), is_dropped);
            told.iter().for_each(|known| known.set_registered());
            // Spans that the store does not keep must displace no others.
            if !is_dropped {
                self.series_cache.spans.ranks.record(&ranked, now);
            }
        }
        Ok(pending_ack)
    }

    pub(crate) fn append_encoded(
        &self,
        identity: BatchIdentity,
        name: &str,
        batch: &Batch,
    ) -> Result<PendingAck> {
        if self.target.store().is_none()
            && let Some(id) = counts::first_by_id(batch)
        {
            self.outcomes.rejected.add(1);
            return Err(model::Error::UnknownSeries { id }.into());
        }
        let within = self.enforce_series_limits(identity.producer, batch)?;
        let batch = within.as_ref().unwrap_or(batch);
        let (without, disabled) = self.exemplars.without_disabled(batch)?;
        let batch = without.as_ref().unwrap_or(batch);
        let (counts, _) = counts::count_batch(batch.bytes())?;
        let mut is_dropped = false;
        let append = || {
            let (ack, without_sections) = self.target.append(identity, batch)?;
            is_dropped = without_sections;
            Ok(ack)
        };
        let pending_ack =
            self.append_counted(batch.bytes().len(), identity.producer, &counts, append)?;
        if !pending_ack.is_duplicate() {
            self.exemplars.count_appended(batch.exemplars(), is_dropped);
            self.exemplars.count_rejected(ExemplarRejection::Disabled, disabled);
        }
        if !name.is_empty() {
            self.ledger_reader.set_name(identity.producer, name);
        }
        Ok(pending_ack)
    }

    pub(crate) fn repeated(&self) -> PendingAck {
        self.outcomes.duplicate.add(1);
        self.receipt_of_all()
    }

    /// Pending acknowledgement of all batches in the journal; none of them is the caller's.
    pub(crate) fn receipt_of_all(&self) -> PendingAck {
        self.group_commit.pending_ack(
            self.target.journal().watermarks().end,
            0,
            self.settings.level,
            true,
        )
    }

    /// Returns an error if a sequence is too far ahead of the last one of its producer's epoch.
    pub(crate) fn check_sequence(&self, identity: BatchIdentity, max: u64) -> Result<()> {
        let BatchIdentity { producer, epoch, sequence: found } = identity;
        let known = lock(&self.sequences).of(producer, epoch);
        let Some(last) = known.max(self.ledger_reader.last_sequence(producer, epoch)) else {
            return Ok(());
        };
        if found.saturating_sub(last) <= max {
            return Ok(());
        }
        self.identity_rejections.sequences.add(1);
        let error = Error::SequenceJump { producer, last, sequence: found, max };
        self.add_audit_warning(error.to_string());
        Err(error)
    }

    pub(crate) fn record_sequence(&self, identity: BatchIdentity) {
        lock(&self.sequences).remember(identity);
    }

    pub(crate) fn check_key(
        &self,
        producer: u64,
        legacy_producer: u64,
        name: &str,
        key: Option<&ProducerKey>,
    ) -> Result<()> {
        let now = (self.settings.clock)();
        match self.known_keys.check(producer, legacy_producer, name, key, now) {
            Ok(KeyCheck::Match | KeyCheck::New) => Ok(()),
            Ok(KeyCheck::Replaced(evicted)) => {
                self.add_audit_warning(format!(
                    "producer {evicted:016x} is not bound to its key any more: its token has most \
                     of the {KEYS_MAX} keys that are remembered, and producer {producer:016x} \
                     ({name}) of another token has its place"
                ));
                Ok(())
            }
            Ok(KeyCheck::TableFull) => {
                let reason = format!("limit of bound producers ({KEYS_MAX}) reached");
                self.add_audit_warning(format!(
                    "producer {producer:016x} ({name}) is not bound to its key: {reason}"
                ));
                Ok(())
            }
            Err(error) => {
                if let Error::Forbidden(reason) = &error {
                    self.identity_rejections.keys.add(1);
                    self.add_audit_warning(reason.clone());
                }
                Err(error)
            }
        }
    }

    /// The batch without new series beyond a limit, with gaps in their place; `None` if it has no
    /// such series.
    pub(crate) fn enforce_series_limits(
        &self,
        producer: u64,
        batch: &Batch,
    ) -> Result<Option<Batch>> {
        let Some(store) = self.target.store() else { return Ok(None) };
        let mut new = store::NewSeries::default();
        let mut rejected: HashMap<SeriesId, Rejection> = HashMap::new();
        for entry in batch.read() {
            let entry = entry?;
            let BatchSeries::Key(canonical_key) = entry.series else { continue };
            if !entry.starts_group {
                continue;
            }
            if let Err(store::Error::Cardinality(refused)) =
                store.check_batch(canonical_key, producer, &mut new)
            {
                let series = model::Series::from_canonical_key(canonical_key)?;
                let rejection = Rejection::from_index_error(&refused, series.name())
                    .ok_or_else(|| Error::Rejected(refused.to_string()))?;
                rejected.insert(series.id(), rejection);
            }
        }
        if rejected.is_empty() {
            return Ok(None);
        }
        let mut gaps: BTreeMap<String, model::Gap> = BTreeMap::new();
        let mut keep = |series: &BatchSeries<'_>| !rejected.contains_key(&series.id());
        let mut left_out = |entry: &model::BatchEntry<'_>| {
            let Some(rejection) = rejected.get(&entry.series.id()) else { return };
            self.rejections.count(rejection, 1);
            let gap = rejection.gap(producer, (entry.start, entry.end), 0);
            let gap = gaps.entry(gap.reason.clone()).or_insert(gap);
            gap.lost = gap.lost.map(|lost| lost.saturating_add(1));
            (gap.start, gap.end) = (gap.start.min(entry.start), gap.end.max(entry.end));
        };
        let left = batch.filter_series(&mut keep, &mut left_out)?;
        Ok(Some(left.with_gaps(gaps.into_values())))
    }

    /// Writes rejections to the journal and the log.
    pub(crate) fn report_rejected(&self, all: bool) {
        use decode::SeriesSink as _;
        let gaps = self.rejections.take_due_gaps(Instant::now(), all);
        if gaps.is_empty() {
            return;
        }
        let mut writer = self.writer(SeriesKeyEncoding::CANONICAL);
        for gap in &gaps {
            let samples = gap.lost.unwrap_or(0);
            let name = gap
                .producer
                .map_or_else(|| "several".to_owned(), |id| self.ledger_reader.producer_name(id));
            let line = format!("producer {name}: {} ({samples} samples)", gap.reason);
            (self.settings.log)(LogLevel::Warn, &line);
            writer.gap(gap.clone());
        }
        if let Err(error) = self.append(&self.producer(SELF_PRODUCER), writer) {
            self.rejections.requeue_gaps(gaps);
            self.add_audit_warning(format!("cannot report rejected samples yet: {error}"));
        }
    }

    pub(crate) fn append_counted(
        &self,
        bytes: usize,
        producer: u64,
        counts: &ProducerCounts,
        append: impl FnOnce() -> Result<Ack, store::Error>,
    ) -> Result<PendingAck> {
        let level = self.settings.level;
        let size = bytes;
        let bytes = if level == Level::Disk { bytes as u64 } else { 0 };
        let appended = self.check_backlog(bytes).and_then(|()| {
            let began = Instant::now();
            let appended = append();
            self.append_latency.record(began.elapsed());
            appended.map_err(|error| {
                self.group_commit.release(bytes);
                if let store::Error::Journal(journal::Error::Full(reason)) = &error {
                    self.space.record_refusal(size, &reason.to_string());
                }
                Error::from(error)
            })
        });
        let appended = appended.map_err(|error| self.space.without_retry_at_stop(error));
        let ack = appended.inspect_err(|error| match error.is_retryable() {
            true => self.outcomes.deferred.add(1),
            false => self.outcomes.rejected.add(1),
        })?;
        match ack.is_duplicate {
            true => self.outcomes.duplicate.add(1),
            false => {
                self.space.record_accepted(size);
                self.outcomes.accepted.add(1);
                self.count_accepted(producer, counts);
            }
        }
        Ok(self.group_commit.pending_ack(ack.positions.end, bytes, level, ack.is_duplicate))
    }

    pub(crate) fn check_backlog(&self, bytes: u64) -> Result<()> {
        if let Some(backlog) = self.target.flush_backlog() {
            let (reason, retry_after) = (backlog.to_string(), backlog.retry_after());
            self.space.record_refusal(0, &reason);
            return Err(Error::Full { reason, retry_after });
        }
        self.group_commit.reserve(bytes, self.settings.in_flight_bytes_max)
    }

    /// Beyond the maximum, producers without a ledger entry are counted together.
    pub(crate) fn count_accepted(&self, producer: u64, counts: &ProducerCounts) {
        let mut accepted = lock(&self.accepted);
        if accepted.len() > ACCEPTED_PRODUCERS_MAX && !accepted.contains_key(&Some(producer)) {
            *accepted = as_listed(std::mem::take(&mut *accepted), &self.ledger_reader.ledger());
        }
        accepted.entry(Some(producer)).or_default().add(counts);
    }

    /// Writes the own metrics as of `end`.
    pub(crate) fn write_self_metrics(&self, end: i64) -> Result<()> {
        let mut writer = self.writer(SeriesKeyEncoding::CANONICAL);
        self.meter.write_rows(self.started_at.min(end), end, &mut writer)?;
        // No wait for durability.
        self.append(&self.producer(SELF_PRODUCER), writer).map(drop)
    }

    /// Writes the gaps of the unclean shutdown to the journal; retried later after a failure.
    pub(crate) fn report_unclean_shutdown(&self) {
        use decode::SeriesSink as _;
        let gaps = self.ledger_reader.unclean_shutdown_gaps();
        if gaps.is_empty() {
            return;
        }
        let mut writer = self.writer(SeriesKeyEncoding::CANONICAL);
        gaps.into_iter().for_each(|gap| writer.gap(gap));
        let mut telling = lock(&self.shutdown_gap_receipt);
        if telling.is_none() {
            match self.append(&self.producer(SELF_PRODUCER), writer) {
                Ok(pending_ack) => *telling = Some(pending_ack),
                Err(error) => self
                    .add_audit_warning(format!("cannot record the unclean shutdown yet: {error}")),
            }
        }
        // A full journal may take long; other callers must not wait for it.
        match telling
            .as_ref()
            .and_then(|pending_ack| pending_ack.wait_durable_timeout(GAP_DURABLE_TIMEOUT))
        {
            Some(Ok(())) => self.ledger_reader.clear_unclean_shutdown(),
            Some(Err(error)) => {
                self.add_audit_warning(format!("cannot record the unclean shutdown yet: {error}"));
                *telling = None;
            }
            None => {}
        }
    }

    /// Records that the journal lost before the store read them. The ledger keeps their counts.
    pub(crate) fn keep_damaged(&self, progress: &store::IngestProgress) {
        let damaged =
            progress.missing.iter().filter_map(store::IngestProgress::positions).collect();
        self.ledger_reader.keep_damaged(damaged);
    }

    pub(crate) fn checkpoint_ledger(&self, is_closed: bool) -> Result<()> {
        self.ledger_reader.read_new()?;
        if let Some(store) = self.target.store() {
            match store.ingest_progress() {
                Ok(fed) => self.keep_damaged(&fed),
                Err(error) => self.add_audit_warning(format!(
                    "cannot determine the losses of the store: {error}"
                )),
            }
        }
        self.report_unclean_shutdown();
        self.report_rejected(is_closed);
        self.ledger_reader.save(is_closed && !self.is_unclean.load(Ordering::Relaxed))
    }

    /// Why new data finds no space.
    pub(crate) fn space_problem(&self) -> Option<String> {
        let journal = self.target.journal();
        if journal.is_full()
            && let Ok(stat) = journal.stat()
            && let Some(reason) = stat.full_reason
        {
            return Some(reason.to_string());
        }
        self.space.recent_refusal()
    }

    /// Adds a warning to the audit.
    pub(crate) fn add_audit_warning(&self, note: String) {
        const WARNINGS_MAX: usize = 16;
        let mut notes = lock(&self.warnings);
        if !notes.contains(&note) {
            if notes.len() == WARNINGS_MAX {
                notes.remove(0);
            }
            notes.push(note);
        }
    }

    pub(crate) fn audit(&self) -> Result<Audit> {
        let journal = self.target.journal();
        if let Err(error) = journal.flush(Level::Disk) {
            self.add_audit_warning(format!("the last accepted batches are not durable: {error}"));
        }
        self.ledger_reader.read_new()?;
        let ledger = self.ledger_reader.ledger();
        let accepted = as_listed(lock(&self.accepted).clone(), &ledger);
        let end = journal.watermarks().end;
        let source = |producer: &Producer| {
            let (received, dropped) = producer.counts();
            let values = accepted.get(&Some(producer.id())).map_or(0, |counts| counts.values);
            // For sources that do not count received values, all received values are counted here.
            let known = dropped.iter().fold(values, |sum, (_, n)| sum.saturating_add(*n));
            let last_problem = self.rejected_inputs.problem(producer.id());
            let received = received.max(known);
            let source = SourceCounts { received, accepted: values, dropped, last_problem };
            (producer.id(), (producer.name().to_owned(), source))
        };
        let sources = model::sort::map(lock(&self.producers).values().map(source));
        let stages = lock(&self.stages).clone();
        let fed = self.target.store().map(|store| store.ingest_progress()).transpose()?;
        fed.iter().for_each(|fed| self.keep_damaged(fed));
        let sums =
            |gap: &model::Gap| self.ledger_reader.sums(&store::IngestProgress::positions(gap)?);
        let lost = fed.iter().flat_map(|fed| &fed.missing).map(sums).collect();
        let facts = AuditInputs {
            previous: self.ledger_reader.previous().clone(),
            store: fed,
            lost,
            stages: stages.into_iter().map(|(name, stage)| (name, stage.ledger())).collect(),
            warnings: self
                .ledger_reader
                .warnings()
                .iter()
                .chain(lock(&self.warnings).iter())
                .cloned()
                .collect(),
            process_started_at: self.started_at,
            ledger,
            accepted,
            end,
            sources,
        };
        Ok(facts.reconcile())
    }
}

/// Counts by producer, with one shared entry for producers without a ledger entry.
fn as_listed(
    accepted: BTreeMap<Option<u64>, ProducerCounts>,
    ledger: &Ledger,
) -> BTreeMap<Option<u64>, ProducerCounts> {
    let mut listed: BTreeMap<Option<u64>, ProducerCounts> = BTreeMap::new();
    for (producer, counts) in accepted {
        let producer = producer.filter(|producer| ledger.entries().contains_key(producer));
        listed.entry(producer).or_default().add(&counts);
    }
    listed
}
