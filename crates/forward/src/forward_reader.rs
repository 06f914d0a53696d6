//! Forward reader: journal records to forward requests.
//!
//! A request ends with the journal frame in which it reaches [`REQUEST_BYTES_MAX`]: resuming inside
//! a frame would require reading its segment from the start.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use intake::{CountedRecord, WriteTarget};
use journal::supervisor::catch_panic;
use journal::{Level, ReadItem, Subscriber};
use model::{
    Batch, BatchReader, BatchSeries, BatchWriter, FORWARD_REQUEST_BYTES_MAX, ForwardRequestWriter,
    Gap, SeriesId,
};

use net::signature::Signer;

use crate::dead_letter_dir::{DeadLetter, DeadLetterDir};
use crate::encoded_request::{
    EncodedRequest, EntryKind, LedgerUpdate, RequestBuilder, RequestEntry,
};
use crate::error::Result;
use crate::remote_progress::RemoteProgress;

/// Uncompressed size at which a request is complete.
const REQUEST_BYTES_MAX: usize = 3 << 20;
/// Limit of batches per request.
const BATCHES_MAX: u32 = 1 << 14;

/// A batch rejected by the remote, with the reason.
#[derive(Clone, Debug)]
pub(crate) struct RejectedBatch {
    pub(crate) sequence: u64,
    pub(crate) reason: String,
}

/// Reads the records a remote lacks and builds requests.
#[derive(Debug)]
pub(crate) struct ForwardReader {
    subscriber: Subscriber,
    target: WriteTarget,
    remote: String,
    journal: u128,
    dead_letters: DeadLetterDir,
    progress: Arc<RemoteProgress>,
    rejected: Option<RejectedBatch>,
    omits_sections: bool,
    /// Time up to which all records were read. A gap of unknown time begins here.
    last_gap_time: i64,
}

impl ForwardReader {
    /// Starts reading at the ledger's position.
    pub(crate) fn open(
        target: &WriteTarget,
        remote: &str,
        name: &str,
        dead_letters: DeadLetterDir,
        ledger: &Arc<RemoteProgress>,
    ) -> Result<ForwardReader> {
        let journal = target.journal().id();
        let mut subscriber = target.journal().subscribe(name)?;
        subscriber.set_level(Level::Disk);
        let last_time = subscriber.checkpoint().committed_at;
        match subscriber.seek(ledger.position()) {
            // Records dropped since are reported as a gap when reading resumes at the earlier
            // position.
            Err(journal::Error::PositionOutOfRange { found, first, .. }) if found < first => {}
            sought => sought?,
        }
        Ok(ForwardReader {
            subscriber,
            target: target.clone(),
            remote: remote.to_owned(),
            journal,
            dead_letters,
            progress: Arc::clone(ledger),
            rejected: None,
            omits_sections: false,
            last_gap_time: last_time,
        })
    }

    pub(crate) fn position(&self) -> u64 {
        self.progress.position()
    }

    /// Marks a batch: when it is read again, it becomes a dead letter and a gap is sent in its
    /// place.
    pub(crate) fn dead_letter(&mut self, rejected: RejectedBatch) {
        self.rejected = Some(rejected);
    }

    /// Leaves exemplars and traces out of all batches from now on.
    pub(crate) fn omit_sections(&mut self) {
        self.omits_sections = true;
    }

    /// Saves the ledger of the remote and advances its subscriber, which releases the records.
    pub(crate) fn save(&mut self, now: i64) -> Result<()> {
        let position = self.progress.save(now)?.min(self.subscriber.position());
        // If a power failure loses the commit, the ledger takes precedence.
        Ok(self.subscriber.commit(position, Level::Process)?)
    }

    /// Next request; `None` if no records arrive in time.
    pub(crate) fn next(
        &mut self,
        now: i64,
        timeout: Duration,
        signer: &Signer,
    ) -> Result<Option<EncodedRequest>> {
        if self.progress.should_save() {
            self.save(now)?;
        }
        let load = self.pack(now, signer)?;
        if load.is_some() || !self.subscriber.wait(Some(timeout))? {
            return Ok(load);
        }
        self.pack(now, signer)
    }

