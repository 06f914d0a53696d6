//! From the journal to parcels.
//!
//! A parcel ends with the frame in which it reaches [`PARCEL_BYTES`]: to go back into a frame would mean to read its
//! segment from the beginning.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use intake::{Counted, Home};
use journal::supervisor::catch_panic;
use journal::{Item, Level, Subscriber};
use model::{
    Batch, BatchReader, BatchWriter, Gap, PARCEL_BYTES_MAX, ParcelWriter, SeriesId, SeriesRef,
};

use net::signature::Signer;

use crate::aside::{Aside, Kept};
use crate::error::Result;
use crate::ledger::Ledger;
use crate::load::{Account, Fate, Load, Packing, Part};

/// When a parcel has as many bytes, before it is compressed, it goes.
const PARCEL_BYTES: usize = 3 << 20;
/// Batches in a parcel at the most.
const BATCHES_MAX: u32 = 1 << 14;

/// A batch that the site will not take, and why.
#[derive(Clone, Debug)]
pub(crate) struct Condemned {
    pub(crate) sequence: u64,
    pub(crate) why: String,
}

/// Reads what a site does not have yet.
#[derive(Debug)]
pub(crate) struct Supply {
    subscriber: Subscriber,
    home: Home,
    site: String,
    journal: u128,
    aside: Aside,
    ledger: Arc<Ledger>,
    condemned: Option<Condemned>,
    /// Up to when everything was read: from there on a gap may be whose time is not known.
    seen: i64,
}

impl Supply {
    /// Reads on where the book ends.
    pub(crate) fn open(
        home: &Home,
        site: &str,
        name: &str,
        aside: Aside,
        ledger: &Arc<Ledger>,
    ) -> Result<Supply> {
        let journal = home.journal().id();
        let mut subscriber = home.journal().subscribe(name)?;
        subscriber.set_level(Level::Disk);
        let seen = subscriber.checkpoint().moved;
        match subscriber.seek(ledger.position()) {
            // What the journal has dropped since is told when it is read on from before.
            Err(journal::Error::Position { found, first, .. }) if found < first => {}
            sought => sought?,
        }
        Ok(Supply {
            subscriber,
            home: home.clone(),
            site: site.to_owned(),
            journal,
            aside,
            ledger: Arc::clone(ledger),
            condemned: None,
            seen,
        })
    }

    pub(crate) fn position(&self) -> u64 {
        self.ledger.position()
    }

    /// When this batch comes, it is set aside, and a gap goes in its place.
    pub(crate) fn condemn(&mut self, condemned: Condemned) {
        self.condemned = Some(condemned);
    }

    /// Writes the book of what the site has, and lets the journal go what is in it.
    pub(crate) fn save(&mut self, now: i64) -> Result<()> {
        let position = self.ledger.save(now)?.min(self.subscriber.position());
        // If the power takes this back, the book still leads.
        Ok(self.subscriber.commit(position, Level::Process)?)
    }

    /// The next parcel; none if nothing comes in time.
    pub(crate) fn next(
        &mut self,
        now: i64,
        timeout: Duration,
        signer: &Signer,
    ) -> Result<Option<Load>> {
        if self.ledger.is_due() {
            self.save(now)?;
        }
        let load = self.pack(now, signer)?;
        if load.is_some() || !self.subscriber.wait(Some(timeout))? {
            return Ok(load);
        }
        self.pack(now, signer)
    }

