//! Counts of the latest batches of the journal: producer, samples and values of each.
//!
//! A ledger has sums only. If a record is found damaged after it was counted, the sums do not tell
//! its counts. This table does, for the last [`BATCHES_MAX`] batches, and for batches in damaged
//! ranges as long as the audit may need them.
//!
//! The file is written beside the journal's ledger, and before it, so that it has every batch that
//! the ledger counts. New batches are appended, and the file is rewritten when it has
//! [`FILE_BATCHES_MAX`] batches.
//!
//! ```text
//! offset  size  field
//!      0     8  magic       b"tdBatch1"
//!      8     8  reserved    0
//!     16    16  journal_id
//!     32    48  for each batch: position, producer, batches (0 for a duplicate), samples, values,
//!               and the CRC-32C of these and the journal_id
//! ```
//! All numbers are little endian and have 8 bytes. Batches up to the first damaged one are valid; a
//! file of another journal has no valid batches.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use disk::{Disk, OpenMode};

/// Number of remembered batches. Usually more than the batches that the store has not flushed yet.
pub(crate) const BATCHES_MAX: usize = 1 << 14;
/// Maximum number of batches in the file (3 MiB); then it is rewritten.
const FILE_BATCHES_MAX: usize = 4 * BATCHES_MAX;
/// File name, in the directory of the ledgers. No ledger file name contains a dot.
const FILE: &str = "recent.batches";
const MAGIC: [u8; 8] = *b"tdBatch1";
const HEAD_BYTES: usize = 32;
const BATCH_BYTES: usize = 48;
/// Offset of a batch's checksum.
const CRC_AT: usize = 40;

/// Counts of a batch; zero for a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchCounts {
    pub(crate) position: u64,
    pub(crate) producer: u64,
    pub(crate) counts: BatchSums,
}

/// Number of batches, and the sums of their counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchSums {
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) values: u64,
}

