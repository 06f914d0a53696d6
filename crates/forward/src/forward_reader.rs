//! Forward reader: journal records to forward requests.
//!
//! A parcel ends with the frame in which it reaches [`PARCEL_BYTES`]: to go back into a frame would
//! mean to read its segment from the beginning.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use intake::{CountedRecord, WriteTarget};
use journal::supervisor::catch_panic;
use journal::{Level, ReadItem, Subscriber};
use model::{
    Batch, BatchReader, BatchWriter, FORWARD_REQUEST_BYTES_MAX, ForwardRequestWriter, Gap,
    SeriesId, SeriesRef,
};

use net::signature::Signer;

use crate::dead_letter_dir::{DeadLetter, DeadLetterDir};
use crate::encoded_request::{
    EncodedRequest, EntryKind, LedgerUpdate, RequestBuilder, RequestEntry,
};
use crate::error::Result;
use crate::remote_progress::RemoteProgress;

/// When a parcel has as many bytes, before it is compressed, it goes.
const REQUEST_BYTES_MAX: usize = 3 << 20;
/// Batches in a parcel at the most.
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
    /// Up to when everything was read: from there on a gap may be whose time is not known.
    last_gap_time: i64,
}

impl ForwardReader {
    /// Reads on where the book ends.
    pub(crate) fn open(
        home: &WriteTarget,
        site: &str,
        name: &str,
        aside: DeadLetterDir,
        ledger: &Arc<RemoteProgress>,
    ) -> Result<ForwardReader> {
        let journal = home.journal().id();
        let mut subscriber = home.journal().subscribe(name)?;
        subscriber.set_level(Level::Disk);
        let seen = subscriber.checkpoint().committed_at;
        match subscriber.seek(ledger.position()) {
            // What the journal has dropped since is told when it is read on from before.
            Err(journal::Error::PositionOutOfRange { found, first, .. }) if found < first => {}
            sought => sought?,
        }
        Ok(ForwardReader {
            subscriber,
            target: home.clone(),
            remote: site.to_owned(),
            journal,
            dead_letters: aside,
            progress: Arc::clone(ledger),
            rejected: None,
            last_gap_time: seen,
        })
    }

    pub(crate) fn position(&self) -> u64 {
        self.progress.position()
    }

    /// When this batch comes, it is set aside, and a gap goes in its place.
    pub(crate) fn dead_letter(&mut self, condemned: RejectedBatch) {
        self.rejected = Some(condemned);
    }

    /// Writes the book of what the site has, and lets the journal go what is in it.
    pub(crate) fn save(&mut self, now: i64) -> Result<()> {
        let position = self.progress.save(now)?.min(self.subscriber.position());
        // If the power takes this back, the book still leads.
        Ok(self.subscriber.commit(position, Level::Process)?)
    }

    /// The next parcel; none if nothing comes in time.
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
        let mut packing = RequestBuilder::new(self.journal);
        while packing.writer.bytes() < REQUEST_BYTES_MAX && packing.writer.len() < BATCHES_MAX {
            let (subscriber, rest) = (
                &mut self.subscriber,
                PackContext {
                    target: &self.target,
                    journal: self.journal,
                    remote: &self.remote,
                    dead_letters: &self.dead_letters,
                    rejected: self.rejected.as_ref(),
                },
            );
            let Some(item) = subscriber.next()? else { break };
            let mut full = None;
            match item {
                ReadItem::Gap(gap) => {
                    packing.set_oldest(self.last_gap_time);
                    for gap in
                        split_gap(&gap, self.progress.position(), self.progress.unacknowledged())
                    {
                        let (batch, end) = encode_gap(&gap, self.last_gap_time, now);
                        packing.push(gap_entry(gap), &batch);
                        self.last_gap_time = self.last_gap_time.max(end);
                    }
                }
                ReadItem::Batch(batch) => {
                    packing.set_oldest(batch.times().0);
                    for record in batch.records() {
                        let ready = rest.prepare_or_dead_letter(&record, batch.times())?;
                        if packing.writer.bytes_with(ready.batch.len()) > FORWARD_REQUEST_BYTES_MAX
                        {
                            full = Some(record.position);
                            break;
                        }
                        let part = RequestEntry {
                            sequence: record.position + 1,
                            records: 1,
                            samples: ready.samples,
                            kind: ready.entry_kind,
                            bytes: record.bytes.len() as u64,
                            ledger_update: LedgerUpdate::Record(ready.counted_record),
                        };
                        packing.push(part, &ready.batch);
                    }
                    self.last_gap_time = batch.times().1;
                }
            }
            if let Some(position) = full {
                self.subscriber.seek(position)?;
                break;
            }
        }
        if packing.writer.is_empty() { Ok(None) } else { packing.finish(signer).map(Some) }
    }
}

/// A batch as it goes out.
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
    /// From when to when.
    times: Option<(i64, i64)>,
    /// Some series is named by number only.
    has_ids: bool,
}

