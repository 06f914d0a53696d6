//! Journal reader of the store: ingest, deduplication, rejected records.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use journal::supervisor::catch_panic;
use journal::{BatchIdentity, Level, ReadItem, Subscriber};
use model::{BatchReader, BatchSeries, Gap};

use crate::error::{Error, Result};
use crate::gauge_histogram::{GaugeHistogramComparison, GaugeHistogramLookup, is_gauge_histogram};
use crate::head::Head;
use crate::index::SeriesNumber;
use crate::inner::StoreInner;
use crate::manifest::ProducerTable;
use crate::mutex::lock;
use crate::quarantine::record_name;
use crate::store::Store;

/// Ingest progress of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestProgress {
    /// All records before this position have been read.
    pub position: u64,
    /// All records before this position are in parts.
    pub flushed_position: u64,
    /// Rejected records.
    pub rejected: Vec<Gap>,
    /// Records that the journal lost before they were read; each gap's count is the number of
    /// records.
    pub missing: Vec<Gap>,
}

impl IngestProgress {
    /// Positions of the records that the journal lost, from a gap of [`IngestProgress::missing`]
    /// that covers all of them; `None` for merged gaps and for one producer's share.
    pub fn positions(gap: &Gap) -> Option<Range<u64>> {
        let records = gap.lost.filter(|_| gap.producer.is_none())?;
        let (count, _) = MISSING_REASONS.iter().find_map(|text| gap.reason.split_once(text))?;
        let (_, first) = gap.reason.rsplit_once(FROM)?;
        let first: u64 = first.strip_suffix(ON)?.parse().ok()?;
        (count.parse() == Ok(records)).then_some(first..first.checked_add(records)?)
    }
}

/// Start of the reason of a gap for a rejected record; the second text is in older manifests.
const REJECTED_REASONS: [&str; 2] =
    ["record rejected by the store", "a record that came from the journal was not taken in"];
/// Part of the reason of a gap for lost journal records; the second text is in older manifests.
const MISSING_REASONS: [&str; 2] =
    [" batches lost in the journal: ", " batches missing in the journal: "];
/// Text before the first position in such a reason.
const FROM: &str = ", from position ";
const ON: &str = " on";

impl Store {
    /// Reads the journal to its end. Returns the progress and one gap per rejected record, unless
    /// gaps were merged.
    pub fn ingest_progress(&self) -> Result<IngestProgress> {
        let inner = self.inner();
        inner.catch_up()?;
        let subscriber = lock(&inner.subscriber);
        let state = inner.state();
        let mut gaps = state.manifest.gaps.clone();
        for head in state.heads() {
            let head = head.read().unwrap_or_else(PoisonError::into_inner);
            gaps.extend(head.gaps.iter().cloned());
        }
        let of = |is: &dyn Fn(&str) -> bool| -> Vec<Gap> {
            gaps.iter().filter(|gap| is(&gap.reason)).cloned().collect()
        };
        let is_rejected =
            |reason: &str| REJECTED_REASONS.iter().any(|text| reason.starts_with(text));
        let is_missing = |reason: &str| MISSING_REASONS.iter().any(|text| reason.contains(text));
        let refused = of(&is_rejected);
        let missing = of(&|reason| is_missing(reason) && !is_rejected(reason));
        Ok(IngestProgress {
            position: subscriber.position(),
            flushed_position: state.manifest.position,
            rejected: refused,
            missing,
        })
    }
}

/// Reason of the gap for a quarantined record.
const QUARANTINED_REASON: &str =
    "processing panicked repeatedly; the record is saved in directory quarantine";

/// Processing of a record panicked.
struct RecordPanic {
    position: u64,
    message: String,
}

/// Number of samples of a record, if they can be counted.
fn count(bytes: &[u8]) -> Option<u64> {
    let entries =
        || BatchReader::new(bytes).ok().map(|entries| entries.map_while(Result::ok).count() as u64);
    catch_panic(entries).ok().flatten()
}