    fn pack(&mut self, now: i64, signer: &Signer) -> Result<Option<EncodedRequest>> {
        let mut request = RequestBuilder::new(self.journal);
        while request.writer.bytes() < REQUEST_BYTES_MAX && request.writer.len() < BATCHES_MAX {
            let (subscriber, rest) = (
                &mut self.subscriber,
                PackContext {
                    target: &self.target,
                    journal: self.journal,
                    remote: &self.remote,
                    dead_letters: &self.dead_letters,
                    rejected: self.rejected.as_ref(),
                    omits_sections: self.omits_sections,
                },
            );
            let Some(item) = subscriber.next()? else { break };
            let mut full = None;
            match item {
                ReadItem::Gap(gap) => {
                    request.set_oldest(self.last_gap_time);
                    for gap in
                        split_gap(&gap, self.progress.position(), self.progress.unacknowledged())
                    {
                        let (batch, end) = encode_gap(&gap, self.last_gap_time, now);
                        request.push(gap_entry(gap), &batch);
                        self.last_gap_time = self.last_gap_time.max(end);
                    }
                }
                ReadItem::Batch(batch) => {
                    request.set_oldest(batch.times().0);
                    for record in batch.records() {
                        let ready = rest.prepare_or_dead_letter(&record, batch.times())?;
                        if request.writer.bytes_with(ready.batch.len()) > FORWARD_REQUEST_BYTES_MAX
                        {
                            full = Some(record.position);
                            break;
                        }
                        let entry = RequestEntry {
                            sequence: record.position + 1,
                            records: 1,
                            samples: ready.samples,
                            kind: ready.entry_kind,
                            bytes: record.bytes.len() as u64,
                            ledger_update: LedgerUpdate::Record(ready.counted_record),
                        };
                        request.push(entry, &ready.batch);
                    }
                    self.last_gap_time = batch.times().1;
                }
            }
            if let Some(position) = full {
                self.subscriber.seek(position)?;
                break;
            }
        }
        if request.writer.is_empty() { Ok(None) } else { request.finish(signer).map(Some) }
    }
}

/// Batch ready to be sent.
struct OutgoingBatch<'a> {
    batch: Cow<'a, [u8]>,
    samples: u64,
    entry_kind: EntryKind,
    counted_record: CountedRecord,
}

/// Partially decoded batch.
#[derive(Debug)]
struct DecodedBatch {
    samples: u64,
    /// Time range.
    times: Option<(i64, i64)>,
    /// Some series are referenced by id only.
    has_ids: bool,
    has_sections: bool,
}

impl DecodedBatch {
    /// Decodes a batch except for its values.
    fn decode(bytes: &[u8]) -> model::Result<DecodedBatch> {
        let mut contents =
            DecodedBatch { samples: 0, times: None, has_ids: false, has_sections: false };
        let mut reader = BatchReader::new(bytes)?;
        for entry in reader.by_ref() {
            let entry = entry?;
            contents.samples += 1;
            contents.has_ids |= matches!(entry.series, BatchSeries::Id(_));
            let (start, end) = contents.times.unwrap_or((entry.start, entry.end));
            contents.times = Some((start.min(entry.start), end.max(entry.end)));
        }
        contents.has_sections =
            reader.exemplars().next().is_some() || reader.traces().next().is_some();
        Ok(contents)
    }
}

/// Packing context, separate from the subscriber it borrows from.
struct PackContext<'a> {
    target: &'a WriteTarget,
    journal: u128,
    remote: &'a str,
    dead_letters: &'a DeadLetterDir,
    rejected: Option<&'a RejectedBatch>,
    omits_sections: bool,
}