impl DecodedBatch {
    /// Reads a batch but for its values.
    fn decode(bytes: &[u8]) -> model::Result<DecodedBatch> {
        let mut contents = DecodedBatch { samples: 0, times: None, has_ids: false };
        for entry in BatchReader::new(bytes)? {
            let entry = entry?;
            contents.samples += 1;
            contents.has_ids |= matches!(entry.series, SeriesRef::Id(_));
            let (start, end) = contents.times.unwrap_or((entry.start, entry.end));
            contents.times = Some((start.min(entry.start), end.max(entry.end)));
        }
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
}

impl PackContext<'_> {
    /// A record as it goes out. One on which the work panics is set aside at once: the others wait
    /// for it.
    fn prepare_or_dead_letter<'a>(
        &self,
        record: &journal::Record<'a>,
        frame: (i64, i64),
    ) -> Result<OutgoingBatch<'a>> {
        catch_panic(|| self.prepare(record, frame)).unwrap_or_else(|message| {
            let name = format!("record {} on its way to remote {}", record.position, self.remote);
            self.target.journal().supervisor().quarantine(name, &*message);
            self.dead_letter(record, None, frame, &format!("work on it panicked: {message}"))
        })
    }

    fn prepare<'a>(
        &self,
        record: &journal::Record<'a>,
        frame: (i64, i64),
    ) -> Result<OutgoingBatch<'a>> {
        let point = format_args!("remote {} record {}", self.remote, record.position);
        self.target.journal().supervisor().fault_point(point);
        let contents = match DecodedBatch::decode(record.bytes) {
            Ok(contents) => contents,
            Err(error) => {
                let why = format!("no batch: {error}");
                return self.dead_letter(record, None, frame, &why);
            }
        };
        let sequence = record.position + 1;
        if let Some(condemned) = self.rejected.filter(|it| it.sequence == sequence) {
            return self.dead_letter(record, Some(&contents), frame, &condemned.reason);
        }
        let samples = contents.samples;
        let batch = match contents.has_ids {
            false => Cow::Borrowed(record.bytes),
            true => match self.with_canonical_keys(record.bytes) {
                Ok(batch) => Cow::Owned(batch),
                Err(why) => return self.dead_letter(record, Some(&contents), frame, &why),
            },
        };
        // Alone in a parcel it has to fit.
        if !fits_alone(&batch) {
            let why = format!("{} bytes do not fit into a parcel", batch.len());
            return self.dead_letter(record, Some(&contents), frame, &why);
        }
        let counted = CountedRecord::forwarded(record.position, record.identity, record.bytes);
        Ok(OutgoingBatch { batch, samples, entry_kind: EntryKind::Batch, counted_record: counted })
    }

    /// Numbers are known to this store only: elsewhere they need forms.
    fn with_canonical_keys(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let batch = Batch::check(bytes.to_owned()).map_err(|error| error.to_string())?;
        let mut form = |id: SeriesId| self.target.store().and_then(|store| store.key(&id));
        let batch = batch.with_canonical_keys(&mut form).map_err(|error| error.to_string())?;
        Ok(batch.bytes().to_owned())
    }

    fn dead_letter<'a>(
        &self,
        record: &journal::Record<'_>,
        contents: Option<&DecodedBatch>,
        frame: (i64, i64),
        why: &str,
    ) -> Result<OutgoingBatch<'a>> {
        let parcel = contents.and_then(|contents| self.standalone_request(record, contents));
        let kept = match &parcel {
            Some(parcel) => DeadLetter::Request(parcel),
            None => DeadLetter::RawBatch(record.bytes),
        };
        let kept = self.dead_letters.write(record.position + 1, &kept, why)?;
        let kept = if kept.is_some() { "set aside" } else { "dropped, no room to set it aside" };
        let (start, end) = contents.and_then(|contents| contents.times).unwrap_or(frame);
        let gap = Gap {
            start,
            end,
            producer: record.identity.map(|identity| identity.producer),
            lost: contents.map(|contents| contents.samples),
            reason: format!("not taken by remote {}, {kept}: {why}", self.remote),
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

    /// A batch as a parcel that anybody can send again. To the site it comes from somebody else:
    /// the agent's own sequence has passed it.
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
        let mut parcel =
            ForwardRequestWriter::new(u128::from_le_bytes(SeriesId::from_canonical_key(&source).0));
        parcel.push(sequence, &batch);
        fits_alone(&batch).then(|| parcel.finish())
    }
}

/// Whether a batch can be a parcel.
fn fits_alone(batch: &[u8]) -> bool {
    ForwardRequestWriter::new(0).bytes_with(batch.len()) <= FORWARD_REQUEST_BYTES_MAX
}

/// A gap that a site is told.
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

/// What of a gap is to be told a site that has everything before `has`, and may have it before
/// `unanswered`. What it may have ends a piece of its own, with the sequence that it had then: so
/// nothing is told twice.
fn split_gap(gap: &journal::RecordGap, has: u64, unanswered: u64) -> Vec<journal::RecordGap> {
    let end = gap.positions.end;
    let start = gap.positions.start.max(has);
    let cut = if (start + 1..end).contains(&unanswered) { unanswered } else { end };
    let pieces = [start..cut, cut..end].into_iter().filter(|piece| !piece.is_empty());
    let piece = |positions: std::ops::Range<u64>| journal::RecordGap {
        is_complete: gap.is_complete && positions == gap.positions,
        positions,
        ..gap.clone()
    };
    pieces.map(piece).collect()
}

/// What the journal is missing, as a batch, and when it ends. If it is not known when that was, it
/// was since `seen`, and before `now`.
fn encode_gap(gap: &journal::RecordGap, seen: i64, now: i64) -> (Vec<u8>, i64) {
    let (start, end) = match &gap.time {
        Some(time) => (*time.start(), *time.end()),
        None => (seen, now.max(seen)),
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
        Some(nobodys) => {
            gap.producers.iter().for_each(|it| writer.gap(part(Some(it.producer), it.records)));
            if nobodys > 0 {
                writer.gap(part(None, nobodys));
            }
        }
        // The producers are those of a longer stretch: how many of these were whose is not known.
        None => writer.gap(part(None, gap.records())),
    }
    (writer.finish().bytes().to_owned(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(has: u64, unanswered: u64, expected: &[(u64, u64, bool)]) {
        let gap = journal::RecordGap {
            positions: 10..20,
            reason: journal::GapReason::BytesLimit,
            time: None,
            producers: Vec::new(),
            is_complete: true,
        };
        let found: Vec<_> = split_gap(&gap, has, unanswered)
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