    fn pack(&mut self, now: i64, signer: &Signer) -> Result<Option<Load>> {
        let mut packing = Packing::new(self.journal);
        while packing.parcel.bytes() < PARCEL_BYTES && packing.parcel.len() < BATCHES_MAX {
            let (subscriber, rest) = (
                &mut self.subscriber,
                Rest {
                    home: &self.home,
                    journal: self.journal,
                    site: &self.site,
                    aside: &self.aside,
                    condemned: self.condemned.as_ref(),
                },
            );
            let Some(item) = subscriber.next()? else { break };
            let mut full = None;
            match item {
                Item::Gap(gap) => {
                    packing.note(self.seen);
                    for gap in pieces(&gap, self.ledger.position(), self.ledger.unanswered()) {
                        let (batch, end) = told(&gap, self.seen, now);
                        packing.push(missing(gap), &batch);
                        self.seen = self.seen.max(end);
                    }
                }
                Item::Batch(batch) => {
                    packing.note(batch.times().0);
                    for record in batch.records() {
                        let ready = rest.ready(&record, batch.times())?;
                        if packing.parcel.bytes_with(ready.batch.len()) > PARCEL_BYTES_MAX {
                            full = Some(record.position);
                            break;
                        }
                        let part = Part {
                            sequence: record.position + 1,
                            records: 1,
                            samples: ready.samples,
                            fate: ready.fate,
                            bytes: record.bytes.len() as u64,
                            account: Account::Record(ready.counted),
                        };
                        packing.push(part, &ready.batch);
                    }
                    self.seen = batch.times().1;
                }
            }
            if let Some(position) = full {
                self.subscriber.seek(position)?;
                break;
            }
        }
        if packing.parcel.is_empty() { Ok(None) } else { packing.finish(signer).map(Some) }
    }
}

/// A batch as it goes out.
struct Ready<'a> {
    batch: Cow<'a, [u8]>,
    samples: u64,
    fate: Fate,
    counted: Counted,
}

/// What is in a batch, as far as it is read here.
#[derive(Debug)]
struct Contents {
    samples: u64,
    /// From when to when.
    times: Option<(i64, i64)>,
    /// Some series is named by number only.
    has_ids: bool,
}

impl Contents {
    /// Reads a batch but for its values.
    fn of(bytes: &[u8]) -> model::Result<Contents> {
        let mut contents = Contents { samples: 0, times: None, has_ids: false };
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

/// What is needed beside the subscriber, which lends its memory meanwhile.
struct Rest<'a> {
    home: &'a Home,
    journal: u128,
    site: &'a str,
    aside: &'a Aside,
    condemned: Option<&'a Condemned>,
}

impl Rest<'_> {
    /// A record as it goes out. One on which the work panics is set aside at once: the others wait
    /// for it.
    fn ready<'a>(&self, record: &journal::Record<'a>, frame: (i64, i64)) -> Result<Ready<'a>> {
        catch_panic(|| self.prepare(record, frame)).unwrap_or_else(|message| {
            let name = format!("record {} on its way to site {}", record.position, self.site);
            self.home.journal().supervisor().quarantine(name, &*message);
            self.set_aside(record, None, frame, &format!("work on it panicked: {message}"))
        })
    }

    fn prepare<'a>(&self, record: &journal::Record<'a>, frame: (i64, i64)) -> Result<Ready<'a>> {
        let point = format_args!("site {} record {}", self.site, record.position);
        self.home.journal().supervisor().fault_point(point);
        let contents = match Contents::of(record.bytes) {
            Ok(contents) => contents,
            Err(error) => {
                let why = format!("no batch: {error}");
                return self.set_aside(record, None, frame, &why);
            }
        };
        let sequence = record.position + 1;
        if let Some(condemned) = self.condemned.filter(|it| it.sequence == sequence) {
            return self.set_aside(record, Some(&contents), frame, &condemned.why);
        }
        let samples = contents.samples;
        let batch = match contents.has_ids {
            false => Cow::Borrowed(record.bytes),
            true => match self.with_forms(record.bytes) {
                Ok(batch) => Cow::Owned(batch),
                Err(why) => return self.set_aside(record, Some(&contents), frame, &why),
            },
        };
        // Alone in a parcel it has to fit.
        if !fits_alone(&batch) {
            let why = format!("{} bytes do not fit into a parcel", batch.len());
            return self.set_aside(record, Some(&contents), frame, &why);
        }
        let counted = Counted::passed_on(record.position, record.identity, record.bytes);
        Ok(Ready { batch, samples, fate: Fate::Sent, counted })
    }

    /// Numbers are known to this store only: elsewhere they need forms.
    fn with_forms(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let batch = Batch::check(bytes.to_owned()).map_err(|error| error.to_string())?;
        let mut form = |id: SeriesId| self.home.store().and_then(|store| store.form(&id));
        let batch = batch.with_forms(&mut form).map_err(|error| error.to_string())?;
        Ok(batch.bytes().to_owned())
    }

    fn set_aside<'a>(
        &self,
        record: &journal::Record<'_>,
        contents: Option<&Contents>,
        frame: (i64, i64),
        why: &str,
    ) -> Result<Ready<'a>> {
        let parcel = contents.and_then(|contents| self.parcel(record, contents));
        let kept = match &parcel {
            Some(parcel) => Kept::Parcel(parcel),
            None => Kept::Batch(record.bytes),
        };
        let kept = self.aside.put(record.position + 1, &kept, why)?;
        let kept = if kept.is_some() { "set aside" } else { "dropped, no room to set it aside" };
        let (start, end) = contents.and_then(|contents| contents.times).unwrap_or(frame);
        let gap = Gap {
            start,
            end,
            producer: record.identity.map(|identity| identity.producer),
            lost: contents.map(|contents| contents.samples),
            reason: format!("not taken by site {}, {kept}: {why}", self.site),
        };
        let mut writer = BatchWriter::default();
        writer.gap(gap.clone());
        let batch = writer.finish().bytes().to_owned();
        let counted = Counted::lost(record.position, record.identity, gap);
        Ok(Ready { batch: batch.into(), samples: 0, fate: Fate::SetAside, counted })
    }

    /// A batch as a parcel that anybody can send again. To the site it comes from somebody else: the agent's own
    /// sequence has passed it.
    fn parcel(&self, record: &journal::Record<'_>, contents: &Contents) -> Option<Vec<u8>> {
        let batch = match contents.has_ids {
            false => Cow::Borrowed(record.bytes),
            true => Cow::Owned(self.with_forms(record.bytes).ok()?),
        };
        let sequence = record.position + 1;
        let source = [&self.journal.to_le_bytes()[..], &sequence.to_le_bytes()].concat();
        let mut parcel = ParcelWriter::new(u128::from_le_bytes(SeriesId::of_form(&source).0));
        parcel.push(sequence, &batch);
        fits_alone(&batch).then(|| parcel.finish())
    }
}