impl PackContext<'_> {
    /// Prepares a record. If this panics, the record becomes a dead letter at once, because it
    /// blocks all later records.
    fn prepare_or_dead_letter<'a>(
        &self,
        record: &journal::Record<'a>,
        frame: (i64, i64),
    ) -> Result<OutgoingBatch<'a>> {
        catch_panic(|| self.prepare(record, frame)).unwrap_or_else(|message| {
            let name = format!("record {} for remote {}", record.position, self.remote);
            self.target.journal().supervisor().quarantine_permanently(name, &*message);
            self.dead_letter(record, None, frame, &format!("packing panicked: {message}"))
        })
    }

    fn prepare<'a>(
        &self,
        record: &journal::Record<'a>,
        frame: (i64, i64),
    ) -> Result<OutgoingBatch<'a>> {
        let point = format_args!("remote {} record {}", self.remote, record.position);
        self.target.journal().supervisor().failpoint(point);
        let contents = match DecodedBatch::decode(record.bytes) {
            Ok(contents) => contents,
            Err(error) => {
                let reason = format!("not a batch: {error}");
                return self.dead_letter(record, None, frame, &reason);
            }
        };
        let sequence = record.position + 1;
        if let Some(rejected) = self.rejected.filter(|it| it.sequence == sequence) {
            return self.dead_letter(record, Some(&contents), frame, &rejected.reason);
        }
        let samples = contents.samples;
        let batch = match contents.has_ids || self.omits_sections && contents.has_sections {
            false => Cow::Borrowed(record.bytes),
            true => match self.with_canonical_keys(record.bytes) {
                Ok(batch) => Cow::Owned(batch),
                Err(reason) => return self.dead_letter(record, Some(&contents), frame, &reason),
            },
        };
        // The batch must fit a request of its own.
        if !fits_alone(&batch) {
            let reason = format!("{} bytes exceed the size limit of a request", batch.len());
            return self.dead_letter(record, Some(&contents), frame, &reason);
        }
        let counted = CountedRecord::forwarded(record.position, record.identity, record.bytes);
        Ok(OutgoingBatch { batch, samples, entry_kind: EntryKind::Batch, counted_record: counted })
    }

    /// Series ids are local to this store; other stores need canonical keys.
    fn with_canonical_keys(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let batch = Batch::decode(bytes.to_owned()).map_err(|error| error.to_string())?;
        let mut canonical_key = |id: SeriesId| self.target.store().and_then(|store| store.key(&id));
        let mut batch =
            batch.with_canonical_keys(&mut canonical_key).map_err(|error| error.to_string())?;
        if self.omits_sections {
            batch = batch.without_sections().map_err(|error| error.to_string())?;
        }
        Ok(batch.bytes().to_owned())
    }

    fn dead_letter<'a>(
        &self,
        record: &journal::Record<'_>,
        contents: Option<&DecodedBatch>,
        frame: (i64, i64),
        reason: &str,
    ) -> Result<OutgoingBatch<'a>> {
        let request = contents.and_then(|contents| self.standalone_request(record, contents));
        let kept = match &request {
            Some(request) => DeadLetter::Request(request),
            None => DeadLetter::RawBatch(record.bytes),
        };
        let kept = self.dead_letters.write(record.position + 1, &kept, reason)?;
        let kept = if kept.is_some() { "dead-lettered" } else { "dropped (dead letters limit)" };
        let (start, end) = contents.and_then(|contents| contents.times).unwrap_or(frame);
        let gap = Gap {
            start,
            end,
            producer: record.identity.map(|identity| identity.producer),
            lost: contents.map(|contents| contents.samples),
            reason: format!("rejected by remote {}, {kept}: {reason}", self.remote),
        };
        let mut writer = BatchWriter::default();
        writer.gap(gap.clone());
        let batch = writer.finish().bytes().to_owned();
        let counted = CountedRecord::lost(record.position, record.identity, gap);
        Ok(OutgoingBatch {
            batch: batch.into(),
            samples: 0,
            entry_kind: EntryKind::DeadLettered,
            counted_record: counted,
        })
    }

    /// Encodes a batch as a standalone request that anyone can send. It has another producer and
    /// sequence, because the remote has already passed the agent's sequence.
    fn standalone_request(
        &self,
        record: &journal::Record<'_>,
        contents: &DecodedBatch,
    ) -> Option<Vec<u8>> {
        let batch = match contents.has_ids {
            false => Cow::Borrowed(record.bytes),
            true => Cow::Owned(self.with_canonical_keys(record.bytes).ok()?),
        };
        let sequence = record.position + 1;
        let source = [&self.journal.to_le_bytes()[..], &sequence.to_le_bytes()].concat();
        let mut request =
            ForwardRequestWriter::new(u128::from_le_bytes(SeriesId::from_canonical_key(&source).0));
        request.push(sequence, &batch);
        fits_alone(&batch).then(|| request.finish())
    }
}

