//! Ledger: counts per producer up to a journal position.
//!
//! Every record before [`Book::position`] is in the book exactly once, as a batch, a repeat,
//! something that cannot be read, or missing; so the sum of [`Counts::records`] is
//! `position - first`. A book is the same whenever it is written, read, and led on: what is before
//! its position it does not take again.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use journal::{BatchIdentity, producer_origin, with_origin};
use model::Gap;

use crate::counts::{Loss, ProducerCounts, add_loss, count_batch};
use crate::recent_batches::{BatchCounts, BatchSums};

/// Producers that have a line of their own; all others have one together.
pub const PRODUCERS_MAX: usize = 4096;
/// An origin may have so many times as many lines as are free, so that there are always some for
/// others: 3,641 if it is alone, then 404 of the next (dynamic threshold; Choudhury, Hahne 1998).
const FREE_TIMES_MAX: usize = 8;
/// Bytes of a producer's name that are kept.
const NAME_BYTES_MAX: usize = 128;
/// Boots of a producer of which repeats are recognised: the latest that came.
pub(crate) const EPOCHS_MAX: usize = 4;

/// Ledger entry of one producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Its name; empty if nobody told it.
    pub name: String,
    /// What came.
    pub counts: ProducerCounts,
    /// What is known to be lost.
    pub losses: Vec<Loss>,
    /// The last sequence of each of the latest boots, the latest last.
    pub(crate) epochs: Vec<(u64, u64)>,
}

impl LedgerEntry {
    fn add_missing(&mut self, records: u64) {
        self.counts.missing = self.counts.missing.saturating_add(records);
    }

    /// Whether a batch was counted before; remembers it if not.
    fn check_and_record(&mut self, identity: BatchIdentity) -> bool {
        let known = self.epochs.iter().position(|&(boot, _)| boot == identity.epoch);
        if let Some(at) = known {
            let (_, last) = self.epochs[at];
            if identity.sequence <= last {
                return true;
            }
            self.epochs.remove(at);
        } else if self.epochs.len() == EPOCHS_MAX {
            self.epochs.remove(0);
        }
        self.epochs.push((identity.epoch, identity.sequence));
        false
    }
}

/// A counted record that is in no ledger yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedRecord {
    position: u64,
    identity: Option<BatchIdentity>,
    /// None of a record that cannot be read.
    counts: Option<ProducerCounts>,
    gaps: Vec<Gap>,
}

impl CountedRecord {
    /// A record of a journal, and the gaps in it.
    pub fn from_record(
        position: u64,
        identity: Option<BatchIdentity>,
        bytes: &[u8],
    ) -> CountedRecord {
        // A record on which counting panics counts as one that cannot be read.
        let counted = catch_unwind(|| count_batch(bytes).ok()).unwrap_or(None);
        let (counts, gaps) =
            counted.map_or((None, Vec::new()), |(counts, gaps)| (Some(counts), gaps));
        CountedRecord { position, identity, counts, gaps }
    }

    /// A record that is passed on: the gaps in it are losses of the hop before.
    pub fn forwarded(
        position: u64,
        identity: Option<BatchIdentity>,
        bytes: &[u8],
    ) -> CountedRecord {
        CountedRecord { gaps: Vec::new(), ..CountedRecord::from_record(position, identity, bytes) }
    }

    /// A record that a hop does not take; `gap` says why.
    pub fn lost(position: u64, identity: Option<BatchIdentity>, gap: Gap) -> CountedRecord {
        let counts = ProducerCounts { missing: 1, ..ProducerCounts::default() };
        CountedRecord { position, identity, counts: Some(counts), gaps: vec![gap] }
    }
}

/// Counts per producer up to a journal position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub(crate) journal: u128,
    pub(crate) first: u64,
    pub(crate) position: u64,
    /// When it was begun, in nanoseconds since the Unix epoch.
    pub(crate) started_at: i64,
    /// When it was written last.
    pub(crate) saved_at: i64,
    /// Whoever led it ended in order.
    pub(crate) is_closed: bool,
    /// Sources were running that lose what they have when they are killed.
    pub(crate) is_volatile: bool,
    pub(crate) entries: BTreeMap<u64, LedgerEntry>,
    /// All producers beyond the most there may be, and records that are nobody's.
    pub(crate) unattributed: LedgerEntry,
}