/// Records a batch. Returns whether it is new, and the number of evicted sequences.
fn record_batch(
    producers: &mut ProducerTable,
    identity: BatchIdentity,
    position: u64,
) -> (bool, u64) {
    match producers.contains(identity) {
        true => (false, 0),
        false => (true, producers.record(identity, position)),
    }
}

impl StoreInner {
    pub(crate) fn catch_up(&self) -> Result<()> {
        self.read_batch(usize::MAX).map(|_| ())
    }

    /// Reads the journal to its end, or until rows in memory take `bytes_max`; returns whether more
    /// is left.
    pub(crate) fn read_batch(&self, bytes_max: usize) -> Result<bool> {
        let mut subscriber = lock(&self.subscriber);
        loop {
            // Stays set if anything below panics.
            if self.is_reading_interrupted.swap(true, Ordering::Relaxed) {
                self.rebuild(&mut subscriber)?;
            }
            let read = self.read_with(&mut subscriber, bytes_max);
            if let Ok(Err(RecordPanic { .. })) = read {
                continue;
            }
            self.is_reading_interrupted.store(false, Ordering::Relaxed);
            return read.map(|more| more.unwrap_or(true));
        }
    }

    fn read_with(
        &self,
        subscriber: &mut Subscriber,
        bytes_max: usize,
    ) -> Result<Result<bool, RecordPanic>> {
        let unread = self.unread_bytes.load(Ordering::Relaxed);
        while self.count_head_bytes() < bytes_max {
            let Some(item) = subscriber.next()? else {
                // Records appended in the meantime may have been read too; they count as unread
                // until the next call.
                self.unread_bytes.fetch_sub(unread, Ordering::Relaxed);
                return Ok(Ok(false));
            };
            let (active, mut stored) = {
                let state = self.state();
                (Arc::clone(&state.active_head), GaugeHistogramLookup::new_at(self, &state))
            };
            let mut head = active.write().unwrap_or_else(PoisonError::into_inner);
            let taken =
                self.ingest_item(&mut head, &mut stored, item, &mut |identity, position| {
                    let (is_new, evicted) =
                        record_batch(&mut lock(&self.producers), identity, position);
                    self.evicted_sequences.fetch_add(evicted, Ordering::Relaxed);
                    is_new
                });
            drop(head);
            match taken {
                Ok(None) => {}
                Ok(Some(missing)) => {
                    self.add_warning(format!("{missing}; their data is lost, see gaps and audit"))
                }
                Err(panicked) => return Ok(Err(panicked)),
            }
        }
        Ok(Ok(true))
    }

    /// Rebuilds the head from the flushed state up to the previous read position. Processing of a
    /// record panicked: the head may hold half of the record, and counts are unreliable.
    fn rebuild(&self, subscriber: &mut Subscriber) -> Result<()> {
        let read_to = subscriber.position();
        loop {
            let (position, mut producers, mut stored) = {
                let state = self.state();
                let stored = GaugeHistogramLookup::new_at(self, &state);
                match &state.immutable_head {
                    Some(closed) => {
                        (closed.position, ProducerTable::clone(&closed.producers), stored)
                    }
                    None => (state.manifest.position, state.manifest.producers.clone(), stored),
                }
            };
            let mut head = Head::default();
            let mut is_whole = true;
            subscriber.seek(position)?;
            while is_whole && subscriber.position() < read_to {
                let Some(item) = subscriber.next()? else { break };
                let mut hear =
                    |identity, position| record_batch(&mut producers, identity, position).0;
                is_whole = self.ingest_item(&mut head, &mut stored, item, &mut hear).is_ok();
            }
            if is_whole {
                self.state().active_head = Arc::new(RwLock::new(head));
                *lock(&self.producers) = producers;
                return Ok(());
            }
        }
    }

