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
use model::{BatchReader, Gap, SeriesRef};

use crate::error::{Error, Result};
use crate::head::Head;
use crate::index::SeriesNumber;
use crate::inner::StoreInner;
use crate::manifest::ProducerTable;
use crate::mutex::lock;
use crate::point::{PointComparison, PointLookup, is_point};
use crate::quarantine::record_name;
use crate::store::Store;

/// Ingest progress of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestProgress {
    /// All records before this position were read.
    pub position: u64,
    /// All records before this one are in parts.
    pub flushed_position: u64,
    /// What could not be taken in.
    pub rejected: Vec<Gap>,
    /// Records that the journal had lost before they were read; how many is what is lost.
    pub missing: Vec<Gap>,
}

impl IngestProgress {
    /// The positions of records that the journal had lost, of a gap of [`Fed::missing`] that is
    /// about all of them: `None` where gaps were joined, and of a producer's part.
    pub fn positions(gap: &Gap) -> Option<Range<u64>> {
        let records = gap.lost.filter(|_| gap.producer.is_none())?;
        let (count, _) = MISSING_REASONS.iter().find_map(|text| gap.reason.split_once(text))?;
        let (_, first) = gap.reason.rsplit_once(FROM)?;
        let first: u64 = first.strip_suffix(ON)?.parse().ok()?;
        (count.parse() == Ok(records)).then_some(first..first.checked_add(records)?)
    }
}

/// Start of the reason of a gap for a record that the store rejected; the second one is in older
/// manifests.
const REJECTED_REASONS: [&str; 2] =
    ["record rejected by the store", "a record that came from the journal was not taken in"];
/// Part of the reason of a gap for records that the journal lost; the second one is in older
/// manifests.
const MISSING_REASONS: [&str; 2] =
    [" batches lost in the journal: ", " batches missing in the journal: "];
/// What stands around the first position in such a reason.
const FROM: &str = ", from position ";
const ON: &str = " on";

impl Store {
    /// How far the journal was read, after reading all of it that there is, and what of it could
    /// not be taken in: a gap for each record, as long as gaps are not joined.
    pub fn ingest_progress(&self) -> Result<IngestProgress> {
        let inner = self.inner();
        inner.catch_up()?;
        let feed = lock(&inner.feed);
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
            position: feed.position(),
            flushed_position: state.manifest.position,
            rejected: refused,
            missing,
        })
    }
}

/// Why a record is refused that was quarantined.
const QUARANTINED_REASON: &str =
    "work on it panicked again and again; its bytes are kept in the folder quarantine";

/// Work on a record panicked.
struct RecordPanic {
    position: u64,
    message: String,
}

/// How many samples a record has, if they can be counted.
fn count(bytes: &[u8]) -> Option<u64> {
    let entries =
        || BatchReader::new(bytes).ok().map(|entries| entries.map_while(Result::ok).count() as u64);
    catch_panic(entries).ok().flatten()
}

