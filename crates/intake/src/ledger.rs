//! Ledger: counts per producer up to a journal position.
//!
//! Every record before [`Ledger::position`] is counted exactly once, as a batch, a duplicate,
//! undecodable, or missing; the sum of [`ProducerCounts::records`] is `position - first`.
//! Checkpoints, reloads and further reads do not change the result: records before the position are
//! skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use journal::{BatchIdentity, producer_origin, with_origin};
use model::Gap;

use crate::counts::{Loss, ProducerCounts, add_loss, count_batch};
use crate::recent_batches::{BatchCounts, BatchSums};

/// Maximum number of producers with an entry of their own; all others share one.
pub const PRODUCERS_MAX: usize = 4096;
/// An origin may have this many times as many entries as are free, so that some remain for others:
/// 3,641 if it is alone, then 404 for the next (dynamic threshold; Choudhury, Hahne 1998).
const FREE_TIMES_MAX: usize = 8;
/// Maximum stored length of a producer's name, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Number of latest epochs per producer for which duplicates are detected.
pub(crate) const EPOCHS_MAX: usize = 4;

/// Ledger entry of one producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Producer name; empty if unknown.
    pub name: String,
    /// Counts.
    pub counts: ProducerCounts,
    /// Known losses.
    pub losses: Vec<Loss>,
    /// Boot and last sequence of each of the latest epochs, the latest last.
    pub(crate) epochs: Vec<(u64, u64)>,
}

impl LedgerEntry {
    fn add_missing(&mut self, records: u64) {
        self.counts.missing = self.counts.missing.saturating_add(records);
    }

    /// Whether a batch is a duplicate; records its sequence if not.
    fn check_and_record(&mut self, identity: BatchIdentity) -> bool {
        let known = self.epochs.iter().position(|&(epoch, _)| epoch == identity.epoch);
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
    /// `None` for an undecodable record.
    counts: Option<ProducerCounts>,
    gaps: Vec<Gap>,
}

impl CountedRecord {
    /// A journal record with its gaps.
    pub(crate) fn from_record(
        position: u64,
        identity: Option<BatchIdentity>,
        bytes: &[u8],
    ) -> CountedRecord {
        // A record on which counting panics counts as undecodable.
        let counted = catch_unwind(|| count_batch(bytes).ok()).unwrap_or(None);
        let (counts, gaps) =
            counted.map_or((None, Vec::new()), |(counts, gaps)| (Some(counts), gaps));
        CountedRecord { position, identity, counts, gaps }
    }

    /// A forwarded record: the gaps in it are losses of the previous stage.
    pub fn forwarded(
        position: u64,
        identity: Option<BatchIdentity>,
        bytes: &[u8],
    ) -> CountedRecord {
        CountedRecord { gaps: Vec::new(), ..CountedRecord::from_record(position, identity, bytes) }
    }

    /// A record that a stage rejects; `gap` has the reason.
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
    /// Creation time, in nanoseconds since the Unix epoch.
    pub(crate) started_at: i64,
    /// Time of the last checkpoint.
    pub(crate) saved_at: i64,
    /// Whether the last process shut down cleanly.
    pub(crate) is_closed: bool,
    /// Whether sources were running that lose buffered data in a kill.
    pub(crate) is_volatile: bool,
    /// Producers of these sources; empty if they are not known.
    pub(crate) volatile_producers: BTreeSet<u64>,
    pub(crate) entries: BTreeMap<u64, LedgerEntry>,
    /// Shared entry of producers beyond the maximum and records without a producer.
    pub(crate) unattributed: LedgerEntry,
}

impl Ledger {
    /// An empty ledger of a journal, starting at position `first`.
    pub fn new(journal: u128, first: u64, begun: i64) -> Ledger {
        Ledger {
            journal,
            first,
            position: first,
            started_at: begun,
            saved_at: begun,
            is_closed: false,
            is_volatile: false,
            volatile_producers: BTreeSet::new(),
            entries: BTreeMap::new(),
            unattributed: LedgerEntry { name: "others".to_owned(), ..LedgerEntry::default() },
        }
    }