impl Ledger {
    /// An empty book of a journal, that begins at a position.
    pub fn new(journal: u128, first: u64, begun: i64) -> Ledger {
        Ledger {
            journal,
            first,
            position: first,
            started_at: begun,
            saved_at: begun,
            is_closed: false,
            is_volatile: false,
            entries: BTreeMap::new(),
            unattributed: LedgerEntry { name: "others".to_owned(), ..LedgerEntry::default() },
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
    pub fn started_at(&self) -> i64 {
        self.started_at
    }

    /// Producers by number.
    pub fn entries(&self) -> &BTreeMap<u64, LedgerEntry> {
        &self.entries
    }

    /// The last sequence of a producer's boot, if it is one of the latest boots.
    pub(crate) fn last_sequence(&self, producer: u64, boot: u64) -> Option<u64> {
        let boots = &self.entries.get(&producer)?.epochs;
        boots.iter().find(|&&(known, _)| known == boot).map(|&(_, last)| last)
    }

    /// All that have no line of their own.
    pub fn unattributed(&self) -> &LedgerEntry {
        &self.unattributed
    }

    /// All together.
    pub fn total(&self) -> ProducerCounts {
        let mut total = self.unattributed.counts;
        self.entries.values().for_each(|entry| total.add(&entry.counts));
        total
    }

    fn entry_mut(&mut self, producer: Option<u64>) -> &mut LedgerEntry {
        match producer {
            Some(id) if self.is_listed(id) => self.entries.entry(id).or_default(),
            _ => &mut self.unattributed,
        }
    }

    /// Tells a producer's name; whether it is a new one.
    pub fn set_name(&mut self, producer: u64, name: &str) -> bool {
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

    /// Counts a record. One that is counted already is passed over; those that were passed over on
    /// the way to it are missing.
    pub fn add(&mut self, position: u64, identity: Option<BatchIdentity>, bytes: &[u8]) {
        if position >= self.position {
            self.add_counted(&CountedRecord::from_record(position, identity, bytes));
        }
    }

    /// The same of a record that was counted before.
    pub fn add_counted(&mut self, counted: &CountedRecord) {
        let _batch = self.add_batch(counted);
    }

    /// The same; what the batch had, if it was not passed over and that is known.
    pub(crate) fn add_batch(&mut self, counted: &CountedRecord) -> Option<BatchCounts> {
        let &CountedRecord { position, identity, ref counts, ref gaps } = counted;
        if position < self.position {
            return None;
        }
        self.unattributed.add_missing(position - self.position);
        self.position = position + 1;
        let producer = identity.map(|identity| identity.producer);
        let is_listed = producer.is_some_and(|id| self.is_listed(id));
        let entry = self.entry_mut(producer);
        // Of those who share a line, nobody knows the sequences.
        if is_listed && identity.is_some_and(|identity| entry.check_and_record(identity)) {
            entry.counts.duplicates = entry.counts.duplicates.saturating_add(1);
            let counts = BatchSums::default();
            return producer.map(|producer| BatchCounts { position, producer, counts });
        }
        match counts {
            Some(counts) => {
                entry.counts.add(counts);
                for gap in gaps {
                    self.add_loss(gap.producer.or(producer), gap);
                }
            }
            None => entry.counts.undecodable = entry.counts.undecodable.saturating_add(1),
        }
        let &ProducerCounts { batches, samples, values, .. } = counts.as_ref()?;
        let counts = BatchSums { batches, samples, values };
        producer.map(|producer| BatchCounts { position, producer, counts })
    }

    /// Counts a loss that is told by a gap.
    pub fn add_loss(&mut self, producer: Option<u64>, gap: &Gap) {
        add_loss(&mut self.entry_mut(producer).losses, gap);
    }

    /// Counts records that the journal has lost.
    pub fn add_missing(&mut self, gap: &journal::RecordGap) {
        let end = gap.positions.end;
        let Some(records) = end.checked_sub(self.position).filter(|&records| records > 0) else {
            return;
        };
        // Whose they were is known of all of a gap, or of none.
        let is_whole = gap.is_complete && gap.positions.start >= self.position;
        let untold = gap.positions.start.saturating_sub(self.position);
        self.unattributed.add_missing(untold);
        let mut left = records - untold;
        self.position = end;
        let (start, end) = gap.time.clone().map_or((self.saved_at, self.saved_at), |time| {
            let (start, end) = time.into_inner();
            (start, end)
        });
        let lose = |book: &mut Ledger, producer: Option<u64>, records: u64| {
            book.entry_mut(producer).add_missing(records);
            let reason = format!("missing in the journal: {}", gap.reason);
            book.add_loss(producer, &Gap { start, end, producer, lost: Some(records), reason });
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
