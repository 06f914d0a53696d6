//! A book: what was counted of each producer, up to a position of the journal.
//!
//! Every record before [`Book::position`] is in the book exactly once, as a batch, a repeat, something that cannot be
//! read, or missing; so the sum of [`Counts::records`] is `position - first`. A book is the same whenever it is
//! written, read, and led on: what is before its position it does not take again.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use journal::{Identity, producer_origin, with_origin};
use model::Gap;

use crate::counts::{Counts, Loss, count, lose};
use crate::recent_batches::{BatchCounts, BatchSums};

/// Producers that have a line of their own; all others have one together.
pub const PRODUCERS_MAX: usize = 4096;
/// An origin may have so many times as many lines as are free, so that there are always some for
/// others: 3,641 if it is alone, then 404 of the next (dynamic threshold; Choudhury, Hahne 1998).
const FREE_TIMES_MAX: usize = 8;
/// Bytes of a producer's name that are kept.
const NAME_BYTES_MAX: usize = 128;
/// Boots of a producer of which repeats are recognised: the latest that came.
pub(crate) const BOOTS_MAX: usize = 4;

/// What a book says of one producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its name; empty if nobody told it.
    pub name: String,
    /// What came.
    pub counts: Counts,
    /// What is known to be lost.
    pub losses: Vec<Loss>,
    /// The last sequence of each of the latest boots, the latest last.
    pub(crate) boots: Vec<(u64, u64)>,
}

impl Entry {
    fn add_missing(&mut self, records: u64) {
        self.counts.missing = self.counts.missing.saturating_add(records);
    }

    /// Whether a batch was counted before; remembers it if not.
    fn is_repeat(&mut self, identity: Identity) -> bool {
        let known = self.boots.iter().position(|&(boot, _)| boot == identity.boot);
        if let Some(at) = known {
            let (_, last) = self.boots[at];
            if identity.sequence <= last {
                return true;
            }
            self.boots.remove(at);
        } else if self.boots.len() == BOOTS_MAX {
            self.boots.remove(0);
        }
        self.boots.push((identity.boot, identity.sequence));
        false
    }
}

/// A record that was read and counted, and is in no book yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    position: u64,
    identity: Option<Identity>,
    /// None of a record that cannot be read.
    counts: Option<Counts>,
    gaps: Vec<Gap>,
}

impl Counted {
    /// A record of a journal, and the gaps in it.
    pub fn of(position: u64, identity: Option<Identity>, bytes: &[u8]) -> Counted {
        // A record on which counting panics counts as one that cannot be read.
        let counted = catch_unwind(|| count(bytes).ok()).unwrap_or(None);
        let (counts, gaps) =
            counted.map_or((None, Vec::new()), |(counts, gaps)| (Some(counts), gaps));
        Counted { position, identity, counts, gaps }
    }

    /// A record that is passed on: the gaps in it are losses of the hop before.
    pub fn passed_on(position: u64, identity: Option<Identity>, bytes: &[u8]) -> Counted {
        Counted { gaps: Vec::new(), ..Counted::of(position, identity, bytes) }
    }

    /// A record that a hop does not take; `gap` says why.
    pub fn lost(position: u64, identity: Option<Identity>, gap: Gap) -> Counted {
        let counts = Counts { missing: 1, ..Counts::default() };
        Counted { position, identity, counts: Some(counts), gaps: vec![gap] }
    }
}

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Book {
    pub(crate) journal: u128,
    pub(crate) first: u64,
    pub(crate) position: u64,
    /// When it was begun, in nanoseconds since the Unix epoch.
    pub(crate) begun: i64,
    /// When it was written last.
    pub(crate) saved: i64,
    /// Whoever led it ended in order.
    pub(crate) is_closed: bool,
    /// Sources were running that lose what they have when they are killed.
    pub(crate) is_lossy: bool,
    pub(crate) entries: BTreeMap<u64, Entry>,
    /// All producers beyond the most there may be, and records that are nobody's.
    pub(crate) others: Entry,
}

impl Book {
    /// An empty book of a journal, that begins at a position.
    pub fn new(journal: u128, first: u64, begun: i64) -> Book {
        Book {
            journal,
            first,
            position: first,
            begun,
            saved: begun,
            is_closed: false,
            is_lossy: false,
            entries: BTreeMap::new(),
            others: Entry { name: "others".to_owned(), ..Entry::default() },
        }
    }

    /// The number of the journal.
    pub fn journal(&self) -> u128 {
        self.journal
    }

    /// The position of the first record that is counted.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// All records before this position, from the first on, are counted.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// When it was begun, in nanoseconds since the Unix epoch.
    pub fn begun(&self) -> i64 {
        self.begun
    }

    /// Producers by number.
    pub fn entries(&self) -> &BTreeMap<u64, Entry> {
        &self.entries
    }

