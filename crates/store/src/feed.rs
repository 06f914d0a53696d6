//! From the journal to the head: what is read, what of it is known, and what could not be taken in.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use journal::supervisor::catch_panic;
use journal::{Identity, Item, Level, Subscriber};
use model::{BatchReader, Gap, SeriesRef};

use crate::error::{Error, Result};
use crate::head::Head;
use crate::index::Number;
use crate::manifest::Producers;
use crate::point::{Point, StoredPoints, is_point};
use crate::quarantine::record;
use crate::store::{Inner, Store, locked};

/// What a store has of its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    /// All records before this position were read.
    pub position: u64,
    /// All records before this one are in parts.
    pub sealed: u64,
    /// What could not be taken in.
    pub refused: Vec<Gap>,
    /// Records that the journal had lost before they were read; how many is what is lost.
    pub missing: Vec<Gap>,
}

impl Fed {
    /// The positions of records that the journal had lost, of a gap of [`Fed::missing`] that is
    /// about all of them: `None` where gaps were joined, and of a producer's part.
    pub fn positions(gap: &Gap) -> Option<Range<u64>> {
        let records = gap.lost.filter(|_| gap.producer.is_none())?;
        let (count, _) = gap.reason.split_once(MISSING)?;
        let (_, first) = gap.reason.rsplit_once(FROM)?;
        let first: u64 = first.strip_suffix(ON)?.parse().ok()?;
        (count.parse() == Ok(records)).then_some(first..first.checked_add(records)?)
    }
}

/// What the reason begins with of a gap that is a record which could not be taken in.
const REFUSED: &str = "a record that came from the journal was not taken in";
/// What the reason says of a gap that is records which the journal lost.
const MISSING: &str = " batches missing in the journal: ";
/// What stands around the first position in such a reason.
const FROM: &str = ", from position ";
const ON: &str = " on";

impl Store {
    /// How far the journal was read, after reading all of it that there is, and what of it could not be taken in:
    /// a gap for each record, as long as gaps are not joined.
    pub fn fed(&self) -> Result<Fed> {
        let inner = self.inner();
        inner.catch_up()?;
        let feed = locked(&inner.feed);
        let state = inner.state();
        let mut gaps = state.manifest.gaps.clone();
        for head in state.heads() {
            let head = head.read().unwrap_or_else(PoisonError::into_inner);
            gaps.extend(head.gaps.iter().cloned());
        }
        let of = |is: &dyn Fn(&str) -> bool| -> Vec<Gap> {
            gaps.iter().filter(|gap| is(&gap.reason)).cloned().collect()
        };
        let refused = of(&|reason| reason.starts_with(REFUSED));
        let missing = of(&|reason| reason.contains(MISSING) && !reason.starts_with(REFUSED));
        Ok(Fed { position: feed.position(), sealed: state.manifest.position, refused, missing })
    }
}

/// Why a record is refused that was quarantined.
const QUARANTINED: &str =
    "work on it panicked again and again; its bytes are kept in the folder quarantine";

/// Work on a record panicked.
struct Panicked {
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
fn hear(producers: &mut Producers, identity: Identity, position: u64) -> (bool, u64) {
    match producers.have_heard(identity) {
        true => (false, 0),
        false => (true, producers.hear(identity, position)),
    }
}

impl Inner {
    pub(crate) fn catch_up(&self) -> Result<()> {
        self.read_on(usize::MAX).map(|_| ())
    }

    /// Reads the journal until there is no more, or rows in memory take so many bytes; whether there is more.
    pub(crate) fn read_on(&self, bytes_max: usize) -> Result<bool> {
        let mut feed = locked(&self.feed);
        loop {
            // A panic anywhere leaves it broken.
            if self.is_feed_broken.swap(true, Ordering::Relaxed) {
                self.rebuild(&mut feed)?;
            }
            let read = self.read_with(&mut feed, bytes_max);
            if let Ok(Err(Panicked { .. })) = read {
                continue;
            }
            self.is_feed_broken.store(false, Ordering::Relaxed);
            return read.map(|more| more.unwrap_or(true));
        }
    }