impl BatchSums {
    pub(crate) fn add(&mut self, other: &BatchSums) {
        self.batches = self.batches.saturating_add(other.batches);
        self.samples = self.samples.saturating_add(other.samples);
        self.values = self.values.saturating_add(other.values);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RecentBatches {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    journal: u128,
    /// By ascending position.
    batches: VecDeque<BatchCounts>,
    /// Number of batches at the end that are not in the file yet.
    unsaved: usize,
    /// Number of batches in the file; `None` if it has to be rewritten.
    in_file: Option<usize>,
    /// Damaged ranges of positions, sorted; their batches are not evicted. `None` until the ranges
    /// are known: then nothing is evicted.
    damaged: Option<Vec<Range<u64>>>,
}

impl RecentBatches {
    /// Opens the batches of a journal, in the directory of its ledgers.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: PathBuf, journal: u128) -> RecentBatches {
        let path = dir.join(FILE);
        // Unreadable batches are unknown; the audit reports that.
        let bytes = read(&*disk, &path).unwrap_or_default();
        let batches: VecDeque<BatchCounts> = parse(&bytes, journal).into();
        let is_whole = bytes.len() == HEAD_BYTES + batches.len() * BATCH_BYTES;
        let in_file = is_whole.then_some(batches.len());
        RecentBatches { disk, path, journal, batches, unsaved: 0, in_file, damaged: None }
    }

    /// Adds a batch. A batch that is not behind the last one is skipped as known.
    pub(crate) fn add(&mut self, batch: BatchCounts) {
        if self.batches.back().is_some_and(|last| last.position >= batch.position) {
            return;
        }
        self.batches.push_back(batch);
        self.unsaved += 1;
        // Beyond this bound damaged ranges are evicted too.
        if self.batches.len() > 2 * FILE_BATCHES_MAX {
            self.batches.pop_front();
        }
    }

    /// Removes batches outside the range that the ledger has counted.
    pub(crate) fn keep_counted(&mut self, counted: Range<u64>) {
        let before = self.batches.len();
        self.batches.retain(|batch| counted.contains(&batch.position));
        if self.batches.len() < before {
            self.in_file = None;
        }
    }

    /// Pins the batches of these ranges, and evicts other old batches.
    pub(crate) fn keep(&mut self, mut damaged: Vec<Range<u64>>) {
        model::sort::by_key(&mut damaged, |range| range.start);
        self.damaged = Some(damaged);
    }

    fn forget(&mut self) {
        let Some(damaged) = &self.damaged else { return };
        let first_recent = self.batches.len().saturating_sub(BATCHES_MAX);
        let mut at = 0;
        self.batches.retain(|batch| {
            at += 1;
            let below = damaged.partition_point(|range| range.start <= batch.position);
            let is_damaged = below > 0 && damaged[below - 1].contains(&batch.position);
            at > first_recent || is_damaged
        });
    }

    /// Counts of the batches at these positions, by producer; `None` if any of them is unknown.
    pub(crate) fn sums(&self, positions: &Range<u64>) -> Option<BTreeMap<u64, BatchSums>> {
        let from = self.batches.partition_point(|batch| batch.position < positions.start);
        let inside = self.batches.range(from..);
        let mut sums: BTreeMap<u64, BatchSums> = BTreeMap::new();
        let mut found = 0;
        for batch in inside.take_while(|batch| batch.position < positions.end) {
            found += 1;
            sums.entry(batch.producer).or_default().add(&batch.counts);
        }
        (found == positions.end.saturating_sub(positions.start)).then_some(sums)
    }

    /// Writes the batches durably.
    pub(crate) fn save(&mut self) -> std::io::Result<()> {
        let unsaved = self.unsaved.min(self.batches.len());
        let in_file = self.in_file.filter(|&have| have + unsaved <= FILE_BATCHES_MAX);
        self.in_file = None;
        self.in_file = match in_file {
            Some(have) if unsaved == 0 => Some(have),
            Some(have) => {
                let new = self.batches.range(self.batches.len() - unsaved..);
                let bytes: Vec<u8> = new.flat_map(|batch| batch.encode(self.journal)).collect();
                let file = self.disk.open(&self.path, OpenMode::Write)?;
                file.write_all_at(&bytes, (HEAD_BYTES + have * BATCH_BYTES) as u64)?;
                file.sync()?;
                Some(have + unsaved)
            }
            None => {
                self.forget();
                self.rewrite()?;
                Some(self.batches.len())
            }
        };
        self.unsaved = 0;
        Ok(())
    }

    fn rewrite(&self) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.batches.len() * BATCH_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.journal.to_le_bytes());
        self.batches.iter().for_each(|batch| bytes.extend(batch.encode(self.journal)));
        let new = disk::write_replacement(&*self.disk, &self.path, &bytes)
            .map_err(|error| error.source)?;
        // The directory is synced with the ledger, which is written next.
        self.disk.rename(&new, &self.path)
    }
}

impl BatchCounts {
    fn encode(&self, journal: u128) -> [u8; BATCH_BYTES] {
        let BatchSums { batches, samples, values } = self.counts;
        let mut bytes = [0; BATCH_BYTES];
        let numbers = [self.position, self.producer, batches, samples, values];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = checksum(&bytes[..CRC_AT], journal);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], journal: u128) -> Option<BatchCounts> {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(8 * at..)?.first_chunk()?));
        let counts = BatchSums { batches: number(2)?, samples: number(3)?, values: number(4)? };
        let batch = BatchCounts { position: number(0)?, producer: number(1)?, counts };
        (number(5)? == checksum(&bytes[..CRC_AT], journal)).then_some(batch)
    }
}

fn checksum(bytes: &[u8], journal: u128) -> u64 {
    crc32c::crc32c_append(crc32c::crc32c(&journal.to_le_bytes()), bytes).into()
}

fn read(disk: &dyn Disk, path: &std::path::Path) -> Option<Vec<u8>> {
    const BYTES_MAX: usize = HEAD_BYTES + 2 * FILE_BATCHES_MAX * BATCH_BYTES;
    let bytes = disk::read_file(disk, path, BYTES_MAX as u64 + 1).ok()??;
    (bytes.len() <= BYTES_MAX).then_some(bytes)
}