/// Whether a batch can be a parcel.
fn fits_alone(batch: &[u8]) -> bool {
    ParcelWriter::new(0).bytes_with(batch.len()) <= PARCEL_BYTES_MAX
}

/// A gap that a site is told.
fn missing(gap: journal::Gap) -> Part {
    let (sequence, records) = (gap.positions.end, gap.records());
    Part {
        sequence,
        records,
        samples: 0,
        fate: Fate::Missing,
        bytes: 0,
        account: Account::Gap(gap),
    }
}

/// What of a gap is to be told a site that has everything before `has`, and may have it before `unanswered`. What it
/// may have ends a piece of its own, with the sequence that it had then: so nothing is told twice.
fn pieces(gap: &journal::Gap, has: u64, unanswered: u64) -> Vec<journal::Gap> {
    let end = gap.positions.end;
    let start = gap.positions.start.max(has);
    let cut = if (start + 1..end).contains(&unanswered) { unanswered } else { end };
    let pieces = [start..cut, cut..end].into_iter().filter(|piece| !piece.is_empty());
    let piece = |positions: std::ops::Range<u64>| journal::Gap {
        complete: gap.complete && positions == gap.positions,
        positions,
        ..gap.clone()
    };
    pieces.map(piece).collect()
}

/// What the journal is missing, as a batch, and when it ends. If it is not known when that was, it was since
/// `seen`, and before `now`.
fn told(gap: &journal::Gap, seen: i64, now: i64) -> (Vec<u8>, i64) {
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
    match gap.records().checked_sub(known).filter(|_| gap.complete) {
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
        let gap = journal::Gap {
            positions: 10..20,
            reason: journal::Reason::BytesLimit,
            time: None,
            producers: Vec::new(),
            complete: true,
        };
        let found: Vec<_> = pieces(&gap, has, unanswered)
            .into_iter()
            .map(|piece| (piece.positions.start, piece.positions.end, piece.complete))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_gap_that_has_grown_is_told_in_pieces() {
        check(0, 0, &[(10, 20, true)]);
        check(10, 20, &[(10, 20, true)]);
        check(10, 15, &[(10, 15, false), (15, 20, false)]);
        check(12, 15, &[(12, 15, false), (15, 20, false)]);
        check(12, 12, &[(12, 20, false)]);
        check(20, 20, &[]);
        check(15, 0, &[(15, 20, false)]);
    }
}