    fn read_with(&self, feed: &mut Subscriber, bytes_max: usize) -> Result<Result<bool, Panicked>> {
        let unread = self.unread_bytes.load(Ordering::Relaxed);
        while self.count_head_bytes() < bytes_max {
            let Some(item) = feed.next()? else {
                // What was appended meanwhile may have been read too: it counts as unread until the next time.
                self.unread_bytes.fetch_sub(unread, Ordering::Relaxed);
                return Ok(Ok(false));
            };
            let (active, mut stored) = {
                let state = self.state();
                (Arc::clone(&state.active), StoredPoints::of(self, &state))
            };
            let mut head = active.write().unwrap_or_else(PoisonError::into_inner);
            let taken = self.take_in(&mut head, &mut stored, item, &mut |identity, position| {
                let (is_new, evicted) = hear(&mut locked(&self.producers), identity, position);
                self.evicted_sequences.fetch_add(evicted, Ordering::Relaxed);
                is_new
            });
            drop(head);
            match taken {
                Ok(None) => {}
                Ok(Some(missing)) => self.note(format!(
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
                let stored = StoredPoints::of(self, &state);
                match &state.sealing {
                    Some(closed) => (closed.position, Producers::clone(&closed.producers), stored),
                    None => (state.manifest.position, state.manifest.producers.clone(), stored),
                }
            };
            let mut head = Head::default();
            let mut is_whole = true;
            feed.seek(position)?;
            while is_whole && feed.position() < read_to {
                let Some(item) = feed.next()? else { break };
                let mut hear = |identity, position| hear(&mut producers, identity, position).0;
                is_whole = self.take_in(&mut head, &mut stored, item, &mut hear).is_ok();
            }
            if is_whole {
                self.state().active = Arc::new(RwLock::new(head));
                *locked(&self.producers) = producers;
                return Ok(());
            }
        }
    }

    /// Puts in the place of the head one with only what is durable in the journal, and the feed behind it. A journal
    /// without room for what it has in memory gives room when what it has on disk is sealed: the rows that leave the
    /// head here are read again by whoever reads on.
    pub(crate) fn go_back(&self, feed: &mut Subscriber) -> Result<()> {
        let manifest = Arc::clone(&self.state().manifest);
        let (mut head, mut producers) = (Head::default(), manifest.producers.clone());
        let mut stored = StoredPoints::of(self, &self.state());
        let read_to = feed.position();
        feed.seek(manifest.position)?;
        feed.set_level(Level::Disk);
        let read = loop {
            match feed.next() {
                Ok(Some(item)) => {
                    let mut hear = |identity, position| hear(&mut producers, identity, position).0;
                    let taken = self.take_in(&mut head, &mut stored, item, &mut hear);
                    if let Err(Panicked { position, message }) = taken {
                        let doing = format!("reading {}", record(position));
                        break Err(Error::Defect { doing, message, seconds: 1 });
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
        state.active = Arc::new(RwLock::new(head));
        *locked(&self.producers) = producers;
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
    fn take_in(
        &self,
        head: &mut Head,
        stored: &mut StoredPoints<'_>,
        item: Item<'_>,
        hear: &mut dyn FnMut(Identity, u64) -> bool,
    ) -> Result<Option<String>, Panicked> {
        match item {
            Item::Batch(batch) => {
                self.seen.store(batch.times().1, Ordering::Relaxed);
                for record in batch.records() {
                    if record.identity.is_some_and(|identity| !hear(identity, record.position)) {
                        continue;
                    }
                    let position = record.position;
                    let producer = record.identity.map(|identity| identity.producer);
                    let apply = || self.apply(head, stored, (position, producer), record.bytes);
                    let is_quarantined = locked(&self.quarantine).has_record(position);
                    let refused = match is_quarantined {
                        true => Err((count(record.bytes), QUARANTINED.to_owned())),
                        false => catch_panic(apply).map_err(|message| {
                            self.panicked(position, record.bytes, &message);
                            Panicked { position, message }
                        })?,
                    };
                    if let Err((lost, why)) = refused {
                        head.gaps.push(Gap {
                            start: batch.times().0,
                            end: batch.times().1,
                            producer,
                            lost,
                            reason: format!("{REFUSED} (position {position}): {why}"),
                        });
                    }
                }
                Ok(None)
            }
            Item::Gap(gap) => {
                // If it is not known when that was, it was since the batch before it.
                let (start, end) = match &gap.time {
                    Some(time) => (*time.start(), *time.end()),
                    None => {
                        let (seen, now) = (self.seen.load(Ordering::Relaxed), self.now());
                        (if seen == i64::MIN { now } else { seen.min(now) }, now)
                    }
                };
                let reason = |records: u64| {
                    let first = gap.positions.start;
                    format!("{records}{MISSING}{}{FROM}{first}{ON}", gap.reason)
                };
                let mut lose = |producer: Option<u64>, records: u64| {
                    let (lost, reason) = (Some(records), reason(records));
                    head.gaps.push(Gap { start, end, producer, lost, reason });
                };
                let mut left = gap.records();
                // Whose they were is known of all of a gap, or of none.
                for part in gap.producers.iter().filter(|_| gap.complete) {
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
    fn panicked(&self, position: u64, bytes: &[u8], message: &str) {
        let kept = locked(&self.quarantine).failed_record(position, bytes, message);
        self.note(format!(
            "{} met a defect of topdeck; please report it: {message}",
            record(position)
        ));
        if let Err(error) = kept {
            self.note(format!("a quarantined record could not be kept: {error}"));
        }
    }

    /// Takes rows in. Of series that cannot be taken the others are; how many samples were not, if that is known, and
    /// why the first was not.
    fn apply(
        &self,
        head: &mut Head,
        stored: &mut StoredPoints<'_>,
        (position, producer): (u64, Option<u64>),
        bytes: &[u8],
    ) -> Result<(), (Option<u64>, String)> {
        let unreadable = |error: model::Error| (None, error.to_string());
        let mut reader = BatchReader::new(bytes).map_err(unreadable)?;
        let (mut group, mut lost, mut why) = (None, 0u64, None);
        for entry in reader.by_ref() {
            let entry = entry.map_err(unreadable)?;
            if entry.begins {
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
                        Point::New => head.add(number, &entry, kind),
                        Point::Same => {}
                        Point::Other => {
                            lost = lost.saturating_add(1);
                            let (series, time) = (self.index().id(number), entry.end);
                            why.get_or_insert(Error::OtherPoint { series, time });
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
    ) -> Result<(Number, model::Kind)> {
        let id = series.id();
        let index = self.index();
        let known = index.number(&id);
        let number = match (known, series) {
            (Some(number), _) => number,
            (None, SeriesRef::Id(id)) => return Err(Error::UnknownSeries { id: *id }),
            (None, SeriesRef::Form(form)) => {
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