fn parse(bytes: &[u8], journal: u128) -> Vec<BatchCounts> {
    let Some((head, body)) = bytes.split_at_checked(HEAD_BYTES) else { return Vec::new() };
    let is_ours = head[..16] == [MAGIC, [0; 8]].concat() && head[16..] == journal.to_le_bytes();
    let mut last = None;
    let batches = body.chunks_exact(BATCH_BYTES).map_while(|bytes| {
        let batch = BatchCounts::decode(bytes, journal)?;
        let is_behind = last.is_none_or(|last| last < batch.position);
        last = Some(batch.position);
        is_behind.then_some(batch)
    });
    if is_ours { batches.collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sim::SimDisk;

    use super::*;

    fn open(disk: &Arc<dyn Disk>, journal: u128) -> RecentBatches {
        RecentBatches::open(Arc::clone(disk), PathBuf::from("/ledgers"), journal)
    }

    fn batch(position: u64) -> BatchCounts {
        BatchCounts { position, producer: position % 2, counts: sums(1) }
    }

    fn sums(batches: u64) -> BatchSums {
        BatchSums { batches, samples: batches, values: 10 * batches }
    }

    #[test]
    fn what_batches_had_is_known_after_a_restart_and_not_where_one_is_unknown() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new("/ledgers")).unwrap();
        let mut recent = open(&disk, 7);
        [3, 4, 5, 6, 9].into_iter().for_each(|position| recent.add(batch(position)));
        recent.add(batch(4));
        // A duplicate.
        recent.add(BatchCounts { counts: BatchSums::default(), ..batch(11) });
        recent.save().unwrap();
        let recent = open(&disk, 7);
        assert_eq!(recent.sums(&(4..7)), Some([(0, sums(2)), (1, sums(1))].into()));
        assert_eq!(recent.sums(&(9..10)), Some([(1, sums(1))].into()));
        assert_eq!(recent.sums(&(11..12)), Some([(1, BatchSums::default())].into()));
        assert_eq!(recent.sums(&(6..10)), None, "7 and 8 are unknown");
        assert_eq!(recent.sums(&(2..4)), None);
        assert_eq!(open(&disk, 8).sums(&(4..7)), None, "the file is of another journal");
    }

    #[test]
    fn old_batches_are_forgotten_unless_they_are_damaged() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new("/ledgers")).unwrap();
        let mut recent = open(&disk, 7);
        let batches = FILE_BATCHES_MAX as u64 + 10;
        (0..10).for_each(|position| recent.add(batch(position)));
        recent.save().unwrap();
        let damaged = 1..2;
        recent.keep(vec![damaged.clone()]);
        (10..batches).for_each(|position| recent.add(batch(position)));
        // The file is rewritten.
        recent.save().unwrap();
        for recent in [recent, open(&disk, 7)] {
            assert_eq!(recent.sums(&(0..1)), None);
            assert_eq!(recent.sums(&damaged), Some([(1, sums(1))].into()));
            assert_eq!(recent.batches.len(), BATCHES_MAX + 1);
        }
    }

    #[test]
    fn batches_before_damage_are_valid_and_the_next_file_is_intact() {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.process());
        disk.create_dir(Path::new("/ledgers")).unwrap();
        let mut recent = open(&disk, 7);
        for position in 0..3 {
            recent.add(batch(position));
            recent.save().unwrap();
        }
        let path = Path::new("/ledgers/recent.batches");
        for at in 0..(HEAD_BYTES + 3 * BATCH_BYTES) as u64 {
            sim.flip_bit(path, at, 1);
            let expected =
                at.checked_sub(HEAD_BYTES as u64).map_or(0, |at| at as usize / BATCH_BYTES);
            assert_eq!(open(&disk, 7).batches.len(), expected, "byte {at}");
            sim.flip_bit(path, at, 1);
        }
        assert_eq!(open(&disk, 7).batches.len(), 3);
        sim.flip_bit(path, (HEAD_BYTES + BATCH_BYTES) as u64, 1);
        let mut recent = open(&disk, 7);
        recent.add(batch(5));
        recent.save().unwrap();
        let positions =
            open(&disk, 7).batches.iter().map(|batch| batch.position).collect::<Vec<_>>();
        assert_eq!(positions, [0, 5]);
    }
}