    /// Journal id.
    pub fn journal(&self) -> u128 {
        self.journal
    }

    /// Position of the first counted record.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Records from `first` to before this position are counted.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Creation time, in nanoseconds since the Unix epoch.
    pub fn started_at(&self) -> i64 {
        self.started_at
    }

    /// Entries by producer id.
    pub fn entries(&self) -> &BTreeMap<u64, LedgerEntry> {
        &self.entries
    }

    /// Last sequence of a producer epoch, if it is one of the latest epochs.
    pub(crate) fn last_sequence(&self, producer: u64, epoch: u64) -> Option<u64> {
        let epochs = &self.entries.get(&producer)?.epochs;
        epochs.iter().find(|&&(known, _)| known == epoch).map(|&(_, last)| last)
    }

    /// Shared entry of unlisted producers.
    pub fn unattributed(&self) -> &LedgerEntry {
        &self.unattributed
    }

    /// Sum of all entries.
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

    /// Sets a producer's name; returns whether it changed.
    pub fn set_name(&mut self, producer: u64, name: &str) -> bool {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        if !self.is_listed(producer) || self.entry_mut(Some(producer)).name == name {
            return false;
        }
        name.clone_into(&mut self.entry_mut(Some(producer)).name);
        true
    }

    /// Whether a producer has an entry of its own, or can get one.
    fn is_listed(&self, producer: u64) -> bool {
        if self.entries.contains_key(&producer) {
            return true;
        }
        let free = PRODUCERS_MAX.saturating_sub(self.entries.len());
        let origin = producer_origin(producer);
        let of_origin = with_origin(origin, 0)..=with_origin(origin, u64::MAX);
        // The limit per origin ends a flood here.
        free > 0 && self.entries.range(of_origin).count() < FREE_TIMES_MAX * free
    }

    /// Counts a record. Records before the position are skipped; positions skipped on the way to
    /// the record are counted as missing.
    pub fn add(&mut self, position: u64, identity: Option<BatchIdentity>, bytes: &[u8]) {
        if position >= self.position {
            self.add_counted(&CountedRecord::from_record(position, identity, bytes));
        }
    }

    /// Adds a record that [`CountedRecord`] has counted.
    pub fn add_counted(&mut self, counted: &CountedRecord) {
        let _batch = self.add_batch(counted);
    }

    /// Like `add_counted`; returns the batch's counts, if it was not skipped and they are known.
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
        // The shared entry has no sequences.
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

    /// Counts a loss reported by a gap.
    pub fn add_loss(&mut self, producer: Option<u64>, gap: &Gap) {
        add_loss(&mut self.entry_mut(producer).losses, gap);
    }

    /// Counts records that the journal has lost.
    pub fn add_missing(&mut self, gap: &journal::RecordGap) {
        let end = gap.positions.end;
        let Some(records) = end.checked_sub(self.position).filter(|&records| records > 0) else {
            return;
        };
        // The producers of a gap's records are known for all of them or for none.
        let is_whole = gap.is_complete && gap.positions.start >= self.position;
        let unreported = gap.positions.start.saturating_sub(self.position);
        self.unattributed.add_missing(unreported);
        let mut remaining = records - unreported;
        self.position = end;
        let (start, end) = gap.time.clone().map_or((self.saved_at, self.saved_at), |time| {
            let (start, end) = time.into_inner();
            (start, end)
        });
        let lose = |ledger: &mut Ledger, producer: Option<u64>, records: u64| {
            ledger.entry_mut(producer).add_missing(records);
            let reason = format!("missing in the journal: {}", gap.reason);
            ledger.add_loss(producer, &Gap { start, end, producer, lost: Some(records), reason });
        };
        if is_whole {
            for part in &gap.producers {
                lose(self, Some(part.producer), part.records.min(remaining));
                remaining -= part.records.min(remaining);
            }
        }
        if remaining > 0 {
            lose(self, None, remaining);
        }
    }
}