    /// The last sequence of a producer's boot, if it is one of the latest boots.
    pub(crate) fn last_sequence(&self, producer: u64, boot: u64) -> Option<u64> {
        let boots = &self.entries.get(&producer)?.boots;
        boots.iter().find(|&&(known, _)| known == boot).map(|&(_, last)| last)
    }

    /// All that have no line of their own.
    pub fn others(&self) -> &Entry {
        &self.others
    }

    /// All together.
    pub fn total(&self) -> Counts {
        let mut total = self.others.counts;
        self.entries.values().for_each(|entry| total.add(&entry.counts));
        total
    }

    fn entry_mut(&mut self, producer: Option<u64>) -> &mut Entry {
        match producer {
            Some(id) if self.is_listed(id) => self.entries.entry(id).or_default(),
            _ => &mut self.others,
        }
    }

    /// Tells a producer's name; whether it is a new one.
    pub fn name(&mut self, producer: u64, name: &str) -> bool {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        if !self.is_listed(producer) || self.entry_mut(Some(producer)).name == name {
            return false;
        }
        name.clone_into(&mut self.entry_mut(Some(producer)).name);
        true
    }

    /// Whether a producer has a line of its own, or can get one.
    fn is_listed(&self, producer: u64) -> bool {
        if self.entries.contains_key(&producer) {
            return true;
        }
        let free = PRODUCERS_MAX.saturating_sub(self.entries.len());
        let origin = producer_origin(producer);
        let of_origin = with_origin(origin, 0)..=with_origin(origin, u64::MAX);
        // A flood ends here at the first that has no line.
        free > 0 && self.entries.range(of_origin).count() < FREE_TIMES_MAX * free
    }

    /// Counts a record. One that is counted already is passed over; those that were passed over on the way to it are
    /// missing.
    pub fn add(&mut self, position: u64, identity: Option<Identity>, bytes: &[u8]) {
        if position >= self.position {
            self.add_counted(&Counted::of(position, identity, bytes));
        }
    }

    /// The same of a record that was counted before.
    pub fn add_counted(&mut self, counted: &Counted) {
        let _batch = self.add_batch(counted);
    }

    /// The same; what the batch had, if it was not passed over and that is known.
    pub(crate) fn add_batch(&mut self, counted: &Counted) -> Option<BatchCounts> {
        let &Counted { position, identity, ref counts, ref gaps } = counted;
        if position < self.position {
            return None;
        }
        self.others.add_missing(position - self.position);
        self.position = position + 1;
        let producer = identity.map(|identity| identity.producer);
        let is_listed = producer.is_some_and(|id| self.is_listed(id));
        let entry = self.entry_mut(producer);
        // Of those who share a line, nobody knows the sequences.
        if is_listed && identity.is_some_and(|identity| entry.is_repeat(identity)) {
            entry.counts.repeated = entry.counts.repeated.saturating_add(1);
            let counts = BatchSums::default();
            return producer.map(|producer| BatchCounts { position, producer, counts });
        }
        match counts {
            Some(counts) => {
                entry.counts.add(counts);
                for gap in gaps {
                    self.lose(gap.producer.or(producer), gap);
                }
            }
            None => entry.counts.unreadable = entry.counts.unreadable.saturating_add(1),
        }
        let &Counts { batches, samples, values, .. } = counts.as_ref()?;
        let counts = BatchSums { batches, samples, values };
        producer.map(|producer| BatchCounts { position, producer, counts })
    }

    /// Counts a loss that is told by a gap.
    pub fn lose(&mut self, producer: Option<u64>, gap: &Gap) {
        lose(&mut self.entry_mut(producer).losses, gap);
    }

    /// Counts records that the journal has lost.
    pub fn miss(&mut self, gap: &journal::Gap) {
        let end = gap.positions.end;
        let Some(records) = end.checked_sub(self.position).filter(|&records| records > 0) else {
            return;
        };
        // Whose they were is known of all of a gap, or of none.
        let is_whole = gap.complete && gap.positions.start >= self.position;
        let untold = gap.positions.start.saturating_sub(self.position);
        self.others.add_missing(untold);
        let mut left = records - untold;
        self.position = end;
        let (start, end) = gap.time.clone().map_or((self.saved, self.saved), |time| {
            let (start, end) = time.into_inner();
            (start, end)
        });
        let lose = |book: &mut Book, producer: Option<u64>, records: u64| {
            book.entry_mut(producer).add_missing(records);
            let reason = format!("missing in the journal: {}", gap.reason);
            book.lose(producer, &Gap { start, end, producer, lost: Some(records), reason });
        };
        if is_whole {
            for part in &gap.producers {
                lose(self, Some(part.producer), part.records.min(left));
                left -= part.records.min(left);
            }
        }
        if left > 0 {
            lose(self, None, left);
        }
    }
}