/// Whether a batch fits a forward request.
fn fits_alone(batch: &[u8]) -> bool {
    ForwardRequestWriter::new(0).bytes_with(batch.len()) <= FORWARD_REQUEST_BYTES_MAX
}

/// Request entry of a gap.
fn gap_entry(gap: journal::RecordGap) -> RequestEntry {
    let (sequence, records) = (gap.positions.end, gap.records());
    RequestEntry {
        sequence,
        records,
        samples: 0,
        kind: EntryKind::Gap,
        bytes: 0,
        ledger_update: LedgerUpdate::Gap(gap),
    }
}

/// Parts of a gap to send to a remote that has everything before `has` and may have more before
/// `unacked`. The part that it may have is an entry of its own with its original sequence, so
/// that it is deduplicated.
fn split_gap(gap: &journal::RecordGap, has: u64, unacked: u64) -> Vec<journal::RecordGap> {
    let end = gap.positions.end;
    let start = gap.positions.start.max(has);
    let cut = if (start + 1..end).contains(&unacked) { unacked } else { end };
    let pieces = [start..cut, cut..end].into_iter().filter(|piece| !piece.is_empty());
    let piece = |positions: std::ops::Range<u64>| journal::RecordGap {
        is_complete: gap.is_complete && positions == gap.positions,
        positions,
        ..gap.clone()
    };
    pieces.map(piece).collect()
}

/// Encodes a journal gap as a batch; also returns the gap's end. If the time of the gap is unknown,
/// it is between `last_time` and `now`.
fn encode_gap(gap: &journal::RecordGap, last_time: i64, now: i64) -> (Vec<u8>, i64) {
    let (start, end) = match &gap.time {
        Some(time) => (*time.start(), *time.end()),
        None => (last_time, now.max(last_time)),
    };
    let part = |producer, lost| Gap {
        start,
        end,
        producer,
        lost: Some(lost),
        reason: format!("missing in the journal of an agent: {}", gap.reason),
    };
    let mut writer = BatchWriter::default();
    let known: u64 = gap.producers.iter().map(|part| part.records).sum();
    match gap.records().checked_sub(known).filter(|_| gap.is_complete) {
        Some(unattributed) => {
            gap.producers.iter().for_each(|it| writer.gap(part(Some(it.producer), it.records)));
            if unattributed > 0 {
                writer.gap(part(None, unattributed));
            }
        }
        // The producers belong to a longer range, so the number of lost records per producer is
        // unknown.
        None => writer.gap(part(None, gap.records())),
    }
    (writer.finish().bytes().to_owned(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(has: u64, unacked: u64, expected: &[(u64, u64, bool)]) {
        let gap = journal::RecordGap {
            positions: 10..20,
            reason: journal::GapReason::BytesLimit,
            time: None,
            producers: Vec::new(),
            is_complete: true,
        };
        let found: Vec<_> = split_gap(&gap, has, unacked)
            .into_iter()
            .map(|piece| (piece.positions.start, piece.positions.end, piece.is_complete))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn grown_gap_is_reported_in_pieces() {
        check(0, 0, &[(10, 20, true)]);
        check(10, 20, &[(10, 20, true)]);
        check(10, 15, &[(10, 15, false), (15, 20, false)]);
        check(12, 15, &[(12, 15, false), (15, 20, false)]);
        check(12, 12, &[(12, 20, false)]);
        check(20, 20, &[]);
        check(15, 0, &[(15, 20, false)]);
    }
}