/// Notes a batch; whether it is new, and how many sequences were forgotten for it.
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

    /// Reads the journal until there is no more, or rows in memory take so many bytes; whether
    /// there is more.
    pub(crate) fn read_batch(&self, bytes_max: usize) -> Result<bool> {
        let mut feed = lock(&self.feed);
        loop {
            // A panic anywhere leaves it broken.
            if self.is_feed_interrupted.swap(true, Ordering::Relaxed) {
                self.rebuild(&mut feed)?;
            }
            let read = self.read_with(&mut feed, bytes_max);
            if let Ok(Err(RecordPanic { .. })) = read {
                continue;
            }
            self.is_feed_interrupted.store(false, Ordering::Relaxed);
            return read.map(|more| more.unwrap_or(true));
        }
    }

    fn read_with(
        &self,
        feed: &mut Subscriber,
        bytes_max: usize,
    ) -> Result<Result<bool, RecordPanic>> {
        let unread = self.unread_bytes.load(Ordering::Relaxed);
        while self.count_head_bytes() < bytes_max {
            let Some(item) = feed.next()? else {
                // What was appended meanwhile may have been read too: it counts as unread until the
                // next time.
                self.unread_bytes.fetch_sub(unread, Ordering::Relaxed);
                return Ok(Ok(false));
            };
            let (active, mut stored) = {
                let state = self.state();
                (Arc::clone(&state.active_head), PointLookup::new_at(self, &state))
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
                Ok(Some(missing)) => self.add_warning(format!(
                    "{missing}; what was in them is lost, see the gaps and the audit"
                )),
                Err(panicked) => return Ok(Err(panicked)),
            }
        }
        Ok(Ok(true))
    }

    /// Puts in the place of the head one that is read anew from what is sealed, as far as was read
    /// before. Work on a record panicked: the head may have half of it, and what was counted of it
    /// is not known.
    fn rebuild(&self, feed: &mut Subscriber) -> Result<()> {
        let read_to = feed.position();
        loop {
            let (position, mut producers, mut stored) = {
                let state = self.state();
                let stored = PointLookup::new_at(self, &state);
                match &state.sealing_head {
                    Some(closed) => {
                        (closed.position, ProducerTable::clone(&closed.producers), stored)
                    }
                    None => (state.manifest.position, state.manifest.producers.clone(), stored),
                }
            };
            let mut head = Head::default();
            let mut is_whole = true;
            feed.seek(position)?;
            while is_whole && feed.position() < read_to {
                let Some(item) = feed.next()? else { break };
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

    /// Puts in the place of the head one with only what is durable in the journal, and the feed
    /// behind it. A journal without room for what it has in memory gives room when what it has on
    /// disk is sealed: the rows that leave the head here are read again by whoever reads on.
    pub(crate) fn rewind_feed(&self, feed: &mut Subscriber) -> Result<()> {
        let manifest = Arc::clone(&self.state().manifest);
        let (mut head, mut producers) = (Head::default(), manifest.producers.clone());
        let mut stored = PointLookup::new_at(self, &self.state());
        let read_to = feed.position();
        feed.seek(manifest.position)?;
        feed.set_level(Level::Disk);
        let read = loop {
            match feed.next() {
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
        feed.set_level(Level::Memory);
        if let Err(error) = read {
            // The head is as it was.
            feed.seek(read_to)?;
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
        let bytes = heads.iter().map(bytes).sum();
        self.head_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// Takes an item in; `hear` says of a batch whether it is new. The result says what the journal
    /// has lost, if the item is a gap. After a panic the head is to be rebuilt: half of the record
    /// may be in it.
    fn ingest_item(
        &self,
        head: &mut Head,
        stored: &mut PointLookup<'_>,
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
                    if let Err((lost, why)) = refused {
                        head.gaps.push(Gap {
                            start: batch.times().0,
                            end: batch.times().1,
                            producer,
                            lost,
                            reason: format!("{} (position {position}): {why}", REJECTED_REASONS[0]),
                        });
                    }
                }
                Ok(None)
            }
            ReadItem::Gap(gap) => {
                // If it is not known when that was, it was since the batch before it.
                let (start, end) = match &gap.time {
                    Some(time) => (*time.start(), *time.end()),
                    None => {
                        let (seen, now) =
                            (self.last_append_time.load(Ordering::Relaxed), self.now());
                        (if seen == i64::MIN { now } else { seen.min(now) }, now)
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
                let mut left = gap.records();
                // Whose they were is known of all of a gap, or of none.
                for part in gap.producers.iter().filter(|_| gap.is_complete) {
                    lose(Some(part.producer), part.records.min(left));
                    left = left.saturating_sub(part.records);
                }
                if left > 0 {
                    lose(None, left);
                }
                Ok(Some(reason(gap.records())))
            }
        }
    }

    /// Work on a record panicked: it is tried again, and quarantined at last.
    fn record_panic(&self, position: u64, bytes: &[u8], message: &str) {
        let kept = lock(&self.quarantine).failed_record(position, bytes, message);
        self.add_warning(format!(
            "{} met a defect of topdeck; please report it: {message}",
            record_name(position)
        ));
        if let Err(error) = kept {
            self.add_warning(format!("a quarantined record could not be kept: {error}"));
        }
    }

    /// Takes rows in. Of series that cannot be taken the others are; how many samples were not, if
    /// that is known, and why the first was not.
    fn apply(
        &self,
        head: &mut Head,
        stored: &mut PointLookup<'_>,
        (position, producer): (u64, Option<u64>),
        bytes: &[u8],
    ) -> Result<(), (Option<u64>, String)> {
        let unreadable = |error: model::Error| (None, error.to_string());
        let mut reader = BatchReader::new(bytes).map_err(unreadable)?;
        let (mut group, mut lost, mut why) = (None, 0u64, None);
        for entry in reader.by_ref() {
            let entry = entry.map_err(unreadable)?;
            if entry.starts_group {
                group = match self.number_of(&entry.series, producer) {
                    Ok(group) => Some(group),
                    Err(error) => {
                        why.get_or_insert(error);
                        None
                    }
                };
            }
            match group {
                Some((number, kind)) if is_point(kind, &entry) => {
                    match stored.compare(head, number, kind, &entry) {
                        PointComparison::New => head.add(number, &entry, kind),
                        PointComparison::Same => {}
                        PointComparison::Conflict => {
                            lost = lost.saturating_add(1);
                            let (series, time) = (self.index().id(number), entry.end);
                            why.get_or_insert(Error::ConflictingPoint { series, time });
                        }
                    }
                }
                Some((number, kind)) => head.add(number, &entry, kind),
                None => lost = lost.saturating_add(1),
            }
        }
        head.gaps.extend(reader.gaps().iter().cloned());
        self.supervisor().fault_point(format_args!("store record {position}"));
        why.map_or(Ok(()), |why: Error| Err((Some(lost), why.to_string())))
    }

    fn number_of(
        &self,
        series: &SeriesRef<'_>,
        producer: Option<u64>,
    ) -> Result<(SeriesNumber, model::SeriesKind)> {
        let id = series.id();
        let index = self.index();
        let known = index.number(&id);
        let number = match (known, series) {
            (Some(number), _) => number,
            (None, SeriesRef::Id(id)) => return Err(Error::UnknownSeries { id: *id }),
            (None, SeriesRef::Key(form)) => {
                drop(index);
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                let number = index.insert(form, producer)?;
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