    /// Replaces the head by one with only the records that are durable in the journal, and rewinds
    /// the reader. A journal whose buffer is full gets space when its durable part is flushed; the
    /// rows dropped from the head here are read again later.
    pub(crate) fn rewind_subscriber(&self, subscriber: &mut Subscriber) -> Result<()> {
        let manifest = Arc::clone(&self.state().manifest);
        let (mut head, mut producers) = (Head::default(), manifest.producers.clone());
        let mut stored = GaugeHistogramLookup::new_at(self, &self.state());
        let read_to = subscriber.position();
        subscriber.seek(manifest.position)?;
        subscriber.set_level(Level::Disk);
        let read = loop {
            match subscriber.next() {
                Ok(Some(item)) => {
                    let mut hear =
                        |identity, position| record_batch(&mut producers, identity, position).0;
                    let taken = self.ingest_item(&mut head, &mut stored, item, &mut hear);
                    if let Err(RecordPanic { position, message }) = taken {
                        let doing = format!("reading {}", record_name(position));
                        break Err(Error::MaintenancePanicked {
                            action: doing,
                            message,
                            seconds: 1,
                        });
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        subscriber.set_level(Level::Memory);
        if let Err(error) = read {
            // The head is unchanged.
            subscriber.seek(read_to)?;
            return Err(error);
        }
        let mut state = self.state();
        state.active_head = Arc::new(RwLock::new(head));
        *lock(&self.producers) = producers;
        Ok(())
    }

    pub(crate) fn count_head_bytes(&self) -> usize {
        let heads = self.state().heads();
        let bytes =
            |head: &Arc<RwLock<Head>>| head.read().unwrap_or_else(PoisonError::into_inner).bytes();
        let bytes = heads.iter().map(bytes).sum::<usize>();
        let bytes = bytes.saturating_add(lock(&self.traces).head_bytes());
        self.head_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// Ingests an item; `hear` tells whether a batch is new. Returns the journal's loss if the item
    /// is a gap. After a panic the head must be rebuilt: it may hold half of the record.
    fn ingest_item(
        &self,
        head: &mut Head,
        stored: &mut GaugeHistogramLookup<'_>,
        item: ReadItem<'_>,
        hear: &mut dyn FnMut(BatchIdentity, u64) -> bool,
    ) -> Result<Option<String>, RecordPanic> {
        match item {
            ReadItem::Batch(batch) => {
                self.last_append_time.store(batch.times().1, Ordering::Relaxed);
                for record in batch.records() {
                    if record.identity.is_some_and(|identity| !hear(identity, record.position)) {
                        continue;
                    }
                    let position = record.position;
                    let producer = record.identity.map(|identity| identity.producer);
                    let apply = || self.apply(head, stored, (position, producer), record.bytes);
                    let is_quarantined = lock(&self.quarantine).has_record(position);
                    let refused = match is_quarantined {
                        true => Err((count(record.bytes), QUARANTINED_REASON.to_owned())),
                        false => catch_panic(apply).map_err(|message| {
                            self.record_panic(position, record.bytes, &message);
                            RecordPanic { position, message }
                        })?,
                    };
                    if let Err((lost, cause)) = refused {
                        head.gaps.push(Gap {
                            start: batch.times().0,
                            end: batch.times().1,
                            producer,
                            lost,
                            reason: format!(
                                "{} (position {position}): {cause}",
                                REJECTED_REASONS[0]
                            ),
                        });
                    }
                }
                Ok(None)
            }
            ReadItem::Gap(gap) => {
                // If the time of the loss is unknown, it is after the batch before it.
                let (start, end) = match &gap.time {
                    Some(time) => (*time.start(), *time.end()),
                    None => {
                        let (last_time, now) =
                            (self.last_append_time.load(Ordering::Relaxed), self.now());
                        (if last_time == i64::MIN { now } else { last_time.min(now) }, now)
                    }
                };
                let reason = |records: u64| {
                    let first = gap.positions.start;
                    format!("{records}{}{}{FROM}{first}{ON}", MISSING_REASONS[0], gap.reason)
                };
                let mut lose = |producer: Option<u64>, records: u64| {
                    let (lost, reason) = (Some(records), reason(records));
                    head.gaps.push(Gap { start, end, producer, lost, reason });
                };
                let mut remaining = gap.records();
                // The producers are known for all of a gap or for none of it.
                for part in gap.producers.iter().filter(|_| gap.is_complete) {
                    lose(Some(part.producer), part.records.min(remaining));
                    remaining = remaining.saturating_sub(part.records);
                }
                if remaining > 0 {
                    lose(None, remaining);
                }
                Ok(Some(reason(gap.records())))
            }
        }
    }

    /// Processing of a record panicked: retry, then quarantine.
    fn record_panic(&self, position: u64, bytes: &[u8], message: &str) {
        let outcome = lock(&self.quarantine).failed_record(position, bytes, message);
        self.add_warning(format!(
            "{} panicked, please report this bug: {message}",
            record_name(position)
        ));
        if let Err(error) = outcome {
            self.add_warning(format!("cannot save a quarantined record: {error}"));
        }
    }

    /// Ingests rows. Rows of accepted series are stored even if others are rejected. Returns the
    /// number of rejected samples, if known, and the first reason.
    fn apply(
        &self,
        head: &mut Head,
        stored: &mut GaugeHistogramLookup<'_>,
        (position, producer): (u64, Option<u64>),
        bytes: &[u8],
    ) -> Result<(), (Option<u64>, String)> {
        let unreadable = |error: model::Error| (None, error.to_string());
        let mut reader = BatchReader::new(bytes).map_err(unreadable)?;
        let (mut group, mut lost, mut reason) = (None, 0u64, None);
        for entry in reader.by_ref() {
            let entry = entry.map_err(unreadable)?;
            if entry.starts_group {
                group = match self.number_of(&entry.series, producer) {
                    Ok(group) => Some(group),
                    Err(error) => {
                        reason.get_or_insert(error);
                        None
                    }
                };
            }
            match group {
                Some((number, kind)) if is_gauge_histogram(kind, &entry) => {
                    match stored.compare(head, number, kind, &entry) {
                        GaugeHistogramComparison::New => head.add(number, &entry, kind),
                        GaugeHistogramComparison::Same => {}
                        GaugeHistogramComparison::Conflict => {
                            lost = lost.saturating_add(1);
                            let (series, time) = (self.index().id(number), entry.end);
                            reason.get_or_insert(Error::ConflictingGaugeHistogram { series, time });
                        }
                    }
                }
                Some((number, kind)) => head.add(number, &entry, kind),
                None => lost = lost.saturating_add(1),
            }
        }
        head.gaps.extend(reader.gaps().iter().cloned());
        self.offer_exemplars(&reader).map_err(unreadable)?;
        let received = self.last_append_time.load(Ordering::Relaxed);
        self.offer_traces(&reader, (position, received)).map_err(unreadable)?;
        self.supervisor().failpoint(format_args!("store record {position}"));
        reason.map_or(Ok(()), |reason: Error| Err((Some(lost), reason.to_string())))
    }

    fn number_of(
        &self,
        series: &BatchSeries<'_>,
        producer: Option<u64>,
    ) -> Result<(SeriesNumber, model::SeriesKind)> {
        let id = series.id();
        let index = self.index();
        let known = index.number(&id);
        let number = match (known, series) {
            (Some(number), _) => {
                if let Some(producer) = producer
                    && !index.has_producer(number, producer)
                {
                    drop(index);
                    let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                    index.add_producer(number, producer);
                    return Ok((number, index.kind(number)));
                }
                number
            }
            (None, BatchSeries::Id(id)) => return Err(Error::UnknownSeries { id: *id }),
            (None, BatchSeries::Key(key)) => {
                drop(index);
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                let number = index.insert_as(id, key, producer)?;
                let kind = index.kind(number);
                return Ok((number, kind));
            }
        };
        let kind = index.kind(number);
        Ok((number, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_a_gap_are_known_in_manifests_of_any_version() {
        let gap = |reason: &str| Gap {
            start: 0,
            end: 0,
            producer: None,
            lost: Some(3),
            reason: reason.to_owned(),
        };
        for reason in [
            "3 batches lost in the journal: damaged, from position 7 on",
            "3 batches missing in the journal: damaged, from position 7 on",
        ] {
            assert_eq!(IngestProgress::positions(&gap(reason)), Some(7..10), "{reason}");
        }
        assert_eq!(IngestProgress::positions(&gap("3 batches of others")), None);
    }
}
