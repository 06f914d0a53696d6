//! Mapped part of a simulated file.
//!
//! The first [`FUTEX_BYTES`] are used as 32-bit futex words; as the same bytes must never be
//! accessed in two widths, nothing here accesses them once a region exists.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use disk::{FUTEX_BYTES, Region};

use super::pages::{Pages, split_aligned};

/// Mapped words of a simulated file.
#[derive(Clone, Debug)]
pub(super) struct MappedWords(Arc<[AtomicU64]>);

impl MappedWords {
    /// Memory with all complete words of a file.
    pub(super) fn from_pages(file: &Pages) -> MappedWords {
        let word = |index: u64| {
            let mut bytes = [0; 8];
            file.read(&mut bytes, index * 8);
            AtomicU64::new(u64::from_le_bytes(bytes))
        };
        MappedWords((0..file.len() / 8).map(word).collect())
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64 * 8
    }

    /// The first `len` bytes as a region that drops `token` when it ends.
    pub(super) fn region(&self, len: u64, token: Arc<()>) -> Region {
        Region::from_words(Arc::clone(&self.0), len as usize, token)
    }

    /// Replaces the part of `bytes`, at `offset` of the file, that is mapped.
    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) {
        for (word, within, range) in split_aligned(offset, bytes.len(), 8) {
            if let Some(word) = self.word(word) {
                let bytes = &mut bytes[range];
                let all = word.load(Acquire).to_le_bytes();
                bytes.copy_from_slice(&all[within..within + bytes.len()]);
            }
        }
    }

    /// Writes the part of `bytes`, at `offset` of the file, that is mapped.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) {
        for (word, within, range) in split_aligned(offset, bytes.len(), 8) {
            if let Some(word) = self.word(word) {
                let bytes = &bytes[range];
                // Other threads may store to the rest of the word at the same time.
                let change = |old: u64| {
                    let mut all = old.to_le_bytes();
                    all[within..within + bytes.len()].copy_from_slice(bytes);
                    Some(u64::from_le_bytes(all))
                };
                let _ = word.fetch_update(AcqRel, Acquire, change);
            }
        }
    }

    /// Zeroes everything from `offset` on.
    pub(super) fn zero_from(&self, offset: u64) {
        let count = self.len().saturating_sub(offset);
        self.write(&vec![0; count as usize], offset);
    }

    /// The word with this index, unless it is in the wake page or past the end.
    fn word(&self, index: u64) -> Option<&AtomicU64> {
        let index = usize::try_from(index).ok()?;
        self.0.get(index).filter(|_| index >= FUTEX_BYTES / 8)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{Relaxed, Release};
    use std::thread;

    use super::*;

    const BASE: u64 = FUTEX_BYTES as u64;

    fn words() -> MappedWords {
        let mut file = Pages::default();
        file.write(&[1, 2, 3, 4, 5, 6, 7, 8], BASE);
        file.set_len(BASE + 67);
        MappedWords::from_pages(&file)
    }

    #[test]
    fn miri_bytes_and_words_are_the_same_memory() {
        let words = words();
        assert_eq!(words.len(), BASE + 64);
        let region = words.region(BASE + 64, Arc::default());
        assert_eq!(region[0].load(Relaxed), 0x0807_0605_0403_0201);
        words.write(&[0xff; 10], BASE + 3);
        assert_eq!(region[0].load(Relaxed), 0xffff_ffff_ff03_0201);
        assert_eq!(region[1].load(Relaxed), 0x00ff_ffff_ffff);
        region[2].store(0x42, Release);
        let mut bytes = [9; 12];
        words.read(&mut bytes, BASE + 12);
        assert_eq!(bytes, [0xff, 0, 0, 0, 0x42, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn miri_wake_page_and_tail_are_untouched() {
        let words = words();
        let region = words.region(BASE + 8, Arc::default());
        assert_eq!(region.len(), 1);
        region.futex_word(63).store(7, Relaxed);
        words.write(&[0xee; 64 + 80], BASE - 64);
        assert_eq!(region.futex_word(63).load(Relaxed), 7);
        let mut bytes = [9; 64 + 80];
        words.read(&mut bytes, BASE - 64);
        assert!(bytes[..64].iter().all(|&b| b == 9));
        assert!(bytes[64..128].iter().all(|&b| b == 0xee));
        assert!(bytes[128..].iter().all(|&b| b == 9));
    }

    #[test]
    fn miri_adjacent_write_and_store_are_both_kept() {
        let words = words();
        let region = words.region(BASE + 64, Arc::default());
        thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|_| words.write(&[1], BASE + 8)));
            scope.spawn(|| (0..50).map(|_| region[1].fetch_add(1 << 32, Relaxed)).max());
            scope.spawn(|| region.futex_word(0).store(3, Relaxed));
        });
        assert_eq!(region[1].load(Relaxed), (50 << 32) + 1);
    }
}
